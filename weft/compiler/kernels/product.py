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

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...ops import scalar as s
from ...ops.scalar import Expr
from .. import loops
from ..layout import Layout
from ..loops import SQUARE, Buffer, Kernel, Let, Local, Loop, Statement
from .tiles import COLUMNS, ROWS, parts, product

SECOND_CACHE = 512 * 1024
"""Bytes of the right operand at a time: half of the second cache of processors of today."""
DEEPEST = 640
"""Depth of a block, at most."""
HIGHEST, FEWEST = 48, 8
"""Rows of a block, at most; tasks that a product is cut into, at least, so that threads end at about the same time."""

AHEAD = 6
"""Squares that are asked for before they are turned."""

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
    depth, width = right.shape
    w, p = Buffer.of("w", right.dtype, (1 << 40,)), Buffer.of("p", right.dtype, (1 << 40,))
    body: list[Statement] = []
    for number, (first, count, columns) in enumerate(parts(width, COLUMNS)):
        panel = s.index(f"p{number}")
        start = Let(f"start{number}", (panel * columns + first) * depth + packed.offset)
        origin = Let(f"origin{number}", (panel * columns + first) * right.strides[1] + right.offset)

        def move(tag: str, k0: int, ks: int, c0: int, cs: int, start: Let = start, origin: Let = origin,
                 columns: int = columns) -> list[Statement]:  # fmt: skip
            """One by one: a part of the panel of `ks` rows and `cs` columns."""
            k, c = s.index(f"{tag}k") + k0, s.index(f"{tag}c") + c0
            store = loops.store(p[start.var + k * columns + c], w[origin.var + k * right.strides[0] + c * right.strides[1]])
            return [loops.loop(f"{tag}k", ks, [loops.loop(f"{tag}c", cs, [store], "vector")])] if ks and cs else []

        if right.strides[0] != 1 or right.strides[1] == 1:
            inner = move(f"m{number}", 0, depth, 0, columns)
        else:
            whole_k, whole_c = depth // SQUARE, columns // SQUARE
            block = s.index(f"b{number}")
            ahead = s.index(f"a{number}")
            squares: list[Statement] = [  # rows lie far apart: ask for what comes a few squares later
                loops.loop(f"a{number}", columns, [loops.prefetch(
                    w[origin.var + (block + AHEAD) * SQUARE + ahead * right.strides[1]])]),
            ]  # fmt: skip
            squares += [
                loops.transpose(
                    p[start.var + block * (SQUARE * columns) + c * SQUARE], columns,
                    w[origin.var + block * SQUARE + c * SQUARE * right.strides[1]], right.strides[1],
                )
                for c in range(whole_c)
            ]  # fmt: skip
            inner = [loops.loop(f"b{number}", whole_k, squares)] if whole_k and whole_c else []
            done_k, done_c = whole_k * SQUARE, whole_c * SQUARE
            inner += move(f"c{number}", 0, done_k, done_c, columns - done_c)
            inner += move(f"k{number}", done_k, depth - done_k, 0, columns)
        body.append(loops.loop(f"p{number}", count, [start, origin, *inner], parallel=True))
    return Kernel("pack_panels", (w, p), (), tuple(body))


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
        step = _up(self.deepest, SQUARE)

        def move(name: str, r0: int, rs: int, d0: int, ds: int) -> list[Statement]:
            """One by one."""
            r, k = s.index(f"{name}r") + r0, s.index(f"{name}k") + d0
            store = loops.store(self.turned[r, k], self.a[first.var + r * down + k * along])
            return [loops.loop(f"{name}r", rs, [loops.loop(f"{name}k", ds, [store], "vector")])] if rs and ds else []

        if down != 1:
            return [first, *move(f"{tag}m", 0, self.rows, 0, depth)]
        whole_r, whole_k = self.rows // SQUARE, depth // SQUARE
        block, ahead = s.index(f"{tag}q"), s.index(f"{tag}p")
        squares: list[Statement] = [
            loops.loop(f"{tag}p", SQUARE, [loops.prefetch(self.a[first.var + ((block + 2) * SQUARE + ahead) * along + r])
                                           for r in range(0, self.rows, SQUARE)]),
        ]  # fmt: skip
        squares += [
            loops.transpose(
                self.turned[r * SQUARE, block * SQUARE], step,
                self.a[first.var + block * (SQUARE * along) + r * SQUARE], along,
            )
            for r in range(whole_r)
        ]  # fmt: skip
        done_r, done_k = whole_r * SQUARE, whole_k * SQUARE
        made: list[Statement] = [loops.loop(f"{tag}q", whole_k, squares)] if whole_k and whole_r else []
        return [first, *made, *move(f"{tag}x", 0, done_r, done_k, depth - done_k),
                *move(f"{tag}y", done_r, self.rows - done_r, 0, depth)]  # fmt: skip

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
            return [start, *product(name, size, of_left, of_right, lambda r, c, x: loops.store(wait(r, c), x), wait)]
        soon = [p for r in range(rows) for c in range(0, columns, SQUARE)
                for p in self._soon(self.i0 + i + r, self.j0 + j + c)]  # fmt: skip
        finish = lambda r, c, x: self.finish(self.i0 + i + r, self.j0 + j + c, x, name)
        return [start, *soon, *product(name, size, of_left, of_right, finish)]
