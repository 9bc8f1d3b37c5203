"""Figures: how long a member's shards and steps take, in its row of the board, for the processes that watch the run.

Only the member writes them, once per step, without atomics: a reader may see a figure of the step before.
"""

from __future__ import annotations

from .board import SHARD_TIME, SHARDS_DONE, Board

SUDDEN = 4.0  # times: after such a fall (the first shard compiles) the old durations say nothing
_KEEP = 0.8  # of the average of durations, at each new one


class Figures:
    """The figures of the member with row number `row`."""

    def __init__(self, board: Board, row: int) -> None:
        self._row = board.members[row]
        self.shard_seconds = self.step_seconds = 0.0  # averages
        self.shards = 0
        self._publish()  # those of the predecessor in the row are not this member's

    def shard_done(self, seconds: float) -> None:
        """A shard was computed here."""
        self.shard_seconds = _average(self.shard_seconds, seconds)
        self.shards += 1

    def step_done(self, seconds: float) -> None:
        """A step is over; `seconds` is its duration here."""
        self.step_seconds = _average(self.step_seconds, seconds)
        self._publish()

    def _publish(self) -> None:
        self._row[SHARD_TIME : SHARDS_DONE + 1] = (
            int(self.shard_seconds * 1e9), int(self.step_seconds * 1e9), self.shards,
        )  # fmt: skip


def _average(before: float, seconds: float) -> float:
    """The moving average of durations; it starts anew when they fall suddenly."""
    return seconds if seconds * SUDDEN < before or not before else _KEEP * before + (1 - _KEEP) * seconds
