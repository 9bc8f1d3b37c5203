"""exp, log, sin, erf … as polynomials, written in the scalar language itself.

A rule takes expressions of float32 or float64 and returns an expression of the functions that are instructions
(`instructions.EMITTERS`), so one source serves every vector width and every target, and a function costs nothing when it is
not used. Accuracy: float32 within about 2 ulp, float64 within a few, over the whole range, with the right answers for zeros
of either sign, denormals, infinities and nan. The tests measure it.

Two forms are private to this level: `_rarely(condition, slow, fast)` is `where` with a branch around `slow`, and
`_library(name, x)` calls the C library per lane. Together they handle cases too rare to be worth code for every element:
sines of huge angles, remainders of huge quotients.

Polynomials are minimax fits (lowest power first), made for this file at 60 digits and rounded coefficient by
coefficient. Constants split in parts are truncated, not rounded, so that every part is positive: then 0 * part
never turns -0 into 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ...ops.core import numpy_special as coefficients
from ...ops.core import scalar as s
from ...ops.core.scalar import FLOAT32, FLOAT64, INT32, INT64, Expr

RULES: dict[str, Callable[..., Expr]] = {}


def lower(e: Expr) -> Expr | None:
    """The expression `e` stands for, or None if it is one or a few instructions."""
    if e.fn == "pow" and (simple := _constant_power(e)) is not None:
        return simple
    rule = RULES.get(e.fn)
    if rule is None or s.kind(e.args[0].dtype) != "f":
        return None
    if e.fn == "nextafter":
        return rule(*e.args)  # one step of the operand's own format
    compute = FLOAT64 if e.args[0].dtype == FLOAT64 else FLOAT32
    return rule(*[s.cast(x, compute) for x in e.args])


def _rule(function: Callable[..., Expr]) -> Callable[..., Expr]:
    RULES[function.__name__.rstrip("_")] = function
    return function


def _rarely(condition: Expr, slow: Expr, fast: Expr) -> Expr:
    return s.make("rarely", (condition, slow, fast), fast.dtype)


def _library(name: str, *args: Expr) -> Expr:
    return s.make("library", args, args[0].dtype, name)


def _rounded(x: Expr, y: Expr) -> Expr:
    """x * y, rounded: a product that must not be fused with a later addition."""
    return s.fma(x, y, -0.0)


def _poly(x: Expr, c: Sequence[float]) -> Expr:
    total = s.const(c[-1], x.dtype)
    for a in c[-2::-1]:
        total = s.fma(total, x, a)
    return total


def _single(x: Expr) -> bool:
    return x.dtype == FLOAT32


def _bits(x: Expr) -> Expr:
    return s.bitcast(x, INT32 if _single(x) else INT64)


def _mantissa(x: Expr) -> int:
    return 23 if _single(x) else 52


def _magic(x: Expr) -> float:
    """Adding this rounds to an integer, which is then in the low bits."""
    return 1.5 * 2.0 ** _mantissa(x)


def _power_of_two(n: Expr, like: Expr) -> Expr:
    """2.0 ** n for an integer n of normal range."""
    bias = 127 if _single(like) else 1023
    return s.bitcast((n + bias) << _mantissa(like), like.dtype)


def _at_most(x: Expr, limit: float) -> Expr:
    return s.where(x > limit, limit, x)  # nan passes


def _at_least(x: Expr, limit: float) -> Expr:
    return s.where(x < limit, limit, x)


# ------------------------------------------------------------------------------------------------ exponentials

_LN2_32 = (0.6931471228599548, 5.769998878690785e-08)
_LN2_64 = (0.6931471805599453, 2.3190468138462996e-17)
_LOG2E = 1.4426950408889634
# (exp(r) - 1 - r) / r**2 for |r| <= ln(2) / 2
_EXP_32 = (0.5, 0.16666541993618011, 0.04166628047823906, 0.008366645313799381, 0.0013946538092568517)
_EXP_64 = (
    0.5, 0.16666666666666677, 0.0416666666666667, 0.008333333333321532, 0.0013888888888866568,
    0.0001984126988640145, 2.480158736105145e-05, 2.755724391131049e-06, 2.7557242356578564e-07,
    2.5109147519186348e-08, 2.0924563681140176e-09,
)  # fmt: skip


def _expm1_reduced(r: Expr) -> Expr:
    """exp(r) - 1 for |r| <= ln(2) / 2."""
    return s.fma(r * r, _poly(r, _EXP_32 if _single(r) else _EXP_64), r)


def _split_exponent(x: Expr) -> tuple[Expr, Expr, Expr]:
    """(n, n as a float, r): x = n ln 2 + r, n an integer."""
    magic = _magic(x)
    shifted = s.fma(x, s.const(_LOG2E, x.dtype), magic)
    whole = shifted - magic
    high, low = _LN2_32 if _single(x) else _LN2_64
    r = s.fma(whole, -low, s.fma(whole, -high, x))
    return _bits(shifted) - _bits(s.const(magic, x.dtype)), whole, r


def _scale(x: Expr, n: Expr, whole: Expr) -> Expr:
    """x * 2**n, for n both as an integer and as a float; one instruction on some targets."""
    return s.make("scale", (x, n, whole), x.dtype)


def scale_in_steps(x: Expr, n: Expr) -> Expr:
    """x * 2**n in two steps, so that neither factor over- or underflows before the product does."""
    half = n >> 1
    return _rounded(x, _power_of_two(half, x)) * _power_of_two(n - half, x)


def _exp_sum(x: Expr, tail: Expr | None = None) -> Expr:
    """exp(x + tail), tail tiny."""
    x = _at_least(_at_most(x, 89.0 if _single(x) else 710.0), -104.0 if _single(x) else -746.0)
    n, whole, r = _split_exponent(x)
    if tail is not None:
        r = r + tail
    return _scale(1.0 + _expm1_reduced(r), n, whole)


def _exp_moderate(x: Expr) -> Expr:
    """exp(x) where the result is a normal number."""
    n, whole, r = _split_exponent(x)
    return _scale(1.0 + _expm1_reduced(r), n, whole)


@_rule
def exp(x: Expr) -> Expr:
    return _exp_sum(x)


@_rule
def exp2(x: Expr) -> Expr:
    x = _at_least(_at_most(x, 129.0 if _single(x) else 1025.0), -151.0 if _single(x) else -1076.0)
    magic = _magic(x)
    shifted = x + magic
    whole = shifted - magic
    r = (x - whole) * math.log(2)
    return _scale(1.0 + _expm1_reduced(r), _bits(shifted) - _bits(s.const(magic, x.dtype)), whole)


@_rule
def expm1(x: Expr) -> Expr:
    # 2 * (q * 2**(n-1) + (2**(n-1) - 1/2)): half the scale, because 2**n itself may overflow.
    clamped = _at_least(_at_most(x, 89.0 if _single(x) else 710.0), -30.0 if _single(x) else -60.0)
    n, _, r = _split_exponent(clamped)
    scale = _power_of_two(n - 1, x)
    y = 2.0 * s.fma(scale, _expm1_reduced(r), scale - 0.5)
    return s.where(s.eq(x, 0.0), x, y)


@_rule
def sigmoid(x: Expr) -> Expr:
    e = exp(-s.abs(x))
    return s.where(x >= 0.0, 1.0, e) / (1.0 + e)


@_rule
def tanh(x: Expr) -> Expr:
    t = expm1(2.0 * _at_most(s.abs(x), 10.0 if _single(x) else 20.0))
    return s.copysign(t / (t + 2.0), x)


@_rule
def sinh(x: Expr) -> Expr:
    a = s.abs(x)
    t = expm1(a)
    root = exp(0.5 * a)
    y = _rarely(a > (80.0 if _single(x) else 700.0), _rounded(0.5 * root, root), 0.5 * (t + t / (t + 1.0)))
    return s.copysign(y, x)


@_rule
def cosh(x: Expr) -> Expr:
    a = s.abs(x)
    e = exp(a)
    root = exp(0.5 * a)
    return _rarely(a > (80.0 if _single(x) else 700.0), _rounded(0.5 * root, root), 0.5 * e + 0.5 / e)


# ------------------------------------------------------------------------------------------------- logarithms

# (log(1+f) - f + f**2/2) / f**3
_LOG_32 = (
    0.3333333134651184, -0.2500081956386566, 0.20001228153705597, -0.1662335842847824, 0.14201724529266357,
    -0.13160139322280884, 0.1276177316904068, -0.07634840160608292,
)  # fmt: skip
# (log((1+v)/(1-v)) / v - 2) / v**2 in v**2
_LOG_64 = (
    0.6666666666666666, 0.40000000000004937, 0.2857142856940411, 0.22222222608301856, 0.18181778232923929,
    0.1538699471425021, 0.13252007883280145, 0.13236095915910828,
)  # fmt: skip


def _split_logarithm(x: Expr) -> tuple[Expr, Expr]:
    """(e, f): x = 2**e * (1 + f), f between sqrt(1/2) - 1 and sqrt(2) - 1; x positive and finite."""
    mantissa = _mantissa(x)
    tiny = x < float(np.finfo(x.dtype).tiny)
    lifted = s.where(tiny, x * 2.0**mantissa, x)
    root = int(np.asarray(math.sqrt(0.5), x.dtype).view(np.int32 if _single(x) else np.int64))
    bits = _bits(lifted)
    e = (bits - root) >> mantissa
    f = s.bitcast(bits - (e << mantissa), x.dtype) - 1.0
    return s.cast(e, x.dtype) - s.where(tiny, float(mantissa), 0.0), f


def _log_mantissa(f: Expr) -> Expr:
    """log(1 + f)."""
    if _single(f):
        return s.fma(f * f, s.fma(f, _poly(f, _LOG_32), -0.5), f)
    v = f / (2.0 + f)
    z = v * v
    half_square = 0.5 * f * f
    return f - (half_square - v * s.fma(z, _poly(z, _LOG_64), half_square))


def _log_limits(x: Expr, y: Expr) -> Expr:
    """y where x is positive and finite, and a logarithm's value elsewhere."""
    outside = s.where(s.eq(x, 0.0), -math.inf, math.nan)
    return s.where(x > 0.0, s.where(x < math.inf, y, x), outside)


