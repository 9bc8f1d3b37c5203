"""NumPy implementations of scalar functions that NumPy lacks (erf, erfc, lgamma, sigmoid, rsqrt, mulhi …).

They serve small arrays, references and machines without a native backend. None of them warns: special cases (infinities,
NaN, underflow to 0) are part of the function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

# Up to this many elements a call of the C library per element beats the vector code and its temporaries.
_SCALAR_MAX_ELEMENTS = 128

# Rational approximations of erf on four intervals, lowest power first.
# ====================================================
# Copyright (C) 1993 by Sun Microsystems, Inc. All rights reserved.
# Developed at SunPro, a Sun Microsystems, Inc. business.
# Permission to use, copy, modify, and distribute this software is freely granted, provided that this notice
# is preserved.
# ====================================================
_ERX = 8.45062911510467529297e-01
_PP = (1.28379167095512558561e-01, -3.25042107247001499370e-01, -2.84817495755985104766e-02,
       -5.77027029648944159157e-03, -2.37630166566501626084e-05)  # fmt: skip
_QQ = (1.0, 3.97917223959155352819e-01, 6.50222499887672944485e-02, 5.08130628187576562776e-03,
       1.32494738004321644526e-04, -3.96022827877536812320e-06)  # fmt: skip
_PA = (-2.36211856075265944077e-03, 4.14856118683748331666e-01, -3.72207876035701323847e-01,
       3.18346619901161753674e-01, -1.10894694282396677476e-01, 3.54783043256182359371e-02,
       -2.16637559486879084300e-03)  # fmt: skip
_QA = (1.0, 1.06420880400844228286e-01, 5.40397917702171048937e-01, 7.18286544141962662868e-02,
       1.26171219808761642112e-01, 1.36370839120290507362e-02, 1.19844998467991074170e-02)  # fmt: skip
_RA = (-9.86494403484714822705e-03, -6.93858572707181764372e-01, -1.05586262253232909814e01,
       -6.23753324503260060396e01, -1.62396669462573470355e02, -1.84605092906711035994e02,
       -8.12874355063065934246e01, -9.81432934416914548592e00)  # fmt: skip
_SA = (1.0, 1.96512716674392571292e01, 1.37657754143519042600e02, 4.34565877475229228821e02,
       6.45387271733267880336e02, 4.29008140027567833386e02, 1.08635005541779435134e02,
       6.57024977031928170135e00, -6.04244152148580987438e-02)  # fmt: skip
_RB = (-9.86494292470009928597e-03, -7.99283237680523006574e-01, -1.77579549177547519889e01,
       -1.60636384855821916062e02, -6.37566443368389627722e02, -1.02509513161107724954e03,
       -4.83519191608651397019e02)  # fmt: skip
_SB = (1.0, 3.03380607434824582924e01, 3.25792512996573918826e02, 1.53672958608443695994e03,
       3.19985821950859553908e03, 2.55305040643316442583e03, 4.74528541206955367215e02,
       -2.24409524465858183362e01)  # fmt: skip


def _horner(x: np.ndarray, coefficients: tuple[float, ...]) -> np.ndarray:
    total = np.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        total *= x
        total += c
    return total


def _small(x: np.ndarray) -> np.ndarray:
    """erf for |x| < 0.84375."""
    z = x * x
    return x + x * (_horner(z, _PP) / _horner(z, _QQ))


def _middle(x: np.ndarray) -> np.ndarray:
    """erf(x) - erx for 0.84375 <= x < 1.25."""
    z = x - 1.0
    return _horner(z, _PA) / _horner(z, _QA)


def _tail(x: np.ndarray) -> np.ndarray:
    """erfc for x >= 1.25."""
    x = np.minimum(x, 30.0)  # erfc(30) is 0 in double precision
    z = 1.0 / (x * x)
    ratio = np.where(x < 1.0 / 0.35, _horner(z, _RA) / _horner(z, _SA), _horner(z, _RB) / _horner(z, _SB))
    # exp(-x*x) with the square split, so that its rounding error does not enter the exponent.
    head = (x.view(np.int64) & np.int64(-0x100000000)).view(np.float64)
    return np.exp(-head * head - 0.5625) * np.exp((head - x) * (head + x) + ratio) / x


def _pieces(x: np.ndarray, complement: bool) -> np.ndarray:
    out = np.full_like(x, np.nan)
    a = np.abs(x)
    with np.errstate(all="ignore"):
        mask = a < 0.84375
        y = _small(x[mask])
        if complement:  # 1 - x exactly first where x >= 1/4, as the difference would lose bits
            xs = x[mask]
            y = np.where(xs < 0.25, 1.0 - y, 0.5 - ((xs - 0.5) + (y - xs)))
        out[mask] = y
        mask = (a >= 0.84375) & (a < 1.25)
        y = _middle(a[mask])
        if complement:
            out[mask] = np.where(x[mask] >= 0, (1.0 - _ERX) - y, 1.0 + (_ERX + y))
        else:
            out[mask] = np.copysign(_ERX + y, x[mask])
        mask = a >= 1.25
        y = _tail(a[mask])
        if complement:
            out[mask] = np.where(x[mask] >= 0, y, 2.0 - y)
        else:
            out[mask] = np.copysign(1.0 - y, x[mask])
    return out


def _as_float(x: Any) -> tuple[np.ndarray, np.dtype]:
    """The operand as float64 and the dtype NumPy would answer in."""
    x = np.asarray(x)
    if x.dtype.kind == "c":
        raise TypeError(f"erf, erfc, lgamma: not defined for complex numbers. Got {x.dtype}; expected a real dtype.")
    if x.dtype.kind == "f" or x.dtype == _BFLOAT16:
        dtype = x.dtype
    else:
        dtype = np.dtype(np.float16 if x.dtype.itemsize == 1 else np.float32 if x.dtype.itemsize == 2 else np.float64)
    return x.astype(np.float64), dtype


def _each(x: np.ndarray, fn: Callable[[float], float]) -> np.ndarray:
    return np.fromiter(map(fn, x.ravel().tolist()), np.float64, x.size).reshape(x.shape)


def _narrow(y: np.ndarray, dtype: np.dtype) -> Any:
    with np.errstate(over="ignore", under="ignore"):
        return y.astype(dtype, copy=False)[()]


def erf(x: Any) -> Any:
    """Error function, within 1 ulp in float64."""
    z, dtype = _as_float(x)
    return _narrow(_each(z, math.erf) if z.size <= _SCALAR_MAX_ELEMENTS else _pieces(z, False), dtype)


def erfc(x: Any) -> Any:
    """Complementary error function, within a few ulp in float64 also in the far tail."""
    z, dtype = _as_float(x)
    return _narrow(_each(z, math.erfc) if z.size <= _SCALAR_MAX_ELEMENTS else _pieces(z, True), dtype)


def _lgamma(x: float) -> float:
    if x <= 0.0 and x == math.floor(x):  # poles; also -inf
        return math.inf
    return math.lgamma(x)


def lgamma(x: Any) -> Any:
    """log |gamma(x)|; infinity at the poles."""
    z, dtype = _as_float(x)
    return _narrow(_each(z, _lgamma), dtype)


def _floating(x: Any) -> np.ndarray:
    """Integers in the float type NumPy's own functions would use for them."""
    x = np.asarray(x)
    if x.dtype.kind == "f":
        return x
    return x if x.dtype == _BFLOAT16 or x.dtype.kind in "fc" else x.astype(np.sqrt(np.ones((), x.dtype)).dtype)


def sigmoid(x: Any) -> Any:
    """Logistic function. Where exp(-x) overflows, the result is below every normal number: 1 / inf = 0 is right."""
    x = _floating(x)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.reciprocal(np.exp(np.negative(x)) + x.dtype.type(1))


def reciprocal(x: Any) -> Any:
    """1 / x, in floating point also for integers."""
    return np.reciprocal(_floating(x))


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""
    return np.reciprocal(np.sqrt(x))


def round_half_even(x: Any) -> Any:
    """Round to the nearest integer, halves to even; integers and bools as they are."""
    x = np.asarray(x)
    return x[()].copy() if x.dtype.kind in "biu" else np.rint(x)


def signbit(x: Any) -> Any:
    """Sign bit of floats; `x < 0` of integers."""
    x = np.asarray(x)
    return np.less(x, 0) if x.dtype.kind in "biu" else np.signbit(x)


def mulhi(x: Any, y: Any) -> Any:
    """Upper half of the product of two uint32."""
    product = np.asarray(x, np.uint32).astype(np.uint64) * np.asarray(y, np.uint32).astype(np.uint64)
    return (product >> np.uint64(32)).astype(np.uint32)[()]
