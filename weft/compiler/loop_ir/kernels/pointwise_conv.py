"""Pointwise (1 x 1) convolution of few channels: many rows (pixels of channels-last images) times a small matrix.

The matrix stays in cache; rows are streamed from memory and back, one tile after the other. A tile has little arithmetic
per byte, and it reads several rows side by side, which hardware prefetchers do not predict: so each tile prefetches the
next tile's rows, one or two cache lines per step of the depth.

Up to two vectors of columns are computed in halves: with AVX-512, 24 columns fill three half-length vectors, where two whole
ones would leave a quarter of their lanes idle. Each element of a row is then also used for more vectors, and a broadcast load
costs as much as a multiply-add.

Kernels are the same for any number of rows: trials run on a few of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from ....ops.core import scalar as s
from ....ops.core.scalar import Expr
from ....ops.internal.epilogue import IDENTITY, Epilogue
from ...target import Target
from .. import ir as loops
from ..ir import Buffer, Kernel, Let, Local, Loop, Statement
from .epilogue import Operands, evaluate
from .tiles import accumulators

MEMORY = (1 << 40,)
MAX_NARROW_VECTORS = 2
"""Maximum vectors of columns for half-length vectors."""
MAX_VECTORS = 4
"""Maximum vectors of columns for a tile with all columns."""
TILES = {6: 1 / 6, 4: 5 / 24, 3: 1 / 4}
"""Vectors of columns of a tile for more columns, in order of preference, and its rows as a share of the accumulators."""
TARGET_TASKS, MAX_TASK_ROWS = 32, 768
"""Approximate number of tasks, and maximum rows of a task."""


def max_matrix_elements(target: Target) -> int:
    """Maximum elements of the matrix: it stays in L2 beside the rows."""
    return target.l2_bytes // 8 // 4


def tile_of(columns: int, target: Target) -> tuple[int, int, int]:
    """(rows, columns, lanes of a vector) of a tile. Few rows where those of the result are long: few write streams."""
    sums, lanes, half = accumulators(target), target.lanes, target.lanes // 2
    if columns <= MAX_NARROW_VECTORS * lanes and columns % half == 0:
        return min(sums // (columns // half), sums // 2), columns, half
    if columns <= MAX_VECTORS * lanes:
        return min(sums // -(-columns // lanes), sums // 2), columns, lanes
    vectors = next((v for v in TILES if columns % (v * lanes) == 0), 0)
    return (round(TILES[vectors] * sums), vectors * lanes, lanes) if vectors else (0, columns, lanes)


def split(rows: int, columns: int, target: Target) -> list[int]:
    """(tiles of a task, number of tasks) for so many rows."""
    high = tile_of(columns, target)[0]
    tiles = -(-rows // high)
    each = max(1, min(MAX_TASK_ROWS // high, tiles // TARGET_TASKS))
    return [each, -(-tiles // each)]


@functools.lru_cache(loops.MAX_KEPT)
def pointwise_conv(depth: int, columns: int, target: Target, epilogue: Epilogue = IDENTITY) -> Kernel:
    """pointwise_conv(x, w, *operands, y, rows, tiles of a task, tasks, offsets of x, w, y and operands): y = x @ w.

    The result gets the `epilogue`. Rows of x, w and y are contiguous. A channel is a column.
    """
    x, w, y = (Buffer.of(name, s.FLOAT32, MEMORY) for name in ("x", "w", "y"))
    operands = Operands(epilogue.operands)
    high, wide, _ = tile_of(columns, target)

    def finish(row: Expr, column: Expr, value: Expr) -> Statement:
        here = row * columns + column
        return loops.store(y[here + s.param("y_offset")], evaluate(epilogue, value, operands.at(column, here)))

    def tile(tag: str, row: Expr, rows: int, ahead: bool) -> list[Statement]:
        of_row = lambda r, k: x[(row + r) * depth + k + s.param("x_offset")]
        of_matrix = lambda k, c: w[k * wide + c + s.param("w_offset")]
        done = lambda r, c, v: finish(row + r, c, v)
        return _tile(tag, (rows, columns, depth), of_row, of_matrix, done, ahead, target)

    whole = Let("whole", s.floor_divide(s.param("rows"), high))
    first = Let("first", s.index("task") * s.param("each"))
    count = s.maximum(s.minimum(s.param("each"), whole.var - first.var), 0)
    start = Let("start", (first.var + s.index("t")) * high)
    last = s.eq(s.index("task"), s.param("tasks") - 1)
    rest = s.where(last, s.param("rows") - whole.var * high, loops.as_index(0))
    end = Let("end", whole.var * high + s.index("e"))
    body: list[Statement] = [
        first,
        loops.loop("t", count, [start, *tile("a", start.var, high, True)]),
        loops.loop("e", rest, [end, *tile("b", end.var, 1, False)]),
    ]
    grain = s.floor_divide(loops.as_index(1 << 17), s.param("each") * (high * depth * columns)) + 1
    task = loops.loop("task", s.param("tasks"), body, parallel=True, grain=grain)
    params = ("rows", "each", "tasks", "x_offset", "w_offset", "y_offset", *operands.params)
    return Kernel("_".join(["pointwise_conv", *epilogue.names]), (x, w, *operands.buffers, y), params, (whole, task))


def _tile(
    tag: str, sizes: tuple[int, int, int], of_row: Callable[[Expr, Expr], Expr], of_matrix: Callable[[Expr, Expr], Expr],
    finish: Callable[[Expr, Expr, Expr], Statement], ahead: bool, target: Target,
) -> list[Statement]:  # fmt: skip
    """A few rows of the product, a few columns at a time. With `ahead`, as many following rows are prefetched."""
    rows, columns, depth = sizes
    _, wide, lanes = tile_of(columns, target)
    made: list[Statement] = []
    for column0 in range(0, columns, wide):
        name, width = f"{tag}{column0}", min(wide, columns - column0)
        sums = Buffer.of(f"{name}s", s.FLOAT32, (rows, width))
        k = s.index(f"{name}k")
        near: Sequence[Statement] = ()
        if ahead and column0 == 0:  # depth steps for depth * rows elements
            near = [
                loops.prefetch(of_row(loops.as_index(rows), k * rows + i)) for i in range(0, rows, target.line_elements)
            ]

        def over(part: str, make: Callable[[Expr, Expr], Statement], name: str = name, width: int = width) -> Loop:
            r, g, v = (s.index(f"{name}{part}{letter}") for letter in "rgv")
            inner: Statement = loops.loop(f"{name}{part}v", width, [make(r, v)], "vector")
            if lanes < target.lanes:
                half = loops.loop(f"{name}{part}v", lanes, [make(r, g * lanes + v)], "vector")
                inner = loops.loop(f"{name}{part}g", width // lanes, [half], "unroll")
            return loops.loop(f"{name}{part}r", rows, [inner], "unroll")

        def multiply(r: Expr, c: Expr, sums: Buffer = sums, k: Expr = k, column0: int = column0) -> Statement:
            return loops.store(sums[r, c], s.fma(of_row(r, k), of_matrix(k, c + column0 * depth), sums[r, c]))

        made += [
            Local(sums),
            over("z", lambda r, c, sums=sums: loops.store(sums[r, c], s.const(0, s.FLOAT32))),  # type: ignore[misc]
            loops.loop(f"{name}k", depth, [*near, over("m", multiply)]),
            over("e", lambda r, c, sums=sums, column0=column0: finish(r, c + column0, sums[r, c])),  # type: ignore[misc]
        ]
    return made
