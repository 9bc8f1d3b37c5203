"""How far a run has come on this host, read from the board without knowing its shape. Standard library only."""

from __future__ import annotations

import array
import contextlib
import json
import mmap
import os
import socket

COMMITTED_BYTE = 64  # where the board has its word of the committed version (`board.COMMITTED`)
BOARDS = ("board", "0-board")  # of a trainer, and of the first step of a loop by hand


class Progress:
    """The number of committed steps.

    Args:
        path: the keeper's socket.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._memory: mmap.mmap | None = None

    def version(self) -> int:
        """How many steps are committed; 0 while there is no board."""
        if self._memory is None:
            with contextlib.suppress(OSError, ValueError):  # the keeper does not run yet, or not now
                self._memory = self._find()
        if self._memory is None:
            return 0
        word = array.array("Q", self._memory[COMMITTED_BYTE : COMMITTED_BYTE + 8])
        return word[0] >> 1

    def _find(self) -> mmap.mmap | None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1.0)
            connection.connect(self.path)
            for name in BOARDS:
                connection.send(json.dumps({"find": name}).encode() + b"\n")
                _, descriptors, _, _ = socket.recv_fds(connection, 4096, 1)
                for descriptor in descriptors:
                    try:
                        return mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
                    finally:
                        os.close(descriptor)
        return None

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None
