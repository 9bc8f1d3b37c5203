"""Bessel functions of orders 0 and 1 and the Airy function Ai, as scalar expressions.

Near 0 they are power series, or Chebyshev series of what remains when the logarithm is taken out; further out Chebyshev series,
in 1 / x or 1 / x², of what remains of the asymptotic form (an exponential, or a sine whose amplitude and phase shift are P and
Q). The series were fitted for this file at 50 digits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import scalar as s
from ...core.define import elementwise
from ...core.samples import unary as values
from ...core.scalar import Term
from .arithmetic import sign
from .logic import where
from .special import polynomial

_I0 = (
    0.402245205507054416, 0.00336911647825569409, 0.0000688975834691682398, 2.89137052083475648e-6,
    2.04891858946906374e-7, 2.26666899049817806e-8, 3.39623202570838635e-9, 4.94060238822496959e-10,
    1.18891471078464383e-11, -3.14991652796324136e-11, -1.32158118404477131e-11, -1.79417853150680612e-12,
    7.18012445138366623e-13, 3.8527783827421427e-13, 1.54008621752140983e-14, -4.15056934728722209e-14,
    -9.55484669882830767e-15, 3.81168066935262258e-15, 1.77256013305652617e-15, -3.42548561967722102e-16,
    -2.82762398051657246e-16, 3.46122286769733733e-17, 4.46562142029657417e-17, -4.83050448593648988e-18,
    -7.23318048788096705e-18, 9.92147541199336794e-19, 1.19365089089915707e-18,
)  # fmt: skip
_I1 = (
    0.38928811750914006, -0.00976109749136146841, -0.000110588938762623716, -3.88256480887769039e-6,
    -2.51223623787020893e-7, -2.63146884688951951e-8, -3.83538038596423702e-9, -5.58974346219658381e-10,
    -1.89749581235054123e-11, 3.25260358301548824e-11, 1.41258074366137813e-11, 2.03562854414708951e-12,
    -7.19855177624590851e-13, -4.08355111109219732e-13, -2.10154184277266432e-14, 4.27244001671195136e-14,
    1.04202769841288028e-14, -3.81440307243700797e-15, -1.88035477551078223e-15, 3.30820231092093009e-16,
    2.96262899764593899e-16, -3.20952592199329519e-17, -4.65030536848917667e-17, 4.41434832306390094e-18,
    7.51729631084867028e-18, -9.31417886714817654e-19, -1.24219327524913631e-18,
)  # fmt: skip
_K0 = (
    1.22015154103297773, -0.0314481013119645005, 0.00156988388573005337, -0.000128495495816278026,
    0.0000139498137188764994, -1.83175552271911948e-6, 2.76681363944501508e-7, -4.66048989768794767e-8,
    8.57403401741422609e-9, -1.69753450938906152e-9, 3.57739728140032845e-10, -7.95748924447739704e-11,
    1.85594911495492655e-11, -4.51459788337451918e-12, 1.14034058820734423e-12, -2.98009692314817835e-13,
    8.03289077506837437e-14, -2.22751332674629636e-14, 6.34007647627664597e-15, -1.84859337792090717e-15,
    5.51205599940433336e-16, -1.67823112575490064e-16, 5.21039177764355411e-17, -1.64758059398426328e-17,
    5.30043377117733577e-18, -1.73317120058210003e-18,
)  # fmt: skip
_K1 = (
    1.36031309524222133, 0.103923736576817238, -0.00285781685962277939, 0.000195215518471351631,
    -0.0000193619797416608296, 2.40648494783721712e-6, -3.50196060308781254e-7, 5.74108412545004929e-8,
    -1.0345762465678097e-8, 2.01504975519703462e-9, -4.19035475934192558e-10, 9.21831518760531413e-11,
    -2.12996783842779102e-11, 5.13963967348234354e-12, -1.28917396094982294e-12, 3.34841966605224312e-13,
    -8.97670518201014607e-14, 2.47715442421959868e-14, -7.01983708921476885e-15, 2.03870316623986088e-15,
    -6.05704727064301782e-16, 1.83809357524304543e-16, -5.68946284919364837e-17, 1.79405104788635729e-17,
    -5.75674448207330245e-18, 1.87786519016232674e-18,
)  # fmt: skip
_P0 = (
    0.999460349347518665, -0.000536522046813211742, 3.07518478751947462e-6, -5.1705945376060977e-8,
    1.63064646351513831e-9, -7.86409137723707e-11, 5.16826238734919246e-12, -4.30457886992539122e-13,
    4.32659574315494056e-14, -5.06903409593523608e-15, 6.7480722157338737e-16, -1.00115137234677858e-16,
    1.63059192337441847e-17, -2.8808661694828712e-18,
)  # fmt: skip
_Q0 = (
    -0.124446836842696073, 0.000547081595408931968, -5.93159872884851781e-6, 1.43779657983751934e-7,
    -5.81753274949305598e-9, 3.37609752373499076e-10, -2.5653979367973078e-11, 2.40491610028136505e-12,
    -2.6690625482579416e-13, 3.4041800321963689e-14, -4.87994410531204001e-15, 7.72970317624260539e-16,
    -1.3348852171502517e-16, 2.48659523893905155e-17, -4.95289262988651594e-18, 1.04731589737760972e-18,
    -2.33693017221142175e-19,
)  # fmt: skip
_P1 = (
    1.0009030408600137, 0.000898989833085940856, -3.98728430048890852e-6, 6.17763396064429853e-8,
    -1.87189074910630661e-9, 8.8168986595823389e-11, -5.7048636403956447e-12, 4.69919551523054238e-13,
    -4.68422378399048922e-14, 5.45267489604471717e-15, -7.22118084227401792e-16, 1.06676891143354125e-16,
    -1.7312313216116335e-17, 3.04929911976658723e-18,
)  # fmt: skip
_Q1 = (
    0.374222296556282602, -0.000770217883932566346, 7.3108922063643633e-6, -1.6767825107266738e-7,
    6.5833546621204433e-9, -3.74909095054155618e-10, 2.81217503597488647e-11, -2.61145253946231994e-12,
    2.87742126633322335e-13, -3.64900191606183776e-14, 5.20662636622670716e-15, -8.21531802545859429e-16,
    1.41410843902118333e-16, -2.62676158983852917e-17, 5.21926491967140824e-18, -1.10126171878795904e-18,
)  # fmt: skip
_J0_SMALL = (
    0.15772797147489012, -0.00872344235285222129, 0.26517861320333681, -0.370094993872649779, 0.158067102332097261,
    -0.0348937694114088852, 0.0048191800694676045, -0.000460626166206275048, 0.0000324603288210050808,
    -1.76194690776215075e-6, 7.60816359241878187e-8, -2.6792535305576729e-9, 7.84869631447946442e-11,
    -1.94383468673701657e-12, 4.12532059563437393e-14, -7.58850812544754634e-16, 1.2218515873961411e-17,
)  # fmt: skip
_J1_SMALL = (
    0.0810448463256581151, -0.148975145067652109, 0.160999262357209703, -0.0826804917668179066, 0.0222136396549660354,
    -0.00364694060076927596, 0.000405033772835482183, -0.0000325555486685725852, 1.98587740499151674e-6,
    -9.52198475675043618e-8, 3.68713375909714824e-9, -1.17802662269588484e-10, 3.16015458034800332e-12,
    -7.22175523965177343e-14, 1.42321440035139423e-15, -2.44419729161904639e-17, 3.69126829979293326e-19,
)  # fmt: skip
_Y0_SMALL = (
    -0.0331461132032849417, -0.274474305529745265, 0.179034314077182663, 0.261567346255046637, -0.177302012781143582,
    0.0471966895957633869, -0.00728796247955207918, 0.000753113593257774228, -0.0000563207914105698698,
    3.20653253765480098e-6, -1.44072332740186995e-7, 5.24879478733051612e-9, -1.58375525418120151e-10,
    4.02633081830612075e-12, -8.74734120331076955e-14, 1.6434898714919469e-15, -2.69778811525668356e-17,
    3.90325841734759827e-19,
)  # fmt: skip
_Y1_SMALL = (
    0.00253801323574178173, -0.0160871730476687502, -0.0959120453608307425, 0.0844519725965234584,
    -0.0283281239445943656, 0.00528989754416711301, -0.000641455145132635599, 0.0000550598287333874384,
    -3.5380800186893499e-6, 1.77078045561544034e-7, -7.11055004989927978e-9, 2.34433790591151639e-10,
    -6.46515184141159424e-12, 1.51429151205001995e-13, -3.05118596944732527e-15, 5.34668038572867012e-17,
    -8.22491137202158463e-19,
)  # fmt: skip
_AIRY_LARGE = (
    0.277695609511705917, -0.00417296756204592313, 0.00020669586013998012, -0.0000172809978410682056,
    1.92805216679715695e-6, -2.60577439877626167e-7, 4.05151688351239498e-8, -7.02224044098622293e-9,
    1.32860819977010283e-9, -2.70355803712928881e-10, 5.85229778283899827e-11, -1.33635844165197559e-11,
    3.19785471492891547e-12, -7.97681355955960247e-13, 2.06513475411096665e-13, -5.52899978215977987e-14,
    1.5261656190101811e-14, -4.33197930495580526e-15, 1.26162393198987477e-15, -3.76260703993575927e-16,
    1.14716161562646174e-16, -3.57014436510920835e-17, 1.13264622714002186e-17, -3.65876158900690198e-18,
    1.20210461480713583e-18, -4.01329727588305345e-19,
)  # fmt: skip
_AIRY_MIDDLE = (
    0.0798103425708389566, 0.13358598577835649, -0.128881542253144249, -0.0877626549403546875, -0.117865139483172619,
    0.249401991886802885, -0.0356352456487974161, -0.125529604249786423, 0.0765832086215327821,
    0.00653982609961693487, -0.0230997860595060738, 0.00750405287473471173, 0.00170301556720105651,
    -0.00184796727397779412, 0.000351762429564760899, 0.000136354660798638915, -0.0000830879036034294409,
    8.89415781386160547e-6, 5.88414416095790611e-6, -2.38868033241585136e-6, 1.10789409095617064e-7,
    1.62531295102734697e-7, -4.74809359403199265e-8, -1.75494922851261684e-10, 3.14451439446657804e-9,
    -6.87252875068763709e-10, -3.43213971630589893e-11, 4.51202698711872778e-11, -7.50502327495536285e-12,
    -7.32039138833526229e-13, 4.99806074057842601e-13, -6.33039576588414441e-14, -9.63846285061697374e-15,
    4.40351921880054821e-15, -4.17592435455971054e-16, -9.31695346064715949e-17, 3.15790011285435888e-17,
    -2.15018482429975083e-18, -7.07086619800789507e-19,
)  # fmt: skip
_AIRY_P = (
    0.999808847739553131, -0.000190416779621348625, 7.26796816841744455e-7, -8.48542696752979634e-9,
    1.91445459829508849e-10, -6.77849394140516189e-12, 3.34566607965665226e-13, -2.13451377244657024e-14,
    1.6718079441151791e-15, -1.54917248586255848e-16, 1.65242734925130089e-17, -1.98676786958512483e-18,
)  # fmt: skip
_AIRY_Q = (
    0.0692510112270086039, -0.000191993957131682958, 1.41444850073489165e-6, -2.40764184543713635e-8,
    7.03313547418802706e-10, -3.01991712901308351e-11, 1.73483636560490988e-12, -1.25277991377570018e-13,
    1.08863845091196635e-14, -1.10267712851054379e-15, 1.27099969360134325e-16, -1.63650870076590174e-17,
    2.31955603890257349e-18, -3.57675064099276918e-19,
)  # fmt: skip


def _chebyshev(u: Term, c: tuple[float, ...]) -> Term:
    """The Chebyshev series with coefficients `c` at `u` in [-1, 1], by Clenshaw's recurrence."""
    twice = u + u
    b1, b2 = u * 0.0, u * 0.0
    for a in c[:0:-1]:
        b1, b2 = twice * b1 - b2 + a, b1
    return u * b1 - b2 + c[0]


