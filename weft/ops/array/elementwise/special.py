"""Special functions: the gamma and error functions, their inverses and logarithms, and x log y with its limits.

Bessel functions are in `bessel.py`, incomplete gamma functions in `weft.ops.array.incomplete_gamma`, functions composed of
these in `weft.ops.array.special_functions`. `weft.special` collects all of them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import numpy_special
from ...core import scalar as s
from ...core.define import elementwise
from ...core.samples import Sample
from ...core.samples import binary as pairs
from ...core.samples import unary as values
from ...core.scalar import Term
from .logic import where
from .transcendental import cos, exp, log, log1p, sin

# The gamma function ----------------------------------------------------------------------------------------------------

_SHIFT = 10  # arguments below it are moved up by as much, to where the asymptotic series is accurate


def _product(count: int) -> list[int]:
    """The coefficients, lowest power first, of (x + 1) … (x + count)."""
    c = [1]
    for k in range(1, count + 1):
        c = [k * a + b for a, b in zip([*c, 0], [0, *c], strict=True)]
    return c


def _times(a: list[int], b: list[int]) -> list[int]:
    out = [0] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            out[i + j] += x * y
    return out


def _derivative(c: list[int]) -> list[int]:
    return [k * a for k, a in enumerate(c)][1:]


# With P(x) = (x + 1) … (x + 9), the sum of 1 / (x + k) is P' / P and that of 1 / (x + k)² is (P'² - P P'') / P².
_P = _product(_SHIFT - 1)
_P1 = _derivative(_P)
_P2 = [a - b for a, b in zip(_times(_P1, _P1), _times(_P, _derivative(_P1)), strict=True)]
# B₂ₖ / (2k) and B₂ₖ, of the asymptotic series in 1 / x²
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
_TRIGAMMA = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


def polynomial(x: Term, coefficients: Any) -> Term:
    """A polynomial with these coefficients, lowest power first."""
    total = x * 0.0 + float(coefficients[-1])
    for c in coefficients[-2::-1]:
        total = total * x + float(c)
    return total


def _each(fn: Any) -> Any:
    """A function of Python numbers over arrays: the references of the table's tests."""
    return lambda *arrays: np.vectorize(fn, otypes=[np.float64])(*arrays)


def _reference_digamma(x: float) -> float:
    total = 0.0
    while x < 30:
        total, x = total - 1 / x, x + 1
    return total + math.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4) - 1 / (252 * x**6)


def _reference_trigamma(x: float) -> float:
    total = 0.0
    while x < 30:
        total, x = total + 1 / x**2, x + 1
    return total + 1 / x + 1 / (2 * x**2) + 1 / (6 * x**3) - 1 / (30 * x**5) + 1 / (42 * x**7)


@elementwise(
    autocast="float32",
    kind="real float",
    vjp=lambda g, x: g * digamma(x),
    reference=_each(math.lgamma),
    samples=values(0.25, 6),
)
def lgamma(x: Term) -> Term:
    """Logarithm of the absolute value of the gamma function; infinite at 0, -1, -2 …

    >>> wf.lgamma(wf.tensor([1.0, 5.0])).exp().round().tolist()
    [1.0, 24.0]
    """
    return s.lgamma(x)


@elementwise(
    autocast="float32",
    kind="real float",
    vjp=lambda g, x: g * trigamma(x),
    reference=_each(_reference_digamma),
    samples=values(0.25, 6),
)
def digamma(x: Term) -> Term:
    """Derivative of `lgamma`; -inf at 0, NaN at negative integers.

    >>> wf.digamma(wf.tensor(1.0))
    tensor(-0.5772...)
    """
    z = s.where(x < 0.0, 1.0 - x, x)
    small = z < float(_SHIFT)
    y = s.where(small, z + float(_SHIFT), z)
    r = 1.0 / (y * y)
    high = s.log(y) - 0.5 / y - r * polynomial(r, _DIGAMMA)
    low = high - 1.0 / z - polynomial(z, _P1) / polynomial(z, _P)
    value = s.where(small, low, high)
    # ψ(x) = ψ(1 - x) - π / tan(π x); the tangent of the fraction, which is exact
    fraction = x - s.round(x)
    reflected = value - math.pi / s.tan(fraction * math.pi)
    reflected = s.where(s.eq(fraction, 0.0), math.nan, reflected)
    return s.where(x < 0.0, reflected, value)


