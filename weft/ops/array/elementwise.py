"""Elementwise ops: scalar expression, gradient rules and test samples of each.

Names and dtype rules follow the array API; functions such as `exp` also accept integers, which are converted to the
default float. Gradient rules are written with the ops of this file.
"""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from ... import dtypes
from ...tensor import Tensor
from ...typing import DeviceLike, DTypeLike, Operand
from ..core import scalar as s
from ..core.define import composite, elementwise, primitive
from ..core.registry import NOT_DIFFERENTIABLE
from ..core.samples import Bad, Maker, Sample
from ..core.samples import binary as pairs
from ..core.samples import unary as values
from ..core.scalar import Term
from ..core.spec import Spec

# Functions for users that are not ops; ops are public by their records.
__all__ = ["astype"]

SQRT_HALF = math.sqrt(0.5)

# Casting -------------------------------------------------------------------------------------------------------------


def _cast_array(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if dtypes.is_complex(x.dtype) and not dtypes.is_complex(dtype) and not dtypes.is_bool(dtype):
        raise TypeError(
            f"astype: a complex tensor cannot become {dtype.name}. Use `wf.real(x)`, `wf.imag(x)` or `wf.abs(x)`."
        )
    return dtypes.convert(x, dtype)


def _infer_cast(x: Any, dtype: np.dtype) -> Spec:
    if dtypes.is_complex(x.dtype) and not dtypes.is_complex(dtype) and not dtypes.is_bool(dtype):
        raise TypeError(
            f"astype: a complex tensor cannot become {dtype.name}. Use `wf.real(x)`, `wf.imag(x)` or `wf.abs(x)`."
        )
    return Spec(x.shape, dtype)


@primitive(
    accumulate="exact",
    namespace="internal",
    title="astype",
    checks_once=True,
    cost="each",
    infer=_infer_cast,
    vjp=lambda g, like_x: _back_cast(g, like_x),
    batch="elementwise",
    reference=lambda x, dtype: x.astype(dtype),
    samples=lambda m: [
        Sample(m.normal(2, 3), dtypes.float64),
        Sample(m.ints(4), dtypes.float32),
        Sample(m.normal(3), dtypes.int64),
        Sample(m.normal(3), dtypes.bool_),
        Sample(m.normal(3), dtypes.complex128),
    ],
    errors=lambda m: [Bad(TypeError, "astype: a complex tensor", np.ones(2, "complex64"), dtypes.float32)],
    test={"dtypes": ("float64",)},
)
def cast(x: Tensor, dtype: np.dtype) -> Any:
    """Convert `x` to `dtype` (a Weft dtype object), always copying: the primitive behind `astype`."""
    return _cast_array(x, dtype)  # type: ignore[arg-type]


def _back_cast(g: Tensor, like: Any) -> Tensor:
    if dtypes.is_complex(g.dtype) and not dtypes.is_complex(like.dtype):
        g = real(g)
    return astype(g, like.dtype)


def astype(x: Tensor, dtype: DTypeLike, /, *, copy: bool = False, device: DeviceLike | None = None) -> Tensor:
    """Convert `x` to `dtype`; returns `x` itself if nothing changes and `copy` is false."""
    dtype = dtypes.as_dtype(dtype)
    if x.dtype == dtype and not copy:
        return x
    return cast(x, dtype)


# Arithmetic ----------------------------------------------------------------------------------------------------------


@elementwise(numpy=np.add, vjp=(lambda g: g, lambda g: g), reference=np.add, samples=pairs(),
             errors=lambda m: [
    Bad(ValueError, r"add: shapes do not broadcast.*x1 of shape \(2, 3\) and x2 of shape \(4,\)", m.normal(2, 3), m.normal(4)),
    Bad(TypeError, "add: x2 must be a tensor. Got str", m.normal(2), "a"),
])  # fmt: skip
def add(x1: Term, x2: Term) -> Term:
    """`x1 + x2`, elementwise.

    >>> wf.add(wf.tensor([1, 2]), wf.tensor([10, 20]))
    tensor([11, 22])
    """
    return s.add(x1, x2)


@elementwise(
    numpy=np.subtract, kind="arithmetic", vjp=(lambda g: g, lambda g: -g), reference=np.subtract, samples=pairs()
)
def subtract(x1: Term, x2: Term) -> Term:
    """`x1 - x2`, elementwise.

    >>> wf.subtract(wf.tensor([5, 5]), wf.tensor([1, 2]))
    tensor([4, 3])
    """
    return s.sub(x1, x2)


@elementwise(
    numpy=np.multiply, vjp=(lambda g, x2: g * x2, lambda g, x1: g * x1), reference=np.multiply, samples=pairs()
)
def multiply(x1: Term, x2: Term) -> Term:
    """`x1 * x2`, elementwise.

    >>> wf.multiply(wf.tensor([1, 2]), 3)
    tensor([3, 6])
    """
    return s.mul(x1, x2)


@elementwise(
    numpy=np.true_divide,
    kind="float",
    vjp=(lambda g, x2: g / x2, lambda g, x2, out: -g * out / x2),
    reference=np.true_divide,
    samples=pairs(0.5, 3.0),
)
def divide(x1: Term, x2: Term) -> Term:
    """`x1 / x2`, elementwise; integers become the default float.

    >>> wf.divide(wf.tensor([1, 2]), 4)
    tensor([0.25, 0.5 ])
    """
    return s.div(x1, x2)


@elementwise(
    numpy=np.floor_divide, kind="real", vjp=NOT_DIFFERENTIABLE, reference=np.floor_divide, samples=pairs(0.5, 3.0)
)
def floor_divide(x1: Term, x2: Term) -> Term:
    """Floor of `x1 / x2`; an integer divided by zero is 0, as in NumPy.

    >>> wf.floor_divide(wf.tensor([7, -7]), 2)
    tensor([ 3, -4])
    """
    return s.floor_divide(x1, x2)


@elementwise(
    numpy=np.remainder,
    kind="real",
    vjp=(lambda g: g, lambda g, x1, x2: -g * floor_divide(x1, x2)),
    reference=np.remainder,
    samples=pairs(0.5, 3.0),
)
def remainder(x1: Term, x2: Term) -> Term:
    """Remainder of the floor division `x1 // x2`, with the sign of `x2`; 0 for an integer divided by zero, as in NumPy.

    >>> wf.remainder(wf.tensor([7, -7]), 3)
    tensor([1, 2])
    """
    return s.remainder(x1, x2)


@elementwise(
    numpy=np.power,
    kind="arithmetic",
    vjp=(lambda g, x1, x2: _power_base(g, x1, x2), lambda g, x1, out: _power_exponent(g, x1, out)),
    reference=np.power,
    samples=pairs(0.5, 3.0),
    refuse=lambda x1, x2: _refuse_negative_powers(x1, x2),
    errors=lambda m: [
        Bad(ValueError, "pow: integers to negative", m.ints(3, low=1), -1),
        Bad(ValueError, "pow: integers to negative", m.ints(200, 100, low=1), m.ints(100, low=-3, high=3)),
    ],
)
def pow(x1: Term, x2: Term) -> Term:
    """`x1 ** x2`, elementwise.

    >>> wf.pow(wf.tensor([1.0, 2.0, 3.0]), 2)
    tensor([1., 4., 9.])
    """
    return s.pow(x1, x2)


NEGATIVE_POWER = "pow: integers to negative powers are not integers. Use `x.astype(wf.float32) ** y`."


def _refuse_negative_powers(x1: np.ndarray, x2: np.ndarray) -> None:
    if x1.dtype.kind in "iu" and np.any(x2 < 0):
        raise ValueError(NEGATIVE_POWER)


@primitive(
    namespace="internal",
    title="pow",
    cost="reduce",
    infer=lambda exponent: Spec((), dtypes.bool_),
    vjp=NOT_DIFFERENTIABLE,
    effects=("check",),
    reference=lambda exponent: np.asarray(True),
    samples=lambda m: [Sample(np.array([0, 3]))],
    errors=lambda m: [Bad(ValueError, "pow: integers to negative", np.array([2, -1]))],
)
def check_exponents(exponent: Tensor) -> Any:
    """Raise ValueError for a negative integer exponent: the check of eager `pow`, for compiled programs."""
    if np.any(exponent < 0):
        raise ValueError(NEGATIVE_POWER)
    return np.asarray(True)


def _power_base(g: Any, x: Any, y: Any) -> Any:
    """d(x**y)/dx = y x**(y-1); for a constant exponent without the singularity at 0."""
    if not isinstance(y, Tensor):
        if y == 2:
            return g * x * 2
        return g * y * x ** (y - 1) if y != 0 else g * 0
    return g * where(y == 0, 0.0, y * x ** where(y == 0, 1.0, y - 1))


def _power_exponent(g: Any, x: Any, out: Any) -> Any:
    """d(x**y)/dy = x**y log x. At x = 0 it is 0 while the power is finite (y >= 0), and -inf where it is infinite."""
    if not isinstance(x, Tensor):
        return g * out * math.log(x) if x > 0 else where(isfinite(out), 0.0, g * -math.inf) if x == 0 else g * math.nan
    base = x if dtypes.is_complex(x.dtype) else where((x == 0) & isfinite(out), 1.0, x)
    return g * out * log(base)


@elementwise(numpy=np.negative, kind="arithmetic", vjp=lambda g: -g, reference=np.negative, samples=values())
def negative(x: Term) -> Term:
    """`-x`, elementwise.

    >>> wf.negative(wf.tensor([1, -2]))
    tensor([-1,  2])
    """
    return s.neg(x)


@elementwise(numpy=np.positive, kind="arithmetic", vjp=lambda g: g, reference=np.positive, samples=values())
def positive(x: Term) -> Term:
    """`+x`: a copy of `x`."""
    return s.add(x, 0) if isinstance(x, s.Expr) else np.positive(x)


@elementwise(numpy=np.square, vjp=lambda g, x: g * x * 2, reference=np.square, samples=values())
def square(x: Term) -> Term:
    """`x * x`, elementwise.

    >>> wf.square(wf.tensor([1.0, -3.0]))
    tensor([1., 9.])
    """
    return s.square(x)


@elementwise(
    numpy=np.reciprocal,
    kind="float",
    vjp=lambda g, out: -g * out * out,
    reference=np.reciprocal,
    samples=values(0.5, 3),
)
def reciprocal(x: Term) -> Term:
    """`1 / x`, elementwise.

    >>> wf.reciprocal(wf.tensor([2.0, 4.0]))
    tensor([0.5 , 0.25])
    """
    return s.reciprocal(x)


@elementwise(
    accumulate="exact",
    numpy=np.maximum,
    kind="real",
    vjp=(lambda g, x1, x2: g * _share(x1, x2, x1 > x2), lambda g, x1, x2: g * _share(x1, x2, x2 > x1)),
    reference=np.maximum,
    samples=pairs(),
)
def maximum(x1: Term, x2: Term) -> Term:
    """Elementwise maximum; NaN if either value is NaN. Equal values share the gradient.

    >>> wf.maximum(wf.tensor([-1.0, 2.0]), 0.0)
    tensor([0., 2.])
    """
    return s.maximum(x1, x2)


@elementwise(
    accumulate="exact",
    numpy=np.minimum,
    kind="real",
    vjp=(lambda g, x1, x2: g * _share(x1, x2, x1 < x2), lambda g, x1, x2: g * _share(x1, x2, x2 < x1)),
    reference=np.minimum,
    samples=pairs(),
)
def minimum(x1: Term, x2: Term) -> Term:
    """Elementwise minimum; NaN if either value is NaN. Equal values share the gradient.

    >>> wf.minimum(wf.tensor([-1.0, 2.0]), 0.0)
    tensor([-1.,  0.])
    """
    return s.minimum(x1, x2)


def _share(x: Any, y: Any, wins: Any) -> Any:
    """1 where this side is selected, 1/2 at ties, 0 elsewhere."""
    dtype = x.dtype if isinstance(x, Tensor) else y.dtype
    return where(x == y, Tensor(np.asarray(0.5, dtype)), astype(wins, dtype))


def _abs_rule(g: Tensor, x: Tensor, out: Tensor) -> Tensor:
    if dtypes.is_complex(x.dtype):  # transpose of a real-linear map, in the engine's convention
        return g * conj(x) / where(out == 0, 1.0, out)
    return g * sign(x)


@elementwise(name="abs", numpy=np.absolute, vjp=_abs_rule, reference=np.abs, samples=values())
def abs_(x: Term) -> Term:
    """Absolute value; the modulus of complex numbers.

    >>> wf.abs(wf.tensor([-1.5, 2.0]))
    tensor([1.5, 2. ])
    """
    return s.abs(x)


def _sign_rule(g: Tensor, x: Tensor) -> Tensor:
    """Zero for real numbers; for complex ones s = x / |x| varies with x: ds = (dx - s Re(s* dx)) / |x|."""
    if not dtypes.is_complex(x.dtype):
        return zeros_of(x)
    out, size = sign(x), abs_(x)
    return where(size == 0, 0.0, (g - conj(out) * real(out * g)) / where(size == 0, 1.0, size))


@elementwise(
    numpy=np.sign,
    kind="arithmetic",
    vjp=_sign_rule,
    reference=np.sign,
    samples=lambda m: [*values()(m), Sample(np.array([3 + 4j, -0.5 + 0.25j, 2j, -1 + 0j]))],
)
def sign(x: Term) -> Term:
    """Sign of x: -1, 0 or 1; x / |x| for complex numbers; NaN for NaN.

    >>> wf.sign(wf.tensor([-3.0, 0.0, 2.0]))
    tensor([-1.,  0.,  1.])
    """
    return s.sign(x)


def zeros_of(x: Tensor) -> Tensor:
    from .creation import zeros_like

    return zeros_like(x)


# Exponentials and powers -----------------------------------------------------------------------------------------------


@elementwise(numpy=np.exp, kind="float", vjp=lambda g, out: g * out, reference=np.exp, samples=values())
def exp(x: Term) -> Term:
    """Exponential function e^x.

    >>> wf.exp(wf.tensor(1.0))
    tensor(2.7182...)
    """
    return s.exp(x)


@elementwise(numpy=np.exp2, kind="float", vjp=lambda g, out: g * out * math.log(2), reference=np.exp2, samples=values())
def exp2(x: Term) -> Term:
    """2^x, elementwise."""
    return s.exp2(x)


@elementwise(numpy=np.expm1, kind="float", vjp=lambda g, out: g * (out + 1), reference=np.expm1, samples=values())
def expm1(x: Term) -> Term:
    """exp(x) - 1, accurate near zero."""
    return s.expm1(x)


@elementwise(numpy=np.log, kind="float", vjp=lambda g, x: g / x, reference=np.log, samples=values(0.25, 4))
def log(x: Term) -> Term:
    """Natural logarithm; NaN for negative real numbers.

    >>> wf.log(wf.tensor(4.0))
    tensor(1.3862...)
    """
    return s.log(x)


@elementwise(numpy=np.log1p, kind="float", vjp=lambda g, x: g / (x + 1), reference=np.log1p, samples=values(-0.7, 4))
def log1p(x: Term) -> Term:
    """log(1 + x), accurate near zero.

    >>> wf.log1p(wf.tensor(1.0))
    tensor(0.6931...)
    """
    return s.log1p(x)


@elementwise(
    numpy=np.log2, kind="float", vjp=lambda g, x: g / (x * math.log(2)), reference=np.log2, samples=values(0.25, 4)
)
def log2(x: Term) -> Term:
    """Base-2 logarithm.

    >>> wf.log2(wf.tensor([1.0, 8.0]))
    tensor([0., 3.])
    """
    return s.log2(x)


@elementwise(
    numpy=np.log10, kind="float", vjp=lambda g, x: g / (x * math.log(10)), reference=np.log10, samples=values(0.25, 4)
)
def log10(x: Term) -> Term:
    """Base-10 logarithm."""
    return s.log10(x)


@elementwise(numpy=np.sqrt, kind="float", vjp=lambda g, out: g / (out * 2), reference=np.sqrt, samples=values(0.25, 4))
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
    numpy=np.tan, kind="float", vjp=lambda g, out: g * (out * out + 1), reference=np.tan, samples=values(-1, 1)
)
def tan(x: Term) -> Term:
    """Tangent of x in radians."""
    return s.tan(x)


