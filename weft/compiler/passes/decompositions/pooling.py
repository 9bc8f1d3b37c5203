"""Decompositions of pooling that oneDNN does not support: every window position is a strided view of the padded image.

One nest reads all views of a window side by side. Gradients add up the columns of `unfold_backward`.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .... import dtypes
from ....ops.array import elementwise as e
from ....ops.array import indexing, shaping
from ....ops.array.creation import filled
from ....ops.array.indexing import Slice
from ....ops.core.slow_path import check_memory
from ....ops.nn.pool.primitives import _extra, _first_places, _lowest, _shares, offsets_dtype
from ....ops.nn.unfold import unfold_backward
from ....ops.nn.windows import offsets, out_sizes
from ..decompose import counting, decomposition
from .moving import constant

MAX_WINDOW = 32  # positions of a window that one nest reads
_ALL = Slice(None, None, None)


def _views(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, sizes: Any, value: Any) -> list[Any]:
    """One view per kernel position, of the image padded with `value`."""
    spatial = tuple(x.shape[2:])
    extra = _extra(spatial, kernel, stride, padding, dilation, sizes)
    if any(lo or hi for lo, hi in padding) or any(extra):
        shape = (*x.shape[:2], *[n + lo + hi + m for n, (lo, hi), m in zip(spatial, padding, extra, strict=True)])
        inside = (_ALL, _ALL, *[Slice(lo, lo + n, None) for n, (lo, _) in zip(spatial, padding, strict=True)])
        x = indexing.setitem(filled(shape, value, x.dtype), x, inside)
    return [
        indexing.getitem(x, (_ALL, _ALL, *[Slice(p.start, p.stop, p.step) for p in slices]))
        for _, slices in offsets(kernel, stride, dilation, sizes)
    ]


def _direct(x: Any, dilation: Any) -> bool:
    """Whether oneDNN supports this case."""
    return x.dtype == dtypes.float32 and all(d == 1 for d in dilation)


@decomposition("max_pool")
def max_pool(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
    if _direct(x, dilation) or prod(kernel) > MAX_WINDOW or x.dtype.itemsize == 2:
        return NotImplemented
    sizes = out_sizes("max_pool", x, kernel, stride, padding, dilation, ceil_mode)
    lowest = _lowest(x.dtype)
    first = _first_places(kernel, stride, padding, dilation, sizes).astype(offsets_dtype(kernel))
    views = _views(x, kernel, stride, padding, dilation, sizes, lowest)
    best = filled(tuple(views[0].shape), lowest, x.dtype)
    found = shaping.broadcast_to(constant(x, first[None, None]), tuple(views[0].shape))
    for number, value in enumerate(views):
        better = e.greater(value, best)
        if dtypes.is_floating(x.dtype):
            better = e.logical_or(better, e.logical_and(e.not_equal(value, value), e.equal(best, best)))
        best = e.where(better, value, best)
        found = e.where(better, constant(x, np.asarray(number, first.dtype)), found)
    return best, found


def _columns(places: Any, kernel: Any, value: Any) -> Any:
    """(N, C·K, L): `value` in the column of the maximum's position, zeros in the others."""
    n, c = places.shape[:2]
    count = prod(kernel)
    flat = shaping.reshape(places, (n, c, 1, -1))
    numbers = constant(places, counting("max_pool", count).astype(places.dtype).reshape(1, 1, count, 1))
    values = shaping.reshape(value, (n, c, 1, -1))
    chosen = e.where(e.equal(flat, numbers), values, constant(value, np.zeros((), value.dtype)))
    return shaping.reshape(chosen, (n, c * count, flat.shape[-1]))


@decomposition("max_pool_backward")
def max_pool_backward(
    g: Any, places: Any, like: Any, size: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Any:
    spatial = tuple(like.shape[2:] if size is None else size)
    if _direct(g, dilation) or g.dtype.itemsize == 2:
        return NotImplemented
    extra = _extra(spatial, kernel, stride, padding, dilation, tuple(g.shape[2:]))
    if any(extra):
        return NotImplemented
    return unfold_backward(_columns(places, kernel, g), None, spatial, kernel, dilation, padding, stride)


@decomposition("max_pool_select")
def max_pool_select(x: Any, places: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
    if prod(kernel) > MAX_WINDOW or x.dtype.itemsize == 2:
        return NotImplemented
    nothing = constant(x, np.zeros((), x.dtype))
    total: Any = nothing
    for number, value in enumerate(_views(x, kernel, stride, padding, dilation, tuple(places.shape[2:]), 0)):
        total = e.where(e.equal(places, constant(places, np.asarray(number, places.dtype))), value, total)
    return total


@decomposition("max_pool_indices")
def max_pool_indices(places: Any, like: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    rest = e.astype(places, np.dtype(np.int64))
    index: Any = None
    unit = 1
    for axis in reversed(range(len(kernel))):
        place, rest = rest % kernel[axis], rest // kernel[axis]
        start = counting("max_pool", places.shape[2 + axis]) * stride[axis] - padding[axis][0]
        start = start.reshape(-1, *(1,) * (len(kernel) - 1 - axis))
        part = (constant(places, start) + place * dilation[axis]) * unit
        index = part if index is None else index + part
        unit *= like.shape[2 + axis]
    return index


@decomposition("avg_pool")
def avg_pool(x: Any, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, include: bool, divisor: Any) -> Any:
    """Handles windows that end beyond the padding, and other divisors."""
    ones = (1,) * len(kernel)
    sizes = out_sizes("avg_pool", x, kernel, stride, padding, ones, ceil_mode)
    extra = _extra(tuple(x.shape[2:]), kernel, stride, padding, ones, sizes)
    usual = x.dtype == dtypes.float32 and divisor is None and not any(extra)
    if usual or prod(kernel) > MAX_WINDOW or x.dtype.itemsize == 2 or dtypes.is_complex(x.dtype):
        return NotImplemented
    total: Any = None
    for value in _views(x, kernel, stride, padding, ones, sizes, 0):
        total = value if total is None else total + value
    return total * _share(x, kernel, stride, padding, sizes, include, divisor)


def _share(
    like: Any, kernel: Any, stride: Any, padding: Any, sizes: Any, include: bool, divisor: Any, spatial: Any = None
) -> Any:
    check_memory("avg_pool", tuple(sizes), like.dtype)
    share = np.asarray(_shares(spatial or like.shape[2:], kernel, stride, padding, sizes, include, divisor))
    share = np.broadcast_to(share[..., 0] if share.ndim else share, sizes)
    return constant(like, np.ascontiguousarray(share[None, None], like.dtype))


@decomposition("avg_pool_backward")
def avg_pool_backward(
    g: Any, like: Any, size: Any, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, include: bool, divisor: Any
) -> Any:
    spatial = tuple(like.shape[2:] if size is None else size)
    ones = (1,) * len(kernel)
    sizes = tuple(g.shape[2:])
    extra = _extra(spatial, kernel, stride, padding, ones, sizes)
    if (
        any(extra)
        or g.dtype == dtypes.float32
        and divisor is None
        or g.dtype.itemsize == 2
        or dtypes.is_complex(g.dtype)
    ):
        return NotImplemented
    scaled = g * _share(g, kernel, stride, padding, sizes, include, divisor, spatial)
    n, c, count = g.shape[0], g.shape[1], prod(kernel)
    columns = shaping.broadcast_to(shaping.reshape(scaled, (n, c, 1, -1)), (n, c, count, prod(sizes)))
    columns = shaping.reshape(columns, (n, c * count, prod(sizes)))
    return unfold_backward(columns, None, spatial, kernel, ones, padding, stride)
