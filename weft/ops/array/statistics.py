"""Statistics over axes: variance, standard deviation, quantiles, histograms."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ...typing import Operand
from ..core.define import composite, constant
from ..core.samples import Bad, Sample
from ..core.spec import check_size, normalize_axes, num_elements, require_sizes
from .check_values import require
from .creation import asarray, linspace, ones_like, zeros
from .elementwise import abs_, astype, floor, isnan, maximum, minimum, norm_sqrt, square, where
from .gathering import index_add, masked_fill, take_axis
from .reduction import any_, count_of, max_, mean, min_, reduce_sum
from .searching import searchsorted
from .shaping import expand_dims, moveaxis, reshape
from .sorting import sort

Axis = int | tuple[int, ...] | None


def _samples(m: Any) -> list[Sample]:
    return [
        Sample(m.normal(2, 3)),
        Sample(m.normal(2, 3), axis=0),
        Sample(m.normal(2, 3, 2), axis=(0, -1), keepdims=True),
        Sample(m.normal(4), correction=1),
        Sample(m.normal(4, 3), axis=0, correction=0.5),
    ]


def _bad(name: str) -> Any:
    return lambda m: [
        Bad(IndexError, f"{name}: axis 2 is out of range", m.normal(2, 3), axis=2),
        Bad(TypeError, f"{name}: correction must be a number", m.normal(2, 3), correction="a"),
    ]


def _variance(name: str, x: Tensor, axis: Any, correction: Any, keepdims: bool) -> Tensor:
    if isinstance(correction, bool) or not isinstance(correction, (int, float)):
        raise TypeError(f"{name}: correction must be a number. Got {correction!r}.")
    if isinstance(axis, list):
        axis = tuple(axis)
    normalize_axes(name, axis, x.ndim)
    x = astype(x, dtypes.float_for(x.dtype))
    centred = x - mean(x, axis=axis, keepdims=True)
    total = reduce_sum(square(abs_(centred) if dtypes.is_complex(x.dtype) else centred), axis, keepdims)
    if num_elements(x.shape) is None:  # sizes known only at run time
        count = reduce_sum(ones_like(_real_like(x)), axis, keepdims) - correction
        return total / maximum(count, 0.0)
    count = max(count_of(x, axis) - correction, 0.0)
    return total / count if count > 0 else total / 0.0


def _real_like(x: Tensor) -> Tensor:
    return abs_(x) if dtypes.is_complex(x.dtype) else x


@composite(
    accumulate="float32",
    reference=lambda x, axis=None, correction=0, keepdims=False: np.var(x, axis, ddof=correction, keepdims=keepdims),
    samples=_samples,
    errors=_bad("var"),
)
def var(x: Tensor, /, *, axis: Axis = None, correction: int | float = 0.0, keepdims: bool = False) -> Tensor:
    """Variance over `axis` (all by default): the mean squared deviation from the mean.

    Args:
        x: any shape.
        axis: an axis or a tuple of axes; all axes by default.
        correction: the sum of squares is divided by N - `correction`: 0 for a population, 1 for the unbiased estimate.
        keepdims: keep the reduced axes with size 1.

    >>> wf.var(wf.tensor([1.0, 2.0, 3.0, 4.0]))
    tensor(1.25)
    """
    return _variance("var", x, axis, correction, keepdims)


@composite(
    accumulate="float32",
    reference=lambda x, axis=None, correction=0, keepdims=False: np.std(x, axis, ddof=correction, keepdims=keepdims),
    samples=_samples,
    errors=_bad("std"),
)
def std(x: Tensor, /, *, axis: Axis = None, correction: int | float = 0.0, keepdims: bool = False) -> Tensor:
    """Standard deviation over `axis` (all by default): the square root of `var`. The gradient at zero deviation is 0.

    >>> wf.std(wf.tensor([1.0, 3.0]), correction=1)
    tensor(1.4142...)
    """
    return norm_sqrt(_variance("std", x, axis, correction, keepdims))


# Quantiles ---------------------------------------------------------------------------------------------------------------

_METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantile_reference(x: Any, q: Any, axis: Any = None, keepdims: bool = False, method: str = "linear") -> Any:
    return np.quantile(x, q, axis=axis, keepdims=keepdims, method=method)  # type: ignore[call-overload]


@composite(
    accumulate="float32",
    reference=_quantile_reference,
    samples=lambda m: [
        Sample(m.distinct(7), 0.3),
        Sample(m.distinct(3, 4), 0.5, axis=0),
        Sample(m.distinct(3, 4), np.array([0.0, 0.45, 1.0]), axis=1),
        Sample(m.distinct(2, 3, 2), 0.25, axis=(0, 2), keepdims=True),
        Sample(m.distinct(6), 0.3, method="lower"),
        Sample(m.distinct(6), 0.3, method="higher"),
        Sample(m.distinct(6), 0.3, method="midpoint"),
        Sample(m.distinct(6), 0.31, method="nearest"),
    ],
    errors=lambda m: [
        Bad(ValueError, "quantile: q must be between 0 and 1", m.normal(3), 1.5),
        Bad(ValueError, "quantile: method must be one of", m.normal(3), 0.5, method="best"),
        Bad(ValueError, "quantile: cannot take a quantile of nothing", m.normal(0), 0.5),
        Bad(IndexError, "quantile: axis 1", m.normal(3), 0.5, axis=1),
    ],
    test={"differentiable_inputs": (0,)},
)
def quantile(x: Tensor, /, q: Operand, *, axis: Axis = None, keepdims: bool = False, method: str = "linear") -> Tensor:
    """Quantiles of the elements over `axis`; NaN if any element is NaN.

    Args:
        x: any shape.
        q: the quantiles in [0, 1], a number or a tensor, whose axes come first in the result.
        axis: an axis or a tuple of axes; all axes by default.
        keepdims: keep the reduced axes with size 1.
        method: interpolation between two elements: "linear", "lower", "higher", "midpoint" or "nearest".

    >>> wf.quantile(wf.tensor([0.0, 1.0, 2.0, 3.0]), 0.5)
    tensor(1.5)
    """
    if method not in _METHODS:
        raise ValueError(f"quantile: method must be one of {', '.join(_METHODS)}. Got {method!r}.")
    x = astype(x, dtypes.float_for(x.dtype))
    axes = normalize_axes("quantile", tuple(axis) if isinstance(axis, list) else axis, x.ndim)
    rest = tuple([a for a in range(x.ndim) if a not in axes])
    kept = tuple([x.shape[a] for a in rest])
    total = num_elements([x.shape[a] for a in axes])
    flat = reshape(moveaxis(x, rest, tuple(range(len(rest)))) if rest else x, (*kept, -1 if total is None else total))
    n = flat.shape[-1]
    if n == 0:
        raise ValueError(f"quantile: cannot take a quantile of nothing. Got shape {format_shape(x.shape)}.")
    within, message = lambda q: (q >= 0) & (q <= 1), "quantile: q must be between 0 and 1."
    if isinstance(q, Tensor):
        shares = require(astype(q, x.dtype), within, message, lambda q: q.tolist())
    else:
        if not np.all(within(np.asarray(q))):
            raise ValueError(f"{message} Got {q!r}.")
        shares = asarray(q, dtype=x.dtype)
    ordered = moveaxis(sort(flat), -1, 0)
    place = shares * (n - 1)
    low = floor(place)
    high = minimum(low + 1, n - 1)
    part = place - low
    if method == "lower":
        part = part * 0
    elif method == "higher":
        part = astype(part > 0, x.dtype)
    elif method == "midpoint":
        part = astype(part > 0, x.dtype) * 0.5
    elif method == "nearest":
        part = astype((part > 0.5) | ((part == 0.5) & (low % 2 == 1)), x.dtype)
    below = take_axis(ordered, astype(low, dtypes.int64), 0)
    above = take_axis(ordered, astype(high, dtypes.int64), 0)
    part = reshape(part, (*shares.shape, *(1,) * len(rest)))
    out = below + (above - below) * part
    out = masked_fill(out, any_(isnan(flat), axis=-1), float("nan"))
    if not keepdims:
        return out
    return expand_dims(out, tuple([a + shares.ndim for a in axes])) if axes else out


@composite(
    accumulate="float32",
    reference=lambda x, axis=None, keepdims=False: np.median(x, axis, keepdims=keepdims),
    samples=lambda m: [
        Sample(m.distinct(5)),
        Sample(m.distinct(3, 4), axis=1),
        Sample(m.distinct(2, 3, 2), axis=(0, 1), keepdims=True),
    ],
    errors=lambda m: [Bad(IndexError, "median: axis 2", m.normal(2, 3), axis=2)],
)
def median(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Median over `axis` (all by default); the mean of the two middle elements of an even number.

    >>> wf.median(wf.tensor([3.0, 1.0, 2.0]))
    tensor(2.)
    """
    normalize_axes("median", tuple(axis) if isinstance(axis, list) else axis, x.ndim)
    return quantile(x, 0.5, axis=axis, keepdims=keepdims)


