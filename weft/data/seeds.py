"""Random numbers determined by seed, epoch and sample, independent of process and time.

Note [Counter-based randomness]: every stream is Philox, a function from (key, counter) to bits. The key holds the
seed and the epoch, the counter starts at the sample's index. So sample 17 of epoch 3 is augmented in the same way by
one process, by eight workers, and after a resume in the middle of the epoch; only two integers need saving.

Orders (shuffles, weighted draws) use only Philox's raw 64-bit words, which are stable across NumPy versions, so a
saved position stays valid after an upgrade.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator, Philox

_MASK = (1 << 64) - 1

# Purposes separate streams: the shuffle of an epoch must not share bits with the augmentation of its sample 0.
SAMPLE, BATCH, SHUFFLE, SPLIT, DRAW = range(5)


def stream(seed: int, epoch: int, index: int, purpose: int) -> Philox:
    """The bit stream that belongs to (seed, epoch, index) and a purpose."""
    key = np.array([seed & _MASK, epoch & _MASK], np.uint64)
    counter = np.array([0, 0, index & _MASK, purpose], np.uint64)
    return Philox(key=key, counter=counter)


def permutation(n: int, seed: int, epoch: int = 0, purpose: int = SHUFFLE) -> np.ndarray:
    """A random order of ``range(n)`` (int64), the same for the same (seed, epoch)."""
    words = stream(seed, epoch, 0, purpose).random_raw(n)
    return np.argsort(words, kind="stable").astype(np.int64, copy=False)


def uniform(n: int, seed: int, epoch: int = 0, purpose: int = DRAW) -> np.ndarray:
    """`n` float64 numbers in [0, 1)."""
    words = stream(seed, epoch, 0, purpose).random_raw(n)
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def make_seed(seed: int | None, generator: Any = None) -> int:
    """The given seed, or one drawn from `generator` or else from Weft's global generator.

    Args:
        seed: any integer.
        generator: a `weft.Generator` or `numpy.random.Generator` to draw a seed from.
    """
    if seed is not None:
        if generator is not None:
            raise ValueError("seed: give either seed or generator, not both.")
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
            raise TypeError(f"seed: expected an integer. Got {seed!r}.")
        return int(seed)
    if isinstance(generator, Generator):
        return int(generator.integers(1 << 62))
    from .. import random  # here, because a worker process never needs it

    if generator is None:
        return random.default_generator.random_seed()
    if isinstance(generator, random.Generator):
        return generator.random_seed()
    raise TypeError(f"generator: expected a weft.Generator or numpy.random.Generator. Got {type(generator).__name__}.")


class WorkerInfo(NamedTuple):
    """The worker's number and the number of workers."""

    id: int
    num_workers: int


class _Context(threading.local):
    """The sample that this thread is loading."""

    worker: WorkerInfo | None = None
    place: tuple[int, int, int, int] | None = None  # seed, epoch, index, purpose
    rng: Generator | None = None


_context = _Context()


def enter(seed: int, epoch: int, index: int, purpose: int = SAMPLE) -> None:
    """Set the sample (or batch) that `sample_rng()` of this thread belongs to."""
    _context.place = (seed, epoch, index, purpose)
    _context.rng = None


def move(index: int) -> None:
    """Switch to another sample of the same epoch; does nothing outside a loader."""
    if _context.place is not None:
        seed, epoch, _, _ = _context.place
        enter(seed, epoch, index)


def leave() -> None:
    """Clear the sample of this thread."""
    _context.place = _context.rng = None


def set_worker(info: WorkerInfo) -> None:
    _context.worker = info


def worker_info() -> WorkerInfo | None:
    """The `WorkerInfo` of this process if it is a worker of a `DataLoader`, else None.

    Example:
        >>> data.worker_info() is None
        True
    """
    return _context.worker


def sample_rng() -> Generator:
    """The random generator of the sample being loaded.

    In a dataset's `__getitem__`, a transform or an iterable dataset it is determined by the loader's seed, the epoch
    and the index of the sample; in a collate function by the seed, the epoch and the number of the batch. So
    augmentation does not depend on the number of workers, and a resume reproduces it. Calls for one sample continue
    one stream. Outside a loader there is one generator per thread with a fresh seed.

    Example:
        >>> from weft.data import Dataset
        >>> class Noisy(Dataset):
        ...     def __len__(self): return 10
        ...     def __getitem__(self, i): return i + sample_rng().normal()
    """
    if _context.rng is None:
        if _context.place is None:
            _context.rng = np.random.default_rng()
        else:
            _context.rng = Generator(stream(*_context.place))
    return _context.rng


def transform_rng() -> Generator:
    """`sample_rng()` while a loader loads; elsewhere a generator seeded by Weft's own, which `wf.manual_seed` restarts."""
    if _context.place is not None:
        return sample_rng()
    return Generator(stream(make_seed(None), 0, 0, SAMPLE))
