"""Decompositions of pooling that no library computes: every window position is a strided view of the padded image.

One nest reads all views of a window side by side. Gradients add up the columns of `unfold_backward`.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from .... import dtypes
from ....ops.array import elementwise as e
from ....ops.array import indexing, shaping
from ....ops.array.creation import filled
from ....ops.array.indexing import Slice
from ....ops.core.slow_path import check_memory
from ....ops.nn.pool.primitives import _first_places, _lowest, _shares, offsets_dtype
from ....ops.nn.unfold import unfold_backward
from ....ops.nn.window import Window
from ....ops.nn.window_arrays import offsets, spatial_size
from ..decompose import counting, decomposition
from .moving import constant

MAX_WINDOW = 32  # positions of a window that one nest reads
_ALL = Slice(None, None, None)


def _views(x: Any, window: Window, sizes: Any, value: Any) -> list[Any]:
    """One view per kernel position, of the image padded with `value`."""
    spatial = tuple(x.shape[2:])
    padded = window.padded_sizes(spatial, sizes)
    if padded != spatial:
        inside = (_ALL, _ALL, *[Slice(low, low + n, None) for n, low in zip(spatial, window.before, strict=True)])
        x = indexing.setitem(filled((*x.shape[:2], *padded), value, x.dtype), x, inside)
    return [
        indexing.getitem(x, (_ALL, _ALL, *[Slice(p.start, p.stop, p.step) for p in slices]))
        for _, slices in offsets(window, sizes)
    ]


def _left_to_library(x: Any, window: Window) -> bool:
    """Whether max pooling is left to a library (or a host call): float32 without dilation."""
    return x.dtype == dtypes.float32 and not window.dilated


@decomposition("max_pool")
def max_pool(x: Any, window: Window) -> Any:
    if _left_to_library(x, window) or window.positions > MAX_WINDOW or x.dtype.itemsize == 2:
        return NotImplemented
    sizes = window.out_sizes("max_pool", x.shape[2:])
    lowest = _lowest(x.dtype)
    first = _first_places(window, sizes).astype(offsets_dtype(window))
    views = _views(x, window, sizes, lowest)
    best = filled(tuple(views[0].shape), lowest, x.dtype)
    found = shaping.broadcast_to(constant(x, first[None, None]), tuple(views[0].shape))
    for number, value in enumerate(views):
        better = e.greater(value, best)
        if dtypes.is_floating(x.dtype):
            better = e.logical_or(better, e.logical_and(e.not_equal(value, value), e.equal(best, best)))
        best = e.where(better, value, best)
        found = e.where(better, constant(x, np.asarray(number, first.dtype)), found)
    return best, found


def _columns(places: Any, count: int, value: Any) -> Any:
    """(N, C·K, L): `value` in the column of the maximum's position, zeros in the others."""
    n, c = places.shape[:2]
    flat = shaping.reshape(places, (n, c, 1, -1))
    numbers = constant(places, counting("max_pool", count).astype(places.dtype).reshape(1, 1, count, 1))
    values = shaping.reshape(value, (n, c, 1, -1))
    chosen = e.where(e.equal(flat, numbers), values, constant(value, np.zeros((), value.dtype)))
    return shaping.reshape(chosen, (n, c * count, flat.shape[-1]))


@decomposition("max_pool_backward")
def max_pool_backward(g: Any, places: Any, like: Any, size: Any, window: Window) -> Any:
    spatial = spatial_size(like, size)
    if _left_to_library(g, window) or g.dtype.itemsize == 2 or any(window.overhang(spatial, g.shape[2:])):
        return NotImplemented
    return unfold_backward(_columns(places, window.positions, g), None, spatial, replace(window, ceil_mode=False))


@decomposition("max_pool_select")
def max_pool_select(x: Any, places: Any, window: Window) -> Any:
    if window.positions > MAX_WINDOW or x.dtype.itemsize == 2:
        return NotImplemented
    nothing = constant(x, np.zeros((), x.dtype))
    total: Any = nothing
    for number, value in enumerate(_views(x, window, tuple(places.shape[2:]), 0)):
        total = e.where(e.equal(places, constant(places, np.asarray(number, places.dtype))), value, total)
    return total


@decomposition("max_pool_indices")
def max_pool_indices(places: Any, like: Any, window: Window) -> Any:
    rest = e.astype(places, np.dtype(np.int64))
    index: Any = None
    unit = 1
    for axis in reversed(range(window.axes)):
        place, rest = rest % window.kernel[axis], rest // window.kernel[axis]
        start = counting("max_pool", places.shape[2 + axis]) * window.stride[axis] - window.before[axis]
        start = start.reshape(-1, *(1,) * (window.axes - 1 - axis))
        part = (constant(places, start) + place * window.dilation[axis]) * unit
        index = part if index is None else index + part
        unit *= like.shape[2 + axis]
    return index


@decomposition("avg_pool")
def avg_pool(x: Any, window: Window, include: bool, divisor: Any) -> Any:
    """Handles windows that end beyond the padding, and other divisors."""
    sizes = window.out_sizes("avg_pool", x.shape[2:])
    usual = x.dtype == dtypes.float32 and divisor is None and not any(window.overhang(x.shape[2:], sizes))
    if usual or window.positions > MAX_WINDOW or x.dtype.itemsize == 2 or dtypes.is_complex(x.dtype):
        return NotImplemented
    total: Any = None
    for value in _views(x, window, sizes, 0):
        total = value if total is None else total + value
    return total * _share(x, x.shape[2:], window, sizes, include, divisor)


def _share(like: Any, spatial: Any, window: Window, sizes: Any, include: bool, divisor: Any) -> Any:
    check_memory("avg_pool", tuple(sizes), like.dtype)
    share = np.asarray(_shares(spatial, window, sizes, include, divisor))
    share = np.broadcast_to(share[..., 0] if share.ndim else share, sizes)
    return constant(like, np.ascontiguousarray(share[None, None], like.dtype))


@decomposition("avg_pool_backward")
def avg_pool_backward(g: Any, like: Any, size: Any, window: Window, include: bool, divisor: Any) -> Any:
    spatial, sizes = spatial_size(like, size), tuple(g.shape[2:])
    if (
        any(window.overhang(spatial, sizes))
        or g.dtype == dtypes.float32
        and divisor is None
        or g.dtype.itemsize == 2
        or dtypes.is_complex(g.dtype)
    ):
        return NotImplemented
    scaled = g * _share(g, spatial, window, sizes, include, divisor)
    n, c, count = g.shape[0], g.shape[1], window.positions
    columns = shaping.broadcast_to(shaping.reshape(scaled, (n, c, 1, -1)), (n, c, count, prod(sizes)))
    columns = shaping.reshape(columns, (n, c * count, prod(sizes)))
    return unfold_backward(columns, None, spatial, replace(window, ceil_mode=False))