def _each(fn: Any) -> Any:
    return np.vectorize(fn, otypes=[np.float64])


def _integral(f: Any, high: float) -> float:
    """∫ f from 0 to `high` by the trapezoidal rule: of a periodic function, or of one that vanishes at the end, exact."""
    t = np.linspace(0, high, 4001)
    y = f(t)
    return float((y.sum() - (y[0] + y[-1]) / 2) * t[1])


def _simpson(f: Any, high: float) -> float:
    """∫ f from 0 to `high` by Simpson's rule."""
    t = np.linspace(0, high, 20001)
    y = f(t)
    return float((y[0] + y[-1] + 4 * y[1:-1:2].sum() + 2 * y[2:-1:2].sum()) * t[1] / 3)


# Modified functions of the first kind -----------------------------------------------------------------------------------

_SMALL_I = 8.0
_I0_SMALL = tuple(1 / math.factorial(k) ** 2 for k in range(26))
_I1_SMALL = tuple(0.5 / (math.factorial(k) * math.factorial(k + 1)) for k in range(26))


def _scaled_i(order: int, x: Term, scaled: bool) -> Term:
    """I of |x|, without its factor x / |x| for order 1; divided by exp(|x|) if `scaled`."""
    a = s.abs(x)
    near, far = s.minimum(a, _SMALL_I), s.maximum(a, _SMALL_I)
    t = near * near * 0.25
    small = polynomial(t, _I1_SMALL) * near if order else polynomial(t, _I0_SMALL)
    large = _chebyshev(2.0 * _SMALL_I / far - 1.0, _I1 if order else _I0) / s.sqrt(far)
    if scaled:
        return s.where(a <= _SMALL_I, small * s.exp(-near), large)
    half = s.exp(far * 0.5)  # exp(x) may be infinite where the product is not
    return s.where(a <= _SMALL_I, small, large * half * half)


