"""Fetchers: make a batch from its number, in the main process or in a worker.

A fetcher is created once per epoch from an `Epoch`. It returns a *plan* (see `collate`), so the caller chooses the
memory that the batch is written to.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from . import seeds
from ._tensor import tensors_to_arrays
from .collate import plan
from .dataset import IterableDataset, MapIterableDataset


@dataclasses.dataclass(frozen=True)
class Source:
    """The dataset and how batches are made from it; sent to every worker once."""

    dataset: Any
    collate_fn: Callable[[list[Any]], Any] | None
    batch_size: int | None
    drop_last: bool
    rank: int
    world_size: int


@dataclasses.dataclass(frozen=True)
class Epoch:
    """The start of one iteration; sent to every worker when it begins."""

    seed: int
    epoch: int
    first_batch: int = 0
    stream_state: Any = None  # of an iterable dataset: {"position": int, "dataset": its own state}


class LoadError(Exception):
    """Wraps an exception of a dataset (its `__cause__`) with the sample or batch that raised it."""


class End(Exception):
    """The stream ended before this batch."""


def _finish(samples: list[Any], source: Source, epoch: Epoch, batch: int) -> Any:
    """Collate single samples into a plan."""
    if source.batch_size is None and source.collate_fn is None:
        return tensors_to_arrays(samples[0])
    seeds.enter(epoch.seed, epoch.epoch, batch, seeds.BATCH)
    if source.collate_fn is not None:
        return tensors_to_arrays(source.collate_fn(samples[0] if source.batch_size is None else samples))
    return plan(samples)


class MapFetcher:
    """Batches of a dataset with random access."""

    def __init__(self, source: Source, epoch: Epoch) -> None:
        self.source, self._epoch = source, epoch
        self._gather = None
        if source.collate_fn is None and source.batch_size is not None:
            self._gather = getattr(source.dataset, "gather", None)

    def fetch(self, batch: int, indices: np.ndarray) -> tuple[Any, Any]:
        """The plan of a batch, and None: a dataset with random access has no stream state."""
        source, epoch = self.source, self._epoch
        try:
            if self._gather is not None:
                with_rows = self._locate(lambda: self._gather(indices), "batch", batch)  # type: ignore[misc]
                if with_rows is not None:
                    return with_rows, None
            samples = []
            for index in indices.tolist():
                seeds.enter(epoch.seed, epoch.epoch, index)
                samples.append(self._locate(lambda i=index: source.dataset[i], "index", index))  # type: ignore[misc]
            return self._locate(lambda: _finish(samples, source, epoch, batch), "batch", batch), None
        finally:
            seeds.leave()

    @staticmethod
    def _locate(action: Callable[[], Any], what: str, number: int) -> Any:
        try:
            return action()
        except Exception as error:
            raise LoadError(f"{what} {number}") from error


class StreamFetcher:
    """Batches of an iterable dataset, in order: worker w of n makes batches w, w + n, …

    Every worker iterates over the whole stream and keeps only its own batches; a skipped sample costs only the
    production of the raw sample (see `IterableDataset.select`).
    """

    def __init__(self, source: Source, epoch: Epoch, worker: int = 0, num_workers: int = 1) -> None:
        self._source, self._epoch = source, epoch
        self._size = source.batch_size or 1
        self._worker, self._workers = worker, num_workers
        self._stateful = stateful(source.dataset)
        if hasattr(source.dataset, "set_epoch"):
            source.dataset.set_epoch(epoch.epoch)
        start = 0
        state = epoch.stream_state
        if state is not None and state.get("dataset") is not None:
            if self._stateful is None:
                raise LoadError("resume") from TypeError(
                    f"load_state_dict: the saved state holds the position of the dataset itself, "
                    f"but {type(source.dataset).__name__} has no load_state_dict."
                )
            self._stateful.load_state_dict(state["dataset"])
            start = state["position"]
        seeds.enter(epoch.seed, epoch.epoch, start)
        self._stream: Iterator[tuple[int, Any]] = source.dataset.select(self._wanted, start)

    def _batch_of(self, position: int) -> int:
        return position // self._source.world_size // self._size

    def _wanted(self, position: int) -> bool:
        batch = self._batch_of(position)
        return (
            position % self._source.world_size == self._source.rank
            and batch % self._workers == self._worker
            and batch >= self._epoch.first_batch
        )

    def fetch(self, batch: int, indices: np.ndarray | None = None) -> tuple[Any, Any]:
        """The plan of a batch and the state of the stream after it. Raises `End` when there is none."""
        samples: list[Any] = []
        position = -1
        seeds.enter(self._epoch.seed, self._epoch.epoch, 0)
        try:
            while len(samples) < self._size:
                try:
                    position, sample = next(self._stream)
                except StopIteration:
                    break
                except Exception as error:
                    raise LoadError(f"the sample after position {position}, batch {batch}") from error
                samples.append(sample)
            if not samples or (len(samples) < self._size and self._source.drop_last):
                raise End
            state = None
            if self._stateful is not None:
                state = {"position": position + 1, "dataset": self._stateful.state_dict()}
            return MapFetcher._locate(lambda: _finish(samples, self._source, self._epoch, batch), "batch", batch), state
        finally:
            seeds.leave()


def stateful(dataset: Any) -> Any:
    """The object whose `state_dict` describes the position of a dataset or sampler, or None."""
    while isinstance(dataset, MapIterableDataset):
        dataset = dataset.source
    return dataset if hasattr(dataset, "state_dict") and hasattr(dataset, "load_state_dict") else None


def is_stream(dataset: Any) -> bool:
    """Whether a dataset is a stream."""
    return isinstance(dataset, IterableDataset)


def make_fetcher(source: Source, epoch: Epoch, worker: int = 0, num_workers: int = 1) -> MapFetcher | StreamFetcher:
    if is_stream(source.dataset):
        return StreamFetcher(source, epoch, worker, num_workers)
    return MapFetcher(source, epoch)
