"""Resizing along spatial axes: nearest, linear, cubic and area (adaptive average) resampling.

All of them are linear and separable: along one axis, output element o is a weighted sum of a few input elements
(`_taps`). `resample` does one axis; `resample_backward` is its transpose and its gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...runtime import memory
from ...tensor import Tensor
from ...typing import ShapeLike
from ..array.shaping import as_tensor
from ..core.define import composite, primitive
from ..core.samples import Bad, Sample
from ..core.slow_path import check_memory
from ..core.spec import Spec, check_size, is_known, require_sizes

KINDS = ("nearest", "nearest-exact", "linear", "cubic", "area")


@lru_cache(512)
def _taps(size: int, out: int, kind: str, align: bool, scale: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Indices and weights, (T, out), of the input elements of each output element; indices ascend along out."""
    check_memory("interpolate", (out,), dtypes.float64, 12 * 8 * out)  # the cubic kind has the most arrays
    o = np.arange(out)
    if kind == "area":  # the mean over [floor(o·size/out), ceil((o+1)·size/out))
        start, stop = o * size // out, -((o + 1) * size // -out)
        index = start + np.arange(max(1, (stop - start).max(initial=1)))[:, None]
        weight = np.where(index < stop, 1.0 / np.maximum(stop - start, 1), 0.0)
        return np.minimum(index, size - 1), weight
    if align:
        ratio = (size - 1) / (out - 1) if out > 1 else 0.0
        place = o * ratio
    else:
        ratio = size / out if scale is None else 1.0 / scale
        place = (o + 0.5) * ratio - 0.5
    if kind == "nearest":
        return np.minimum((o * ratio).astype(np.int64), size - 1)[None], np.ones((1, out))
    if kind == "nearest-exact":
        return np.clip(np.floor((o + 0.5) * ratio).astype(np.int64), 0, size - 1)[None], np.ones((1, out))
    if kind == "linear":
        place = np.maximum(place, 0.0)
        low = np.minimum(place.astype(np.int64), size - 1)
        part = np.clip(place - low, 0.0, 1.0)
        return np.stack([low, np.minimum(low + 1, size - 1)]), np.stack([1 - part, part])
    low = np.floor(place).astype(np.int64)
    part = place - low
    distance = np.stack([part + 1, part, 1 - part, 2 - part])
    a = -0.75  # Keys' cubic, with PyTorch's constant
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.clip(low + np.arange(-1, 3)[:, None], 0, size - 1), np.where(distance <= 1, near, far)


def _out_size(size: Any, out: int | None, scale: float | None) -> Any:
    if out is not None:
        return out
    return int(math.floor(size * scale)) if isinstance(size, (int, np.integer)) else None  # type: ignore[operator]


def _work_dtype(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float32) if dtype.itemsize == 2 and dtypes.is_floating(dtype) else dtype


def _inner_last(x: np.ndarray, axis: int) -> tuple[np.ndarray, Any]:
    """`x` as a contiguous (outer, size, inner) array around `axis`, channels innermost if it is an image; and its inverse.

    The inverse takes an array (outer, any size, inner) back to the axis order of `x`.
    """
    image = 3 <= x.ndim <= 5 and axis >= 2
    moved = np.ascontiguousarray(np.moveaxis(x, 1, -1) if image else x, _work_dtype(x.dtype))
    place = axis - 1 if image else axis
    lead, tail = moved.shape[:place], moved.shape[place + 1 :]

    def back(y: np.ndarray) -> np.ndarray:
        y = y.reshape(*lead, y.shape[1], *tail).astype(x.dtype, copy=False)
        return np.moveaxis(y, -1, 1) if image else y

    return moved.reshape(prod(lead), moved.shape[place], prod(tail)), back


_BLOCK = 1 << 18  # elements per block: stays in cache


