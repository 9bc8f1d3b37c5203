"""Sampling an image at arbitrary coordinates, and sampling grids of affine maps (spatial transformers)."""

from __future__ import annotations

import itertools
from math import prod
from typing import Any

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ...typing import ShapeLike
from ..array import elementwise
from ..array.elementwise import astype, clip, floor, where
from ..array.gathering import take_along_axis
from ..array.indexing import slice_axis
from ..array.products import matmul
from ..array.shaping import broadcast_to, matrix_transpose, reshape, squeeze
from ..core.define import composite, constant
from ..core.samples import Bad, Sample
from ..core.slow_path import check_memory
from ..core.spec import is_known, same_size

MODES = ("bilinear", "nearest")
PADDING_MODES = ("zeros", "border", "reflection")


def _reflect(place: Tensor, low: float, high: float) -> Tensor:
    """`place` mirrored at `low` and `high` until it lies between them."""
    span = high - low
    if span <= 0:
        return place * 0.0
    offset = (place - low) % (2 * span)
    return where(offset > span, 2 * span - offset, offset) + low


def _pixel(place: Tensor, size: int, padding_mode: str, align: bool) -> Tensor:
    """A coordinate in [-1, 1] as a (fractional) index into `size` elements."""
    place = where(place == place, place, -1.0)  # NaN maps to -1, the first pixel, as in PyTorch
    index = (place + 1) * ((size - 1) / 2) if align else (place + 1) * (size / 2) - 0.5
    if padding_mode == "border":
        return clip(index, 0.0, float(size - 1))
    if padding_mode == "reflection":
        index = _reflect(index, 0.0, size - 1.0) if align else _reflect(index, -0.5, size - 0.5)
        return clip(index, 0.0, float(size - 1))
    return clip(index, -2.0, size + 1.0)  # everything beyond is padding; bounds the integers


def _value(x: np.ndarray, n: int, index: Any) -> Any:
    inside = all(0 <= i < s for i, s in zip(index, x.shape[2:], strict=True))
    return x[(n, slice(None), *index)] if inside else np.zeros(x.shape[1])


def _reference_sample(
    x: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False
) -> np.ndarray:
    out = np.zeros((x.shape[0], x.shape[1], *grid.shape[1:-1]))
    for cell in np.ndindex(*grid.shape[:-1]):
        places = []
        for place, size in zip(grid[cell][::-1], x.shape[2:], strict=True):
            at = (place + 1) / 2 * (size - 1) if align_corners else ((place + 1) * size - 1) / 2
            if padding_mode == "border":
                at = min(max(at, 0), size - 1)
            elif padding_mode == "reflection":
                low, high = (0, size - 1) if align_corners else (-0.5, size - 0.5)
                while high > low and not low <= at <= high:
                    at = 2 * low - at if at < low else 2 * high - at
                at = min(max(at, 0), size - 1)
            places.append(at)
        if mode == "nearest":
            out[(cell[0], slice(None), *cell[1:])] = _value(x, cell[0], [int(np.rint(p)) for p in places])
            continue
        for corner in itertools.product((0, 1), repeat=len(places)):
            index = [int(np.floor(p)) + c for p, c in zip(places, corner, strict=True)]
            share = np.prod([1 - abs(p - i) for p, i in zip(places, index, strict=True)])
            out[(cell[0], slice(None), *cell[1:])] += share * _value(x, cell[0], index)
    return out


