"""Normalisation: layer norm and RMS norm over rows, batch statistics over columns.

Weight gradients are sums over rows. They are accumulated per chunk of rows while a row is in cache, and the chunks are
summed at the end. The number of chunks depends on the shape alone: one pass over the data, the same bits for any number
of threads.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....ops.core import scalar as s
from ....ops.core.scalar import Expr
from .. import ir as loops
from ..ir import Accumulator, Buffer, Kernel, Let, Statement
from .rows import Rows, compute_dtype


def _affine(r: Rows, dtype: np.dtype, weight: bool, bias: bool) -> tuple[Buffer | None, Buffer | None]:
    w = r.per_column("weight", dtype) if weight else None
    b = r.per_column("bias", dtype) if bias else None
    return w, b


def _scaled(value: Expr, j: Expr, weight: Buffer | None, bias: Buffer | None) -> Expr:
    if weight is not None:
        value = value * s.cast(weight[j], value.dtype)
    if bias is not None:
        value = value + s.cast(bias[j], value.dtype)
    return value


def layer_norm(dtype: np.dtype, weight: bool, bias: bool, eps: float, streaming: bool) -> Kernel:
    """layer_norm(x, [weight], [bias], y, mean, rstd); integers rows, n, x_row, y_row."""
    r = Rows("layer_norm", "rows", streaming)
    x = r.full("x", dtype)
    w, b = _affine(r, dtype, weight, bias)
    y = r.full("y", dtype)
    c = compute_dtype(dtype)
    mean, rstd = r.per_row("mean", c), r.per_row("rstd", c)
    count = r.let(s.cast(r.n, c), "count")
    total = r.reduce("total", "sum", lambda j: r.at(x, j))
    m = r.let(total.value / count, "m")
    square = r.reduce("square", "sum", lambda j: s.square(r.at(x, j) - m))
    scale = r.let(1 / s.sqrt(square.value / count + eps), "scale")
    r.store_own(mean, m)
    r.store_own(rstd, scale)
    r.store(y, lambda j: _scaled((r.at(x, j) - m) * scale, j, w, b))
    return r.kernel()


def rms_norm(dtype: np.dtype, weight: bool, eps: float, streaming: bool) -> Kernel:
    """rms_norm(x, [weight], y, rstd); integers rows, n, x_row, y_row."""
    r = Rows("rms_norm", "rows", streaming)
    x = r.full("x", dtype)
    w, _ = _affine(r, dtype, weight, False)
    y = r.full("y", dtype)
    c = compute_dtype(dtype)
    rstd = r.per_row("rstd", c)
    square = r.reduce("square", "sum", lambda j: s.square(r.at(x, j)))
    scale = r.let(1 / s.sqrt(square.value / s.cast(r.n, c) + eps), "scale")
    r.store_own(rstd, scale)
    r.store(y, lambda j: _scaled(r.at(x, j) * scale, j, w, None))
    return r.kernel()


def norm_backward(dtype: np.dtype, weight: bool, bias: bool, centred: bool, streaming: bool) -> Kernel:
    """Gradient of layer norm (`centred`) or RMS norm.

    With h = (x - mean) * rstd and q = g * weight: dx = rstd * (q - mean(q) - h * mean(q * h)), without the mean(q)
    term for RMS norm; dweight = sum over rows of g * h, dbias = sum of g.

    Buffers: g, x, [weight], [mean], rstd, dx, [dweight, weight_parts], [dbias, bias_parts]. Integers: rows, n, chunks,
    chunk (rows per chunk), g_row, x_row, dx_row. The parts are scratch of shape (chunks, n).
    """
    c = compute_dtype(dtype)
    rows, n, chunks, chunk = (s.param(p) for p in ("rows", "n", "chunks", "chunk"))
    params = ["rows", "n", "chunks", "chunk", "g_row", "x_row", "dx_row"]
    g, x, dx = (Buffer.of(name, dtype, (rows, n), (s.param(f"{name}_row"), 1)) for name in ("g", "x", "dx"))
    w = Buffer.of("weight", dtype, (n,)) if weight else None
    mean = Buffer.of("mean", c, (rows,)) if centred else None
    rstd = Buffer.of("rstd", c, (rows,))
    sums: list[tuple[Buffer, Buffer]] = []
    for name, wanted in (("weight", weight), ("bias", bias)):
        if wanted:
            sums.append((Buffer.of(f"d{name}", dtype, (n,)), Buffer.of(f"{name}_parts", c, (chunks, n))))
    buffers = [g, x, *([w] if w else []), *([mean] if mean else []), rstd, dx, *(b for pair in sums for b in pair)]

    start = Let("start", s.index("chunk_") * chunk)
    row = Let("row", start.var + s.index("line"))
    scale = Let("scale", rstd[row.var])
    centre = Let("centre", mean[row.var]) if mean else None
    count = Let("count", s.cast(n, c))

    def parts(j: Expr) -> tuple[Expr, Expr, Expr]:
        """(g, normalised x, g * weight) in column j."""
        gj = s.cast(g[row.var, j], c)
        xj = s.cast(x[row.var, j], c)
        h = ((xj - centre.var) if centre else xj) * scale.var
        return gj, h, gj * s.cast(w[j], c) if w else gj

    q_sum, dot_sum = Accumulator("q_sum", "sum", c), Accumulator("dot_sum", "sum", c)
    j0, j1, j2 = s.index("j0"), s.index("j1"), s.index("j2")
    _, h0, q0 = parts(j0)
    first = [loops.update(dot_sum, q0 * h0), *([loops.update(q_sum, q0)] if centred else [])]
    dot = Let("dot", dot_sum.value / count.var)
    q_mean = Let("q_mean", q_sum.value / count.var) if centred else None
    g1, h1, q1 = parts(j1)
    h_let = Let("h", h1)
    g_let = Let("gj", g1)
    slope = q1 - h_let.var * dot.var
    if q_mean:
        slope = slope - q_mean.var
    second: list[Statement] = [h_let, g_let]
    clear: list[Statement] = []
    for target, part in sums:
        here = part[s.index("chunk_"), j1]
        second.append(loops.store(here, here + (g_let.var * h_let.var if target.name == "dweight" else g_let.var)))
        clear.append(loops.store(part[s.index("chunk_"), j2], s.const(0, c)))
    second.append(loops.store(dx[row.var, j1], slope * scale.var, streaming))
    line: list[Statement] = [
        row, scale, *([centre] if centre else []), *([q_sum] if centred else []), dot_sum,
        loops.loop("j0", n, first, "vector"),
        dot, *([q_mean] if q_mean else []),
        loops.loop("j1", n, second, "vector"),
    ]  # fmt: skip
    body: list[Statement] = [
        start, count, *([loops.loop("j2", n, clear, "vector")] if clear else []),
        loops.loop("line", s.minimum(chunk, rows - start.var), line),
    ]  # fmt: skip
    statements: list[Statement] = [
        loops.loop("chunk_", chunks, body, parallel=True, grain=loops.grain_for(chunk * n, 8192))
    ]
    if sums:
        statements.append(_join(sums, n, chunks, c))
    return Kernel(
        "layer_norm_backward" if centred else "rms_norm_backward", tuple(buffers), tuple(params), tuple(statements)
    )


def _join(sums: list[tuple[Buffer, Buffer]], n: Expr, chunks: Expr, c: np.dtype) -> Statement:
    """Sum the chunks' partial sums, column by column."""
    inner: list[Statement] = []
    stores: list[Statement] = []
    k = s.index("k")
    updates: list[Statement] = []
    for target, part in sums:
        a = Accumulator(f"{target.name}_sum", "sum", c)
        inner.append(a)
        updates.append(loops.update(a, part[s.index("partial"), k]))
        stores.append(loops.store(target[k], a.value))
    body = [*inner, loops.loop("partial", chunks, updates), *stores]
    return loops.loop("k", n, body, "vector", parallel=True, grain=loops.grain_for(chunks))


