"""The loop IR: making, reading and printing kernels."""

import numpy as np
import pytest

from weft.backends.llvm.target import host
from weft.compiler.loop_ir import ir as loops
from weft.compiler.loop_ir.ir import Accumulator, Buffer, Kernel, Let, Local
from weft.compiler.loop_ir.kernels import rows
from weft.compiler.loop_ir.kernels.small_matmul import small_matmul
from weft.compiler.loop_ir.validate import validate
from weft.compiler.program.layout import Layout, Storage
from weft.ops.core import scalar as s

F32 = np.dtype(np.float32)


def test_softmax_prints_as_documented():
    assert str(rows.softmax("rows", F32, (1, 1), False)) == "\n".join(
        [
            "kernel softmax(x: float32[rows, n; strides x_row, 1], y: float32[rows, n; strides y_row, 1], "
            "rows, n, x_row, y_row):",
            "  parallel for row < rows (grain 8192 // n + 1):",
            "    acc top: max float32",
            "    vector for j0 < n:",
            "      top max= x[row, j0]",
            "    let base = where(isinf(top), 0, top)",
            "    acc total: sum float32",
            "    vector for j1 < n:",
            "      let e = exp(x[row, j1] - base)",
            "      total sum= e",
            "      y[row, j1] = e",
            "    let scale = 1 / total",
            "    vector for j2 < n:",
            "      y[row, j2] = y[row, j2] * scale",
        ]
    )


def test_matmul_tile_prints_as_loops():
    def layout(*shape):
        return Layout(Storage("argument", 1), F32, shape, (shape[1], 1))

    text = str(small_matmul(layout(8, 32), layout(32, 64), layout(8, 64), host()))
    assert "local p0_tile: float32[4, 64]" in text
    assert "p0_tile[p0_mr, p0_mv] = fma(b0[(p0_i * 4 + p0_mr) * 32 + p0_k], b1[p0_k * 64 + (p0_j * 64 + p0_mv)]" in text
    assert "unroll for p0_mr < 4:" in text


def test_printing_streaming_stores_and_positions():
    n, i = s.param("n"), s.index("i")
    x, y = Buffer.of("x", F32, (n,)), Buffer.of("y", F32, (n,))
    best = Accumulator("best", "argmax", F32)
    kernel = Kernel(
        "k",
        (x, y),
        ("n",),
        (best, loops.loop("i", n, [loops.update(best, x[i], i), loops.store(y[i], x[i], True)], "vector")),
    )
    assert str(validate(kernel)).splitlines()[3:] == ["    best argmax= x[i] at i", "    y[i] <- x[i]"]


def test_printing_prefetches():
    n, i = s.param("n"), s.index("i")
    x = Buffer.of("x", F32, (n,))
    body = [loops.prefetch(x[i + 64]), loops.prefetch(x[i + 8], write=True), loops.store(x[i], x[i] + 1)]
    kernel = Kernel("k", (x,), ("n",), (loops.loop("i", n, body),))
    assert str(validate(kernel)).splitlines()[2:4] == ["    prefetch x[i + 64]", "    prefetch x[i + 8] to write"]
    with pytest.raises(TypeError, match="must be an element of a buffer"):
        loops.prefetch(i)


def test_printing_transposes():
    n = s.param("n")
    x, y = Buffer.of("x", F32, (n,)), Buffer.of("y", F32, (n,))
    kernel = Kernel("k", (x, y), ("n",), (loops.transpose(y[n - 256], 16, x[0], 64),))
    assert str(validate(kernel)).splitlines()[1] == "  transpose x[0] step 64 to y[n - 256] step 16"
    with pytest.raises(TypeError, match="expected two elements of 4 bytes and one dtype"):
        loops.transpose(y[0], 16, Buffer.of("z", np.float64, (n,))[0], 16)


def test_shared_parts_are_named_once_per_statement():
    n, i = s.param("n"), s.index("i")
    x = Buffer.of("x", F32, (n,))
    e = s.exp(x[i] - 1)
    kernel = Kernel("k", (x,), ("n",), (loops.loop("i", n, [loops.store(x[i], e / (1 + e))], "vector"),))
    assert "t0 = exp(x[i] - 1)" in str(kernel)
    assert "x[i] = t0 / (1 + t0)" in str(kernel)


def test_row_major_strides_and_offsets():
    m, n = s.param("m"), s.param("n")
    b = Buffer.of("b", F32, (2, m, n))
    assert [str(x) for x in b.strides] == ["m * n" if str(b.strides[0]) == "m * n" else "n * m", "n", "1"]
    i, j = s.index("i"), s.index("j")
    assert str(Buffer.of("c", F32, (m, n)).offset((i, j))) == "i * n + j"
    assert b == Buffer.of("b", F32, (2, m, n))
    assert hash(b) == hash(Buffer.of("b", F32, (2, m, n)))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda i, j, n: i + j * n, "1"),
        (lambda i, j, n: j * n, "0"),
        (lambda i, j, n: i * n + j, "n"),
        (lambda i, j, n: (i + j) * n - i * 2, "n - 2"),
        (lambda i, j, n: i * i, None),
        (lambda i, j, n: s.floor_divide(i, n), None),
        (lambda i, j, n: s.floor_divide(j, n) + i * 3, "3"),
    ],
)
def test_coefficient_of_a_loop_variable(make, expected):
    found = loops.coefficient(make(s.index("i"), s.index("j"), s.param("n")), "i")
    assert (None if found is None else str(found)) == expected


def test_gathered_index_has_no_coefficient():
    index = Buffer.of("index", np.int64, (10,))
    assert loops.coefficient(index[s.index("i")], "i") is None
    assert str(loops.coefficient(index[s.index("j")] * 4 + s.index("i"), "i")) == "1"


def test_store_casts_and_needs_a_place():
    x = Buffer.of("x", np.float16, (4,))
    assert loops.store(x[0], s.const(1.0)).value.dtype == np.float16
    with pytest.raises(TypeError, match="element of a buffer"):
        loops.store(s.const(1.0), s.const(1.0))
    with pytest.raises(TypeError, match="integer"):
        x[s.const(1.0)]


def test_walk_sees_inner_statements():
    x = Buffer.of("x", F32, (4,))
    let = Let("a", x[0])
    tree = loops.loop("i", 2, [let, loops.loop("j", 2, [loops.store(x[s.index("j")], let.var)])])
    kinds = [type(x).__name__ for x in loops.walk([tree, Local(Buffer.of("t", F32, (2,)))])]
    assert kinds == ["Loop", "Let", "Loop", "Store", "Local"]


def test_only_argmax_has_an_index():
    with pytest.raises(ValueError, match="only argmax and argmin"):
        _ = Accumulator("a", "sum", F32).index