@elementwise(
    numpy=np.arcsin, kind="float", vjp=lambda g, x: g / sqrt(1 - x * x), reference=np.arcsin, samples=values(-0.9, 0.9)
)
def asin(x: Term) -> Term:
    """Inverse sine, in [-π/2, π/2]."""
    return s.asin(x)


@elementwise(
    numpy=np.arccos, kind="float", vjp=lambda g, x: -g / sqrt(1 - x * x), reference=np.arccos, samples=values(-0.9, 0.9)
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


@elementwise(numpy=np.sinh, kind="float", vjp=lambda g, x: g * cosh(x), reference=np.sinh, samples=values())
def sinh(x: Term) -> Term:
    """Hyperbolic sine."""
    return s.sinh(x)


@elementwise(numpy=np.cosh, kind="float", vjp=lambda g, x: g * sinh(x), reference=np.cosh, samples=values())
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


# Rounding and floating-point facts ---------------------------------------------------------------------------------------


def _rounding(name: str, expression: Any, ufunc: Any, doc: str) -> Any:
    def body(x: Term) -> Term:
        if isinstance(x, np.ndarray) and x.dtype.kind in "iub":
            return x.copy()
        return expression(x)

    body.__name__, body.__doc__ = name, doc
    return elementwise(
        vjp=lambda g, x: zeros_of(x),
        kind="real" if name != "round" else "numeric",
        reference=ufunc,
        samples=values(),
        test={"linear_pieces": True},
    )(body)


floor = _rounding(
    "floor",
    s.floor,
    np.floor,
    "Largest integer not above x.\n\n>>> wf.floor(wf.tensor([1.7, -1.2]))\ntensor([ 1., -2.])",
)
ceil = _rounding(
    "ceil", s.ceil, np.ceil, "Smallest integer not below x.\n\n>>> wf.ceil(wf.tensor([1.2, -1.7]))\ntensor([ 2., -1.])"
)
trunc = _rounding("trunc", s.trunc, np.trunc, "Round towards zero.")
round = _rounding(
    "round",
    s.round,
    np.round,
    "Round to the nearest integer, ties to even.\n\n>>> wf.round(wf.tensor([0.5, 1.5, 2.6]))\ntensor([0., 2., 3.])",
)


def _predicate(name: str, expression: Any, ufunc: Any, doc: str, kind: str = "numeric") -> Any:
    def body(x: Term) -> Term:
        return ufunc(x) if isinstance(x, np.ndarray) and x.dtype.kind in "cfiub" else expression(x)

    body.__name__, body.__doc__ = name, doc
    return elementwise(
        vjp=NOT_DIFFERENTIABLE,
        kind=kind,
        reference=ufunc,
        samples=lambda m: [Sample(m.normal(3)), Sample(np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0]))],
    )(body)


