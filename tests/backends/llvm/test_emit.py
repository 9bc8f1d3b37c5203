"""The semantics of loop IR statements, by running small kernels."""

import numpy as np
import pytest

from weft import dtypes
from weft.backends.llvm import jit, target
from weft.backends.llvm.emit import emit_kernel
from weft.compiler.loop_ir import ir as loops
from weft.compiler.loop_ir.ir import Accumulator, Buffer, Kernel, Let, Local
from weft.compiler.target import Target, describe
from weft.ops.core import scalar as s

F32, F64, I64 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)
N = s.param("n")
SIZES = (0, 1, 7, 15, 16, 17, 63, 64, 65, 200)


def run(kernel, *arguments):
    compiled = jit.compile_kernel(kernel)
    arrays = arguments[: len(kernel.buffers)]
    compiled.call_objects(*map(id, arrays), *arguments[len(kernel.buffers) :])
    # The form that takes raw pointers does the same.
    compiled.call(*[a.ctypes.data for a in arrays], *arguments[len(kernel.buffers) :])


def one(body, *buffers, params=("n",)):
    return Kernel("k", buffers, params, tuple(body))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("parallel", [False, True])
def test_every_element_once_and_nothing_beyond(n, parallel):
    i = s.index("i")
    x, y = Buffer.of("x", F32, (N,)), Buffer.of("y", F32, (N,))
    kernel = one([loops.loop("i", N, [loops.store(y[i], x[i] + 1)], "vector", parallel=parallel)], x, y)
    a, b = np.arange(n + 8, dtype=np.float32), np.full(n + 8, -1, np.float32)
    run(kernel, a, b, n)
    np.testing.assert_array_equal(b[:n], a[:n] + 1)
    np.testing.assert_array_equal(b[n:], -1)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_transpose_turns_a_square(dtype):
    x, y = Buffer.of("x", dtype, (N,)), Buffer.of("y", dtype, (N,))
    kernel = one([loops.transpose(y[3], 20, x[5], 17)], x, y)
    a, b = np.arange(400, dtype=dtype), np.full(400, -1, dtype)
    run(kernel, a, b, 400)
    square = np.lib.stride_tricks.as_strided(a[5:], (16, 16), (17 * 4, 4))
    got = np.lib.stride_tricks.as_strided(b[3:], (16, 16), (20 * 4, 4))
    np.testing.assert_array_equal(got, square.T)
    assert (b == -1).sum() == 400 - 256


def test_transpose_in_place_reads_before_it_writes():
    x = Buffer.of("x", F32, (N,))
    compiled = jit.compile_kernel(one([loops.transpose(x[0], 16, x[0], 16)], x))
    a = np.arange(256, dtype=np.float32).reshape(16, 16)
    expected = a.T.copy()
    compiled.call(a.ctypes.data, 256)
    np.testing.assert_array_equal(a, expected)


def test_prefetches_change_nothing_and_may_point_outside():
    i, v = s.index("i"), s.index("v")
    x = Buffer.of("x", F32, (N,))
    inner = loops.loop("v", 16, [loops.store(x[i * 16 + v], x[i * 16 + v] + 1)], "vector")
    ahead = [loops.prefetch(x[i * 16 + (1 << 40)]), loops.prefetch(x[i * 16 + 16], write=True)]
    kernel = one([loops.loop("i", s.floor_divide(N, 16), [*ahead, inner], parallel=True)], x)
    a = np.arange(160, dtype=np.float32)
    run(kernel, a, 160)
    np.testing.assert_array_equal(a, np.arange(160) + 2)  # `run` runs it twice
    assert jit.assembly(kernel).count("prefetch") >= 2


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8, np.int64])
def test_accumulators_reduce_lanes(op, dtype):
    dtype = np.dtype(dtype)
    i = s.index("i")
    x, y = Buffer.of("x", dtype, (N,)), Buffer.of("y", dtype, (1,))
    a = Accumulator("a", op, dtype)
    kernel = one([a, loops.loop("i", N, [loops.update(a, x[i])], "vector"), loops.store(y[0], a.value)], x, y)
    rng = np.random.default_rng(0)
    for n in SIZES[1:]:
        values = rng.integers(1, 5, n).astype(dtype)
        if op == "prod":
            values = np.where(rng.random(n) < 0.1, 2, 1).astype(dtype)
        out = np.zeros(1, dtype)
        run(kernel, values, out, n)
        want = getattr(np, op)(values, **({"dtype": dtype} if op in ("sum", "prod") else {}))
        assert out[0] == want