def _reference_i(order: int, scaled: bool) -> Any:
    def one(x: float) -> float:
        value = _integral(lambda t: np.exp(x * np.cos(t)) * np.cos(order * t), math.pi) / math.pi
        return value * math.exp(-abs(x)) if scaled else value

    return _each(one)


def _over(y: Any, x: Any, limit: float) -> Any:
    """y / x, and `limit` at 0."""
    zero = x == 0
    return where(zero, limit, y / where(zero, 1.0, x))


@elementwise(
    autocast="float32",
    kind="real float",
    vjp=lambda g, x: g * i1(x),
    reference=_reference_i(0, False),
    samples=values(-9, 9),
)
def i0(x: Term) -> Term:
    """Modified Bessel function of the first kind, order 0.

    >>> wf.special.i0(wf.tensor([0.0, 1.0]))
    tensor([1.    , 1.266...])
    """
    return _scaled_i(0, x, False)


@elementwise(
    namespace="special",
    autocast="float32",
    kind="real float",
    vjp=lambda g, x: g * (i1e(x) - sign(x) * i0e(x)),  # not from the result, whose rounding would not cancel
    reference=_reference_i(0, True),
    samples=values(-9, 9),
)
def i0e(x: Term) -> Term:
    """exp(-|x|) i0(x).

    >>> wf.special.i0e(wf.tensor([0.0, 1000.0]))
    tensor([1.    , 0.0126...])
    """
    return _scaled_i(0, x, True)


