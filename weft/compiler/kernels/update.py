"""A matrix product whose result is used up where it is made: a weight's gradient and the optimiser's step in one sweep.

    for a block of columns, for a few rows:   grad = left @ right  (a strip in the first cache);  w, m, … = update(grad, w, m, …)

The gradient of a large layer is never written to memory and read again. Weights and moments are walked in long runs; the
block of the right operand stays in the second cache while all rows pass by.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ops import scalar as s
from ...ops.scalar import Expr
from .. import loops
from ..layout import Layout
from ..loops import SQUARE, Buffer, Let, Local, Loop, Statement
from .product import Near
from .tiles import COLUMNS, ROWS, parts, product, row_parts

STRIP = 1024  # columns at a time
DEEPEST = 128  # so that a block of the right operand fits the second cache

Update = Callable[[Expr, Expr, Expr, str], list[Statement]]


def product_and_update(
    left: tuple[Buffer, Layout], right: tuple[Buffer, Layout], update: Update, near: Near | None = None, grain: int = 8
) -> list[Loop]:
    """Loops that compute every element of `left @ right` and hand it to `update(row, column, value, tag)`.

    Args:
        left: (M, K), strided anyhow.
        right: (K, N), as panels of columns one after the other (see `pack_columns`); the layout has this shape.
        update: the statements for one element. They must only touch memory that belongs to that element, and may name
            things with the unique `tag`.
        near: prefetches of what `update` will touch at (row, column).
    """
    (a, a_layout), (b, b_layout) = left, right
    (height, depth), width = a_layout.shape, b_layout.shape[1]
    made: list[Loop] = []
    for row0, row_tiles, rows in row_parts(height, ROWS):
        for column0, blocks, columns in parts(width, STRIP):
            tag = f"u{len(made)}"
            task = s.index(tag)
            i0 = Let(f"{tag}i", s.remainder(task, row_tiles) * rows + row0)
            j0 = Let(f"{tag}j", s.floor_divide(task, row_tiles) * columns + column0)
            strip = Buffer.of(f"{tag}strip", s.FLOAT32, (rows, columns))

            # a column of the left operand may lie far from the next: in few cache sets, on as many pages
            few = Buffer.of(f"{tag}few", s.FLOAT32, (depth, rows))
            n, m = s.index(f"{tag}n"), s.index(f"{tag}m")
            fetch = a[(i0.var + m) * a_layout.strides[0] + n * a_layout.strides[1] + a_layout.offset]

            def of_left(i: Expr, k: Expr, few: Buffer = few) -> Expr:
                return few[k, i]

            tiles: list[Statement] = []
            for first, panels, wide in parts(columns, COLUMNS):
                panel = s.index(f"{tag}b{first}")
                start = Let(f"{tag}s{first}", (j0.var + first + panel * wide) * depth + b_layout.offset)

                def of_right(k: Expr, j: Expr, start: Let = start, wide: int = wide) -> Expr:
                    return b[start.var + k * wide + j]

                def keep(
                    i: Expr, j: Expr, x: Expr, at: Expr = panel * wide + first, strip: Buffer = strip
                ) -> Statement:
                    return loops.store(strip[i, at + j], x)

                inner = product(f"{tag}p{first}", (rows, wide, depth), of_left, of_right, keep)
                column = j0.var + first + panel * wide
                soon = [] if near is None else [
                    p for r in range(rows) for c in range(0, wide, SQUARE) for p in near(i0.var + r, column + c)
                ]  # fmt: skip
                tiles.append(loops.loop(f"{tag}b{first}", panels, [start, *soon, *inner]))

            r, c = s.index(f"{tag}r"), s.index(f"{tag}c")
            use = update(i0.var + r, j0.var + c, strip[r, c], tag)
            body: list[Statement] = [
                i0,
                j0,
                Local(strip),
                Local(few),
                loops.loop(
                    f"{tag}n", depth, [loops.loop(f"{tag}m", rows, [loops.store(few[n, m], fetch)], "vector")]
                ),
                *tiles,
                loops.loop(f"{tag}r", rows, [loops.loop(f"{tag}c", columns, use, "vector")]),
            ]
            made.append(loops.loop(tag, row_tiles * blocks, body, parallel=True, grain=grain))
    return made
