"""Layouts: shape, strides and offset of a value in a storage. A view is another layout of the same storage, and free."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...graph.graph import Node
from ...ops.core.views import View
from ...ops.core.views import row_major as row_major


@dataclass(eq=False, slots=True)
class Storage:
    """A contiguous memory region of a program.

    `kind` is its owner: an "argument" of the call, a "variable" (an outside tensor), a "constant", the program's "arena"
    (then `offset` is planned), memory "kept" between calls (see `weft.compiler.lowering.frozen`), an "output" that is
    allocated at every call, or the "cursor" of a loop, which advances through the memory of another storage.
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
    assert node.op.view is not None
    return viewed(base, node.op.view, tuple(node.outputs[0].shape), *node.attrs)


def viewed(base: Layout, view: View, shape: tuple[int, ...], *attrs: Any) -> Layout | None:
    """The layout of a view with these attributes, or None if the elements must be copied."""
    found = view.strides(base.shape, base.strides, shape, *attrs)
    if found is None:
        return None
    strides, offset = found
    return Layout(base.storage, base.dtype, shape, strides, base.offset + offset)
