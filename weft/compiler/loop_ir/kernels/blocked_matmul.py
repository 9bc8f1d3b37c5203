"""Cache-blocked matmul with register tiles and an elementwise epilogue.

    for some rows, for a block of columns (in parallel):
        pack these columns of the right operand into panels    in a scratch buffer per thread, reused
        for a block of rows:
            for a slice of the depth:                  the right operand's slice stays in L2
                for a few rows:                        the left operand's rows stay in L1
                    for a panel:                       sums += left @ right, in registers
            finish(row, column, sum)                   the epilogue, in registers after the last slice

A tile reaches 99 % of peak multiply-add throughput. The rest is memory latency: each tile prefetches the next tile's
operands, one cache line per step of the depth. Unlike a library call, the matmul has an arbitrary epilogue: a bias, an
activation or an optimiser step is applied to the tile before it is stored.

The order of a sum depends on the depth alone: blocks of rows and columns never change a result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....ops.core import scalar as s
from ....ops.core.scalar import Expr
from ....ops.internal.epilogue import IDENTITY, Epilogue
from ...program.layout import Layout, Storage
from ...target import Target
from .. import ir as loops
from ..ir import SQUARE, Buffer, Kernel, Let, Local, Loop, Statement
from .epilogue import MatrixOperand, evaluate, matrix_operands
from .panels import Operand, Place, panels_of, side_by_side
from .tiles import ROWS, open_parts, parts, product, row_tiles, tile_columns

MAX_SLICE_DEPTH = 640
"""Maximum depth of a slice."""
MAX_CHUNK_ROWS, MAX_BLOCK_COLUMNS = 2048, 256
"""Maximum rows and columns of a task that packs its own columns."""
PAGE_ELEMENTS = 1024
"""float32 elements of a page."""
MAX_UNPACKED_DEPTH = 128
"""Maximum depth at which the right operand is read unpacked."""
TASK_HEIGHTS = (64, 80, 96, 48, 56, 72, 88, 40, 32)
"""Rows of a task that copies its left operand, in order of preference."""
MIN_TASKS, ENOUGH_TASKS, MIN_TASK_ROWS = 8, 16, 256
"""Number of tasks, for load balance: at least `MIN_TASKS` as long as each keeps `MIN_TASK_ROWS` rows; beyond `ENOUGH_TASKS`
tasks are not made smaller."""

Finish = Callable[[Expr, Expr, Expr, str], Sequence[Statement]]
"""`finish(row, column, value, tag)`: the epilogue of an element. The tag makes names unique."""
Near = Callable[[Expr, Expr], Sequence[Statement]]
"""`near(row, column)`: prefetches of the memory that `finish` touches there."""
Prefetches = Callable[[Expr], Sequence[Statement]]
"""Prefetches, given the number of a step of the depth."""


@dataclass(frozen=True)
class Blocks:
    """Block sizes (rows, columns, depth), and rows and columns of a task, which consists of several blocks."""

    rows: int
    columns: int
    depth: int
    task: tuple[int, int]
    any_rows: bool = False
    """whether loops are written for any number of rows: then kernels for different numbers differ in numbers alone"""


def _operand_bytes(target: Target) -> int:
    """Bytes of an operand block: half of L2."""
    return target.l2_bytes // 2


def blocks(left: Layout, columns: int, target: Target, any_rows: bool = False) -> Blocks:
    """Blocks for a product with `left`: a function of sizes and the target alone, so that results are reproducible.

    `any_rows` asks for loops that serve any number of rows, where the left operand is not copied.
    """
    rows, depth = left.shape
    if left.strides[1] != 1:
        return _copied_blocks(rows, columns, depth, target)
    panel = tile_columns(target)
    deep = _piece(depth, MAX_SLICE_DEPTH)
    most = min(max(_operand_bytes(target) // (4 * deep) // panel, 1) * panel, MAX_BLOCK_COLUMNS)
    chunks = max(-(-rows // MAX_CHUNK_ROWS), min(-(-MIN_TASKS // -(-columns // panel)), rows // MIN_TASK_ROWS))
    widths = [w for w in range(most, 0, -panel) if chunks * -(-columns // w) >= ENOUGH_TASKS] or [panel]
    wide = min(
        next((w for w in widths if columns % w == 0), widths[0]), columns
    )  # without a remainder there is less code
    chunk = -(-rows // chunks)
    high = (
        chunk if deep == depth else loops.MAX_LOCAL_BYTES // (4 * wide)
    )  # the sums of a block are kept in local memory
    if any_rows:
        return Blocks(chunk if deep == depth else high // ROWS * ROWS, wide, deep, (chunk, wide), True)
    few = -(-chunk // high)
    even = next((n for n in range(few, 2 * few) if chunk % n == 0), None)
    return Blocks(min(high, chunk) if even is None else chunk // even, wide, deep, (chunk, wide))


def _copied_blocks(rows: int, columns: int, depth: int, target: Target) -> Blocks:
    """Blocks for a copied left operand: few rows and many columns per task, so that it is copied only once or twice."""
    deep, panel = _piece(depth, MAX_SLICE_DEPTH), tile_columns(target)
    heights = [h for h in TASK_HEIGHTS if 4 * h * depth <= _operand_bytes(target)] or [TASK_HEIGHTS[-1]]
    many = [h for h in heights if -(-rows // h) >= ENOUGH_TASKS] or heights
    high = min(next((h for h in (*many, *heights) if rows % h == 0), many[0]), rows)
    groups = min(-(-ENOUGH_TASKS // -(-rows // high)), -(-columns // (2 * panel)))
    group = min(_up(-(-columns // groups), panel), columns)
    if deep == depth:
        return Blocks(high, group, deep, (high, group))
    most = max(loops.MAX_LOCAL_BYTES // (4 * high) // panel, 1) * panel
    wide = next((w for w in range(most, most // 2, -panel) if group % w == 0), most)
    return Blocks(high, min(wide, group), deep, (high, group))


def _piece(depth: int, most: int) -> int:
    """The depth of a slice, at most `most`."""
    count = -(-depth // most)
    return depth if count == 1 else _up(-(-depth // count), SQUARE)


def _up(x: int, unit: int) -> int:
    return -(-x // unit) * unit


def product_kernel(
    left: Layout,
    right: Layout,
    out: Layout,
    target: Target,
    epilogue: Epilogue = IDENTITY,
    operands: Sequence[Layout] = (),
    any_rows: bool = False,
) -> tuple[Kernel, tuple[int, int]]:
    """`out = epilogue(left @ right)`, and the `scratch` it needs. Buffers: left, right, workspace, packed, out, operands.

    Operands of the epilogue are matrices: of the shape of `out`, or of one row. Rows of `out` are contiguous.
    """
    places = [(x.strides, x.offset) for x in (left, right, out)]
    return _kernel((*left.shape, right.shape[1]), *places, target, epilogue, matrix_operands(operands), any_rows)


@functools.lru_cache(loops.MAX_KEPT)
def _kernel(
    sizes: tuple[int, int, int], left: Place, right: Place, out: Place, target: Target, epilogue: Epilogue,
    operands: tuple[MatrixOperand, ...], any_rows: bool,
) -> tuple[Kernel, tuple[int, int]]:  # fmt: skip
    m, k, n = sizes
    names = ("a", "b", "workspace", "packed", "c", *[f"o{i}" for i in range(len(operands))])
    a, b, workspace, packed, c, *others = (Buffer.of(name, s.FLOAT32, (1 << 40,)) for name in names)
    storage = Storage("arena", 0)
    a_layout = Layout(storage, s.FLOAT32, (m, k), *left)
    b_layout = Layout(storage, s.FLOAT32, (k, n), *right)
    at = lambda i, j: c[out[1] + i * out[0][0] + j]

    def finish(i: Expr, j: Expr, value: Expr, tag: str) -> list[Statement]:
        read = [x.at(buffer, i, j) for buffer, x in zip(others, operands, strict=True)]
        return [loops.store(at(i, j), evaluate(epilogue, value, read))]

    near = lambda i, j: [loops.prefetch(at(i, j), write=True)]
    size = blocks(a_layout, n, target, any_rows)
    body = blocked_product((a, a_layout), (b, b_layout), workspace, packed, size, target, finish, near)
    made = Kernel("product", (a, b, workspace, packed, c, *others), (), tuple(body))
    return made, scratch(a_layout, b_layout, size, target)


def scratch(left: Layout, right: Layout, size: Blocks, target: Target) -> tuple[int, int]:
    """Elements of the workspace of all threads, and of the packed right operand if it is packed as a whole."""
    (rows, depth), columns = left.shape, right.shape[1]
    tasks = -(-rows // size.task[0]) * -(-columns // size.task[1])
    whole = left.strides[1] != 1 and not _is_unpacked(right)
    return min(target.threads, tasks) * _workspace_elements(left, size), depth * columns if whole else 1


def _is_unpacked(right: Layout) -> bool:
    """Whether the right operand is read unpacked when the left one is copied: a few rows stay in L2 at any stride, many
    conflict."""
    return right.strides[1] == 1 and right.shape[0] <= MAX_UNPACKED_DEPTH


def _workspace_elements(left: Layout, size: Blocks) -> int:
    """Elements of the operand that a task packs or copies, rounded up to pages."""
    return _up(left.shape[1] * (size.task[1] if left.strides[1] == 1 else size.task[0]), PAGE_ELEMENTS)


def blocked_product(
    left: Operand,
    right: Operand,
    workspace: Buffer,
    packed: Buffer,
    size: Blocks,
    target: Target,
    finish: Finish,
    near: Near | None = None,
) -> list[Loop]:
    """Loops that compute every element of `left @ right` and hand it to `finish`.

    If the rows of the left operand are contiguous, it is read unpacked, and each task packs its columns of the right one.
    Otherwise each task copies its rows of the left one; the right one is packed first or read unpacked, too.

    Args:
        left, right: (M, K) and (K, N), any strides.
        workspace, packed: buffers of the sizes given by `scratch`.
        finish: the statements for one element. They must only touch memory that belongs to that element.
        near: prefetches of the line of an element that `finish` touches.
    """
    (a, a_layout), (height, depth), width = left, left[1].shape, right[1].shape[1]
    down, along = a_layout.strides
    zero, panel = loops.as_index(0), tile_columns(target)
    made: list[Loop] = []
    all_columns = _Columns(right[0], loops.as_index(right[1].offset), right[1].strides[0])
    if along != 1 and not _is_unpacked(right[1]):
        made = side_by_side(panels_of("q", right, zero, depth, packed, zero, panel, target), right[1], panel)
        all_columns = _Columns(packed, zero)
    tall = [(0, -(-height // size.task[0]), size.task[0])] if size.any_rows else parts(height, size.task[0])
    for row0, row_tasks, task_rows in tall:
        for column0, column_tasks, task_columns in parts(width, size.task[1]):
            tag = f"g{len(made)}"
            row, column = s.remainder(s.index(tag), row_tasks), s.floor_divide(s.index(tag), row_tasks)
            i1, j1 = Let(f"{tag}i", row * task_rows + row0), Let(f"{tag}j", column * task_columns + column0)
            mine = Let(f"{tag}m", loops.worker(tag) * _workspace_elements(a_layout, size))
            body: list[Statement] = [i1, j1, mine]
            here = Let(f"{tag}h", s.minimum(loops.as_index(task_rows), loops.as_index(height) - i1.var))
            if size.any_rows:
                body.append(here)
            if along == 1:
                body += panels_of(
                    f"{tag}q", right, zero, depth, workspace, mine.var, panel, target, j1.var, task_columns
                )
                copied, columns_of = None, _Columns(workspace, mine.var - j1.var * depth)
            else:
                of = lambda r, k, i1=i1: a[(i1.var + r) * down + k * along + a_layout.offset]
                body += copy_rows(f"{tag}q", of, (task_rows, depth), workspace, mine.var, target)
                copied, columns_of = (workspace, mine.var), all_columns
            down_blocks: list[tuple[int, loops.Dim, int]] = list(parts(task_rows, size.rows))
            if size.any_rows:
                several = size.depth < depth
                down_blocks = [(0, s.floor_divide(here.var + (size.rows - 1), size.rows) if several else 1, size.rows)]
            for within, row_blocks, rows in down_blocks:
                name = f"{tag}r{within}"
                i0 = Let(f"{name}i", i1.var + s.index(name) * rows + within)
                inner: list[Statement] = [i0]
                these = Let(f"{name}h", s.minimum(loops.as_index(rows), i1.var + here.var - i0.var))
                if size.any_rows:
                    inner.append(these)
                for beside, column_blocks, columns in parts(task_columns, size.columns):
                    part = f"{name}c{beside}"
                    j0 = Let(f"{part}j", j1.var + s.index(part) * columns + beside)
                    block = _Block(
                        part,
                        left,
                        copied,
                        columns_of,
                        i0.var,
                        j0.var,
                        (rows, columns),
                        size.depth,
                        target,
                        finish,
                        near,
                        these.var if size.any_rows else None,
                    )
                    inner.append(loops.loop(part, column_blocks, [j0, *block.statements()]))
                body.append(loops.loop(name, row_blocks, inner))
            made.append(loops.loop(tag, row_tasks * column_tasks, body, parallel=True, workers=target.threads))
    return made


def copy_rows(
    tag: str, of: Callable[[Expr, Expr], Expr], size: tuple[int, int], copy: Buffer, at: Expr, target: Target
) -> list[Statement]:
    """Statements that pack rows of the left operand at offset `at`, so that the elements of one step of the depth are
    contiguous."""
    rows, depth = size
    r, k = (s.index(f"{tag}{n}") for n in "rk")
    soon = [
        loops.prefetch(of(loops.as_index(n), k + target.prefetch.copied_steps))
        for n in range(0, rows, target.line_elements)
    ]
    across = loops.loop(f"{tag}r", rows, [loops.store(copy[at + k * rows + r], of(r, k))], "vector")
    return [loops.loop(f"{tag}k", depth, [*soon, across])]


@dataclass(frozen=True)
class _Columns:
    """How tiles read the right operand: from panels, the first of which would start at `at`, or unpacked from `at` with row
    stride `down`."""

    buffer: Buffer
    at: Expr
    down: int | None = None

    def tile(self, j: Expr, k: Expr, depth: int, columns: int) -> tuple[Expr, int]:
        """Start and row stride of a tile of so many columns at column j and depth k."""
        if self.down is None:
            return j * depth + k * columns + self.at, columns
        return j + k * self.down + self.at, self.down


class _Block:
    """A block of rows by a block of columns, over the whole depth. `copied` is the buffer and offset of the task's copied
    rows, the first of which is also the block's first."""

    def __init__(
        self, tag: str, left: Operand, copied: tuple[Buffer, Expr] | None, right: _Columns, i0: Expr, j0: Expr,
        size: tuple[int, int], deepest: int, target: Target, finish: Finish, near: Near | None, here: Expr | None = None,
    ) -> None:  # fmt: skip
        self.here = here  # how many rows there are, if fewer than `size` says
        self.tag, self.deepest, self.copied = tag, deepest, copied
        self.rows, self.columns = size
        self.target, self.panel, self.line = target, tile_columns(target), target.line_elements
        (self.a, self.a_layout), self.right = left, right
        self.depth = self.a_layout.shape[1]
        self.i0, self.j0, self.finish, self.near = i0, j0, finish, near
        self.sums = Buffer.of(f"{tag}sums", s.FLOAT32, size)

    def statements(self) -> list[Statement]:
        """Sums are kept in local memory until the last slice of the depth, whose tiles apply the epilogue in registers."""
        if self.deepest >= self.depth:
            return self._piece(self.tag, loops.as_index(0), self.depth)
        r, c = s.index(f"{self.tag}zr"), s.index(f"{self.tag}zc")
        clear = loops.store(self.sums[r, c], s.const(0, s.FLOAT32))
        at = Let(f"{self.tag}at", s.index(f"{self.tag}d") * self.deepest)
        deep = Let(f"{self.tag}deep", s.minimum(loops.as_index(self.deepest), self.depth - at.var))
        return [
            Local(self.sums),
            loops.loop(
                f"{self.tag}zr",
                self.rows if self.here is None else self.here,
                [loops.loop(f"{self.tag}zc", self.columns, [clear], "vector")],
            ),
            loops.loop(
                f"{self.tag}d", -(-self.depth // self.deepest), [at, deep, *self._piece(self.tag, at.var, deep.var)]
            ),
        ]

    def _piece(self, tag: str, k0: Expr, depth: int | Expr) -> list[Statement]:
        """A slice of the depth, from `k0`. The operand that the task packs or copies is reread many times, the other one is
        read once: so the tiles of the latter are the outer loop."""
        Part = tuple[str, loops.Dim, loops.Dim, int]
        rows: list[Part] = [
            (f"r{row0}", row0, count, size) for row0, count, size in row_tiles(self.rows, high=self.copied is not None)
        ]
        if self.here is not None:
            rows = [(f"r{size}", row0, count, size) for row0, count, size in open_parts(self.here, ROWS)]
        columns: list[Part] = [(f"c{c0}", c0, count, size) for c0, count, size in parts(self.columns, self.panel)]
        outer, inner = (rows, columns) if self.copied is None else (columns, rows)
        made: list[Statement] = []
        for outside, first, count, size in outer:
            at = Let(f"{tag}{outside}o", s.index(f"{tag}{outside}") * size + first)
            body: list[Statement] = [at]
            for within, first_in, count_in, size_in in inner:
                name = f"{tag}{outside}{within}"
                at_in = Let(f"{name}o", s.index(name) * size_in + first_in)
                i, j = (at.var, at_in.var) if outer is rows else (at_in.var, at.var)
                height, width = (size, size_in) if outer is rows else (size_in, size)
                tile = self._tile(f"{name}t", i, j, k0, (height, width, depth))
                body.append(loops.loop(name, count_in, [at_in, *tile]))
            made.append(loops.loop(f"{tag}{outside}", count, body))
        return made

    def _left(self, name: str, i: Expr, k0: Expr) -> tuple[Let, Callable[[Expr, Expr], Expr]]:
        """The start of a tile's rows of the left operand, and the load of an element."""
        if self.copied is not None:
            workspace, at = self.copied
            start = Let(f"{name}a", at + i + k0 * self.rows)
            return start, lambda r, k: workspace[start.var + k * self.rows + r]
        down = self.a_layout.strides[0]
        start = Let(f"{name}a", (self.i0 + i) * down + k0 + self.a_layout.offset)
        return start, lambda r, k: self.a[start.var + r * down + k]

    def _tile(self, name: str, i: Expr, j: Expr, k0: Expr, size: tuple[int, int, int | Expr]) -> list[Statement]:
        rows, columns, depth = size
        left, of_left = self._left(name, i, k0)
        first, step = self.right.tile(self.j0 + j, k0, self.depth, columns)
        start = Let(f"{name}s", first)
        of_right = lambda k, c: self.right.buffer[start.var + k * step + c]
        finish = lambda r, c, x: self.finish(self.i0 + i + r, self.j0 + j + c, x, name)
        soon = (
            self._next_left(i, j, k0, rows),
            self._next_right(i, j, k0, rows),
            self._end_of_tile(i, j, rows, columns),
        )
        each = lambda k: [p for prefetch_next in soon for p in prefetch_next(k)]
        if self.deepest >= self.depth:
            return [left, start, *product(name, size, of_left, of_right, finish, target=self.target, each=each)]
        wait = lambda r, c: self.sums[i + r, j + c]
        keep = lambda r, c, x: [loops.store(wait(r, c), x)]
        ended = s.eq(k0 + depth, self.depth)
        tile = product(name, size, of_left, of_right, finish, wait, target=self.target, each=each, unless=(ended, keep))
        return [left, start, *tile]

    def _end_of_tile(self, i: Expr, j: Expr, rows: int, columns: int) -> Prefetches:
        """Prefetch what the epilogue of a tile touches, its lines spread over the steps of the depth."""
        near = self.near
        if near is None:
            return lambda k: ()
        across = -(-columns // self.line)
        deep = min(self.depth, self.deepest)
        lines = rows * across
        every, many = (
            1 << max((deep // lines).bit_length() - 1, 0),
            -(-lines // deep),
        )  # steps per line, lines per step

        def prefetch_next(k: Expr) -> list[Statement]:
            lines = [s.floor_divide(k, every) * many + n for n in range(many)]
            places = [(s.floor_divide(n, across), s.remainder(n, across) * self.line) for n in lines]
            return [p for r, c in places for p in near(self.i0 + i + r, self.j0 + j + c)]

        return prefetch_next

    def _next_right(self, i: Expr, j: Expr, k0: Expr, rows: int) -> Prefetches:
        """Prefetch the next columns if they are not packed: one line of each row per tile."""
        down = self.right.down
        if down is None:
            return lambda k: ()
        line = s.remainder(s.floor_divide(i, rows), -(-self.panel // self.line)) * self.line
        start = self.right.tile(self.j0 + j + self.panel, k0, 0, 0)[0] + line
        return lambda k: [loops.prefetch(self.right.buffer[start + k * down])]

    def _next_left(self, i: Expr, j: Expr, k0: Expr, rows: int) -> Prefetches:
        """Prefetch the left operand's rows of the next tile, or those that the next task copies: their lines are far apart,
        which hardware prefetchers do not predict."""
        down, along = self.a_layout.strides
        offset = self.a_layout.offset
        if self.copied is None:
            share = -(-rows * self.panel // self.columns)  # rows prefetched per panel
            start = (self.i0 + i + rows + s.floor_divide(j, self.panel) * share) * down + k0 + offset
            return lambda k: [loops.prefetch(self.a[start + r * down + k]) for r in range(share)]
        if down != 1:
            return lambda k: ()
        line = s.remainder(s.floor_divide(i, rows), -(-self.rows // self.line)) * self.line
        start = self.i0 + self.rows + line + k0 * along + offset
        return lambda k: [loops.prefetch(self.a[start + k * along])]
