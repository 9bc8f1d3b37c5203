"""Randomness that depends on *what* is drawn, never on who draws it or when.

Note [Counter-based randomness]: every stream is Philox, a function from (key, counter) to bits. The key holds the
seed and the epoch, the counter starts at the sample's index. So sample 17 of epoch 3 is augmented alike by one
process, by eight workers, and after a resume in the middle of the epoch; nothing has to be saved but two integers.

Orders (shuffles, weighted draws) use only Philox's raw 64-bit words, which NumPy promises never to change; a saved
position stays valid under another NumPy.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator, Philox

_MASK = (1 << 64) - 1

# What a stream is for; keeps, say, the shuffle of an epoch apart from the augmentation of its sample 0.
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
    """The seed of a loader or split: the given one, or one drawn from a generator, or from Weft's own.

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
    """Which worker process this is."""

    id: int
    num_workers: int


class _Context(threading.local):
    """Which sample this thread is working on."""

    worker: WorkerInfo | None = None
    place: tuple[int, int, int, int] | None = None  # seed, epoch, index, purpose
    rng: Generator | None = None


_context = _Context()


def enter(seed: int, epoch: int, index: int, purpose: int = SAMPLE) -> None:
    """From now on `sample_rng()` in this thread belongs to this sample (or batch)."""
    _context.place = (seed, epoch, index, purpose)
    _context.rng = None


def move(index: int) -> None:
    """On to another sample of the same epoch; nothing outside a loader."""
    if _context.place is not None:
        seed, epoch, _, _ = _context.place
        enter(seed, epoch, index)


def leave() -> None:
    """Nothing is being loaded in this thread."""
    _context.place = _context.rng = None


def set_worker(info: WorkerInfo) -> None:
    _context.worker = info


def worker_info() -> WorkerInfo | None:
    """In a worker process of a `DataLoader`: its number and how many there are. Elsewhere None."""
    return _context.worker


def sample_rng() -> Generator:
    """The random generator of the sample being loaded.

    Inside a dataset's `__getitem__`, a transform or an iterable dataset it is determined by the loader's seed, the
    epoch and the index of the sample; inside a collate function by the seed, the epoch and the number of the
    batch. So augmentation is the same whatever the number of workers, and after a resume. Calls for one sample
    continue one stream. Outside a loader it is one generator per thread with a fresh seed.

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
