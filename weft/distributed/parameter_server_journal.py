"""The journal of a parameter server: every accepted message is written before it is acknowledged, and read again after a death.

A server's state is a function of the messages it accepted, in their order. `snapshot-N` holds the state after some of
them and `journal-N` the messages since then; a new process loads the one and handles the others again, with the same
bits. When the journal has grown larger than `JOURNAL_RATIO` times the state, snapshot N + 1 is written and the older
files are removed.

A write that has returned survives kill -9 of every process of the machine. It does not survive a power failure: there
is no fsync per message. A message at the end of which the process died is incomplete and was never acknowledged; it
is cut off.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..io.tree_file import load, save
from .remote_messages import pack_call, receive_call
from .wire import Frame, WireError

MIN_JOURNAL_BYTES = 16 << 20
JOURNAL_RATIO = 4
_RECORD = struct.Struct("<4sIQ")  # magic, bytes of the head, bytes of head and data
_MAGIC = b"wps1"


class Journal:
    """The files of one server in `directory`, which is made."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        os.makedirs(directory, 0o700, exist_ok=True)
        self._number = max(self._numbers(), default=0)
        self._file = -1
        self._bytes = 0

    def _numbers(self) -> list[int]:
        names = [name.removeprefix("snapshot-") for name in os.listdir(self.directory) if name.startswith("snapshot-")]
        return [int(name) for name in names if name.isdigit()]

    def _path(self, kind: str, number: int) -> str:
        return os.path.join(self.directory, f"{kind}-{number}")

    def snapshot(self) -> Any:
        """The last snapshot: what `compact` was given; None if there is none."""
        path = self._path("snapshot", self._number)
        return load(path) if os.path.exists(path) else None

    def records(self) -> Iterator[tuple[dict[str, Any], list[np.ndarray]]]:
        """The messages since the snapshot. Afterwards the journal can be written."""
        path = self._path("journal", self._number)
        end = 0
        if os.path.exists(path):
            with open(path, "rb") as file:
                reader = _FileReader(file, os.path.getsize(path))
                while True:
                    found = reader.record()
                    if found is None:
                        break
                    end = reader.position
                    yield found
        self._open(path, end)

    def _open(self, path: str, end: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._file, end)
        os.lseek(self._file, end, os.SEEK_SET)
        self._bytes = end

    def append(self, message: dict[str, Any], arrays: Sequence[np.ndarray]) -> None:
        """Write a message.

        Raises:
            OSError: it cannot be written, say because the disk is full; the journal is as before.
        """
        head, data = pack_call(message, arrays)
        total = len(head) + sum(view.nbytes for view in data)
        buffers: list[Any] = [_RECORD.pack(_MAGIC, len(head), total) + head, *data]
        begun = self._bytes
        try:
            for buffer in _few(buffers):
                view = memoryview(buffer).cast("B")
                while view:
                    view = view[os.write(self._file, view) :]
            self._bytes = begun + _RECORD.size + total
        except OSError:
            os.ftruncate(self._file, begun)
            os.lseek(self._file, begun, os.SEEK_SET)
            raise

    def grown(self, state_bytes: int) -> bool:
        """Whether a snapshot should be written."""
        return self._bytes > max(MIN_JOURNAL_BYTES, JOURNAL_RATIO * state_bytes)

    def compact(self, dump: Callable[[], Any]) -> None:
        """Write a snapshot and begin a new journal."""
        number = self._number + 1
        save(dump(), self._path("snapshot", number))
        os.close(self._file)
        old, self._number = self._number, number
        self._open(self._path("journal", number), 0)
        for kind in ("snapshot", "journal"):
            if os.path.exists(self._path(kind, old)):
                os.unlink(self._path(kind, old))

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _few(buffers: list[Any]) -> list[Any]:
    """Small buffers joined, so that a message of many small arrays is one write."""
    if sum(len(memoryview(b).cast("B")) for b in buffers) < 1 << 16:
        return [b"".join(buffers)]
    return buffers


class _FileReader:
    """Reads messages from a file as `receive_call` reads them from a channel."""

    def __init__(self, file: Any, size: int) -> None:
        self._file, self._size, self.position = file, size, 0

    def record(self) -> tuple[dict[str, Any], list[np.ndarray]] | None:
        begin = self._file.read(_RECORD.size)
        if len(begin) < _RECORD.size:
            return None
        magic, head_bytes, total = _RECORD.unpack(begin)
        end = self.position + _RECORD.size + total
        if magic != _MAGIC or head_bytes > total:
            raise WireError("the journal of a parameter server is damaged: expected a message")
        if end > self._size:
            return None
        head = self._file.read(head_bytes)
        reader: Any = self
        found = receive_call(reader, Frame(0, 0, 0, 0, head_bytes, total), head)
        self.position = end
        return found

    def take_buffered(self, count: int) -> None:
        """Nothing is in memory already."""
        return None

    def read_into(self, view: memoryview) -> None:
        if self._file.readinto(view) != len(view):
            raise WireError("the journal of a parameter server is damaged: it is too short")
