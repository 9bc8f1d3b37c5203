"""Arithmetic on numbers: sums to powers, extrema, signs, rounding, limits, and facts about floating-point numbers."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from .... import dtypes
from ....tensor import Tensor
from ....typing import Operand
from ...core import scalar as s
from ...core.define import composite, elementwise, primitive
from ...core.registry import NOT_DIFFERENTIABLE
from ...core.samples import Bad, Sample
from ...core.samples import binary as pairs
from ...core.samples import unary as values
from ...core.scalar import Term
from ...core.spec import Spec
from .conversion import astype, conj, real
from .logic import logical_and, logical_or, where
from .transcendental import log

# Arithmetic ------------------------------------------------------------------------------------------------------------


@elementwise(neutral=((0, -0.0), (1, -0.0)), numpy=np.add, vjp=(lambda g: g, lambda g: g), reference=np.add, samples=pairs(),
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
    neutral=((1, 0.0),),
    numpy=np.subtract,
    kind="arithmetic",
    vjp=(lambda g: g, lambda g: -g),
    reference=np.subtract,
    samples=pairs(),
)
def subtract(x1: Term, x2: Term) -> Term:
    """`x1 - x2`, elementwise.

    >>> wf.subtract(wf.tensor([5, 5]), wf.tensor([1, 2]))
    tensor([4, 3])
    """
    return s.sub(x1, x2)


@elementwise(
    neutral=((0, 1.0), (1, 1.0)),
    numpy=np.multiply,
    vjp=(lambda g, x2: g * x2, lambda g, x1: g * x1),
    reference=np.multiply,
    samples=pairs(),
)
def multiply(x1: Term, x2: Term) -> Term:
    """`x1 * x2`, elementwise.

    >>> wf.multiply(wf.tensor([1, 2]), 3)
    tensor([3, 6])
    """
    return s.mul(x1, x2)


@elementwise(
    neutral=((1, 1.0),),
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
    autocast="float32",
    neutral=((1, 1.0),),
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
    check_error=ValueError,
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


@elementwise(
    identity="always", numpy=np.positive, kind="arithmetic", vjp=lambda g: g, reference=np.positive, samples=values()
)
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
    autocast="float32",
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
    from ..creation import zeros_like

    return zeros_like(x)


# Rounding and floating-point facts -------------------------------------------------------------------------------------


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


# Limits ----------------------------------------------------------------------------------------------------------------


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
