"""Primitive pooling ops over one to three spatial axes; `weft.ops.nn.pool.functions` has the public functions.

Max pooling also returns the position of each maximum in its window (`offsets`, row-major over the kernel).
`max_pool_backward` scatters gradients to these positions and `max_pool_select` gathers from them; each is the other's
gradient. Average pooling and `avg_pool_backward` are transposes of each other too.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .... import dtypes
from ....errors import format_shape
from ....runtime import memory
from ....tensor import Tensor
from ...array.shaping import broadcast_to, reshape
from ...core.define import primitive
from ...core.registry import NOT_DIFFERENTIABLE
from ...core.samples import Sample
from ...core.spec import Spec, same_size
from ..window import Sizes, Window, check_window
from ..window_arrays import (
    channels_last,
    compute_dtype,
    offsets,
    padded_last,
    sized_gradient,
    spatial_size,
    unpadded,
    windows,
)


def offsets_dtype(window: Window) -> np.dtype:
    """The dtype of offsets into a window, that of oneDNN's workspace."""
    return np.dtype(np.uint8) if window.positions <= 255 else np.dtype(np.int32)


def fold_batch(op: Any) -> Any:
    """A batching rule for ops all of whose tensors start with N: fold the new axis into it. A `like` becomes a size."""

    def rule(axes: Any, tensors: Any, attrs: Any) -> Any:
        size = next(t.shape[0] for t, a in zip(tensors, axes, strict=True) if a is not None)
        folded = []
        for t, a in zip(tensors, axes, strict=True):
            if t is not None and a is None:
                t = broadcast_to(t, (size, *t.shape))
            folded.append(t if t is None else reshape(t, (t.shape[0] * t.shape[1], *t.shape[2:])))
        function = op()
        results = function(*function.op.merge(folded, attrs))
        unfold = [
            reshape(r, (size, r.shape[0] // size if size else 0, *r.shape[1:]))
            for r in (results if isinstance(results, tuple) else (results,))
        ]
        return tuple(unfold) if isinstance(results, tuple) else unfold[0]

    return rule


def _checked_window(op: str, x: Any, window: Any) -> str:
    """The public name of the op; raises for inputs that cannot be pooled with this window."""
    check_window(op, window, None if x.shape is None else max(len(x.shape) - 2, 0))
    return f"{op}{window.axes}d"


def _infer_gradient(op: str, g: Any, like: Any, size: Any, window: Any) -> Spec:
    """The result of a backward op; raises unless `g` has the shape of the pooled tensor."""
    check_window(op, window)
    spatial = spatial_size(like, size)
    if g.shape is None:
        return Spec((None, None, *spatial), g.dtype)
    expected = window.out_sizes(op, spatial)
    if len(g.shape) != len(expected) + 2 or not all(map(same_size, g.shape[2:], expected)):
        raise ValueError(
            f"{op}: g does not have the shape of the pooled tensor. Got {format_shape(g.shape)}; "
            f"expected spatial size {format_shape(expected)}."
        )
    return Spec((*g.shape[:2], *spatial), g.dtype)


# Max pooling ---------------------------------------------------------------------------------------------------------


def _infer_max(x: Any, window: Any) -> tuple[Spec, Spec]:
    op = _checked_window("max_pool", x, window)
    if dtypes.is_complex(x.dtype) or dtypes.is_bool(x.dtype):
        raise TypeError(f"{op}: expected real numbers. Got {x.dtype.name}.")
    shape = None if x.shape is None else (*x.shape[:2], *window.out_sizes(op, x.shape[2:]))
    return Spec(shape, x.dtype), Spec(shape, offsets_dtype(window))


def _lowest(dtype: np.dtype) -> Any:
    return -np.inf if dtypes.is_floating(dtype) else np.iinfo(dtype).min


def _first_places(window: Window, out: Any) -> np.ndarray:
    """The first unpadded position of each window, the argmax of a window of only -inf."""
    total = np.zeros((1,) * window.axes, np.int64)
    fields = (window.kernel, window.stride, window.before, window.dilation)
    for axis, (k, t, low, d, n) in enumerate(zip(*fields, out, strict=True)):
        first = np.minimum(np.maximum(-((np.arange(n) * t - low) // d), 0), k - 1)
        shape = [1] * window.axes
        shape[axis] = n
        total = total * k + first.reshape(shape)
    return total


def _inputs(places: Any, window: Window) -> list[Any]:
    """The input coordinates, per spatial axis, that `places` point to."""
    return _coordinates(np.indices(places.shape)[2:], np.unravel_index(places.astype(np.int64), window.kernel), window)


def _coordinates(cells: Any, places: Any, window: Window) -> list[Any]:
    """The input coordinates of elements `places` of windows `cells`, per axis; negative ones are padding."""
    fields = (window.stride, window.dilation, window.before)
    return [o * s + j * d - p for o, j, s, d, p in zip(cells, places, *fields, strict=True)]


def _max_reference(x: Any, window: Window) -> Any:
    out = (*x.shape[:2], *window.out_sizes("max_pool", x.shape[2:]))
    y, places = np.empty(out), np.empty(out, np.int64)
    for cell in np.ndindex(*out):
        best, where = None, 0
        for i, k in enumerate(np.ndindex(*window.kernel)):
            at = _coordinates(cell[2:], k, window)
            if all(0 <= a < n for a, n in zip(at, x.shape[2:], strict=True)):
                v = x[(*cell[:2], *at)]
                if best is None or v > best or v != v and best == best:
                    best, where = v, i
        y[cell], places[cell] = best, where
    return y, places


_WINDOWS = [
    ((2, 3, 7), Window((3,), (2,), ((1, 1),), (1,))),
    ((2, 2, 5, 6), Window((2, 3), (2, 2), ((1, 1), (1, 1)), (1, 1))),
    ((2, 2, 6, 5), Window((3, 2), (2, 2), ((0, 0), (0, 0)), (1, 1), True)),
    ((1, 2, 7, 7), Window((2, 2), (1, 2), ((1, 0), (0, 1)), (2, 3))),
    ((1, 2, 4, 3, 4), Window((2, 2, 2), (2, 1, 2), ((0, 0), (1, 1), (0, 0)), (1, 1, 1))),
]
_HALVES = Window((2,), (2,), ((0, 0),), (1,))


@primitive(
    version=2,
    upgrade=lambda version, inputs, attrs: (Window(*attrs),),
    accumulate="exact",
    checks_once=True,
    outputs=2,
    infer=_infer_max,
    vjp=lambda g, out1, like_x, window: sized_gradient(max_pool_backward, (g[0], out1), like_x, (window,)),
    batch=fold_batch(lambda: max_pool),
    cost=lambda x, window: prod(_infer_max(x, window)[0].shape or ()) * window.positions,
    namespace="internal",
    reference=_max_reference,
    samples=lambda m: [Sample(m.distinct(*shape), window) for shape, window in _WINDOWS] + [
        Sample(m.normal(0, 2, 3), Window((2,), (1,), ((0, 0),), (1,))),
    ],
)  # fmt: skip
def max_pool(x: Tensor, window: Window) -> Any:
    """The largest value of every window, and where in its window it is. NaN is the largest of all."""
    sizes = window.out_sizes("max_pool", x.shape[2:])
    xp = padded_last(x, window, sizes, _lowest(x.dtype))
    shape = (x.shape[0], *sizes, x.shape[1])
    best = memory.empty(shape, xp.dtype)
    best.fill(_lowest(x.dtype))
    found = memory.empty(shape, offsets_dtype(window))
    found[...] = _first_places(window, sizes)[..., None]
    nan = dtypes.is_floating(x.dtype) and bool(np.isnan(xp).any())
    for i, (_, slices) in enumerate(offsets(window, sizes)):
        value = xp[(slice(None), *slices)]
        better = value > best
        if nan:
            better |= (value != value) & (best == best)
        np.copyto(best, value, where=better)
        np.copyto(found, i, where=better, casting="unsafe")
    return np.moveaxis(best.astype(x.dtype, copy=False), -1, 1), np.moveaxis(found, -1, 1)


def _places(m: Any, shape: Any, window: Window) -> np.ndarray:
    """The positions of the maxima of an image."""
    places: np.ndarray = _max_reference(m.distinct(*shape), window)[1].astype(offsets_dtype(window))
    return places


def _put_reference(g: Any, places: Any, like: Any, size: Any, window: Window) -> np.ndarray:
    x = np.zeros((*g.shape[:2], *spatial_size(like, size)))
    np.add.at(x, (*np.indices(g.shape)[:2], *_inputs(places, window)), g)
    return x


@primitive(
    version=2,
    upgrade=lambda version, inputs, attrs: (attrs[0], Window(*attrs[1:])),
    checks_once=True,
    infer=lambda g, places, *rest: _infer_gradient("max_pool_backward", g, *rest),
    vjp=(lambda g, places, window: max_pool_select(g, places, window), None, None),
    batch=fold_batch(lambda: max_pool_backward),
    cost=lambda g, *rest: prod(g.shape),
    namespace="internal",
    reference=_put_reference,
    samples=lambda m: [
        Sample(_places(m, s, w) * 0.1, _places(m, s, w), None, s[2:], w) for s, w in _WINDOWS
    ] + [Sample(m.normal(1, 1, 2), np.array([[[1, 0]]], np.uint8), m.normal(1, 1, 4), None, _HALVES)],
    test={"differentiable_inputs": (0,)},
)  # fmt: skip
def max_pool_backward(g: Tensor, places: Tensor, like: Tensor | None, size: Sizes | None, window: Window) -> Any:
    """The gradient of `max_pool` in x: scatter-add of `g` to the positions of the maxima."""
    spatial, sizes = spatial_size(like, size), g.shape[2:]
    rows, where = channels_last(g), np.moveaxis(places, 1, -1)  # type: ignore[type-var]
    xp = memory.zeros((g.shape[0], *window.padded_sizes(spatial, sizes), g.shape[1]), rows.dtype)
    for i, (_, slices) in enumerate(offsets(window, sizes)):
        xp[(slice(None), *slices)] += np.where(where == i, rows, 0)
    return unpadded(xp, window, spatial, g.dtype)


def _infer_select(x: Any, places: Any, window: Any) -> Spec:
    op = _checked_window("max_pool", x, window)
    if x.shape is not None:
        window.out_sizes(op, x.shape[2:])
    return Spec(places.shape, x.dtype)


def _select_reference(x: Any, places: Any, window: Window) -> np.ndarray:
    return x[(*np.indices(places.shape)[:2], *_inputs(places, window))]


@primitive(
    version=2,
    upgrade=lambda version, inputs, attrs: (Window(*attrs),),
    accumulate="exact",
    checks_once=True,
    cost="gather",
    infer=_infer_select,
    vjp=(lambda g, places, like_x, window: sized_gradient(max_pool_backward, (g, places), like_x, (window,)), None),
    batch=fold_batch(lambda: max_pool_select),
    namespace="internal",
    reference=_select_reference,
    samples=lambda m: [Sample(m.normal(*s), _places(m, s, w), w) for s, w in _WINDOWS],
)
def max_pool_select(x: Tensor, places: Tensor, window: Window) -> Any:
    """Gather `x` at the positions found by `max_pool`: the transpose of `max_pool_backward`."""
    sizes = places.shape[2:]
    xp, where = padded_last(x, window, sizes), np.moveaxis(places, 1, -1)  # type: ignore[type-var]
    out = memory.zeros((x.shape[0], *sizes, x.shape[1]), xp.dtype)
    for i, (_, slices) in enumerate(offsets(window, sizes)):
        np.copyto(out, xp[(slice(None), *slices)], where=where == i)
    return np.moveaxis(out.astype(x.dtype, copy=False), -1, 1)


def _infer_indices(places: Any, like: Any, window: Any) -> Spec:
    check_window("max_pool_indices", window, None if places.shape is None else max(len(places.shape) - 2, 0))
    return Spec(places.shape, dtypes.int64)


def _index_reference(places: Any, like: Any, window: Window) -> np.ndarray:
    return np.ravel_multi_index(_inputs(places, window), like.shape[2:])


@primitive(
    version=2,
    upgrade=lambda version, inputs, attrs: (Window(*attrs),),
    accumulate="exact",
    checks_once=True,
    cost="each",
    infer=_infer_indices,
    vjp=NOT_DIFFERENTIABLE,
    batch=fold_batch(lambda: max_pool_indices),
    namespace="internal",
    reference=_index_reference,
    samples=lambda m: [Sample(_places(m, s, w), m.normal(*s), w) for s, w in _WINDOWS],
)
def max_pool_indices(places: Tensor, like: Tensor, window: Window) -> Any:
    """The positions found by `max_pool` as indices into the flattened spatial axes of its input, `like`."""
    rest: Any = places.astype(np.int64)
    index = np.zeros(places.shape, np.int64)
    unit = 1
    for axis in reversed(range(window.axes)):
        rest, place = np.divmod(rest, window.kernel[axis])
        start = np.arange(places.shape[2 + axis]) * window.stride[axis] - window.before[axis]
        index += (start.reshape(-1, *(1,) * (window.axes - 1 - axis)) + place * window.dilation[axis]) * unit
        unit *= like.shape[2 + axis]
    return index


# Average pooling -----------------------------------------------------------------------------------------------------


def _check_average(op: str, window: Any) -> None:
    check_window(op, window)
    if window.dilated:
        raise ValueError(f"{op}: the windows of average pooling are not dilated. Got {window}.")


def _infer_avg(x: Any, window: Any, include: bool, divisor: Any) -> Spec:
    op = _checked_window("avg_pool", x, window)
    _check_average(op, window)
    if not dtypes.is_inexact(x.dtype):
        raise TypeError(f"{op}: expected a floating tensor. Got {x.dtype.name}; use `x.astype(wf.float32)`.")
    if x.shape is None:
        return Spec(None, x.dtype)
    return Spec((*x.shape[:2], *window.out_sizes(op, x.shape[2:])), x.dtype)


def _infer_spread(g: Any, like: Any, size: Any, window: Any, include: bool, divisor: Any) -> Spec:
    _check_average("avg_pool_backward", window)
    return _infer_gradient("avg_pool_backward", g, like, size, window)


def _shares(size: Any, window: Window, out: Any, include: bool, divisor: Any) -> np.ndarray:
    """One over the number of elements that each window counts, (*out, 1)."""
    if divisor is not None:
        return np.full((1,) * (len(out) + 1), 1.0 / divisor)
    counts = np.ones((1,) * len(out))
    fields = (window.kernel, window.stride, window.padding)
    for axis, (s, k, t, (lo, hi), n) in enumerate(zip(size, *fields, out, strict=True)):
        start = np.arange(n) * t - lo
        low, high = (-lo, s + hi) if include else (0, s)
        count = np.minimum(start + k, high) - np.maximum(start, low)
        counts = counts * count.reshape([-1 if i == axis else 1 for i in range(len(out))])
    return (1.0 / counts)[..., None]


def _avg_places(size: Any, window: Window, out: Any, include: bool, divisor: Any) -> Any:
    """All (output place, input place, share) that average pooling connects."""
    ends = [n + (high if include else 0) for n, (_, high) in zip(size, window.padding, strict=True)]
    for o in np.ndindex(*out):
        start = _coordinates(o, (0,) * window.axes, window)
        inside = [(max(b, 0), min(b + k, n)) for b, k, n in zip(start, window.kernel, size, strict=True)]
        counted = inside
        if include:
            counted = [(b, min(b + k, end)) for b, k, end in zip(start, window.kernel, ends, strict=True)]
        share = 1 / (divisor or np.prod([b - a for a, b in counted]))
        for i in np.ndindex(*[b - a for a, b in inside]):
            yield o, tuple(a + j for (a, _), j in zip(inside, i, strict=True)), share


def _avg_reference(x: Any, window: Window, include: bool, divisor: Any) -> np.ndarray:
    y = np.zeros((*x.shape[:2], *window.out_sizes("avg_pool", x.shape[2:])))
    for o, i, share in _avg_places(x.shape[2:], window, y.shape[2:], include, divisor):
        y[(slice(None), slice(None), *o)] += x[(slice(None), slice(None), *i)] * share
    return y


def _average(kernel: Any, stride: Any, padding: Any, ceil_mode: bool = False) -> Window:
    return Window(kernel, stride, padding, (1,) * len(kernel), ceil_mode)


def _upgrade_average(attrs: tuple[Any, ...]) -> tuple[Any, ...]:
    """From (kernel, stride, padding, ceil_mode, include, divisor), the attributes before version 2."""
    return (_average(*attrs[:4]), *attrs[4:])


_AVERAGES = [
    ((2, 3, 7), _average((3,), (2,), ((1, 1),)), True, None),
    ((2, 2, 5, 6), _average((2, 3), (2, 2), ((1, 1), (1, 1))), False, None),
    ((2, 2, 6, 5), _average((3, 2), (2, 2), ((1, 1), (1, 1)), True), True, None),
    ((2, 2, 6, 5), _average((3, 2), (2, 3), ((1, 1), (0, 0)), True), False, None),
    ((2, 2, 4, 4), _average((2, 2), (2, 2), ((0, 0), (0, 0))), True, 3),
    ((1, 2, 4, 3, 4), _average((2, 2, 2), (2, 1, 2), ((0, 0), (1, 1), (0, 0))), True, None),
    ((2, 2, 4, 4), _average((4, 4), (1, 1), ((0, 0), (0, 0))), True, None),
]


@primitive(
    version=2,
    upgrade=lambda version, inputs, attrs: _upgrade_average(attrs),
    checks_once=True,
    infer=_infer_avg,
    vjp=lambda g, like_x, window, include, divisor: sized_gradient(
        avg_pool_backward, (g,), like_x, (window, include, divisor)
    ),
    batch=fold_batch(lambda: avg_pool),
    cost=lambda x, window, *rest: prod(_infer_avg(x, window, *rest).shape or ()) * window.positions,
    namespace="internal",
    reference=_avg_reference,
    samples=lambda m: [Sample(m.normal(*shape), *attrs) for shape, *attrs in _AVERAGES],
)
def avg_pool(x: Tensor, window: Window, include: bool, divisor: int | None) -> Any:
    """The mean of each window. `include`: count padding as zeros; `divisor`: overrides the element count."""
    sizes = window.out_sizes("avg_pool", x.shape[2:])
    share = _shares(x.shape[2:], window, sizes, include, divisor)
    xp = padded_last(x, window, sizes)
    if prod(sizes) == 1:
        total = windows(xp, window, sizes).sum(tuple(range(1, 2 * window.axes + 1)))
        total = total.reshape(x.shape[0], *sizes, x.shape[1])
    else:
        total = memory.zeros((x.shape[0], *sizes, x.shape[1]), xp.dtype)
        for _, slices in offsets(window, sizes):
            total += xp[(slice(None), *slices)]
    total *= share.astype(dtypes.real_dtype(xp.dtype))
    return np.moveaxis(total.astype(x.dtype, copy=False), -1, 1)


def _spread_reference(g: Any, like: Any, size: Any, window: Window, include: bool, divisor: Any) -> np.ndarray:
    x = np.zeros((*g.shape[:2], *spatial_size(like, size)))
    for o, i, share in _avg_places(x.shape[2:], window, g.shape[2:], include, divisor):
        x[(slice(None), slice(None), *i)] += g[(slice(None), slice(None), *o)] * share
    return x


def _avg_shape(shape: Any, attrs: Any) -> Any:
    return _infer_avg(Spec(shape, np.dtype(np.float64)), *attrs).shape


@primitive(
    version=2,
    upgrade=lambda version, inputs, attrs: (attrs[0], *_upgrade_average(attrs[1:])),
    checks_once=True,
    infer=_infer_spread,
    vjp=(lambda g, window, include, divisor: avg_pool(g, window, include, divisor), None),
    batch=fold_batch(lambda: avg_pool_backward),
    cost=lambda g, like, size, window, *rest: prod(g.shape) * window.positions,
    namespace="internal",
    reference=_spread_reference,
    samples=lambda m: (
        [Sample(m.normal(*_avg_shape(s, attrs)), None, s[2:], *attrs) for s, *attrs in _AVERAGES]
        + [Sample(m.normal(1, 1, 2), m.normal(1, 1, 4), None, _HALVES, True, None)]
    ),
    test={"differentiable_inputs": (0,)},
)
def avg_pool_backward(
    g: Tensor, like: Tensor | None, size: Sizes | None, window: Window, include: bool, divisor: int | None
) -> Any:
    """The gradient of `avg_pool` in x: every element of `g` shared out over its window."""
    spatial, sizes = spatial_size(like, size), g.shape[2:]
    rows = channels_last(g)
    rows = rows * _shares(spatial, window, sizes, include, divisor).astype(dtypes.real_dtype(rows.dtype))
    xp = memory.zeros((g.shape[0], *window.padded_sizes(spatial, sizes), g.shape[1]), compute_dtype(g.dtype))
    for _, slices in offsets(window, sizes):
        xp[(slice(None), *slices)] += rows
    return unpadded(xp, window, spatial, g.dtype)