isnan = _predicate(
    "isnan",
    s.isnan,
    np.isnan,
    "Whether x is NaN.\n\n>>> wf.isnan(wf.tensor([1.0, float('nan')]))\ntensor([False,  True])",
)
isinf = _predicate("isinf", s.isinf, np.isinf, "Whether x is infinite.")
isfinite = _predicate("isfinite", s.isfinite, np.isfinite, "Whether x is neither infinite nor NaN.")
signbit = _predicate(
    "signbit", s.signbit, np.signbit, "Whether the sign bit of x is set (true for -0.0).", "real float"
)


@elementwise(
    numpy=np.copysign,
    kind="real float",
    vjp=(
        lambda g, x1, out: g * where(x1 == 0, 0.0, where(signbit(x1) == signbit(out), 1.0, -1.0)),
        lambda g, x2: zeros_of(x2),
    ),
    reference=np.copysign,
    samples=pairs(0.5, 3),
)
def copysign(x1: Term, x2: Term) -> Term:
    """Magnitude of x1 with the sign of x2."""
    return s.copysign(x1, x2)


@elementwise(
    numpy=np.nextafter,
    kind="wide float",
    vjp=NOT_DIFFERENTIABLE,
    reference=np.nextafter,
    samples=pairs(),
    test={"dtypes": ("float64",)},
)
def nextafter(x1: Term, x2: Term) -> Term:
    """Next representable number after x1 towards x2, in float32 or float64."""
    return s.nextafter(x1, x2)


