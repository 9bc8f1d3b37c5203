"""Dataset classes, and functions that split, join and map them.

A `Dataset` has a length and random access by index; an `IterableDataset` is a stream of samples. Samples are NumPy
arrays, numbers and strings, alone or in tuples and dictionaries; the loader converts them to tensors.
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

    Example:
        >>> class Squares(data.Dataset):
        ...     def __len__(self):
        ...         return 4
        ...
        ...     def __getitem__(self, index):
        ...         return index, float(index**2)
        >>> [y.tolist() for _, y in data.DataLoader(Squares(), batch_size=2)]
        [[0.0, 1.0], [4.0, 9.0]]
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
        """A whole batch at once, or None to collate it from single samples.

        An optional fast path for datasets backed by arrays. The result has the structure of the batch with `Rows` as
        leaves, which are copied straight into the batch's memory. It must equal collating the single samples.

        Args:
            indices: (batch,) int64.
        """
        return None

    def map(self, function: Callable[[Any], Any], element: int | str | None = None) -> Dataset:
        """Apply `function` to each sample, or to one element of it, as it is loaded; see `map_dataset`.

        Example:
            >>> (x,) = data.TensorDataset(np.arange(3)).map(lambda x: 10 * x, element=0)[2]
            >>> int(x)
            20
        """
        return MapDataset(self, function, element)


class IterableDataset:
    """Base class of datasets that are streams: implement `__iter__`.

    The stream of an epoch is the same in every process; the loader divides it between ranks and workers by
    position (see `select`), so the order of batches does not depend on the number of workers.

    Optional methods: `set_epoch(epoch)` is called before each epoch. `state_dict()` returns the position of the latest
    iterator as plain numbers, strings and lists; after `load_state_dict(state)` the next ``iter()``, and only that one,
    continues from there. Without these two, a resume reads and skips the samples already seen.

    Example:
        >>> class Countdown(data.IterableDataset):
        ...     def __iter__(self):
        ...         return iter([3, 2, 1])
        >>> [batch.tolist() for batch in data.DataLoader(Countdown(), batch_size=2)]
        [[3, 2], [1]]
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__}: implement __iter__().")

    def select(self, wanted: Callable[[int], bool], start: int = 0) -> Iterator[tuple[int, Any]]:
        """Iterate over (position, sample) for the wanted positions of the stream.

        Override it if the stream can skip samples more cheaply than by producing them.

        Args:
            wanted: whether the sample at a position is needed; it may be false for all remaining positions.
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
        """Apply `function` to each sample, or to one element of it, as it is loaded; see `map_dataset`."""
        return MapIterableDataset(self, function, element)


class Rows(Leaf):
    """A leaf that gathers rows of one array."""

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
        >>> dataset = data.TensorDataset(np.zeros((10, 3)), np.arange(10))
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
    """The samples of a dataset at the given indices, in the given order.

    Example:
        >>> [int(x) for (x,) in data.Subset(data.TensorDataset(np.arange(10)), [7, 2])]
        [7, 2]
    """

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
    """Several datasets concatenated; `a + b` makes one, too.

    Example:
        >>> both = data.ConcatDataset([data.TensorDataset(np.arange(3)), data.TensorDataset(np.arange(5))])
        >>> len(both), int(both[4][0])
        (8, 1)
    """

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
    """A dataset that applies a function to its samples as they are loaded."""

    def __init__(self, source: Dataset, function: Callable[[Any], Any], element: int | str | None = None) -> None:
        self.source, self.function, self.element = source, _checked(function), element

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Any:
        return _apply(self.function, self.source[index], self.element)


class MapIterableDataset(IterableDataset):
    """A stream that applies a function to its samples, but not to skipped ones."""

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
    """Apply `function` to each sample of `dataset` as it is loaded.

    Args:
        function: takes and returns one sample, or one element of it. Worker processes need it to be picklable.
        dataset: a `Dataset` or an `IterableDataset`.
        element: apply it only to this item of a tuple or this key of a dictionary, say 0 for the image of an
            (image, label) pair.

    Example:
        >>> pairs = data.TensorDataset(np.arange(3), np.array([5, 6, 7]))
        >>> [(int(x), int(y)) for x, y in data.map(lambda x: -x, pairs, element=0)]
        [(0, 5), (-1, 6), (-2, 7)]
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
    """Split a dataset at random into parts that do not overlap.

    Args:
        lengths: numbers of samples that add up to the length of the dataset, or fractions that add up to 1.
        seed: determines the split; None draws one.

    Example:
        >>> train, test = data.random_split(data.TensorDataset(np.arange(10)), [0.8, 0.2])
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
        for i in range(n - sum(counts)):  # the remainder after rounding goes to the first parts, one sample each
            counts[i % len(counts)] += 1
    else:
        counts = [int(x) for x in lengths]
        if any(x < 0 for x in counts) or sum(counts) != n:
            raise ValueError(
                f"random_split: lengths must add up to the length of the dataset. Got {counts} for {n} samples."
            )
    order = seeds.permutation(n, seeds.make_seed(seed, generator), purpose=seeds.SPLIT)
    return [Subset(dataset, part) for part in np.split(order, np.cumsum(counts)[:-1])]