def _gather(x: np.ndarray, index: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """out[:, o] = Σ over taps t of weight[t, o] · x[:, index[t, o]]."""
    outer, _, inner = x.shape
    size = index.shape[1]
    out = memory.empty((outer, size, inner), x.dtype)
    if len(index) == 1:
        return np.take(x, index[0], 1, out=out, mode="clip")
    factors = weight.astype(dtypes.real_dtype(x.dtype))[..., None]
    rows = max(1, _BLOCK // max(inner, 1))
    step, many = (size, max(1, rows // size)) if rows >= size else (rows, 1)
    spare = np.empty((many, step, inner), x.dtype)
    for i in range(0, outer, many):
        for o in range(0, size, step):
            target = out[i : i + many, o : o + step]
            part = spare[: target.shape[0], : target.shape[1]]
            for t in range(len(index)):
                chosen = np.take(x[i : i + many], index[t, o : o + step], 1)
                if t == 0:
                    np.multiply(chosen, factors[t, o : o + step], out=target)
                else:
                    np.multiply(chosen, factors[t, o : o + step], out=part)
                    target += part
    return out


def _scatter(g: np.ndarray, index: np.ndarray, weight: np.ndarray, size: int) -> np.ndarray:
    """The transpose of `_gather`: out[:, index[t, o]] += weight[t, o] · g[:, o]."""
    outer, count, inner = g.shape
    out = memory.zeros((outer, size, inner), g.dtype)
    factors = weight.astype(dtypes.real_dtype(g.dtype))
    for t in range(len(index)):
        if outer * inner >= 256:  # one slice at a time: enough work per slice to amortise the call
            for o in range(count):
                if factors[t, o] == 1:
                    out[:, index[t, o]] += g[:, o]
                elif factors[t, o]:
                    out[:, index[t, o]] += g[:, o] * factors[t, o]
            continue
        # Indices are sorted along the axis, so equal ones are adjacent and a segmented sum works.
        starts = np.flatnonzero(np.diff(index[t], prepend=-1))
        out[:, index[t][starts]] += np.add.reduceat(g * factors[t][:, None], starts, 1)
    return out


def _infer(x: Any, axis: int, size: Any, kind: str, align: bool, scale: Any) -> Spec:
    if kind not in KINDS:
        raise ValueError(f"resample: kind must be one of {', '.join(KINDS)}. Got {kind!r}.")
    if kind not in ("nearest", "nearest-exact") and not dtypes.is_inexact(x.dtype):
        raise TypeError(f"interpolate: expected a floating tensor. Got {x.dtype.name}; use `x.astype(wf.float32)`.")
    if x.shape is None:
        return Spec(None, x.dtype)
    out = _out_size(x.shape[axis], size, scale)
    if x.shape[axis] == 0 or out is not None and out < 1:
        raise ValueError(
            f"interpolate: sizes must be at least 1. Got x of shape {format_shape(x.shape)} and an "
            f"output size of {out} along axis {axis}."
        )
    return Spec((*x.shape[:axis], out, *x.shape[axis + 1 :]), x.dtype)


def _matrix(size: int, out: int, kind: str, align: bool, scale: Any) -> np.ndarray:
    """The same map as a dense matrix (out, size), from the textbook formulas: for the tests."""
    m = np.zeros((out, size))
    for o in range(out):
        if kind == "area":
            start, stop = math.floor(o * size / out), math.ceil((o + 1) * size / out)
            m[o, start:stop] = 1 / (stop - start)
            continue
        ratio = size / out if scale is None else 1 / scale
        center = o * (size - 1) / (out - 1) if align and out > 1 else 0.0 if align else (o + 0.5) * ratio - 0.5
        if kind == "nearest":
            m[o, min(math.floor(o * ratio), size - 1)] += 1
        elif kind == "nearest-exact":
            m[o, min(math.floor((o + 0.5) * ratio), size - 1)] += 1
        elif kind == "linear":
            center = max(center, 0.0)
            for i in range(math.floor(center), math.floor(center) + 2):
                m[o, min(i, size - 1)] += max(0.0, 1 - abs(center - i))
        else:
            for i in range(math.floor(center) - 1, math.floor(center) + 3):
                t, a = abs(center - i), -0.75
                w = (a + 2) * t**3 - (a + 3) * t**2 + 1 if t <= 1 else a * (t**3 - 5 * t**2 + 8 * t - 4)
                m[o, min(max(i, 0), size - 1)] += w
    return m


def _reference(x: Any, axis: int, size: Any, kind: str, align: bool, scale: Any) -> np.ndarray:
    out = math.floor(x.shape[axis] * scale) if size is None else size
    return np.moveaxis(np.moveaxis(x, axis, -1) @ _matrix(x.shape[axis], out, kind, align, scale).T, -1, axis)


_CASES = [
    (2, 7, "nearest", False, None),
    (3, 3, "nearest", False, None),
    (2, 3, "nearest-exact", False, None),
    (2, 9, "linear", False, None),
    (3, 3, "linear", True, None),
    (2, None, "linear", False, 1.7),
    (3, 7, "cubic", False, None),
    (2, 3, "cubic", True, None),
    (2, 3, "area", False, None),
    (3, 9, "area", False, None),
]


@primitive(
    checks_once=True,
    cost="interpolate",
    infer=_infer,
    vjp=lambda g, like_x, axis, size, kind, align, scale: _gradient(g, like_x, axis, size, kind, align, scale),
    batch=lambda axes, tensors, attrs: resample(tensors[0], attrs[0] + 1, *attrs[1:]),
    namespace="internal",
    reference=_reference,
    samples=lambda m: [Sample(m.normal(2, 3, 5, 4), *case) for case in _CASES],
    errors=lambda m: [
        Bad(ValueError, "resample: kind must be one of", m.normal(2, 3, 4), 2, 3, "lanczos", False, None)
    ],
)
def resample(x: Tensor, axis: int, size: int | None, kind: str, align: bool, scale: float | None) -> Any:
    """`x` resized along one axis to `size` elements, or to its size times `scale`."""
    index, weight = _taps(x.shape[axis], _out_size(x.shape[axis], size, scale), kind, align, scale)
    values, back = _inner_last(x, axis)  # type: ignore[arg-type]
    return back(_gather(values, index, weight))


def _gradient(g: Tensor, like: Any, axis: int, size: Any, kind: str, align: bool, scale: Any) -> Tensor:
    if is_known(like.shape[axis : axis + 1]):
        return resample_backward(g, None, like.shape[axis], axis, size, kind, align, scale)
    return resample_backward(g, as_tensor(like), None, axis, size, kind, align, scale)


def _infer_backward(g: Any, like: Any, in_size: Any, axis: int, size: Any, kind: str, align: bool, scale: Any) -> Spec:
    if g.shape is None:
        return Spec(None, g.dtype)
    return Spec((*g.shape[:axis], like.shape[axis] if in_size is None else in_size, *g.shape[axis + 1 :]), g.dtype)


def _backward_reference(
    g: Any, like: Any, in_size: Any, axis: int, size: Any, kind: str, align: bool, scale: Any
) -> np.ndarray:
    n = like.shape[axis] if in_size is None else in_size
    return np.moveaxis(np.moveaxis(g, axis, -1) @ _matrix(n, g.shape[axis], kind, align, scale), -1, axis)


def _batch_backward(axes: Any, tensors: Any, attrs: Any) -> Tensor:
    g, like = tensors
    in_size, axis, *rest = attrs
    if in_size is None:
        in_size = like.shape[axis + (axes[1] is not None)]
    return resample_backward(g, None, in_size, axis + 1, *rest)


@primitive(
    checks_once=True,
    cost="interpolate",
    infer=_infer_backward,
    vjp=(lambda g, axis, size, kind, align, scale: resample(g, axis, size, kind, align, scale), None),
    batch=_batch_backward,
    namespace="internal",
    reference=_backward_reference,
    samples=lambda m: [
        Sample(
            m.normal(*[3, 4, 6, 5][:axis], out or 6, *[3, 4, 6, 5][axis + 1 :]),
            None,
            [3, 4, 4, 5][axis],
            axis,
            out,
            *rest,
        )
        for axis, out, *rest in _CASES
    ],
    test={"differentiable_inputs": (0,)},
)
def resample_backward(
    g: Tensor, like: Tensor | None, in_size: int | None,
    axis: int, size: int | None, kind: str, align: bool, scale: float | None,
) -> Any:  # fmt: skip
    """The gradient of `resample`: back to `in_size` elements along `axis`, or as many as `like` has."""
    n = like.shape[axis] if in_size is None else in_size  # type: ignore[union-attr]
    index, weight = _taps(n, g.shape[axis], kind, align, scale)
    values, back = _inner_last(g, axis)  # type: ignore[arg-type]
    return back(_scatter(values, index, weight, n))


# Public functions ----------------------------------------------------------------------------------------------------

MODES = {"nearest": None, "nearest-exact": None, "linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2, "area": None}


def _per_axis(name: str, value: Any, count: int) -> tuple[Any, ...]:
    items = tuple(value) if isinstance(value, (tuple, list)) else (value,) * count
    if len(items) != count:
        raise ValueError(
            f"interpolate: {name} must be a number or {count} numbers, one per spatial axis. Got {value!r}."
        )
    return items


def _interpolate_reference(
    x: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None,
    recompute_scale_factor: Any = None,
) -> np.ndarray:  # fmt: skip
    kind = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    for i in range(x.ndim - 2):
        s = None if size is None else size if isinstance(size, int) else size[i]
        f = (
            None
            if scale_factor is None
            else scale_factor
            if isinstance(scale_factor, (int, float))
            else scale_factor[i]
        )
        n = x.shape[2 + i]
        out = math.floor(n * f) if s is None else s
        f = None if recompute_scale_factor or mode == "area" else f
        x = np.moveaxis(np.moveaxis(x, 2 + i, -1) @ _matrix(n, out, kind, bool(align_corners), f).T, -1, 2 + i)
    return x


@composite(
    accumulate="float32",
    namespace="nn",
    reference=_interpolate_reference,
    samples=lambda m: [
        Sample(m.normal(2, 3, 4), 7),
        Sample(m.normal(2, 3, 4, 5), scale_factor=2),
        Sample(m.normal(2, 3, 4, 5), scale_factor=(0.5, 1.5), mode="nearest-exact"),
        Sample(m.normal(2, 3, 4, 5), (7, 3), mode="bilinear"),
        Sample(m.normal(2, 3, 4, 5), scale_factor=1.7, mode="bilinear", align_corners=True),
        Sample(m.normal(2, 3, 4, 5), scale_factor=1.7, mode="bilinear", recompute_scale_factor=True),
        Sample(m.normal(1, 2, 3, 4), (5, 2), mode="bicubic"),
        Sample(m.normal(1, 2, 3, 4), (2, 3), mode="area"),
        Sample(m.normal(1, 2, 2, 3, 4), (3, 3, 3), mode="trilinear", align_corners=True),
        Sample(m.normal(2, 2, 5), 3, mode="linear"),
    ],
    errors=lambda m: [
        Bad(ValueError, "interpolate: mode must be one of", m.normal(1, 1, 3), 4, mode="sinc"),
        Bad(ValueError, "interpolate: mode 'bilinear' is for 4 axes", m.normal(1, 1, 3), 4, mode="bilinear"),
        Bad(ValueError, "interpolate: give either size or scale_factor", m.normal(1, 1, 3)),
        Bad(ValueError, "interpolate: give either size or scale_factor", m.normal(1, 1, 3), 4, 2.0),
        Bad(ValueError, "interpolate: size must be a number or 1 numbers", m.normal(1, 1, 3), (4, 4)),
        Bad(ValueError, "interpolate: size must be at least 1", m.normal(1, 1, 3), 0),
        Bad(ValueError, "interpolate: sizes must be at least 1", m.normal(1, 1, 3), scale_factor=0.1),
        Bad(ValueError, "interpolate: scale_factor must be a positive", m.normal(1, 1, 3), scale_factor=-1.0),
        Bad(ValueError, "interpolate: align_corners is for", m.normal(1, 1, 3), 4, align_corners=True),
        Bad(ValueError, "interpolate: expected x of shape", m.normal(3, 3), 4),
    ],
)
def interpolate(
    x: Tensor,
    size: ShapeLike | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
) -> Tensor:
    """`x` resized along its spatial axes.

    Args:
        x: (N, C, L), (N, C, H, W) or (N, C, D, H, W).
        size: the new spatial size, a number or one per axis; or
        scale_factor: factor on the sizes, a number or one per axis; sizes are rounded down.
        mode: "nearest", "nearest-exact", "linear" (3 axes), "bilinear" (4), "trilinear" (5), "bicubic" (4), "area".
        align_corners: whether the centres of the corner elements are mapped onto each other (else the corners are).
        recompute_scale_factor: whether positions follow from the rounded sizes instead of from `scale_factor`.

    >>> F.interpolate(wf.tensor([[[0.0, 1.0]]]), size=3, mode="linear", align_corners=True).tolist()
    [[[0.0, 0.5, 1.0]]]
    """
    if mode not in MODES:
        raise ValueError(f"interpolate: mode must be one of {', '.join(map(repr, MODES))}. Got {mode!r}.")
    n = x.ndim - 2
    if not 1 <= n <= 3:
        raise ValueError(
            f"interpolate: expected x of shape (batch, channels, *spatial) with 1 to 3 spatial axes. Got {format_shape(x.shape)}."
        )
    if MODES[mode] not in (None, n):
        names = {1: "linear", 2: "bilinear", 3: "trilinear"}
        raise ValueError(
            f"interpolate: mode {mode!r} is for {MODES[mode] + 2} axes. Got x of shape {format_shape(x.shape)}; "  # type: ignore[operator]
            f"use {names[n]!r}."
        )
    if (size is None) == (scale_factor is None):
        raise ValueError(
            f"interpolate: give either size or scale_factor. Got size={size!r} and scale_factor={scale_factor!r}."
        )
    if align_corners is not None and MODES[mode] is None and align_corners:
        raise ValueError(f"interpolate: align_corners is for the linear and cubic modes. Got mode {mode!r}.")
    kind = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    sizes: tuple[Any, ...] = (None,) * n
    scales: tuple[Any, ...] = (None,) * n
    if size is not None:
        sizes = tuple([check_size("interpolate", s, "size", 1) for s in _per_axis("size", size, n)])
    else:
        scales = tuple([_factor(f) for f in _per_axis("scale_factor", scale_factor, n)])
    for i in range(n):
        out, scale = sizes[i], scales[i]
        if scale is not None and (recompute_scale_factor or kind == "area"):
            require_sizes("interpolate", x)
            out, scale = _out_size(x.shape[2 + i], None, scale), None
        if out is not None and scale is None and out == x.shape[2 + i]:
            continue  # equal sizes: every mode is the identity
        x = resample(x, 2 + i, out, kind, bool(align_corners), scale)
    return x


def _factor(value: Any) -> float:
    try:
        if isinstance(value, (bool, str)):
            raise TypeError
        factor = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"interpolate: scale_factor must be a number. Got {value!r}.") from None
    if not 0 < factor < math.inf:
        raise ValueError(f"interpolate: scale_factor must be a positive, finite number. Got {value!r}.")
    return factor


@composite(
    accumulate="float32",
    namespace="nn",
    reference=_interpolate_reference,
    samples=lambda m: [Sample(m.normal(1, 2, 3, 4), scale_factor=2), Sample(m.normal(1, 2, 3), 5, mode="linear")],
)
def upsample(
    x: Tensor,
    size: ShapeLike | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """Another name of `interpolate`."""
    return interpolate(x, size, scale_factor, mode, align_corners)
