"""Matmul for matrices so small that a library call would cost more than the multiplication.

A library call costs microseconds. Here the result is computed in register tiles of a few rows by a few vectors: local
buffers of constant shape, which unrolled and vector loops keep in registers, so that the loop over the depth holds nothing
but multiply-adds. Shapes and strides are constants; half precision is computed in float32.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ....ops.core import scalar as s
from ....ops.core.scalar import Expr
from ...program.layout import Layout
from ...target import Target
from .. import ir as loops
from ..ir import Buffer, Kernel, Let, Local, Statement
from .tiles import open_parts, parts, tile_columns

TILE_ROWS = 4
MAX_MULTIPLY_ADDS = 96 * 96 * 96  # up to which this beats a library call
THREAD_MULTIPLY_ADDS = 1 << 17  # worth a thread

Place = tuple[tuple[int, ...], int]
"""Strides and offset, in elements."""


def small_matmul(a: Layout, b: Layout, c: Layout, target: Target, any_size: bool = False) -> Kernel:
    """`c = a @ b` for float matrices; `b` and `c` have unit stride along their last axis.

    With `any_size`, kernels for different numbers of rows and (whole vectors of) columns differ in numbers alone.
    """
    (m, k), n = a.shape, b.shape[1]
    if min(m, k, n) < 1 or s.kind(c.dtype) != "f":
        raise ValueError(f"small_matmul: expected float matrices with elements. Got {c.dtype} {(m, k, n)}.")
    any_size = any_size and n % target.lanes == 0
    return _kernel((m, k, n), c.dtype, *[(x.strides, x.offset) for x in (a, b, c)], target, any_size)


@functools.lru_cache(loops.MAX_KEPT)
def _kernel(
    sizes: tuple[int, int, int], dtype: np.dtype, a: Place, b: Place, c: Place, target: Target, any_size: bool
) -> Kernel:
    m, k, n = sizes
    buffers = [Buffer.of(f"b{i}", dtype, (1 << 40,)) for i in range(3)]
    body: list[Statement] = []
    if any_size:
        for row, rows, mr in open_parts(m, TILE_ROWS):
            tag = f"r{mr}_"
            top = Let(tag + "top", loops.as_index(row))  # a name, so that zero is not folded away
            across: list[Statement] = []
            for column, columns, nr in open_parts(n, tile_columns(target), target.lanes):
                side = Let(f"{tag}c{nr}_side", loops.as_index(column))
                at = s.index(tag + "i") * mr + top.var, s.index(f"{tag}c{nr}_j") * nr + side.var
                inner = _tile(f"{tag}c{nr}_", buffers, (a, b, c), k, at, (mr, nr))
                across += [side, loops.loop(f"{tag}c{nr}_j", columns, inner)]
            grain = THREAD_MULTIPLY_ADDS // (mr * n * k) + 1
            body += [top, loops.loop(tag + "i", rows, across, parallel=True, grain=grain)]
        return Kernel("matmul", tuple(buffers), (), tuple(body))
    for row, rows, row_tile in parts(m, TILE_ROWS):
        for column, columns, column_tile in parts(n, tile_columns(target)):
            body += _tiles(len(body), buffers, (a, b, c), k, (row, rows, row_tile), (column, columns, column_tile))
    return Kernel("matmul", tuple(buffers), (), tuple(body))


def _tiles(
    number: int, buffers: list[Buffer], places: tuple[Place, Place, Place], k: int, rows: Any, columns: Any
) -> list[Statement]:
    """Loops over equal tiles."""
    row0, row_tiles, mr = rows
    column0, column_tiles, nr = columns
    tag = f"p{number}_"
    at = s.index(tag + "i") * mr + row0, s.index(tag + "j") * nr + column0
    inner = _tile(tag, buffers, places, k, at, (mr, nr))
    (first, count), (second, each) = sorted([("i", row_tiles), ("j", column_tiles)], key=lambda axis: -axis[1])
    work = each * mr * nr * k
    shared = count * work >= 2 * THREAD_MULTIPLY_ADDS
    within = loops.loop(tag + second, each, inner)
    return [loops.loop(tag + first, count, [within], parallel=shared, grain=THREAD_MULTIPLY_ADDS // work + 1)]


def _tile(
    tag: str,
    buffers: list[Buffer],
    places: tuple[Place, Place, Place],
    k: int,
    at: tuple[Expr, Expr],
    size: tuple[int, int],
) -> list[Statement]:
    """The tile of this size at this row and column."""
    (a, a_offset), (b, b_offset), (c, c_offset) = places
    (i, j), (mr, nr) = at, size
    dtype = s.FLOAT32 if buffers[2].dtype.itemsize == 2 else buffers[2].dtype
    tile = Buffer.of(tag + "tile", dtype, (mr, nr))

    def lanes(name: str, body: Any) -> Statement:
        """Loops over the elements of the tile: rows unrolled, columns in vectors."""
        r, v = s.index(tag + name + "r"), s.index(tag + name + "v")
        return loops.loop(tag + name + "r", mr, [loops.loop(tag + name + "v", nr, [body(r, v)], "vector")], "unroll")

    depth = s.index(tag + "k")

    def multiply(r: Any, v: Any) -> Statement:
        left = s.cast(buffers[0][(i + r) * a[0] + depth * a[1] + a_offset], dtype)
        right = s.cast(buffers[1][depth * b[0] + (j + v) + b_offset], dtype)
        return loops.store(tile[r, v], s.fma(left, right, tile[r, v]))

    return [
        Local(tile),
        lanes("z", lambda r, v: loops.store(tile[r, v], s.const(0, dtype))),
        loops.loop(tag + "k", k, [lanes("m", multiply)]),
        lanes("s", lambda r, v: loops.store(buffers[2][(i + r) * c[0] + (j + v) + c_offset], tile[r, v])),
    ]


def suits(a: Layout, b: Layout, c: Layout) -> bool:
    """Whether the product is small enough."""
    return (
        len(a.shape) == len(b.shape) == len(c.shape) == 2
        and s.kind(a.dtype) == "f"
        and a.shape[0] * a.shape[1] * b.shape[1] <= MAX_MULTIPLY_ADDS
    )