@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_first_extreme_and_first_nan_win(op):
    i = s.index("i")
    x, y, at = Buffer.of("x", F32, (N,)), Buffer.of("y", F32, (1,)), Buffer.of("at", I64, (1,))
    a = Accumulator("a", op, F32)
    body = [
        a,
        loops.loop("i", N, [loops.update(a, x[i], i)], "vector"),
        loops.store(y[0], a.value),
        loops.store(at[0], a.index),
    ]
    kernel = one(body, x, y, at)
    rng = np.random.default_rng(0)
    cases = [rng.integers(0, 5, n).astype(np.float32) for n in (1, 16, 100, 300)]
    cases += [np.full(40, -np.inf, np.float32), np.full(40, np.inf, np.float32)]
    nans = rng.random(200).astype(np.float32)
    nans[[57, 150]] = np.nan
    for values in [*cases, nans]:
        out, place = np.zeros(1, np.float32), np.zeros(1, np.int64)
        run(kernel, values, out, place, values.size)
        assert place[0] == getattr(np, op)(values)
        np.testing.assert_equal(out[0], values[place[0]])


def test_any_and_all():
    i = s.index("i")
    x, y = Buffer.of("x", np.bool_, (N,)), Buffer.of("y", np.bool_, (2,))
    some, every = Accumulator("some", "any", s.BOOL), Accumulator("every", "all", s.BOOL)
    updates = [loops.update(some, x[i]), loops.update(every, x[i])]
    body = [some, every, loops.loop("i", N, updates, "vector")]
    kernel = one([*body, loops.store(y[0], some.value), loops.store(y[1], every.value)], x, y)
    for values in (np.zeros(70, bool), np.ones(70, bool), np.arange(70) == 69):
        out = np.zeros(2, bool)
        run(kernel, values, out, values.size)
        assert out.tolist() == [values.any(), values.all()]


def test_accumulator_inside_a_vector_loop_is_per_lane():
    """Column sums: lanes hold columns, a serial loop walks the rows."""
    m = s.param("m")
    i, j = s.index("i"), s.index("j")
    x, y = Buffer.of("x", F32, (m, N)), Buffer.of("y", F32, (N,))
    a = Accumulator("a", "sum", F32)
    columns = [a, loops.loop("i", m, [loops.update(a, x[i, j])]), loops.store(y[j], a.value)]
    kernel = one([loops.loop("j", N, columns, "vector", parallel=True)], x, y, params=("m", "n"))
    values = np.arange(5 * 37, dtype=np.float32).reshape(5, 37)
    out = np.zeros(37, np.float32)
    run(kernel, values, out, 5, 37)
    np.testing.assert_array_equal(out, values.sum(0))


def test_rows_share_scalars_between_loops():
    """A value reduced by one loop is used by the next, per row, with the accumulator made anew."""
    m = s.param("m")
    r, i, j = s.index("r"), s.index("i"), s.index("j")
    x, y = Buffer.of("x", F64, (m, N)), Buffer.of("y", F64, (m, N))
    a = Accumulator("a", "max", F64)
    row = [
        a,
        loops.loop("i", N, [loops.update(a, x[r, i])], "vector"),
        loops.loop("j", N, [loops.store(y[r, j], x[r, j] - a.value)], "vector"),
    ]
    kernel = one([loops.loop("r", m, row, parallel=True)], x, y, params=("m", "n"))
    values = np.random.default_rng(0).standard_normal((9, 50))
    out = np.zeros_like(values)
    run(kernel, values, out, 9, 50)
    np.testing.assert_array_equal(out, values - values.max(1, keepdims=True))


def test_values_before_a_parallel_loop_are_seen_inside():
    i, j = s.index("i"), s.index("j")
    x, y = Buffer.of("x", F32, (N,)), Buffer.of("y", F32, (N,))
    a = Accumulator("a", "sum", F32)
    scale = Let("scale", 1 / a.value)
    body = [
        a,
        loops.loop("i", N, [loops.update(a, x[i])], "vector"),
        scale,
        loops.loop("j", N, [loops.store(y[j], x[j] * scale.var + a.value)], "vector", parallel=True),
    ]
    values, out = np.ones(100, np.float32), np.zeros(100, np.float32)
    run(one(body, x, y), values, out, 100)
    np.testing.assert_allclose(out, 100.01, rtol=1e-6)


