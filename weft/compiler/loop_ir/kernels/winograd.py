"""Winograd convolution F(m x m, 3 x 3): the transforms around the matmuls.

A tile of m x m results of a 3 x 3 convolution needs (m + 2)**2 multiplications per pair of channels instead of 9 m**2::

    y = At [ (G w Gt) * (Bt x B) ] A        one tile; `*` is elementwise, and sums over channels become matmuls

and its gradients use the same matrices, transposed (`g` is the gradient of `y`)::

    dx = the same with w rotated by 180 degrees and its channel axes exchanged
    dw = Gt [ (Bt x B) * (A g At) ] G       summed over tiles

The matrices follow from interpolation points 0, +-a, +-b, infinity. For m = 4 the points are 3/4 and 3/2 instead of the
usual 1 and 2: the rounding error is four times smaller (2e-6 of the largest result for 512 channels, against 8e-6), and
points that come in pairs still share their even and odd parts.

Images have (n, y, x) strides and contiguous channels. Transformed values are laid out as (position in the tile, tile,
channel), so that each of the (m + 2)**2 positions is one matrix. Sizes are run-time integers: one kernel serves every
layer. Tiles that extend past the edge read zeros there and skip the stores.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from ....ops.core import scalar as s
from ....ops.core.scalar import Expr
from ....ops.internal.epilogue import IDENTITY, Epilogue
from .. import ir as loops
from ..ir import Buffer, Kernel, Let, Local, Statement
from .epilogue import Operands, evaluate

TAPS = 3
POINTS: dict[int, tuple[Fraction, ...]] = {2: (Fraction(1),), 4: (Fraction(3, 4), Fraction(3, 2))}
"""The points a of the pairs +-a, by the size m of a tile."""
FLOAT = np.dtype(np.float32)
INT = np.dtype(np.int32)

Matrix = tuple[tuple[Fraction, ...], ...]


@functools.cache
def matrices(m: int) -> tuple[Matrix, Matrix, Matrix]:
    """(At, G, Bt) of F(m, 3), exactly. Their rows or columns belong to the points 0, a, -a, b, -b ..., infinity."""
    points = [Fraction(0)]
    for a in POINTS[m]:
        points += [a, -a]
    n = m + TAPS - 1
    one, zero = Fraction(1), Fraction(0)

    def polynomial(roots: Sequence[Fraction]) -> list[Fraction]:
        found = [one]
        for root in roots:
            found = [(found[i - 1] if i else zero) - (root * found[i] if i < len(found) else zero)
                     for i in range(len(found) + 1)]  # fmt: skip
        return found + [zero] * (n - len(found))

    at = [[p**i for p in points] + [one if i == m - 1 else zero] for i in range(m)]
    g, bt = [], []
    for j, p in enumerate(points):
        others = points[:j] + points[j + 1 :]
        scale = one
        for other in others:
            scale *= p - other
        g.append([p**i / scale for i in range(TAPS)])
        bt.append(polynomial(others))
    g.append([zero] * (TAPS - 1) + [one])
    bt.append(polynomial(points))
    return tuple(map(tuple, at)), tuple(map(tuple, g)), tuple(map(tuple, bt))


def transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


# ------------------------------------------------------------------------------------------ one-dimensional products


def _combine(coefficients: Sequence[Fraction], values: Sequence[Expr]) -> Expr | None:
    """The sum of coefficient times value, as multiply-adds; None if all coefficients are zero."""
    total: Expr | None = None
    terms = [(c, x) for c, x in zip(coefficients, values, strict=True) if c]
    terms.sort(key=lambda term: abs(term[0]) != 1)  # start from a term that needs no multiplication
    for c, x in terms:
        if total is None:
            total = x if c == 1 else x * s.const(float(c), FLOAT)
        elif abs(c) == 1:
            total = total + x if c == 1 else total - x
        else:
            total = s.fma(x, s.const(float(c), FLOAT), total)
    return total


def paired_rows(matrix: Matrix, values: Sequence[Expr]) -> list[Expr]:
    """`matrix @ values` where rows 1 and 2, 3 and 4 ... differ in the sign of their odd (or even) columns only."""
    made: list[Expr] = []
    for r in range(len(matrix)):
        if r == 0 or r == len(matrix) - 1:
            whole = _combine(matrix[r], values)
            assert whole is not None
            made.append(whole)
        elif r % 2:
            row, mirrored = matrix[r], matrix[r + 1]
            kept = [c if c == d else Fraction(0) for c, d in zip(row, mirrored, strict=True)]
            flipped = [c if c != d else Fraction(0) for c, d in zip(row, mirrored, strict=True)]
            same, other = _combine(kept, values), _combine(flipped, values)
            assert same is not None and other is not None
            made += [same + other, same - other]
    return made


def paired_columns(matrix: Matrix, values: Sequence[Expr]) -> list[Expr]:
    """`matrix @ values` where columns 1 and 2, 3 and 4 ... are equal up to the sign of each element."""
    last = len(values) - 1
    made = []
    sums = {j: values[j] + values[j + 1] for j in range(1, last, 2)}
    differences = {j: values[j] - values[j + 1] for j in range(1, last, 2)}
    for row in matrix:
        coefficients, parts = [row[0], row[last]], [values[0], values[last]]
        for j in range(1, last, 2):
            coefficients.append(row[j])
            parts.append(sums[j] if row[j] == row[j + 1] else differences[j])
        whole = _combine(coefficients, parts)
        assert whole is not None
        made.append(whole)
    return made


Product = Callable[[Matrix, Sequence[Expr]], list[Expr]]


def _both_sides(
    product: Product, matrix: Matrix, tile: list[list[Expr]], prefix: str
) -> tuple[list[Let], list[list[Expr]]]:
    """`matrix @ tile @ matrix.T`; intermediate values are named."""
    columns = [product(matrix, [row[j] for row in tile]) for j in range(len(tile[0]))]
    lets = [[Let(f"{prefix}{i}_{j}", columns[j][i]) for j in range(len(columns))] for i in range(len(matrix))]
    return [let for row in lets for let in row], [product(matrix, [let.var for let in row]) for row in lets]


# ------------------------------------------------------------------------------------------------------------ kernels


def _grid(m: int, before: bool) -> tuple[list[Let], Expr, Expr, Expr]:
    """(lets, image, first row, first column) of tile `first + t`; `before`: counted from the padding's edge."""
    tile = Let("tile", s.param("first") + s.index("t"))
    row = Let("row", s.floor_divide(tile.var, s.param("across")))
    image = Let("image", s.floor_divide(row.var, s.param("down")))
    y, x = (row.var - image.var * s.param("down")) * m, (tile.var - row.var * s.param("across")) * m
    top = Let("top", y - s.param("pad_y") if before else y)
    left = Let("left", x - s.param("pad_x") if before else x)
    return [tile, row, image, top, left], image.var, top.var, left.var