ROWS_PER_PASS = 4
"""Rows added in one pass over the sums, which are then read and written once per pass instead of once per row."""


_Sum = tuple[Callable[[Expr], Expr], Callable[[Expr, Expr], Expr]]


def _add_rows(tag: str, n: Expr, rows: Expr, sums: list[_Sum], c: np.dtype) -> list[Statement]:
    """Loops that set every `sum(j)` to the sum of `value(row, j)` over the rows, `ROWS_PER_PASS` rows at a time."""

    def sweep(name: str, count: Expr, first: Expr, together: int) -> Statement:
        j = s.index(f"{name}_j")
        lines: list[Statement] = []
        for target, value in sums:
            total = value(first, j)
            for k in range(1, together):
                total = total + value(first + k, j)
            lines.append(loops.store(target(j), target(j) + total))
        return loops.loop(name, count, [loops.loop(f"{name}_j", n, lines, "vector")])

    k = s.index(f"clear{tag}")
    whole = s.floor_divide(rows, loops.as_index(ROWS_PER_PASS))
    return [
        loops.loop(f"clear{tag}", n, [loops.store(target(k), s.const(0, c)) for target, _ in sums], "vector"),
        sweep(f"group{tag}", whole, s.index(f"group{tag}") * ROWS_PER_PASS, ROWS_PER_PASS),
        sweep(f"rest{tag}", rows - whole * ROWS_PER_PASS, whole * ROWS_PER_PASS + s.index(f"rest{tag}"), 1),
    ]


