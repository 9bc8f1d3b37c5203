"""Blocked products of every orientation, with remainders along every axis; and the packing of their right operand."""

import itertools

import numpy as np
import pytest

from weft.backends.llvm import jit
from weft.backends.llvm.target import host
from weft.compiler.loop_ir import ir as loops
from weft.compiler.loop_ir.ir import Buffer, Kernel
from weft.compiler.loop_ir.kernels.blocked_matmul import MAX_UNPACKED_DEPTH, Blocks, blocked_product, blocks, scratch
from weft.compiler.loop_ir.kernels.panels import pack_panels
from weft.compiler.loop_ir.kernels.tiles import row_tiles, tile_columns
from weft.compiler.program.layout import Layout, Storage
from weft.ops.core import scalar as s
from weft.runtime import threads

F32 = np.dtype(np.float32)
BUFFERS = tuple(Buffer.of(name, F32, (1 << 40,)) for name in "abcdef")


def layout(array):
    return Layout(Storage("argument", array.nbytes), array.dtype, array.shape, tuple(st // 4 for st in array.strides))


def matrix(rng, rows, columns, turned):
    a = rng.standard_normal((columns, rows) if turned else (rows, columns), np.float32)
    return a.T if turned else a


def panels(b):
    """The right operand packed."""
    packed = np.full(b.size, np.nan, np.float32)
    place = Layout(Storage("arena", packed.nbytes), F32, b.shape, (0, 0))
    jit.compile_kernel(pack_panels(layout(b), place, tile_columns(host()), host())).call(
        b.ctypes.data, packed.ctypes.data
    )
    return packed


def multiply(a, b, size=None, finish=None, others=()):
    """`a @ b` by `blocked_product`; `finish` gets the buffers of the result and of `others`."""
    x, y, room, packed, z, *rest = BUFFERS[: 5 + len(others)]
    columns = b.shape[1]
    size = size or blocks(layout(a), columns, host())
    c = np.full((a.shape[0], columns), np.nan, np.float32)
    memory = [np.full(n, np.nan, np.float32) for n in scratch(layout(a), layout(b), size, host())]
    store = lambda i, j, value, tag: [loops.store(z[i * columns + j], value)]
    near = lambda i, j: [loops.prefetch(z[i * columns + j], write=True)]
    body = blocked_product(
        (x, layout(a)), (y, layout(b)), room, packed, size, host(), finish(z, *rest) if finish else store, near
    )
    kernel = jit.compile_kernel(Kernel("product", (x, y, room, packed, z, *rest), (), tuple(body)))
    kernel.call(*[m.ctypes.data for m in (a, b, *memory, c, *others)])
    return c


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("depth", "columns"), [(1, 1), (16, 64), (33, 70), (130, 128), (48, 17)])
def test_panels_hold_the_columns_in_order(depth, columns, turned):
    b = matrix(np.random.default_rng(0), depth, columns, turned)
    packed, width = panels(b), tile_columns(host())
    expected = [b[:, j : j + width].ravel() for j in range(0, columns, width)]
    np.testing.assert_array_equal(packed, np.concatenate(expected))


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (48, 64, 64), (100, 37, 130), (97, 700, 200), (50, 1500, 333), (7, 2000, 10)]
)
def test_products_of_every_orientation(sizes):
    m, k, n = sizes
    rng = np.random.default_rng(1)
    for left, right in itertools.product((False, True), repeat=2):
        a, b = matrix(rng, m, k, left), matrix(rng, k, n, right)
        exact = a.astype(np.float64) @ b
        scale = np.abs(a).astype(np.float64) @ np.abs(b)
        error = np.abs(multiply(a, b) - exact) / scale
        assert error.max() < 1e-6, (left, right)


def test_operands_without_a_dense_axis():
    rng = np.random.default_rng(2)
    a = rng.standard_normal((60, 200), np.float32)[::2, ::3]
    b = rng.standard_normal((67, 280), np.float32)[:, :258:2]
    np.testing.assert_allclose(multiply(a, b), a.astype(np.float64) @ b, rtol=1e-4, atol=1e-5)


