"""Arithmetic and comparisons under PyTorch's and NumPy's names."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...tensor import Tensor
from ...typing import Operand
from ..array import comparison, creation
from ..array.comparison import lerp as lerp
from ..array.elementwise import (
    astype,
    clip,
    exp,
    floor_divide,
    isinf,
    isnan,
    log1p,
    maximum,
    minimum,
    multiply,
    pow,
    remainder,
    sign,
    subtract,
    trunc,
    where,
)
from ..array.elementwise import round as round_
from ..array.elementwise.arithmetic import signbit

__all__ = [
    "addcdiv", "addcmul", "clamp_max", "clamp_min", "deg2rad", "div", "float_power", "fmax", "fmin", "fmod", "frac", "frexp",
    "gcd", "heaviside", "isneginf", "isposinf", "isreal", "lcm", "ldexp", "logaddexp2", "rad2deg", "round", "rsub", "sgn",
    "threshold", "true_divide", "type_as",
]  # fmt: skip
IN_PLACE = ("lerp", "addcdiv", "addcmul", "clamp_max", "clamp_min", "fmod", "frac", "heaviside", "sgn")


def div(x: Tensor, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """`x / other`, elementwise.

    Args:
        rounding_mode: "floor" rounds down and "trunc" towards zero; integers stay integers then.

    >>> wf.div(wf.tensor([-3.0]), 2.0), wf.div(wf.tensor([-3]), 2, rounding_mode="trunc")
    (tensor([-1.5]), tensor([-1]))
    """
    if rounding_mode is None:
        return x / other
    if rounding_mode == "floor":
        return floor_divide(x, other)
    if rounding_mode != "trunc":
        raise ValueError(f"div: rounding_mode must be None, 'floor' or 'trunc'. Got {rounding_mode!r}.")
    if dtypes.is_inexact(np.result_type(x.dtype, getattr(other, "dtype", type(other)))):
        return trunc(x / other)
    down = floor_divide(x, other)  # one more where the signs differ and the division leaves a rest
    return where(((x < 0) != (creation.asarray(other) < 0)) & (down * other != x), down + 1, down)


def true_divide(x: Tensor, other: Operand) -> Tensor:
    """`x / other`.

    >>> wf.true_divide(wf.tensor([3]), 2)
    tensor([1.5])
    """
    return x / other


def rsub(x: Tensor, other: Operand, *, alpha: float = 1) -> Tensor:
    """`other - alpha * x`.

    >>> wf.rsub(wf.tensor([1.0]), 5.0)
    tensor([4.])
    """
    return subtract(other, x if alpha == 1 else x * alpha)


def fmod(x: Tensor, other: Operand) -> Tensor:
    """The rest of a division rounded towards zero: it has the sign of `x`. `remainder` has that of `other`.

    >>> wf.fmod(wf.tensor([-3.0, 3.0]), 2.0)
    tensor([-1.,  1.])
    """
    if dtypes.is_inexact(np.result_type(x.dtype, getattr(other, "dtype", type(other)))):
        # Not `abs` and `copysign`, whose gradients at 0 are 0: that of the rest is 1 everywhere.
        weak = dtypes.is_inexact(x.dtype) and isinstance(other, (int, float))
        divisor = creation.asarray(other, dtype=x.dtype if weak else None)
        below, under = (signbit(t) if dtypes.is_inexact(t.dtype) else t < 0 for t in (x, divisor))
        rest = remainder(where(below, -x, x), where(under, -divisor, divisor))
        return where(below, -rest, rest)
    return x - div(x, other, rounding_mode="trunc") * other


def frac(x: Tensor) -> Tensor:
    """What is behind the point, with the sign of `x`.

    >>> wf.frac(wf.tensor([1.5, -1.5]))
    tensor([ 0.5, -0.5])
    """
    return x - trunc(x)


def sgn(x: Tensor) -> Tensor:
    """The sign, of complex numbers `x / |x|`.

    >>> wf.sgn(wf.tensor([-2.0, 0.0]))
    tensor([-1.,  0.])
    """
    return sign(x)


def round(x: Tensor, decimals: int = 0) -> Tensor:
    """Round to the nearest integer, or to a number of decimals; halves go to the even neighbour.

    >>> wf.round(wf.tensor([1.26, 2.5])), wf.round(wf.tensor([1.26]), decimals=1)
    (tensor([1., 2.]), tensor([1.3]))
    """
    if decimals == 0:
        return round_(x)
    scale = 10.0 ** abs(decimals)
    return round_(x * scale) / scale if decimals > 0 else round_(x / scale) * scale


def clamp_min(x: Tensor, min: Operand) -> Tensor:
    """Elements, but at least `min`.

    >>> wf.clamp_min(wf.tensor([-1.0, 2.0]), 0.0)
    tensor([0., 2.])
    """
    return clip(x, min, None)


def clamp_max(x: Tensor, max: Operand) -> Tensor:
    """Elements, but at most `max`.

    >>> wf.clamp_max(wf.tensor([-1.0, 2.0]), 0.0)
    tensor([-1.,  0.])
    """
    return clip(x, None, max)


def fmax(x: Tensor, other: Tensor) -> Tensor:
    """The larger of two elements; a number wins against NaN.

    >>> wf.fmax(wf.tensor([float("nan"), 1.0]), wf.tensor([2.0, 0.0]))
    tensor([2., 1.])
    """
    return where(isnan(x), other, where(isnan(other), x, maximum(x, other)))


def fmin(x: Tensor, other: Tensor) -> Tensor:
    """The smaller of two elements; a number wins against NaN.

    >>> wf.fmin(wf.tensor([float("nan"), 1.0]), wf.tensor([2.0, 0.0]))
    tensor([2., 0.])
    """
    return where(isnan(x), other, where(isnan(other), x, minimum(x, other)))


def addcmul(x: Tensor, tensor1: Tensor, tensor2: Operand, *, value: float = 1) -> Tensor:
    """`x + value * tensor1 * tensor2`.

    >>> wf.addcmul(wf.zeros(1), wf.tensor([2.0]), wf.tensor([3.0]), value=0.5)
    tensor([3.])
    """
    product = multiply(tensor1, tensor2)
    return x + (product if value == 1 else product * value)


def addcdiv(x: Tensor, tensor1: Tensor, tensor2: Operand, *, value: float = 1) -> Tensor:
    """`x + value * tensor1 / tensor2`.

    >>> wf.addcdiv(wf.zeros(1), wf.tensor([3.0]), wf.tensor([2.0]))
    tensor([1.5])
    """
    quotient = tensor1 / tensor2
    return x + (quotient if value == 1 else quotient * value)


def float_power(x: Tensor, exponent: Operand) -> Tensor:
    """`x ** exponent` in float64.

    >>> wf.float_power(wf.tensor([2]), -1).dtype.name
    'float64'
    """
    wide = dtypes.complex128 if dtypes.is_complex(x.dtype) else dtypes.float64
    power = astype(exponent, wide) if isinstance(exponent, Tensor) else exponent
    return pow(astype(x, wide), float(power) if isinstance(power, int) else power)


def heaviside(x: Tensor, values: Tensor) -> Tensor:
    """0 for negative numbers, 1 for positive ones, `values` at zero.

    >>> wf.heaviside(wf.tensor([-1.0, 0.0, 2.0]), wf.tensor(0.5))
    tensor([0. , 0.5, 1. ])
    """
    steps = astype(x > 0, x.dtype)
    return where(x == 0, astype(values, x.dtype), where(isnan(x), x, steps))


def threshold(x: Tensor, threshold: float, value: float) -> Tensor:
    """Elements above `threshold`; `value` instead of the others.

    >>> wf.threshold(wf.tensor([0.5, 2.0]), 1.0, 0.0)
    tensor([0., 2.])
    """
    return where(x > threshold, x, creation.full((), value, dtype=x.dtype))


def ldexp(x: Tensor, other: Operand) -> Tensor:
    """`x * 2 ** other`.

    >>> wf.ldexp(wf.tensor([1.5]), wf.tensor([2]))
    tensor([6.])
    """
    power = astype(other, dtypes.float32) if isinstance(other, Tensor) else float(other)  # type: ignore[arg-type]
    return x * pow(creation.full((), 2.0), power)


def frexp(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mantissas between 0.5 and 1 and exponents of 2, so that `x = mantissa * 2 ** exponent`.

    >>> wf.frexp(wf.tensor([6.0]))
    (tensor([0.75]), tensor([3], dtype=int32))
    """
    _, exponent = np.frexp(x.detach()._array("frexp"))
    places = Tensor(exponent.astype(np.int32))
    return x * pow(creation.full((), 2.0, dtype=x.dtype), astype(-places, x.dtype)), places