def test_a_load_sees_the_store_before_it_and_a_let_keeps_the_old_value():
    i = s.index("i")
    x, y = Buffer.of("x", F32, (N,)), Buffer.of("y", F32, (N,))
    old = Let("old", x[i])
    body = [old, loops.store(x[i], x[i] * 2), loops.store(y[i], x[i] + old.var * 100)]
    compiled = jit.compile_kernel(one([loops.loop("i", N, body, "vector")], x, y))
    a, b = np.arange(20, dtype=np.float32), np.zeros(20, np.float32)
    compiled.call_objects(id(a), id(b), 20)
    np.testing.assert_array_equal(b, np.arange(20) * 102)


def test_gather_and_strided_access():
    i = s.index("i")
    x, index = Buffer.of("x", F32, (s.param("m"),)), Buffer.of("index", np.int32, (N,))
    y = Buffer.of("y", F32, (N,), (s.param("step"),))
    kernel = one(
        [loops.loop("i", N, [loops.store(y[i], x[index[i]])], "vector")], x, index, y, params=("n", "m", "step")
    )
    rng = np.random.default_rng(0)
    values = rng.standard_normal(50).astype(np.float32)
    where = rng.integers(0, 50, 37).astype(np.int32)
    out = np.zeros((37, 3), np.float32)
    run(kernel, values, where, out, 37, 50, 3)
    np.testing.assert_array_equal(out[:, 0], values[where])
    assert not out[:, 1:].any()


def test_loop_variables_are_values():
    i, j = s.index("i"), s.index("j")
    y = Buffer.of("y", I64, (4, N))
    kernel = one([loops.loop("i", 4, [loops.loop("j", N, [loops.store(y[i, j], i * 100 + j)], "vector")])], y)
    out = np.zeros((4, 21), np.int64)
    run(kernel, out, 21)
    np.testing.assert_array_equal(out, np.arange(4)[:, None] * 100 + np.arange(21))


def test_extents_may_be_loaded():
    """Rows of different lengths, as in a sparse matrix."""
    r, i = s.index("r"), s.index("i")
    starts, x, y = (Buffer.of("starts", I64, (N + 1,)), Buffer.of("x", F32, (s.param("m"),)), Buffer.of("y", F32, (N,)))
    first = Let("first", starts[r])
    a = Accumulator("a", "sum", F32)
    row = [
        first,
        a,
        loops.loop("i", starts[r + 1] - first.var, [loops.update(a, x[first.var + i])], "vector"),
        loops.store(y[r], a.value),
    ]
    kernel = one([loops.loop("r", N, row, parallel=True)], starts, x, y, params=("n", "m"))
    bounds = np.array([0, 3, 3, 40, 41], np.int64)
    values = np.arange(41, dtype=np.float32)
    out = np.zeros(4, np.float32)
    run(kernel, bounds, values, out, 4, 41)
    np.testing.assert_array_equal(out, [values[a:b].sum() for a, b in zip(bounds, bounds[1:], strict=False)])


def test_local_tiles_of_odd_width():
    """A local row that is no whole number of vectors keeps its neighbours apart."""
    i, j, k = s.index("i"), s.index("j"), s.index("k")
    x, y = Buffer.of("x", F32, (3, 10)), Buffer.of("y", F32, (3, 10))
    t = Buffer.of("t", F32, (3, 10))
    fill = loops.loop("i", 3, [loops.loop("j", 10, [loops.store(t[i, j], x[i, j] * 2)], "vector")], "unroll")
    a, b = s.index("a"), s.index("b")
    back = loops.loop("a", 3, [loops.loop("b", 10, [loops.store(y[a, b], t[2 - a, b])], "vector")], "unroll")
    kernel = Kernel("k", (x, y), (), (loops.loop("k", 2, [Local(t), fill, back]),))
    assert k is s.index("k")
    values = np.arange(30, dtype=np.float32).reshape(3, 10)
    out = np.zeros((3, 12), np.float32)[:, :10].copy()
    run(kernel, values, out)
    np.testing.assert_array_equal(out, 2 * values[::-1])


