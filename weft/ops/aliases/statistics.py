"""Reductions and statistics under PyTorch's and NumPy's names."""

from __future__ import annotations

from typing import Any, NamedTuple

from ... import dtypes
from ...tensor import Tensor
from ...typing import Axis, Operand
from ..array import creation, cumulative, gathering, linalg_structure, products, reduction, shaping, sorting
from ..array.elementwise import astype, conj, isnan, sqrt, where
from ..core.short_floats import accumulates

__all__ = [
    "amax", "amin", "aminmax", "corrcoef", "cov", "cumulative_trapezoid", "gradient", "nanmean", "nanmedian", "nanquantile",
    "nanstd", "nansum", "nanvar", "trapezoid", "trapz", "vander",
]  # fmt: skip


def _axes(dim: Any) -> Any:
    return None if dim is None or dim == () or dim == [] else tuple(dim) if isinstance(dim, list) else dim


def amax(x: Tensor, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """Maximum over an axis or several; ties share the gradient.

    >>> wf.amax(wf.tensor([[1.0, 3.0], [5.0, 2.0]]), dim=1)
    tensor([3., 5.])
    """
    return reduction.max_(x, axis=_axes(dim), keepdims=keepdim)


def amin(x: Tensor, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """Minimum over an axis or several; ties share the gradient.

    >>> wf.amin(wf.tensor([[1.0, 3.0], [5.0, 2.0]]), dim=1)
    tensor([1., 2.])
    """
    return reduction.min_(x, axis=_axes(dim), keepdims=keepdim)


class MinMax(NamedTuple):
    """What `aminmax` returns."""

    min: Tensor
    max: Tensor


def aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """Minimum and maximum over an axis, or of all elements.

    >>> wf.aminmax(wf.tensor([3, 1, 2]))
    MinMax(min=tensor(1), max=tensor(3))
    """
    return MinMax(amin(x, dim, keepdim), amax(x, dim, keepdim))


def nansum(x: Tensor, dim: Axis = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum of the elements that are not NaN.

    >>> wf.nansum(wf.tensor([1.0, float("nan"), 2.0]))
    tensor(3.)
    """
    return reduction.sum(_numbers(x), axis=_axes(dim), keepdims=keepdim, dtype=dtype)


def _numbers(x: Tensor) -> Tensor:
    """Zeros instead of NaN."""
    return where(isnan(x), creation.zeros((), dtype=x.dtype), x) if dtypes.is_inexact(x.dtype) else x


@accumulates
def nanmean(x: Tensor, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """The mean of the elements that are not NaN.

    >>> wf.nanmean(wf.tensor([1.0, float("nan"), 2.0]))
    tensor(1.5)
    """
    count = reduction.sum(astype(~isnan(x), x.dtype), axis=_axes(dim), keepdims=keepdim)
    return nansum(x, dim, keepdim) / count


@accumulates
def nanvar(x: Tensor, axis: Axis = None, *, correction: float = 0, keepdims: bool = False) -> Tensor:
    """The variance of the elements that are not NaN, over `axis`.

    >>> wf.nanvar(wf.tensor([1.0, float("nan"), 3.0]))
    tensor(1.)
    """
    present = ~isnan(x)
    mean = nanmean(x, axis, True)
    square = where(present, (x - mean) * conj(x - mean), creation.zeros((), dtype=x.dtype))
    count = reduction.sum(astype(present, x.dtype), axis=_axes(axis), keepdims=keepdims)
    return reduction.sum(square, axis=_axes(axis), keepdims=keepdims) / (count - correction)


@accumulates
def nanstd(x: Tensor, axis: Axis = None, *, correction: float = 0, keepdims: bool = False) -> Tensor:
    """The standard deviation of the elements that are not NaN, over `axis`.

    >>> wf.nanstd(wf.tensor([1.0, float("nan"), 3.0]))
    tensor(1.)
    """
    return sqrt(nanvar(x, axis, correction=correction, keepdims=keepdims))


@accumulates
def nanquantile(x: Tensor, q: Operand, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Quantiles of the elements that are not NaN, with linear interpolation.

    >>> wf.nanquantile(wf.tensor([1.0, float("nan"), 2.0]), 0.5)
    tensor(1.5)
    """
    wide = shaping.reshape(x, (-1,)) if dim is None else shaping.moveaxis(x, dim, -1)
    if not isinstance(q, (int, float)):
        parts = [nanquantile(x, float(v), dim, keepdim) for v in creation.asarray(q).tolist()]
        return shaping.stack(parts, axis=0)
    ordered = sorting.sort(wide, axis=-1)  # NaN is last
    count = reduction.sum(astype(~isnan(wide), x.dtype), axis=-1, keepdims=True)
    place = (count - 1) * q
    low = astype(place, dtypes.int64)
    low = where(low < 0, low * 0, low)
    high = where(low + 1 < astype(count, dtypes.int64), low + 1, low)
    a, b = (gathering.take_along_axis(ordered, i, axis=-1) for i in (low, high))
    made = a + (b - a) * (place - astype(low, x.dtype))
    if dim is None:
        flat = shaping.reshape(made, ())
        return shaping.reshape(flat, (1,) * x.ndim) if keepdim else flat
    return shaping.moveaxis(made, -1, dim) if keepdim else shaping.squeeze(made, -1)


def nanmedian(x: Tensor, axis: int | None = None) -> Tensor:
    """The median of the elements that are not NaN; of an even number the mean of the middle two, as in NumPy.

    >>> wf.nanmedian(wf.tensor([1.0, float("nan"), 2.0]))
    tensor(1.5)
    """
    return nanquantile(x, 0.5, axis)


@accumulates
def cov(x: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Tensor:
    """The covariance matrix of variables (rows) from observations (columns).

    Args:
        correction: what is subtracted from the number of observations.
        fweights: how often each observation occurred.
        aweights: the weight of each observation.

    >>> wf.cov(wf.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    rows = shaping.reshape(x, (1, -1)) if x.ndim < 2 else x
    rows = rows if dtypes.is_inexact(rows.dtype) else astype(rows, dtypes.get_default_dtype())
    real = rows.real.dtype if dtypes.is_complex(rows.dtype) else rows.dtype
    weights = creation.ones((rows.shape[1],), dtype=real)
    for given in (fweights, aweights):
        weights = weights if given is None else weights * astype(given, real)
    total = reduction.sum(weights)
    mean = reduction.sum(rows * weights, axis=1, keepdims=True) / total
    centred = rows - mean
    if aweights is None:
        scale = total - correction
    else:
        second = weights * astype(aweights, real)
        scale = total - correction * reduction.sum(second) / total
    made = products.matmul(centred * weights, shaping.matrix_transpose(conj(centred))) / scale
    return shaping.reshape(made, ()) if x.ndim < 2 else made


@accumulates
def corrcoef(x: Tensor) -> Tensor:
    """The correlation matrix of variables (rows) from observations (columns).

    >>> wf.corrcoef(wf.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    if x.ndim < 2:
        return creation.ones((), dtype=x.dtype)
    covariance = cov(x)
    deviation = sqrt(linalg_structure.diagonal(covariance))
    return covariance / shaping.expand_dims(deviation, 1) / shaping.expand_dims(conj(deviation), 0)


@accumulates
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1, dim: int = -1) -> Tensor:
    """The integral of samples along `dim` by the trapezoidal rule.

    Args:
        y: the samples.
        x: where they were taken; by default at distances `dx`.

    >>> wf.trapezoid(wf.tensor([1.0, 3.0]))
    tensor(2.)
    """
    return reduction.sum(_trapezoids(y, x, dx, dim), axis=dim)


def trapz(y: Tensor, x: Tensor | None = None, *, dx: float = 1, dim: int = -1) -> Tensor:
    """`trapezoid`.

    >>> wf.trapz(wf.tensor([1.0, 3.0]))
    tensor(2.)
    """
    return trapezoid(y, x, dx=dx, dim=dim)


@accumulates
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1, dim: int = -1) -> Tensor:
    """The integrals up to each sample but the first, by the trapezoidal rule.

    >>> wf.cumulative_trapezoid(wf.tensor([1.0, 3.0, 5.0]))
    tensor([2., 6.])
    """
    return cumulative.cumsum(_trapezoids(y, x, dx, dim), dim)


def _trapezoids(y: Tensor, x: Tensor | None, dx: float, dim: int) -> Tensor:
    n = y.shape[dim]
    left, right = shaping.split(y, [n - 1, 1], dim)[0], shaping.split(y, [1, n - 1], dim)[1]
    step: Any = dx
    if x is not None:
        step = cumulative.diff(x, axis=-1 if x.ndim == 1 else dim)
        if x.ndim == 1:
            step = shaping.reshape(step, (-1, *[1] * (y.ndim - 1 - dim % y.ndim)))
    return (left + right) / 2 * step


@accumulates
def gradient(x: Tensor, *, spacing: float = 1, dim: Axis = None, edge_order: int = 1) -> Any:
    """Derivatives from samples on a grid by central differences, one-sided at the edges.

    Args:
        spacing: the distance between samples.
        dim: the axis or axes; all by default.
        edge_order: 1 or 2, of the differences at the edges.

    Returns:
        A list with the derivative along each axis; for one integer `dim` a list of one.

    >>> wf.gradient(wf.tensor([1.0, 2.0, 4.0]))[0]
    tensor([1. , 1.5, 2. ])
    """
    if edge_order not in (1, 2):
        raise ValueError(f"gradient: edge_order must be 1 or 2. Got {edge_order}.")
    axes = range(x.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    return [_derivative(x, axis % x.ndim, spacing, edge_order) for axis in axes]


def _derivative(x: Tensor, axis: int, spacing: float, edge_order: int) -> Tensor:
    n = x.shape[axis]
    if n < edge_order + 1:
        raise ValueError(f"gradient: axis {axis} needs at least {edge_order + 1} elements. Got {n}.")

    def at(start: int, stop: int) -> Tensor:
        return shaping.split(x, [start, stop - start, n - stop], axis)[1]

    inner = [(at(2, n) - at(0, n - 2)) / 2] if n > 2 else []
    if edge_order == 1:
        first, last = at(1, 2) - at(0, 1), at(n - 1, n) - at(n - 2, n - 1)
    else:
        first = -1.5 * at(0, 1) + 2 * at(1, 2) - 0.5 * at(2, 3)
        last = 1.5 * at(n - 1, n) - 2 * at(n - 2, n - 1) + 0.5 * at(n - 3, n - 2)
    return shaping.concat([first, *inner, last], axis=axis) / spacing


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The matrix of powers of a vector's elements: a row per element, the highest power first unless `increasing`.

    >>> wf.vander(wf.tensor([2.0, 3.0])).tolist()
    [[2.0, 1.0], [3.0, 1.0]]
    """
    count = x.shape[0] if N is None else N
    powers = creation.arange(count) if increasing else creation.arange(count - 1, -1, -1)
    return shaping.expand_dims(x, -1) ** astype(powers, x.dtype)
