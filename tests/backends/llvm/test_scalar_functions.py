"""Every scalar function, for every dtype it accepts, gives NumPy's answer in native code."""

import numpy as np
import pytest

import weft as wf
from weft.backends.llvm import eager
from weft.ops.core import scalar as s

SKIP = {"lgamma"}  # tested by itself; the C library, once per element
ULP = {s.FLOAT16: 1, s.BFLOAT16: 1, s.FLOAT32: 8, s.FLOAT64: 8}


def operands(dtype, arity):
    rng = np.random.default_rng(3)
    kind = s.kind(dtype)
    size = 83
    result = []
    for k in range(arity):
        if kind == "b":
            x = rng.integers(0, 2, size).astype(bool)
        elif kind == "f":
            x = rng.uniform(-4, 4, size)
            x[:6] = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5]
            x = np.roll(x, k).astype(dtype)
        else:
            info = np.iinfo(dtype)
            x = rng.integers(max(info.min, -9), min(info.max, 100), size, dtype=np.int64).astype(dtype)
            x[:4] = [info.min, info.max, 0, 1]
            x = np.roll(x, 2 * k)
        result.append(x)
    return result


def accepted(fn, dtype):
    k = s.kind(dtype)
    if fn.name == "mulhi":
        return dtype == s.UINT32
    return k in fn.kinds or (fn.result in ("float", "divide") and dtype in (s.BOOL, s.INT32, np.dtype(np.uint8)))


def want(fn, arrays, dtype):
    """NumPy's answer; half precision computed in float32 and rounded once, the rule of the scalar language."""
    if fn.name == "fma" and dtype == s.FLOAT32:  # rounded once, as if computed exactly
        x, y, z = (a.astype(np.float64) for a in arrays)
        return (x * y + z).astype(dtype)
    half = s.kind(dtype) == "f" and dtype.itemsize == 2 and fn.name not in ("nextafter",)
    if half:
        result = getattr(s, fn.name)(*[a.astype(np.float32) for a in arrays])
        return result.astype(dtype) if result.dtype == np.float32 else result
    return getattr(s, fn.name)(*arrays)


def close(got, expected, dtype, name):
    if s.kind(expected.dtype) != "f":
        np.testing.assert_array_equal(got, expected, err_msg=name)
        return
    ulps = ULP[expected.dtype]
    eps = float(np.finfo(expected.dtype).eps) if expected.dtype != s.BFLOAT16 else 2.0**-7
    a, b = got.astype(np.float64), expected.astype(np.float64)
    least = 1e-14 if name == "fma float64" else float(np.finfo(np.float32).tiny)
    np.testing.assert_allclose(a, b, rtol=ulps * eps, atol=least, err_msg=name)


@pytest.mark.parametrize("arity", [1, 2, 3])
@pytest.mark.parametrize("dtype", s.DTYPES, ids=str)
def test_every_function_matches_numpy(dtype, arity):
    fns = [f for f in s.FUNCTIONS.values() if f.arity == arity and f.name not in SKIP and accepted(f, dtype)]
    if not fns:
        pytest.skip("no function of this arity")
    arrays = operands(dtype, arity)
    if s.kind(dtype) in "iu" and arity == 2:
        # NumPy refuses negative integer powers, and shifts by a negative amount mean nothing.
        arrays[1] = np.abs(arrays[1]) if s.kind(dtype) == "i" else arrays[1]
        arrays[1] = np.where(arrays[1] < 0, 3, arrays[1]).astype(dtype)

    def every(*xs):
        return tuple(getattr(s, f.name)(*xs) for f in fns)

    results = eager.elementwise_many("every", every, arrays, arrays[0].shape)
    with np.errstate(all="ignore"):
        for fn, got in zip(fns, results, strict=True):
            expected = np.asarray(want(fn, arrays, dtype))
            assert got.dtype == expected.dtype, fn.name
            close(got, expected, dtype, f"{fn.name} {dtype}")


