"""Large matrix products of our own: blocks that fit the caches, register tiles inside, anything elementwise at the end.

    pack the right operand into panels of 64 columns
    for a block of rows, for a block of columns (in parallel):
        for a block of the depth:                  the right operand's block stays in the second cache
            for a few rows:                        theirs of the left operand stay in the first
                for a panel:                       sums += left @ right, in registers
        finish(row, column, sum)

A tile runs at 99 % of the multiply-adds that the processor can do. What is left is waiting for memory; a library's product
waits as well, and does not know what comes after it: here a bias, an activation or an optimiser's step is done to the
tile before it is written.

The order of a sum depends on the depth alone: blocks of rows and columns never change a result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...ops import scalar as s
from ...ops.scalar import Expr
from .. import loops
from ..layout import Layout, Storage
from ..loops import SQUARE, Buffer, Kernel, Let, Local, Loop, Statement
from .tiles import COLUMNS, ROWS, parts, product
from .turning import plain_copy, turned_copy

SECOND_CACHE = 512 * 1024
"""Bytes of the right operand at a time: half of the second cache of processors of today."""
DEEPEST = 640
"""Depth of a block, at most."""
HIGHEST, FEWEST = 48, 8
"""Rows of a block, at most; tasks that a product is cut into, at least, so that threads end at about the same time."""

Place = tuple[tuple[int, ...], int]
"""Strides and offset, in elements."""

Finish = Callable[[Expr, Expr, Expr, str], Sequence[Statement]]
"""`finish(row, column, value, tag)`: what is done with an element. Names in it are made unique by the tag."""
Near = Callable[[Expr, Expr], Sequence[Statement]]
"""`near(row, column)`: prefetches of what `finish` will touch there."""


@dataclass(frozen=True)
class Blocks:
    """How many rows, columns and how much depth is worked on at a time."""

    rows: int
    columns: int
    depth: int


def blocks(left: Layout, columns: int) -> Blocks:
    """Blocks for a product with `left`: from sizes alone, so that results never depend on the machine's load."""
    rows, depth = left.shape
    deepest = DEEPEST if left.strides[1] == 1 else loops.MAX_LOCAL_BYTES // (4 * HIGHEST * SQUARE) * SQUARE
    pieces = -(-depth // deepest)
    deep = depth if pieces == 1 else _up(-(-depth // pieces), SQUARE)
    room = SECOND_CACHE // (4 * deep)
    if pieces > 1:  # sums of a block wait in local memory
        room = min(room, loops.MAX_LOCAL_BYTES // (4 * HIGHEST))
    wide, room = columns, max(room // COLUMNS, 1) * COLUMNS
    if columns > room:
        wide = _up(-(-columns // -(-columns // room)), COLUMNS)
    least = max(-(-rows // HIGHEST), min(-(-FEWEST // -(-columns // wide)), -(-rows // SQUARE)))
    unit = 1 if left.strides[1] == 1 else SQUARE
    even = next((n for n in range(least, 3 * least // 2 + 1) if rows % (n * unit) == 0), None)  # no rest is less code
    return Blocks(_up(-(-rows // least), max(unit, 2)) if even is None else rows // even, wide, deep)


def _up(x: int, unit: int) -> int:
    return -(-x // unit) * unit


def pack_panels(right: Layout, packed: Layout) -> Kernel:
    """(K, N) as panels of 64 columns, fewer in the last one: packed[panel, k, column]. Either axis may be the dense one."""
    return _packing(right.shape, right.dtype, (right.strides, right.offset), packed.offset)


@functools.lru_cache(maxsize=1024)
def _packing(shape: tuple[int, int], dtype: np.dtype, right: Place, offset: int) -> Kernel:
    w, p = Buffer.of("w", dtype, (1 << 40,)), Buffer.of("p", dtype, (1 << 40,))
    layout = Layout(Storage("arena", 0), dtype, shape, *right)
    made = panels_of("", (w, layout), loops.as_index(0), shape[0], p, loops.as_index(offset))
    return Kernel("pack_panels", (w, p), (), tuple([replace(loop, parallel=True) for loop in made]))


def panels_of(tag: str, right: tuple[Buffer, Layout], k0: Expr, depth: int, packed: Buffer, at: Expr) -> list[Loop]:
    """Loops that pack `depth` rows of the right operand, from row `k0` on, to the place `at`."""
    w, layout = right
    down, along = layout.strides
    made: list[Loop] = []
    for number, (first, count, columns) in enumerate(parts(layout.shape[1], COLUMNS)):
        name = f"{tag}p{number}"
        panel = s.index(name) * columns + first
        start = Let(f"{name}to", panel * depth + at)
        origin = Let(f"{name}of", k0 * down + panel * along + layout.offset)
        to = lambda k, c, start=start, columns=columns: packed[start.var + k * columns + c]
        of = lambda k, c, origin=origin: w[origin.var + k * down + c * along]
        if down == 1 and along != 1:
            copy = turned_copy(name, (depth, columns), (to, columns), (of, along))
        else:
            copy = plain_copy(name, (0, depth), (0, columns), to, of)
        made.append(loops.loop(name, count, [start, origin, *copy]))
    return made


def product_kernel(left: Layout, right: Layout, out: Layout) -> Kernel:
    """`out = left @ right`. Buffers: left, right, out. `right` is in panels where its layout has no strides; rows of `out` are
    dense."""
    places = [(x.strides, x.offset) for x in (left, right, out)]
    return _kernel((*left.shape, right.shape[1]), *places)


@functools.lru_cache(maxsize=1024)
def _kernel(sizes: tuple[int, int, int], left: Place, right: Place, out: Place) -> Kernel:
    m, k, n = sizes
    a, b, c = (Buffer.of(name, s.FLOAT32, (1 << 40,)) for name in "abc")
    storage = Storage("arena", 0)
    a_layout = Layout(storage, s.FLOAT32, (m, k), *left)
    b_layout = Layout(storage, s.FLOAT32, (k, n), *right)
    at = lambda i, j: c[out[1] + i * out[0][0] + j]
    finish = lambda i, j, value, tag: [loops.store(at(i, j), value)]
    near = lambda i, j: [loops.prefetch(at(i, j), write=True)]
    body = blocked_product((a, a_layout), (b, b_layout), blocks(a_layout, n), finish, near)
    return Kernel("product", (a, b, c), (), tuple(body))


def blocked_product(
    left: tuple[Buffer, Layout], right: tuple[Buffer, Layout], size: Blocks, finish: Finish, near: Near | None = None
) -> list[Loop]:
    """Loops that compute every element of `left @ right` and hand it to `finish`.

    Args:
        left: (M, K), strided anyhow; read as it lies if its rows are dense, else a few rows are gathered at a time.
        right: (K, N) in panels, see `pack_panels`; the layout has this shape.
        finish: the statements for one element. They must only touch memory that belongs to that element.
    """
    (height, depth), width = left[1].shape, right[1].shape[1]
    made: list[Loop] = []
    for row0, row_blocks, rows in parts(height, size.rows):
        for column0, column_blocks, columns in parts(width, size.columns):
            tag = f"g{len(made)}"
            task = s.index(tag)
            i0 = Let(f"{tag}i", s.remainder(task, row_blocks) * rows + row0)
            j0 = Let(f"{tag}j", s.floor_divide(task, row_blocks) * columns + column0)
            block = _Block(tag, left, right, i0.var, j0.var, rows, columns, size.depth, finish, near)
            body = [i0, j0, *block.statements(depth)]
            made.append(loops.loop(tag, row_blocks * column_blocks, body, parallel=True))
    return made


def dense_rows(tag: str, source: tuple[Buffer, Expr, int, int], size: tuple[int, int], target: Buffer) -> list[Statement]:
    """Statements that copy a matrix (buffer, place, strides) of this size to a local buffer with dense rows."""
    a, at, down, along = source
    to = lambda r, k: target[r, k]
    of = lambda r, k: a[at + r * down + k * along]
    if down != 1:
        return plain_copy(tag, (0, size[0]), (0, size[1]), to, of)
    return turned_copy(tag, size, (to, loops.constant(target.strides[0]) or 0), (of, along))


class _Block:
    """One task: a block of rows by a block of columns, over the whole depth."""

    def __init__(
        self, tag: str, left: tuple[Buffer, Layout], right: tuple[Buffer, Layout], i0: Expr, j0: Expr, rows: int,
        columns: int, deepest: int, finish: Finish, near: Near | None,
    ) -> None:  # fmt: skip
        self.tag, self.rows, self.columns, self.deepest = tag, rows, columns, deepest
        (self.a, self.a_layout), (self.b, self.b_layout) = left, right
        self.i0, self.j0, self.finish, self.near = i0, j0, finish, near
        self.sums = Buffer.of(f"{tag}sums", s.FLOAT32, (rows, columns))
        self.turned = Buffer.of(f"{tag}turned", s.FLOAT32, (rows, _up(deepest, SQUARE)))

    def statements(self, depth: int) -> list[Statement]:
        """In one piece tiles are finished in registers; else sums wait in local memory until the depth is walked through."""
        made: list[Statement] = [] if self.a_layout.strides[1] == 1 else [Local(self.turned)]
        if self.deepest >= depth:
            return [*made, *self._piece(f"{self.tag}a", loops.as_index(0), depth, True)]
        whole, rest = divmod(depth, self.deepest)
        r, c = s.index(f"{self.tag}zr"), s.index(f"{self.tag}zc")
        made += [Local(self.sums), self._rows("z", [], [loops.store(self.sums[r, c], s.const(0, s.FLOAT32))])]
        at = Let(f"{self.tag}at", s.index(f"{self.tag}d") * self.deepest)
        made.append(loops.loop(f"{self.tag}d", whole, [at, *self._piece(f"{self.tag}a", at.var, self.deepest, False)]))
        if rest:
            made += self._piece(f"{self.tag}b", loops.as_index(depth - rest), rest, False)
        r, c = s.index(f"{self.tag}fr"), s.index(f"{self.tag}fc")
        use = self.finish(self.i0 + r, self.j0 + c, self.sums[r, c], self.tag)
        ahead = [p for j in range(0, self.columns, SQUARE) for p in self._soon(self.i0 + r + 1, self.j0 + j)]
        return [*made, self._rows("f", ahead, use)]

    def _rows(self, part: str, before: Sequence[Statement], body: Sequence[Statement]) -> Loop:
        """Over the elements of the block."""
        across = loops.loop(f"{self.tag}{part}c", self.columns, body, "vector")
        return loops.loop(f"{self.tag}{part}r", self.rows, [*before, across])

    def _soon(self, i: Expr, j: Expr) -> Sequence[Statement]:
        return () if self.near is None else self.near(i, j)

    def _piece(self, tag: str, k0: Expr, depth: int, only: bool) -> list[Statement]:
        """A piece of the depth; if it is the only one, tiles are finished, else added to the sums."""
        made: list[Statement] = self._turn(tag, k0, depth)
        for row0, tiles, rows in parts(self.rows, ROWS):
            name = f"{tag}{len(made)}"
            i = Let(f"{name}i", s.index(f"{name}t") * rows + row0)
            before, of_left = self._left(name, i.var, k0)
            panels: list[Statement] = []
            for column0, count, columns in parts(self.columns, COLUMNS):
                panel = Let(f"{name}j{column0}", s.index(f"{name}p{column0}") * columns + column0)
                inner = self._tile(f"{name}w{column0}", of_left, i.var, panel.var, k0, depth, rows, columns, only)
                panels.append(loops.loop(f"{name}p{column0}", count, [panel, *inner]))
            made.append(loops.loop(f"{name}t", tiles, [i, *before, *panels]))
        return made

    def _left(self, name: str, i: Expr, k0: Expr) -> tuple[list[Statement], Callable[[Expr, Expr], Expr]]:
        """How a tile reads its rows of the left operand, and what must be said before it does."""
        down, along = self.a_layout.strides
        if along != 1:
            return [], lambda r, k: self.turned[i + r, k]
        first = Let(f"{name}a", (self.i0 + i) * down + k0 + self.a_layout.offset)
        return [first], lambda r, k: self.a[first.var + r * down + k]

    def _turn(self, tag: str, k0: Expr, depth: int) -> list[Statement]:
        """The block of a left operand whose rows are not dense, as dense rows in local memory."""
        down, along = self.a_layout.strides
        if along == 1:
            return []
        first = Let(f"{tag}a", self.i0 * down + k0 * along + self.a_layout.offset)
        return [first, *dense_rows(tag, (self.a, first.var, down, along), (self.rows, depth), self.turned)]

    def _tile(
        self, name: str, of_left: Callable[[Expr, Expr], Expr], i: Expr, j: Expr, k0: Expr, depth: int, rows: int,
        columns: int, only: bool,
    ) -> list[Statement]:  # fmt: skip
        down, along = self.b_layout.strides
        start = Let(f"{name}s", k0 * down + self.j0 + j + self.b_layout.offset)
        if along != 1:  # in panels
            start = Let(f"{name}s", (self.j0 + j) * self.b_layout.shape[0] + k0 * columns + self.b_layout.offset)
            down = columns
        of_right = lambda k, c: self.b[start.var + k * down + c]
        size = (rows, columns, depth)
        if not only:
            wait = lambda r, c: self.sums[i + r, j + c]
            keep = lambda r, c, x: loops.store(wait(r, c), x)
            return [start, *product(name, size, of_left, of_right, keep, wait)]
        soon = [p for r in range(rows) for c in range(0, columns, SQUARE)
                for p in self._soon(self.i0 + i + r, self.j0 + j + c)]  # fmt: skip
        finish = lambda r, c, x: self.finish(self.i0 + i + r, self.j0 + j + c, x, name)
        return [start, *soon, *product(name, size, of_left, of_right, finish, each=self._next_rows(i, j, depth, rows))]

    def _next_rows(self, i: Expr, j: Expr, depth: int, rows: int) -> Callable[[Expr], Sequence[Statement]] | None:
        """Ask for the rows of the left operand that the next tiles need, a little at every step of this one's depth: a
        burst of prefetches would wait for memory itself."""
        down, along = self.a_layout.strides
        if along != 1 or down != depth:
            return None
        share = -(-rows * COLUMNS // self.columns)  # numbers per step, of each panel
        start = (self.i0 + i + rows) * down + s.floor_divide(j, COLUMNS) * (depth * share) + self.a_layout.offset
        return lambda k: [loops.prefetch(self.a[start + k * share])]