@elementwise(
    namespace="internal",
    autocast="float32",
    kind="real float",
    vjp=lambda g, x: g * zeta(3.0, x) * -2,
    reference=_each(_reference_trigamma),
    samples=values(0.25, 6),
)
def trigamma(x: Term) -> Term:
    """Derivative of `digamma`."""
    z = s.where(x < 0.0, 1.0 - x, x)
    small = z < float(_SHIFT)
    y = s.where(small, z + float(_SHIFT), z)
    r = 1.0 / (y * y)
    high = (1.0 + r * polynomial(r, _TRIGAMMA)) / y + 0.5 * r
    p, inverse = polynomial(z, _P), 1.0 / z
    low = high + inverse * inverse + polynomial(z, _P2) / p / p
    value = s.where(small, low, high)
    sine = s.sin((x - s.round(x)) * math.pi)
    return s.where(x < 0.0, (math.pi * math.pi) / (sine * sine) - value, value)


_ZETA_TERMS = 10  # terms added up before the Euler–Maclaurin formula takes over
# B₂ₖ / (2k)!
_ZETA = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600,
    -3617 / 10670622842880000, 43867 / 5109094217170944000, -174611 / 802857662698291200000,
)  # fmt: skip


def _positive_zeta(x: Term, q: Term) -> Term:
    """The Hurwitz zeta function for x > 1 and q > 0."""
    total = s.pow(q, -x)
    for k in range(1, _ZETA_TERMS):
        total = total + s.pow(q + float(k), -x)
    w = q + float(_ZETA_TERMS)
    power = s.pow(w, -x)
    total = total + power * w / (x - 1.0) + power * 0.5
    inverse = 1.0 / w
    term = power * inverse * x
    for j, c in enumerate(_ZETA):
        total = total + term * c
        term = term * ((x + float(2 * j + 1)) * inverse) * ((x + float(2 * j + 2)) * inverse)
    return total


def _no_order_gradient(g: Any) -> Any:
    raise NotImplementedError(
        "zeta: the gradient with respect to its first argument, the exponent, is not implemented. Pass `x1.detach()`."
    )


def _reference_zeta(x: float, q: float) -> float:
    n = 2000
    return (
        sum((q + k) ** -x for k in range(n))
        + (q + n) ** (1 - x) / (x - 1)
        + (q + n) ** -x / 2
        + x * (q + n) ** (-x - 1) / 12
    )


@elementwise(
    namespace="special",
    autocast="float32",
    kind="real float",
    vjp=(_no_order_gradient, lambda g, x1, x2: g * -x1 * zeta(x1 + 1, x2)),
    reference=_each(_reference_zeta),
    samples=lambda m: [
        Sample(m.uniform(*a, low=1.5, high=4), m.uniform(*b, low=0.3, high=4))
        for a, b in (((), ()), ((5,), (5,)), ((2, 3), (3,)), ((3,), ()), ((0,), ()))
    ],
    test={"no_gradient": True},  # there is none for the exponent; tests/ops/test_special.py has that of x2
)
def zeta(x1: Term, x2: Term) -> Term:
    """Hurwitz zeta function: the sum of 1 / (k + x2)^x1 over k = 0, 1, 2 …; `zeta(x, 1)` is Riemann's.

    Args:
        x1: the exponent, above 1.
        x2: infinite at 0, -1, -2 …; elsewhere below 0 the exponent must be an integer.

    >>> wf.special.zeta(wf.tensor(2.0), wf.tensor(1.0)) * 6 / wf.pi**2
    tensor(1.)
    """
    # Below zero the terms left of it are those of two other series, with the sign of (-1)^x1.
    negative = x2 < 0.0
    fraction = x2 - s.floor(x2)
    direct = _positive_zeta(x1, s.where(negative, fraction, x2))
    left = _positive_zeta(x1, 1.0 - fraction) - _positive_zeta(x1, s.where(negative, 1.0 - x2, 1.0))
    odd = s.ne(x1 - 2.0 * s.floor(x1 * 0.5), 0.0)
    mirrored = s.where(s.eq(x1, s.floor(x1)), direct + s.where(odd, -left, left), math.nan)
    value = s.where(negative, mirrored, direct)
    pole = s.logical_and(x2 <= 0.0, s.eq(fraction, 0.0))
    value = s.where(s.logical_or(pole, s.eq(x1, 1.0)), math.inf, value)
    return s.where(x1 < 1.0, math.nan, value)


# Error functions and the normal distribution ----------------------------------------------------------------------------