# Histograms ----------------------------------------------------------------------------------------------------------------


class Histogram(NamedTuple):
    """Result of `histogram`: a count (or weight, or density) per bin, and the bin edges."""

    hist: Tensor
    bin_edges: Tensor


def _histogram_reference(x: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool = False) -> Any:
    return np.histogram(x, bins, range, density or None, weights)


def _edges(x: Tensor, bins: Any, range: Any) -> Tensor:
    """The bin edges: given, or evenly spaced over `range` (the range of the data by default)."""
    if isinstance(bins, (Tensor, np.ndarray, list, tuple)):
        edges = astype(asarray(bins), x.dtype)
        if edges.ndim != 1 or (isinstance(edges.shape[0], int) and edges.shape[0] < 2):
            raise ValueError(f"histogram: expected a vector of at least 2 bin edges. Got {format_shape(edges.shape)}.")
        return require(edges, lambda e: e[1:] >= e[:-1], "histogram: bin edges must not decrease.")
    bins = check_size("histogram", bins, "bins", 1)
    if range is not None:
        low, high = (float(v) for v in range)
        if not (np.isfinite(low) and np.isfinite(high) and low <= high):
            raise ValueError(f"histogram: range must be two finite numbers in order. Got {range!r}.")
        if low == high:
            low, high = low - 0.5, high + 0.5
        return linspace(low, high, bins + 1, dtype=x.dtype)
    if num_elements(x.shape) == 0:
        return linspace(0.0, 1.0, bins + 1, dtype=x.dtype)
    low_, high_ = [
        require(
            bound,
            lambda b: abs(b) < np.inf,
            "histogram: the elements must be finite to choose a range. Give `range=(low, high)`.",
        )
        for bound in (min_(x), max_(x))
    ]
    flat = low_ == high_
    low_, high_ = where(flat, low_ - 0.5, low_), where(flat, high_ + 0.5, high_)
    steps = linspace(0.0, float(bins), bins + 1, dtype=x.dtype)
    # in this form edges of whole numbers are exact, also where products and sums are fused
    between = (low_ * (bins - steps) + high_ * steps) / bins
    return where(steps == 0, low_, where(steps == bins, high_, between))


