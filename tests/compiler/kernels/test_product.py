"""Blocked products of every orientation, with sizes that leave rests everywhere; and the packing of their right operand."""

import itertools

import numpy as np
import pytest

from weft.backends.llvm import jit
from weft.compiler import loops
from weft.compiler.kernels.product import Blocks, blocked_product, blocks, pack_panels
from weft.compiler.layout import Layout, Storage
from weft.compiler.loops import Buffer, Kernel
from weft.ops import scalar as s
from weft.runtime import threads

F32 = np.dtype(np.float32)
BUFFERS = tuple(Buffer.of(name, F32, (1 << 40,)) for name in "abcd")


def layout(array):
    return Layout(Storage("argument", array.nbytes), array.dtype, array.shape, tuple(st // 4 for st in array.strides))


def matrix(rng, rows, columns, turned):
    a = rng.standard_normal((columns, rows) if turned else (rows, columns), np.float32)
    return a.T if turned else a


def panels(b):
    """The right operand packed, and its layout as `blocked_product` wants it: a shape, no strides."""
    packed = np.full(b.size, np.nan, np.float32)
    place = Layout(Storage("arena", packed.nbytes), F32, b.shape, (0, 0))
    jit.compile_kernel(pack_panels(layout(b), place)).call(b.ctypes.data, packed.ctypes.data)
    return packed, place


def multiply(a, b, size=None, direct=False):
    x, y, z, _ = BUFFERS
    packed, place = (b, layout(b)) if direct else panels(b)
    c = np.full((a.shape[0], b.shape[1]), np.nan, np.float32)
    finish = lambda i, j, value, tag: [loops.store(z[i * b.shape[1] + j], value)]
    near = lambda i, j: [loops.prefetch(z[i * b.shape[1] + j], write=True)]
    size = size or blocks(layout(a), b.shape[1])
    body = blocked_product((x, layout(a)), (y, place), size, finish, near)
    jit.compile_kernel(Kernel("product", (x, y, z), (), tuple(body))).call(*[m.ctypes.data for m in (a, packed, c)])
    return c


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("depth", "columns"), [(1, 1), (16, 64), (33, 70), (130, 128), (48, 17)])
def test_panels_hold_the_columns_in_order(depth, columns, turned):
    b = matrix(np.random.default_rng(0), depth, columns, turned)
    packed, _ = panels(b)
    expected = [b[:, j : j + 64].ravel() for j in range(0, columns, 64)]
    np.testing.assert_array_equal(packed, np.concatenate(expected))


@pytest.mark.parametrize("sizes", [(1, 1, 1), (48, 64, 64), (100, 37, 130), (97, 700, 200), (50, 1500, 333), (7, 2000, 10)])
def test_products_of_every_orientation(sizes):
    m, k, n = sizes
    rng = np.random.default_rng(1)
    for left, right in itertools.product((False, True), repeat=2):
        a, b = matrix(rng, m, k, left), matrix(rng, k, n, right)
        exact = a.astype(np.float64) @ b
        scale = np.abs(a).astype(np.float64) @ np.abs(b)
        error = np.abs(multiply(a, b) - exact) / scale
        assert error.max() < 1e-6, (left, right)


def test_a_left_operand_without_a_dense_axis_and_a_right_one_as_it_lies():
    rng = np.random.default_rng(2)
    a = rng.standard_normal((60, 200), np.float32)[::2, ::3]
    b = rng.standard_normal((67, 140), np.float32)[:, :129]
    np.testing.assert_allclose(multiply(a, b, direct=True), a.astype(np.float64) @ b, rtol=1e-4, atol=1e-5)


def test_what_is_done_at_the_end_is_done_once_per_element_however_deep():
    rng = np.random.default_rng(3)
    x, y, z, w = BUFFERS
    for k in (100, 1500):  # in registers; from sums in local memory
        a, b = rng.standard_normal((45, k), np.float32), rng.standard_normal((k, 100), np.float32)
        old = rng.standard_normal((45, 100), np.float32)
        new = old.copy()
        packed, place = panels(b)

        def finish(i, j, value, tag):
            g = loops.Let(f"{tag}g", value * 0.5)
            return [g, loops.store(z[i * 100 + j], z[i * 100 + j] + g.var), loops.store(w[i * 100 + j], g.var)]

        grad = np.full((45, 100), np.nan, np.float32)
        body = blocked_product((x, layout(a)), (y, place), blocks(layout(a), 100), finish)
        kernel = jit.compile_kernel(Kernel("update", BUFFERS, (), tuple(body)))
        kernel.call(*[m.ctypes.data for m in (a, packed, new, grad)])
        np.testing.assert_allclose(grad, 0.5 * (a @ b), rtol=1e-3, atol=1e-3)
        np.testing.assert_array_equal(new, old + grad)


def test_blocks_and_threads_never_change_a_result():
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((150, 900), np.float32), rng.standard_normal((900, 300), np.float32)
    expected = multiply(a, b, Blocks(48, 256, 512))
    np.testing.assert_array_equal(multiply(a, b, Blocks(30, 128, 512)), expected)
    before = threads.get_num_threads()
    try:
        threads.set_num_threads(1)
        np.testing.assert_array_equal(multiply(a, b, Blocks(48, 256, 512)), expected)
    finally:
        threads.set_num_threads(before)


def test_local_memory_stays_within_its_limit():
    for m, k, n in itertools.product((1, 40, 1000, 16384), (64, 1000, 20000), (10, 300, 8000)):
        for strides in ((k, 1), (1, m)):
            size = blocks(Layout(Storage("argument", 4), F32, (m, k), strides), n)
            if size.depth < k:
                assert 4 * size.rows * size.columns <= loops.MAX_LOCAL_BYTES
            if strides[1] != 1:
                assert 4 * size.rows * (-(-size.depth // 16) * 16) <= loops.MAX_LOCAL_BYTES


def test_infinities_and_nan_stay_where_they_are():
    a, b = np.ones((50, 64), np.float32), np.ones((64, 70), np.float32)
    a[3, 5], a[9, 0] = np.inf, np.nan
    c = multiply(a, b)
    assert np.isinf(c[3]).all() and np.isnan(c[9]).all()
    assert (np.delete(c, (3, 9), axis=0) == 64).all()
    assert s.FLOAT32 == c.dtype
