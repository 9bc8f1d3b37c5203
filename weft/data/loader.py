"""DataLoader: batches of a dataset in a reproducible order, prefetched by worker processes.

Contract
--------
* **Order.** The content of batch k of epoch e depends on the seed, the dataset and the sampler, never on `num_workers`.
* **Position.** The loader counts the batches it has returned. `state_dict()` is that count with the seed and the
  epoch, as plain numbers; a loader that loads it continues with the next batch, regardless of prefetched batches and
  of the number of workers.
* **Memory.** Batches from workers are in shared memory and are not copied; they stay valid while they are referenced,
  and their memory is reused afterwards.
* **Failure.** An error in a worker is raised with its traceback in place of its batch. A worker that dies raises
  immediately. After an error, Ctrl-C, `close()`, or the end of the loader or the program, no process remains.
* **Threads.** One thread iterates a loader at a time. Two iterators of one loader may be alive; the second starts
  separate workers.
"""

from __future__ import annotations

import dataclasses
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import numpy as np

from ..runtime import memory
from . import seeds
from ._tensor import arrays_to_tensors
from .collate import default_collate, fill
from .fetch import End, Epoch, LoadError, MapFetcher, Source, is_stream, make_fetcher, stateful
from .pool import WorkerPool
from .sampler import DistributedSampler, RandomSampler, SequentialSampler, check_batch_size, check_rank

STATE_VERSION = 1


