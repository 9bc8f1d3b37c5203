"""Limits on the decompressed size of a file.

A few kilobytes of compressed zeros can expand to gigabytes. Readers of compressed data therefore have a limit before they
allocate: the caller's, or the larger of `FREE` bytes and `RATIO` times the size of the file. Datasets of images, text and
numbers compress to between a half and a tenth.
"""

from __future__ import annotations

from typing import BinaryIO

FREE = 64 << 20
RATIO = 100
_CHUNK = 1 << 20


def unpacked_limit(size: int, max_bytes: int | None = None) -> int:
    """The largest decompressed size allowed for a file of `size` bytes."""
    return max(FREE, RATIO * size) if max_bytes is None else max_bytes


def too_large(size: int, limit: int) -> str:
    """The error text for data of `size` bytes."""
    return f"it unpacks to {size:,} bytes or more, and {limit:,} are allowed. Pass max_bytes= if you trust the file."


class Bounded:
    """A decompressing stream that raises OverflowError after `limit` bytes; it never buffers more than is requested."""

    def __init__(self, stream: BinaryIO, limit: int) -> None:
        self._stream, self._limit, self._read = stream, limit, 0

    @property
    def left(self) -> int:
        """Bytes left until the limit."""
        return self._limit - self._read

    def read(self, count: int) -> bytes:
        """Up to `count` bytes, fewer only at the end."""
        parts = []
        while count > 0:
            part = self._stream.read(min(count, _CHUNK))  # in chunks: streams allocate the requested size up front
            if not part:
                break
            self._read += len(part)
            if self._read > self._limit:
                raise OverflowError(too_large(self._read, self._limit))
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def readinto(self, memory: memoryview) -> int:
        """Fill `memory`; returns the number of bytes read."""
        filled = 0
        while filled < len(memory):
            part = self.read(min(len(memory) - filled, _CHUNK))
            if not part:
                break
            memory[filled : filled + len(part)] = part
            filled += len(part)
        return filled
