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
from ...array.shaping import as_tensor, broadcast_to, reshape
from ...core.define import primitive
from ...core.registry import NOT_DIFFERENTIABLE
from ...core.samples import Sample
from ...core.spec import Spec, is_known, same_size
from ..windows import Pairs, compute_dtype, offsets, out_sizes, padded_last, unpadded, windows

Sizes = tuple[int, ...]
_NO_PADDING: Any = {n: ((0, 0),) * n for n in (1, 2, 3)}


def offsets_dtype(kernel: Sizes) -> np.dtype:
    """The dtype of offsets into a kernel, that of oneDNN's workspace."""
    return np.dtype(np.uint8) if prod(kernel) <= 255 else np.dtype(np.int32)


def _extra(size: Any, kernel: Any, stride: Any, padding: Pairs, dilation: Any, out: Any) -> Sizes:
    """Extra padding that the last windows need in ceil mode."""
    return tuple(
        [
            max(0, (n - 1) * t + d * (k - 1) + 1 - (s + lo + hi))
            for s, k, t, (lo, hi), d, n in zip(size, kernel, stride, padding, dilation, out, strict=True)
        ]
    )


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


def _check_images(op: str, x: Any, kernel: Any) -> str:
    """The public name of the op; raises for inputs that cannot be pooled."""
    name = f"{op}{len(kernel)}d"
    if len(x.shape) != len(kernel) + 2:
        raise ValueError(f"{name}: expected x with {len(kernel) + 2} axes. Got {format_shape(x.shape)}.")
    return name


def _gradient(op: Any, g: Tensor, like: Any, between: tuple[Any, ...], window: tuple[Any, ...]) -> Tensor:
    """Call a backward op with the sizes of `like` if they are known, else with `like` itself."""
    if is_known(like.shape[2:]):
        return op(g, *between, None, tuple(like.shape[2:]), *window)
    return op(g, *between, as_tensor(like), None, *window)


def _check_out(op: str, g: Any, expected: Any) -> None:
    if g.shape is not None and not all(same_size(a, b) for a, b in zip(g.shape[2:], expected, strict=True)):
        raise ValueError(
            f"{op}: g does not have the shape of the pooled tensor. Got {format_shape(g.shape)}; "
            f"expected spatial size {format_shape(expected)}."
        )


# Max pooling ---------------------------------------------------------------------------------------------------------