@pytest.mark.parametrize("source", s.DTYPES, ids=str)
def test_casts_to_every_dtype(source):
    (x,) = operands(source, 1)
    if s.kind(source) == "f":
        x = np.abs(x)  # a negative float has no unsigned value

    def every(v):
        return tuple(s.cast(v, d) for d in s.DTYPES)

    with np.errstate(all="ignore"):
        for got, dtype in zip(eager.elementwise_many("cast", every, [x], x.shape), s.DTYPES, strict=True):
            if s.kind(source) != "f" and s.kind(dtype) == "f" and dtype.itemsize == 2:
                expected = x.astype(np.float32).astype(dtype)
            else:
                expected = x.astype(dtype)
            np.testing.assert_array_equal(got, expected, err_msg=f"{source} to {dtype}")


def test_where_and_bits():
    x = np.float32([1.5, -2, 0, np.nan, np.inf])
    y = np.float32([0, 1, -3, 2, 5])
    got = eager.elementwise("where", lambda a, b: s.where(a > b, a, b), [x, y], x.shape)
    np.testing.assert_array_equal(got, np.where(x > y, x, y))
    bits = eager.elementwise("bits", lambda a: s.bitcast(a, np.uint32), [x], x.shape)
    np.testing.assert_array_equal(bits, x.view(np.uint32))
    half = x.astype(np.float16)
    bits = eager.elementwise("bits", lambda a: s.bitcast(a, np.uint16), [half], half.shape)
    np.testing.assert_array_equal(bits, half.view(np.uint16))


def test_integer_division_never_traps():
    a = np.array([5, -5, 0, np.iinfo(np.int32).min, 7, -7], np.int32)
    b = np.array([0, 0, 0, -1, -2, 2], np.int32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(eager.elementwise("d", s.floor_divide, [a, b], a.shape), np.floor_divide(a, b))
        np.testing.assert_array_equal(eager.elementwise("r", s.remainder, [a, b], a.shape), np.remainder(a, b))


def test_shifts_past_the_width():
    x = np.array([1, -1, 100, -128], np.int8)
    by = np.array([7, 8, 9, 100], np.int8)
    np.testing.assert_array_equal(eager.elementwise("l", s.left_shift, [x, by], x.shape), np.left_shift(x, by))
    np.testing.assert_array_equal(eager.elementwise("r", s.right_shift, [x, by], x.shape), np.right_shift(x, by))


def test_negative_integer_powers_truncate():
    x = np.array([1, -1, -1, 2, 0], np.int64)
    y = np.array([-3, -3, -2, -1, -1], np.int64)
    assert eager.elementwise("p", s.pow, [x, y], x.shape).tolist() == [1, -1, 1, 0, 0]


def test_half_precision_rounds_once():
    x = np.float16([1.0, 1.001, 0.1, 60000, 6e-8])
    got = eager.elementwise("f", lambda v: v * v + v - v, [x], x.shape)
    f = x.astype(np.float32)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got, (f * f + f - f).astype(np.float16))


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, np.uint64])
@pytest.mark.parametrize("divisor", [1, 2, 3, 8, 64])
def test_division_by_a_constant_rounds_down_whatever_the_sign(dtype, divisor):
    (x,) = operands(np.dtype(dtype), 1)

    @wf.function
    def both(x):
        return x // divisor, x % divisor

    for got, expected in zip(both(wf.asarray(x)), (x // dtype(divisor), x % dtype(divisor)), strict=True):
        np.testing.assert_array_equal(got.numpy(), expected)


@pytest.mark.parametrize("dtype", [s.FLOAT32, s.FLOAT64, s.INT32], ids=str)
@pytest.mark.parametrize("number", [0, 6, -1.5, float("inf"), float("nan")])
def test_extremum_with_a_number_on_either_side(dtype, number):
    """One comparison is enough there, and nan still wins."""
    if dtype == s.INT32 and number != int(number if np.isfinite(number) else 7):
        pytest.skip("not an integer")
    x = np.array([0.0, -0.0, 1, -1, 6, 7, -8, 100] * 5 + [np.nan, np.inf, -np.inf][: 0 if dtype == s.INT32 else 3])
    x = x.astype(dtype)
    out = np.empty_like(x)
    for name in ("maximum", "minimum"):
        fn = getattr(s, name)
        for expression in (lambda v, fn=fn: fn(v, number), lambda v, fn=fn: fn(number, v)):
            eager.elementwise(f"{name}_number", expression, [x], x.shape, out)
            np.testing.assert_array_equal(out, getattr(np, name)(x, dtype.type(number)))
