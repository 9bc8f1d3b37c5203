"""Large matrix products of our own: blocks that fit the caches, register tiles inside, anything elementwise at the end.

    for some rows, for a block of columns (in parallel):
        pack these columns of the right operand into panels
        for a block of rows:
            for a piece of the depth:                  the right operand's piece stays in the second cache
                for a few rows:                        theirs of the left operand stay in the first
                    for a panel:                       sums += left @ right, in registers
            finish(row, column, sum)                   in registers, too, after the last piece

A tile runs at 99 % of the multiply-adds that the processor can do. What is left is waiting for memory: what a tile will
need is asked for while the one before it is computed, a line at every step of the depth. A library's product does not know
what comes after it: here a bias, an activation or an optimiser's step is done to the tile before it is written.

The order of a sum depends on the depth alone: blocks of rows and columns never change a result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...ops import scalar as s
from ...ops.scalar import Expr
from .. import loops
from ..layout import Layout, Storage
from ..loops import SQUARE, Buffer, Kernel, Let, Local, Loop, Statement
from .few_rows import steps_on
from .panels import Operand, Place, panels_of, side_by_side
from .tiles import COLUMNS, ROWS, parts, product, row_parts

SECOND_CACHE = 512 * 1024
"""Bytes of the right operand at a time: half of the second cache of processors of today."""
DEEPEST = 640
"""Depth of a piece, at most."""
HIGHEST, CHUNK = 48, 2048
"""Rows of a block whose left operand is copied, at most; rows of a task, at most."""
WIDEST = 256
"""Columns of a task that packs them itself, at most."""
FEWEST, ENOUGH, LOWEST = 8, 16, 256
"""Tasks that a product is cut into, so that threads end at about the same time: at least `FEWEST`, as long as each keeps
`LOWEST` rows; and `ENOUGH` are not worth narrower blocks."""

Finish = Callable[[Expr, Expr, Expr, str], Sequence[Statement]]
"""`finish(row, column, value, tag)`: what is done with an element. Names in it are made unique by the tag."""
Near = Callable[[Expr, Expr], Sequence[Statement]]
"""`near(row, column)`: prefetches of what `finish` will touch there."""
Asking = Callable[[Expr], Sequence[Statement]]
"""Prefetches, given the number of a step of the depth."""


@dataclass(frozen=True)
class Blocks:
    """How many rows, columns and how much depth is worked on at a time. A task is one block, or, with a `chunk`, so many
    rows in several blocks: it then packs its columns of the right operand itself."""

    rows: int
    columns: int
    depth: int
    chunk: int = 0

    def copies(self, height: int) -> int:
        """How many copies of the packed right operand there are, for a left one of this height."""
        return -(-height // self.chunk) if self.chunk else 1


def blocks(left: Layout, columns: int) -> Blocks:
    """Blocks for a product with `left`: from sizes alone, so that results never depend on the machine's load."""
    rows, depth = left.shape
    if left.strides[1] != 1:
        return _copied_blocks(rows, columns, depth)
    deep = _piece(depth, DEEPEST)
    most = min(max(SECOND_CACHE // (4 * deep) // COLUMNS, 1) * COLUMNS, WIDEST)
    chunks = max(-(-rows // CHUNK), min(-(-FEWEST // -(-columns // COLUMNS)), rows // LOWEST))
    widths = [w for w in range(most, 0, -COLUMNS) if chunks * -(-columns // w) >= ENOUGH] or [COLUMNS]
    wide = min(next((w for w in widths if columns % w == 0), widths[0]), columns)  # no rest is less code
    chunk = -(-rows // chunks)
    high = chunk if deep == depth else loops.MAX_LOCAL_BYTES // (4 * wide)  # sums of a block wait in local memory
    few = -(-chunk // high)
    even = next((n for n in range(few, 2 * few) if chunk % n == 0), None)
    return Blocks(min(high, chunk) if even is None else chunk // even, wide, deep, chunk)


def _copied_blocks(rows: int, columns: int, depth: int) -> Blocks:
    """Blocks for a left operand that is copied a block at a time: wide ones, and the right operand is packed before."""
    deep = _piece(depth, loops.MAX_LOCAL_BYTES // (4 * HIGHEST * SQUARE) * SQUARE)
    room = SECOND_CACHE // (4 * deep)
    if deep < depth:
        room = min(room, loops.MAX_LOCAL_BYTES // (4 * HIGHEST))
    wide, room = columns, max(room // COLUMNS, 1) * COLUMNS
    if columns > room:
        wide = _up(-(-columns // -(-columns // room)), COLUMNS)
    least = max(-(-rows // HIGHEST), min(-(-FEWEST // -(-columns // wide)), -(-rows // SQUARE)))
    even = next((n for n in range(least, 3 * least // 2 + 1) if rows % (n * SQUARE) == 0), None)
    return Blocks(_up(-(-rows // least), SQUARE) if even is None else rows // even, wide, deep)


def _piece(depth: int, most: int) -> int:
    """The depth of a piece, none deeper than `most`."""
    count = -(-depth // most)
    return depth if count == 1 else _up(-(-depth // count), SQUARE)


def _up(x: int, unit: int) -> int:
    return -(-x // unit) * unit


def product_kernel(
    left: Layout, right: Layout, out: Layout, then: tuple[str, ...] = (), operands: Sequence[Layout] = ()
) -> tuple[Kernel, int]:
    """`out = then(left @ right)`, and how many numbers of scratch memory it needs. Buffers: left, right, scratch, out,
    operands.

    `then` are steps as `few_rows` takes them; each of `operands` has one number per column. Rows of `out` are dense.
    """
    places = [(x.strides, x.offset) for x in (left, right, out)]
    return _kernel((*left.shape, right.shape[1]), *places, then, tuple([(x.strides[-1], x.offset) for x in operands]))


@functools.lru_cache(maxsize=1024)
def _kernel(
    sizes: tuple[int, int, int], left: Place, right: Place, out: Place, then: tuple[str, ...],
    operands: tuple[tuple[int, int], ...],
) -> tuple[Kernel, int]:  # fmt: skip
    m, k, n = sizes
    names = ["a", "b", "room", "c", *[f"o{i}" for i in range(len(operands))]]
    a, b, room, c, *others = (Buffer.of(name, s.FLOAT32, (1 << 40,)) for name in names)
    storage = Storage("arena", 0)
    a_layout = Layout(storage, s.FLOAT32, (m, k), *left)
    b_layout = Layout(storage, s.FLOAT32, (k, n), *right)
    at = lambda i, j: c[out[1] + i * out[0][0] + j]

    def finish(i: Expr, j: Expr, value: Expr, tag: str) -> list[Statement]:
        columns = [x[j * along + offset] for x, (along, offset) in zip(others, operands, strict=True)]
        return [loops.store(at(i, j), steps_on(value, then, columns))]

    near = lambda i, j: [loops.prefetch(at(i, j), write=True)]
    size = blocks(a_layout, n)
    body = blocked_product((a, a_layout), (b, b_layout), room, size, finish, near)
    return Kernel("product", (a, b, room, c, *others), (), tuple(body)), size.copies(m) * k * n


def blocked_product(
    left: Operand, right: Operand, room: Buffer, size: Blocks, finish: Finish, near: Near | None = None
) -> list[Loop]:
    """Loops that compute every element of `left @ right` and hand it to `finish`.

    Args:
        left: (M, K), strided anyhow; read as it lies if its rows are dense, else copied a block at a time.
        right: (K, N), strided anyhow.
        room: where the right operand is packed to: memory for `size.copies(M)` times K·N numbers.
        finish: the statements for one element. They must only touch memory that belongs to that element.
        near: prefetches of the line of an element that `finish` touches.
    """
    (height, depth), width = left[1].shape, right[1].shape[1]
    zero = loops.as_index(0)
    made = [] if size.chunk else side_by_side(panels_of("q", right, zero, depth, room, zero), right[1])
    chunk = size.chunk or size.rows
    for row0, row_tasks, task_rows in parts(height, chunk):
        for column0, column_tasks, columns in parts(width, size.columns):
            tag = f"g{len(made)}"
            task = s.index(tag)
            number = Let(f"{tag}n", s.remainder(task, row_tasks) + row0 // chunk)
            j0 = Let(f"{tag}j", s.floor_divide(task, row_tasks) * columns + column0)
            start = Let(f"{tag}s", number.var * (depth * width if size.chunk else 0))
            body: list[Statement] = [number, j0, start]
            if size.chunk:
                at = Let(f"{tag}to", j0.var * depth + start.var)
                body += [at, *panels_of(f"{tag}q", right, zero, depth, room, at.var, j0.var, columns)]
            for within, count, rows in parts(task_rows, size.rows):
                name = f"{tag}b{within}"
                i0 = Let(f"{name}i", number.var * chunk + s.index(name) * rows + within)
                block = _Block(name, left, (room, start.var), i0.var, j0.var, rows, columns, size.depth, finish, near)
                body.append(loops.loop(name, count, [i0, *block.statements()]))
            made.append(loops.loop(tag, row_tasks * column_tasks, body, parallel=True))
    return made


def row_tiles(rows: int) -> list[tuple[int, int, int]]:
    """(start, number of tiles, rows of each): all alike if that leaves no rest, which is less code; else of six rows, and
    none of fewer than three if there are enough: a low tile would wait for the right operand instead of multiplying."""
    alike = row_parts(rows, ROWS)
    if len(alike) == 1:
        return alike
    ends = {1: (4, 3), 2: (4, 4), 3: (5, 4)}.get(rows % ROWS, (rows % ROWS,))
    at = rows - sum(ends)
    made = [(0, at // ROWS, ROWS)] if at else []
    for size in sorted(set(ends), reverse=True):
        made.append((at, ends.count(size), size))
        at += ends.count(size) * size
    return made


def copy_by_tiles(
    tag: str, of: Callable[[Expr, Expr], Expr], size: tuple[int, int | Expr], copy: Buffer, deepest: int
) -> list[Statement]:
    """Statements that copy rows of a left operand so that what a tile needs at one step of the depth lies side by side: the
    tile of `rows` rows from row i on starts at `i * deepest`, its number (r, k) at `k * rows + r`."""
    made: list[Statement] = []
    for row0, tiles, rows in row_tiles(size[0]):
        k, t, r = (s.index(f"{tag}c{n}{row0}") for n in "ktr")
        store = loops.store(copy[(t * rows + row0) * deepest + k * rows + r], of(t * rows + row0 + r, k))
        across = loops.loop(f"{tag}cr{row0}", rows, [store], "vector")
        made.append(loops.loop(f"{tag}ck{row0}", size[1], [loops.loop(f"{tag}ct{row0}", tiles, [across], "unroll")]))
    return made


class _Block:
    """A block of rows by a block of columns, over the whole depth."""

    def __init__(
        self, tag: str, left: Operand, packed: tuple[Buffer, Expr], i0: Expr, j0: Expr, rows: int, columns: int,
        deepest: int, finish: Finish, near: Near | None,
    ) -> None:  # fmt: skip
        self.tag, self.rows, self.columns, self.deepest = tag, rows, columns, deepest
        (self.a, self.a_layout), (self.b, self.b_start) = left, packed
        self.depth = self.a_layout.shape[1]
        self.i0, self.j0, self.finish, self.near = i0, j0, finish, near
        self.sums = Buffer.of(f"{tag}sums", s.FLOAT32, (rows, columns))
        self.copied = self.a_layout.strides[1] != 1
        self.copy = Buffer.of(f"{tag}copy", s.FLOAT32, (rows * deepest,))

    def statements(self) -> list[Statement]:
        """Sums wait in local memory until the last piece of the depth; its tiles are finished in registers."""
        made: list[Statement] = [Local(self.copy)] if self.copied else []
        if self.deepest >= self.depth:
            return [*made, *self._piece(self.tag, loops.as_index(0), self.depth)]
        r, c = s.index(f"{self.tag}zr"), s.index(f"{self.tag}zc")
        clear = loops.store(self.sums[r, c], s.const(0, s.FLOAT32))
        at = Let(f"{self.tag}at", s.index(f"{self.tag}d") * self.deepest)
        deep = Let(f"{self.tag}deep", s.minimum(loops.as_index(self.deepest), self.depth - at.var))
        return [
            *made,
            Local(self.sums),
            loops.loop(f"{self.tag}zr", self.rows, [loops.loop(f"{self.tag}zc", self.columns, [clear], "vector")]),
            loops.loop(f"{self.tag}d", -(-self.depth // self.deepest), [at, deep, *self._piece(self.tag, at.var, deep.var)]),
        ]

    def _piece(self, tag: str, k0: Expr, depth: int | Expr) -> list[Statement]:
        """A piece of the depth, from `k0` on."""
        made: list[Statement] = self._copy(tag, k0, depth)
        for row0, tiles, rows in row_tiles(self.rows):
            name = f"{tag}{len(made)}"
            i = Let(f"{name}i", s.index(f"{name}t") * rows + row0)
            before, of_left = self._left(name, i.var, rows, k0)
            panels: list[Statement] = []
            for column0, count, columns in parts(self.columns, COLUMNS):
                panel = Let(f"{name}j{column0}", s.index(f"{name}p{column0}") * columns + column0)
                inner = self._tile(f"{name}w{column0}", of_left, i.var, panel.var, k0, (rows, columns, depth))
                panels.append(loops.loop(f"{name}p{column0}", count, [panel, *inner]))
            made.append(loops.loop(f"{name}t", tiles, [i, *before, *panels]))
        return made

    def _left(self, name: str, i: Expr, rows: int, k0: Expr) -> tuple[list[Statement], Callable[[Expr, Expr], Expr]]:
        """How a tile reads its rows of the left operand, and what must be said before it does."""
        if self.copied:
            start = Let(f"{name}a", i * self.deepest)
            return [start], lambda r, k: self.copy[start.var + k * rows + r]
        down = self.a_layout.strides[0]
        start = Let(f"{name}a", (self.i0 + i) * down + k0 + self.a_layout.offset)
        return [start], lambda r, k: self.a[start.var + r * down + k]

    def _copy(self, tag: str, k0: Expr, depth: int | Expr) -> list[Statement]:
        """The block of a left operand whose rows are not dense, in local memory."""
        if not self.copied:
            return []
        down, along = self.a_layout.strides
        start = Let(f"{tag}a", self.i0 * down + k0 * along + self.a_layout.offset)
        of = lambda r, k: self.a[start.var + r * down + k * along]
        return [start, *copy_by_tiles(tag, of, (self.rows, depth), self.copy, self.deepest)]

    def _tile(
        self, name: str, of_left: Callable[[Expr, Expr], Expr], i: Expr, j: Expr, k0: Expr, size: tuple[int, int, int | Expr]
    ) -> list[Statement]:
        rows, columns, depth = size
        start = Let(f"{name}s", (self.j0 + j) * self.depth + k0 * columns + self.b_start)
        of_right = lambda k, c: self.b[start.var + k * columns + c]
        finish = lambda r, c, x: self.finish(self.i0 + i + r, self.j0 + j + c, x, name)
        soon = (self._next_left(i, j, k0, depth, rows), self._end_of_tile(i, j, rows, columns))
        each = lambda k: [p for ask in soon for p in ask(k)]
        if self.deepest >= self.depth:
            return [start, *product(name, size, of_left, of_right, finish, each=each)]
        wait = lambda r, c: self.sums[i + r, j + c]
        keep = lambda r, c, x: [loops.store(wait(r, c), x)]
        ended = s.eq(k0 + depth, self.depth)
        return [start, *product(name, size, of_left, of_right, finish, wait, each=each, unless=(ended, keep))]

    def _end_of_tile(self, i: Expr, j: Expr, rows: int, columns: int) -> Asking:
        """Ask for what the end of a tile touches, its lines spread over the steps of its depth."""
        near = self.near
        if near is None:
            return lambda k: ()
        across = -(-columns // SQUARE)
        deep = min(self.depth, self.deepest)
        lines = rows * across
        every, many = 1 << max((deep // lines).bit_length() - 1, 0), -(-lines // deep)  # steps for a line, lines in a step

        def ask(k: Expr) -> list[Statement]:
            lines = [s.floor_divide(k, every) * many + n for n in range(many)]
            places = [(s.floor_divide(n, across), s.remainder(n, across) * SQUARE) for n in lines]
            return [p for r, c in places for p in near(self.i0 + i + r, self.j0 + j + c)]

        return ask

    def _next_left(self, i: Expr, j: Expr, k0: Expr, depth: int | Expr, rows: int) -> Asking:
        """Ask for the rows of the left operand that the next tile needs, or for the piece that is copied next: its lines lie
        far apart, which no processor foresees."""
        down, along = self.a_layout.strides
        offset = self.a_layout.offset
        if not self.copied:
            share = -(-rows * COLUMNS // self.columns)  # rows that are asked for beside each panel
            start = (self.i0 + i + rows + s.floor_divide(j, COLUMNS) * share) * down + k0 + offset
            return lambda k: [loops.prefetch(self.a[start + r * down + k]) for r in range(share)]
        if down != 1:
            return lambda k: ()
        line = s.remainder(s.floor_divide(i, rows), -(-self.rows // SQUARE)) * SQUARE
        ended = s.eq(k0 + depth, self.depth)
        start = s.where(ended, self.i0 + self.rows, self.i0 + (k0 + depth) * along) + line + offset
        return lambda k: [loops.prefetch(self.a[start + k * along])]