def _log_scaled(x: Expr, per_octave: tuple[float, float], factor: float) -> Expr:
    e, f = _split_logarithm(x)
    high, low = per_octave
    m = _log_mantissa(f)
    m = s.fma(e, low, m * factor if factor != 1.0 else m)
    return _log_limits(x, s.fma(e, high, m))


@_rule
def log(x: Expr) -> Expr:
    return _log_scaled(x, _LN2_32 if _single(x) else _LN2_64, 1.0)


@_rule
def log2(x: Expr) -> Expr:
    return _log_scaled(x, (1.0, 0.0), _LOG2E)


@_rule
def log10(x: Expr) -> Expr:
    parts = (0.3010299801826477, 1.5481333490135613e-08) if _single(x) else (0.30102999566361177, 3.694239077158931e-13)
    return _log_scaled(x, parts, 0.4342944819032518)


@_rule
def log1p(x: Expr) -> Expr:
    u = 1.0 + x
    lost = s.where(x > 1.0, 1.0 - (u - x), x - (u - 1.0))  # what rounding u left out
    y = log(u) + lost / u
    y = s.where(s.eq(u, 1.0), x, y)
    return s.where(s.eq(x, math.inf), x, s.where(s.eq(x, -1.0), -math.inf, y))


@_rule
def asinh(x: Expr) -> Expr:
    a = s.abs(x)
    y = log1p(a + a * a / (1.0 + s.sqrt(a * a + 1.0)))
    y = _rarely(a > (1e9 if _single(x) else 1e18), log(a) + math.log(2), y)
    return s.copysign(y, x)


