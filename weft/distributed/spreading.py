"""Spreading: keeps ranks that wait for each other from sharing a processor.

Two processes that take turns, each waking the other, look to the system like one: Linux often runs both on one processor and
leaves the next one idle, which made an all-reduce of 4 KB four times slower. So every rank says on which processor it runs, and
one that finds a lower rank of its host on its own moves to another. It stays free to be moved by the system afterwards.
"""

from __future__ import annotations

import ctypes
import functools
import os
import time
from collections.abc import Callable

LOOK_SECONDS = 0.001
REST_SECONDS = 0.004
"""between two moves, which cost some 20 microseconds each: the system may bring the ranks together again"""


@functools.cache
def _current_processor() -> Callable[[], int]:
    """The C library's `sched_getcpu`."""
    found = ctypes.CDLL(None).sched_getcpu
    found.restype = ctypes.c_int
    return found


class Spreading:
    """Where this rank runs.

    Args:
        publish: says on which processor this rank is.
        others: the processors on which the other ranks of this host were last: those of the lower ones, and all.
        clock, processor, move: for tests.
    """

    def __init__(
        self,
        publish: Callable[[int], None],
        others: Callable[[], tuple[set[int], set[int]]],
        clock: Callable[[], float] = time.monotonic,
        processor: Callable[[], int] | None = None,
        move: Callable[[set[int]], bool] | None = None,
    ) -> None:
        self._publish, self._others, self._clock = publish, others, clock
        self._processor = processor or _current_processor()
        self._move = move or _move_away
        self._next = self._moved = 0.0
        self.shared = False
        """whether another rank was last on this processor: then polling only keeps it from running"""

    def look(self) -> None:
        """Called often; does something every few milliseconds."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + LOOK_SECONDS
        here = self._processor()
        lower, every = self._others()
        if here in lower and now - self._moved >= REST_SECONDS and self._move(every):
            self._moved = now
            here = self._processor()
        self.shared = here in every
        self._publish(here)


def _move_away(taken: set[int]) -> bool:
    """Move this thread to a processor that is not taken; False if there is none."""
    allowed = os.sched_getaffinity(0)
    free = allowed - taken
    if not free:
        return False
    os.sched_setaffinity(0, free)
    os.sched_setaffinity(0, allowed)
    return True
