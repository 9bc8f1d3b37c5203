"""Register tiles: the matmul micro-kernel that the matmul and attention kernels are built around.

A tile is a few rows by a few vectors of the result, kept in registers over the whole depth. The left operand is read
through broadcast loads and may have any strides; the right operand and the result are accessed in vectors along their
columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....ops.core import scalar as s
from ....ops.core.scalar import Expr
from ...target import Target
from .. import ir as loops
from ..ir import Buffer, Local, Statement

ROWS = 6
"""Rows of a tile that fills the accumulator registers."""

Place = Callable[[Expr, Expr], Expr]


def parts(size: int, tile: int) -> list[tuple[int, int, int]]:
    """(start, number of tiles, tile size): whole tiles, then the remainder."""
    whole, rest = divmod(size, tile)
    return [p for p in ((0, whole, tile), (whole * tile, 1, rest)) if p[1] and p[2]]


def open_parts(size: loops.Dim, tile: int, unit: int = 1) -> list[tuple[loops.Dim, loops.Dim, int]]:
    """Like `parts`, for a size that varies: whole tiles, then a part for each halving of the rest, which may have no tile.

    The parts are the same for all sizes; only the starts and the numbers of tiles differ. `size` and `tile` are
    multiples of `unit`, of which the smallest part has one.
    """
    whole = s.floor_divide(size, tile) if isinstance(size, Expr) else size // tile
    start, rest = whole * tile, size - whole * tile
    made: list[tuple[loops.Dim, loops.Dim, int]] = [(0, whole, tile)]
    piece = unit << ((tile - unit) // unit).bit_length() - 1 if tile > unit else 0
    while piece >= unit:
        pair = s.floor_divide(rest, 2 * piece) if isinstance(rest, Expr) else rest // (2 * piece)
        left = rest - pair * (2 * piece)
        count = s.floor_divide(left, piece) if isinstance(left, Expr) else left // piece
        made.append((start + pair * (2 * piece), count, piece))
        piece //= 2
    return made


def row_parts(size: int, most: int) -> list[tuple[int, int, int]]:
    """Like `parts`, with the largest tile of at most `most` rows that leaves no remainder, unless that would be much smaller."""
    for tile in range(most, most * 2 // 3 - 1, -1):
        if size % tile == 0:
            return [(0, size // tile, tile)]
    return parts(size, most)


def accumulators(target: Target) -> int:
    """Registers that hold sums: three quarters; the others hold operands."""
    return target.registers * 3 // 4


def tile_columns(target: Target) -> int:
    """Columns of a tile of `ROWS` rows that fills the accumulator registers: 64 with AVX-512, 16 with AVX2 and NEON."""
    return accumulators(target) // ROWS * target.lanes


def rows_beside(columns: int, target: Target) -> int:
    """Rows of a tile of so many columns: as many as fit in the accumulator registers."""
    half = target.lanes // 2
    return accumulators(target) // (columns // half if columns % target.lanes == half else -(-columns // target.lanes))


def row_tiles(rows: int, most: int = ROWS, high: bool = False) -> list[tuple[int, int, int]]:
    """(start, number of tiles, rows of each): equal tiles if that leaves no remainder, which is less code; otherwise, or
    with `high`, tiles of six rows, and none below three if there are enough: a tile of few rows is bound by loads of the
    right operand."""
    alike = row_parts(rows, most)
    if most != ROWS or len(alike) == 1 and (not high or rows < ROWS or alike[0][2] == ROWS):
        return alike
    ends = {1: (4, 3), 2: (4, 4), 3: (5, 4)}.get(rows % ROWS, (rows % ROWS,))
    at = rows - sum(ends)
    made = [(0, at // ROWS, ROWS)] if at else []
    for size in sorted(set(ends), reverse=True):
        made.append((at, ends.count(size), size))
        at += ends.count(size) * size
    return made


def product(
    tag: str,
    size: tuple[int, int, int | Expr],
    left: Place,
    right: Place,
    finish: Callable[[Expr, Expr, Expr], Statement | Sequence[Statement]],
    start: Place | None = None,
    tile: tuple[int, int] | None = None,
    *,
    target: Target,
    dtype: np.dtype = s.FLOAT32,
    split: Callable[[int, int], list[tuple[int, int, int]]] = row_parts,
    each: Callable[[Expr], Sequence[Statement]] | None = None,
    unless: tuple[Expr, Callable[[Expr, Expr, Expr], Statement | Sequence[Statement]]] | None = None,
) -> list[Statement]:
    """Statements that compute `start + left @ right`, tile by tile.

    Args:
        tag: makes the names of loops and tiles unique within the kernel.
        size: (rows, columns, depth).
        left, right: the elements (row, k) and (k, column).
        finish: the epilogue for (row, column, value): usually a store.
        start: the initial value of the sum (row, column); zero by default.
        tile: rows and columns of a tile; by default one that fills the accumulator registers.
        split: how rows are split into tiles.
        each: further statements for every step of the depth, given its number: prefetches.
        unless: (a condition, the epilogue while it does not hold).
    """
    rows, columns, depth = size
    most_rows, most_columns = tile or (ROWS, tile_columns(target))
    half = target.lanes // 2
    body: list[Statement] = []
    for row0, row_tiles, mr in split(rows, most_rows):
        for column0, column_tiles, nr in parts(columns, most_columns):
            name = f"{tag}_{len(body)}"
            sums = Buffer.of(f"{name}t", dtype, (mr, nr))
            i = s.index(f"{name}i") * mr + row0
            j = s.index(f"{name}j") * nr + column0
            k = s.index(f"{name}k")

            def lanes(part: str, make: Callable[[Expr, Expr], Statement | Sequence[Statement]],
                      mr: int = mr, nr: int = nr, name: str = name) -> Statement:  # fmt: skip
                """Loops over the elements of the tile: rows unrolled, columns in full vectors."""
                r, h, v = (s.index(f"{name}{part}{letter}") for letter in "rhv")
                halves = nr // half if nr % target.lanes == half else 1
                made = make(r, h * half + v if halves > 1 else v)
                body = list(made) if isinstance(made, Sequence) else [made]
                inner = loops.loop(f"{name}{part}v", nr // halves, body, "vector")
                if halves > 1:
                    inner = loops.loop(f"{name}{part}h", halves, [inner], "unroll")
                return loops.loop(f"{name}{part}r", mr, [inner], "unroll")

            def first(r: Expr, v: Expr, sums: Buffer = sums, i: Expr = i, j: Expr = j) -> Statement:
                return loops.store(sums[r, v], s.const(0, dtype) if start is None else start(i + r, j + v))

            def multiply(r: Expr, v: Expr, sums: Buffer = sums, i: Expr = i, j: Expr = j, k: Expr = k) -> Statement:
                return loops.store(sums[r, v], s.fma(left(i + r, k), right(k, j + v), sums[r, v]))

            def ends(
                then: Callable[[Expr, Expr, Expr], Statement | Sequence[Statement]],
                sums: Buffer = sums,
                i: Expr = i,
                j: Expr = j,
            ) -> Callable[[Expr, Expr], Statement | Sequence[Statement]]:
                return lambda r, v: then(i + r, j + v, sums[r, v])

            last = [lanes("s", ends(finish))]
            if unless is not None:
                done = s.cast(unless[0], s.INT64)
                last = [
                    loops.loop(f"{name}y", done, last),
                    loops.loop(f"{name}n", 1 - done, [lanes("w", ends(unless[1]))]),
                ]
            inside = [
                Local(sums),
                lanes("z", first),
                loops.loop(f"{name}k", depth, [*(each(k) if each else ()), lanes("m", multiply)]),
                *last,
            ]
            body.append(loops.loop(f"{name}i", row_tiles, [loops.loop(f"{name}j", column_tiles, inside)]))
    return body
