"""How much a compressed file may unpack to.

A few kilobytes of zeros can stand for gigabytes. A reader of compressed data therefore gets a limit before it allocates:
what the caller says, or `FREE` bytes, or `RATIO` times the size of the file if that is more. Data sets of images, text and
numbers compress to between a half and a tenth.
"""

from __future__ import annotations

from typing import BinaryIO

FREE = 64 << 20
RATIO = 100
_CHUNK = 1 << 20


def unpacked_limit(size: int, max_bytes: int | None = None) -> int:
    """The number of bytes that a compressed file of `size` bytes may unpack to."""
    return max(FREE, RATIO * size) if max_bytes is None else max_bytes


def too_large(size: int, limit: int) -> str:
    """The reason to refuse what needs `size` bytes."""
    return f"it unpacks to {size:,} bytes or more, and {limit:,} are allowed. Pass max_bytes= if you trust the file."


class Bounded:
    """A stream of unpacked data that ends in OverflowError after `limit` bytes; it never holds more than is asked for."""

    def __init__(self, stream: BinaryIO, limit: int) -> None:
        self._stream, self._limit, self._read = stream, limit, 0

    @property
    def left(self) -> int:
        """How many more bytes may come."""
        return self._limit - self._read

    def read(self, count: int) -> bytes:
        """Up to `count` bytes, fewer only at the end."""
        parts = []
        while count > 0:
            part = self._stream.read(min(count, _CHUNK))  # not more at a time: streams allocate what they are asked for
            if not part:
                break
            self._read += len(part)
            if self._read > self._limit:
                raise OverflowError(too_large(self._read, self._limit))
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def readinto(self, memory: memoryview) -> int:
        """Fill `memory`; returns how many bytes there were."""
        filled = 0
        while filled < len(memory):
            part = self.read(min(len(memory) - filled, _CHUNK))
            if not part:
                break
            memory[filled : filled + len(part)] = part
            filled += len(part)
        return filled