# Comparison and logic ----------------------------------------------------------------------------------------------------


def _comparison(name: str, expression: Any, ufunc: Any, symbol: str, kind: str = "real") -> Any:
    def body(x1: Term, x2: Term) -> Term:
        return expression(x1, x2)

    body.__name__, body.__doc__ = name, f"`x1 {symbol} x2`, elementwise."
    facts: dict[str, Any] = {"vjp": NOT_DIFFERENTIABLE, "kind": kind, "reference": ufunc, "samples": pairs()}
    return elementwise(accumulate="exact", numpy=ufunc, **facts)(body)


equal = _comparison("equal", s.eq, np.equal, "==", "numeric")
not_equal = _comparison("not_equal", s.ne, np.not_equal, "!=", "numeric")
less = _comparison("less", s.lt, np.less, "<")
less_equal = _comparison("less_equal", s.le, np.less_equal, "<=")
greater = _comparison("greater", s.gt, np.greater, ">")
greater_equal = _comparison("greater_equal", s.ge, np.greater_equal, ">=")


def _bit_samples(m: Maker) -> list[Sample]:
    return [Sample(m.ints(3), m.ints(3)), Sample(m.bools(2, 3), m.bools(3)), Sample(m.ints(0), m.ints(1))]


def _shift_samples(m: Maker) -> list[Sample]:
    return [Sample(m.ints(3, low=0), m.ints(3, low=0)), Sample(m.ints(2, 3), m.ints(3, low=0))]