@composite(
    accumulate="float32",
    reference=_histogram_reference,
    samples=lambda m: [
        Sample(m.normal(20)),
        Sample(m.normal(4, 5), 4, (-1.0, 1.0)),
        Sample(m.normal(9), np.array([-2.0, 0.0, 0.5, 3.0])),
        Sample(m.normal(9), 3, density=True),
        Sample(m.normal(9), 3, weights=m.positive(9)),
        Sample(np.array([1, 2, 2, 5]), 4),
        Sample(np.array([1.0, 1.0])),
        Sample(m.normal(0), 3),
    ],
    errors=lambda m: [
        Bad(ValueError, "histogram: bins must be at least 1", m.normal(3), 0),
        Bad(ValueError, "histogram: bin edges must not decrease", m.normal(3), np.array([1.0, 0.0])),
        Bad(ValueError, "histogram: weights must have the shape", m.normal(3), weights=m.normal(2)),
        Bad(ValueError, "histogram: range must be two finite", m.normal(3), 3, (1.0, -1.0)),
    ],
    test={"no_gradient": True},
)
def histogram(
    x: Tensor, /, bins: Any = 10, range: Any = None, *, weights: Tensor | None = None, density: bool = False
) -> Histogram:
    """Count the elements that fall into each bin.

    Args:
        x: any shape.
        bins: the number of bins of equal width, or their edges; the last bin includes its right edge.
        range: (low, high) of equal bins; the range of `x` by default.
        weights: like `x`; weights are summed instead of counted.
        density: normalise so that the histogram integrates to 1.

    Returns:
        A named tuple (hist, bin_edges).

    >>> wf.histogram(wf.tensor([0.0, 0.5, 1.0]), bins=2).hist
    tensor([1, 2])
    """
    require_sizes("histogram", x)
    data = astype(x, dtypes.float_for(x.dtype))
    if dtypes.is_complex(data.dtype):
        raise TypeError(f"histogram: complex numbers have no order. Got {x.dtype.name}.")
    if weights is not None and tuple(weights.shape) != tuple(x.shape):
        raise ValueError(
            f"histogram: weights must have the shape of x, {format_shape(x.shape)}. Got {format_shape(weights.shape)}."
        )
    data = reshape(data, (-1,))
    edges = _edges(data, bins, range)
    count = edges.shape[0] - 1
    inside = (data >= edges[0]) & (data <= edges[-1])
    place = minimum(searchsorted(edges, data, side="right") - 1, count - 1)
    place = where(inside, place, 0)
    dtype = dtypes.int64 if weights is None else weights.dtype
    one = constant(np.ones((), dtype)) if weights is None else reshape(weights, (-1,))
    amounts = where(inside, one, constant(np.zeros((), dtype)))
    hist = index_add(zeros(count, dtype=dtype), place, amounts, 0)
    if density:
        hist = astype(hist, data.dtype) / ((edges[1:] - edges[:-1]) * astype(reduce_sum(hist, None, False), data.dtype))
    return Histogram(hist, edges)