@elementwise(
    namespace="special",
    autocast="float32",
    kind="real float",
    vjp=lambda g, x, out: g * (i0(x) - _over(out, x, 0.5)),
    reference=_reference_i(1, False),
    samples=values(-9, 9),
)
def i1(x: Term) -> Term:
    """Modified Bessel function of the first kind, order 1.

    >>> wf.special.i1(wf.tensor([0.0, 1.0]))
    tensor([0.    , 0.565...])
    """
    return s.copysign(_scaled_i(1, x, False), x)


@elementwise(
    namespace="special",
    autocast="float32",
    kind="real float",
    vjp=lambda g, x: g * (i0e(x) - _over(i1e(x), x, 0.5) - sign(x) * i1e(x)),
    reference=_reference_i(1, True),
    samples=values(-9, 9),
)
def i1e(x: Term) -> Term:
    """exp(-|x|) i1(x).

    >>> wf.special.i1e(wf.tensor([0.0, 1000.0]))
    tensor([0.    , 0.0126...])
    """
    return s.copysign(_scaled_i(1, x, True), x)


# Modified functions of the second kind ----------------------------------------------------------------------------------

_EULER = 0.57721566490153286061
_HARMONIC = [sum(1 / j for j in range(1, k + 1)) for k in range(16)]
# With t = x² / 4: K0 = Σ tᵏ / k!² (Hₖ - γ) - log(x / 2) I0, and
# K1 = 1 / x + log(x / 2) I1 - x / 4 Σ tᵏ / (k! (k + 1)!) (Hₖ + Hₖ₊₁ - 2 γ).
_K0_SMALL = tuple((_HARMONIC[k] - _EULER) / math.factorial(k) ** 2 for k in range(15))
_K1_SMALL = tuple(
    (_HARMONIC[k] + _HARMONIC[k + 1] - 2 * _EULER) * 0.25 / (math.factorial(k) * math.factorial(k + 1))
    for k in range(15)
)


