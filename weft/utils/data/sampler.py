"""Samplers with PyTorch's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...data import BatchSampler as BatchSampler
from ...data import Sampler as Sampler
from ...data import SequentialSampler as SequentialSampler
from ...data import WeightedRandomSampler as WeightedRandomSampler
from ...data import sampler as own
from ...data.seeds import make_seed, permutation


class RandomSampler(own.RandomSampler):
    """A new random order in each epoch.

    Args:
        data_source: the dataset.
        replacement: draw indices independently instead of permuting them.
        num_samples: indices per epoch; the length of the dataset by default.
        generator: a `wf.Generator` that decides the order; Weft's global one by default.

    >>> sorted(wf.utils.data.RandomSampler([7, 8, 9]))
    [0, 1, 2]
    """

    def __init__(
        self, data_source: Any, replacement: bool = False, num_samples: int | None = None, generator: Any = None
    ) -> None:
        super().__init__(len(data_source), None, replacement=replacement, num_samples=num_samples, generator=generator)
        self.data_source = data_source
        self.num_samples = len(self)


class SubsetRandomSampler(Sampler):
    """The given indices, in a new random order in each epoch.

    Args:
        indices: the indices.
        generator: a `wf.Generator` that decides the order; Weft's global one by default.

    >>> sorted(wf.utils.data.SubsetRandomSampler([3, 5]))
    [3, 5]
    """

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices = list(indices)
        self.seed = make_seed(None, generator)

    def order(self) -> np.ndarray:
        """The indices of this epoch."""
        return np.asarray(self.indices, np.int64)[permutation(len(self.indices), self.seed, self.epoch)]

    def __len__(self) -> int:
        return len(self.indices)
