"""Samplers: the order in which the samples of a dataset are visited.

A sampler is any iterable of indices. The order of those below depends only on their seed and the epoch given to
`set_epoch`, which `DataLoader` calls at the start of each epoch. A user's sampler that has `state_dict` and
`load_state_dict` is saved with the loader (its state at the start of the epoch); one without is resumed by skipping.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Any

import numpy as np

from . import seeds


def _length(source: int | Sized, what: str) -> int:
    n = source if isinstance(source, int) else len(source)
    if n < 0:
        raise ValueError(f"{what}: expected a dataset or a number of samples. Got {source!r}.")
    return n


class Sampler:
    """Base class of samplers: an iterable of indices whose order may depend on the epoch.

    Example:
        >>> class EveryOther(data.Sampler):
        ...     def order(self):
        ...         return np.arange(0, 10, 2)
        >>> list(EveryOther())
        [0, 2, 4, 6, 8]
    """

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Select the epoch that determines the order of the next iteration."""
        self.epoch = int(epoch)

    def order(self) -> np.ndarray:
        """All indices of this epoch, int64. Implement this or `__iter__`."""
        raise NotImplementedError(f"{type(self).__name__}: implement order() or __iter__().")

    def __iter__(self) -> Iterator[int]:
        return iter(self.order().tolist())


class SequentialSampler(Sampler):
    """The indices 0, 1, 2, … in order, in every epoch.

    Example:
        >>> list(data.SequentialSampler(4))
        [0, 1, 2, 3]
    """

    def __init__(self, source: int | Sized) -> None:
        self._n = _length(source, "SequentialSampler")

    def order(self) -> np.ndarray:
        return np.arange(self._n, dtype=np.int64)

    def __len__(self) -> int:
        return self._n


class RandomSampler(Sampler):
    """A new random order in each epoch, determined by (seed, epoch).

    Args:
        source: the dataset or its length.
        seed: an integer; drawn if None.
        replacement: draw indices independently instead of permuting them.
        num_samples: indices per epoch; without replacement at most the length of the dataset.

    Example:
        >>> sampler = data.RandomSampler(5, seed=0)
        >>> first = list(sampler)
        >>> sampler.set_epoch(1)
        >>> sorted(first), list(sampler) == first
        ([0, 1, 2, 3, 4], False)
    """

    def __init__(
        self,
        source: int | Sized,
        seed: int | None = None,
        *,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Any = None,
    ) -> None:
        self._n = _length(source, "RandomSampler")
        self.seed = seeds.make_seed(seed, generator)
        self.replacement = replacement
        self._count = self._n if num_samples is None else int(num_samples)
        if self._count < 0 or (self._count > self._n and not replacement) or (self._count and not self._n):
            raise ValueError(
                f"RandomSampler: num_samples is out of range. Got {num_samples} for {self._n} samples; "
                f"expected 0 to {self._n}, or replacement=True."
            )

    def order(self) -> np.ndarray:
        if self.replacement:
            return (seeds.uniform(self._count, self.seed, self.epoch) * self._n).astype(np.int64)
        return seeds.permutation(self._n, self.seed, self.epoch)[: self._count]

    def __len__(self) -> int:
        return self._count


class WeightedRandomSampler(Sampler):
    """Draws index i with probability proportional to ``weights[i]``, to balance rare classes.

    Args:
        weights: non-negative numbers, one per sample.
        num_samples: indices per epoch.
        replacement: whether an index may occur twice.

    Example:
        >>> sampler = data.WeightedRandomSampler([0.0, 1.0, 0.0], num_samples=4, seed=0)
        >>> list(sampler)
        [1, 1, 1, 1]
    """

    def __init__(
        self, weights: Any, num_samples: int, replacement: bool = True, seed: int | None = None, generator: Any = None
    ) -> None:
        self._weights = np.asarray(weights, np.float64)
        self._count = int(num_samples)
        self.replacement = replacement
        self.seed = seeds.make_seed(seed, generator)
        w = self._weights
        if w.ndim != 1 or not np.isfinite(w).all() or (w < 0).any() or not w.sum() > 0:
            raise ValueError(
                f"WeightedRandomSampler: weights must be a list of non-negative numbers, not all zero. Got {weights!r}."
            )
        if self._count < 0 or (not replacement and self._count > np.count_nonzero(w)):
            raise ValueError(
                f"WeightedRandomSampler: num_samples is out of range. Got {num_samples} without replacement; "
                f"expected at most {np.count_nonzero(w)}, the number of positive weights."
            )

    def order(self) -> np.ndarray:
        if self.replacement:
            edges = np.cumsum(self._weights)
            draws = seeds.uniform(self._count, self.seed, self.epoch) * edges[-1]
            # A draw that rounds up to the total must not select a trailing zero weight.
            return np.minimum(np.searchsorted(edges, draws, side="right"), np.flatnonzero(self._weights)[-1])
        # Efraimidis and Spirakis: sort exponential variates of rate w and take the smallest.
        u = 1.0 - seeds.uniform(len(self._weights), self.seed, self.epoch)
        with np.errstate(divide="ignore"):
            clocks = np.where(self._weights > 0, -np.log(u) / self._weights, np.inf)
        return np.argsort(clocks, kind="stable")[: self._count]

    def __len__(self) -> int:
        return self._count


class DistributedSampler(Sampler):
    """The share of one rank in another sampler's order: positions rank, rank + world_size, …

    Every rank gets the same number of indices: the order is padded from its start or, with `drop_last`, truncated.

    Example:
        >>> [list(data.DistributedSampler(5, rank, 2)) for rank in range(2)]
        [[0, 2, 4], [1, 3, 0]]
    """

    def __init__(self, sampler: Sampler | int | Sized, rank: int, world_size: int, drop_last: bool = False) -> None:
        check_rank("DistributedSampler", rank, world_size)
        self.sampler: Sampler = sampler if hasattr(sampler, "order") else SequentialSampler(sampler)  # type: ignore
        self.rank, self.world_size, self.drop_last = rank, world_size, drop_last

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.sampler.set_epoch(epoch)

    def order(self) -> np.ndarray:
        whole = self.sampler.order()
        total = len(self) * self.world_size
        if total > len(whole):
            whole = np.resize(whole, total)  # repeats from the start
        return whole[self.rank : total : self.world_size]

    def __len__(self) -> int:
        n = len(self.sampler)  # type: ignore[arg-type]
        return n // self.world_size if self.drop_last else -(-n // self.world_size)


class BatchSampler:
    """Groups the indices of a sampler into lists of `batch_size`.

    Example:
        >>> list(data.BatchSampler(data.SequentialSampler(5), batch_size=2))
        [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool = False) -> None:
        check_batch_size("BatchSampler", batch_size)
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def set_epoch(self, epoch: int) -> None:
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        n = len(self.sampler)  # type: ignore[arg-type]
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


def check_batch_size(what: str, batch_size: Any) -> None:
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"{what}: batch_size must be a positive integer. Got {batch_size!r}.")


def check_rank(what: str, rank: Any, world_size: Any) -> None:
    if not (isinstance(rank, int) and isinstance(world_size, int) and 0 <= rank < world_size):
        raise ValueError(
            f"{what}: rank must be between 0 and world_size - 1. Got rank={rank!r}, world_size={world_size!r}."
        )