@composite(
    accumulate="float32",
    namespace="nn",
    reference=_reference_sample,
    samples=lambda m: [
        Sample(m.normal(2, 3, 4, 5), m.uniform(2, 3, 2, 2, low=-0.9, high=0.9)),
        Sample(m.normal(1, 2, 4, 5), m.uniform(1, 3, 3, 2, low=-1.7, high=1.7)),
        Sample(m.normal(1, 2, 4, 5), m.uniform(1, 3, 3, 2, low=-1.7, high=1.7), padding_mode="border", align_corners=True),
        Sample(m.normal(1, 2, 4, 5), m.uniform(1, 3, 3, 2, low=-2.7, high=2.7), padding_mode="reflection"),
        Sample(m.normal(1, 2, 4, 5), m.uniform(1, 3, 3, 2, low=-2.7, high=2.7), padding_mode="reflection", align_corners=True),
        Sample(m.normal(1, 2, 4, 5), m.uniform(1, 3, 3, 2, low=-1.3, high=1.3), "nearest"),
        Sample(m.normal(1, 2, 2, 3, 4), m.uniform(1, 2, 2, 2, 3)),
    ],
    errors=lambda m: [
        Bad(ValueError, "grid_sample: mode must be", m.normal(1, 1, 2, 2), m.normal(1, 2, 2, 2), "bicubic"),
        Bad(ValueError, "grid_sample: padding_mode must be", m.normal(1, 1, 2, 2), m.normal(1, 2, 2, 2), padding_mode="wrap"),
        Bad(ValueError, r"grid_sample: grid must be \(N, …, 2\)", m.normal(1, 1, 2, 2), m.normal(1, 2, 2, 3)),
        Bad(ValueError, "grid_sample: expected x of shape", m.normal(2, 2), m.normal(1, 2, 2, 2)),
    ],
)  # fmt: skip
def grid_sample(
    x: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False
) -> Tensor:
    """Sample `x` at the coordinates in `grid`.

    Args:
        x: (N, C, H, W) or (N, C, D, H, W), floating.
        grid: (N, H', W', 2) or (N, D', H', W', 3) of (x, y[, z]) in [-1, 1], from one side of the image to the other.
        mode: "bilinear" (between neighbours, in three axes too) or "nearest".
        padding_mode: values outside the image: "zeros", "border" (the nearest border) or "reflection".
        align_corners: whether -1 and 1 are the centres of the corner elements instead of their outer edges.

    Returns:
        (N, C, H', W') or (N, C, D', H', W').
    """
    n = x.ndim - 2
    if n not in (2, 3) or not is_known(x.shape[1:]) or 0 in x.shape[2:]:
        raise ValueError(
            f"grid_sample: expected x of shape (N, C, H, W) or (N, C, D, H, W), not empty. Got {format_shape(x.shape)}."
        )
    if mode not in MODES:
        raise ValueError(f"grid_sample: mode must be 'bilinear' or 'nearest'. Got {mode!r}.")
    if padding_mode not in PADDING_MODES:
        raise ValueError(f"grid_sample: padding_mode must be one of {', '.join(PADDING_MODES)}. Got {padding_mode!r}.")
    if grid.ndim != n + 2 or grid.shape[-1] != n or not same_size(grid.shape[0], x.shape[0]):
        raise ValueError(
            f"grid_sample: grid must be (N, …, {n}) with {n + 2} axes. Got {format_shape(grid.shape)} "
            f"for x of shape {format_shape(x.shape)}."
        )
    if not (dtypes.is_floating(x.dtype) and dtypes.is_floating(grid.dtype)):
        raise TypeError(f"grid_sample: expected floating tensors. Got {x.dtype.name} and {grid.dtype.name}.")
    sizes = x.shape[2:]
    count, channels = x.shape[:2]
    flat = reshape(x, (count, channels, prod(sizes)))
    # grid coordinates are ordered last axis first
    places = [
        _pixel(squeeze(slice_axis(grid, -1, n - 1 - i, n - i), -1), sizes[i], padding_mode, align_corners)
        for i in range(n)
    ]
    if mode == "nearest":
        y = _pick(flat, [elementwise.round(p) for p in places], sizes, None)
    else:
        y = None
        lows = [floor(p) for p in places]
        for corner in itertools.product((0, 1), repeat=n):
            share: Any = None
            for place, low, c in zip(places, lows, corner, strict=True):
                part = place - low if c else 1.0 - (place - low)
                share = part if share is None else share * part
            value = _pick(flat, [low + float(c) for low, c in zip(lows, corner, strict=True)], sizes, share)
            y = value if y is None else y + value
    return reshape(y, (count, channels, *grid.shape[1:-1]))


