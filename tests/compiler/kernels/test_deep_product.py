"""Deep products: results against float64, remainders along every axis, the same bits for any number of threads."""

import itertools

import numpy as np
import pytest

from weft.backends.llvm import jit
from weft.backends.llvm.target import host
from weft.compiler.loop_ir.kernels.deep_matmul import deep_kernel, shares, suits
from weft.compiler.program.layout import Layout, Storage
from weft.runtime import threads


def layout(array):
    return Layout(Storage("argument", array.nbytes), array.dtype, array.shape, tuple(st // 4 for st in array.strides))


def matrix(rng, rows, columns, turned):
    a = rng.standard_normal((columns, rows) if turned else (rows, columns), np.float32)
    return a.T if turned else a


def multiply(a, b, turned=False):
    m, n = a.shape[0], b.shape[1]
    c = np.full((n, m), np.nan, np.float32).T if turned else np.full((m, n), np.nan, np.float32)
    kernel, sizes = deep_kernel(layout(a), layout(b), layout(c), host())
    rooms = [np.full(size + 16, np.nan, np.float32) for size in sizes]
    jit.compile_kernel(kernel).call(*[x.ctypes.data for x in (a, b, *rooms, c)])
    assert all(np.isnan(room[-16:]).all() for room in rooms)  # nothing beyond what was asked for
    return c


SIZES = [
    (256, 8192, 96), (96, 5000, 16), (100, 4097, 70), (16, 4100, 65), (144, 4111, 24), (70, 4096, 40), (49, 4100, 32),
]  # fmt: skip


@pytest.mark.parametrize("sizes", SIZES)
def test_products_of_every_orientation(sizes):
    m, k, n = sizes
    rng = np.random.default_rng(0)
    for left, right, out in itertools.product((False, True), repeat=3):
        a, b = matrix(rng, m, k, left), matrix(rng, k, n, right)
        scale = np.abs(a).astype(np.float64) @ np.abs(b)
        error = np.abs(multiply(a, b, out) - a.astype(np.float64) @ b) / scale
        assert error.max() < 1e-6, (left, right, out)


def test_the_same_bits_for_any_number_of_threads():
    rng = np.random.default_rng(1)
    a, b = matrix(rng, 64, 6272, True), matrix(rng, 6272, 100, False)
    expected = multiply(a, b)
    before = threads.get_num_threads()
    try:
        threads.set_num_threads(1)
        np.testing.assert_array_equal(multiply(a, b), expected)
    finally:
        threads.set_num_threads(before)


def test_every_piece_of_the_depth_belongs_to_one_share():
    for m, k, n in itertools.product((16, 200), (4096, 4097, 50_176, 401_408), (64, 400)):
        size = shares(m, n, k, host())
        whole = k // size.piece
        assert size.shares * size.pieces >= whole > (size.shares - 1) * size.pieces
    machine = host()
    assert suits(256, 256, 16384, machine)
    assert not suits(256, 1024, 3136, machine) and not suits(8, 256, 16384, machine)
