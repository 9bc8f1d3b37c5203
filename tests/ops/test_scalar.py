"""The scalar language: NumPy on arrays, expressions on expressions, and the special functions."""

import math
import pickle

import ml_dtypes
import numpy as np
import pytest
import scipy.special

from weft.ops.core import scalar as s

BF16 = np.dtype(ml_dtypes.bfloat16)


def gelu(x):
    return 0.5 * x * (1 + s.erf(x * 0.7071067811865476))


def test_one_definition_computes_and_traces():
    x = np.float32([-1, 0, 2])
    assert gelu(x).dtype == np.float32
    np.testing.assert_allclose(gelu(x), x * scipy.special.ndtr(x), rtol=2e-7)
    expr = s.trace(gelu, [np.float32])
    assert expr.dtype == np.float32
    assert str(expr) == "0.5 * x0 * (1 + erf(x0 * 0.70710677))"


def test_expressions_are_unique_and_immutable():
    x = s.arg(0, np.float32)
    assert s.exp(x) * 2 is s.exp(x) * 2
    assert s.exp(x) != s.exp(s.arg(1, np.float32))
    assert s.const(0.0) is not s.const(-0.0)
    assert s.const(math.nan) is s.const(math.nan)
    assert pickle.loads(pickle.dumps(s.exp(x) + 1)) is s.exp(x) + 1
    with pytest.raises(AttributeError, match="immutable"):
        x.fn = "other"


def test_unused_expressions_are_forgotten():
    before = len(s._unique)
    expr = s.exp(s.arg(0, np.float32) + 123.456)
    assert len(s._unique) > before
    del expr
    assert len(s._unique) <= before


def test_truth_and_equality_with_numbers_are_refused():
    x = s.arg(0, np.float32)
    with pytest.raises(TypeError, match=r"s\.where"):
        bool(x > 0)
    with pytest.raises(TypeError, match=r"s\.eq"):
        x == 0  # noqa: B015
    with pytest.raises(TypeError, match="condition is not an expression"):
        s.where(True, x, 0)


@pytest.mark.parametrize(
    ("operands", "expected"),
    [
        (("float32", 2.5), "float32"),
        (("int32", 2.5), "float64"),
        (("int8", 3), "int8"),
        (("bool", 3), "int64"),
        ((BF16, 2.0), BF16),
        ((BF16, "float16"), "float32"),
        ((BF16, "float64"), "float64"),
        ((BF16, "int64"), BF16),
        (("uint8", "int8"), "int16"),
        (("float16", "float32"), "float32"),
    ],
)
def test_promotion(operands, expected):
    exprs = [s.arg(i, d) if not isinstance(d, (int, float)) else d for i, d in enumerate(operands)]
    assert s.add(*exprs).dtype == np.dtype(expected)
    assert s.result_type(*operands) == np.dtype(expected)


def test_numpy_scalars_are_strong_and_defer_to_expressions():
    x = s.arg(0, np.float32)
    assert (np.float64(2) * x).dtype == np.float64
    assert (np.float32(2) - x) is s.sub(np.float32(2), x)
    with pytest.raises(TypeError, match="an expression meets a ndarray"):
        s.add(x, np.ones(3, np.float32))


def test_python_integer_out_of_range_raises_as_in_numpy():
    with pytest.raises(OverflowError):
        s.arg(0, np.uint8) + 300


def test_weak_numbers_keep_bfloat16_in_numpy():
    x = np.ones(3, BF16)
    assert s.add(x, 2.0).dtype == BF16
    assert s.mul(2, x).dtype == BF16
    assert s.where(x > 0, x, 0.0).dtype == BF16


@pytest.mark.parametrize("name", sorted(s.FUNCTIONS))
@pytest.mark.parametrize("dtype", s.DTYPES, ids=str)
def test_result_dtype_of_expression_is_numpys(name, dtype):
    fn = s.FUNCTIONS[name]
    call = getattr(s, name)
    operands = [np.ones(2, dtype)] * fn.arity
    try:
        expr = call(*[s.arg(i, dtype) for i in range(fn.arity)])
    except TypeError as error:
        assert s.kind(dtype) not in fn.kinds, error
        return
    if name == "mulhi" and dtype != np.uint32:
        return  # arrays are converted to uint32 there
    with np.errstate(all="ignore"):
        assert expr.dtype == call(*operands).dtype


