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
from ...program.layout import Layout
from ...target import Target
from .. import ir as loops
from ..ir import Buffer, Kernel, Local, Statement
from .tiles import parts, tile_columns

TILE_ROWS = 4
MAX_MULTIPLY_ADDS = 96 * 96 * 96  # up to which this beats a library call
THREAD_MULTIPLY_ADDS = 1 << 17  # worth a thread

Place = tuple[tuple[int, ...], int]
"""Strides and offset, in elements."""


def small_matmul(a: Layout, b: Layout, c: Layout, target: Target) -> Kernel:
    """`c = a @ b` for float matrices; `b` and `c` have unit stride along their last axis."""
    (m, k), n = a.shape, b.shape[1]
    if min(m, k, n) < 1 or s.kind(c.dtype) != "f":
        raise ValueError(f"small_matmul: expected float matrices with elements. Got {c.dtype} {(m, k, n)}.")
    return _kernel((m, k, n), c.dtype, *[(x.strides, x.offset) for x in (a, b, c)], target)


@functools.lru_cache(loops.MAX_KEPT)
def _kernel(sizes: tuple[int, int, int], dtype: np.dtype, a: Place, b: Place, c: Place, target: Target) -> Kernel:
    m, k, n = sizes
    buffers = [Buffer.of(f"b{i}", dtype, (1 << 40,)) for i in range(3)]
    body: list[Statement] = []
    for row, rows, row_tile in parts(m, TILE_ROWS):
        for column, columns, column_tile in parts(n, tile_columns(target)):
            body += _tiles(len(body), buffers, (a, b, c), k, (row, rows, row_tile), (column, columns, column_tile))
    return Kernel("matmul", tuple(buffers), (), tuple(body))


def _tiles(
    number: int, buffers: list[Buffer], places: tuple[Place, Place, Place], k: int, rows: Any, columns: Any
) -> list[Statement]:
    """Loops over equal tiles."""
    (a, a_offset), (b, b_offset), (c, c_offset) = places
    row0, row_tiles, mr = rows
    column0, column_tiles, nr = columns
    tag = f"p{number}_"
    i = s.index(tag + "i") * mr + row0
    j = s.index(tag + "j") * nr + column0
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

    inner: list[Statement] = [
        Local(tile),
        lanes("z", lambda r, v: loops.store(tile[r, v], s.const(0, dtype))),
        loops.loop(tag + "k", k, [lanes("m", multiply)]),
        lanes("s", lambda r, v: loops.store(buffers[2][(i + r) * c[0] + (j + v) + c_offset], tile[r, v])),
    ]
    (first, count), (second, each) = sorted([("i", row_tiles), ("j", column_tiles)], key=lambda axis: -axis[1])
    work = each * mr * nr * k
    shared = count * work >= 2 * THREAD_MULTIPLY_ADDS
    within = loops.loop(tag + second, each, inner)
    return [loops.loop(tag + first, count, [within], parallel=shared, grain=THREAD_MULTIPLY_ADDS // work + 1)]


def suits(a: Layout, b: Layout, c: Layout) -> bool:
    """Whether the product is small enough."""
    return (
        len(a.shape) == len(b.shape) == len(c.shape) == 2
        and s.kind(a.dtype) == "f"
        and a.shape[0] * a.shape[1] * b.shape[1] <= MAX_MULTIPLY_ADDS
    )
