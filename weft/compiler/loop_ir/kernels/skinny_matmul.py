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
from ....ops.internal.epilogue import IDENTITY, Epilogue
from ...program.layout import Layout
from ...target import Target
from .. import ir as loops
from ..ir import Accumulator, Buffer, Kernel, Local, Statement
from .epilogue import MatrixOperand, evaluate, matrix_operands
from .tiles import parts

MAX_ROWS = 4
"""Maximum rows of x; for more, a tiled matmul is faster."""
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
    x: Layout, w: Layout, y: Layout, target: Target, epilogue: Epilogue = IDENTITY, operands: Sequence[Layout] = ()
) -> Kernel:
    """`y = x @ w`, then the epilogue, whose operands are matrices: of y's shape, or of one row. Buffers: x, w, operands, y."""
    sizes = (x.shape[0], x.shape[1], w.shape[1])
    return _kernel(sizes, target, epilogue, *[(z.strides, z.offset) for z in (x, w, y)], matrix_operands(operands))


@functools.lru_cache(loops.MAX_KEPT)
def _kernel(
    sizes: tuple[int, int, int],
    target: Target,
    epilogue: Epilogue,
    x: Place,
    w: Place,
    y: Place,
    operands: tuple[MatrixOperand, ...],
) -> Kernel:
    rows, depth, columns = sizes
    xs, ws, ys = (Buffer.of(name, s.FLOAT32, (1 << 40,)) for name in ("x", "w", "y"))
    others = [Buffer.of(f"z{i}", s.FLOAT32, (1 << 40,)) for i in range(len(operands))]
    body: list[Statement] = []
    for first, count, width in parts(columns, target.lanes):  # whole vectors of results, and the remaining columns
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
                evaluate(epilogue, sums[r, c], [z.at(b, r, start + c) for b, z in zip(others, operands, strict=True)]),
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
    return Kernel("_".join(["skinny_matmul", *epilogue.names]), (xs, ws, *others, ys), (), tuple(body))
