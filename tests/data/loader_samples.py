"""Datasets for the loader's tests. They are in this module because worker processes import them by name."""

from __future__ import annotations

import os
import sys
import time

import numpy as np

from weft.data import Dataset, IterableDataset, sample_rng, worker_info


class Squares(Dataset):
    """Sample i is (i * i, augmented noise, name)."""

    def __init__(self, n: int = 23) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index):
        if not 0 <= index < self.n:
            raise IndexError(index)
        return {"square": index * index, "noise": sample_rng().random(3), "name": f"sample {index}"}


class Fails(Squares):
    def __getitem__(self, index):
        if index == 5:
            return explode(index)
        return super().__getitem__(index)


def explode(index):
    raise ValueError(f"cannot read number {index}")


class Exits(Squares):
    def __getitem__(self, index):
        if index == 5:
            os._exit(7)
        return super().__getitem__(index)


class Sleeps(Squares):
    """Everything from sample 4 on takes for ever."""

    def __getitem__(self, index):
        if index >= 4:
            time.sleep(600)
        return super().__getitem__(index)


class Environment(Squares):
    """What the worker process looks like from inside."""

    def __getitem__(self, index):
        info = worker_info()
        return {
            "threads": [os.environ.get("WEFT_NUM_THREADS", ""), os.environ.get("OMP_NUM_THREADS", "")],
            "worker": -1 if info is None else info.id,
            "llvm": "llvmlite" in sys.modules,
            "pid": os.getpid(),
        }


class Images(Squares):
    """Big enough that a batch fills pages: sample i is an image full of i."""

    def __init__(self, n: int = 40, side: int = 64) -> None:
        super().__init__(n)
        self.side = side

    def __getitem__(self, index):
        return np.full((self.side, self.side), index, np.float32)


class Ragged(Squares):
    """Later samples are larger, so slots have to grow."""

    def __getitem__(self, index):
        return np.full(2000 * (index // 4 + 1), index, np.int32)


class Counter(IterableDataset):
    """A stream of numbers with noise, shifted by the epoch."""

    def __init__(self, n: int = 23) -> None:
        self.n, self.epoch = n, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        for i in range(self.n):
            yield np.int64(1000 * self.epoch + i), sample_rng().random()


class Positioned(Counter):
    """The same stream, which knows where it stands."""

    def __init__(self, n: int = 23) -> None:
        super().__init__(n)
        self.start = 0  # of the next iterator
        self.position = 0  # of the latest one
        self.made = 0

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.start = state["position"]

    def __iter__(self):
        start, self.start = self.start, 0
        for i in range(start, self.n):
            self.position = i + 1
            self.made += 1
            yield np.int64(1000 * self.epoch + i), sample_rng().random()


class FailingStream(Counter):
    def __iter__(self):
        yield from (np.int64(i) for i in range(6))
        raise OSError("the stream broke")


def batch_noise(samples):
    """A collate function that draws random numbers."""
    return {"squares": np.array([s["square"] for s in samples]), "mix": sample_rng().random(2), "n": len(samples)}


def returns_lambda(samples):
    return lambda: samples
