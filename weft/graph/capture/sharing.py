"""Alias analysis: detect arguments and outside tensors of a captured program that share memory.

A program assumes that arguments and outside tensors do not overlap. That is wrong if it writes to one of them and another
one aliases the same memory. The check compares byte ranges, so it finds memory shared through NumPy, DLPack or buffers as
well as views; elements are compared only where ranges overlap.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import numpy as np

from ...autograd.tape import memory_of
from ...backends.onednn.addresses import address

ndarray = np.ndarray
_MAX_WORK = 100_000  # of comparing two patterns of strides exactly; beyond that they count as overlapping


def bounds(array: ndarray) -> tuple[int, int]:
    """The addresses of the first byte of `array` and behind its last one."""
    if array.flags.c_contiguous:
        start = address(array)
        return start, start + array.nbytes
    return np.lib.array_utils.byte_bounds(array)


def overlap(a: ndarray, b: ndarray) -> bool:
    """Whether an element of `a` shares memory with one of `b`."""
    try:
        return np.shares_memory(a, b, max_work=_MAX_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def repeats(array: ndarray) -> bool:
    """Whether two elements of `array` may be the same memory (a broadcast view, a sliding window)."""
    if array.flags.c_contiguous:
        return False
    reach = array.itemsize
    for stride, size in sorted((abs(s), d) for s, d in zip(array.strides, array.shape, strict=True) if d > 1):
        if stride < reach:
            return True
        reach += stride * (size - 1)
    return False


class Ranges:
    """The memory of several arrays as disjoint byte ranges, in order."""

    def __init__(self, arrays: Iterable[ndarray]) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        for low, high in sorted(bounds(a) for a in arrays if a.size):
            if self.ends and low <= self.ends[-1]:
                self.ends[-1] = max(self.ends[-1], high)
            else:
                self.starts.append(low)
                self.ends.append(high)

    def meet(self, low: int, high: int) -> bool:
        """Whether a byte of [low, high) lies in one of the ranges."""
        i = bisect_left(self.starts, high)
        return i > 0 and self.ends[i - 1] > low


class Outside:
    """The memory of a program's outside tensors, of which it writes those numbered `written`."""

    def __init__(self, arrays: Sequence[ndarray], written: Sequence[int]) -> None:
        self.arrays = arrays
        self._written = [arrays[i] for i in written]
        self.ranges, self.written_ranges = Ranges(arrays), Ranges(self._written)
        self.clash = self._clash(set(written))
        roots = [memory_of(a) for a in self._written]
        self.owners: set[int] | None = {id(r) for r in roots}  # arrays that own the memory that is written
        if any(r.base is not None for r in roots):
            self.owners = None  # memory from elsewhere may be known to several arrays

    def _clash(self, written: set[int]) -> bool:
        """Whether one that is written shares memory with another one."""
        found = sorted((*bounds(a), i) for i, a in enumerate(self.arrays) if a.size)
        open_: list[tuple[int, int]] = []  # (end, number) of ranges that may reach further
        for low, high, i in found:
            open_ = [(end, j) for end, j in open_ if end > low]
            for _, j in open_:
                if (i in written or j in written) and overlap(self.arrays[i], self.arrays[j]):
                    return True
            open_.append((high, i))
        return False

    def shared(self, array: ndarray, writes: bool) -> bool:
        """Whether `array` shares memory with an outside tensor of which at least one is written."""
        return any(overlap(array, other) for other in (self.arrays if writes else self._written))
