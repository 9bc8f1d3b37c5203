"""Two kernels that differ only in numbers become one kernel with parameters, and nothing else does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.each import each
from weft.backends.llvm import jit
from weft.backends.llvm.target import host
from weft.compiler.loop_ir import ir as loops
from weft.compiler.loop_ir.generalise import General, generalise, generalise_alone
from weft.compiler.loop_ir.ir import Accumulator, Buffer, Kernel, Let, Local
from weft.compiler.loop_ir.kernels.blocked_matmul import product_kernel
from weft.compiler.loop_ir.kernels.small_matmul import small_matmul
from weft.compiler.loop_ir.kernels.tiles import open_parts
from weft.compiler.loop_ir.validate import validate
from weft.compiler.open_sizes import _order
from weft.compiler.program.layout import Layout, Storage
from weft.ops.core import scalar as s

F32 = np.dtype(np.float32)


def row_sums(rows: int, columns: int, name: str = "", factor: float = 1.0) -> Kernel:
    """y[i] = factor * sum(x[i, :]), with the columns kept in a local buffer."""
    x, y = (Buffer.of(n, F32, (1 << 40,)) for n in "xy")
    kept = Buffer.of(f"{name}kept", F32, (columns,))
    i, j, k = (s.index(name + n) for n in "ijk")
    total = Accumulator(f"{name}total", "sum", F32)
    body = [
        Local(kept),
        loops.loop(f"{name}j", columns, [loops.store(kept[j], x[i * columns + j])], "vector"),
        total,
        loops.loop(f"{name}k", columns, [loops.update(total, kept[k])], "vector"),
        mean := Let(f"{name}mean", total.value * s.const(factor, F32)),
        loops.store(y[i], mean.var),
    ]
    return Kernel("sums", (x, y), (), (loops.loop(f"{name}i", rows, body, parallel=True, grain=columns),))


def call(kernel: Kernel, values: Any, *arrays: np.ndarray) -> None:
    jit.compile_kernel(validate(kernel)).call(*[a.ctypes.data for a in arrays], *values)


def check_sums(general: Kernel, rows: int, columns: int, factor: float, name: str = "") -> None:
    own = row_sums(rows, columns, name, factor)
    found = generalise(general, own, _order)
    assert found is not None and found.fresh == 0 and found.kernel is general
    x = np.random.default_rng(columns).standard_normal((rows, columns), np.float32)
    results = np.zeros((2, rows), np.float32)
    call(general, found.values, x, results[0])
    call(own, (), x, results[1])
    assert results[0].tobytes() == results[1].tobytes()
    np.testing.assert_allclose(results[0], factor * x.sum(1), rtol=1e-4, atol=1e-4)


def test_a_general_kernel_serves_all_sizes_with_the_same_bits():
    made = generalise(row_sums(5, 40, "", 0.5), row_sums(7, 300, "other", 0.25), _order)
    assert made is not None and made.fresh and made.opened
    sizes = [(3, 2), (4, 9), (2, 16), (9, 17), (2, 33), (3, 65), (1, 100), (2, 128), (2, 129), (1, 1000)]
    each(check_sums, {f"{r}x{c}": (made.kernel, r, c, 1 / c, "abc"[c % 3]) for r, c in sizes})


def test_numbers_that_agree_stay_constants():
    made = generalise(row_sums(5, 40), row_sums(9, 40), _order)
    assert made is not None and made.opened == 0
    text = str(made.kernel)
    assert "vector for j < 40" in text and "parallel for i < open" in text
    again = generalise(made.kernel, row_sums(70, 40), _order)
    assert again is not None and again.fresh == 0 and again.values[0] == 70
    wider = generalise(made.kernel, row_sums(70, 41), _order)
    assert wider is not None and wider.fresh and wider.kernel is not made.kernel


def divided(n: int, inside: bool) -> Kernel:
    """A division by a number that varies: where a task begins, or in its loop."""
    x, y = (Buffer.of(name, F32, (1 << 40,)) for name in "xy")
    t, j = s.index("t"), s.index("j")
    at = Let("at", s.remainder(t, n))
    element = loops.store(y[at.var * 8 + j], x[s.floor_divide(j + at.var, n) if inside else at.var])
    return Kernel("k", (x, y), (), (loops.loop("t", n, [at, loops.loop("j", 8, [element], "vector")], parallel=True),))


def unrolled(n: int) -> Kernel:
    x = Buffer.of("x", F32, (1 << 40,))
    return Kernel("k", (x,), (), (loops.loop("i", n, [loops.store(x[s.index("i")], s.const(0, F32))], "unroll"),))


def powers(exponent: float) -> Kernel:
    x = Buffer.of("x", F32, (1 << 40,))
    value = s.pow(x[s.index("i")], s.const(exponent, F32))
    return Kernel("k", (x,), (), (loops.loop("i", 8, [loops.store(x[s.index("i")], value)], "vector"),))


def test_what_must_be_constant_is_not_generalised():
    def check(a: Kernel, b: Kernel, possible: bool) -> None:
        assert (generalise(a, b, _order) is not None) == possible

    each(
        check,
        {
            "a divisor of a task": (divided(5, False), divided(9, False), True),
            "a divisor in a loop": (divided(5, True), divided(9, True), False),
            "an unrolled loop": (unrolled(2), unrolled(3), False),
            "an exponent": (powers(2.0), powers(3.0), False),
            "another statement": (unrolled(2), row_sums(2, 3), False),
            "a local buffer that is too large": (row_sums(2, 30), row_sums(2, 1 << 15), False),
        },
    )


def test_a_kernel_without_a_counterpart_opens_the_numbers_that_vary():
    made = generalise_alone(row_sums(26, 52), lambda n: isinstance(n, int) and n % 26 == 0, _order)
    assert isinstance(made, General) and made.opened
    check_sums(made.kernel, 5, 31, 1.0)


def matrix(rows: int, columns: int) -> Layout:
    return Layout(Storage("argument", 4), F32, (rows, columns), (columns, 1))


def test_products_for_any_number_of_rows_have_the_bits_of_those_for_one():
    rng = np.random.default_rng(0)

    def check(m: int, k: int, n: int, blocked: bool) -> None:
        a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
        results = np.zeros((2, m, n), np.float32)
        for result, any_size in zip(results, (False, True), strict=True):
            layouts = matrix(m, k), matrix(k, n), matrix(m, n)
            if blocked:
                kernel, (private, shared) = product_kernel(*layouts, host(), any_rows=any_size)
                scratch = [np.zeros(max(size, 1), np.float32) for size in (private, shared)]
                call(kernel, (), a, b, *scratch, result)
            else:
                call(small_matmul(*layouts, host(), any_size), (), a, b, result)
        assert results[0].tobytes() == results[1].tobytes()
        np.testing.assert_allclose(results[1], a @ b, rtol=1e-3, atol=1e-3)

    cases = {f"small {m}": (m, 20, n, False) for m, n in ((1, 16), (3, 48), (6, 112), (9, 64))}
    each(check, cases | {f"blocked {m}": (m, k, 80, True) for m, k in ((97, 40), (131, 700))})


@pytest.mark.parametrize(("tile", "unit"), [(4, 1), (6, 1), (64, 16), (48, 16), (1, 1)])
def test_open_parts_cover_every_size_once_with_the_same_parts(tile, unit):
    shapes = set()
    for size in range(unit, 5 * tile + 1, unit):
        covered: list[int] = []
        found = open_parts(size, tile, unit)
        shapes.add(tuple(part for _, _, part in found))
        for start, count, part in found:
            assert isinstance(start, int) and isinstance(count, int)
            covered += [i for t in range(count) for i in range(start + t * part, start + (t + 1) * part)]
        assert covered == list(range(size))
    assert len(shapes) == 1
