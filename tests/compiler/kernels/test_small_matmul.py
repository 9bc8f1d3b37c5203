"""Small matrix products of every orientation and awkward size."""

import itertools

import numpy as np
import pytest

from weft.backends.llvm import jit
from weft.backends.llvm.target import host
from weft.compiler.loop_ir.kernels.small_matmul import small_matmul, suits
from weft.compiler.program.layout import Layout, Storage


def layout(array, offset=0):
    strides = tuple(st // array.itemsize for st in array.strides)
    return Layout(Storage("argument", array.nbytes), array.dtype, array.shape, strides, offset)


def multiply(a, b, c):
    jit.compile_kernel(small_matmul(layout(a), layout(b), layout(c), host())).call(*[x.ctypes.data for x in (a, b, c)])


@pytest.mark.parametrize(("m", "n", "k"), [(16, 64, 32), (16, 10, 64), (5, 7, 3), (1, 1, 1), (33, 70, 17), (2, 40, 9)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products(m, n, k, dtype):
    rng = np.random.default_rng(0)
    for turned, wide in itertools.product((False, True), repeat=2):
        a = rng.standard_normal((k, m)).astype(dtype).T if turned else rng.standard_normal((m, k)).astype(dtype)
        b = rng.standard_normal((k, n + 3)).astype(dtype)[:, :n] if wide else rng.standard_normal((k, n)).astype(dtype)
        c = np.full((m, n), np.nan, dtype)
        multiply(a, b, c)
        tolerance = 1e-5 if dtype == np.float32 else 1e-13
        np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=tolerance, atol=tolerance * 10)


def test_half_precision_accumulates_in_single():
    a, b = np.full((4, 2000), 0.1, np.float16), np.full((2000, 16), 0.1, np.float16)
    c = np.zeros((4, 16), np.float16)
    multiply(a, b, c)
    np.testing.assert_allclose(c, a.astype(float) @ b.astype(float), rtol=1e-3)


def test_equal_products_have_one_kernel():
    a, b, c = np.ones((4, 5), "f"), np.ones((5, 16), "f"), np.ones((4, 16), "f")
    assert small_matmul(layout(a), layout(b), layout(c), host()) is small_matmul(
        layout(a), layout(b), layout(c), host()
    )
    assert small_matmul(layout(a, 3), layout(b), layout(c), host()) is not small_matmul(
        layout(a), layout(b), layout(c), host()
    )


def test_bad_arguments():
    empty, whole = np.ones((0, 5), "f"), np.ones((5, 5), np.int32)
    with pytest.raises(ValueError, match="small_matmul: expected float matrices"):
        small_matmul(layout(empty), layout(np.ones((5, 4), "f")), layout(np.ones((0, 4), "f")), host())
    with pytest.raises(ValueError, match="small_matmul: expected float matrices"):
        small_matmul(layout(whole), layout(whole), layout(whole), host())
    assert not suits(layout(whole), layout(whole), layout(whole))