def _places(count: int, start: Expr, size: Expr, stride: Expr, name: str) -> tuple[list[Let], list[Expr], list[Expr]]:
    """(lets, offsets, masks) of `count` places from `start`, clamped to [0, size); a mask is 0 for those outside."""
    lets, offsets, masks = [], [], []
    for i in range(count):
        place = start + i
        inside = s.minimum(s.maximum(place, 0), size - 1)
        offset = Let(f"{name}{i}", inside * stride)
        mask = Let(f"{name}mask{i}", s.where(s.eq(inside, place), s.const(-1, INT), s.const(0, INT)))
        lets += [offset, mask]
        offsets.append(offset.var)
        masks.append(mask.var)
    return lets, offsets, masks


GRID = ("first", "across", "down", "pad_y", "pad_x")
IMAGE = ("offset", "image_stride", "row_stride", "column_stride", "height", "width")
MEMORY = (1 << 40,)


def _per_tile(body: Sequence[Statement], work: Expr) -> Statement:
    return loops.loop("t", s.param("tiles"), body, parallel=True, grain=loops.grain_for(work, 1 << 16))


def _into_tiles(m: int, name: str, size: int, before: bool, product: Product, matrix: Matrix) -> Kernel:
    """x (an image), v: v[:, t, c] = matrix @ tile @ matrix.T for `size` x `size` tiles, zeros outside the image."""
    x, v = Buffer.of("x", FLOAT, MEMORY), Buffer.of("v", FLOAT, MEMORY)
    lets, image, top, left = _grid(m, before)
    rows, row_offsets, row_masks = _places(size, top, s.param("height"), s.param("row_stride"), "y")
    columns, column_offsets, column_masks = _places(size, left, s.param("width"), s.param("column_stride"), "x")
    start = Let("start", s.param("offset") + image * s.param("image_stride"))
    c = s.index("c")
    masks: list[Let] = []
    tile: list[list[Expr]] = []
    for i in range(size):
        line = []
        for j in range(size):
            mask = Let(f"mask{i}_{j}", s.bitwise_and(row_masks[i], column_masks[j]))
            masks.append(mask)
            value = x[start.var + row_offsets[i] + column_offsets[j] + c]
            line.append(s.bitcast(s.bitwise_and(s.bitcast(value, INT), mask.var), FLOAT))
        tile.append(line)
    half, done = _both_sides(product, matrix, tile, "h")
    place = s.index("t") * s.param("channels") + c
    n = len(done)
    stores = [
        loops.store(v[place + s.param("position_stride") * (i * n + j)], done[i][j]) for i in range(n) for j in range(n)
    ]
    over = loops.loop("c", s.param("channels"), [*half, *stores], "vector")
    body: list[Statement] = [*lets, *rows, *columns, start, *masks, over]
    params = ("tiles", "channels", "position_stride", *GRID, *IMAGE)
    return Kernel(name, (x, v), params, (_per_tile(body, s.param("channels") * (n * n)),))