def _bitwise(
    name: str, expression: Any, ufunc: Any, doc: str, kind: str = "bitwise", samples: Any = _bit_samples
) -> Any:
    def body(x1: Term, x2: Term) -> Term:
        return expression(x1, x2)

    body.__name__, body.__doc__ = name, doc
    return elementwise(
        numpy=ufunc, vjp=NOT_DIFFERENTIABLE, kind=kind, reference=ufunc, samples=samples,
        errors=lambda m: [Bad(TypeError, f"{name}: expected integer", m.normal(2), m.normal(2))],
    )(body)  # fmt: skip


bitwise_and = _bitwise("bitwise_and", s.bitwise_and, np.bitwise_and, "Bitwise and.")
bitwise_or = _bitwise("bitwise_or", s.bitwise_or, np.bitwise_or, "Bitwise or.")
bitwise_xor = _bitwise("bitwise_xor", s.bitwise_xor, np.bitwise_xor, "Bitwise exclusive or.")
bitwise_left_shift = _bitwise(
    "bitwise_left_shift", s.left_shift, np.left_shift, "x1 shifted left by x2 bits.", "integer", _shift_samples
)
bitwise_right_shift = _bitwise(
    "bitwise_right_shift", s.right_shift, np.right_shift, "x1 shifted right by x2 bits.", "integer", _shift_samples
)


