"""Datasets: what can be loaded, and the few ways of combining them.

A `Dataset` has a length and gives sample number i; an `IterableDataset` gives samples one after another. Samples
are NumPy arrays, numbers and strings, alone or in tuples and dictionaries; the loader makes tensors of them.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from . import seeds
from ._tensor import to_numpy
from .collate import Leaf


class Dataset:
    """Base class of datasets with random access: implement `__len__` and `__getitem__`.

    Worker processes get a copy, so a dataset must be picklable and its class importable by name. Draw random numbers
    with `sample_rng()`: they then depend on the sample and the epoch only.
    """

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: implement __getitem__(index).")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__}: implement __len__().")

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])

    def gather(self, indices: np.ndarray) -> Any:
        """A whole batch at once, or None to have it put together from single samples.

        An optional short cut for data that lie in arrays: the result is the tree of the batch with `Rows` for leaves,
        which are copied straight to where the batch will be. It must equal collating the single samples.
        """
        return None

    def map(self, function: Callable[[Any], Any], element: int | str | None = None) -> Dataset:
        """This dataset with `function` applied to each sample, or only to one element of it; see `map_dataset`."""
        return MapDataset(self, function, element)


class IterableDataset:
    """Base class of datasets that are streams: implement `__iter__`.

    The stream of an epoch is the same in every process; the loader divides it between ranks and workers by
    position (see `select`), so the order of batches does not depend on the number of workers. Optional methods:
    `set_epoch(epoch)`, called before each epoch; `state_dict()` and `load_state_dict(state)`, where the state (plain
    numbers, strings, lists) says after which sample the latest iterator stands, and after loading it the next
    ``iter()``, and only that, goes on from there. Without them, a resume skips what was seen.
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__}: implement __iter__().")

    def select(self, wanted: Callable[[int], bool], start: int = 0) -> Iterator[tuple[int, Any]]:
        """The samples at wanted positions of the stream, with their positions.

        Override it if the stream can jump over samples more cheaply than by making them.

        Args:
            wanted: says of a position whether its sample is needed; false for ever is possible.
            start: the position of the first sample that ``iter(self)`` gives.
        """
        iterator = iter(self)
        for position in itertools.count(start):
            seeds.move(position)
            try:
                sample = next(iterator)
            except StopIteration:
                return
            if wanted(position):
                yield position, sample

    def map(self, function: Callable[[Any], Any], element: int | str | None = None) -> IterableDataset:
        """This stream with `function` applied to each sample, or only to one element of it; see `map_dataset`."""
        return MapIterableDataset(self, function, element)


class Rows(Leaf):
    """Rows of an array that are to become one array of a batch."""

    __slots__ = ()

    def __init__(self, array: np.ndarray, indices: np.ndarray) -> None:
        super().__init__([array, indices], (len(indices), *array.shape[1:]), array.dtype.newbyteorder("="))

    def write(self, out: np.ndarray) -> np.ndarray:
        array, indices = self.values
        if array.dtype == out.dtype and array.flags.c_contiguous:  # take() would copy any other array whole
            # The indices have been checked; only with another mode than "raise" does take() write without a buffer.
            return np.take(array, indices, axis=0, out=out, mode="clip")
        out[...] = array[indices]
        return out


def check_indices(what: str, indices: np.ndarray, n: int) -> np.ndarray:
    """Indices as int64 between 0 and n - 1; negative ones count from the end."""
    indices = np.asarray(indices, np.int64)
    bad = (indices < -n) | (indices >= n)
    if bad.any():
        raise IndexError(f"{what}: index {indices[bad][0]} is out of range. Expected -{n} to {n - 1}.")
    return np.where(indices < 0, indices + n, indices)


class TensorDataset(Dataset):
    """Samples are rows of arrays or tensors: ``dataset[i] == (a[i], b[i], ...)`` as NumPy values.

    Args:
        arrays: arrays or tensors of the same length. They are not copied.

    Example:
        >>> dataset = TensorDataset(np.zeros((10, 3)), np.arange(10))
        >>> len(dataset), int(dataset[4][1])
        (10, 4)
    """

    def __init__(self, *arrays: Any) -> None:
        if not arrays:
            raise ValueError("TensorDataset: no arrays. Expected at least one array or tensor.")
        self.arrays = tuple(to_numpy(a) for a in arrays)
        if any(a.ndim == 0 for a in self.arrays) or len({len(a) for a in self.arrays}) != 1:
            raise ValueError(
                "TensorDataset: arrays differ in length. "
                f"Got shapes {[a.shape for a in self.arrays]}; expected the same first dimension."
            )

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        try:
            return tuple(a[index] for a in self.arrays)
        except IndexError:
            n = len(self)
            raise IndexError(f"TensorDataset: index {index} is out of range. Expected -{n} to {n - 1}.") from None

    def gather(self, indices: np.ndarray) -> Any:
        indices = check_indices("TensorDataset", indices, len(self))
        return tuple(Rows(a, indices) for a in self.arrays)