def test_a_tile_of_constant_shape_stays_in_registers():
    from weft.compiler.loop_ir.kernels.small_matmul import small_matmul
    from weft.compiler.program.layout import Layout, Storage

    a, b, c = (Layout(Storage("argument", 1), F32, (m, n), (n, 1)) for m, n in ((8, 16), (16, 64), (8, 64)))
    assert "alloca" not in str(
        jit.optimise(jit.kernel_ir(small_matmul(a, b, c, target.host())), target.machine(target.host()))
    )


def test_vector_code_is_explicit_and_tails_are_masked():
    i = s.index("i")
    x = Buffer.of("x", F32, (N,))
    kernel = one([loops.loop("i", N, [loops.store(x[i], s.exp(x[i]))], "vector")], x)
    for width, lanes in ((64, 16), (32, 8), (16, 4)):
        machine = Target("x86_64-unknown-linux-gnu", "x86-64", "", width, 64, False)
        ir = emit_kernel(kernel, machine, "kernel")
        assert f"load <{lanes} x float>" in ir
        assert f"llvm.masked.store.v{lanes}f32" in ir


def test_code_for_other_targets_can_be_generated():
    """The same loop IR compiles for AArch64 and WebAssembly: nothing but `Target` knows the machine."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    i = s.index("i")
    x = Buffer.of("x", F32, (N,))
    kernel = one([loops.loop("i", N, [loops.store(x[i], s.tanh(x[i]) + s.sin(x[i]))], "vector", parallel=True)], x)
    for triple, cpu, features in (
        ("aarch64-unknown-linux-gnu", "cortex-a72", {"neon": True}),
        ("wasm32-unknown-unknown", "generic", {"simd128": True}),
    ):
        machine = describe(triple, cpu, features)
        assert machine.vector_bytes == 16
        module = llvm.parse_assembly(emit_kernel(kernel, machine, "kernel"))
        module.verify()
        assert len(target.machine(machine).emit_object(module)) > 500


def test_emission_is_reproducible():
    from weft.compiler.loop_ir.kernels import norms

    first = jit.kernel_ir(norms.layer_norm(F32, True, True, 1e-5, False))
    assert first == jit.kernel_ir(norms.layer_norm(F32, True, True, 1e-5, False))


def test_local_integers_hold_every_lane_of_a_loop_over_smaller_elements():
    """A loop over float32 has more lanes than a vector holds 64-bit integers; their rows are padded for it."""
    c, t = s.index("c"), s.index("t")
    x, y = Buffer.of("x", F32, (4, 2)), Buffer.of("y", I64, (2,))
    best, place = Buffer.of("best", F32, (2,)), Buffer.of("place", I64, (2,))
    start = [loops.store(best[s.index("z")], s.const(0, F32)), loops.store(place[s.index("z")], s.const(0, I64))]
    larger = s.gt(x[t, c], best[c])
    where, value = Let("where", s.where(larger, t, place[c])), Let("value", s.maximum(best[c], x[t, c]))
    step = [where, value, loops.store(best[c], value.var), loops.store(place[c], where.var)]
    body = [
        Local(best), Local(place), loops.loop("z", 2, start, "vector"),
        loops.loop("t", 4, [loops.loop("c", N, step, "vector")]),
        loops.loop("k", 2, [loops.store(y[s.index("k")], place[s.index("k")])]),
    ]  # fmt: skip
    out = np.zeros(2, np.int64)
    run(one(body, x, y), np.array([[1, 3], [5, 1], [2, 2], [9, 0]], np.float32), out, 2)
    assert out.tolist() == [3, 0]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "int16", "bool_"])
@pytest.mark.parametrize("source", ["float32", "float64", "int32", "int64"])
def test_a_tail_of_one_narrow_element_leaves_its_neighbours_alone(source, dtype):
    """Sizes that are part of the kernel, so that LLVM knows how long the tail is."""
    source, dtype = getattr(dtypes, source), getattr(dtypes, dtype)
    i = s.index("i")
    for n in (9, 17, 33, 65, 129, 257, 1025):
        x, y = Buffer.of("x", source, (n,)), Buffer.of("y", dtype, (n,))
        doubled = x[i] + x[i]
        value = s.gt(doubled, 0) if dtype == s.BOOL else s.cast(doubled, dtype)
        kernel = one([loops.loop("i", n, [loops.store(y[i], value)], "vector")], x, y, params=())
        out = np.ones(n + 16, dtype)
        run(kernel, np.zeros(n, source), out)
        assert not out[:n].astype(bool).any() and out[n:].astype(bool).all(), n