@elementwise(
    numpy=np.invert, kind="bitwise", vjp=NOT_DIFFERENTIABLE, reference=np.invert,
    samples=lambda m: [Sample(m.ints(4)), Sample(m.bools(3))],
)  # fmt: skip
def bitwise_invert(x: Term) -> Term:
    """Bitwise not; logical not for bools."""
    return s.bitwise_not(x)


def _logic(name: str, expression: Any, ufunc: Any, doc: str) -> Any:
    def body(x1: Term, x2: Term) -> Term:
        return expression(x1, x2)

    body.__name__, body.__doc__ = name, doc
    return elementwise(
        vjp=NOT_DIFFERENTIABLE, kind="logical", reference=ufunc,
        samples=lambda m: [Sample(m.bools(4), m.bools(4)), Sample(m.ints(2, 3, low=0, high=2), m.bools(3))],
    )(body)  # fmt: skip


logical_and = _logic("logical_and", s.bitwise_and, np.logical_and, "Logical and of truth values (non-zero is true).")
logical_or = _logic("logical_or", s.bitwise_or, np.logical_or, "Logical or of truth values (non-zero is true).")
logical_xor = _logic(
    "logical_xor", s.bitwise_xor, np.logical_xor, "Logical exclusive or of truth values (non-zero is true)."
)


@elementwise(
    kind="logical", vjp=NOT_DIFFERENTIABLE, reference=np.logical_not,
    samples=lambda m: [Sample(m.bools(4)), Sample(m.ints(3, low=0, high=2))],
)  # fmt: skip
def logical_not(x: Term) -> Term:
    """Logical not of truth values (non-zero is true).

    >>> wf.logical_not(wf.tensor([True, False]))
    tensor([False,  True])
    """
    return s.bitwise_not(x)


@elementwise(
    accumulate="exact",
    kind="select",
    vjp=(None, lambda g, condition: where(condition, g, 0.0), lambda g, condition: where(condition, 0.0, g)),
    reference=np.where,
    samples=lambda m: [
        Sample(m.bools(2, 3), m.normal(2, 3), m.normal(2, 3)),
        Sample(m.bools(3), m.normal(2, 3), m.normal(1)),
        Sample(m.bools(2, 1), m.normal(), m.normal(3)),
    ],
)
def where(condition: Term, x1: Term, x2: Term) -> Term:
    """Choose `x1` where `condition` is true and `x2` elsewhere; the three broadcast.

    >>> x = wf.tensor([-1.0, 2.0])
    >>> wf.where(x > 0, x, 0.0)
    tensor([0., 2.])
    """
    return s.where(condition, x1, x2)


