"""Accuracy of the polynomial mathematics against extended precision, over the whole range and at its edges."""

import math

import numpy as np
import pytest

from weft.backends.llvm import eager
from weft.ops.core import scalar as s

LONG = np.longdouble
# Largest error in units in the last place, measured with room of about a third.
LIMITS = {"float32": 2.5, "float64": 2.5}
LOOSER = {"tan": 4.0, "cosh": 3.2, "sinh": 3.2, "tanh": 3.2, "acosh": 3.2, "erfc": 6.0}
RANGES = {
    "exp": (-110, 95, -750, 712), "exp2": (-160, 130, -1080, 1026), "expm1": (-40, 90, -60, 712),
    "sinh": (-90, 90, -711, 711), "cosh": (-90, 90, -711, 711), "sin": (-200, 200, -1e6, 1e6),
    "cos": (-200, 200, -1e6, 1e6), "tan": (-200, 200, -1e6, 1e6), "asin": (-1, 1, -1, 1), "acos": (-1, 1, -1, 1),
    "atanh": (-1, 1, -1, 1), "acosh": (1, 50, 1, 50), "erf": (-6, 6, -6, 6), "erfc": (-6, 10, -6, 26),
    "tanh": (-10, 10, -20, 20),
}  # fmt: skip
NAMES = (
    "exp exp2 expm1 log log1p log2 log10 sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh erf erfc sigmoid"
).split()


def reference(name, x):
    """The function in extended precision (erf and erfc: the C library's double)."""
    wide = x.astype(LONG)
    if name in ("erf", "erfc"):
        return np.array([getattr(math, name)(v) for v in x.astype(float)]).astype(LONG)
    if name == "sigmoid":
        return 1 / (1 + np.exp(-wide))
    if name == "rsqrt":
        return 1 / np.sqrt(wide)
    return (1 / wide) if name == "reciprocal" else s.FUNCTIONS[name].numpy(wide)


def samples(name, dtype):
    rng = np.random.default_rng(hash(name) % 1000)
    info = np.finfo(dtype)
    low32, high32, low64, high64 = RANGES.get(name, (-50, 50, -50, 50))
    low, high = (low32, high32) if dtype == np.float32 else (low64, high64)
    exponents = rng.uniform(math.log10(info.tiny), math.log10(info.max), 4000)
    edges = [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, info.tiny, -info.tiny, info.smallest_subnormal]
    edges += [-info.smallest_subnormal, info.max, -info.max, 0.5, -0.5, 2, 1e-20, 10, 100, 1000]
    parts = [
        rng.uniform(low, high, 20000),
        rng.uniform(-1, 1, 5000),
        rng.uniform(0.5, 2, 5000),
        10**exponents * rng.choice([-1, 1], 4000),
        edges,
    ]
    return np.concatenate(parts).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_accuracy_in_ulp(name, dtype):
    x = samples(name, dtype)
    with np.errstate(all="ignore"):
        exact = reference(name, x)
        rounded = exact.astype(dtype)
        got = eager.elementwise(name, getattr(s, name), [x], x.shape)
        ulp = np.spacing(np.abs(np.where(np.isfinite(rounded), rounded, 1))).astype(LONG)
        error = np.abs(got.astype(LONG) - exact) / ulp
    finite = np.isfinite(rounded) & np.isfinite(got)
    odd = ~finite & ~((np.isnan(rounded) & np.isnan(got)) | (rounded == got))
    assert not odd.any(), (x[odd][:5], got[odd][:5], rounded[odd][:5])
    zeros = finite & (rounded == 0) & (got == 0)
    assert (np.signbit(rounded) == np.signbit(got))[zeros].all(), x[zeros]
    worst = np.argmax(np.where(finite, error, 0))
    limit = LOOSER.get(name, LIMITS[np.dtype(dtype).name])
    assert error[worst] <= limit, f"{name}({x[worst]!r}) = {got[worst]!r}, want {rounded[worst]!r}: {error[worst]} ulp"


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_angles_of_any_size(dtype):
    """Huge angles leave the polynomials' range reduction and still come out right."""
    x = np.array([1e5, 1.1e5, 3e7, 1e10, 1e15, 1e22, 1e30, 3.3e38, -2.5e20], dtype)
    for name in ("sin", "cos"):
        got = eager.elementwise(name, getattr(s, name), [x], x.shape)
        exact = np.array([getattr(math, name)(float(v)) for v in x])
        np.testing.assert_allclose(got, exact, rtol=4 * np.finfo(dtype).eps, atol=np.finfo(dtype).eps)


