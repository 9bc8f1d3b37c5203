"""LocalShards: the shards of a batch, all computed by this worker, with the same bits as by all workers together.

For what a worker evaluates by itself: after training, or in a callback, which runs on the lead. Nothing is shared or committed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np

from ..tensor import Tensor
from . import tree
from .parallel import Compute, Row, shard_scales
from .randomness import Randomness
from .shard import MAX_MEANS, LogicalShard


class LocalShards:
    """Has the methods of `DataParallel` that an evaluation uses.

    Args:
        shards: into how many shards a batch is cut.
        seed: of the random numbers drawn inside of shards.
    """

    def __init__(self, shards: int, seed: int) -> None:
        self.shards, self.randomness = shards, Randomness(seed)
        self._collects = False

    def run(self, compute: Compute, samples: Sequence[int], trains: bool, position: tuple[int, ...]) -> Row:
        """Compute all shards of a batch; see `DataParallel.run`."""
        assert not trains
        (n,) = samples
        present = tree.present(n, self.shards)
        while True:
            counts = None
            if self._collects:
                rows = [_padded(self._shard(compute, s, None, True, position)[-1]) for s in present]
                counts = np.asarray(tree.total(rows))[None]
            found = [self._shard(compute, s, counts, False, position) for s in present]
            if not any(void for *_, void, _ in found):
                weights = [weight for weight, *_ in found]
                loss = tree.total([weight * loss for weight, loss, *_ in found])
                numbers = tree.total([np.asarray(numbers, np.float64) for _, _, numbers, *_ in found])
                return Row(np.array([tree.total(weights), loss, *numbers, 0.0, 0.0]), 0, 0)
            self._collects = True

    def _shard(
        self, compute: Compute, shard: int, counts: np.ndarray | None, collects: bool, position: tuple[int, ...]
    ) -> tuple[float, float, Sequence[float], bool, Sequence[float]]:
        with self.randomness.shard(position, shard):
            found = compute(shard, counts, collects)
        return found.weight, found.loss, found.numbers, found.void, found.counts[0]

    def scales(self, samples: int, shard: int, counts: np.ndarray | None = None) -> Tensor:
        return shard_scales(samples, self.shards, shard, counts)

    def begin_batch(self, number: int, samples: int) -> None:
        """Nothing is gathered in an evaluation."""

    @contextlib.contextmanager
    def computing(self, given: Tensor) -> Iterator[LogicalShard]:
        """A context for the user's function on a shard."""
        with self.randomness.python(), LogicalShard(given).running() as shard:
            yield shard


def _padded(counts: Sequence[float]) -> np.ndarray:
    made = np.zeros(MAX_MEANS)
    made[: len(counts)] = counts
    return made
