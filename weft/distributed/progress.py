"""What the boards of a run on this host say, read without knowing their shape, and without writing to them.

This is all that processes outside of the run's workers see of a step: how many are committed, and the figures that members keep
in their rows. Standard library only.
"""

from __future__ import annotations

import array
import contextlib
import json
import mmap
import os
import socket
import time
from typing import Any

# The layout of `board`, which needs more than the standard library; a test compares them.
WORD = 8
MAGIC = 0x5745_4654_0001
COMMITTED_BYTE = 64  # where the board has its word of the committed version
MEMBERS_WORD, ROWS_WORD = 3, 7  # how many rows there are, and the byte at which they begin
ROW_WORDS = 8
PID, INCARNATION, BEAT, SEEN, SHARD_TIME, STEP_TIME, SHARDS_DONE, POSITION = range(ROW_WORDS)
SENT_BYTES, RECEIVED_BYTES = SHARD_TIME, STEP_TIME

BOARD = "board"  # of a trainer; the steps of a loop by hand have a numbered board each
MAX_BOARDS = 64
TIMEOUT_SECONDS = 1.0


class Progress:
    """The boards of a run, mapped read-only.

    Args:
        path: the keeper's socket.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._boards: list[mmap.mmap] = []
        self._complete = False  # whether there can be no further board

    def version(self) -> int:
        """How many steps are committed; 0 while there is no board."""
        if not self._boards:
            self._look()
        return _word(self._boards[0], COMMITTED_BYTE) >> 1 if self._boards else 0

    def sample(self) -> list[dict[str, Any]]:
        """For each board the number of committed steps, and the rows of its members; empty while there is none.

        In a row, `silent` is for how many seconds the member has not shown a sign of life. The other figures are numbers of the
        board: nanoseconds, counts, bytes.
        """
        self._look()
        return [_read(board) for board in self._boards if _word(board, 0) == MAGIC]

    def _look(self) -> None:
        """Map the boards that were made since the last time."""
        if not self._complete:
            with contextlib.suppress(OSError, ValueError):  # the keeper does not run yet, or not now
                self._find()

    def _find(self) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT_SECONDS)
            connection.connect(self.path)
            if not self._boards:
                found = _request(connection, BOARD)
                if found is not None:
                    self._boards, self._complete = [found], True
                    return
            while len(self._boards) < MAX_BOARDS:
                found = _request(connection, f"{len(self._boards)}-{BOARD}")
                if found is None:
                    return
                self._boards.append(found)

    def close(self) -> None:
        for board in self._boards:
            board.close()
        self._boards, self._complete = [], False


def _request(connection: socket.socket, name: str) -> mmap.mmap | None:
    """A segment of the keeper; None if it has not been made."""
    connection.send(json.dumps({"find": name}).encode() + b"\n")
    _, descriptors, _, _ = socket.recv_fds(connection, 4096, 1)
    for descriptor in descriptors:
        try:
            return mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)
    return None


def _word(memory: mmap.mmap, byte: int) -> int:
    return int.from_bytes(memory[byte : byte + WORD], "little")


def _read(board: mmap.mmap) -> dict[str, Any]:
    start, count = _word(board, ROWS_WORD * WORD), _word(board, MEMBERS_WORD * WORD)
    words = array.array("Q", board[start : start + count * ROW_WORDS * WORD])
    now = time.monotonic_ns()
    rows = []
    for number in range(len(words) // ROW_WORDS):
        row = words[number * ROW_WORDS : (number + 1) * ROW_WORDS]
        if not row[PID]:
            continue
        rows.append({
            "pid": row[PID] >> 32, "joined": row[INCARNATION], "silent": max(now - row[BEAT], 0) / 1e9, "seen": row[SEEN],
            "figures": list(row[SHARD_TIME:]),
        })  # fmt: skip
    return {"step": _word(board, COMMITTED_BYTE) >> 1, "rows": rows}