@_rule
def acosh(x: Expr) -> Expr:
    t = x - 1.0
    y = log1p(t + s.sqrt(t * (t + 2.0)))
    y = _rarely(x > (1e9 if _single(x) else 1e18), log(x) + math.log(2), y)
    return s.where(x < 1.0, math.nan, y)


@_rule
def atanh(x: Expr) -> Expr:
    a = s.abs(x)
    # 2a + 2a*a/(1-a) loses nothing for small a; 2a/(1-a) is as good above one half and reaches infinity at 1.
    small = 2.0 * a + 2.0 * a * a / (1.0 - a)
    return s.copysign(0.5 * log1p(s.where(a < 0.5, small, 2.0 * a / (1.0 - a))), x)


@_rule
def logaddexp(x: Expr, y: Expr) -> Expr:
    top = s.maximum(x, y)
    z = top + log1p(exp(-s.abs(x - y)))
    return s.where(s.eq(x, y), x + math.log(2), z)


# ------------------------------------------------------------------------------------------------------ powers


def _constant_power(e: Expr) -> Expr | None:
    """x ** n for the small constant exponents people write."""
    x, y = e.args
    if y.fn != "const":
        return None
    n = float(y.payload)
    if n.is_integer() and 0 <= n <= 4:
        if n == 0:
            return s.const(1, x.dtype)
        square = x * x
        return (x, square, square * x, square * square)[int(n) - 1]
    if s.kind(x.dtype) != "f":
        return None
    if n in (-1.0, -2.0):
        return 1.0 / x if n == -1.0 else 1.0 / (x * x)
    if n == 0.5:
        return s.sqrt(x)  # as NumPy does: (-inf) ** 0.5 is nan
    return None


