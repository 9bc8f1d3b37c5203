"""Convolution on NumPy arrays: the kernels behind the ops of `weft.ops.nn.conv.convolution`, and the definition as
loops for their tests.

The kernels are matrix products with the copied windows, a few images at a time (im2col); depthwise convolution, whose
matrices would be tiny, is one elementwise product per kernel position.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ....runtime import memory
from ..window import Sizes, Window
from ..window_arrays import channels_last, compute_dtype, images_per_chunk, offsets, padded_last, unpadded, windows


def _matrices(weight: np.ndarray, groups: int) -> np.ndarray:
    """(O, C/G, *kernel) as G matrices (K·C/G, O/G), rows ordered like the windows."""
    out, per_group = weight.shape[:2]
    places = prod(weight.shape[2:])
    grouped = weight.reshape(groups, out // groups, per_group, places)
    ordered = np.ascontiguousarray(grouped.transpose(0, 3, 2, 1), compute_dtype(weight.dtype))
    return ordered.reshape(groups, places * per_group, out // groups)


def _columns(view: np.ndarray, spatial: int, groups: int) -> np.ndarray:
    """Windows (n, *out, *kernel, C) as (G, n·P, K·C/G)."""
    n, channels = view.shape[0], view.shape[-1]
    rows, places = n * prod(view.shape[1 : 1 + spatial]), prod(view.shape[1 + spatial : -1])
    if groups == 1:
        return view.reshape(1, rows, places * channels)
    split = view.reshape(rows, places, groups, channels // groups)
    return split.transpose(2, 0, 1, 3).reshape(groups, rows, places * (channels // groups))


def _rows(flat: np.ndarray, groups: int) -> np.ndarray:
    """(n, P, O) as (G, n·P, O/G); a view."""
    n, places, channels = flat.shape
    return flat.reshape(n * places, groups, channels // groups).transpose(1, 0, 2)


def forward(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, window: Window, groups: int) -> np.ndarray:
    kernel = window.kernel
    sizes = window.counts(x.shape[2:])
    shape = (x.shape[0], weight.shape[0], *sizes)
    dtype = compute_dtype(x.dtype)
    out = memory.empty((shape[0], *sizes, shape[1]), dtype)
    xp = padded_last(x, window, sizes)
    if weight.shape[1] == 1 and groups > 1:  # depthwise: one product per kernel position
        w = weight.astype(dtype, copy=False).reshape(groups, weight.shape[0] // groups, *kernel)
        deep = out.reshape(*out.shape[:-1], groups, shape[1] // groups)
        deep.fill(0)
        for place, slices in offsets(window, sizes):
            deep += xp[(slice(None), *slices, slice(None), None)] * w[(slice(None), slice(None), *place)]
    else:
        matrices = _matrices(weight, groups)
        view = windows(xp, window, sizes)
        flat = out.reshape(shape[0], prod(sizes), shape[1])
        step = images_per_chunk(view[:1].size * dtype.itemsize)
        for i in range(0, shape[0], step):
            columns = _columns(view[i : i + step], window.axes, groups)
            if groups == 1:
                np.matmul(columns[0], matrices[0], out=_rows(flat[i : i + step], 1)[0])
            else:
                _rows(flat[i : i + step], groups)[...] = np.matmul(columns, matrices)
    if bias is not None:
        out += bias
    result = np.moveaxis(out, -1, 1)
    return result if dtype == x.dtype else result.astype(x.dtype)


def backward_input(g: np.ndarray, weight: np.ndarray, size: Sizes, window: Window, groups: int) -> np.ndarray:
    kernel, sizes = window.kernel, g.shape[2:]
    channels = weight.shape[1] * groups
    dtype = compute_dtype(g.dtype)
    rows = channels_last(g)
    n = rows.shape[0]
    xp = memory.zeros((n, *window.padded_sizes(size, sizes), channels), dtype)
    if weight.shape[1] == 1 and groups > 1:
        w = weight.astype(dtype, copy=False).reshape(groups, weight.shape[0] // groups, *kernel)
        deep = rows.reshape(*rows.shape[:-1], groups, rows.shape[-1] // groups)
        for place, slices in offsets(window, sizes):
            xp[(slice(None), *slices)] += (deep * w[(slice(None), slice(None), *place)]).sum(-1)
    else:
        matrices = _matrices(weight, groups).transpose(0, 2, 1)
        flat = rows.reshape(n, prod(sizes), rows.shape[-1])
        grouped = xp.reshape(*xp.shape[:-1], groups, channels // groups)
        step = images_per_chunk(prod(sizes) * prod(kernel) * channels * dtype.itemsize)
        for i in range(0, n, step):
            columns = np.matmul(_rows(flat[i : i + step], groups), matrices)
            count = min(step, n - i)
            columns = columns.reshape(groups, count, *sizes, *kernel, channels // groups)
            columns = np.moveaxis(columns, 0, -2)
            for place, slices in offsets(window, sizes):
                grouped[(slice(i, i + count), *slices)] += columns[(slice(None),) * (1 + len(sizes)) + place]
    return unpadded(xp, window, size, g.dtype)


def backward_weight(x: np.ndarray, g: np.ndarray, window: Window, groups: int) -> np.ndarray:
    n, channels, sizes, out = x.shape[0], x.shape[1], g.shape[2:], g.shape[1]
    kernel, dtype = window.kernel, compute_dtype(x.dtype)
    xp = padded_last(x, window, sizes)
    rows = channels_last(g)
    if channels == groups and groups > 1:
        deep = rows.reshape(n * prod(sizes), groups, out // groups)
        total = np.empty((groups, out // groups, *kernel), dtype)
        for place, slices in offsets(window, sizes):
            part = xp[(slice(None), *slices)].reshape(n * prod(sizes), groups)
            total[(slice(None), slice(None), *place)] = np.einsum("pg,pgm->gm", part, deep)
        return total.reshape(out, 1, *kernel).astype(x.dtype, copy=False)
    view = windows(xp, window, sizes)
    flat = rows.reshape(n, prod(sizes), out)
    total = np.zeros((groups, out // groups, prod(kernel) * (channels // groups)), dtype)
    step = images_per_chunk(view[:1].size * dtype.itemsize)
    for i in range(0, n, step):
        columns = _columns(view[i : i + step], len(kernel), groups)
        total += np.matmul(_rows(flat[i : i + step], groups).transpose(0, 2, 1), columns)
    split = total.reshape(groups, out // groups, prod(kernel), channels // groups).transpose(0, 1, 3, 2)
    return np.ascontiguousarray(split, x.dtype).reshape(out, channels // groups, *kernel)


# References for the tests: the definition, as loops ------------------------------------------------------------------


def _places(window: Window, out: Any, size: Any) -> Any:
    """All (output place, kernel place, input place) that a convolution connects."""
    steps = (window.stride, window.dilation, window.before)
    for o in np.ndindex(*out):
        for k in np.ndindex(*window.kernel):
            i = tuple(a * s + b * d - p for a, b, s, d, p in zip(o, k, *steps, strict=True))
            if all(0 <= a < n for a, n in zip(i, size, strict=True)):
                yield o, k, i


def reference(x: Any, weight: Any, bias: Any, window: Window, groups: int) -> np.ndarray:
    fields = (window.padding, window.dilation, window.kernel, window.stride)
    out = [(n + sum(p) - d * (k - 1) - 1) // s + 1 for n, p, d, k, s in zip(x.shape[2:], *fields, strict=True)]
    y = np.zeros((x.shape[0], weight.shape[0], *out), np.result_type(x, weight))
    c, m = weight.shape[1], weight.shape[0] // groups
    for o, k, i in _places(window, out, x.shape[2:]):
        for q in range(groups):
            left = x[(slice(None), slice(q * c, (q + 1) * c), *i)]
            right = weight[(slice(q * m, (q + 1) * m), slice(None), *k)]
            y[(slice(None), slice(q * m, (q + 1) * m), *o)] += left @ right.T
    return y if bias is None else y + bias.reshape(-1, *[1] * len(out))


def reference_input(g: Any, weight: Any, like: Any, size: Any, window: Window, groups: int) -> np.ndarray:
    size = like.shape[2:] if size is None else size
    c, m = weight.shape[1], weight.shape[0] // groups
    x = np.zeros((g.shape[0], c * groups, *size), np.result_type(g, weight))
    for o, k, i in _places(window, g.shape[2:], size):
        for q in range(groups):
            left = g[(slice(None), slice(q * m, (q + 1) * m), *o)]
            right = weight[(slice(q * m, (q + 1) * m), slice(None), *k)]
            x[(slice(None), slice(q * c, (q + 1) * c), *i)] += left @ right
    return x


def reference_weight(x: Any, g: Any, window: Window, groups: int) -> np.ndarray:
    c, m = x.shape[1] // groups, g.shape[1] // groups
    w = np.zeros((g.shape[1], c, *window.kernel), np.result_type(x, g))
    for o, k, i in _places(window, g.shape[2:], x.shape[2:]):
        for q in range(groups):
            left = g[(slice(None), slice(q * m, (q + 1) * m), *o)]
            right = x[(slice(None), slice(q * c, (q + 1) * c), *i)]
            w[(slice(q * m, (q + 1) * m), slice(None), *k)] += left.T @ right
    return w