def test_complex_is_for_numpy_only():
    assert s.exp(np.complex64(1j)).dtype == np.complex64
    with pytest.raises(TypeError, match="no native code"):
        s.arg(0, np.complex64)
    with pytest.raises(TypeError, match="complex"):
        s.erf(np.complex64(1j))


def test_erf_and_erfc_are_accurate_everywhere():
    x = np.concatenate([np.linspace(-7, 7, 20001), np.geomspace(1e-300, 1, 2000), [0.84375, 1.25, 1 / 0.35]])
    exact = np.array([math.erf(v) for v in x])
    np.testing.assert_array_max_ulp(s.erf(x), exact, 2)
    x = np.linspace(-6, 26, 20001)
    exact = np.array([math.erfc(v) for v in x])
    np.testing.assert_allclose(s.erfc(x), exact, rtol=2e-15)
    x32 = x.astype(np.float32)
    np.testing.assert_array_max_ulp(s.erf(x32), scipy.special.erf(x32.astype(float)).astype(np.float32), 1)


@pytest.mark.parametrize("size", [1, 300])
def test_special_values_do_not_warn(size):
    def full(v):
        return np.full(size, v, np.float32)

    assert s.erf(full(np.inf))[0] == 1
    assert s.erf(full(-np.inf))[0] == -1
    assert np.isnan(s.erf(full(np.nan))[0])
    assert np.signbit(s.erf(full(-0.0))[0])
    assert s.erfc(full(-np.inf))[0] == 2
    assert s.erfc(full(np.inf))[0] == 0
    with np.errstate(over="ignore"):
        assert s.sigmoid(full(-200))[0] == 0
        assert s.sigmoid(full(200))[0] == 1
    assert s.lgamma(full(-3))[0] == np.inf
    assert s.erf(np.float32(0.5)).shape == ()


def test_index_arithmetic_folds():
    i, n = s.index("i"), s.param("n")
    assert str(i * 1 + 0 + s.index("j") * n + s.const(3) * 4) == "i + j * n + 12"
    assert i * 0 is s.const(0)
    assert 1 * i is i


def test_printing_names_what_is_shared():
    x, y = s.arg(0, np.float32), s.arg(1, np.float32)
    e = s.exp(x - y)
    assert repr(e / (1 + e) ** 2) == "t0 = exp(x0 - x1); t0 / (1 + t0) ** 2"
    assert str(-(x + y) * 2) == "-(x0 + x1) * 2"
    assert str(s.where(x > y, x, -1.5)) == "where(x0 > x1, x0, -1.5)"
    assert str(x - (y - x)) == "x0 - (x1 - x0)"
    assert str((x & 1) if s.kind(x.dtype) in "iu" else s.cast(x, "int32") & 1) == "int32(x0) & 1"


def test_substitute_rebuilds_and_checks_dtypes():
    x, y = s.arg(0, np.float32), s.arg(1, np.float32)
    expr = s.exp(x) + x
    assert s.substitute(expr, lambda node: y if node is x else None) is s.exp(y) + y
    with pytest.raises(TypeError, match="dtype changed"):
        s.substitute(expr, lambda node: s.arg(0, np.float64) if node is x else None)


def test_deep_expressions_do_not_recurse():
    x = s.arg(0, np.float32)
    for _ in range(5000):
        x = x + 1.0
    assert sum(1 for _ in s.topological([x])) == 5002
    assert s.substitute(x, lambda node: None) is x
    assert len(str(x)) > 10000
    del x  # frees the chain without overflowing the stack


def test_casts_and_bits():
    x = np.float32([1.9, -1.9])
    assert s.cast(x, np.int32).tolist() == [1, -1]
    assert s.bitcast(np.float32(1), np.uint32) == 0x3F800000
    assert s.mulhi(np.uint32(0xFFFFFFFF), np.uint32(0xFFFFFFFF)) == 0xFFFFFFFE
    with pytest.raises(TypeError, match="sizes differ"):
        s.bitcast(s.arg(0, np.float32), np.uint64)