# Complex numbers -----------------------------------------------------------------------------------------------------------


def _infer_part(x: Any) -> Spec:
    return Spec(x.shape, dtypes.real_dtype(x.dtype))


def _to_complex(re: Any, im: Any) -> Any:
    return make_complex(re, im)


_complex_samples = [Sample(np.array([1 + 2j, -3 + 0.5j, 0.25 - 1j])), Sample(np.array([[1 + 1j], [2 - 1j]]))]


@primitive(
    accumulate="exact",
    checks_once=True,
    cost="each",
    infer=lambda x: Spec(x.shape, x.dtype), vjp=lambda g: conj(g), batch="elementwise", reference=np.conj,
    samples=lambda m: _complex_samples, test={"complex_only": True},
)  # fmt: skip
def conj(x: Tensor) -> Any:
    """Complex conjugate; real values are unchanged."""
    return np.conj(x) if x.dtype.kind == "c" else np.array(x)  # NumPy converts bools to int8


@primitive(
    accumulate="exact",
    checks_once=True,
    cost="each",
    infer=_infer_part, vjp=lambda g, like_x: _to_complex(g, g * 0) if dtypes.is_complex(like_x.dtype) else g,
    batch="elementwise", reference=np.real, samples=lambda m: _complex_samples, test={"complex_only": True},
)  # fmt: skip
def real(x: Tensor) -> Any:
    """Real part."""
    return np.array(np.real(x))


@primitive(
    accumulate="exact",
    checks_once=True,
    cost="each",
    infer=_infer_part, vjp=lambda g, like_x: _to_complex(g * 0, -g) if dtypes.is_complex(like_x.dtype) else g * 0,
    batch="elementwise", reference=np.imag, samples=lambda m: _complex_samples, test={"complex_only": True},
)  # fmt: skip
def imag(x: Tensor) -> Any:
    """Imaginary part; zeros for a real tensor."""
    return np.array(np.imag(x))


def _infer_complex(real: Any, imag: Any) -> Spec:
    from ..core.spec import broadcast_shapes

    if not dtypes.is_floating(real.dtype):
        raise TypeError(f"make_complex: expected real floating tensors. Got {real.dtype.name}.")
    return Spec(broadcast_shapes("make_complex", real.shape, imag.shape), dtypes.complex_dtype(real.dtype))


@primitive(
    accumulate="exact",
    cost="each",
    infer=_infer_complex, promote="real float", broadcasts=True, batch="elementwise",
    vjp=(lambda g: g.real_part(), lambda g: -g.imag_part()),
    reference=lambda re, im: re + 1j * im,
    samples=lambda m: [Sample(m.normal(3), m.normal(3)), Sample(m.normal(2, 1), m.normal(2))],
)  # fmt: skip
def make_complex(real: Tensor, imag: Tensor) -> Any:
    """Complex tensor with the given real and imaginary parts."""
    return np.asarray(real + 1j * imag, dtypes.complex_dtype(real.dtype))


@composite(reference=np.angle, samples=lambda m: _complex_samples, test={"complex_only": True})
def angle(x: Tensor) -> Tensor:
    """Phase of complex numbers, in [-π, π]."""
    return atan2(imag(x), real(x))


# Functions of models and statistics ------------------------------------------------------------------------------------------


@elementwise(
    kind="real float", vjp=lambda g, x: g * exp(-x * x) * (2 / math.sqrt(math.pi)), reference=s.erf, samples=values()
)
def erf(x: Term) -> Term:
    """Error function.

    >>> wf.erf(wf.tensor(1.0))
    tensor(0.8427...)
    """
    return s.erf(x)


