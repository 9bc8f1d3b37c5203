"""Cumulative sums, products and extrema, and the linear recurrence used by their gradients.

Note [Linear recurrence]. `h[i] = a[i] h[i-1] + b[i]` is associative in the pairs (a, b), so it is computed as a
parallel scan: log₂ n vectorised passes, no division. Its gradient is the same recurrence in reverse. The gradients of
`cumulative_prod` (exact also at zeros) and of `logcumsumexp` (factors at most 1, so nothing overflows) have this form.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ...typing import DTypeLike
from ..core import scalar as s
from ..core.define import composite, primitive
from ..core.reductions import MAX, MIN, PROD, SUM, Reduction
from ..core.registry import joint
from ..core.samples import Bad, Sample
from ..core.spec import Spec, check_size, is_known, normalize_axis, num_elements, rank_of
from .creation import filled, ones_like, zeros_like, zeros_like_spec
from .elementwise import astype, exp, not_equal, where
from .gathering import scatter_add
from .indexing import slice_axis
from .reduction import sum_dtype
from .repeating import flip
from .shaping import broadcast_to, concat_axis

# Functions for users that are not ops; ops are public by their records.
__all__ = ["cummax", "cummin", "cumprod", "cumsum", "logcumsumexp"]

ndarray = np.ndarray
LOGSUMEXP = Reduction("logsumexp", s.logaddexp, float("-inf"), floating=True)


def _infer(name: str, kind: str = "numeric") -> Any:
    def infer(x: Any, axis: Any) -> Spec:
        if kind == "real" and dtypes.is_complex(x.dtype):
            raise TypeError(f"{name}: complex numbers have no order. Got {x.dtype.name}.")
        normalize_axis(name, axis, x.ndim)
        return Spec(x.shape, x.dtype)

    return infer


def _batch(op: Any) -> Any:
    return lambda axes, tensors, attrs: op()(
        tensors[0], normalize_axis("cumulative", attrs[0], tensors[0].ndim - 1) + 1, *attrs[1:]
    )


def _accumulate(ufunc: Any, x: ndarray, axis: int) -> ndarray:
    """`ufunc.accumulate` in the dtype of `x`."""
    return ufunc.accumulate(x, axis, dtype=x.dtype)


def _samples(m: Any) -> list[Sample]:
    return [Sample(m.normal(5), 0), Sample(m.normal(2, 3), -1), Sample(m.normal(3, 2, 2), 1), Sample(m.normal(0, 2), 0)]


def _errors(name: str) -> Any:
    return lambda m: [Bad(IndexError, f"{name}: axis 2 is out of range", m.normal(2, 3), 2)]


# Sums ------------------------------------------------------------------------------------------------------------------


@primitive(
    autocast="float32",
    along=True,
    scan=SUM,
    cost="scan",
    infer=_infer("cumulative_sum"),
    checks_once=True,
    title="cumulative_sum",
    namespace="internal",
    vjp=lambda g, axis: flip(accumulate_sum(flip(g, axis=axis), axis), axis=axis),
    batch=_batch(lambda: accumulate_sum),
    reference=lambda x, axis: np.cumsum(x, axis),
    samples=_samples,
    errors=_errors("cumulative_sum"),
)
def accumulate_sum(x: Tensor, axis: int) -> Any:
    """Cumulative sum along `axis`, in the dtype of `x`: the primitive behind `cumulative_sum`."""
    return _accumulate(np.add, x, axis)  # type: ignore[arg-type]


def _axis_of(name: str, x: Any, axis: int | None) -> int:
    if axis is None:
        if x.ndim != 1:
            raise ValueError(
                f"{name}: axis is needed for a tensor with {x.ndim} axes. Got shape {format_shape(x.shape)}."
            )
        return 0
    return normalize_axis(name, axis, rank_of(x))


def _with_initial(out: Tensor, axis: int, value: int) -> Tensor:
    shape = (*out.shape[:axis], 1, *out.shape[axis + 1 :])
    return concat_axis((filled(shape, value, out.dtype), out), axis)


_cumulative_samples = lambda m: [
    Sample(m.normal(5)),
    Sample(m.normal(2, 3), axis=-1),
    Sample(m.ints(4)),
    Sample(m.normal(2, 3), axis=0, include_initial=True),
]


def _cumulative_reference(function: Any, initial: int) -> Any:
    def reference(x: ndarray, axis: Any = None, dtype: Any = None, include_initial: bool = False) -> ndarray:
        axis = 0 if axis is None else axis
        out = function(x, axis)
        if not include_initial:
            return out
        shape = list(x.shape)
        shape[axis] = 1
        return np.concatenate([np.full(shape, initial, out.dtype), out], axis)

    return reference


@composite(
    reference=_cumulative_reference(np.cumsum, 0),
    samples=_cumulative_samples,
    errors=lambda m: [
        Bad(ValueError, "cumulative_sum: axis is needed for a tensor with 2 axes", m.normal(2, 3)),
        Bad(IndexError, "cumulative_sum: axis 3", m.normal(2, 3), axis=3),
    ],
)
def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Tensor:
    """Cumulative sum along `axis`.

    Args:
        x: any shape.
        axis: required unless `x` is a vector.
        dtype: the dtype of the sum; small integers are summed in 64 bits by default.
        include_initial: start with a zero; the result is longer by one.

    >>> wf.cumulative_sum(wf.tensor([1, 2, 3]))
    tensor([1, 3, 6])
    """
    axis = _axis_of("cumulative_sum", x, axis)
    out = accumulate_sum(astype(x, sum_dtype(x.dtype) if dtype is None else dtype), axis)
    return _with_initial(out, axis, 0) if include_initial else out


def cumsum(x: Tensor, axis: int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
    """Cumulative sum along `axis`, which may be left out for a vector.

    >>> wf.cumsum(wf.ones(2, 3), axis=1)
    tensor([[1., 2., 3.],
            [1., 2., 3.]])
    """
    return cumulative_sum(x, axis=axis, dtype=dtype)


# The linear recurrence ---------------------------------------------------------------------------------------------------


def _infer_recurrence(a: Any, b: Any, axis: Any, reverse: Any) -> Spec:
    if (
        a.shape is not None
        and b.shape is not None
        and (
            len(a.shape) != len(b.shape)
            or any(isinstance(p, int) and isinstance(q, int) and p != q for p, q in zip(a.shape, b.shape, strict=True))
        )
    ):
        raise ValueError(
            f"linear_recurrence: a and b must have one shape. Got {format_shape(a.shape)} and {format_shape(b.shape)}."
        )
    normalize_axis("linear_recurrence", axis, b.ndim)
    return Spec(b.shape, b.dtype)


def _recurrence_array(a: ndarray, b: ndarray, axis: int = 0, reverse: bool = False) -> ndarray:
    step = slice(None, None, -1 if reverse else 1)
    a = np.array(np.moveaxis(a, axis, 0)[step])
    h = np.array(np.moveaxis(b, axis, 0)[step])
    n, shift = h.shape[0], 1
    while shift < n:
        h[shift:] += a[shift:] * h[:-shift]
        a[shift:] = a[shift:] * a[:-shift]
        shift *= 2
    return np.moveaxis(h[step], 0, axis)


def _recurrence_reference(a: ndarray, b: ndarray, axis: int = 0, reverse: bool = False) -> ndarray:
    a, b = np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0)
    out = np.zeros_like(b)
    h = np.zeros_like(b[0]) if len(b) else b
    for i in range(len(b))[:: -1 if reverse else 1]:
        h = a[i] * h + b[i]
        out[i] = h
    return np.moveaxis(out, 0, axis)


def _shifted(x: Tensor, axis: int, back: bool) -> Tensor:
    """`x` shifted by one along `axis` (towards the end, or back), filled with zero."""
    zero = zeros_like(slice_axis(x, axis, 0, 1))  # empty if `x` is
    if back:
        return concat_axis((slice_axis(x, axis, 1, None), zero), axis)
    return concat_axis((zero, slice_axis(x, axis, None, -1)), axis)


def _recurrence_rule(g: Tensor, a: Tensor, out: Tensor, axis: int, reverse: bool, needs: Any) -> tuple[Any, Any]:
    """gb[i] = g[i] + a[i+1] gb[i+1], the recurrence in reverse; ga[i] = gb[i] h[i-1]."""
    axis = axis % out.ndim
    gb = linear_recurrence(_shifted(a, axis, not reverse), g, axis, not reverse)
    return (gb * _shifted(out, axis, reverse) if needs[0] else None), gb


def _batch_recurrence(axes: Any, tensors: Any, attrs: Any) -> Tensor:
    size = next(t.shape[0] for t, a in zip(tensors, axes, strict=True) if a is not None)
    a, b = (t if axis is not None else broadcast_to(t, (size, *t.shape)) for t, axis in zip(tensors, axes, strict=True))
    return linear_recurrence(a, b, normalize_axis("linear_recurrence", attrs[0], b.ndim - 1) + 1, attrs[1])


@primitive(
    autocast="float32",
    cost="scan",
    infer=_infer_recurrence,
    promote="floating",
    vjp=joint(_recurrence_rule),
    batch=_batch_recurrence,
    reference=_recurrence_reference,
    samples=lambda m: [
        Sample(m.normal(5), m.normal(5)),
        Sample(m.normal(2, 3), m.normal(2, 3), -1, True),
        Sample(np.array([1.0, 0.0, 2.0]), m.normal(3)),
        Sample(m.normal(0, 2), m.normal(0, 2)),
    ],
    errors=lambda m: [Bad(ValueError, "linear_recurrence: a and b must have one shape", m.normal(2), m.normal(3))],
)
def linear_recurrence(a: Tensor, b: Tensor, /, axis: int = 0, reverse: bool = False) -> Any:
    """Linear recurrence `h[i] = a[i] * h[i - 1] + b[i]` along `axis`, from zero; from the last element with `reverse`.

    >>> wf.linear_recurrence(wf.full((3,), 0.5), wf.ones(3))
    tensor([1.  , 1.5 , 1.75])
    """
    return _recurrence_array(a, b, axis, reverse)  # type: ignore[arg-type]


# Products ----------------------------------------------------------------------------------------------------------------


def _cumprod_rule(g: Tensor, x: Tensor, out: Tensor, axis: int) -> Tensor:
    """gx[i] = out[i-1] r[i] with r[i] = g[i] + x[i+1] r[i+1], and 1 for the empty product before the first."""
    axis = axis % x.ndim
    r = linear_recurrence(_shifted(x, axis, True), g, axis, True)
    one = ones_like(slice_axis(x, axis, 0, 1))
    return r * concat_axis((one, slice_axis(out, axis, None, -1)), axis)


@primitive(
    autocast="float32",
    along=True,
    scan=PROD,
    cost="scan",
    infer=_infer("cumulative_prod"),
    checks_once=True,
    title="cumulative_prod",
    namespace="internal",
    vjp=_cumprod_rule,
    batch=_batch(lambda: accumulate_prod),
    reference=lambda x, axis: np.cumprod(x, axis),
    samples=lambda m: [*_samples(m), Sample(np.array([2.0, 0.0, 3.0, 0.0, 5.0]), 0)],
    errors=_errors("cumulative_prod"),
)
def accumulate_prod(x: Tensor, axis: int) -> Any:
    """Cumulative product along `axis`, in the dtype of `x`: the primitive behind `cumulative_prod`."""
    return _accumulate(np.multiply, x, axis)  # type: ignore[arg-type]


@composite(
    reference=_cumulative_reference(np.cumprod, 1),
    samples=_cumulative_samples,
    errors=lambda m: [Bad(ValueError, "cumulative_prod: axis is needed for a tensor with 2 axes", m.normal(2, 3))],
)
def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Tensor:
    """Cumulative product along `axis`. Takes the arguments of `cumulative_sum`; the initial value is one.

    >>> wf.cumulative_prod(wf.tensor([1, 2, 3]))
    tensor([1, 2, 6])
    """
    axis = _axis_of("cumulative_prod", x, axis)
    out = accumulate_prod(astype(x, sum_dtype(x.dtype) if dtype is None else dtype), axis)
    return _with_initial(out, axis, 1) if include_initial else out


def cumprod(x: Tensor, axis: int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
    """Cumulative product along `axis`, which may be left out for a vector."""
    return cumulative_prod(x, axis=axis, dtype=dtype)


# Log of running sums of exponentials ---------------------------------------------------------------------------------------


def _logcumsumexp_rule(g: Tensor, x: Tensor, out: Tensor, axis: int) -> Tensor:
    """gx[i] = exp(x[i] - out[i]) r[i], r[i] = g[i] + exp(out[i] - out[i+1]) r[i+1]; no factor exceeds 1."""
    axis = axis % x.ndim
    empty = out == -np.inf  # exp(x) is 0 so far: no gradient, and avoid inf - inf
    safe = where(empty, 0.0, out)
    factor = where(empty, 0.0, exp(safe - _shifted(safe, axis, True)))
    last = zeros_like(slice_axis(x, axis, 0, 1))
    factor = concat_axis((slice_axis(factor, axis, None, -1), last), axis)
    r = linear_recurrence(factor, g, axis, True)
    return where(empty, 0.0, exp(where(empty, 0.0, x) - safe)) * r


@primitive(
    autocast="float32",
    along=True,
    scan=LOGSUMEXP,
    cost=lambda x, axis: 35 * (num_elements(x.shape) or 0),  # one logaddexp per element
    infer=_infer("logcumsumexp", "real"),
    checks_once=True,
    title="logcumsumexp",
    namespace="internal",
    vjp=_logcumsumexp_rule,
    batch=_batch(lambda: accumulate_logsumexp),
    reference=lambda x, axis: np.logaddexp.accumulate(x, axis),
    samples=lambda m: [*_samples(m), Sample(np.array([-40.0, 0.0, 30.0, 29.0]), 0)],
    errors=_errors("logcumsumexp"),
)
def accumulate_logsumexp(x: Tensor, axis: int) -> Any:
    """Cumulative log-sum-exp along `axis` of a floating tensor: the primitive behind `logcumsumexp`."""
    return _accumulate(np.logaddexp, x, axis)  # type: ignore[arg-type]


def logcumsumexp(x: Tensor, /, axis: int | None = None) -> Tensor:
    """Logarithm of the cumulative sum of exp(x) along `axis`, without overflow."""
    return accumulate_logsumexp(astype(x, dtypes.float_for(x.dtype)), _axis_of("logcumsumexp", x, axis))


# Extremes ----------------------------------------------------------------------------------------------------------------


class CumulativeExtreme(NamedTuple):
    """Result of `cummax` and `cummin`: the cumulative extremum and its index."""

    values: Tensor
    indices: Tensor


def _extreme_array(ufunc: Any, x: ndarray, axis: int) -> tuple[ndarray, ndarray]:
    values = ufunc.accumulate(x, axis)
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    steps = np.arange(x.shape[axis]).reshape(shape)
    hit = (x == values) | ((x != x) & (values != values))  # the newest element that equals the extreme so far
    return values, np.maximum.accumulate(np.where(hit, steps, 0), axis)


def _infer_extreme(name: str) -> Any:
    inner = _infer(name, "real")
    return lambda x, axis: (inner(x, axis), Spec(x.shape, dtypes.int64))


def _extreme_back(g: Any, like: Any, outs: Any, axis: int) -> Tensor:
    return scatter_add(zeros_like_spec(Spec(like.shape, g[0].dtype, like.value)), outs[1], g[0], axis)


def _extreme_samples(m: Any) -> list[Sample]:
    return [
        Sample(m.distinct(6), 0),
        Sample(m.distinct(3, 4), -1),
        Sample(np.array([1, 3, 3, 2]), 0),
        Sample(m.normal(0), 0),
    ]


@primitive(
    along=True,
    scan=MAX,
    name="cummax_pair",
    title="cummax",
    namespace="internal",
    outputs=2,
    cost="scan",
    infer=_infer_extreme("cummax"),
    vjp=lambda g, like_x, outs, axis: _extreme_back(g, like_x, outs, axis),
    batch=_batch(lambda: cummax_pair),
    reference=lambda x, axis: _extreme_array(np.maximum, x, axis),
    samples=_extreme_samples,
    errors=_errors("cummax"),
)
def cummax_pair(x: Tensor, axis: int) -> Any:
    """Cumulative maximum along `axis` and its index: the primitive behind `cummax`."""
    return _extreme_array(np.maximum, x, axis)  # type: ignore[arg-type]


@primitive(
    along=True,
    scan=MIN,
    name="cummin_pair",
    title="cummin",
    namespace="internal",
    outputs=2,
    cost="scan",
    infer=_infer_extreme("cummin"),
    vjp=lambda g, like_x, outs, axis: _extreme_back(g, like_x, outs, axis),
    batch=_batch(lambda: cummin_pair),
    reference=lambda x, axis: _extreme_array(np.minimum, x, axis),
    samples=_extreme_samples,
    errors=_errors("cummin"),
)
def cummin_pair(x: Tensor, axis: int) -> Any:
    """Cumulative minimum along `axis` and its index: the primitive behind `cummin`."""
    return _extreme_array(np.minimum, x, axis)  # type: ignore[arg-type]


def cummax(x: Tensor, /, axis: int | None = None) -> CumulativeExtreme:
    """Cumulative maximum along `axis` and the index of each maximum (the last of equal ones).

    >>> wf.cummax(wf.tensor([1, 3, 2])).values
    tensor([1, 3, 3])
    """
    return CumulativeExtreme(*cummax_pair(x, _axis_of("cummax", x, axis)))


def cummin(x: Tensor, /, axis: int | None = None) -> CumulativeExtreme:
    """Cumulative minimum along `axis` and the index of each minimum (the last of equal ones)."""
    return CumulativeExtreme(*cummin_pair(x, _axis_of("cummin", x, axis)))


# Differences ---------------------------------------------------------------------------------------------------------------


@composite(
    accumulate="float32",
    reference=lambda x, axis=-1, n=1, prepend=None, append=None: np.diff(
        x,
        n,
        axis,
        **({} if prepend is None else {"prepend": prepend}),
        **({} if append is None else {"append": append}),
    ),
    samples=lambda m: [
        Sample(m.normal(5)),
        Sample(m.normal(3, 4), axis=0, n=2),
        Sample(m.normal(2, 3), prepend=m.normal(2, 1), append=m.normal(2, 2)),
        Sample(m.normal(2), n=3),
        Sample(m.normal(4), n=0),
    ],
    errors=lambda m: [
        Bad(ValueError, "diff: n must be at least 0", m.normal(3), n=-1),
        Bad(IndexError, "diff: axis 1 is out of range", m.normal(3), axis=1),
        Bad(IndexError, "diff: axis -1 is out of range: a 0-d tensor", m.normal()),
    ],
)
def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Differences of neighbouring elements along `axis`.

    Args:
        x: any shape.
        axis: the axis of the differences.
        n: how often to take the difference.
        prepend: values concatenated before `x` along `axis`.
        append: values concatenated after `x` along `axis`.

    >>> wf.diff(wf.tensor([1, 4, 9]))
    tensor([3, 5])
    """
    axis = normalize_axis("diff", axis, x.ndim)
    n = check_size(
        "diff", n, "n", 0, None if is_known(x.shape) else 1 << 16
    )  # each difference adds nodes to a graph of unknown sizes
    if n == 0:
        return x
    parts = [p for p in (prepend, x, append) if p is not None]
    if len(parts) > 1:
        x = concat_axis(tuple(parts), axis)
    for _ in range(n):
        if x.shape[axis] == 0:
            break
        high, low = slice_axis(x, axis, 1, None), slice_axis(x, axis, None, -1)
        x = not_equal(high, low) if dtypes.is_bool(x.dtype) else high - low
    return x
