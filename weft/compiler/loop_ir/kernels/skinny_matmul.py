"""Skinny matmul: a few rows times a large unpacked matrix, which is read once (inference on one token or one sample).

`y = x @ w.T` where every row of `w` (a column of the product) is contiguous: the layout of a `Linear` layer's weight. The
kernel is bound by the bandwidth of reading `w`, so nothing is packed and `w` is read sequentially: one stream that the
hardware prefetches. (Several rows side by side, as in a tiled matmul, take twice as long.) The elementwise epilogue is
applied to one vector of results at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ....ops.core import scalar as s
from ....ops.core.registry import table
from ....ops.core.scalar import Expr
from ...layout import Layout
from .. import ir as loops
from ..ir import Accumulator, Buffer, Kernel, Local, Statement
from .tiles import parts

MAX_ROWS = 4
"""Maximum rows of x; for more, a tiled matmul is faster."""
TILE = 16
"""Results per application of the epilogue."""
MIN_MATRIX_ELEMENTS = 1 << 14
"""Minimum elements of w per thread, and for this kernel to pay off."""
MIN_DEPTH = 64
"""Minimum depth: below it, the horizontal sum of lanes costs more than the multiply-adds."""

Place = tuple[tuple[int, ...], int]
"""Strides and offset, in elements."""


def suits(x: Layout, w: Layout) -> bool:
    """Whether `x @ w` can be computed here: few rows, and columns of `w` contiguous."""
    (rows, depth), columns = x.shape, w.shape[1]
    return (
        rows <= MAX_ROWS
        and x.dtype == w.dtype == s.FLOAT32
        and (x.strides[1] == 1 or depth == 1)
        and w.strides[0] == 1
        and w.strides[1] >= depth
        and depth >= MIN_DEPTH
        and depth * columns >= MIN_MATRIX_ELEMENTS
    )


def skinny_matmul(
    x: Layout, w: Layout, y: Layout, epilogue: Sequence[str] = (), operands: Sequence[Layout] = ()
) -> Kernel:
    """`y = x @ w`, then the steps: "add" and "multiply" take the next operand (a matrix of y's shape, or one row of it, with
    contiguous rows), others are elementwise ops. Buffers: x, w, operands, y."""
    sizes = (x.shape[0], x.shape[1], w.shape[1])
    extras = tuple([(z.strides if z.shape[0] > 1 else (0, 1), z.offset) for z in operands])
    return _kernel(sizes, tuple(epilogue), *[(z.strides, z.offset) for z in (x, w, y)], extras)


@functools.lru_cache(loops.MAX_KEPT)
def _kernel(
    sizes: tuple[int, int, int], epilogue: tuple[str, ...], x: Place, w: Place, y: Place, extras: tuple[Place, ...]
) -> Kernel:
    rows, depth, columns = sizes
    xs, ws, ys = (Buffer.of(name, s.FLOAT32, (1 << 40,)) for name in ("x", "w", "y"))
    operands = [(Buffer.of(f"z{i}", s.FLOAT32, (1 << 40,)), place) for i, place in enumerate(extras)]
    body: list[Statement] = []
    for first, count, width in parts(columns, TILE):  # whole tiles, and one for the remaining columns
        tag = f"p{len(body)}_"
        sums = Buffer.of(tag + "sums", s.FLOAT32, (rows, width))
        t, g, k, c = (s.index(tag + name) for name in "tgkc")
        start = t * width + first
        totals = [Accumulator(f"{tag}sum{r}", "sum", s.FLOAT32) for r in range(rows)]
        weight = ws[w[1] + (start + g) * w[0][1] + k]
        updates = [loops.update(totals[r], xs[x[1] + r * x[0][0] + k] * weight) for r in range(rows)]
        stores = [loops.store(sums[r, g], totals[r].value) for r in range(rows)]
        finish = [
            loops.store(
                ys[y[1] + r * y[0][0] + start + c],
                apply_steps(
                    sums[r, c], epilogue, [z[at + r * strides[0] + start + c] for z, (strides, at) in operands]
                ),
            )
            for r in range(rows)
        ]
        tile: list[Statement] = [
            Local(sums),
            loops.loop(tag + "g", width, [*totals, loops.loop(tag + "k", depth, updates, "vector"), *stores]),
            loops.loop(tag + "c", width, finish, "vector"),
        ]
        grain = MIN_MATRIX_ELEMENTS // (width * depth) + 1
        body.append(loops.loop(tag + "t", count, tile, parallel=count > 1, grain=grain))
    return Kernel("_".join(["few_rows", *epilogue]), (xs, ws, *[z for z, _ in operands], ys), (), tuple(body))


def apply_steps(value: Expr, epilogue: tuple[str, ...], operands: Sequence[Expr]) -> Expr:
    """The epilogue, on one element."""
    rest = iter(operands)
    for step in epilogue:
        if step == "add":
            value = value + next(rest)
        elif step == "multiply":
            value = value * next(rest)
        else:
            value = table[step].expression(value)  # type: ignore[misc]
    return value
