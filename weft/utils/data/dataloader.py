"""DataLoader with PyTorch's arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft as wf

from ...data import Dataset, IterableDataset, loader, worker_info
from ...data import default_collate as default_collate
from ...data.fetch import is_stream


class _Initialized:
    """A dataset that calls `worker_init_fn` before its first use in a worker process."""

    def __init__(self, dataset: Any, init: Callable[[int], Any]) -> None:
        self.dataset, self.init, self.ready = dataset, init, False

    def _start(self) -> Any:
        info = worker_info()
        if info is not None and not self.ready:
            self.ready = True
            self.init(info.id)
        return self.dataset

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("dataset", "init", "ready"):
            raise AttributeError(name)
        return getattr(self.dataset, name)


class _InitializedMap(_Initialized, Dataset):
    def __getitem__(self, index: Any) -> Any:
        return self._start()[index]

    def __len__(self) -> int:
        return len(self.dataset)

    def gather(self, indices: np.ndarray) -> Any:
        dataset = self._start()
        return dataset.gather(indices) if hasattr(dataset, "gather") else None


class _InitializedStream(_Initialized, IterableDataset):
    def __iter__(self) -> Any:
        return iter(self._start())


class DataLoader(loader.DataLoader):
    """`weft.data.DataLoader` with the arguments of PyTorch's, in their order.

    Args:
        dataset: a dataset, or an iterable one.
        batch_size: samples per batch; None for single samples.
        shuffle: a new random order in each epoch.
        sampler: an iterable of indices, instead of `shuffle`.
        batch_sampler: an iterable of lists of indices, instead of `batch_size`, `shuffle`, `sampler` and `drop_last`.
        num_workers: processes that load.
        collate_fn: turns a list of samples into a batch.
        pin_memory: accepted and ignored: there is no other device to copy to.
        drop_last: drop the last batch if it is incomplete.
        timeout: seconds to wait for a batch; 0 waits as long as the worker lives.
        worker_init_fn: called with the number of the worker in each worker process, before it loads.
        multiprocessing_context: accepted and ignored.
        generator: decides the order; Weft's global generator by default.
        prefetch_factor: batches that each worker prefetches.
        persistent_workers: keep the processes from epoch to epoch.
        pin_memory_device: accepted and ignored.
        in_order: batches come in order in any case.

    >>> batches = wf.utils.data.DataLoader([1.0, 2.0, 3.0], 2, drop_last=True)
    >>> [x.tolist() for x in batches]
    [[1.0, 2.0]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        used = dataset
        if worker_init_fn is not None and num_workers:
            used = (_InitializedStream if is_stream(dataset) else _InitializedMap)(dataset, worker_init_fn)
        super().__init__(
            used,
            batch_size,
            bool(shuffle),
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            drop_last,
            2 if prefetch_factor is None else prefetch_factor,
            timeout or None,
            None,
            generator,
            persistent_workers,
        )
        self.dataset = dataset
        self.pin_memory, self.worker_init_fn = pin_memory, worker_init_fn


def default_convert(data: Any) -> Any:
    """Arrays and NumPy numbers in nested lists, tuples and dicts as tensors, everything else as it is.

    >>> wf.utils.data.default_convert({"x": np.zeros(2), "name": "a"})
    {'x': tensor([0., 0.], dtype=float64), 'name': 'a'}
    """
    from ...autograd.tree import map_tree

    return map_tree(lambda v: wf.asarray(v) if isinstance(v, (np.ndarray, np.generic)) else v, data)