@functools.cache
def input_transform(m: int) -> Kernel:
    """winograd_input(x, v, ...): v = Bt x B for the tiles `first` to `first + tiles` of an image with padding."""
    return _into_tiles(m, f"winograd_input{m}", m + 2, True, paired_rows, matrices(m)[2])


@functools.cache
def gradient_transform(m: int) -> Kernel:
    """winograd_gradient(g, v, ...): v = A g At for m x m tiles of a result's gradient."""
    return _into_tiles(m, f"winograd_gradient{m}", m, False, paired_rows, transposed(matrices(m)[0]))


@functools.cache
def output_transform(m: int, epilogue: Epilogue = IDENTITY) -> Kernel:
    """winograd_output(v, *operands, y, ...): y = At v A, then `epilogue`, into the image's tiles.

    An operand of the epilogue that is not per channel is strided like y. Offsets of operands are the last parameters.
    """
    v, y = Buffer.of("v", FLOAT, MEMORY), Buffer.of("y", FLOAT, MEMORY)
    operands = Operands(epilogue.operands)
    n = m + 2
    lets, image, top, left = _grid(m, False)
    rows, row_offsets, _ = _places(m, top, s.param("height"), s.param("row_stride"), "y")
    columns, column_offsets, _ = _places(m, left, s.param("width"), s.param("column_stride"), "x")
    start = Let("start", s.param("offset") + image * s.param("image_stride"))
    c = s.index("c")
    place = s.index("t") * s.param("channels") + c
    tile = [[v[place + s.param("position_stride") * (i * n + j)] for j in range(n)] for i in range(n)]
    half, done = _both_sides(paired_columns, matrices(m)[0], tile, "h")
    stores: list[Statement] = []
    # Positions outside were clamped to the last one inside, whose store must come last: hence the reverse order.
    for i in range(m - 1, -1, -1):
        for j in range(m - 1, -1, -1):
            here = row_offsets[i] + column_offsets[j] + c
            value = evaluate(epilogue, done[i][j], operands.at(c, image * s.param("image_stride") + here))
            stores.append(loops.store(y[start.var + here], value))
    over = loops.loop("c", s.param("channels"), [*half, *stores], "vector")
    used = [let for let in (*rows, *columns) if "mask" not in let.name]
    params = ("tiles", "channels", "position_stride", *GRID, *IMAGE, *operands.params)
    buffers = (v, *operands.buffers, y)
    name = "_".join([f"winograd_output{m}", *epilogue.names])
    return Kernel(name, buffers, params, (_per_tile([*lets, *used, start, over], s.param("channels") * (n * n)),))