@_rule
def pow_(x: Expr, y: Expr) -> Expr:
    if _single(x):
        # In double precision log2 and exp2 are accurate enough without extra bits.
        wide, exponent = s.cast(x, FLOAT64), s.cast(y, FLOAT64)
        return s.cast(_signed_power(wide, exponent, exp2(exponent * log2(s.abs(wide)))), FLOAT32)
    high, low = _log_double(s.abs(x))
    product = _rounded(y, high)
    tail = s.fma(y, high, -product) + y * low
    tail = s.where(s.abs(product) < 1e3, tail, 0.0)  # beyond, the result is 0 or infinity
    return _signed_power(x, y, _exp_sum(product, tail))


def _log_double(x: Expr) -> tuple[Expr, Expr]:
    """log(x) as an unevaluated sum of two float64, good to about 60 bits."""
    e, f = _split_logarithm(x)
    d = 2.0 + f
    d_low = f - (d - 2.0)
    v = f / d
    v_low = (s.fma(-v, d, f) - v * d_low) / d
    z = v * v
    m_low = s.fma(v * z, _poly(z, _LOG_64), 2.0 * v_low)
    whole = e * 0.6931471803691238  # the low bits of this constant are zero: the product is exact
    high = whole + 2.0 * v
    low = (2.0 * v - (high - whole)) + (m_low + e * 1.9082149292705877e-10)
    total = high + low
    return _log_limits(x, total), s.where((x > 0.0) & (x < math.inf), low - (total - high), 0.0)


def _signed_power(x: Expr, y: Expr, magnitude: Expr) -> Expr:
    """|x| ** y with the sign and the exceptions of x ** y."""
    whole = s.eq(s.floor(y), y)
    odd = whole & s.ne(s.floor(y * 0.5), y * 0.5)
    result = s.where(odd, s.copysign(magnitude, x), magnitude)
    result = s.where((x < 0.0) & s.isfinite(x) & s.logical_not(whole), math.nan, result)
    one = s.eq(x, 1.0) | s.eq(y, 0.0) | (s.eq(x, -1.0) & s.isinf(y))
    return s.where(one, 1.0, result)


@_rule
def rsqrt(x: Expr) -> Expr:
    return 1.0 / s.sqrt(x)


@_rule
def reciprocal(x: Expr) -> Expr:
    return 1.0 / x


@_rule
def hypot(x: Expr, y: Expr) -> Expr:
    infinite = s.isinf(x) | s.isinf(y)
    if _single(x):
        a, b = s.cast(x, FLOAT64), s.cast(y, FLOAT64)
        return s.where(infinite, math.inf, s.cast(s.sqrt(a * a + b * b), FLOAT32))
    a, b = s.abs(x), s.abs(y)
    top, low = s.maximum(a, b), s.minimum(a, b)
    ratio = low / top
    result = s.where(s.eq(top, 0.0), 0.0, top * s.sqrt(1.0 + ratio * ratio))
    return s.where(infinite, math.inf, s.where(s.isnan(x) | s.isnan(y), math.nan, result))


# -------------------------------------------------------------------------------------------------- trigonometry

