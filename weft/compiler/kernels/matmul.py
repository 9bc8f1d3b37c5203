"""Small matrix products of constant shape, as register tiles.

A oneDNN call costs microseconds; below roughly 64 x 64 x 64 the product itself costs less. Tiles are local buffers of
constant shape: unrolled and vector loops over them become registers, and the loop over the inner dimension holds nothing
but multiply-adds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...ops import scalar as s
from ...ops.scalar import Expr
from .. import loops
from ..loops import Accumulator, Buffer, Kernel, Local, Statement
from .rows import compute_dtype

TILE = (4, 64)
"""Rows and columns held in registers; 16 vectors of 16 float32 lanes."""
DOT_ROWS = 4
"""Up to this many rows, a transposed right operand is read along its rows (dot products) instead of being copied."""

Epilogue = Callable[[Expr, Expr, Expr], Expr]


def _plain(value: Expr, i: Expr, j: Expr) -> Expr:
    return value


def _spans(size: int, tile: int) -> list[tuple[int, int, int]]:
    """(start, tile, count) for whole tiles and the rest."""
    whole = size // tile
    spans = [(0, tile, whole)] if whole else []
    if size % tile:
        spans.append((whole * tile, size % tile, 1))
    return spans


def small_matmul(
    m: int,
    n: int,
    k: int,
    dtype: np.dtype,
    transpose_a: bool = False,
    transpose_b: bool = False,
    bias: bool = False,
    epilogue: Epilogue = _plain,
    tile: tuple[int, int] = TILE,
    name: str = "small_matmul",
) -> Kernel:
    """small_matmul(a, b, [bias], c): c = epilogue(a @ b + bias), all row-major.

    Args:
        m, n, k: c is (m, n); a is (m, k), or (k, m) when `transpose_a`; b is (k, n), or (n, k) when `transpose_b`.
        dtype: float32, float64 or half precision, which is computed in float32.
        bias: whether there is one, of n elements.
        epilogue: (value, i, j) -> value, applied before the store; may load from further buffers of the caller's.
        tile: rows and columns of a register tile.
    """
    for label, size in (("m", m), ("n", n), ("k", k)):
        if size < 1:
            raise ValueError(f"small_matmul: {label} must be positive. Got {size}; expected 1 or more.")
    if s.kind(dtype) != "f":
        raise TypeError(
            f"small_matmul: dtype must be floating. Got {dtype}; expected float32, float64 or half precision."
        )
    c_type = compute_dtype(dtype)
    a = Buffer.of("a", dtype, (m, k), (1, m) if transpose_a else (k, 1))
    b = Buffer.of("b", dtype, (k, n), (1, k) if transpose_b else (n, 1))
    shift = Buffer.of("bias", dtype, (n,)) if bias else None
    c = Buffer.of("c", dtype, (m, n))
    buffers = (a, b, *([shift] if shift else []), c)

    def finish(value: Expr, i: Expr, j: Expr) -> Statement:
        if shift is not None:
            value = value + s.cast(shift[j], c_type)
        return loops.store(c[i, j], epilogue(value, i, j))

    statements: list[Statement] = []
    if transpose_b and not transpose_a and m <= DOT_ROWS:
        return Kernel(name, buffers, (), tuple(_dots(m, n, k, c_type, a, b, finish)))
    if transpose_b and n * k * c_type.itemsize <= loops.MAX_LOCAL_BYTES:
        turned = Buffer.of("turned", c_type, (k, n))
        p, q = s.index("p"), s.index("q")
        copy = loops.loop("q", k, [loops.store(turned[q, p], s.cast(b[q, p], c_type))], "vector")
        statements += [Local(turned), loops.loop("p", n, [copy])]
        b = turned
    # A narrow product has few columns to keep busy with: more rows then.
    tile_rows = max(tile[0], tile[0] * tile[1] // (-(-min(n, tile[1]) // 16) * 16))
    number = 0
    for row_start, rows, row_count in _spans(m, tile_rows):
        for column_start, columns, column_count in _spans(n, tile[1]):
            statements.append(
                _tile(
                    number,
                    a,
                    b,
                    k,
                    c_type,
                    finish,
                    (row_start, rows, row_count),
                    (column_start, columns, column_count),
                )
            )
            number += 1
    return Kernel(name, buffers, (), tuple(statements))


def _tile(
    number: int,
    a: Buffer,
    b: Buffer,
    k: int,
    dtype: np.dtype,
    finish: Callable[[Expr, Expr, Expr], Statement],
    row_span: tuple[int, int, int],
    column_span: tuple[int, int, int],
) -> Statement:
    """Loops over all tiles of one size; the names carry `number` so that several can stand in one kernel."""
    (row_start, rows, row_count), (column_start, columns, column_count) = row_span, column_span
    tile = Buffer.of(f"tile{number}", dtype, (rows, columns))
    block_i, block_j = s.index(f"ib{number}"), s.index(f"jb{number}")
    first_i, first_j = block_i * rows + row_start, block_j * columns + column_start
    names = [(f"i{number}{part}", f"j{number}{part}") for part in "xyz"]

    def over(part: int, body: Callable[[Expr, Expr], Statement]) -> Statement:
        i, j = names[part]
        inner = loops.loop(j, columns, [body(s.index(i), s.index(j))], "vector")
        return loops.loop(i, rows, [inner], "unroll")

    step = s.index(f"k{number}")

    def accumulate(i: Expr, j: Expr) -> Statement:
        left = s.cast(a[first_i + i, step], dtype)
        right = s.cast(b[step, first_j + j], dtype)
        return loops.store(tile[i, j], s.fma(left, right, tile[i, j]))

    body: list[Statement] = [
        Local(tile),
        over(0, lambda i, j: loops.store(tile[i, j], s.const(0, dtype))),
        loops.loop(f"k{number}", k, [over(1, accumulate)]),
        over(2, lambda i, j: finish(tile[i, j], first_i + i, first_j + j)),
    ]
    return loops.loop(f"ib{number}", row_count, [loops.loop(f"jb{number}", column_count, body)])


def _dots(
    m: int,
    n: int,
    k: int,
    dtype: np.dtype,
    a: Buffer,
    b: Buffer,
    finish: Callable[[Expr, Expr, Expr], Statement],
) -> list[Statement]:
    """c[i, j] as dot products along k, a few columns at a time so that a row of `a` is read once for them."""
    statements: list[Statement] = []
    for number, (start, width, count) in enumerate(_spans(n, 4)):
        i, block, step = s.index(f"i{number}"), s.index(f"jb{number}"), s.index(f"k{number}")
        sums = [Accumulator(f"dot{number}_{t}", "sum", dtype) for t in range(width)]
        columns = [block * width + (start + t) for t in range(width)]
        updates = [
            loops.update(total, s.cast(a[i, step], dtype) * s.cast(b[step, j], dtype))
            for total, j in zip(sums, columns, strict=True)
        ]
        stores = [finish(total.value, i, j) for total, j in zip(sums, columns, strict=True)]
        body = [*sums, loops.loop(f"k{number}", k, updates, "vector"), *stores]
        statements.append(loops.loop(f"jb{number}", count, [loops.loop(f"i{number}", m, body)]))
    return statements
