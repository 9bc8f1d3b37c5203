"""Flat: named arrays, one after the other in one piece of memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..multiprocessing import ALIGNMENT, Segment


class Flat:
    """Named arrays, each aligned to a cache line, in one piece of memory."""

    def __init__(self) -> None:
        self.fields: dict[Any, tuple[np.dtype, int, int]] = {}  # name -> dtype, length, byte offset
        self.nbytes = 0

    def add(self, name: Any, dtype: Any, length: int) -> None:
        dtype = np.dtype(dtype)
        self.fields[name] = (dtype, length, self.nbytes)
        self.nbytes += _aligned(length * dtype.itemsize)

    def views(self, segment: Segment, offset: int) -> dict[Any, np.ndarray]:
        """The arrays, in the memory that begins at `offset`."""
        return {name: segment.array((length,), dtype, offset + at) for name, (dtype, length, at) in self.fields.items()}

    def allocate(self) -> dict[Any, np.ndarray]:
        """The arrays, zeroed, in memory of this process."""
        return {name: np.zeros(length, dtype) for name, (dtype, length, _) in self.fields.items()}


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def round_up(length: int, itemsize: int) -> int:
    """`length` elements, rounded up to whole cache lines."""
    return _aligned(length * itemsize) // itemsize