_HALF_PI_32 = (1.570796251296997, 7.549789415861596e-08, 5.390302529957765e-15)
_HALF_PI_64 = (1.5707963267948966, 6.123233995736765e-17, 1.0828566739219139e-32)
# (sin(r)/r - 1) / r**2 and (cos(r) - 1 + r**2/2) / r**4, both in r**2, for |r| <= pi / 4
_SIN_32 = (-0.1666666716337204, 0.008333380334079266, -0.00019853511184919626, 2.837513193298946e-06)
_COS_32 = (0.04166664555668831, -0.00138873013202101, 2.443067387503106e-05)
_SIN_64 = (
    -0.16666666666666632, 0.008333333333322486, -0.0001984126982985331, 2.75573137050333e-06,
    -2.5050759882193162e-08, 1.5896885802998925e-10,
)  # fmt: skip
_COS_64 = (
    0.0416666666666666, -0.001388888888887447, 2.4801587289666817e-05, -2.7557314399204037e-07,
    2.0875728980939283e-09, -1.1359916456388555e-11,
)  # fmt: skip


def _reduce_angle(x: Expr) -> tuple[Expr, Expr, Expr]:
    """(quadrant, sin r, cos r): x = quadrant * pi/2 + r, for |x| below `_angle_limit`."""
    magic = _magic(x)
    shifted = s.fma(x, s.const(2 / math.pi, x.dtype), magic)
    n = shifted - magic
    r = x
    for part in _HALF_PI_32 if _single(x) else _HALF_PI_64:
        r = s.fma(n, -part, r)
    z = r * r
    sine = s.fma(r * z, _poly(z, _SIN_32 if _single(x) else _SIN_64), r)
    cosine = s.fma(z * z, _poly(z, _COS_32 if _single(x) else _COS_64), s.fma(z, s.const(-0.5, x.dtype), 1.0))
    return _bits(shifted), sine, cosine


def _is_huge(x: Expr) -> Expr:
    """Angles for which pi in three parts is not accurate enough. False for nan and infinity, which need no library."""
    a = s.abs(x)
    return (a > (1e5 if _single(x) else 2.0**30)) & (a < math.inf)


def _flip(y: Expr, quadrant: Expr) -> Expr:
    """-y in the third and fourth quadrant."""
    sign = (quadrant & 2) << (30 if _single(y) else 62)
    return s.bitcast(_bits(y) ^ sign, y.dtype)


@_rule
def sin(x: Expr) -> Expr:
    quadrant, sine, cosine = _reduce_angle(x)
    y = _flip(s.where(s.eq(quadrant & 1, 0), sine, cosine), quadrant)
    y = s.where(s.eq(x, 0.0), x, y)
    return _rarely(_is_huge(x), _library("sin", x), s.where(s.isfinite(x), y, math.nan))


@_rule
def cos(x: Expr) -> Expr:
    quadrant, sine, cosine = _reduce_angle(x)
    y = _flip(s.where(s.eq(quadrant & 1, 0), cosine, sine), quadrant + 1)
    return _rarely(_is_huge(x), _library("cos", x), s.where(s.isfinite(x), y, math.nan))


@_rule
def tan(x: Expr) -> Expr:
    quadrant, sine, cosine = _reduce_angle(x)
    even = s.eq(quadrant & 1, 0)
    y = s.where(even, sine, -cosine) / s.where(even, cosine, sine)
    y = s.where(s.eq(x, 0.0), x, y)
    return _rarely(_is_huge(x), _library("tan", x), s.where(s.isfinite(x), y, math.nan))


# (asin(g)/g - 1) / g**2 in g**2 for g <= 1/2
_ASIN_32 = (0.16666753590106964, 0.07495249062776566, 0.04547664895653725, 0.02414822205901146, 0.042219605296850204)
_ASIN_64 = (
    0.16666666666666763, 0.07499999999970096, 0.04464285717528865, 0.030381942675156853, 0.022372215909278428,
    0.017351595442040135, 0.013981019191444385, 0.011397288048291676, 0.010789347081288307, 0.0036720948672369614,
    0.021790848638403568, -0.021116980193462778, 0.032702310790262513,
)  # fmt: skip
# (atan(t)/t - 1) / t**2 in t**2 for t <= 1
_ATAN_32 = (
    -0.33333301544189453, 0.19998638331890106, -0.14265236258506775, 0.10957521945238113, -0.08419287204742432,
    0.05823136866092682, -0.03145229071378708, 0.011062477715313435, -0.0018267446430400014,
)  # fmt: skip
_ATAN_64 = (
    -0.33333333333333093, 0.19999999999955387, -0.14285714282799267, 0.11111111013557938, -0.09090907117506465,
    0.07692281165094901, -0.06666414810403855, 0.05880591382847744, -0.052538000799929326, 0.04723273911512425,
    -0.0422166454874017, 0.03669239450795142, -0.02998369810839921, 0.022082756878212796, -0.013992646012486757,
    0.007261640975342652, -0.0029184283248615095, 0.0008431515415922365, -0.00015472266796931052,
    1.3481606139870969e-05,
)  # fmt: skip


