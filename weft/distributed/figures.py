"""Figures: how long a member's shards and steps take, in its row of the board, for the processes that watch the run.

Only the member writes them, once per step, without atomics: a reader may see a figure of the step before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .progress import POSITION, SHARD_TIME

if TYPE_CHECKING:
    from .board import Board

SUDDEN = 4.0  # times: after such a fall (the first shard compiles) the old durations say nothing
MAX_SHARE, MIN_SHARE = 0.2, 0.01  # of a new duration in the average
LONG_SECONDS = 0.05  # durations of a fifth of it and more have the largest share
BATCH_BITS = 32


class Figures:
    """The figures of the member with row number `row`."""

    def __init__(self, board: Board, row: int) -> None:
        self._row = board.members[row, SHARD_TIME : POSITION + 1]
        self.shard_seconds = self.step_seconds = 0.0  # averages
        self.shards = 0
        self.position = 0
        """where training is: (epoch + 1) << 32 | batches of the epoch, as far as it is known; see `position`"""
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
        self._row[:] = (int(self.shard_seconds * 1e9), int(self.step_seconds * 1e9), self.shards, self.position)


def position(epoch: int, batches: int) -> int:
    """The word for a place in the training.

    >>> divmod(position(2, 17), 1 << 32)
    (3, 17)
    """
    return (epoch + 1) << BATCH_BITS | batches


def _average(before: float, seconds: float) -> float:
    """The moving average of durations.

    It starts anew when they fall suddenly. Short durations are averaged over more of them, and one outlier counts little: a
    worker that lost the processor for a moment is no straggler.
    """
    if not before or seconds * SUDDEN < before:
        return seconds
    most, share = SUDDEN * before, before / LONG_SECONDS
    share = MAX_SHARE if share > MAX_SHARE else MIN_SHARE if share < MIN_SHARE else share
    return before + share * ((most if seconds > most else seconds) - before)
