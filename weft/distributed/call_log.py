"""The log of a host's collective calls: their results, so that a worker that is started again can repeat its program.

A worker that was killed is started again and runs its program from the beginning. Its earlier collectives must then
return what they returned before, without the other ranks, which are past them. The log is bounded: it holds results of
up to `RESULT_BYTES`, and `LOG_BYTES` of them. The first call that does not fit *closes* it, and from then on the death
of a rank ends the run.

The lowest rank of the host appends the result of call t before it publishes call t + 1, so before any staging buffer of
call t is used again: what is not in the log yet can still be computed from the staging buffers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np

from ..multiprocessing import Segment
from .exchange import Exchange

RESULT_BYTES = 1 << 16
LOG_BYTES = 1 << 26
NAME = "collectives-log"

# Why the log was closed.
LARGE, SHARED, FULL = 1, 2, 3
REASONS = {
    LARGE: f"its result was larger than the {RESULT_BYTES:,} bytes that are kept",
    SHARED: "tensors in shared memory are changed in place",
    FULL: f"the {LOG_BYTES:,} bytes of the log were full",
}

_HEAD = struct.Struct("<QQ")  # digest of the call, bytes of the result


class CallLog:
    """The log as one process reads or writes it, from the first call on.

    Args:
        exchange: has the number of calls in the log.
        open_segment: opens memory of the run by name and size; pages that are never written are never allocated.
    """

    def __init__(self, exchange: Exchange, open_segment: Callable[[str, int], Segment]) -> None:
        self._exchange, self._open = exchange, open_segment
        self._memory: Segment | None = None
        self._cursor = 0  # bytes; where the entry of the next call begins
        self.position = 0  # calls before the cursor

    @property
    def memory(self) -> Segment:
        if self._memory is None:
            self._memory = self._open(NAME, LOG_BYTES)
        return self._memory

    def append(self, seq: int, digest: int, result: np.ndarray | None) -> bool:
        """Add the result of call `seq`, the first that is not in the log; False if there is no room."""
        self._skip_to(seq)
        nbytes = 0 if result is None else result.nbytes
        start = self._cursor + _HEAD.size
        if start + nbytes > LOG_BYTES:
            return False
        _HEAD.pack_into(self.memory, self._cursor, digest, nbytes)
        if result is not None:
            np.copyto(self.memory.array(result.shape, result.dtype, start), result)
        self._exchange.set_logged(seq)
        self._advance(nbytes)
        return True

    def read(self, seq: int) -> tuple[int, int, int]:
        """(digest, offset of the result, its bytes) of call `seq`, which is in the log."""
        self._skip_to(seq)
        digest, nbytes = _HEAD.unpack_from(self.memory, self._cursor)
        start = self._cursor + _HEAD.size
        self._advance(nbytes)
        return digest, start, nbytes

    def _skip_to(self, seq: int) -> None:
        """Move the cursor to the entry of call `seq`: a rank that does not write the log has not followed it."""
        while self.position < seq - 1:
            self._advance(_HEAD.unpack_from(self.memory, self._cursor)[1])

    def _advance(self, nbytes: int) -> None:
        self._cursor += _HEAD.size + -(-nbytes // 16) * 16  # entries are aligned
        self.position += 1