class DataLoader:
    """Iterates over a dataset in batches.

    Args:
        dataset: a `Dataset` (anything with `__len__` and `__getitem__`) or an `IterableDataset`.
        batch_size: samples per batch; None for single samples without a batch axis.
        shuffle: a new random order in each epoch, determined by (seed, epoch).
        sampler: an iterable of indices, instead of `shuffle`.
        batch_sampler: an iterable of lists of indices, instead of `batch_size`, `shuffle`, `sampler` and `drop_last`.
        num_workers: processes that load; 0 loads in this process.
        collate_fn: turns a list of samples into a batch; `default_collate` if None.
        drop_last: drop the last batch if it is incomplete.
        prefetch_factor: batches that each worker prefetches.
        timeout: seconds to wait for a batch from a worker; None waits as long as the worker lives.
        seed: determines order and augmentation; drawn from `generator`, or from Weft's global one, if None.
        persistent_workers: keep the processes from epoch to epoch. They hold the dataset as it was when they
            started; call `close()` after changing it.
        rank, world_size: load only this rank's share. Every rank has the same number of batches.
        as_numpy: return NumPy arrays instead of tensors.

    Example:
        >>> loader = data.DataLoader(data.TensorDataset(np.arange(10)), batch_size=4)
        >>> [x.tolist() for (x,) in loader]
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool = False,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        drop_last: bool = False,
        prefetch_factor: int = 2,
        timeout: float | None = None,
        seed: int | None = None,
        generator: Any = None,
        persistent_workers: bool = True,
        rank: int = 0,
        world_size: int = 1,
        as_numpy: bool = False,
    ) -> None:
        self.dataset = dataset
        self.num_workers, self.prefetch_factor, self.timeout = num_workers, prefetch_factor, timeout
        self.persistent_workers, self.as_numpy = persistent_workers, as_numpy
        self._stream = is_stream(dataset)
        self._check(batch_size, shuffle, sampler, batch_sampler, drop_last, rank, world_size)
        if collate_fn is default_collate:
            collate_fn = None
        if batch_sampler is not None:
            batch_size = getattr(batch_sampler, "batch_size", 1)
        self.source = Source(dataset, collate_fn, batch_size, drop_last, rank, world_size)
        self.seed = seeds.make_seed(seed, generator)
        self.shuffle, self.sampler, self.batch_sampler = shuffle, sampler, batch_sampler
        self._next_epoch = 0
        self._resume: Epoch | None = None
        self._position: _Position | None = None  # of the latest iterator
        self._iterator: weakref.ref[_Iterator] | None = None
        self._sampler_state: Any = None  # of the user's sampler when the current epoch began
        self._restore_sampler = False  # whether that state was loaded and the sampler has not received it yet
        self._pool: WorkerPool | None = None

    def _check(
        self, batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: Any, rank: Any, world: Any
    ) -> None:
        if batch_size is not None:
            check_batch_size("DataLoader", batch_size)
        elif drop_last:
            raise ValueError("DataLoader: drop_last has no meaning with batch_size=None.")
        check_rank("DataLoader", rank, world)
        for name, least in (("num_workers", 0), ("prefetch_factor", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"DataLoader: {name} must be an integer of at least {least}. Got {value!r}.")
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"DataLoader: timeout must be positive, or None to wait. Got {self.timeout!r}.")
        if sampler is not None and shuffle:
            raise ValueError("DataLoader: give either sampler or shuffle=True, not both.")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError(
                "DataLoader: batch_sampler replaces batch_size, shuffle, sampler and drop_last; leave those out."
            )
        if batch_sampler is not None and world > 1:
            raise ValueError("DataLoader: a batch_sampler is not divided by rank. Divide it yourself; drop world_size.")
        if self._stream and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError(
                f"DataLoader: {type(self.dataset).__name__} is a stream and has no random order. "
                "Leave out shuffle and samplers; shuffle inside the dataset, with `sample_rng()`."
            )
        if not self._stream and not (hasattr(self.dataset, "__getitem__") and hasattr(self.dataset, "__len__")):
            raise TypeError(
                f"DataLoader: {type(self.dataset).__name__} is not a dataset. Expected `__len__` and "
                "`__getitem__`, or a subclass of IterableDataset."
            )

    # Order ----------------------------------------------------------------------------------------------------------

    @property
    def batch_size(self) -> int | None:
        """Samples per batch; None with a `batch_sampler`."""
        return None if self.batch_sampler is not None else self.source.batch_size

    def _custom_sampler(self) -> Any:
        return self.batch_sampler if self.batch_sampler is not None else self.sampler

    def _ordered_sampler(self) -> Any:
        """The built-in sampler, or the user's if it can list its whole order."""
        source = self.source
        sampler: Any = self.sampler
        if sampler is None:
            n = len(self.dataset)
            sampler = RandomSampler(n, self.seed) if self.shuffle else SequentialSampler(n)
        if source.world_size > 1:
            if not hasattr(sampler, "order"):
                indices = np.fromiter(sampler, np.int64)
                sampler = _FixedOrder(indices)
            sampler = DistributedSampler(sampler, source.rank, source.world_size, source.drop_last)
        return sampler

    def _batches(self, epoch: Epoch) -> Iterator[np.ndarray | None]:
        """The indices of each remaining batch; None for each batch of a stream."""
        if self._stream:
            return itertools.repeat(None)
        first, size = epoch.first_batch, self.source.batch_size or 1
        custom = self._custom_sampler()
        if hasattr(custom, "set_epoch"):
            custom.set_epoch(epoch.epoch)
        if stateful(custom):
            if self._restore_sampler:
                custom.load_state_dict(self._sampler_state)
            else:
                self._sampler_state = custom.state_dict()
        self._restore_sampler = False
        if self.batch_sampler is not None:
            return map(_as_indices, itertools.islice(self.batch_sampler, first, None))
        sampler = self._ordered_sampler()
        if hasattr(sampler, "order"):
            sampler.set_epoch(epoch.epoch)
            return _cut(np.asarray(sampler.order(), np.int64), first, size, self.source.drop_last)
        return _group(itertools.islice(sampler, first * size, None), size, self.source.drop_last)

    def __len__(self) -> int:
        """The number of batches per epoch (of this rank)."""
        if self.batch_sampler is not None:
            return len(self.batch_sampler)  # type: ignore[arg-type]
        size = self.source.batch_size or 1
        if self._stream:
            if not hasattr(self.dataset, "__len__"):
                raise TypeError(f"DataLoader: {type(self.dataset).__name__} is a stream without a length.")
            n = len(range(self.source.rank, len(self.dataset), self.source.world_size))
        else:
            n = len(self.dataset if self.sampler is None else self.sampler)  # type: ignore[arg-type]
            if self.source.drop_last:
                n //= self.source.world_size
            else:
                n = -(-n // self.source.world_size)
        return n // size if self.source.drop_last else -(-n // size)

    # Iteration ------------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch being iterated, or the next one."""
        return int(self.state_dict()["epoch"])

    def set_epoch(self, epoch: int) -> None:
        """Start the next iteration at the beginning of `epoch`."""
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
            raise ValueError(f"DataLoader: epoch must be an integer of at least 0. Got {epoch!r}.")
        self._position, self._resume, self._next_epoch = None, None, epoch

    def __iter__(self) -> Iterator[Any]:
        epoch = self._resume or Epoch(self.seed, self._next_epoch)
        self._resume = None
        self._next_epoch = epoch.epoch + 1
        pool = self._take_pool() if self.num_workers else None
        iterator = _Iterator(self, epoch, pool)
        self._position, self._iterator = iterator.position, weakref.ref(iterator)
        return iterator

    @property
    def is_stream(self) -> bool:
        """Whether the dataset is a stream, without random access."""
        return self._stream

    def index_batches(self) -> Iterator[tuple[MapFetcher, int, np.ndarray]]:
        """The batches of an epoch, or of the rest of one, as (fetcher, number, indices): nothing is read.

        For those that read only parts of a batch (`weft.distributed.ledger`). The position advances as in an iteration.
        """
        epoch = self._resume or Epoch(self.seed, self._next_epoch)
        self._resume = None
        self._next_epoch = epoch.epoch + 1
        position = self._position = _Position(epoch.epoch, epoch.first_batch, None)
        fetcher = MapFetcher(self.source, epoch)
        for indices in self._batches(epoch):
            assert indices is not None
            position.handed += 1
            yield fetcher, position.handed - 1, indices
        position.finished = True

    def _take_pool(self) -> WorkerPool:
        """The persistent workers if they are idle, or new ones."""
        pool, self._pool = self._pool, None
        if pool is not None and pool.alive:
            return pool
        return WorkerPool(self.source, self.num_workers, self.prefetch_factor)

    def _give_back(self, pool: WorkerPool) -> None:
        if self.persistent_workers and self._pool is None and pool.alive:
            self._pool = pool
        else:
            pool.stop()

    def close(self) -> None:
        """Stop the worker processes. The next iteration starts new ones."""
        iterator = self._iterator() if self._iterator is not None else None
        if iterator is not None:
            iterator.close()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Position -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The position of this loader, as plain numbers and strings (JSON-serialisable).

        It counts the batches returned so far, not prefetched ones.

        Example:
            >>> loader = data.DataLoader(data.TensorDataset(np.arange(6)), batch_size=2)
            >>> first = next(iter(loader))
            >>> again = data.DataLoader(data.TensorDataset(np.arange(6)), batch_size=2)
            >>> again.load_state_dict(loader.state_dict())
            >>> [x.tolist() for (x,) in again]
            [[2, 3], [4, 5]]
        """
        epoch, batches, stream = self._next_epoch, 0, None
        position = self._position
        under_way = position is not None and not position.finished
        if position is not None and under_way:
            epoch, batches, stream = position.epoch, position.handed, position.stream_state
        elif self._resume is not None:
            epoch, batches, stream = self._resume.epoch, self._resume.first_batch, self._resume.stream_state
        state = {"version": STATE_VERSION, "seed": self.seed, "epoch": epoch, "batches": batches, **self._shape()}
        if stream is not None:
            state["stream"] = stream
        if stateful(self._custom_sampler()):
            current = under_way or self._restore_sampler
            state["sampler"] = self._sampler_state if current else self._custom_sampler().state_dict()
        return state

    def _shape(self) -> dict[str, Any]:
        """Settings that must be equal for a saved position to be valid."""
        return {
            "batch_size": self.batch_size,
            "length": None if self._stream else len(self.dataset),
            "shuffle": self.shuffle,
            "drop_last": self.source.drop_last,
            "rank": self.source.rank,
            "world_size": self.source.world_size,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved position: the next iteration starts with the batch after the last one returned.

        Raises:
            ValueError: the state does not belong to a loader like this one; the message names what differs.
        """
        if not isinstance(state, dict) or state.get("version") != STATE_VERSION:
            got = state.get("version") if isinstance(state, dict) else type(state).__name__
            raise ValueError(
                "load_state_dict: this is not the state of a DataLoader. "
                f"Got version {got!r}; expected {STATE_VERSION}."
            )
        differences = [
            f"{key} was {state.get(key)!r} and is {value!r}"
            for key, value in self._shape().items()
            if state.get(key) != value
        ]
        numbers = {key: state.get(key) for key in ("seed", "epoch", "batches")}
        differences += [
            f"{key} is {value!r}, not an integer"
            for key, value in numbers.items()
            if isinstance(value, bool) or not isinstance(value, int) or (key != "seed" and value < 0)
        ]
        if state.get("stream") is not None and not (self._stream and stateful(self.dataset)):
            differences.append("it holds the state of an iterable dataset, and this dataset cannot load one")
        if differences:
            raise ValueError(
                f"load_state_dict: the state belongs to another loader: {'; '.join(differences)}. "
                "Make the loader as it was when the state was saved (num_workers may differ)."
            )
        self.seed = state["seed"]
        self._position = None
        self._next_epoch = state["epoch"]
        self._sampler_state = state.get("sampler")
        self._restore_sampler = self._sampler_state is not None
        self._resume = None
        if state["batches"] or state.get("stream") is not None:
            self._resume = Epoch(self.seed, state["epoch"], state["batches"], state.get("stream"))


@dataclasses.dataclass
class _Position:
    """Progress within an epoch. Outlives the iterator, which only the user references."""

    epoch: int
    handed: int  # batches returned since the start of the epoch
    stream_state: Any
    finished: bool = False


class _Iterator:
    """One pass over a loader's epoch, or the rest of one."""

    def __init__(self, loader: DataLoader, epoch: Epoch, pool: WorkerPool | None) -> None:
        self._loader, self._pool = loader, pool
        self.position = _Position(epoch.epoch, epoch.first_batch, epoch.stream_state)
        self._closed = False
        self._asked = epoch.first_batch
        try:
            self._batches = loader._batches(epoch)
            if pool is None:
                self._fetcher = make_fetcher(loader.source, epoch)
            else:
                pool.begin(epoch)
                self._ask()
        except BaseException as error:
            self._abort()
            if isinstance(error, LoadError) and error.__cause__ is not None:
                raise error.__cause__ from None
            raise

    def __iter__(self) -> _Iterator:
        return self

    def __next__(self) -> Any:
        if self._closed:
            raise StopIteration
        try:
            found = self._load_here() if self._pool is None else self._load_from_pool(self._pool)
        except BaseException:
            self._abort()
            raise
        if found is None:
            self.position.finished = True
            self.close()
            raise StopIteration
        tree, state = found
        self.position.handed += 1
        self.position.stream_state = state
        return tree if self._loader.as_numpy else arrays_to_tensors(tree)

    def _load_here(self) -> tuple[Any, Any] | None:
        try:
            indices = next(self._batches)
        except StopIteration:
            return None
        try:
            tree, state = self._fetcher.fetch(self.position.handed, indices)  # type: ignore[arg-type]
        except End:
            return None
        except LoadError as error:
            assert error.__cause__ is not None
            error.__cause__.add_note(f"DataLoader: while loading {error}")
            raise error.__cause__ from error.__cause__.__cause__
        return fill(tree, memory.empty), state

    def _load_from_pool(self, pool: WorkerPool) -> tuple[Any, Any] | None:
        if self.position.handed == self._asked:
            return None  # no batch is in flight and none is left to submit
        found = pool.take(self.position.handed, self._loader.timeout)
        if found is not None:
            self._ask()  # before returning, so that workers overlap with the user's computation
        return found

    def _ask(self) -> None:
        assert self._pool is not None
        while self._pool.has_capacity():
            try:
                indices = next(self._batches)
            except StopIteration:
                return
            self._pool.submit(self._asked, indices)
            self._asked += 1

    def _abort(self) -> None:
        """Stop the workers after an error, which may have left a pipe in the middle of a message."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.stop()

    def close(self) -> None:
        """End the iteration; the loader keeps its position, and its workers if they are persistent."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            self._loader._give_back(pool)

    def __del__(self) -> None:
        if getattr(self, "_pool", None) is not None:
            self.close()


class _FixedOrder:
    """A sampler with a precomputed order."""

    def __init__(self, indices: np.ndarray) -> None:
        self._indices = indices

    def set_epoch(self, epoch: int) -> None:
        """Does nothing: the order was drawn for this epoch."""

    def order(self) -> np.ndarray:
        return self._indices

    def __len__(self) -> int:
        return len(self._indices)


def _cut(order: np.ndarray, first: int, size: int, drop_last: bool) -> Iterator[np.ndarray]:
    stop = len(order) - size + 1 if drop_last else len(order)
    return (order[start : start + size] for start in range(first * size, stop, size))


def _group(indices: Iterable[int], size: int, drop_last: bool) -> Iterator[np.ndarray]:
    iterator = iter(indices)
    while len(batch := list(itertools.islice(iterator, size))) and (len(batch) == size or not drop_last):
        yield _as_indices(batch)


def _as_indices(batch: Any) -> np.ndarray:
    indices = np.asarray(batch)
    if indices.ndim != 1 or not indices.size or indices.dtype.kind not in "iu":
        raise TypeError(f"DataLoader: a sampler gave {batch!r}. Expected integer indices, at least one per batch.")
    return indices.astype(np.int64, copy=False)
