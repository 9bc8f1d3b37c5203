"""Staging copies: an operand is copied into the layout a primitive requires, or a result out of it.

A `Staged` input is copied into a scratch block from the pool before the primitive runs; a `Staged` output is produced in
such a block and then copied into the caller's array. Both are prepared once per signature.
"""

from __future__ import annotations

import numpy as np

from weft.runtime import memory

from ..addresses import address
from ..descriptors import MemoryDesc, channels_last_strides
from ..primitives.reorder import reorder
from .primitive_call import PrimitiveCall

_BYTES = np.dtype(np.uint8)
_Strides = tuple[int, ...]


def same_layout(shape: tuple[int, ...], left: _Strides, right: _Strides) -> bool:
    """Whether two sets of strides describe the same memory: those of axes with one element do not count."""
    return all(n == 1 or i == j for n, i, j in zip(shape, left, right, strict=True))


def describable(array: np.ndarray) -> bool:
    """Whether oneDNN can read the array without a copy: positive whole strides and no overlapping elements."""
    itemsize = array.itemsize
    pairs = [(stride, n) for stride, n in zip(array.strides, array.shape, strict=True) if n > 1]
    if any(stride <= 0 or stride % itemsize for stride, _ in pairs):
        return False
    reach = itemsize
    for stride, n in sorted(pairs):
        if stride < reach:
            return False
        reach = stride * n
    return True


def block(nbytes: int) -> np.ndarray:
    """Temporary memory from the pool."""
    return memory.empty((nbytes,), _BYTES)


class StagedInput:
    """`stage(array)` is a block that holds the array's values in the wanted layout."""

    __slots__ = ("_copy", "_kernel", "_nbytes")

    def __init__(self, kernel: PrimitiveCall, nbytes: int, copy: bool) -> None:
        self._kernel, self._nbytes, self._copy = kernel, nbytes, copy

    def __call__(self, array: np.ndarray) -> np.ndarray:
        if self._copy:
            compact = memory.empty(array.shape, array.dtype)
            np.copyto(compact, array)
            array = compact
        target = block(self._nbytes)
        self._kernel(address(array), address(target))
        return target


class StagedOutput:
    """`allocate()` gives the block a primitive writes; `deliver(block, array)` copies its values into the array."""

    __slots__ = ("_kernel", "_nbytes")

    def __init__(self, kernel: PrimitiveCall, nbytes: int) -> None:
        self._kernel, self._nbytes = kernel, nbytes

    def allocate(self) -> np.ndarray:
        return block(self._nbytes)

    def deliver(self, source: np.ndarray, array: np.ndarray) -> None:
        self._kernel(address(source), address(array))


def stage_input(view: np.ndarray, wanted: MemoryDesc) -> StagedInput | None:
    """A copy from the layout of `view` to `wanted`; `None` if they are equal."""
    target = wanted.strides
    strides = tuple(stride // view.itemsize for stride in view.strides)
    readable = describable(view)
    if readable and target is not None and same_layout(view.shape, strides, target):
        return None
    if readable:
        source = MemoryDesc.strided(view.shape, view.dtype, definite(view.shape, strides))
    else:
        source = MemoryDesc.strided(view.shape, view.dtype)
    return StagedInput(PrimitiveCall(reorder(source, wanted)), wanted.nbytes, copy=not readable)


def stage_output(produced: MemoryDesc, strides: _Strides) -> StagedOutput | None:
    """A copy from the layout `produced` of a primitive to an array with these strides in elements."""
    if produced.strides is not None and same_layout(produced.shape, produced.strides, strides):
        return None
    target = MemoryDesc.strided(produced.shape, produced.dtype, definite(produced.shape, strides))
    return StagedOutput(PrimitiveCall(reorder(produced, target)), produced.nbytes)


def definite(shape: tuple[int, ...], strides: _Strides) -> _Strides:
    """The strides with those of size-1 axes replaced by values that oneDNN always accepts."""
    extent = max((n * s for n, s in zip(shape, strides, strict=True) if n > 1), default=1)
    return tuple(s if n > 1 else extent for n, s in zip(shape, strides, strict=True))


def channels_last_desc(shape: tuple[int, ...], dtype: np.dtype) -> MemoryDesc:
    return MemoryDesc.strided(shape, dtype, channels_last_strides(shape))


def is_channels_last(array: np.ndarray) -> bool:
    """Whether an (N, C, spatial...) array is contiguous and channels-last."""
    wanted = channels_last_strides(array.shape)
    return same_layout(array.shape, array.strides, tuple(stride * array.itemsize for stride in wanted))


def pixels(array: np.ndarray) -> np.ndarray:
    """A channels-last (N, C, spatial...) array as the matrix (pixels, C), without a copy."""
    return array.transpose(memory.channels_last_order(array.ndim)).reshape(-1, array.shape[1])


def grouped_shape(shape: tuple[int, ...], groups: int) -> tuple[int, ...]:
    """(O, C/G, kernel...) in oneDNN's order of axes: (G, O/G, C/G, kernel...) if there are groups."""
    return tuple(shape) if groups == 1 else (groups, shape[0] // groups, *shape[1:])


def grouped_weights(w: np.ndarray, groups: int) -> np.ndarray:
    """The same weights as a view of `grouped_shape`."""
    if groups == 1:
        return w
    outer = w.strides[0] * (w.shape[0] // groups)
    return np.lib.stride_tricks.as_strided(w, grouped_shape(w.shape, groups), (outer, *w.strides), writeable=False)