def _minus(turns: float, y: Expr) -> Expr:
    """turns * pi/2 - y, with pi in two parts."""
    high, low, _ = _HALF_PI_32 if _single(y) else _HALF_PI_64
    return (turns * high - y) + turns * low


def _arcsine_parts(x: Expr) -> tuple[Expr, Expr]:
    """(large, y): y = asin|x|, or asin(sqrt((1-|x|)/2)) where |x| is large."""
    a = s.abs(x)
    large = a > 0.5
    z = s.where(large, 0.5 * (1.0 - a), a * a)
    g = s.where(large, s.sqrt(z), a)
    return large, s.fma(g * z, _poly(z, _ASIN_32 if _single(x) else _ASIN_64), g)


@_rule
def asin(x: Expr) -> Expr:
    large, y = _arcsine_parts(x)
    return s.copysign(s.where(large, _minus(1.0, 2.0 * y), y), x)


@_rule
def acos(x: Expr) -> Expr:
    large, y = _arcsine_parts(x)
    near = s.where(x > 0.0, 2.0 * y, _minus(2.0, 2.0 * y))
    return s.where(large, near, _minus(1.0, s.copysign(y, x)))


def _atan_unit(t: Expr) -> Expr:
    """atan(t) for 0 <= t <= 1."""
    z = t * t
    return s.fma(t * z, _poly(z, _ATAN_32 if _single(t) else _ATAN_64), t)


@_rule
def atan(x: Expr) -> Expr:
    a = s.abs(x)
    steep = a > 1.0
    y = _atan_unit(s.where(steep, 1.0 / a, a))
    return s.copysign(s.where(steep, _minus(1.0, y), y), x)


@_rule
def atan2(y: Expr, x: Expr) -> Expr:
    a, b = s.abs(y), s.abs(x)
    low, top = s.minimum(a, b), s.maximum(a, b)
    ratio = s.where(s.eq(low, top), s.where(s.eq(top, 0.0), 0.0, 1.0), low / top)  # also inf / inf
    angle = _atan_unit(ratio)
    angle = s.where(a > b, _minus(1.0, angle), angle)
    angle = s.where(s.signbit(x), _minus(2.0, angle), angle)
    return s.where(s.isnan(x) | s.isnan(y), math.nan, s.copysign(angle, y))


# ----------------------------------------------------------------------------------------------- error function

# erf(x)/x - 1 in x**2 for |x| < 0.9; log2(erfc(a)) in a above; 2**r for |r| <= 1/2
_ERF_32 = (
    0.12837915122509003, -0.3761250376701355, 0.11281921714544296, -0.026770493015646935, 0.00499896053224802,
    -0.0006020822329446673,
)  # fmt: skip
_LOG2_ERFC_32 = (
    -0.00023653337848372757, -1.6270825862884521, -0.9189364314079285, -0.15022727847099304, 0.03220529854297638,
    -0.004425432998687029, 0.00028626684797927737,
)  # fmt: skip
_EXP2_32 = (
    1.0000001192092896, 0.6931469440460205, 0.24022118747234344, 0.05550713092088699, 0.009675566107034683,
    0.0013276581885293126,
)  # fmt: skip


@_rule
def erf(x: Expr) -> Expr:
    a = s.abs(x)
    if _single(x):
        small = s.fma(x, _poly(x * x, _ERF_32), x)
        # 1 - 2**t; this power need not be as accurate as exp2, it is at most 0.2 of the result.
        t = _poly(_at_most(a, 3.95), _LOG2_ERFC_32)
        shifted = t + _magic(x)
        whole = shifted - _magic(x)
        n = _bits(shifted) - _bits(s.const(_magic(x), x.dtype))
        tail = 1.0 - _scale(_poly(t - whole, _EXP2_32), n, whole)
        return s.where(a < 0.9, small, s.copysign(tail, x))
    c = coefficients
    z = x * x
    small = s.fma(x, _poly(z, c._PP) / _poly(z, c._QQ), x)
    t = a - 1.0
    middle = c._ERX + _poly(t, c._PA) / _poly(t, c._QA)
    far = _at_most(a, 6.5)
    tail = 1.0 - _exp_moderate(_tail_ratio(far) - far * far - 0.5625) / far
    return s.where(a < 0.84375, small, s.copysign(s.where(a < 1.25, middle, tail), x))


