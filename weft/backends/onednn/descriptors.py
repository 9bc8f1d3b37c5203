"""Memory descriptors: oneDNN's descriptions of arrays.

A `MemoryDesc` is (shape, dtype, layout). The layout is given by strides in *elements*, or left to oneDNN
(`MemoryDesc.any`), which then chooses an opaque ("blocked") one. Immutable; owns its handle.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from functools import cache

import ml_dtypes
import numpy as np

from . import library
from .capi import FORMAT_TAG_ANY, MAX_NDIMS, DataType, Query, Unsupported, dims

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

_DATA_TYPES: dict[np.dtype, DataType] = {
    np.dtype(np.float32): DataType.F32,
    BFLOAT16: DataType.BF16,
    np.dtype(np.float16): DataType.F16,
    np.dtype(np.float64): DataType.F64,
    np.dtype(np.int32): DataType.S32,
    np.dtype(np.int8): DataType.S8,
    np.dtype(np.uint8): DataType.U8,
}
_DTYPES = {data_type: dtype for dtype, data_type in _DATA_TYPES.items()}


def data_type(dtype: np.dtype) -> DataType:
    """oneDNN's name for a dtype; raises `Unsupported` for those it does not have."""
    try:
        return _DATA_TYPES[dtype]
    except KeyError:
        names = ", ".join(map(str, _DATA_TYPES))
        raise Unsupported(f"oneDNN: no such data type. Got {dtype}; expected {names}.") from None


class MemoryDesc:
    """Shape, dtype and layout of one argument of a primitive. Equal descriptors describe the same bytes alike."""

    __slots__ = ("__weakref__", "dtype", "handle", "nbytes", "shape")

    handle: int
    shape: tuple[int, ...]
    dtype: np.dtype
    nbytes: int

    def __init__(self, handle: int) -> None:
        """Takes ownership of a handle."""
        lib = library.require()
        self.handle = handle
        weakref.finalize(self, lib.call, "memory_desc_destroy", handle).atexit = False
        ndim = ctypes.c_int()
        lib.call("memory_desc_query", handle, Query.NDIMS, ctypes.byref(ndim))
        kind = ctypes.c_int()
        lib.call("memory_desc_query", handle, Query.DATA_TYPE, ctypes.byref(kind))
        self.shape = self._vector(Query.DIMS)[: ndim.value]
        self.dtype = _DTYPES[DataType(kind.value)] if kind.value else np.dtype(np.uint8)
        self.nbytes = lib.desc_size(handle)

    @classmethod
    def strided(cls, shape: tuple[int, ...], dtype: np.dtype, strides: tuple[int, ...] | None = None) -> MemoryDesc:
        """An array with these strides in elements (row-major if `None`). No two elements may share memory."""
        check_ndim(shape)
        layout = contiguous_strides(shape) if strides is None else strides
        lib = library.require()
        what = f"shape {shape}, strides {layout}, {dtype}"
        handle = lib.create("memory_desc_create_with_strides", len(shape), dims(shape), data_type(dtype), dims(layout),
                            what=what)  # fmt: skip
        return cls(handle)

    @classmethod
    def any(cls, shape: tuple[int, ...], dtype: np.dtype) -> MemoryDesc:
        """An array whose layout the primitive chooses; query it with `Primitive.desc`."""
        check_ndim(shape)
        lib = library.require()
        handle = lib.create("memory_desc_create_with_tag", len(shape), dims(shape), data_type(dtype), FORMAT_TAG_ANY,
                            what=f"shape {shape}, {dtype}")  # fmt: skip
        return cls(handle)

    @classmethod
    def borrowed(cls, handle: int) -> MemoryDesc:
        """A copy of a descriptor owned by another object, such as a primitive descriptor."""
        return cls(library.require().create("memory_desc_clone", handle))

    def _vector(self, what: Query) -> tuple[int, ...]:
        # The library hands out a pointer to the vector inside the descriptor.
        pointer = ctypes.POINTER(ctypes.c_int64)()
        library.require().call("memory_desc_query", self.handle, what, ctypes.byref(pointer))
        return tuple(pointer[:MAX_NDIMS])

    def _blocks(self) -> tuple[tuple[int, int], ...] | None:
        """(axis, size) of the inner blocks, outermost first; `None` if the layout is not blocked."""
        lib = library.require()
        count, kind = ctypes.c_int(), ctypes.c_int()
        lib.call("memory_desc_query", self.handle, Query.FORMAT_KIND, ctypes.byref(kind))
        if kind.value != 2:
            return None
        lib.call("memory_desc_query", self.handle, Query.INNER_NBLKS, ctypes.byref(count))
        if not count.value:
            return ()
        sizes, axes = self._vector(Query.INNER_BLKS), self._vector(Query.INNER_IDXS)
        return tuple(zip(axes[: count.value], sizes[: count.value], strict=True))

    @property
    def strides(self) -> tuple[int, ...] | None:
        """Strides in elements if this is a plain strided array, `None` for an opaque layout."""
        if self._blocks() != () or self._vector(Query.PADDED_DIMS)[: len(self.shape)] != self.shape:
            return None
        return self._vector(Query.STRIDES)[: len(self.shape)]

    @property
    def blocked(self) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]] | None:
        """(strides of the axes from block to block, (axis, size) of the inner blocks, outermost first) if these describe the
        layout completely; `None` for others, such as one with trailing compensation sums for integers."""
        blocks, padded = self._blocks(), self._vector(Query.PADDED_DIMS)[: len(self.shape)]
        if blocks is None or self.nbytes != math.prod(padded) * self.dtype.itemsize:
            return None
        return self._vector(Query.STRIDES)[: len(self.shape)], blocks

    @property
    def format(self) -> str:
        """The layout in oneDNN's notation, outermost axis first, blocks at the end: "acdb", "ABcd16b16a"."""
        blocks = self._blocks()
        if blocks is None:
            return "opaque"
        strides = self._vector(Query.STRIDES)
        order = sorted(range(len(self.shape)), key=lambda axis: (-strides[axis], axis))
        blocked = {axis for axis, _ in blocks}
        letters = "".join(chr((65 if axis in blocked else 97) + axis) for axis in order)
        return letters + "".join(f"{size}{chr(97 + axis)}" for axis, size in blocks)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MemoryDesc):
            return NotImplemented
        return self is other or library.require().desc_equal(self.handle, other.handle)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype, self.nbytes))

    def __repr__(self) -> str:
        return f"MemoryDesc({self.shape}, {self.dtype}, {self.format!r})"


def check_ndim(shape: tuple[int, ...]) -> None:
    """Reject empty and 0-d arrays and those with too many axes, which the caller handles without oneDNN."""
    if not 0 < len(shape) <= MAX_NDIMS or 0 in shape:
        raise Unsupported(
            f"oneDNN: cannot describe this shape. Got {shape}; expected 1 to {MAX_NDIMS} axes, none empty."
        )


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


@cache
def _channels_last_order(ndim: int) -> tuple[int, ...]:
    return (0, *range(2, ndim), 1)


def channels_last_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of an (N, C, spatial...) array with contiguous channels."""
    order = _channels_last_order(len(shape))
    strides = [0] * len(shape)
    step = 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)