def batch_statistics(dtype: np.dtype) -> Kernel:
    """Mean and variance of columns, for batch norm on channels-last data.

    Buffers: x of shape (rows, n) with row stride x_row; mean, variance (biased) of n; scratch mean_parts, square_parts
    of shape (chunks, n). Integers: rows, n, chunks, chunk, x_row. Each chunk computes its mean and the sum of squared
    deviations from it, which avoids cancellation; then the chunks are combined (Chan et al.): the total sum of squares is
    the sum over chunks of their sum of squares plus rows_in_chunk * (chunk_mean - mean)**2.
    """
    c = compute_dtype(dtype)
    rows, n, chunks, chunk = (s.param(p) for p in ("rows", "n", "chunks", "chunk"))
    x = Buffer.of("x", dtype, (rows, n), (s.param("x_row"), 1))
    mean, variance = Buffer.of("mean", c, (n,)), Buffer.of("variance", c, (n,))
    means, squares = Buffer.of("mean_parts", c, (chunks, n)), Buffer.of("square_parts", c, (chunks, n))
    part = s.index("part")
    start = Let("start", part * chunk)
    here = Let("here", s.minimum(chunk, rows - start.var))
    count = Let("count", s.cast(here.var, c))

    def element(row: Expr, j: Expr) -> Expr:
        return s.cast(x[start.var + row, j], c)

    m = s.index("m")
    body = [
        start, here, count,
        *_add_rows("0", n, here.var, [(lambda j: means[part, j], element)], c),
        loops.loop("m", n, [loops.store(means[part, m], means[part, m] / count.var)], "vector"),
        *_add_rows("1", n, here.var, [(lambda j: squares[part, j], lambda r, j: s.square(element(r, j) - means[part, j]))], c),
    ]  # fmt: skip
    first = loops.loop("part", chunks, body, parallel=True, grain=loops.grain_for(chunk * n, 8192))

    k = s.index("k")
    total = Let("total_rows", s.cast(rows, c))

    def rows_in(p: Expr) -> Expr:
        return s.cast(s.minimum(chunk, rows - p * chunk), c)

    mean_sum, square_sum = Accumulator("mean_sum", "sum", c), Accumulator("square_sum", "sum", c)
    p, q = s.index("p"), s.index("q")
    centre = Let("centre", mean_sum.value / total.var)
    spread = squares[q, k] + rows_in(q) * s.square(means[q, k] - centre.var)
    columns: list[Statement] = [
        total, mean_sum, loops.loop("p", chunks, [loops.update(mean_sum, means[p, k] * rows_in(p))]), centre,
        square_sum, loops.loop("q", chunks, [loops.update(square_sum, spread)]),
        loops.store(mean[k], centre.var), loops.store(variance[k], square_sum.value / total.var),
    ]  # fmt: skip
    second = loops.loop("k", n, columns, "vector", parallel=True, grain=loops.grain_for(chunks * 2))
    return Kernel(
        "batch_statistics",
        (x, mean, variance, means, squares),
        ("rows", "n", "chunks", "chunk", "x_row"),
        (first, second),
    )


