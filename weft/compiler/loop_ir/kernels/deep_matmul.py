"""Matmul with few rows and columns and a large depth: weight gradients, whose depth is a batch of samples or pixels (split-K).

    for a share of the depth (in parallel), a slice at a time:
        sums[share] += left @ right        unpacked operands: read from memory once, then from L2
    finish(row, column, sum over the shares in order)

The number of shares follows from sizes alone, so the order of a sum is the same for any number of threads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....ops.core import scalar as s
from ....ops.core.scalar import Expr
from ...program.layout import Layout, Storage
from ...target import Target
from .. import ir as loops
from ..ir import SQUARE, Buffer, Kernel, Let, Loop, Statement
from .blocked_matmul import Finish
from .panels import Place as LayoutPlace
from .panels import panels_of
from .tiles import parts, product, row_tiles, rows_beside, tile_columns

SLICE_DEPTH = 128
"""Approximate depth of a slice."""
MIN_SHARES, MAX_SHARES = 8, 32
"""Minimum and maximum number of shares."""


@dataclass(frozen=True)
class Deep:
    """The depth in slices of `piece`, `pieces` of them in each of `shares`; the remainder comes last."""

    piece: int
    pieces: int
    shares: int


def suits(rows: int, columns: int, depth: int, target: Target) -> bool:
    """Whether only the depth is large, both sides are at least a vector, and the result stays in L2 beside a slice of both
    operands."""
    return (
        depth >= 4096
        and depth >= 16 * max(rows, columns)
        and min(rows, columns) >= SQUARE
        and max(rows, columns) >= tile_columns(target)
        and 4 * rows * columns <= target.l2_bytes // 2
    )


def shares(rows: int, columns: int, depth: int, target: Target) -> Deep:
    """The split of the depth. The sums of all shares together stay in the last-level cache."""
    piece = next((p for p in range(SLICE_DEPTH + 64, SLICE_DEPTH - 65, -SQUARE) if depth % p == 0), SLICE_DEPTH)
    whole = depth // piece
    count = max(MIN_SHARES, min(MAX_SHARES, target.l3_bytes // 4 // (4 * rows * columns)))
    each = -(-whole // min(count, whole))
    return Deep(piece, each, -(-whole // each))


def scratch(rows: int, right: Layout, size: Deep, target: Target) -> tuple[int, int]:
    """Elements of the sums of all shares, and of the workspace of all threads if the right operand has to be packed."""
    columns = right.shape[1]
    return size.shares * rows * columns, 1 if right.strides[1] == 1 else min(
        target.threads, size.shares
    ) * size.piece * columns


def deep_product(
    left: tuple[Buffer, Layout],
    right: tuple[Buffer, Layout],
    sums: Buffer,
    workspace: Buffer,
    size: Deep,
    target: Target,
    finish: Finish,
) -> list[Loop]:
    """Loops that compute every element of `left @ right` and hand it to `finish`.

    Args:
        left, right: (M, K) and (K, N), any strides; the right one is packed unless its rows are contiguous.
        sums, workspace: buffers of the sizes given by `scratch`.
        finish: the statements for one element. They must only touch memory that belongs to that element.
    """
    (rows, depth), columns = left[1].shape, right[1].shape[1]
    share = s.index("share")
    mine = Let("mine", share * (rows * columns))
    whole = depth // size.piece
    r, c = s.index("zr"), s.index("zc")
    zero = loops.store(sums[mine.var + r * columns + c], s.const(0, s.FLOAT32))
    task = _Share(left, right, sums, workspace, mine.var, loops.worker("share") * (size.piece * columns), target)
    count = s.minimum(loops.as_index(size.pieces), whole - share * size.pieces)
    at = Let("at", (share * size.pieces + s.index("piece")) * size.piece)
    body: list[Statement] = [
        mine,
        loops.loop("zr", rows, [loops.loop("zc", columns, [zero], "vector")]),
        loops.loop("piece", count, [at, *task.piece("a", at.var, size.piece)]),
    ]
    rest = depth - whole * size.piece
    if rest:
        last = s.where(s.eq(share, size.shares - 1), loops.as_index(1), loops.as_index(0))
        body.append(loops.loop("rest", last, task.piece("b", loops.as_index(depth - rest), rest)))
    i, j = s.index("fi"), s.index("fj")
    total = sums[i * columns + j]
    for n in range(1, size.shares):
        total = total + sums[n * rows * columns + i * columns + j]
    end = loops.loop("fj", columns, finish(i, j, total, "f"), "vector")
    return [
        loops.loop("share", size.shares, body, parallel=True, workers=target.threads),
        loops.loop("fi", rows, [end], parallel=True, grain=loops.grain_for(columns * size.shares)),
    ]


def deep_kernel(left: Layout, right: Layout, out: Layout, target: Target) -> tuple[Kernel, tuple[int, int]]:
    """`out = left @ right`, and the sizes of its scratch buffers. Buffers: left, right, sums, workspace, out."""
    places = [(x.strides, x.offset) for x in (left, right, out)]
    return _kernel((*left.shape, right.shape[1]), *places, target)


@functools.lru_cache(loops.MAX_KEPT)
def _kernel(
    sizes: tuple[int, int, int], left: LayoutPlace, right: LayoutPlace, out: LayoutPlace, target: Target
) -> tuple[Kernel, tuple[int, int]]:
    m, k, n = sizes
    a, b, sums, workspace, c = (Buffer.of(name, s.FLOAT32, (1 << 40,)) for name in ("a", "b", "sums", "workspace", "c"))
    storage = Storage("arena", 0)
    a_layout, b_layout = Layout(storage, s.FLOAT32, (m, k), *left), Layout(storage, s.FLOAT32, (k, n), *right)
    (down, along), offset = out
    finish = lambda i, j, x, tag: [loops.store(c[i * down + j * along + offset], x)]
    size = shares(m, n, k, target)
    body = deep_product((a, a_layout), (b, b_layout), sums, workspace, size, target, finish)
    return Kernel("deep_product", (a, b, sums, workspace, c), (), tuple(body)), scratch(m, b_layout, size, target)


class _Share:
    """One task: a share of the depth, all rows and columns."""

    def __init__(
        self,
        left: tuple[Buffer, Layout],
        right: tuple[Buffer, Layout],
        sums: Buffer,
        workspace: Buffer,
        mine: Expr,
        at: Expr,
        target: Target,
    ) -> None:
        self.target, self.panel = target, tile_columns(target)
        (self.a, self.a_layout), self.right = left, right
        self.sums, self.workspace, self.mine, self.at = sums, workspace, mine, at
        self.rows, self.columns = self.a_layout.shape[0], right[1].shape[1]

    def piece(self, tag: str, k0: Expr, depth: int) -> list[Statement]:
        """sums += left @ right over a slice of the depth."""
        b, b_layout = self.right
        dense = b_layout.strides[1] == 1
        start = Let(f"{tag}at", k0 * b_layout.strides[0] + b_layout.offset if dense else self.at)
        made: list[Statement] = [start]
        if not dense:
            made += panels_of(tag, self.right, k0, depth, self.workspace, start.var, self.panel, self.target)
        down, along = self.a_layout.strides
        left = Let(f"{tag}a", k0 * along + self.a_layout.offset)
        made.append(left)
        tiles_before = 0
        for column0, count, columns in parts(self.columns, self.panel):
            most = rows_beside(columns, self.target)
            for row0, tiles, rows in row_tiles(self.rows, most):
                outer, inner = f"{tag}r{row0}c{column0}", f"{tag}t{row0}c{column0}"
                i = Let(f"{outer}i", s.index(outer) * rows + row0)
                j = Let(f"{inner}j", s.index(inner) * columns + column0)
                a0 = Let(f"{outer}a", left.var + i.var * down)
                b0 = Let(f"{inner}b", start.var + (j.var if dense else j.var * depth))
                c0 = Let(f"{inner}c", self.mine + i.var * self.columns + j.var)
                step, source = (b_layout.strides[0], b) if dense else (columns, self.workspace)
                number = tiles_before + s.floor_divide(i.var, most) * count + s.index(inner)
                tile = product(
                    inner, (rows, columns, depth), lambda r, k, a0=a0: self.a[a0.var + r * down + k * along],  # type: ignore[misc]
                    lambda k, c, b0=b0, step=step, source=source: source[b0.var + k * step + c],  # type: ignore[misc]
                    lambda r, c, x, c0=c0: loops.store(self.sums[c0.var + r * self.columns + c], x),  # type: ignore[misc]
                    lambda r, c, c0=c0: self.sums[c0.var + r * self.columns + c],  # type: ignore[misc]
                    (rows, columns), target=self.target, each=self._next_piece(number, k0 + depth, depth),
                )  # fmt: skip
                made.append(loops.loop(outer, tiles, [i, a0, loops.loop(inner, count, [j, b0, c0, *tile])]))
            tiles_before += -(-self.rows // most) * count
        return made

    def _next_piece(self, tile: Expr, k0: Expr, depth: int) -> Callable[[Expr], Sequence[Statement]]:
        """Prefetch the next slice of both operands while this one is multiplied: a few lines per step of the depth. `tile` is
        the number of the tile."""
        tiles = sum(
            -(-self.rows // rows_beside(w, self.target)) * count for _, count, w in parts(self.columns, self.panel)
        )
        made: list[Callable[[Expr], Statement]] = []
        for buffer, layout, axis in ((self.a, self.a_layout, 1), (*self.right, 0)):
            step, other, width = layout.strides[axis], layout.strides[1 - axis], layout.shape[1 - axis]
            if other != 1 or step > 2 * width:
                continue  # not contiguous
            share = -(-step // tiles)  # elements per step of each tile
            start = k0 * step + layout.offset + tile * (depth * share)
            made.append(lambda k, buffer=buffer, start=start, share=share: loops.prefetch(buffer[start + k * share]))  # type: ignore[misc]
        return lambda k: [prefetch_next(k) for prefetch_next in made]