def logaddexp2(x: Tensor, other: Tensor) -> Tensor:
    """`log2(2 ** x + 2 ** other)`.

    >>> wf.logaddexp2(wf.tensor([1.0]), wf.tensor([1.0]))
    tensor([2.])
    """
    high, low = maximum(x, other), minimum(x, other)
    difference = where(isinf(high) & (high == low), low * 0 + 0.0, low - high)
    difference = where(isnan(difference) & ~isnan(low), creation.zeros((), dtype=x.dtype), difference)
    return high + log1p(exp(difference * float(np.log(2)))) / float(np.log(2))


def deg2rad(x: Tensor) -> Tensor:
    """Degrees as radians.

    >>> wf.deg2rad(wf.tensor([180.0]))
    tensor([3.1415927])
    """
    return _floating(x) * float(np.pi / 180)


def rad2deg(x: Tensor) -> Tensor:
    """Radians as degrees.

    >>> wf.rad2deg(wf.tensor([3.1415927]))
    tensor([180.])
    """
    return _floating(x) * float(180 / np.pi)


def _floating(x: Tensor) -> Tensor:
    return x if dtypes.is_inexact(x.dtype) else astype(x, dtypes.get_default_dtype())


def gcd(x: Tensor, other: Tensor) -> Tensor:
    """The greatest common divisor of integers.

    >>> wf.gcd(wf.tensor([12]), wf.tensor([18]))
    tensor([6])
    """
    return Tensor(np.gcd(x._array("gcd"), _integers("gcd", other)))


