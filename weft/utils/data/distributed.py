"""The share of one process in a dataset, with PyTorch's arguments."""

from __future__ import annotations

from typing import Any

from ...data import sampler as own


class DistributedSampler(own.DistributedSampler):
    """The indices that one of several processes visits: every `num_replicas`-th of the order, from `rank` on.

    Args:
        dataset: the dataset.
        num_replicas: the number of processes.
        rank: the number of this one, from 0.
        shuffle: a new random order in each epoch (call `set_epoch`), the same in all processes.
        seed: decides the order.
        drop_last: make the shares equal by leaving out indices instead of repeating some.

    >>> list(wf.utils.data.DistributedSampler([7, 8, 9, 10], num_replicas=2, rank=1, shuffle=False))
    [1, 3]
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            raise ValueError(
                "DistributedSampler: pass num_replicas and rank, the number of processes and that of this one."
            )
        n = len(dataset)
        order = own.RandomSampler(n, seed) if shuffle else own.SequentialSampler(n)
        super().__init__(order, rank, num_replicas, drop_last)
        self.dataset, self.num_replicas, self.shuffle = dataset, num_replicas, shuffle