def test_what_is_done_at_the_end_is_done_once_per_element_however_deep():
    rng = np.random.default_rng(3)
    for k, turned in itertools.product((100, 1500), (False, True)):  # in registers; from sums in local memory
        a, b = matrix(rng, 45, k, turned), rng.standard_normal((k, 100), np.float32)
        old = rng.standard_normal((45, 100), np.float32)
        new = old.copy()

        def finish(z, w):
            def update(i, j, value, tag):
                g = loops.Let(f"{tag}g", value * 0.5)
                return [g, loops.store(w[i * 100 + j], w[i * 100 + j] + g.var), loops.store(z[i * 100 + j], g.var)]

            return update

        grad = multiply(a, b, finish=finish, others=(new,))
        np.testing.assert_allclose(grad, 0.5 * (a @ b), rtol=1e-3, atol=1e-3)
        np.testing.assert_array_equal(new, old + grad)


@pytest.mark.parametrize("high", [False, True])
@pytest.mark.parametrize("rows", range(1, 60))
def test_tiles_cover_all_rows_once_and_low_ones_are_rare(rows, high):
    tiles = [(start + n * size, size) for start, count, size in row_tiles(rows, high=high) for n in range(count)]
    assert [r for start, size in tiles for r in range(start, start + size)] == list(range(rows))
    assert all(3 <= size <= 6 for _, size in tiles) or rows < 6
    assert sum(size < 4 for _, size in tiles) <= 1
    if high and rows >= 6:
        assert sum(size < 6 for _, size in tiles) <= 2


def test_blocks_and_threads_never_change_a_result():
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((150, 900), np.float32), rng.standard_normal((900, 300), np.float32)
    turned = np.asfortranarray(a)
    sizes = [Blocks(48, 256, 512, (48, 256)), Blocks(48, 64, 512, (150, 64)), Blocks(20, 128, 512, (70, 128))]
    expected = multiply(a, b, sizes[0])
    for size in sizes[1:]:
        np.testing.assert_array_equal(multiply(a, b, size), expected)
    for size in (Blocks(40, 128, 512, (40, 256)), Blocks(64, 64, 512, (64, 300)), Blocks(50, 128, 512, (50, 128))):
        np.testing.assert_array_equal(multiply(turned, b, size), expected)
    before = threads.get_num_threads()
    try:
        threads.set_num_threads(1)
        np.testing.assert_array_equal(multiply(a, b, sizes[0]), expected)
    finally:
        threads.set_num_threads(before)


def test_local_memory_stays_within_its_limit():
    for m, k, n in itertools.product((1, 40, 1000, 16384), (64, 1000, 20000), (10, 300, 8000)):
        for strides in ((k, 1), (1, m)):
            size = blocks(Layout(Storage("argument", 4), F32, (m, k), strides), n, host())
            if size.depth < k:
                assert 4 * size.rows * size.columns <= loops.MAX_LOCAL_BYTES


def test_threads_need_little_memory_of_their_own():
    sizes = itertools.product((100, 5000, 200_000), (64, 4000), (64, 1000, 50_000))
    for (m, k, n), dense_left, dense_right in itertools.product(sizes, (True, False), (True, False)):
        left = Layout(Storage("argument", 4), F32, (m, k), (k, 1) if dense_left else (1, m))
        right = Layout(Storage("argument", 4), F32, (k, n), (n, 1) if dense_right else (1, k))
        private, shared = scratch(left, right, blocks(left, n, host()), host())
        assert 4 * private <= host().threads * (4 << 20)
        assert shared == (1 if dense_left or dense_right and k <= MAX_UNPACKED_DEPTH else k * n)


def test_infinities_and_nan_stay_where_they_are():
    a, b = np.ones((50, 64), np.float32), np.ones((64, 70), np.float32)
    a[3, 5], a[9, 0] = np.inf, np.nan
    c = multiply(a, b)
    assert np.isinf(c[3]).all() and np.isnan(c[9]).all()
    assert (np.delete(c, (3, 9), axis=0) == 64).all()
    assert s.FLOAT32 == c.dtype
