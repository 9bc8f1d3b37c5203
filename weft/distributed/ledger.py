"""The ledger: which sample belongs to which step and shard.

A position is (epoch, batch) and nothing else. The order of an epoch follows from the loader's seed, batch k is a range of it,
and shard s of L is a range of the batch (`tree.bounds`), so any worker can read any shard at any time, and a change in the
number of workers moves nothing: no sample is repeated or dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..autograd.tree import flatten, unflatten
from ..data._tensor import arrays_to_tensors
from ..data.collate import fill
from ..data.dataset import Subset, TensorDataset
from ..data.fetch import LoadError, MapFetcher, Source
from ..data.loader import DataLoader
from ..runtime import memory
from ..tensor import Tensor, wrap
from . import tree


class GlobalBatch:
    """A batch of which any shard can be read."""

    samples: int
    runs_code = False
    """whether reading a shard runs the user's code, which may draw random numbers"""

    def shard(self, number: int, shards: int) -> Any:
        """The samples of one shard, as the loader would give them in a batch."""
        raise NotImplementedError


class IndexedBatch(GlobalBatch):
    """A batch of a dataset with random access: only what is asked for is read."""

    def __init__(self, fetcher: MapFetcher, number: int, indices: np.ndarray, as_numpy: bool) -> None:
        self._fetcher, self._number, self._indices, self._as_numpy = fetcher, number, indices, as_numpy
        self.samples = len(indices)
        self.runs_code = _runs_code(fetcher.source)

    def shard(self, number: int, shards: int) -> Any:
        start, stop = tree.bounds(self.samples, shards, number)
        try:
            found, _ = self._fetcher.fetch(self._number * shards + number, self._indices[start:stop])
        except LoadError as error:
            assert error.__cause__ is not None
            error.__cause__.add_note(f"DataLoader: while loading {error}, shard {number} of batch {self._number}")
            raise error.__cause__ from error.__cause__.__cause__
        made = fill(found, memory.empty)
        return made if self._as_numpy else arrays_to_tensors(made)


def _runs_code(source: Source) -> bool:
    """Whether samples are read by code of the user's, and not just taken from arrays."""
    dataset = source.dataset
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return source.collate_fn is not None or type(dataset) is not TensorDataset


class WholeBatch(GlobalBatch):
    """A batch that every worker has in full, from a stream or any other iterable."""

    def __init__(self, batch: Any) -> None:
        leaves: Any
        self._structure: Any
        flat = batch.__class__ is tuple and all([v.__class__ is Tensor for v in batch])  # noqa: C419 (quicker)
        leaves, self._structure = (batch, None) if flat else flatten(batch)
        self._leaves = leaves
        lengths = {v.shape[0] for v in leaves if isinstance(v, (Tensor, np.ndarray)) and v.shape}
        if len(lengths) != 1:
            raise ValueError(
                f"distributed: the tensors of a batch must have one first dimension, the samples. Got {sorted(lengths)}."
            )
        (self.samples,) = lengths

    def shard(self, number: int, shards: int) -> Any:
        start, stop = tree.bounds(self.samples, shards, number)
        cut = self._leaves
        if stop - start != self.samples:
            cut = [_range(v, start, stop) if isinstance(v, (Tensor, np.ndarray)) and v.shape else v for v in cut]
        return cut if self._structure is None else unflatten(self._structure, cut)


def _range(values: Any, start: int, stop: int) -> Any:
    """Some of the samples; without the tape, which has nothing to record, if they are in memory."""
    if values.__class__ is Tensor and values._node is None and values._data.__class__ is np.ndarray:
        return wrap(values._data[start:stop])
    return values[start:stop]


def batches(loader: Iterable[Any]) -> Iterator[GlobalBatch]:
    """The global batches of an epoch of `loader`, or of the rest of one; the loader's position advances with them."""
    if isinstance(loader, DataLoader) and not loader.is_stream and loader.source.batch_size is not None:
        if loader.source.world_size > 1:
            raise ValueError(
                "distributed: a DataLoader with rank and world_size divides the data itself. Leave them out: every worker reads "
                "its shards of the global batch."
            )
        for fetcher, number, indices in loader.index_batches():
            yield IndexedBatch(fetcher, number, indices, loader.as_numpy)
    else:
        for batch in loader:
            yield WholeBatch(batch)
