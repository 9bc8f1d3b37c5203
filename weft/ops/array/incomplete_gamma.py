"""Incomplete gamma functions, and how quantiles of the gamma distribution move with its concentration.

Note [Incomplete gamma functions]. With f the density of the gamma distribution of concentration a, P(a, x) is its integral
from 0 to x and Q = 1 - P. Kernels compute in float64, in three regions:

* x < a + 1: the power series P = x f(x) / a · Σ xⁿ / ((a + 1) … (a + n));
* otherwise Legendre's continued fraction of Q / (x f(x));
* a ≥ 100, where both need many terms: Gauss–Legendre quadrature after t = x exp(∓s), which turns the integral into
  x f(x) ∫ exp(-a s + x (1 - exp(-s))) ds (for Q: exp(a s - x (exp(s) - 1))), a smooth function that decays from s = 0.

Derivatives with respect to a go through the same three: recurrences carry the derivative of each term, the quadrature has a
factor log t - ψ(a).
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ...tensor import Tensor
from ..core import numpy_special
from ..core.define import primitive
from ..core.samples import Bad, Sample
from ..core.spec import Spec, broadcast_shapes, num_elements
from .elementwise import exp, log, where
from .elementwise.special import digamma, lgamma, xlogy

_QUADRATURE_MIN = 100.0  # a from which the quadrature is used
_MAX_TERMS = 2000
_BLOCK = 4096  # elements per block of the quadrature, which needs 64 numbers for each
_EPS = np.finfo(np.float64).eps


def _digamma(a: np.ndarray) -> np.ndarray:
    return digamma.op.fn(a)  # type: ignore[attr-defined]


def _series(a: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Σ xⁿ / ((a + 1) … (a + n)) and its derivative with respect to a."""
    term, slope = np.ones_like(x), np.zeros_like(x)
    total, total_slope = np.ones_like(x), np.zeros_like(x)
    for n in range(1, _MAX_TERMS):
        below = a + n
        ratio = x / below
        term = term * ratio
        slope = slope * ratio - term / below
        total += term
        total_slope += slope
        if not ((term > _EPS * total) | (np.abs(slope) > _EPS * np.abs(total_slope))).any():
            break
    return total, total_slope