def batch_norm(dtype: np.dtype, streaming: bool) -> Kernel:
    """batch_norm(x, mean, scale, shift, y), integers rows, n: y = (x - mean) * scale + shift, with vectors over the columns."""
    c = compute_dtype(dtype)
    rows, n = s.param("rows"), s.param("n")
    x, y = (Buffer.of(name, dtype, (rows, n)) for name in ("x", "y"))
    mean, scale, shift = (Buffer.of(name, c, (n,)) for name in ("mean", "scale", "shift"))
    row, j = s.index("row"), s.index("j")
    value = (s.cast(x[row, j], c) - mean[j]) * scale[j] + shift[j]
    sweep = _over_rows([loops.store(y[row, j], value, streaming)])
    return Kernel("batch_norm", (x, mean, scale, shift, y), ("rows", "n"), (sweep,))


def _over_rows(line: list[Statement]) -> Statement:
    rows, n = s.param("rows"), s.param("n")
    return loops.loop("row", rows, [loops.loop("j", n, line, "vector")], parallel=True, grain=loops.grain_for(n, 8192))


def batch_gradient_sums(dtype: np.dtype) -> Kernel:
    """Sums over rows, for the gradient of batch norm: of g, and of g * (x - mean).

    Buffers: g, x of shape (rows, n); mean of n; the sums g_sum, gx_sum of n; scratch g_parts, gx_parts of shape
    (chunks, n). Integers: rows, n, chunks, chunk (rows per chunk).
    """
    c = compute_dtype(dtype)
    rows, n, chunks, chunk = (s.param(p) for p in ("rows", "n", "chunks", "chunk"))
    g, x = (Buffer.of(name, dtype, (rows, n)) for name in ("g", "x"))
    mean, g_sum, gx_sum = (Buffer.of(name, c, (n,)) for name in ("mean", "g_sum", "gx_sum"))
    g_parts, gx_parts = (Buffer.of(name, c, (chunks, n)) for name in ("g_parts", "gx_parts"))
    part = s.index("part")
    start = Let("start", part * chunk)
    here = Let("here", s.minimum(chunk, rows - start.var))

    def slope(row: Expr, j: Expr) -> Expr:
        return s.cast(g[start.var + row, j], c)

    def product(row: Expr, j: Expr) -> Expr:
        return slope(row, j) * (s.cast(x[start.var + row, j], c) - mean[j])

    sums: list[_Sum] = [(lambda j: g_parts[part, j], slope), (lambda j: gx_parts[part, j], product)]
    body: list[Statement] = [start, here, *_add_rows("", n, here.var, sums, c)]
    first = loops.loop("part", chunks, body, parallel=True, grain=loops.grain_for(chunk * n, 8192))
    return Kernel(
        "batch_gradient_sums",
        (g, x, mean, g_sum, gx_sum, g_parts, gx_parts),
        ("rows", "n", "chunks", "chunk"),
        (first, _join([(g_sum, g_parts), (gx_sum, gx_parts)], n, chunks, c)),
    )


def batch_norm_backward(dtype: np.dtype, streaming: bool) -> Kernel:
    """batch_norm_backward(g, x, mean, by_g, by_x, shift, dx), integers rows, n: dx = g * by_g + (x - mean) * by_x + shift."""
    c = compute_dtype(dtype)
    rows, n = s.param("rows"), s.param("n")
    g, x, dx = (Buffer.of(name, dtype, (rows, n)) for name in ("g", "x", "dx"))
    mean, by_g, by_x, shift = (Buffer.of(name, c, (n,)) for name in ("mean", "by_g", "by_x", "shift"))
    row, j = s.index("row"), s.index("j")
    value = s.cast(g[row, j], c) * by_g[j] + (s.cast(x[row, j], c) - mean[j]) * by_x[j] + shift[j]
    buffers = (g, x, mean, by_g, by_x, shift, dx)
    return Kernel(
        "batch_norm_backward", buffers, ("rows", "n"), (_over_rows([loops.store(dx[row, j], value, streaming)]),)
    )
