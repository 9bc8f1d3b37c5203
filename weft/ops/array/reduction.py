"""Reductions over axes: sum, mean, product, maximum, minimum, any, all and log-sum-exp."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...tensor import Tensor
from ...typing import DTypeLike
from ..core.define import composite, reduction
from ..core.reductions import ALL, ANY, MAX, MIN, PROD, SUM, Reduction, infer_reduction
from ..core.registry import NOT_DIFFERENTIABLE
from ..core.samples import Bad, Sample
from ..core.spec import Spec, normalize_axes, num_elements
from .elementwise import astype, exp, isfinite, log, where
from .shaping import broadcast_to_like, expand_dims

# Functions for users that are not ops; ops are public by their records.
__all__ = ["mean", "prod", "sum"]

Axis = int | tuple[int, ...] | None


def _samples(m: Any) -> list[Sample]:
    return [
        Sample(m.distinct(2, 3)),
        Sample(m.distinct(2, 3), axis=0),
        Sample(m.distinct(2, 3, 2), axis=(0, -1), keepdims=True),
        Sample(m.distinct(4), axis=-1),
        Sample(m.distinct()),
    ]


def _bad(name: str) -> Any:
    return lambda m: [
        Bad(IndexError, f"{name}: axis 2 is out of range for a tensor with 2 axes", m.normal(2, 3), axis=2),
        Bad(ValueError, f"{name}: axis names an axis twice", m.normal(2, 3), axis=(0, -2)),
        Bad(TypeError, f"{name}: axis must be an integer", m.normal(2, 3), axis=0.5),
    ]


def sum_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of a sum: small integers are summed in 64 bits, as the array API requires."""
    if dtypes.is_bool(dtype) or dtype in dtypes.SIGNED:
        return dtypes.int64
    return dtypes.uint64 if dtype in dtypes.UNSIGNED else dtype


def spread(g: Tensor, like: Any, axis: Axis, keepdims: bool) -> Tensor:
    """A reduction's gradient (or result) broadcast back over the reduced axes."""
    if like.shape is None or g.ndim == 0:
        return broadcast_to_like(g, like)
    axes = normalize_axes("reduction", axis, len(like.shape))
    if not keepdims and axes and g.ndim != len(like.shape):
        g = expand_dims(g, axes)
    return broadcast_to_like(g, like)


def _spread_array(g: np.ndarray, like: Any, axis: Axis, keepdims: bool) -> np.ndarray:
    """`spread` for arrays; small ones are copied, which is cheaper than making a view."""
    if g.ndim and not keepdims:
        g = np.expand_dims(g, axis)  # type: ignore[arg-type]
    if (num_elements(like.shape) or 0) > 4096:
        return np.broadcast_to(g, like.shape)
    out = np.empty(like.shape, g.dtype)
    out[...] = g
    return out