def _k(order: int, x: Term, scaled: bool) -> Term:
    near, far = s.minimum(x, 2.0), s.maximum(x, 2.0)
    t = near * near * 0.25
    logarithm = s.log(near * 0.5)
    if order:
        small = 1.0 / near + near * (logarithm * polynomial(t, _I1_SMALL[:15]) - polynomial(t, _K1_SMALL))
    else:
        small = polynomial(t, _K0_SMALL) - logarithm * polynomial(t, _I0_SMALL[:15])
    large = _chebyshev(4.0 / far - 1.0, _K1 if order else _K0) / s.sqrt(far)
    small, large = (small * s.exp(near), large) if scaled else (small, large * s.exp(-far))
    value = s.where(x <= 2.0, small, large)
    return s.where(s.eq(x, 0.0), math.inf, s.where(x < 0.0, math.nan, value))


def _reference_k(order: int, scaled: bool) -> Any:
    def one(x: float) -> float:
        value = _integral(lambda t: np.exp(-x * (np.cosh(t) - 1)) * np.cosh(order * t), math.acosh(1 + 700 / x))
        return value if scaled else value * math.exp(-x)

    return _each(one)


@elementwise(
    namespace="special",
    autocast="float32",
    kind="real float",
    vjp=lambda g, x: -g * modified_bessel_k1(x),
    reference=_reference_k(0, False),
    samples=values(0.3, 6),
)
def modified_bessel_k0(x: Term) -> Term:
    """Modified Bessel function of the second kind, order 0; infinite at 0, NaN below.

    >>> wf.special.modified_bessel_k0(wf.tensor([1.0, 4.0]))
    tensor([0.421..., 0.0111...])
    """
    return _k(0, x, False)


@elementwise(
    namespace="special",
    autocast="float32",
    kind="real float",
    vjp=lambda g, x, out: -g * (modified_bessel_k0(x) + out / x),
    reference=_reference_k(1, False),
    samples=values(0.3, 6),
)
def modified_bessel_k1(x: Term) -> Term:
    """Modified Bessel function of the second kind, order 1; infinite at 0, NaN below.

    >>> wf.special.modified_bessel_k1(wf.tensor([1.0, 4.0]))
    tensor([0.601..., 0.0124...])
    """
    return _k(1, x, False)


@elementwise(
    namespace="special",
    autocast="float32",
    kind="real float",
    vjp=lambda g, x: g * (scaled_modified_bessel_k0(x) - scaled_modified_bessel_k1(x)),
    reference=_reference_k(0, True),
    samples=values(0.3, 6),
)
def scaled_modified_bessel_k0(x: Term) -> Term:
    """exp(x) modified_bessel_k0(x).

    >>> wf.special.scaled_modified_bessel_k0(wf.tensor(100.0))
    tensor(0.1251...)
    """
    return _k(0, x, True)


def _k1e_slope(x: Any) -> Any:
    k1 = scaled_modified_bessel_k1(x)
    return k1 - scaled_modified_bessel_k0(x) - k1 / x


@elementwise(
    namespace="special",
    autocast="float32",
    kind="real float",
    vjp=lambda g, x: g * _k1e_slope(x),
    reference=_reference_k(1, True),
    samples=values(0.3, 6),
)
def scaled_modified_bessel_k1(x: Term) -> Term:
    """exp(x) modified_bessel_k1(x).

    >>> wf.special.scaled_modified_bessel_k1(wf.tensor(100.0))
    tensor(0.1257...)
    """
    return _k(1, x, True)