def lcm(x: Tensor, other: Tensor) -> Tensor:
    """The least common multiple of integers.

    >>> wf.lcm(wf.tensor([4]), wf.tensor([6]))
    tensor([12])
    """
    return Tensor(np.lcm(x._array("lcm"), _integers("lcm", other)))


def _integers(name: str, other: Any) -> np.ndarray:
    found = (other if isinstance(other, Tensor) else creation.asarray(other))._array(name)
    if not dtypes.is_integral(found.dtype):
        raise TypeError(f"{name}: expected integers. Got {found.dtype.name}.")
    return found


def isposinf(x: Tensor) -> Tensor:
    """Whether elements are positive infinity.

    >>> wf.isposinf(wf.tensor([float("inf"), 1.0]))
    tensor([ True, False])
    """
    return isinf(x) & (x > 0)


def isneginf(x: Tensor) -> Tensor:
    """Whether elements are negative infinity.

    >>> wf.isneginf(wf.tensor([-float("inf"), 1.0]))
    tensor([ True, False])
    """
    return isinf(x) & (x < 0)


def isreal(x: Tensor) -> Tensor:
    """Whether elements have no imaginary part.

    >>> wf.isreal(wf.tensor([1 + 0j, 1j]))
    tensor([ True, False])
    """
    return x.imag == 0 if dtypes.is_complex(x.dtype) else comparison.isclose(x, x) | True


def type_as(x: Tensor, other: Tensor) -> Tensor:
    """`x` in the dtype of `other`.

    >>> wf.tensor([1.5]).type_as(wf.tensor([1])).dtype.name
    'int64'
    """
    return astype(x, other.dtype)
