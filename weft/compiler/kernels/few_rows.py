"""A few rows times a large matrix that is read once, as it lies: what a model does for one token or one sample.

`y = x @ w.T` where every row of `w` (a column of the product) is contiguous: the layout of a `Linear` layer's weight. The
time is that of reading `w`, so nothing is packed, and `w` is read from its beginning to its end: one stream that the
processor can foresee. (Several rows side by side, as in a product in tiles, take twice as long.) What follows the product
element by element is done to a vector of results at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ...ops import scalar as s
from ...ops.registry import table
from .. import loops
from ..layout import Layout
from ..loops import Accumulator, Buffer, Kernel, Local, Statement

MOST_ROWS = 4
"""Rows of x; with more, a product in tiles is better."""
TILE = 16
"""Results that are finished together."""
LEAST = 1 << 14
"""Elements of w that are worth a thread, and from which on this is worth while."""
LEAST_DEPTH = 64
"""Numbers of a row: with fewer, adding up the lanes of a sum costs more than multiplying."""

Place = tuple[tuple[int, ...], int]
"""Strides and offset, in elements."""


def suits(x: Layout, w: Layout) -> bool:
    """Whether `x @ w` can be computed here: few rows, columns of `w` contiguous and in whole tiles."""
    (rows, depth), columns = x.shape, w.shape[1]
    return (
        rows <= MOST_ROWS
        and x.dtype == w.dtype == s.FLOAT32
        and (x.strides[1] == 1 or depth == 1)
        and w.strides[0] == 1
        and w.strides[1] >= depth
        and columns % TILE == 0
        and depth >= LEAST_DEPTH
        and depth * columns >= LEAST
    )


def few_rows(x: Layout, w: Layout, y: Layout, then: Sequence[str] = (), operands: Sequence[Layout] = ()) -> Kernel:
    """`y = x @ w`, then the steps: "add" and "multiply" take the next operand (a matrix of y's shape, or one row of it, with
    contiguous rows), others are elementwise ops. Buffers: x, w, operands, y."""
    sizes = (x.shape[0], x.shape[1], w.shape[1])
    extras = tuple([(z.strides if z.shape[0] > 1 else (0, 1), z.offset) for z in operands])
    return _kernel(sizes, tuple(then), *[(z.strides, z.offset) for z in (x, w, y)], extras)


@functools.lru_cache(maxsize=1024)
def _kernel(
    sizes: tuple[int, int, int], then: tuple[str, ...], x: Place, w: Place, y: Place, extras: tuple[Place, ...]
) -> Kernel:
    rows, depth, columns = sizes
    xs, ws, ys = (Buffer.of(name, s.FLOAT32, (1 << 40,)) for name in ("x", "w", "y"))
    others = [Buffer.of(f"z{i}", s.FLOAT32, (1 << 40,)) for i in range(len(extras))]
    sums = Buffer.of("sums", s.FLOAT32, (rows, TILE))
    t, g, k, c = (s.index(name) for name in "tgkc")
    totals = [Accumulator(f"sum{r}", "sum", s.FLOAT32) for r in range(rows)]
    weight = ws[w[1] + (t * TILE + g) * w[0][1] + k]
    updates = [loops.update(totals[r], xs[x[1] + r * x[0][0] + k] * weight) for r in range(rows)]
    stores = [loops.store(sums[r, g], totals[r].value) for r in range(rows)]
    column_of_tile: list[Statement] = [*totals, loops.loop("k", depth, updates, "vector"), *stores]
    finish: list[Statement] = []
    for r in range(rows):
        value = sums[r, c]
        column = t * TILE + c
        rest = iter(zip(others, extras, strict=True))
        for step in then:
            if step in ("add", "multiply"):
                buffer, (strides, offset) = next(rest)
                operand = buffer[offset + r * strides[0] + column]
                value = value + operand if step == "add" else value * operand
            else:
                value = table[step].expression(value)  # type: ignore[misc]
        finish.append(loops.store(ys[y[1] + r * y[0][0] + column], value))
    body: list[Statement] = [
        Local(sums), loops.loop("g", TILE, column_of_tile), loops.loop("c", TILE, finish, "vector"),
    ]  # fmt: skip
    grain = LEAST // (TILE * depth) + 1
    tiles = loops.loop("t", columns // TILE, body, parallel=True, grain=grain)
    return Kernel("_".join(["few_rows", *then]), (xs, ws, *others, ys), (), (tiles,))
