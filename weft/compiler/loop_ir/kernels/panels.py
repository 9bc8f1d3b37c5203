"""Packing of a matmul's right operand into panels as wide as a register tile, contiguous in the order a tile reads them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ....ops.core import scalar as s
from ....ops.core.scalar import Expr
from ...program.layout import Layout, Storage
from ...target import Target
from .. import ir as loops
from ..ir import Buffer, Kernel, Let, Loop, Statement
from .tiles import parts
from .transpose import transposing_copy

Place = tuple[tuple[int, ...], int]
"""Strides and offset, in elements."""
Operand = tuple[Buffer, Layout]


def pack_panels(right: Layout, packed: Layout, width: int, target: Target) -> Kernel:
    """(K, N) as panels of `width` columns, fewer in the last one: packed[panel, k, column]. Either axis may be contiguous."""
    return _packing(right.shape, right.dtype, (right.strides, right.offset), packed.offset, width, target)


@functools.lru_cache(loops.MAX_KEPT)
def _packing(shape: tuple[int, int], dtype: np.dtype, right: Place, offset: int, width: int, target: Target) -> Kernel:
    w, p = Buffer.of("w", dtype, (1 << 40,)), Buffer.of("p", dtype, (1 << 40,))
    layout = Layout(Storage("arena", 0), dtype, shape, *right)
    packing = panels_of("", (w, layout), loops.as_index(0), shape[0], p, loops.as_index(offset), width, target)
    made = side_by_side(packing, layout, width)
    return Kernel("pack_panels", (w, p), (), tuple(made))


def side_by_side(packing: Sequence[Loop], right: Layout, panel: int) -> list[Loop]:
    """Loops of `panels_of` for a whole operand in panels of `panel` columns, on several threads."""
    work = right.shape[0] * panel if _transposes(right) else right.shape[1]
    return [replace(loop, parallel=True, grain=loops.grain_for(work)) for loop in packing]


def panels_of(
    tag: str,
    right: Operand,
    k0: Expr,
    depth: int,
    packed: Buffer,
    at: Expr,
    panel_columns: int,
    target: Target,
    j0: Expr | int = 0,
    width: int | None = None,
) -> list[Loop]:
    """Loops that pack `depth` rows of the right operand, from row `k0` on, to offset `at` in panels of `panel_columns`: all
    columns, or `width` of them from `j0`. Rows are read sequentially, which is faster than reading panel by panel."""
    w, layout = right
    down, along = layout.strides
    transposed: list[Loop] = []
    row: list[Statement] = []
    k = s.index(f"{tag}k")
    for number, (first, count, columns) in enumerate(parts(layout.shape[1] if width is None else width, panel_columns)):
        name = f"{tag}p{number}"
        panel = s.index(name) * columns + first
        start = Let(f"{name}to", panel * depth + at)
        origin = Let(f"{name}of", k0 * down + (panel + j0) * along + layout.offset)
        to = lambda k, c, start=start, columns=columns: packed[start.var + k * columns + c]
        of = lambda k, c, origin=origin: w[origin.var + k * down + c * along]
        if _transposes(layout):
            copy = transposing_copy(name, (depth, columns), (to, columns), (of, along), target)
            transposed.append(loops.loop(name, count, [start, origin, *copy]))
        else:
            c = s.index(f"{name}c")
            soon = [
                loops.prefetch(of(k + target.prefetch.packed_rows, n)) for n in range(0, columns, target.line_elements)
            ]
            across = loops.loop(f"{name}c", columns, [loops.store(to(k, c), of(k, c))], "vector")
            row.append(loops.loop(name, count, [start, origin, *soon, across]))
    return transposed or [loops.loop(f"{tag}k", depth, row)]


def _transposes(right: Layout) -> bool:
    return right.strides[0] == 1 and right.strides[1] != 1
