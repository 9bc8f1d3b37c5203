"""Stragglers: workers whose shards take much longer than those of the others. `Stragglers` decides; it does no input or output.

A worker is named when it was slow at two checks in a row, so within 2 × `EVERY` steps; again when it is slower or faster by half
than it was named with; and once more when it is no straggler any longer.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import events
from .host import task_of
from .progress import PID, SHARD_TIME, SHARDS_DONE

if TYPE_CHECKING:
    from .board import Board

EVERY = 4  # steps between two checks
FACTOR = 1.5  # times the median of the others
RECOVERED = 1.2
CHANGED = 1.5
MIN_SHARDS = 3  # before the durations of a worker count: the first one compiles


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What changed about a worker; `others` is the median of the other workers' seconds per shard."""

    worker: int
    seconds: float
    others: float
    slow: bool

    @property
    def ratio(self) -> float:
        return self.seconds / self.others


class Stragglers:
    """Which workers are slow, from check to check."""

    def __init__(self) -> None:
        self.named: dict[int, float] = {}  # worker -> how many times slower it was when it was named
        self._suspects: set[int] = set()

    def check(self, seconds: Mapping[int, float]) -> list[Verdict]:
        """What is new, from the seconds per shard of each worker.

        >>> stragglers = Stragglers(); times = {0: 1.0, 1: 1.1, 2: 3.2}
        >>> [stragglers.check(times) for _ in range(2)]
        [[], [Verdict(worker=2, seconds=3.2, others=1.05, slow=True)]]
        """
        found, suspects = [], set()
        for worker in [w for w in self.named if w not in seconds]:
            del self.named[worker]  # it is gone; its successor is judged anew
        for worker, own in seconds.items():
            others = [s for w, s in seconds.items() if w != worker]
            if not others:
                continue
            median = statistics.median(others)
            ratio, before = own / median, self.named.get(worker)
            if before is not None and ratio < RECOVERED:
                del self.named[worker]
                found.append(Verdict(worker, own, median, False))
            elif ratio > FACTOR and (before is None or not 1 / CHANGED < ratio / before < CHANGED):
                suspects.add(worker)
                if worker in self._suspects:
                    self.named[worker] = ratio
                    found.append(Verdict(worker, own, median, True))
        self._suspects = suspects
        return found


def durations(board: Board) -> dict[int, float]:
    """Seconds per shard of the members of a board, by their process numbers."""
    rows = board.members
    return {
        int(row[PID]) >> 32: int(row[SHARD_TIME]) / 1e9
        for row in rows[(rows[:, PID] != 0) & (rows[:, SHARDS_DONE] >= MIN_SHARDS)]
        if row[SHARD_TIME]
    }


def describe(verdict: Verdict) -> tuple[str, dict[str, Any]]:
    """A verdict as an event: its kind and its fields."""
    kind = "straggler_named" if verdict.slow else "straggler_recovered"
    return kind, {"seconds": verdict.seconds, "others": verdict.others, "ratio": round(verdict.ratio, 3)}


def report(verdict: Verdict, step: int) -> None:
    """Tell the user, and the log; called on the first member of a host."""
    kind, fields = describe(verdict)
    events.tell(kind, task_of(verdict.worker), step, **{**fields, "pid": verdict.worker})
    own, others = verdict.seconds * 1e3, verdict.others * 1e3
    what = (
        f"is {verdict.ratio:.1f}× slower than the others ({own:.3g} ms per shard, they take {others:.3g} ms)"
        if verdict.slow
        else f"is as fast as the others again ({own:.3g} ms per shard, they take {others:.3g} ms)"
    )
    print(f"weft: step {step}: the worker with process number {verdict.worker} {what}", file=sys.stderr, flush=True)