# Wichura, "The percentage points of the normal distribution" (algorithm AS 241, 1988): rational approximations near the
# centre, of the tail, and of the far tail; lowest power first.
_CENTRE = (
    (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
     4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
     2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
)  # fmt: skip
_TAIL = (
    (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
     1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
     1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
)  # fmt: skip
_FAR_TAIL = (
    (6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
     2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
     7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15),
)  # fmt: skip


def _ratio(x: Term, parts: tuple[tuple[float, ...], tuple[float, ...]]) -> Term:
    return polynomial(x, parts[0]) / polynomial(x, parts[1])


def _normal_quantile(q: Term, tail: Term) -> Term:
    """The quantile of probability 1/2 + q, where `tail` is 1/2 - |q|: given apart, it is accurate for tiny tails."""
    centre = q * _ratio(0.180625 - q * q, _CENTRE)
    r = s.sqrt(-s.log(tail))
    far = s.where(r > 5.0, _ratio(r - 5.0, _FAR_TAIL), _ratio(r - 1.6, _TAIL))
    far = s.where(s.eq(tail, 0.0), math.inf, far)
    return s.where(s.abs(q) <= 0.425, centre, s.copysign(far, q))


def _reference_quantile(p: float) -> float:
    """By bisection of the normal distribution function."""
    low, high = -40.0, 40.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erfc(-middle / math.sqrt(2)) / 2 < p else (low, middle)
    return low


@elementwise(
    autocast="float32",
    kind="real float",
    vjp=lambda g, out: g * exp(out * out) * (math.sqrt(math.pi) / 2),
    reference=_each(lambda x: _reference_quantile((x + 1) / 2) / math.sqrt(2)),
    samples=values(-0.95, 0.95),
)
def erfinv(x: Term) -> Term:
    """Inverse of the error function; infinite at -1 and 1, NaN outside.

    >>> wf.erfinv(wf.tensor([0.0, 1.0]))
    tensor([ 0., inf])
    """
    return _normal_quantile(x * 0.5, 0.5 - s.abs(x) * 0.5) * math.sqrt(0.5)


@elementwise(
    namespace="special",
    autocast="float32",
    kind="real float",
    vjp=lambda g, out: g * exp(out * out * 0.5) * math.sqrt(2 * math.pi),
    reference=_each(_reference_quantile),
    samples=values(0.02, 0.98),
)
def ndtri(x: Term) -> Term:
    """Quantile of the standard normal distribution: the inverse of `ndtr`.

    >>> wf.special.ndtri(wf.tensor([0.025, 0.5])).tolist()
    [-1.959..., 0.0]
    """
    return _normal_quantile(x - 0.5, s.minimum(x, 1.0 - x))


@elementwise(
    namespace="special",
    autocast="float32",
    kind="real float",
    vjp=lambda g, x: g * exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi)),
    reference=_each(lambda x: math.erfc(-x / math.sqrt(2)) / 2),
    samples=values(),
)
def ndtr(x: Term) -> Term:
    """Distribution function of the standard normal distribution.

    >>> wf.special.ndtr(wf.tensor([0.0, 1.96]))
    tensor([0.5  , 0.975...])
    """
    return 0.5 * s.erfc(x * -math.sqrt(0.5))


def _log_scaled_erfc(a: Term) -> Term:
    """log(a · exp(a²) · erfc(a)) for a ≥ 1.25, from the rational approximations of erfc."""
    c = numpy_special
    z = 1.0 / (a * a)
    near = polynomial(z, c._RA) / polynomial(z, c._SA)
    far = polynomial(z, c._RB) / polynomial(z, c._SB)
    return s.where(a < 1.0 / 0.35, near, far) - 0.5625


_SLOPE_SERIES = tuple(-((-0.5) ** k) * math.prod(range(1, 2 * k + 2, 2)) / math.sqrt(math.pi) for k in range(7))


def _erfcx_slope(x: Any) -> Any:
    """2 x erfcx(x) - 2 / √π; where these cancel, the asymptotic series."""
    z = 1.0 / where(x > 10.0, x * x, 100.0)
    far = z * polynomial(z, _SLOPE_SERIES)
    near = where(x > 10.0, 10.0, x)
    return where(x > 10.0, far, 2.0 * near * erfcx(near) - 2 / math.sqrt(math.pi))


@elementwise(
    namespace="special",
    autocast="float32",
    kind="real float",
    vjp=lambda g, x: g * _erfcx_slope(x),
    reference=_each(lambda x: math.exp(x * x) * math.erfc(x)),
    samples=values(-3, 5),
)
def erfcx(x: Term) -> Term:
    """exp(x²) erfc(x), without underflow for large x.

    >>> wf.special.erfcx(wf.tensor([0.0, 100.0]))
    tensor([1.    , 0.0056...])
    """
    far = s.maximum(x, 1.25)
    return s.where(x < 1.25, s.exp(x * x) * s.erfc(x), s.exp(_log_scaled_erfc(far)) / far)