@reduction(
    SUM,
    autocast="float32",
    namespace="internal",
    title="sum",
    vjp=lambda g, like_x, axis, keepdims: spread(g, like_x, axis, keepdims),
    small_vjp=lambda g, like_x, axis, keepdims: _spread_array(g, like_x, axis, keepdims),
    reference=lambda x, axis=None, keepdims=False: np.sum(x, axis=axis, keepdims=keepdims),
    samples=_samples,
    errors=_bad("sum"),
)
def reduce_sum(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Any:
    """The sum over `axis`, in the dtype of `x`: the primitive behind `sum` and `mean`."""
    return np.asarray(np.add.reduce(x, axis, x.dtype, None, keepdims))  # type: ignore[call-overload]


def sum(x: Tensor, /, *, axis: Axis = None, dtype: DTypeLike | None = None, keepdims: bool = False) -> Tensor:
    """Sum of the elements over `axis`.

    Args:
        x: any shape.
        axis: an axis or a tuple of axes; all axes by default.
        dtype: the dtype of the sum; small integers are summed in 64 bits by default.
        keepdims: keep the reduced axes with size 1.

    >>> wf.sum(wf.ones(2, 3), axis=0)
    tensor([2., 2., 2.])
    """
    have = x.dtype
    wanted = (
        have
        if dtype is None and have is dtypes.float32
        else sum_dtype(have)
        if dtype is None
        else dtypes.as_dtype(dtype)
    )
    if have is not wanted and have != wanted:
        x = astype(x, wanted)
    return reduce_sum(x, tuple(axis) if axis.__class__ is list else axis, keepdims)


def count_of(x: Any, axis: Axis) -> int:
    """The number of elements reduced into one result."""
    n = 1
    for a in normalize_axes("mean", axis, x.ndim):
        n *= x.shape[a]
    return n


def mean(x: Tensor, /, *, axis: Axis = None, dtype: DTypeLike | None = None, keepdims: bool = False) -> Tensor:
    """Arithmetic mean of the elements over `axis` (all by default); NaN if there are none.

    Integers are converted to the default floating dtype. Takes the arguments of `sum`.

    >>> wf.mean(wf.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=1)
    tensor([1.5, 3.5])
    """
    if dtype is not None and not dtypes.is_inexact(dtypes.as_dtype(dtype)):
        raise TypeError(
            f"mean: dtype must be floating or complex. Got {dtypes.as_dtype(dtype).name}; round what `mean` returns, for "
            "example `wf.floor(wf.mean(x)).astype(wf.int64)`."
        )
    x = astype(x, dtypes.float_for(x.dtype) if dtype is None else dtype)
    return reduce_mean(x, tuple(axis) if axis.__class__ is list else axis, keepdims)


@composite(
    accumulate="float32",
    namespace="internal",
    title="mean",
    reference=lambda x, axis=None, keepdims=False: np.mean(x, axis=axis, keepdims=keepdims),
    samples=_samples,
    errors=_bad("mean"),
)
def reduce_mean(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The mean over `axis`, in the dtype of `x`: the function behind `mean`."""
    total = reduce_sum(x, axis, keepdims)
    if num_elements(x.shape) is None:
        return total / astype(reduce_sum(ones_where(x), axis, keepdims), x.dtype)
    n = count_of(x, axis)
    return total / n if n else total * float("nan")


def ones_where(x: Tensor) -> Tensor:
    from .creation import ones_like

    return ones_like(x)


def _prod_rule(g: Tensor, x: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    """d prod / dx_i = the product of the other elements; exact also where elements are zero."""
    zero: Any = x == 0
    zeros = reduce_sum(astype(zero, dtypes.int64), axis, True)
    others = spread(reduce_prod(where(zero, 1.0, x), axis, True), x, axis, True)  # product of the non-zero elements
    single = where(zero, others, 0.0)
    plain = others / where(zero, 1.0, x)
    partial = where(broadcast_to_like(zeros == 0, x), plain, where(broadcast_to_like(zeros == 1, x), single, 0.0))
    return spread(g, x, axis, keepdims) * partial


@reduction(
    PROD,
    autocast="float32",
    namespace="internal",
    title="prod",
    vjp=_prod_rule,
    reference=lambda x, axis=None, keepdims=False: np.prod(x, axis=axis, keepdims=keepdims),
    samples=_samples,
    errors=_bad("prod"),
)
def reduce_prod(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Any:
    """The product over `axis`, in the dtype of `x`: the primitive behind `prod`."""
    return np.asarray(np.prod(x, axis=axis, keepdims=keepdims, dtype=x.dtype))


def prod(x: Tensor, /, *, axis: Axis = None, dtype: DTypeLike | None = None, keepdims: bool = False) -> Tensor:
    """Product of the elements over `axis` (all by default); small integers are multiplied in 64 bits.

    >>> wf.prod(wf.tensor([2, 3, 4]))
    tensor(24)
    """
    x = astype(x, sum_dtype(x.dtype) if dtype is None else dtype)
    return reduce_prod(x, tuple(axis) if axis.__class__ is list else axis, keepdims)


def _extreme_rule(g: Tensor, x: Tensor, out: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    """Equal extrema share the gradient."""
    same: Any = x == spread(out, x, axis, keepdims)
    hit = astype(same, g.dtype)
    return hit * spread(g, x, axis, keepdims) / spread(reduce_sum(hit, axis, True), x, axis, True)


def _real_infer(name: str, reduces: Reduction) -> Any:
    inner = infer_reduction(name, reduces)

    def infer(x: Any, axis: Any, keepdims: bool) -> Spec:
        if dtypes.is_complex(x.dtype):
            raise TypeError(f"{name}: complex numbers have no order. Got {x.dtype.name}; use `wf.abs(x)`.")
        return inner(x, axis, keepdims)

    return infer


@reduction(
    MAX,
    name="max",
    infer=_real_infer("max", MAX),
    vjp=_extreme_rule,
    reference=lambda x, axis=None, keepdims=False: np.max(x, axis=axis, keepdims=keepdims),
    samples=_samples,
    errors=lambda m: [*_bad("max")(m), Bad(ValueError, "max: cannot reduce axis 0 of size 0", m.normal(0, 3), axis=0)],
)
def max_(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """Maximum over `axis` (all by default); NaN if any element is NaN. Equal maxima share the gradient.

    >>> wf.max(wf.tensor([[1.0, 5.0], [7.0, 3.0]]), axis=1)
    tensor([5., 7.])
    """
    return np.asarray(np.max(x, axis=axis, keepdims=keepdims))


@reduction(
    MIN,
    name="min",
    infer=_real_infer("min", MIN),
    vjp=_extreme_rule,
    reference=lambda x, axis=None, keepdims=False: np.min(x, axis=axis, keepdims=keepdims),
    samples=_samples,
    errors=_bad("min"),
)
def min_(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """Minimum over `axis` (all by default); NaN if any element is NaN. Equal minima share the gradient.

    >>> wf.min(wf.tensor([[1.0, 5.0], [7.0, 3.0]]), axis=1)
    tensor([1., 3.])
    """
    return np.asarray(np.min(x, axis=axis, keepdims=keepdims))


@reduction(
    ANY,
    name="any",
    vjp=NOT_DIFFERENTIABLE,
    reference=lambda x, axis=None, keepdims=False: np.any(x, axis=axis, keepdims=keepdims),
    samples=lambda m: [
        Sample(m.bools(2, 3)),
        Sample(m.bools(2, 3), axis=0),
        Sample(m.ints(2, 0), axis=1, keepdims=True),
    ],
)
def any_(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """Whether any element over `axis` (all by default) is true (non-zero).

    >>> wf.any(wf.tensor([[0, 0], [0, 1]]), axis=1)
    tensor([False,  True])
    """
    return np.asarray(np.any(x, axis=axis, keepdims=keepdims))


@reduction(
    ALL,
    name="all",
    vjp=NOT_DIFFERENTIABLE,
    reference=lambda x, axis=None, keepdims=False: np.all(x, axis=axis, keepdims=keepdims),
    samples=lambda m: [
        Sample(m.bools(2, 3)),
        Sample(m.bools(2, 3), axis=0),
        Sample(m.ints(2, 0), axis=1, keepdims=True),
    ],
)
def all_(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """Whether all elements over `axis` (all by default) are true (non-zero).

    >>> wf.all(wf.tensor([1, 2, 0]))
    tensor(False)
    """
    return np.asarray(np.all(x, axis=axis, keepdims=keepdims))


@composite(
    accumulate="float32",
    reference=lambda x, axis=None, keepdims=False: np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims)),
    samples=_samples,
)
def logsumexp(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))) over `axis` (all by default), without overflow.

    >>> wf.logsumexp(wf.tensor([1000.0, 1000.0]))
    tensor(1000.6932)
    """
    from .shaping import reshape, squeeze, stop_gradient

    x = astype(x, dtypes.float_for(x.dtype))
    rank: int | None = x.ndim
    if rank is None and axis is None:  # the rank is known only at run time: flatten
        if keepdims:
            raise ValueError("logsumexp: keepdims over all axes of a tensor of unknown rank. Name the axes.")
        x = reshape(x, (-1,))
    axes = normalize_axes("logsumexp", axis, x.ndim)
    if num_elements(x.shape) == 0:
        return log(sum(exp(x), axis=axis, keepdims=keepdims))
    top = stop_gradient(max_(x, axis=axes, keepdims=True))
    top = where(isfinite(top), top, 0.0)
    total = log(reduce_sum(exp(x - top), axes, True)) + top
    return total if keepdims else squeeze(total, axes) if axes else total