# Functions of the first and second kind ---------------------------------------------------------------------------------

_SMALL_J = 8.0


def _small_series(a: Term, c: tuple[float, ...]) -> Term:
    """A series in x² for x up to 8."""
    near = s.minimum(a, _SMALL_J)
    return _chebyshev(near * near * (2.0 / _SMALL_J**2) - 1.0, c)


def _wave(order: int, a: Term) -> tuple[Term, Term]:
    """J and Y for x from 8, from amplitude and phase."""
    far = s.maximum(a, _SMALL_J)
    u = (_SMALL_J / far) * (_SMALL_J / far) * 2.0 - 1.0
    p, q = _chebyshev(u, _P1 if order else _P0), _chebyshev(u, _Q1 if order else _Q0) / far
    # cos and sin of x - (2 order + 1) π / 4, from those of x: the difference would round
    c, d = s.cos(far), s.sin(far)
    cosine, sine = (d - c, -(d + c)) if order else (c + d, d - c)
    scale = s.rsqrt(far * math.pi)
    return scale * (p * cosine - q * sine), scale * (p * sine + q * cosine)


def _reference_j(order: int) -> Any:
    return _each(lambda x: _integral(lambda t: np.cos(order * t - x * np.sin(t)), math.pi) / math.pi)


def _reference_y(order: int) -> Any:
    def one(x: float) -> float:
        decay = lambda t: (np.exp(order * t) + (-1) ** order * np.exp(-order * t)) * np.exp(-x * np.sinh(t))
        wave = lambda t: np.sin(x * np.sin(t) - order * t)
        return (_simpson(wave, math.pi) - _simpson(decay, math.asinh(700 / x))) / math.pi

    return _each(one)


@elementwise(
    namespace="special",
    autocast="float32",
    kind="real float",
    vjp=lambda g, x: -g * bessel_j1(x),
    reference=_reference_j(0),
    samples=values(-11, 11),
)
def bessel_j0(x: Term) -> Term:
    """Bessel function of the first kind, order 0.

    >>> wf.special.bessel_j0(wf.tensor([0.0, 1.0]))
    tensor([1.    , 0.765...])
    """
    a = s.abs(x)
    return s.where(a <= _SMALL_J, _small_series(a, _J0_SMALL), _wave(0, a)[0])


@elementwise(
    namespace="special",
    autocast="float32",
    kind="real float",
    vjp=lambda g, x, out: g * (bessel_j0(x) - _over(out, x, 0.5)),
    reference=_reference_j(1),
    samples=values(-11, 11),
)
def bessel_j1(x: Term) -> Term:
    """Bessel function of the first kind, order 1.

    >>> wf.special.bessel_j1(wf.tensor([0.0, 1.0]))
    tensor([0.    , 0.440...])
    """
    a = s.abs(x)
    value = s.where(a <= _SMALL_J, _small_series(a, _J1_SMALL) * a, _wave(1, a)[0])
    return s.where(x < 0.0, -value, value)


def _y(order: int, x: Term) -> Term:
    near = s.minimum(x, _SMALL_J)
    if order:
        j = _small_series(x, _J1_SMALL) * near
        small = _small_series(x, _Y1_SMALL) * near + (2 / math.pi) * (s.log(near) * j - 1.0 / near)
    else:
        small = _small_series(x, _Y0_SMALL) + (2 / math.pi) * s.log(near) * _small_series(x, _J0_SMALL)
    value = s.where(x <= _SMALL_J, small, _wave(order, x)[1])
    return s.where(s.eq(x, 0.0), -math.inf, s.where(x < 0.0, math.nan, value))


@elementwise(
    namespace="special",
    autocast="float32",
    kind="real float",
    vjp=lambda g, x: -g * bessel_y1(x),
    reference=_reference_y(0),
    samples=values(0.5, 11),
)
def bessel_y0(x: Term) -> Term:
    """Bessel function of the second kind, order 0; -inf at 0, NaN below.

    >>> wf.special.bessel_y0(wf.tensor([1.0, 4.0]))
    tensor([ 0.0882..., -0.0169...])
    """
    return _y(0, x)