def _fraction(a: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q / (x f(x)) and its derivative with respect to a, from the convergents p / q of the continued fraction."""
    y, z = 1.0 - a, x - a + 2.0
    p, p_old, q, q_old = x + 1.0, np.ones_like(x), z * x, x.copy()
    dp, dp_old, dq, dq_old = np.zeros_like(x), np.zeros_like(x), -x, np.zeros_like(x)
    value = p / q
    slope = (dp - value * dq) / q
    for n in range(1, _MAX_TERMS):
        y, z = y + 1.0, z + 2.0
        yn = y * n
        p_new, q_new = p * z - p_old * yn, q * z - q_old * yn
        dp_new = dp * z - p - dp_old * yn + p_old * n
        dq_new = dq * z - q - dq_old * yn + q_old * n
        p, p_old, q, q_old, dp, dp_old, dq, dq_old = p_new, p, q_new, q, dp_new, dp, dq_new, dq
        found = p / q
        found_slope = (dp - found * dq) / q
        steady = np.abs(found - value) <= _EPS * np.abs(found)
        steady &= np.abs(found_slope - slope) <= 4 * _EPS * np.abs(found_slope) + _EPS * np.abs(found)
        value, slope = found, found_slope
        if steady.all():
            break
        scale = np.where(np.abs(p) > 2.0**100, 2.0**-100, 1.0)
        p, p_old, q, q_old = p * scale, p_old * scale, q * scale, q_old * scale
        dp, dp_old, dq, dq_old = dp * scale, dp_old * scale, dq * scale, dq_old * scale
    return value, slope


@functools.cache
def _nodes() -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of the quadrature on [-1, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(64)
    return nodes, weights


def _quadrature(a: np.ndarray, x: np.ndarray, log_x: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The smaller tail over x f(x), P where x < a and Q elsewhere, and its derivative with respect to a over the same.

    The derivative is 0 unless `log_x` is given.
    """
    nodes, weights = _nodes()
    integral, slope = np.empty_like(x), np.zeros_like(x)
    for start in range(0, x.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        ak, xk = a[part, None], x[part, None]
        side = np.where(xk < ak, -1.0, 1.0)
        # beyond `limit` the integrand is below exp(-40), as it decays like exp(-a s² / 2) and like exp(-|x - a| s)
        limit = np.minimum(10.0 / np.sqrt(ak), 40.0 / np.maximum(np.abs(xk - ak), 1e-300))
        s = limit * (nodes + 1.0) / 2.0
        heights = np.exp(side * ak * s - xk * np.expm1(side * s)) * weights
        integral[part] = heights.sum(-1) * limit[:, 0] / 2.0
        if log_x is not None:
            factor = (log_x[part] - _digamma(a[part]))[:, None] + side * s
            slope[part] = (heights * factor).sum(-1) * limit[:, 0] / 2.0
    return integral, slope


def _log_front(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """log(x f(x)) = a log x - x - log Γ(a), for large a without the cancellation of its terms."""
    out = np.empty_like(x)
    large = a >= _QUADRATURE_MIN
    al, xl = a[large], x[large]
    u = (xl - al) / al
    # a (u - log(1 + u)), from the power series for small u
    small = np.abs(u) < 0.01
    v = np.where(small, u, 0.0)
    series = v * v * (1 / 2 + v * (-1 / 3 + v * (1 / 4 + v * (-1 / 5 + v * (1 / 6 + v * (-1 / 7 + v / 8))))))
    direct = np.where(small, 0.0, u) - np.log1p(np.where(small, 0.0, u))
    stirling = (1 / 12 - (1 / 360 - 1 / (1260 * al * al)) / (al * al)) / al
    out[large] = -al * np.where(small, series, direct) + 0.5 * np.log(al / (2 * math.pi)) - stirling
    rest = ~large
    ar, xr = a[rest], x[rest]
    out[rest] = ar * np.log(xr) - xr - numpy_special.lgamma(ar)
    return out


def regularized(a: np.ndarray, x: np.ndarray, upper: bool) -> np.ndarray:
    """P(a, x), or Q(a, x) if `upper`, of arrays of float64."""
    a, x = (v.reshape(-1) for v in np.broadcast_arrays(a, x))
    shape = np.broadcast_shapes(a.shape, x.shape)
    out = np.full(shape, np.nan)
    with np.errstate(all="ignore"):
        edge_one = ((a == 0) & (x > 0)) | ((x == np.inf) & (a >= 0) & (a < np.inf))  # all mass is below x
        edge_zero = ((x == 0) & (a > 0)) | ((a == np.inf) & (x >= 0) & (x < np.inf))
        out[edge_one], out[edge_zero] = float(not upper), float(upper)
        inner = (a > 0) & (x > 0) & (a < np.inf) & (x < np.inf)
        ai, xi = a[inner], x[inner]
        front = np.exp(_log_front(ai, xi))
        wide = ai >= _QUADRATURE_MIN
        low = ~wide & (xi < ai + 1)
        high = ~wide & ~low
        is_upper = high | (wide & (xi >= ai))
        tail = np.empty_like(xi)
        tail[wide] = _quadrature(ai[wide], xi[wide])[0]
        tail[low] = _series(ai[low], xi[low])[0] / ai[low]
        tail[high] = _fraction(ai[high], xi[high])[0]
        tail = np.clip(tail * front, 0.0, 1.0)
        out[inner] = np.where(is_upper == upper, tail, 1.0 - tail)
    return out


def quantile_slope(a: np.ndarray, log_x: np.ndarray) -> np.ndarray:
    """d log x / da of the quantile x of a fixed probability: -(∂P/∂a) / (x f(x)), of arrays of float64."""
    a, log_x = (v.reshape(-1) for v in np.broadcast_arrays(a, log_x))
    out = np.full(a.shape, np.nan)
    with np.errstate(all="ignore"):
        inner = (a > 0) & (a < np.inf) & (log_x < np.inf) & ~np.isnan(log_x)
        ai, yi = a[inner], log_x[inner]
        xi = np.exp(yi)
        wide = ai >= _QUADRATURE_MIN
        low = ~wide & (xi < ai + 1)
        high = ~wide & ~low
        slope = np.empty_like(xi)
        moved = _quadrature(ai[wide], xi[wide], yi[wide])[1]
        slope[wide] = np.where(xi[wide] < ai[wide], -moved, moved)
        total, total_slope = _series(ai[low], xi[low])
        slope[low] = -(total * (yi[low] - _digamma(ai[low] + 1)) + total_slope) / ai[low]
        value, value_slope = _fraction(ai[high], xi[high])
        slope[high] = value * (yi[high] - _digamma(ai[high])) + value_slope
        out[inner] = slope
    return out


def _infer(op: str) -> Any:
    def infer(a: Any, x: Any) -> Spec:
        return Spec(broadcast_shapes(op, a.shape, x.shape), a.dtype)

    return infer


def _cost(a: Any, x: Any) -> int:
    return 1000 * max(num_elements(a.shape) or 0, num_elements(x.shape) or 0)


def _wide(a: Any, x: Any) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(a, np.float64), np.asarray(x, np.float64)


def _no_second_slope(g: Any) -> Any:
    raise NotImplementedError(
        "gamma: the second derivative with respect to the concentration is not implemented. Differentiate once, or "
        "detach the concentration."
    )


def _reference_slope(a: Any, log_x: Any) -> Any:
    """By bisection: log of the quantile at concentrations on both sides."""

    def quantile(p: float, a: float) -> float:
        low, high = -700.0, 20.0
        for _ in range(200):
            middle = (low + high) / 2
            below = regularized(np.array([a]), np.array([math.exp(middle)]), False)[0] < p
            low, high = (middle, high) if below else (low, middle)
        return low

    def slope(a: float, y: float) -> float:
        p, eps = regularized(np.array([a]), np.array([math.exp(y)]), False)[0], 1e-4
        return (quantile(p, a + eps) - quantile(p, a - eps)) / (2 * eps)

    return np.vectorize(slope, otypes=[float])(a, log_x)


@primitive(
    namespace="internal",
    infer=_infer("gamma"),
    promote="real float",
    broadcasts=True,
    # with L the slope: ∂L/∂log x = ψ(a) - log x - (a - x) L
    vjp=(_no_second_slope, lambda g, a, log_x, out: g * (digamma(a) - log_x - (a - exp(log_x)) * out)),
    batch="elementwise",
    cost=_cost,
    reference=_reference_slope,
    samples=lambda m: [
        Sample(m.uniform(4, low=0.3, high=3), m.normal(4)),
        Sample(np.array([4.0, 0.5]), np.array([1.8, 0.3])),
        Sample(m.uniform(0, low=0.3, high=3), m.normal(0)),
    ],
    tolerance=1e4,  # of the reference, which differentiates numerically
    test={"no_gradient": True, "dtypes": ("float32",)},  # none for the concentration; see tests/ops/test_special.py
)
def gamma_quantile_slope(a: Tensor, log_x: Tensor) -> Any:
    """How the logarithm of a quantile of the gamma distribution moves with the concentration `a`."""
    return _shaped(quantile_slope(*_wide(a, log_x)), a, log_x)


def _shaped(values: np.ndarray, a: Any, x: Any) -> np.ndarray:
    return values.reshape(np.broadcast_shapes(a.shape, x.shape)).astype(a.dtype, copy=False)


def _density(a: Any, x: Any) -> Any:
    """The density of the gamma distribution; 0 outside (0, ∞)."""
    inside = (x > 0) & (x < math.inf)
    safe = where(inside, x, 1.0)
    return where(inside, exp(xlogy(a - 1.0, safe) - safe - lgamma(a)), 0.0)


def _moved(a: Any, x: Any) -> Any:
    """∂P/∂a; 0 outside (0, ∞)."""
    inside = (x > 0) & (x < math.inf)
    safe = where(inside, x, 1.0)
    return where(inside, -safe * _density(a, safe) * gamma_quantile_slope(a, log(safe)), 0.0)


def _reference_integral(upper: bool) -> Any:
    def one(a: float, x: float) -> float:
        p = math.fsum(math.exp((a + n) * math.log(x) - x - math.lgamma(a + n + 1)) for n in range(120))
        return 1 - p if upper else p

    return np.vectorize(one, otypes=[float])


def _samples(m: Any) -> list[Sample]:
    pairs: tuple[tuple[Any, Any], ...] = (((), ()), ((3,), (3,)), ((2, 1), (3,)), ((0,), ()))
    return [Sample(m.uniform(*a, low=0.6, high=3), m.uniform(*b, low=0.3, high=5)) for a, b in pairs]


def _errors(op: str) -> Any:
    return lambda m: [
        Bad(ValueError, f"{op}: shapes do not broadcast", m.positive(2), m.positive(3)),
        Bad(TypeError, f"{op}: expected a real tensor", m.positive(2) + 1j, m.positive(2)),
    ]


@primitive(
    namespace="special",
    infer=_infer("gammainc"),
    promote="real float",
    broadcasts=True,
    vjp=(lambda g, a, x: g * _moved(a, x), lambda g, a, x: g * _density(a, x)),
    batch="elementwise",
    cost=_cost,
    reference=_reference_integral(False),
    samples=_samples,
    errors=_errors("gammainc"),
    test={"first_order_only": True},
)
def gammainc(a: Tensor, x: Tensor) -> Any:
    """Regularized lower incomplete gamma function P(a, x): the gamma distribution function of concentration `a`.

    Args:
        a: positive.
        x: not negative.

    Gradients flow to both arguments; the second derivative exists with respect to `x` alone.

    >>> wf.special.gammainc(wf.tensor(1.0), wf.tensor([0.0, 1.0]))
    tensor([0.   , 0.632...])
    """
    return _shaped(regularized(*_wide(a, x), upper=False), a, x)


@primitive(
    namespace="special",
    infer=_infer("gammaincc"),
    promote="real float",
    broadcasts=True,
    vjp=(lambda g, a, x: -g * _moved(a, x), lambda g, a, x: -g * _density(a, x)),
    batch="elementwise",
    cost=_cost,
    reference=_reference_integral(True),
    samples=_samples,
    errors=_errors("gammaincc"),
    test={"first_order_only": True},
)
def gammaincc(a: Tensor, x: Tensor) -> Any:
    """Regularized upper incomplete gamma function Q(a, x) = 1 - P(a, x), accurate where it is small.

    Arguments and gradients as for `gammainc`.

    >>> wf.special.gammaincc(wf.tensor(1.0), wf.tensor([0.0, 1.0]))
    tensor([1.   , 0.367...])
    """
    return _shaped(regularized(*_wide(a, x), upper=True), a, x)
