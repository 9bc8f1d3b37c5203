"""Layouts: shape, strides and offset of a value in a storage. A view is another layout of the same storage, and free."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..graph.graph import Node
from ..ops.array.indexing import thaw
from ..ops.core.spec import normalize_axes


@dataclass(eq=False, slots=True)
class Storage:
    """A contiguous memory region of a program.

    `kind` is its owner: an "argument" of the call, a "variable" (an outside tensor), a "constant", the program's
    "arena" (then `offset` is planned), or an "output" that is allocated at every call. `alias` is the storage
    whose memory this one takes over (an output written over a variable, an in-place update).
    """

    kind: str
    nbytes: int
    index: int = -1
    offset: int = -1
    first: int = -1  # lifetime in steps, for the arena
    last: int = -1
    scratch: bool = False  # per-thread scratch of one step; all steps share one arena region for it
    array: Any = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Layout:
    """Element (i, j, …) of a value is stored at `offset + i * strides[0] + j * strides[1] + …` elements into the storage."""

    storage: Storage
    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def byte_offset(self) -> int:
        return self.offset * self.dtype.itemsize

    @property
    def byte_strides(self) -> tuple[int, ...]:
        return tuple([s * self.dtype.itemsize for s in self.strides])

    @property
    def contiguous(self) -> bool:
        return same_strides(self.strides, row_major(self.shape), self.shape)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for d in reversed(shape):
        strides.append(step)
        step *= max(d, 1)
    return tuple(reversed(strides))


def like_order(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> tuple[int, ...]:
    """Contiguous strides with the memory order of `strides` (row-major where that is ambiguous)."""
    if strides is None:
        return row_major(shape)
    order = sorted(range(len(shape)), key=lambda a: (-strides[a] if shape[a] > 1 else 0, a))
    if any(shape[a] > 1 and strides[a] <= 0 for a in order):
        return row_major(shape)
    result, step = [0] * len(shape), 1
    for a in reversed([a for a in order if shape[a] > 1]):
        result[a] = step
        step *= shape[a]
    for a in range(len(shape)):
        if shape[a] <= 1:
            result[a] = 1
    return tuple(result)


def channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of an (N, C, spatial…) array with contiguous channels."""
    order = (0, *range(2, len(shape)), 1)
    result, step = [0] * len(shape), 1
    for a in reversed(order):
        result[a] = step
        step *= max(shape[a], 1)
    return tuple(result)


def same_strides(a: tuple[int, ...], b: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return all(p == q or d <= 1 for p, q, d in zip(a, b, shape, strict=True))


def view_layout(node: Node, base: Layout) -> Layout | None:
    """The layout of a view op's result on the layout of its input, or None if the elements must be copied."""
    name, out = node.op.name, node.outputs[0]
    shape = tuple(out.shape)
    if name == "permute_dims":
        axes = [a % len(shape) for a in node.attrs[0]]
        return Layout(base.storage, base.dtype, shape, tuple([base.strides[a] for a in axes]), base.offset)
    if name == "broadcast_to":
        extra = len(shape) - len(base.shape)
        strides = (0,) * extra + tuple(
            [
                0 if d == 1 and shape[i + extra] != 1 else s
                for i, (d, s) in enumerate(zip(base.shape, base.strides, strict=True))
            ]
        )
        return Layout(base.storage, base.dtype, shape, strides, base.offset)
    if name == "getitem":
        return _sliced(base, node.attrs[0], shape)
    if name == "expand_dims":
        strides_ = list(base.strides)
        axis = node.attrs[0]
        for a in sorted(normalize_axes(name, axis, len(shape))):
            strides_.insert(a, 1)
        return Layout(base.storage, base.dtype, shape, tuple(strides_), base.offset)
    if name == "squeeze":
        gone = normalize_axes(name, node.attrs[0], len(base.shape))
        kept = tuple([s for i, s in enumerate(base.strides) if i not in gone])
        return Layout(base.storage, base.dtype, shape, kept, base.offset)
    if name == "reshape":
        found = _reshaped(base.shape, base.strides, shape)
        return None if found is None else Layout(base.storage, base.dtype, shape, found, base.offset)
    raise KeyError(name)


VIEW_OPS = ("permute_dims", "broadcast_to", "getitem", "expand_dims", "squeeze", "reshape")


def _sliced(base: Layout, index: Any, shape: tuple[int, ...]) -> Layout | None:
    """The layout of a basic index, computed by NumPy on addresses instead of data."""
    if 0 in base.shape or 0 in shape:
        return Layout(base.storage, base.dtype, shape, row_major(shape), base.offset)
    probe = np.lib.stride_tricks.as_strided(np.empty(1, np.int8), base.shape, base.strides, writeable=False)
    items = thaw(index)
    view = probe[items if Ellipsis in items else (*items, Ellipsis)]  # never a scalar, which would be a copy
    start = view.__array_interface__["data"][0] - probe.__array_interface__["data"][0]
    return Layout(base.storage, base.dtype, shape, tuple(view.strides), base.offset + start)


def _reshaped(old: tuple[int, ...], strides: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides of a reshape that needs no copy, or None."""
    dims = [(d, s) for d, s in zip(old, strides, strict=True) if d != 1]
    if 0 in old or 0 in new:
        return row_major(new)
    result = [1] * len(new)
    position = 0
    i = 0
    while i < len(new):
        if new[i] == 1:
            i += 1
            continue
        if position >= len(dims):
            return None
        # gather a group of old axes and of new axes with equal products
        size_old, group_old = dims[position][0], [dims[position]]
        size_new, group_new = new[i], [i]
        position += 1
        i += 1
        while size_old != size_new:
            if size_old < size_new:
                if position >= len(dims):
                    return None
                size_old *= dims[position][0]
                group_old.append(dims[position])
                position += 1
            else:
                if i >= len(new):
                    return None
                size_new *= new[i]
                if new[i] != 1:
                    group_new.append(i)
                i += 1
        for (_, s1), (d2, s2) in zip(group_old, group_old[1:], strict=False):
            if s1 != d2 * s2:
                return None
        step = group_old[-1][1]
        for axis in reversed(group_new):
            result[axis] = step
            step *= new[axis]
    return tuple(result)