def test_power():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(0, 10, 5000), 10 ** rng.uniform(-30, 30, 5000), 1 + rng.uniform(-1e-3, 1e-3, 5000)])
    y = np.concatenate([rng.uniform(-20, 20, 5000), rng.uniform(-1, 1, 5000), rng.uniform(-5e4, 5e4, 5000)])
    for dtype, limit in ((np.float32, 1.0), (np.float64, 6.0)):
        a, b = x.astype(dtype), y.astype(dtype)
        with np.errstate(all="ignore"):
            exact = np.power(a.astype(LONG), b.astype(LONG))
            rounded = exact.astype(dtype)
            got = eager.elementwise("pow", s.pow, [a, b], a.shape)
            error = np.abs(got.astype(LONG) - exact) / np.spacing(np.abs(rounded)).astype(LONG)
        finite = np.isfinite(rounded) & (np.abs(rounded) > np.finfo(dtype).tiny)
        assert error[finite].max() <= limit
        np.testing.assert_array_equal(np.isinf(got[np.isinf(rounded)]), True)


@pytest.mark.parametrize(
    "name", ["pow", "atan2", "hypot", "remainder", "floor_divide", "logaddexp", "nextafter", "copysign"]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_binary_special_values_match_numpy(name, dtype):
    edges = np.array([0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, 1e30, -7.5, np.inf, -np.inf, np.nan], dtype)
    a, b = (m.ravel() for m in np.meshgrid(edges, edges))
    with np.errstate(all="ignore"):
        want = s.FUNCTIONS[name].numpy(a, b)
    got = eager.elementwise(name, getattr(s, name), [a, b], a.shape)
    np.testing.assert_allclose(got, want, rtol=8 * np.finfo(dtype).eps)
    if name not in ("hypot", "logaddexp"):
        zeros = want == 0
        np.testing.assert_array_equal(np.signbit(got)[zeros], np.signbit(want)[zeros])


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_remainders_are_exact(dtype):
    rng = np.random.default_rng(1)
    a = (rng.standard_normal(4000) * 10 ** rng.uniform(-10, 10, 4000)).astype(dtype)
    b = (rng.standard_normal(4000) * 10 ** rng.uniform(-10, 10, 4000)).astype(dtype)
    np.testing.assert_array_equal(eager.elementwise("r", s.remainder, [a, b], a.shape), np.remainder(a, b))
    np.testing.assert_array_equal(eager.elementwise("d", s.floor_divide, [a, b], a.shape), np.floor_divide(a, b))


def test_constant_powers_are_products():
    x = np.array([-3.0, -0.0, 0.0, 2.5, np.inf, -np.inf, np.nan], np.float32)
    for n in (0, 1, 2, 3, 4, -1, -2, 0.5, -0.5, 7):
        with np.errstate(all="ignore"):
            want = np.power(x, np.float32(n))
        got = eager.elementwise("p", lambda v, n=n: v**n, [x], x.shape)
        np.testing.assert_allclose(got, want, rtol=3e-7)


def test_lgamma_comes_from_the_library():
    x = np.array([0.1, 1, 2, 5.5, -0.5, 100, -3, np.inf, np.nan])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(
            eager.elementwise("lgamma", s.lgamma, [x], x.shape), s.lgamma(x), rtol=1e-14, atol=1e-15
        )