class Subset(Dataset):
    """The samples of a dataset at some indices, in their order."""

    def __init__(self, dataset: Dataset, indices: Sequence[int] | np.ndarray) -> None:
        self.dataset = dataset
        self.indices = check_indices("Subset", np.asarray(indices, np.int64), len(dataset))

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[int(self.indices[index])]

    def gather(self, indices: np.ndarray) -> Any:
        inner = getattr(self.dataset, "gather", None)
        return None if inner is None else inner(self.indices[check_indices("Subset", indices, len(self))])


class ConcatDataset(Dataset):
    """Datasets one after another."""

    def __init__(self, datasets: Sequence[Dataset]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("ConcatDataset: no datasets. Expected at least one.")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise TypeError("ConcatDataset: expected datasets with random access. Got an IterableDataset.")
        self._ends = list(itertools.accumulate(len(d) for d in self.datasets))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> Any:
        index = int(check_indices("ConcatDataset", np.asarray([index]), len(self))[0])
        part = bisect.bisect_right(self._ends, index)
        return self.datasets[part][index - (self._ends[part - 1] if part else 0)]


class MapDataset(Dataset):
    """A dataset with a function applied to its samples as they are loaded."""

    def __init__(self, source: Dataset, function: Callable[[Any], Any], element: int | str | None = None) -> None:
        self.source, self.function, self.element = source, _checked(function), element

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Any:
        return _apply(self.function, self.source[index], self.element)


class MapIterableDataset(IterableDataset):
    """A stream with a function applied to its samples; skipped samples are not computed."""

    def __init__(
        self, source: IterableDataset, function: Callable[[Any], Any], element: int | str | None = None
    ) -> None:
        self.source, self.function, self.element = source, _checked(function), element

    def __iter__(self) -> Iterator[Any]:
        return (_apply(self.function, sample, self.element) for sample in self.source)

    def set_epoch(self, epoch: int) -> None:
        if hasattr(self.source, "set_epoch"):
            self.source.set_epoch(epoch)

    def select(self, wanted: Callable[[int], bool], start: int = 0) -> Iterator[tuple[int, Any]]:
        for position, sample in self.source.select(wanted, start):
            yield position, _apply(self.function, sample, self.element)


def map_dataset(
    function: Callable[[Any], Any], dataset: Dataset | IterableDataset, element: int | str | None = None
) -> Any:
    """`dataset` with `function` applied to each sample as it is loaded.

    Args:
        element: apply it only to this item of a tuple or this key of a dictionary, say 0 for the image of an
            (image, label) pair.
    """
    if isinstance(dataset, IterableDataset):
        return MapIterableDataset(dataset, function, element)
    return MapDataset(dataset, function, element)


def _checked(function: Any) -> Callable[[Any], Any]:
    if not callable(function):
        raise TypeError(f"map: expected a function of a sample. Got {type(function).__name__}.")
    return function


def _apply(function: Callable[[Any], Any], sample: Any, element: int | str | None) -> Any:
    if element is None:
        return function(sample)
    if isinstance(sample, dict):
        return {**sample, element: function(sample[element])}
    if isinstance(sample, (tuple, list)) and isinstance(element, int):
        items = list(sample)
        items[element] = function(items[element])
        return type(sample)(*items) if hasattr(sample, "_fields") else type(sample)(items)
    raise TypeError(
        f"map: element={element!r} needs samples that are tuples, lists or dictionaries. Got {type(sample).__name__}."
    )


def random_split(
    dataset: Dataset, lengths: Sequence[float], seed: int | None = 0, generator: Any = None
) -> list[Subset]:
    """Divide a dataset at random into parts that do not overlap.

    Args:
        lengths: numbers of samples that add up to the length of the dataset, or fractions that add up to 1.
        seed: determines the division; the same for the same seed. None draws one.

    Example:
        >>> train, test = random_split(TensorDataset(np.arange(10)), [0.8, 0.2])
        >>> len(train), len(test)
        (8, 2)
    """
    n = len(dataset)
    if generator is not None:
        seed = None
    if any(isinstance(x, float) for x in lengths):
        if any(x < 0 for x in lengths) or abs(sum(lengths) - 1) > 1e-6:
            raise ValueError(f"random_split: fractions must add up to 1. Got {list(lengths)}.")
        counts = [int(n * x + 1e-9) for x in lengths]
        for i in range(n - sum(counts)):  # what rounding left over goes to the first parts, one each
            counts[i % len(counts)] += 1
    else:
        counts = [int(x) for x in lengths]
        if any(x < 0 for x in counts) or sum(counts) != n:
            raise ValueError(
                f"random_split: lengths must add up to the length of the dataset. Got {counts} for {n} samples."
            )
    order = seeds.permutation(n, seeds.make_seed(seed, generator), purpose=seeds.SPLIT)
    return [Subset(dataset, part) for part in np.split(order, np.cumsum(counts)[:-1])]