@elementwise(
    namespace="special",
    autocast="float32",
    kind="real float",
    vjp=lambda g, x: g * math.sqrt(2 / math.pi) / erfcx(x * -math.sqrt(0.5)),
    reference=_each(lambda x: math.log(math.erfc(-x / math.sqrt(2)) / 2)),
    samples=values(-5, 5),
)
def log_ndtr(x: Term) -> Term:
    """Logarithm of `ndtr`, accurate in both tails.

    >>> wf.special.log_ndtr(wf.tensor([0.0, -40.0]))
    tensor([-6.93...e-01, -8.046...e+02])
    """
    a = x * -math.sqrt(0.5)
    far = s.maximum(a, 1.25)
    tail = _log_scaled_erfc(far) - far * far - s.log(far) - math.log(2)
    return s.where(a < 1.25, s.log1p(s.erfc(-s.minimum(a, 1.25)) * -0.5), tail)


# Products with logarithms, and other functions with a limit -------------------------------------------------------------


def _xlogy_rule(g: Any, x1: Any, x2: Any) -> Any:
    zero = (x1 == 0) & (x2 <= 0)
    return where(zero, 0.0, g * log(where(zero, 1.0, x2)))


@elementwise(
    autocast="float32",
    kind="real float",
    vjp=(_xlogy_rule, lambda g, x1, x2: g * x1 / x2),
    reference=lambda x1, x2: np.where(x1 == 0, 0.0, x1 * np.log(x2)),
    samples=pairs(0.25, 4),
)
def xlogy(x1: Term, x2: Term) -> Term:
    """x1 · log(x2), and 0 where x1 is 0 (unless x2 is NaN).

    >>> wf.xlogy(wf.tensor([0.0, 2.0]), wf.tensor([0.0, 1.0]))
    tensor([0., 0.])
    """
    zero = s.logical_and(s.eq(x1, 0.0), s.logical_not(s.isnan(x2)))
    return s.where(zero, 0.0, x1 * s.log(x2))


def _xlog1py_rule(g: Any, x1: Any, x2: Any) -> Any:
    zero = (x1 == 0) & (x2 <= -1)
    return where(zero, 0.0, g * log1p(where(zero, 0.0, x2)))


@elementwise(
    namespace="special",
    autocast="float32",
    kind="real float",
    vjp=(_xlog1py_rule, lambda g, x1, x2: g * x1 / (x2 + 1)),
    reference=lambda x1, x2: np.where(x1 == 0, 0.0, x1 * np.log1p(x2)),
    samples=pairs(0.25, 4),
)
def xlog1py(x1: Term, x2: Term) -> Term:
    """x1 · log(1 + x2), and 0 where x1 is 0 (unless x2 is NaN).

    >>> wf.special.xlog1py(wf.tensor([0.0, 2.0]), wf.tensor([-1.0, 0.0]))
    tensor([0., 0.])
    """
    zero = s.logical_and(s.eq(x1, 0.0), s.logical_not(s.isnan(x2)))
    return s.where(zero, 0.0, x1 * s.log1p(x2))


@elementwise(
    namespace="special",
    autocast="float32",
    kind="real float",
    vjp=lambda g, x: g * (-log(x) - 1),
    reference=lambda x: -x * np.log(x),
    samples=values(0.25, 4),
)
def entr(x: Term) -> Term:
    """-x log(x): the elementwise entropy; 0 at 0, -inf below.

    >>> wf.special.entr(wf.tensor([0.0, 1.0])).abs()
    tensor([0., 0.])
    """
    value = s.where(x > 0.0, -x * s.log(x), s.where(s.eq(x, 0.0), x, -math.inf))
    return s.where(s.isnan(x), x, value)


def _sinc_rule(g: Any, x: Any) -> Any:
    zero = x == 0
    angle = where(zero, 1.0, x) * math.pi
    slope = (cos(angle) * angle - sin(angle)) / (angle * angle) * math.pi
    return where(zero, 0.0, g * slope)


@elementwise(kind="real float", vjp=_sinc_rule, reference=np.sinc, samples=values())
def sinc(x: Term) -> Term:
    """sin(πx) / (πx), and 1 at 0.

    >>> wf.sinc(wf.tensor([0.0, 0.5]))
    tensor([1.    , 0.6366...])
    """
    angle = x * math.pi
    return s.where(s.eq(x, 0.0), 1.0, s.sin(angle) / angle)
