"""Exponentials, logarithms, roots, trigonometric and hyperbolic functions, the error function and the sigmoid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .... import dtypes
from ....tensor import Tensor
from ...core import scalar as s
from ...core.define import elementwise
from ...core.samples import binary as pairs
from ...core.samples import unary as values
from ...core.scalar import Term
from .logic import where

# Exponentials, logarithms and roots ------------------------------------------------------------------------------------


@elementwise(
    autocast="float32", numpy=np.exp, kind="float", vjp=lambda g, out: g * out, reference=np.exp, samples=values()
)
def exp(x: Term) -> Term:
    """Exponential function e^x.

    >>> wf.exp(wf.tensor(1.0))
    tensor(2.7182...)
    """
    return s.exp(x)


@elementwise(
    autocast="float32",
    numpy=np.exp2,
    kind="float",
    vjp=lambda g, out: g * out * math.log(2),
    reference=np.exp2,
    samples=values(),
)
def exp2(x: Term) -> Term:
    """2^x, elementwise."""
    return s.exp2(x)


@elementwise(
    autocast="float32",
    numpy=np.expm1,
    kind="float",
    vjp=lambda g, out: g * (out + 1),
    reference=np.expm1,
    samples=values(),
)
def expm1(x: Term) -> Term:
    """exp(x) - 1, accurate near zero."""
    return s.expm1(x)


@elementwise(
    autocast="float32", numpy=np.log, kind="float", vjp=lambda g, x: g / x, reference=np.log, samples=values(0.25, 4)
)
def log(x: Term) -> Term:
    """Natural logarithm; NaN for negative real numbers.

    >>> wf.log(wf.tensor(4.0))
    tensor(1.3862...)
    """
    return s.log(x)


@elementwise(
    autocast="float32",
    numpy=np.log1p,
    kind="float",
    vjp=lambda g, x: g / (x + 1),
    reference=np.log1p,
    samples=values(-0.7, 4),
)
def log1p(x: Term) -> Term:
    """log(1 + x), accurate near zero.

    >>> wf.log1p(wf.tensor(1.0))
    tensor(0.6931...)
    """
    return s.log1p(x)


@elementwise(
    autocast="float32",
    numpy=np.log2,
    kind="float",
    vjp=lambda g, x: g / (x * math.log(2)),
    reference=np.log2,
    samples=values(0.25, 4),
)
def log2(x: Term) -> Term:
    """Base-2 logarithm.

    >>> wf.log2(wf.tensor([1.0, 8.0]))
    tensor([0., 3.])
    """
    return s.log2(x)


@elementwise(
    autocast="float32",
    numpy=np.log10,
    kind="float",
    vjp=lambda g, x: g / (x * math.log(10)),
    reference=np.log10,
    samples=values(0.25, 4),
)
def log10(x: Term) -> Term:
    """Base-10 logarithm."""
    return s.log10(x)


@elementwise(
    autocast="float32",
    numpy=np.sqrt,
    kind="float",
    vjp=lambda g, out: g / (out * 2),
    reference=np.sqrt,
    samples=values(0.25, 4),
)
def sqrt(x: Term) -> Term:
    """Square root; NaN for negative real numbers.

    >>> wf.sqrt(wf.tensor([4.0, 9.0]))
    tensor([2., 3.])
    """
    return s.sqrt(x)


def _norm_sqrt_rule(g: Tensor, out: Tensor) -> Tensor:
    zero = out == 0
    return where(zero, 0.0, g / (where(zero, 1.0, out) * 2))


@elementwise(
    autocast="float32",
    namespace="internal",
    title="sqrt",
    numpy=np.sqrt,
    kind="float",
    vjp=_norm_sqrt_rule,
    reference=np.sqrt,
    samples=values(0.25, 4),
)
def norm_sqrt(x: Term) -> Term:
    """Square root of a sum of squares, with gradient 0 at 0 (a subgradient of the norm)."""
    return s.sqrt(x)


@elementwise(
    autocast="float32",
    kind="real float",
    vjp=lambda g, out: g * out * out * out * -0.5,
    reference=lambda x: 1 / np.sqrt(x),
    samples=values(0.25, 4),
)
def rsqrt(x: Term) -> Term:
    """Reciprocal square root 1 / sqrt(x).

    >>> wf.rsqrt(wf.tensor([4.0, 16.0]))
    tensor([0.5 , 0.25])
    """
    return s.rsqrt(x)


@elementwise(
    autocast="float32",
    numpy=np.logaddexp,
    kind="real float",
    vjp=(lambda g, x1, x2: g * sigmoid(x1 - x2), lambda g, x1, x2: g * sigmoid(x2 - x1)),
    reference=np.logaddexp,
    samples=pairs(),
)
def logaddexp(x1: Term, x2: Term) -> Term:
    """log(exp(x1) + exp(x2)), without overflow."""
    return s.logaddexp(x1, x2)


def _nonzero(x: Any) -> Any:
    """`x` with zeros replaced by 1, as a safe divisor where the dividend is 0 too."""
    return where(x == 0, 1.0, x)


@elementwise(
    numpy=np.hypot,
    kind="real float",
    vjp=(lambda g, x1, out: g * (x1 / _nonzero(out)), lambda g, x2, out: g * (x2 / _nonzero(out))),
    reference=np.hypot,
    samples=pairs(0.5, 3),
)
def hypot(x1: Term, x2: Term) -> Term:
    """sqrt(x1² + x2²) without overflow.

    >>> wf.hypot(wf.tensor(3.0), wf.tensor(4.0))
    tensor(5.)
    """
    return s.hypot(x1, x2)


# Trigonometry ----------------------------------------------------------------------------------------------------------


@elementwise(numpy=np.sin, kind="float", vjp=lambda g, x: g * cos(x), reference=np.sin, samples=values())
def sin(x: Term) -> Term:
    """Sine of x in radians.

    >>> wf.sin(wf.tensor(1.0))
    tensor(0.8414...)
    """
    return s.sin(x)


@elementwise(numpy=np.cos, kind="float", vjp=lambda g, x: -g * sin(x), reference=np.cos, samples=values())
def cos(x: Term) -> Term:
    """Cosine of x in radians.

    >>> wf.cos(wf.tensor(1.0))
    tensor(0.5403...)
    """
    return s.cos(x)


@elementwise(
    autocast="float32",
    numpy=np.tan,
    kind="float",
    vjp=lambda g, out: g * (out * out + 1),
    reference=np.tan,
    samples=values(-1, 1),
)
def tan(x: Term) -> Term:
    """Tangent of x in radians."""
    return s.tan(x)


@elementwise(
    autocast="float32",
    numpy=np.arcsin,
    kind="float",
    vjp=lambda g, x: g / sqrt(1 - x * x),
    reference=np.arcsin,
    samples=values(-0.9, 0.9),
)
def asin(x: Term) -> Term:
    """Inverse sine, in [-π/2, π/2]."""
    return s.asin(x)


@elementwise(
    autocast="float32",
    numpy=np.arccos,
    kind="float",
    vjp=lambda g, x: -g / sqrt(1 - x * x),
    reference=np.arccos,
    samples=values(-0.9, 0.9),
)
def acos(x: Term) -> Term:
    """Inverse cosine, in [0, π]."""
    return s.acos(x)


@elementwise(numpy=np.arctan, kind="float", vjp=lambda g, x: g / (x * x + 1), reference=np.arctan, samples=values())
def atan(x: Term) -> Term:
    """Inverse tangent, in [-π/2, π/2]."""
    return s.atan(x)


def _angle_rule(g: Any, part: Any, x1: Any, x2: Any) -> Any:
    """g part / (x1² + x2²) without overflow or underflow of the squares; 0 at the origin, where no angle exists."""
    radius = _nonzero(hypot(x1, x2))
    return g * (part / radius / radius)


@elementwise(
    numpy=np.arctan2,
    kind="real float",
    vjp=(lambda g, x1, x2: _angle_rule(g, x2, x1, x2), lambda g, x1, x2: -_angle_rule(g, x1, x1, x2)),
    reference=np.arctan2,
    samples=pairs(0.5, 3),
)
def atan2(x1: Term, x2: Term) -> Term:
    """Angle of the point (x2, x1), in [-π, π].

    >>> wf.atan2(wf.tensor(1.0), wf.tensor(0.0))
    tensor(1.5707...)
    """
    return s.atan2(x1, x2)


@elementwise(
    autocast="float32", numpy=np.sinh, kind="float", vjp=lambda g, x: g * cosh(x), reference=np.sinh, samples=values()
)
def sinh(x: Term) -> Term:
    """Hyperbolic sine."""
    return s.sinh(x)


@elementwise(
    autocast="float32", numpy=np.cosh, kind="float", vjp=lambda g, x: g * sinh(x), reference=np.cosh, samples=values()
)
def cosh(x: Term) -> Term:
    """Hyperbolic cosine."""
    return s.cosh(x)


@elementwise(
    namespace="internal",
    numpy=lambda grad, result: grad * (1 - result * result),
    kind="float",
    vjp=(lambda h, result: tanh_backward(h, result), lambda h, grad, result: h * grad * result * -2),
    reference=lambda grad, result: grad * (1 - result * result),
    samples=pairs(-0.9, 0.9),
)
def tanh_backward(grad: Term, result: Term) -> Term:
    """The gradient of `tanh` from its result, in one pass: grad (1 - result²)."""
    return s.mul(grad, s.sub(1, s.mul(result, result)))


@elementwise(
    numpy=np.tanh,
    kind="float",
    vjp=lambda g, out: tanh_backward(g, out),
    small_vjp=lambda g, out: g - g * out * out,
    reference=np.tanh,
    samples=values(),
)
def tanh(x: Term) -> Term:
    """Hyperbolic tangent.

    >>> wf.tanh(wf.tensor(1.0))
    tensor(0.7615...)
    """
    return s.tanh(x)


@elementwise(
    numpy=np.arcsinh, kind="float", vjp=lambda g, x: g / sqrt(x * x + 1), reference=np.arcsinh, samples=values()
)
def asinh(x: Term) -> Term:
    """Inverse hyperbolic sine."""
    return s.asinh(x)


@elementwise(
    numpy=np.arccosh,
    kind="float",
    vjp=lambda g, x: g / (sqrt(x - 1) * sqrt(x + 1)),
    reference=np.arccosh,
    samples=values(1.25, 4),
)
def acosh(x: Term) -> Term:
    """Inverse hyperbolic cosine."""
    return s.acosh(x)


@elementwise(
    numpy=np.arctanh, kind="float", vjp=lambda g, x: g / (1 - x * x), reference=np.arctanh, samples=values(-0.9, 0.9)
)
def atanh(x: Term) -> Term:
    """Inverse hyperbolic tangent."""
    return s.atanh(x)


# Error function and sigmoid --------------------------------------------------------------------------------------------


@elementwise(
    autocast="float32",
    kind="real float",
    vjp=lambda g, x: g * exp(-x * x) * (2 / math.sqrt(math.pi)),
    reference=s.erf,
    samples=values(),
)
def erf(x: Term) -> Term:
    """Error function.

    >>> wf.erf(wf.tensor(1.0))
    tensor(0.8427...)
    """
    return s.erf(x)


@elementwise(
    autocast="float32",
    kind="real float",
    vjp=lambda g, x: -g * exp(-x * x) * (2 / math.sqrt(math.pi)),
    reference=lambda x: 1 - s.erf(x),
    samples=values(),
)
def erfc(x: Term) -> Term:
    """Complementary error function 1 - erf(x), accurate where erf(x) is near 1."""
    return s.erfc(x)


_ONE = {
    d: np.ones((), d) for d in (dtypes.float32, dtypes.float64)
}  # NumPy handles 0-d arrays faster than Python numbers


def _sigmoid_slope(g: Any, out: Any) -> Any:
    part = g * out
    return part - part * out


@elementwise(
    namespace="internal",
    numpy=lambda grad, result: grad * (result * (1 - result)),
    kind="real float",
    vjp=(lambda h, result: sigmoid_backward(h, result), lambda h, grad, result: h * grad * (1 - result * 2)),
    reference=lambda grad, result: grad * result * (1 - result),
    samples=pairs(0.1, 0.9),
)
def sigmoid_backward(grad: Term, result: Term) -> Term:
    """The gradient of `sigmoid` from its result, in one pass: grad result (1 - result)."""
    return s.mul(grad, s.mul(result, s.sub(1, result)))


@elementwise(
    # where exp overflows, NumPy warns and the general path, which suppresses that, runs
    numpy=lambda x: np.reciprocal(np.exp(np.negative(x)) + _ONE[x.dtype]),
    kind="real float",
    vjp=lambda g, out: sigmoid_backward(g, out),
    small_vjp=_sigmoid_slope,
    reference=lambda x: 1 / (1 + np.exp(-x)),
    samples=values(),
)
def sigmoid(x: Term) -> Term:
    """Logistic function 1 / (1 + exp(-x)).

    >>> wf.sigmoid(wf.tensor(2.0))
    tensor(0.8807...)
    """
    return s.sigmoid(x)