WEIGHT = (
    "rows", "columns", "position_stride", "offset", "row_stride", "column_stride", "y_stride", "x_stride",
)  # fmt: skip


def _parts(size: Expr, part: int) -> Expr:
    return s.floor_divide(size + (part - 1), part)


def _tap(w: Buffer, i: int, j: int, row: Expr, column: Expr) -> Expr:
    """Tap (i, j) of the filter between two channels."""
    place = s.param("offset") + row * s.param("row_stride") + column * s.param("column_stride")
    return w[place + s.param("y_stride") * i + s.param("x_stride") * j]


ROWS, COLUMNS = 2, 512
"""Filters gathered before they are transformed: few rows, whose results are contiguous."""


@functools.cache
def weight_transform(m: int) -> Kernel:
    """winograd_weight(w, u, ...): u[:, r, c] = G w[r, c] Gt; strides name the axes, negative ones rotate the filter.

    The taps of a filter are contiguous, those of neighbouring columns are not: they are first gathered into vectors, a few
    whole rows at a time, so that results are written sequentially: strips of 16 columns take two to three times as long.
    """
    w, u = Buffer.of("w", FLOAT, MEMORY), Buffer.of("u", FLOAT, MEMORY)
    local = Buffer.of("local", FLOAT, (ROWS, TAPS * TAPS, COLUMNS))
    row, column = s.index("rows_from") * ROWS, s.index("columns_from") * COLUMNS
    i, lane = s.index("i"), s.index("lane")
    r = Let("r", s.minimum(row + i, s.param("rows") - 1))
    here = Let("here", s.minimum(s.param("columns") - column, COLUMNS))
    copies = [
        loops.store(local[i, TAPS * a + b, lane], _tap(w, a, b, r.var, column + lane))
        for a in range(TAPS)
        for b in range(TAPS)
    ]
    bring = loops.loop("lane", here.var, [loops.loop("i", ROWS, [r, *copies])])
    k, v = s.index("k"), s.index("v")
    taps = [[local[k, TAPS * a + b, v] for b in range(TAPS)] for a in range(TAPS)]
    half, done = _both_sides(paired_rows, matrices(m)[1], taps, "h")
    n = m + 2
    place = (row + k) * s.param("columns") + column + v
    stores = [
        loops.store(u[place + s.param("position_stride") * (a * n + b)], done[a][b]) for a in range(n) for b in range(n)
    ]
    over = loops.loop("v", here.var, [*half, *stores], "vector")
    transform = loops.loop("k", s.minimum(s.param("rows") - row, ROWS), [over])
    across = loops.loop("columns_from", _parts(s.param("columns"), COLUMNS), [here, Local(local), bring, transform])
    grain = loops.grain_for(s.param("columns") * (ROWS * n * n), 1 << 16)
    down = loops.loop("rows_from", _parts(s.param("rows"), ROWS), [across], parallel=True, grain=grain)
    return Kernel(f"winograd_weight{m}", (w, u), WEIGHT, (down,))


@functools.cache
def weight_gradient_transform(m: int) -> Kernel:
    """winograd_weight_gradient(u, w, ...): w[r, c] = Gt u[:, r, c] G."""
    u, w = Buffer.of("u", FLOAT, MEMORY), Buffer.of("w", FLOAT, MEMORY)
    n = m + 2
    place = s.index("r") * s.param("columns") + s.index("c")
    tile = [[u[place + s.param("position_stride") * (i * n + j)] for j in range(n)] for i in range(n)]
    half, done = _both_sides(paired_columns, transposed(matrices(m)[1]), tile, "h")
    stores = [
        loops.store(_tap(w, i, j, s.index("r"), s.index("c")), done[i][j]) for i in range(TAPS) for j in range(TAPS)
    ]
    over = loops.loop("c", s.param("columns"), [*half, *stores], "vector")
    grain = loops.grain_for(s.param("columns") * (n * n), 1 << 16)
    return Kernel(
        f"winograd_weight_gradient{m}",
        (u, w),
        WEIGHT,
        (loops.loop("r", s.param("rows"), [over], parallel=True, grain=grain),),
    )
