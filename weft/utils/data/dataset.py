"""Datasets under PyTorch's names: those of `weft.data`, and two that join others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...data import ConcatDataset as ConcatDataset
from ...data import Dataset as Dataset
from ...data import IterableDataset as IterableDataset
from ...data import Subset as Subset
from ...data import TensorDataset as TensorDataset
from ...data import random_split as random_split


class ChainDataset(IterableDataset):
    """Several streams one after the other.

    Args:
        datasets: iterable datasets.

    >>> class Numbers(data.IterableDataset):
    ...     def __iter__(self):
    ...         return iter([1, 2])
    >>> list(wf.utils.data.ChainDataset([Numbers(), Numbers()]))
    [1, 2, 1, 2]
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)

    def __iter__(self) -> Iterator[Any]:
        for dataset in self.datasets:
            yield from dataset

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self.datasets)


class StackDataset(Dataset):
    """Samples of several datasets side by side: a tuple of them, or a dict if they are given by name.

    Args:
        args: datasets of one length.
        kwargs: the same by name, instead of `args`.

    >>> wf.utils.data.StackDataset(image=[1, 2], label=["a", "b"])[1]
    {'image': 2, 'label': 'b'}
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if bool(args) == bool(kwargs):
            raise ValueError("StackDataset: give datasets either by position or by name.")
        self.datasets: Any = kwargs or args
        lengths = {len(d) for d in (kwargs.values() if kwargs else args)}
        if len(lengths) != 1:
            raise ValueError(f"StackDataset: the datasets must have one length. Got {sorted(lengths)}.")
        (self._length,) = lengths

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple([dataset[index] for dataset in self.datasets])

    def __len__(self) -> int:
        return self._length