@elementwise(
    namespace="special",
    autocast="float32",
    kind="real float",
    vjp=lambda g, x, out: g * (bessel_y0(x) - out / x),
    reference=_reference_y(1),
    samples=values(0.5, 11),
)
def bessel_y1(x: Term) -> Term:
    """Bessel function of the second kind, order 1; -inf at 0, NaN below.

    >>> wf.special.bessel_y1(wf.tensor([1.0, 4.0]))
    tensor([-0.781...,  0.397...])
    """
    return _y(1, x)


# The Airy function ------------------------------------------------------------------------------------------------------


def _no_airy_gradient(g: Any) -> Any:
    raise NotImplementedError("airy_ai: its gradient is not implemented. Detach the argument: `x.detach()`.")


def _reference_airy(x: float) -> float:
    """By the power series, in exact rational arithmetic up to the last sum."""
    from fractions import Fraction

    z = Fraction(x)
    f = g = Fraction(0)
    a, b = Fraction(1), z
    for k in range(120):
        f, g = f + a, g + b
        a, b = a * z**3 / ((3 * k + 2) * (3 * k + 3)), b * z**3 / ((3 * k + 3) * (3 * k + 4))
        a, b = a.limit_denominator(10**60), b.limit_denominator(10**60)
    first, second = 3 ** (-2 / 3) / math.gamma(2 / 3), 3 ** (-1 / 3) / math.gamma(1 / 3)
    return float(f) * first - float(g) * second


@elementwise(
    namespace="special",
    autocast="float32",
    kind="real float",
    vjp=_no_airy_gradient,
    reference=_each(_reference_airy),
    samples=values(-3, 3),
    test={"no_gradient": True},
)
def airy_ai(x: Term) -> Term:
    """Airy function Ai: the solution of y'' = x y that decays for large x.

    >>> wf.special.airy_ai(wf.tensor([0.0, 2.0]))
    tensor([0.355..., 0.0349...])
    """
    high, low = s.maximum(x, 2.0), -s.minimum(x, -6.0)
    zeta = (2 / 3) * high * s.sqrt(high)
    large = _chebyshev((2 * (2 / 3) * 2**1.5) / zeta - 1.0, _AIRY_LARGE) * s.exp(-zeta) / s.sqrt(s.sqrt(high))
    middle = _chebyshev((s.minimum(s.maximum(x, -6.0), 2.0) + 2.0) * 0.25, _AIRY_MIDDLE)
    angle = (2 / 3) * low * s.sqrt(low)
    ratio = ((2 / 3) * 6**1.5) / angle
    u = ratio * ratio * 2.0 - 1.0
    p, q = _chebyshev(u, _AIRY_P), _chebyshev(u, _AIRY_Q) / angle
    sine, cosine = s.sin(angle), s.cos(angle)  # of the angle without its shift of π / 4
    wave = ((sine + cosine) * p - (cosine - sine) * q) / (s.sqrt(s.sqrt(low)) * math.sqrt(2 * math.pi))
    return s.where(x > 2.0, large, s.where(x < -6.0, wave, middle))


def _spherical_rule(g: Any, x: Any) -> Any:
    from .transcendental import cos, sin

    small = abs(x) < 0.5
    safe = where(small, 1.0, x)
    t = x * x
    series = x * (-1 / 3 + t * (1 / 30 + t * (-1 / 840 + t * (1 / 45360 + t * (-1 / 3991680)))))
    return g * where(small, series, (cos(safe) - sin(safe) / safe) / safe)


@elementwise(
    namespace="special",
    kind="real float",
    vjp=_spherical_rule,
    reference=lambda x: np.sinc(x / np.pi),
    samples=values(-4, 4),
)
def spherical_bessel_j0(x: Term) -> Term:
    """Spherical Bessel function of the first kind, order 0: sin(x) / x, and 1 at 0.

    >>> wf.special.spherical_bessel_j0(wf.tensor([0.0, 1.0]))
    tensor([1.    , 0.841...])
    """
    return s.where(s.eq(x, 0.0), 1.0, s.sin(x) / x)