def _tail_ratio(a: Expr) -> Expr:
    """log(a * erfc(a)) + a*a + 0.5625 for a >= 1.25."""
    c = coefficients
    z = 1.0 / (a * a)
    near = a < 1.0 / 0.35
    top = s.where(near, _poly(z, c._RA), _poly(z, c._RB))
    return top / s.where(near, _poly(z, c._SA), _poly(z, c._SB))


@_rule
def erfc(x: Expr) -> Expr:
    if _single(x):
        return s.cast(erfc(s.cast(x, FLOAT64)), FLOAT32)
    c = coefficients
    a = s.abs(x)
    z = x * x
    ratio = x * (_poly(z, c._PP) / _poly(z, c._QQ))
    small = s.where(x < 0.25, 1.0 - (x + ratio), 0.5 - ((x - 0.5) + ratio))
    t = a - 1.0
    middle = _poly(t, c._PA) / _poly(t, c._QA)
    middle = s.where(x > 0.0, (1.0 - c._ERX) - middle, 1.0 + (c._ERX + middle))
    far = _at_most(_at_least(a, 1.0), 30.0)
    head = s.bitcast(_bits(far) & -0x100000000, FLOAT64)  # head * head is exact
    tail = exp(s.fma(-head, head, -0.5625)) * exp((head - far) * (head + far) + _tail_ratio(far)) / far
    tail = s.where(x > 0.0, tail, 2.0 - tail)
    return s.where(a < 0.84375, small, s.where(a < 1.25, middle, tail))


@_rule
def lgamma(x: Expr) -> Expr:
    return _library("lgamma", x)


# ---------------------------------------------------------------------------------------- division, neighbours


def _fmod(a: Expr, b: Expr) -> Expr:
    """C's fmod: exact when the quotient is small, from the library when it is not."""
    q = s.trunc(a / b)
    r = s.fma(-q, b, a)
    step = s.copysign(b, a)
    r = s.where((s.signbit(r) ^ s.signbit(a)) & s.ne(r, 0.0), r + step, r)  # the rounded quotient was one too large
    r = s.where(s.abs(r) >= s.abs(b), r - step, r)
    r = s.copysign(r, a)
    fits = (s.abs(q) < 2.0 ** (_mantissa(a) - 1)) & (s.abs(b) < math.inf)
    return _rarely(s.logical_not(fits), _library("fmod", a, b), r)


@_rule
def remainder(a: Expr, b: Expr) -> Expr:
    m = _fmod(a, b)
    adjusted = s.where((b < 0.0) ^ (m < 0.0), m + b, m)
    return s.where(s.eq(m, 0.0), s.copysign(s.const(0.0, a.dtype), b), adjusted)


@_rule
def floor_divide(a: Expr, b: Expr) -> Expr:
    m = _fmod(a, b)
    exact = (a - m) / b
    adjust = s.ne(m, 0.0) & ((b < 0.0) ^ (m < 0.0))
    d = s.where(adjust, exact - 1.0, exact)
    down = s.floor(d)
    down = s.where(d - down > 0.5, down + 1.0, down)
    result = s.where(s.eq(d, 0.0), s.copysign(s.const(0.0, a.dtype), a / b), down)
    return s.where(s.eq(b, 0.0), a / b, result)


@_rule
def nextafter(x: Expr, y: Expr) -> Expr:
    integer = np.dtype(f"int{8 * x.dtype.itemsize}")
    bits = s.bitcast(x, integer)
    away = s.eq(x < y, x > 0.0)  # towards y is away from zero: the bits of a number grow with its magnitude
    moved = s.bitcast(s.where(away, bits + 1, bits - 1), x.dtype)
    least = s.copysign(s.bitcast(s.const(1, integer), x.dtype), y)
    result = s.where(s.eq(x, 0.0), least, moved)
    result = s.where(s.eq(x, y), y, result)
    return s.where(s.isnan(x) | s.isnan(y), s.const(math.nan, x.dtype), result)
