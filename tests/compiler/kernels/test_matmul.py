"""Small matrix products of every orientation and awkward size."""

import itertools

import numpy as np
import pytest

from weft.backends.llvm import jit
from weft.compiler.kernels.matmul import small_matmul
from weft.ops import scalar as s


def relu(value, i, j):
    return s.maximum(value, 0)


@pytest.mark.parametrize(
    ("m", "n", "k"), [(16, 64, 32), (16, 10, 64), (5, 7, 3), (1, 1, 1), (33, 70, 17), (2, 40, 9)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products(m, n, k, dtype):
    rng = np.random.default_rng(0)
    for ta, tb in itertools.product((False, True), repeat=2):
        bias = ta == tb
        a = rng.standard_normal((k, m) if ta else (m, k)).astype(dtype)
        b = rng.standard_normal((n, k) if tb else (k, n)).astype(dtype)
        shift = rng.standard_normal(n).astype(dtype)
        c = np.full((m, n), np.nan, dtype)
        compiled = jit.compile_kernel(small_matmul(m, n, k, np.dtype(dtype), ta, tb, bias, relu))
        compiled.call_objects(id(a), id(b), *([id(shift)] if bias else []), id(c))
        want = (a.T if ta else a).astype(np.float64) @ (b.T if tb else b) + (shift if bias else 0)
        tolerance = 1e-5 if dtype == np.float32 else 1e-13
        np.testing.assert_allclose(c, np.maximum(want, 0), rtol=tolerance, atol=tolerance * 10)


def test_half_precision_accumulates_in_single():
    a, b = np.full((4, 2000), 0.1, np.float16), np.full((2000, 16), 0.1, np.float16)
    c = np.zeros((4, 16), np.float16)
    jit.compile_kernel(small_matmul(4, 16, 2000, np.dtype(np.float16))).call_objects(id(a), id(b), id(c))
    np.testing.assert_allclose(c, a.astype(float) @ b.astype(float), rtol=1e-3)


def test_bad_arguments():
    with pytest.raises(ValueError, match="m must be positive"):
        small_matmul(0, 1, 1, np.dtype(np.float32))
    with pytest.raises(TypeError, match="must be floating"):
        small_matmul(1, 1, 1, np.dtype(np.int32))