@elementwise(
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


@elementwise(
    accumulate="exact",
    namespace="internal",
    title="clip",
    numpy=np.maximum,
    kind="real",
    vjp=(lambda g, x, low: where(x >= low, g, 0.0), lambda g, x, low: where(x < low, g, 0.0)),
    reference=np.maximum,
    samples=pairs(),
)
def limit_below(x: Term, low: Term) -> Term:
    """max(x, low); at equality the gradient goes to `x`."""
    return s.maximum(x, low)


@elementwise(
    accumulate="exact",
    namespace="internal",
    title="clip",
    numpy=np.minimum,
    kind="real",
    vjp=(lambda g, x, high: where(x <= high, g, 0.0), lambda g, x, high: where(x > high, g, 0.0)),
    reference=np.minimum,
    samples=pairs(),
)
def limit_above(x: Term, high: Term) -> Term:
    """min(x, high); at equality the gradient goes to `x`."""
    return s.minimum(x, high)


@elementwise(
    accumulate="exact",
    namespace="internal",
    title="clip",
    kind="real",
    vjp=(
        lambda g, x, low, high: where(logical_and(x >= low, x <= high), g, 0.0),
        lambda g, x, low, high: where(logical_and(x < low, low < high), g, 0.0),
        lambda g, x, low, high: where(logical_or(x > high, high < low), g, 0.0),
    ),
    reference=lambda x, low, high: np.minimum(np.maximum(x, low), high),
    samples=lambda m: [
        Sample(m.normal(2, 3), m.uniform(3, low=-1, high=-0.1), m.uniform(2, 1, low=0.1, high=1)),
        Sample(m.normal(4), -0.25, m.uniform(4, low=0.1, high=1)),
        Sample(m.normal(4), m.uniform(4, low=-1, high=-0.1), 0.5),
    ],
)
def limit_between(x: Term, low: Term, high: Term) -> Term:
    """min(max(x, low), high), with PyTorch's gradients, also at equality."""
    return s.minimum(s.maximum(x, low), high)


@composite(
    reference=lambda x, min=None, max=None: np.clip(x, min, max),
    samples=lambda m: [
        Sample(m.normal(2, 3), -0.5, 0.5),
        Sample(m.normal(4), min=0.1),
        Sample(m.normal(4), max=0.1),
        Sample(m.normal(4), None, None),
        Sample(m.normal(2, 3), m.uniform(3, low=-1, high=-0.1), m.uniform(2, 1, low=0.1, high=1)),
        Sample(m.normal(3), m.uniform(2, 1), None),
    ],
    errors=lambda m: [Bad(OverflowError, "clip: max=-1 is beyond every uint8", np.array([1], np.uint8), max=-1)],
)
def clip(x: Tensor, /, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """Limit `x` to the interval [min, max].

    Args:
        x: any real shape.
        min: the lower bound: None, a number, or a tensor that broadcasts and takes part in promotion.
        max: the upper bound, likewise; it wins where `min` is above `max`.

    The gradient of `x` is 1 from `min` to `max` inclusive; that of a bound is 1 where `x` lies beyond it.

    >>> wf.clip(wf.tensor([-2.0, 0.5, 3.0]), -1, 1)
    tensor([-1. ,  0.5,  1. ])
    """
    low, high = _bound(x, min, 0), _bound(x, max, 1)
    if high is None:
        return positive(x) if low is None else limit_below(x, low)
    if low is None:
        return limit_above(x, high)
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        return limit_between(x, low, high)
    return limit_above(limit_below(x, low), high)


def _bound(x: Tensor, bound: Any, end: int) -> Any:
    """A bound as an operand; `end` is 0 for the lower bound and 1 for the upper.

    A Python number never changes the dtype of `x`; an integer outside the range of that dtype has no effect.
    """
    if bound is None or isinstance(bound, Tensor):
        return bound
    if isinstance(bound, (np.ndarray, np.generic)):
        return Tensor(bound)
    if dtypes.is_integral(x.dtype):
        if isinstance(bound, float):
            raise TypeError(
                f"clip: a float bound {bound} does not fit an {x.dtype.name} tensor. Cast the tensor first."
            )
        if isinstance(bound, int):
            limits = np.iinfo(x.dtype)
            if bound > limits.max if end == 0 else bound < limits.min:
                raise OverflowError(
                    f"clip: {('min', 'max')[end]}={bound} is beyond every {x.dtype.name}. Got a tensor of {x.dtype.name}, "
                    f"{limits.min} to {limits.max}; cast the tensor first, for example `x.astype(wf.int64)`."
                )
            return builtins.max(bound, int(limits.min)) if end == 0 else builtins.min(bound, int(limits.max))
    return bound