def _pick(flat: Tensor, places: list[Tensor], sizes: Any, share: Tensor | None) -> Tensor:
    """(N, C, points): the elements at whole-numbered `places`, zero outside, times `share`."""
    count, channels = flat.shape[:2]
    index: Any = None
    inside: Any = None
    for place, size in zip(places, sizes, strict=True):
        here = astype(clip(place, 0.0, float(size - 1)), dtypes.int64)
        index = here if index is None else index * size + here
        ok = (place >= 0.0) & (place <= float(size - 1))
        inside = ok if inside is None else inside & ok
    points = prod(index.shape[1:])
    gathered = take_along_axis(
        flat, broadcast_to(reshape(index, (count, 1, points)), (count, channels, points)), axis=2
    )
    weight = astype(inside, flat.dtype) if share is None else where(inside, astype(share, flat.dtype), 0.0)
    return gathered * reshape(weight, (count, 1, points))


def _reference_grid(theta: Any, size: Any, align_corners: bool = False) -> np.ndarray:
    spatial = size[2:]
    out = np.empty((size[0], *spatial, len(spatial)))
    for cell in np.ndindex(*spatial):
        place = [
            (2 * i / (s - 1) - 1 if s > 1 else 0.0) if align_corners else (2 * i + 1) / s - 1
            for i, s in zip(cell, spatial, strict=True)
        ]
        out[(slice(None), *cell)] = theta @ np.array([*place[::-1], 1.0])
    return out


@composite(
    accumulate="float32",
    namespace="nn",
    reference=_reference_grid,
    samples=lambda m: [
        Sample(m.normal(2, 2, 3), (2, 3, 4, 5)),
        Sample(m.normal(1, 2, 3), (1, 1, 3, 1), True),
        Sample(m.normal(1, 3, 4), (1, 2, 2, 3, 2)),
    ],
    errors=lambda m: [
        Bad(ValueError, r"affine_grid: theta must be \(N, 2, 3\)", m.normal(2, 3, 3), (2, 3, 4, 5)),
        Bad(ValueError, "affine_grid: size must be", m.normal(2, 2, 3), (2, 3)),
    ],
)
def affine_grid(theta: Tensor, size: ShapeLike, align_corners: bool = False) -> Tensor:
    """The grid for `grid_sample` of an affine map: (N, H, W, 2) from theta (N, 2, 3) and size (N, C, H, W).

    In three dimensions (N, D, H, W, 3) from theta (N, 3, 4) and size (N, C, D, H, W).

    >>> F.affine_grid(wf.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 4, 4)).shape
    (1, 4, 4, 2)
    """
    from ..core.spec import check_shape

    shape = check_shape("affine_grid", size, "size")
    n = len(shape) - 2
    if n not in (2, 3) or 0 in shape:
        raise ValueError(f"affine_grid: size must be (N, C, H, W) or (N, C, D, H, W), nothing empty. Got {size!r}.")
    if theta.ndim != 3 or tuple(theta.shape[1:]) != (n, n + 1) or not same_size(theta.shape[0], shape[0]):
        raise ValueError(
            f"affine_grid: theta must be (N, {n}, {n + 1}). Got {format_shape(theta.shape)}; N is {shape[0]}."
        )
    check_memory("affine_grid", (*shape[2:], n + 1), dtypes.float64, 8 * n * prod(shape[2:]))
    axes = []
    for s in shape[2:]:
        i = np.arange(s)
        axes.append((2 * i / (s - 1) - 1 if s > 1 else np.zeros(1)) if align_corners else (2 * i + 1) / s - 1)
    places = np.meshgrid(*axes, indexing="ij")[::-1]
    base = np.stack([*places, np.ones(shape[2:])], -1).reshape(-1, n + 1)
    grid = matmul(constant(base.astype(theta.dtype)), matrix_transpose(theta))
    return reshape(grid, (shape[0], *shape[2:], n))