def _infer_max(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> tuple[Spec, Spec]:
    if dtypes.is_complex(x.dtype) or dtypes.is_bool(x.dtype):
        raise TypeError(f"max_pool{len(kernel)}d: expected real numbers. Got {x.dtype.name}.")
    if x.shape is None:
        return Spec(None, x.dtype), Spec(None, offsets_dtype(kernel))
    op = _check_images("max_pool", x, kernel)
    shape = (*x.shape[:2], *out_sizes(op, x, kernel, stride, padding, dilation, ceil_mode))
    return Spec(shape, x.dtype), Spec(shape, offsets_dtype(kernel))


def _lowest(dtype: np.dtype) -> Any:
    return -np.inf if dtypes.is_floating(dtype) else np.iinfo(dtype).min


def _first_places(kernel: Any, stride: Any, padding: Pairs, dilation: Any, out: Any) -> np.ndarray:
    """The first unpadded position of each window, the argmax of a window of only -inf."""
    total = np.zeros((1,) * len(kernel), np.int64)
    for axis, (k, t, (lo, _), d, n) in enumerate(zip(kernel, stride, padding, dilation, out, strict=True)):
        first = np.minimum(np.maximum(-((np.arange(n) * t - lo) // d), 0), k - 1)
        shape = [1] * len(kernel)
        shape[axis] = n
        total = total * k + first.reshape(shape)
    return total


def _max_reference(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
    out = _infer_max(Spec(x.shape, np.dtype(np.float64)), kernel, stride, padding, dilation, ceil_mode)[0].shape
    assert out is not None
    y, places = np.empty(out), np.empty(out, np.int64)
    for cell in np.ndindex(*out):
        best, where = None, 0
        for i, k in enumerate(np.ndindex(*kernel)):
            at = tuple(
                o * s + j * d - p[0] for o, s, j, d, p in zip(cell[2:], stride, k, dilation, padding, strict=True)
            )
            if all(0 <= a < n for a, n in zip(at, x.shape[2:], strict=True)):
                v = x[(*cell[:2], *at)]
                if best is None or v > best or v != v and best == best:
                    best, where = v, i
        y[cell], places[cell] = best, where
    return y, places


_WINDOWS = [
    ((2, 3, 7), (3,), (2,), ((1, 1),), (1,), False),
    ((2, 2, 5, 6), (2, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), False),
    ((2, 2, 6, 5), (3, 2), (2, 2), ((0, 0), (0, 0)), (1, 1), True),
    ((1, 2, 7, 7), (2, 2), (1, 2), ((1, 0), (0, 1)), (2, 3), False),
    ((1, 2, 4, 3, 4), (2, 2, 2), (2, 1, 2), ((0, 0), (1, 1), (0, 0)), (1, 1, 1), False),
]


@primitive(
    accumulate="exact",
    checks_once=True,
    outputs=2,
    infer=_infer_max,
    vjp=lambda g, out1, like_x, kernel, stride, padding, dilation, ceil_mode: _gradient(
        max_pool_backward, g[0], like_x, (out1,), (kernel, stride, padding, dilation, ceil_mode)
    ),
    batch=fold_batch(lambda: max_pool),
    cost=lambda x, kernel, *rest: prod(_infer_max(x, kernel, *rest)[0].shape or ()) * prod(kernel),
    namespace="internal",
    reference=_max_reference,
    samples=lambda m: [Sample(m.distinct(*shape), *window) for shape, *window in _WINDOWS] + [
        Sample(m.normal(0, 2, 3), (2,), (1,), ((0, 0),), (1,), False),
    ],
)  # fmt: skip
def max_pool(x: Tensor, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, ceil_mode: bool) -> Any:
    """The largest value of every window, and where in its window it is. NaN is the largest of all."""
    sizes: Any = out_sizes("max_pool", x, kernel, stride, padding, dilation, ceil_mode)
    extra = _extra(x.shape[2:], kernel, stride, padding, dilation, sizes)
    xp = padded_last(x, padding, extra, _lowest(x.dtype))  # type: ignore[arg-type]
    shape = (x.shape[0], *sizes, x.shape[1])
    best = memory.empty(shape, xp.dtype)
    best.fill(_lowest(x.dtype))
    found = memory.empty(shape, offsets_dtype(kernel))
    found[...] = _first_places(kernel, stride, padding, dilation, sizes)[..., None]
    nan = dtypes.is_floating(x.dtype) and bool(np.isnan(xp).any())
    for i, (_, slices) in enumerate(offsets(kernel, stride, dilation, sizes)):
        value = xp[(slice(None), *slices)]
        better = value > best
        if nan:
            better |= (value != value) & (best == best)
        np.copyto(best, value, where=better)
        np.copyto(found, i, where=better, casting="unsafe")
    return np.moveaxis(best.astype(x.dtype, copy=False), -1, 1), np.moveaxis(found, -1, 1)


def _infer_put(
    g: Any, places: Any, like: Any, size: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Spec:
    spatial = tuple(like.shape[2:] if size is None else size)
    if g.shape is None:
        return Spec((None, None, *spatial), g.dtype)
    shape = (*g.shape[:2], *spatial)
    expected = out_sizes("max_pool_backward", Spec(shape, g.dtype), kernel, stride, padding, dilation, ceil_mode)
    _check_out("max_pool_backward", g, expected)
    return Spec(shape, g.dtype)


def _places(m: Any, shape: Any, window: Any) -> tuple[np.ndarray, np.ndarray]:
    """An image to pool and the positions of its maxima."""
    x = m.distinct(*shape)
    return x, _max_reference(x, *window)[1].astype(offsets_dtype(window[0]))


def _inputs(places: Any, size: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> list[Any]:
    """The input coordinates, per spatial axis, that `places` point to."""
    k = np.unravel_index(places.astype(np.int64), kernel)
    grid = np.indices(places.shape)[2:]
    return [g * s + j * d - p[0] for g, s, j, d, p in zip(grid, stride, k, dilation, padding, strict=True)]


def _put_reference(
    g: Any, places: Any, like: Any, size: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> np.ndarray:
    x = np.zeros((*g.shape[:2], *(like.shape[2:] if size is None else size)))
    where = _inputs(places, x.shape[2:], kernel, stride, padding, dilation)
    np.add.at(x, (*np.indices(g.shape)[:2], *where), g)
    return x


@primitive(
    checks_once=True,
    infer=_infer_put,
    vjp=(
        lambda g, places, kernel, stride, padding, dilation, ceil_mode: max_pool_select(
            g, places, kernel, stride, padding, dilation, ceil_mode
        ),
        None,
        None,
    ),
    batch=fold_batch(lambda: max_pool_backward),
    cost=lambda g, *rest: prod(g.shape),
    namespace="internal",
    reference=_put_reference,
    samples=lambda m: [
        Sample(_places(m, s, w)[1] * 0.1, _places(m, s, w)[1], None, s[2:], *w) for s, *w in _WINDOWS
    ] + [Sample(m.normal(1, 1, 2), np.array([[[1, 0]]], np.uint8), m.normal(1, 1, 4), None, (2,), (2,), ((0, 0),), (1,), False)],
    test={"differentiable_inputs": (0,)},
)  # fmt: skip
def max_pool_backward(
    g: Tensor, places: Tensor, like: Tensor | None, size: Sizes | None,
    kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, ceil_mode: bool,
) -> Any:  # fmt: skip
    """The gradient of `max_pool` in x: scatter-add of `g` to the positions of the maxima."""
    spatial: Any = like.shape[2:] if size is None else size  # type: ignore[union-attr]
    sizes = g.shape[2:]
    extra = _extra(spatial, kernel, stride, padding, dilation, sizes)
    rows, where = padded_last(g, _NO_PADDING[len(sizes)]), np.moveaxis(places, 1, -1)  # type: ignore[arg-type, type-var]
    padded = [s + lo + hi + e for s, (lo, hi), e in zip(spatial, padding, extra, strict=True)]
    xp = memory.zeros((g.shape[0], *padded, g.shape[1]), rows.dtype)
    for i, (_, slices) in enumerate(offsets(kernel, stride, dilation, sizes)):
        xp[(slice(None), *slices)] += np.where(where == i, rows, 0)
    return unpadded(xp, padding, spatial, g.dtype)


def _infer_select(x: Any, places: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Spec:
    out_sizes(_check_images("max_pool", x, kernel), x, kernel, stride, padding, dilation, ceil_mode)
    return Spec(places.shape, x.dtype)


def _select_reference(
    x: Any, places: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> np.ndarray:
    where = _inputs(places, x.shape[2:], kernel, stride, padding, dilation)
    return x[(*np.indices(places.shape)[:2], *where)]


@primitive(
    accumulate="exact",
    checks_once=True,
    cost="gather",
    infer=_infer_select,
    vjp=(
        lambda g, places, like_x, kernel, stride, padding, dilation, ceil_mode: _gradient(
            max_pool_backward, g, like_x, (places,), (kernel, stride, padding, dilation, ceil_mode)
        ),
        None,
    ),
    batch=fold_batch(lambda: max_pool_select),
    namespace="internal",
    reference=_select_reference,
    samples=lambda m: [Sample(m.normal(*s), _places(m, s, w)[1], *w) for s, *w in _WINDOWS],
)
def max_pool_select(
    x: Tensor, places: Tensor, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, ceil_mode: bool
) -> Any:
    """Gather `x` at the positions found by `max_pool`: the transpose of `max_pool_backward`."""
    sizes = places.shape[2:]
    extra = _extra(x.shape[2:], kernel, stride, padding, dilation, sizes)
    xp, where = padded_last(x, padding, extra), np.moveaxis(places, 1, -1)  # type: ignore[arg-type, type-var]
    out = memory.zeros((x.shape[0], *sizes, x.shape[1]), xp.dtype)
    for i, (_, slices) in enumerate(offsets(kernel, stride, dilation, sizes)):
        np.copyto(out, xp[(slice(None), *slices)], where=where == i)
    return np.moveaxis(out.astype(x.dtype, copy=False), -1, 1)


def _index_reference(places: Any, like: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> np.ndarray:
    where = _inputs(places, like.shape[2:], kernel, stride, padding, dilation)
    return np.ravel_multi_index(where, like.shape[2:])


@primitive(
    accumulate="exact",
    checks_once=True,
    cost="each",
    infer=lambda places, like, *window: Spec(places.shape, dtypes.int64),
    vjp=NOT_DIFFERENTIABLE,
    batch=fold_batch(lambda: max_pool_indices),
    namespace="internal",
    reference=_index_reference,
    samples=lambda m: [Sample(_places(m, s, w)[1], m.normal(*s), *w[:-1]) for s, *w in _WINDOWS],
)
def max_pool_indices(
    places: Tensor, like: Tensor, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes
) -> Any:
    """The positions found by `max_pool` as indices into the flattened spatial axes of its input, `like`."""
    rest: Any = places.astype(np.int64)
    index = np.zeros(places.shape, np.int64)
    unit = 1
    for axis in reversed(range(len(kernel))):
        rest, place = np.divmod(rest, kernel[axis])
        start = np.arange(places.shape[2 + axis]) * stride[axis] - padding[axis][0]
        index += (start.reshape(-1, *(1,) * (len(kernel) - 1 - axis)) + place * dilation[axis]) * unit
        unit *= like.shape[2 + axis]
    return index


# Average pooling -----------------------------------------------------------------------------------------------------


def _infer_avg(x: Any, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, include: bool, divisor: Any) -> Spec:
    if not dtypes.is_inexact(x.dtype):
        raise TypeError(
            f"avg_pool{len(kernel)}d: expected a floating tensor. Got {x.dtype.name}; use `x.astype(wf.float32)`."
        )
    if x.shape is None:
        return Spec(None, x.dtype)
    op = _check_images("avg_pool", x, kernel)
    return Spec((*x.shape[:2], *out_sizes(op, x, kernel, stride, padding, (1,) * len(kernel), ceil_mode)), x.dtype)


def _shares(size: Any, kernel: Any, stride: Any, padding: Pairs, out: Any, include: bool, divisor: Any) -> np.ndarray:
    """One over the number of elements that each window counts, (*out, 1)."""
    if divisor is not None:
        return np.full((1,) * (len(out) + 1), 1.0 / divisor)
    counts = np.ones((1,) * len(out))
    for axis, (s, k, t, (lo, hi), n) in enumerate(zip(size, kernel, stride, padding, out, strict=True)):
        start = np.arange(n) * t - lo
        low, high = (-lo, s + hi) if include else (0, s)
        count = np.minimum(start + k, high) - np.maximum(start, low)
        counts = counts * count.reshape([-1 if i == axis else 1 for i in range(len(out))])
    return (1.0 / counts)[..., None]


def _avg_places(size: Any, kernel: Any, stride: Any, padding: Any, out: Any, include: bool, divisor: Any) -> Any:
    """All (output place, input place, share) that average pooling connects."""
    for o in np.ndindex(*out):
        start = [a * s - p[0] for a, s, p in zip(o, stride, padding, strict=True)]
        inside = [(max(b, 0), min(b + k, n)) for b, k, n in zip(start, kernel, size, strict=True)]
        counted = inside
        if include:
            counted = [(b, min(b + k, n + p[1])) for b, k, n, p in zip(start, kernel, size, padding, strict=True)]
        share = 1 / (divisor or np.prod([b - a for a, b in counted]))
        for i in np.ndindex(*[b - a for a, b in inside]):
            yield o, tuple(a + j for (a, _), j in zip(inside, i, strict=True)), share


def _avg_reference(
    x: Any, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, include: bool, divisor: Any
) -> np.ndarray:
    shape = _infer_avg(Spec(x.shape, x.dtype), kernel, stride, padding, ceil_mode, include, divisor).shape
    assert shape is not None
    y = np.zeros(shape)
    for o, i, share in _avg_places(x.shape[2:], kernel, stride, padding, shape[2:], include, divisor):
        y[(slice(None), slice(None), *o)] += x[(slice(None), slice(None), *i)] * share
    return y


_AVERAGES = [
    ((2, 3, 7), (3,), (2,), ((1, 1),), False, True, None),
    ((2, 2, 5, 6), (2, 3), (2, 2), ((1, 1), (1, 1)), False, False, None),
    ((2, 2, 6, 5), (3, 2), (2, 2), ((1, 1), (1, 1)), True, True, None),
    ((2, 2, 6, 5), (3, 2), (2, 3), ((1, 1), (0, 0)), True, False, None),
    ((2, 2, 4, 4), (2, 2), (2, 2), ((0, 0), (0, 0)), False, True, 3),
    ((1, 2, 4, 3, 4), (2, 2, 2), (2, 1, 2), ((0, 0), (1, 1), (0, 0)), False, True, None),
    ((2, 2, 4, 4), (4, 4), (1, 1), ((0, 0), (0, 0)), False, True, None),
]


@primitive(
    checks_once=True,
    infer=_infer_avg,
    vjp=lambda g, like_x, kernel, stride, padding, ceil_mode, include, divisor: _gradient(
        avg_pool_backward, g, like_x, (), (kernel, stride, padding, ceil_mode, include, divisor)
    ),
    batch=fold_batch(lambda: avg_pool),
    cost=lambda x, kernel, *rest: prod(_infer_avg(x, kernel, *rest).shape or ()) * prod(kernel),
    namespace="internal",
    reference=_avg_reference,
    samples=lambda m: [Sample(m.normal(*shape), *window) for shape, *window in _AVERAGES],
)
def avg_pool(
    x: Tensor, kernel: Sizes, stride: Sizes, padding: Pairs, ceil_mode: bool, include: bool, divisor: int | None
) -> Any:
    """The mean of each window. `include`: count padding as zeros; `divisor`: overrides the element count."""
    ones = (1,) * len(kernel)
    sizes: Any = out_sizes("avg_pool", x, kernel, stride, padding, ones, ceil_mode)
    share = _shares(x.shape[2:], kernel, stride, padding, sizes, include, divisor)
    extra = _extra(x.shape[2:], kernel, stride, padding, ones, sizes)
    xp = padded_last(x, padding, extra)  # type: ignore[arg-type]
    if prod(sizes) == 1:
        total = windows(xp, kernel, stride, ones, sizes).sum(tuple(range(1, 2 * len(kernel) + 1)))
        total = total.reshape(x.shape[0], *sizes, x.shape[1])
    else:
        total = memory.zeros((x.shape[0], *sizes, x.shape[1]), xp.dtype)
        for _, slices in offsets(kernel, stride, ones, sizes):
            total += xp[(slice(None), *slices)]
    total *= share.astype(dtypes.real_dtype(xp.dtype))
    return np.moveaxis(total.astype(x.dtype, copy=False), -1, 1)


def _infer_spread(
    g: Any, like: Any, size: Any, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, include: bool, divisor: Any
) -> Spec:
    spatial = tuple(like.shape[2:] if size is None else size)
    if g.shape is None:
        return Spec((None, None, *spatial), g.dtype)
    shape = (*g.shape[:2], *spatial)
    _check_out(
        "avg_pool_backward",
        g,
        out_sizes("avg_pool_backward", Spec(shape, g.dtype), kernel, stride, padding, (1,) * len(kernel), ceil_mode),
    )
    return Spec(shape, g.dtype)


def _spread_reference(
    g: Any, like: Any, size: Any, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, include: bool, divisor: Any
) -> np.ndarray:
    size = like.shape[2:] if size is None else size
    x = np.zeros((*g.shape[:2], *size))
    for o, i, share in _avg_places(size, kernel, stride, padding, g.shape[2:], include, divisor):
        x[(slice(None), slice(None), *i)] += g[(slice(None), slice(None), *o)] * share
    return x


def _avg_shape(shape: Any, window: Any) -> Any:
    return _infer_avg(Spec(shape, np.dtype(np.float64)), *window).shape


@primitive(
    checks_once=True,
    infer=_infer_spread,
    vjp=(
        lambda g, kernel, stride, padding, ceil_mode, include, divisor: avg_pool(
            g, kernel, stride, padding, ceil_mode, include, divisor
        ),
        None,
    ),
    batch=fold_batch(lambda: avg_pool_backward),
    cost=lambda g, like, size, kernel, *rest: prod(g.shape) * prod(kernel),
    namespace="internal",
    reference=_spread_reference,
    samples=lambda m: (
        [Sample(m.normal(*_avg_shape(s, w)), None, s[2:], *w) for s, *w in _AVERAGES]
        + [Sample(m.normal(1, 1, 2), m.normal(1, 1, 4), None, (2,), (2,), ((0, 0),), False, True, None)]
    ),
    test={"differentiable_inputs": (0,)},
)
def avg_pool_backward(
    g: Tensor, like: Tensor | None, size: Sizes | None,
    kernel: Sizes, stride: Sizes, padding: Pairs, ceil_mode: bool, include: bool, divisor: int | None,
) -> Any:  # fmt: skip
    """The gradient of `avg_pool` in x: every element of `g` shared out over its window."""
    spatial: Any = like.shape[2:] if size is None else size  # type: ignore[union-attr]
    sizes, ones = g.shape[2:], (1,) * len(kernel)
    share = _shares(spatial, kernel, stride, padding, sizes, include, divisor)
    rows = padded_last(g, _NO_PADDING[len(sizes)])  # type: ignore[arg-type]
    rows = rows * share.astype(dtypes.real_dtype(rows.dtype))
    extra = _extra(spatial, kernel, stride, padding, ones, sizes)
    padded = [s + lo + hi + e for s, (lo, hi), e in zip(spatial, padding, extra, strict=True)]
    xp = memory.zeros((g.shape[0], *padded, g.shape[1]), compute_dtype(g.dtype))
    for _, slices in offsets(kernel, stride, ones, sizes):
        xp[(slice(None), *slices)] += rows
    return unpadded(xp, padding, spatial, g.dtype)
