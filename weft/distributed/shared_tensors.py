"""Tensors in shared memory: what `distributed.empty` makes, and how the ranks of a host find each other's.

One call makes one segment with a part for each rank. Rank 0 creates it, the others open it through rank 0's process; it
has no name in the file system and is freed when the last rank has dropped its tensor.
"""

from __future__ import annotations

import functools
import math
import os
import weakref
from typing import Any, NamedTuple

import numpy as np

from ..multiprocessing import ALIGNMENT, Segment, segment_of
from .call_log import SHARED
from .communicator import Call, Communicator
from .in_place import addresses


class SharedTensors(NamedTuple):
    """The tensors that one call of `empty` made on the ranks: one segment, cut into as many parts as there are ranks."""

    number: int
    stride: int
    """bytes of a part"""
    start: int
    """the address of the segment in this process"""


class SharedArray(NamedTuple):
    """An array in shared memory, flat, as every rank has it."""

    number: int
    """of the call of `empty` that made it"""
    offset: int
    """the byte of a rank's tensor at which it begins"""
    parts: list[np.ndarray]
    addresses: Any
    """of the parts, for native code"""

    def describe(self, in_place: bool) -> str:
        """Where it is, in words."""
        return (
            f" in shared memory (made by call {self.number}, from byte {self.offset}{', in place' if in_place else ''})"
        )


_shared: weakref.WeakKeyDictionary[Segment, SharedTensors] = weakref.WeakKeyDictionary()
_known: dict[int, tuple[Any, SharedArray | None]] = {}  # id of an array -> a weak reference to it, and where it is


def allocate(group: Communicator, call: Call, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """This rank's part of a new segment, zeroed; with several hosts, where values travel anyway, ordinary memory."""
    group.close_log(SHARED)
    if group.run.hosts > 1:
        group.put(call, None)
        return np.zeros(shape, dtype)
    stride = -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
    address = np.zeros(2, np.int64)
    segment = None
    if group.rank == 0:
        segment = Segment.create(group.world * stride)
        address[:] = os.getpid(), segment.fd
    group.put(call, address)
    if segment is None:
        pid, descriptor = (int(v) for v in group.chunk(0, address.dtype, 2))
        segment = Segment.attach(os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC))
    group.put(call, None)  # rank 0 keeps the descriptor until all have it
    start: int = segment.array((0,), np.uint8).__array_interface__["data"][0]
    _shared[segment] = SharedTensors(group.calls, stride, start)
    return segment.array(shape, dtype, group.rank * stride)


def shared_array(array: np.ndarray, group: Communicator) -> SharedArray | None:
    """The array as all ranks have it, if it is in a tensor that `empty` made, and contiguous."""
    if not _shared:
        return None
    known = _known.get(id(array))
    if known is not None and known[0]() is array:
        return known[1]
    found = None
    segment = segment_of(array)
    tensors = None if segment is None else _shared.get(segment)
    if segment is not None and tensors is not None and array.flags.c_contiguous:
        offset = array.__array_interface__["data"][0] - tensors.start - group.rank * tensors.stride
        starts = [rank * tensors.stride + offset for rank in range(group.world)]
        parts = [segment.array((array.size,), array.dtype, start) for start in starts]
        found = SharedArray(tensors.number, offset, parts, addresses(parts))
    _known[id(array)] = (weakref.ref(array, functools.partial(_forget, id(array))), found)
    return found


def _forget(key: int, _: object) -> None:
    _known.pop(key, None)
