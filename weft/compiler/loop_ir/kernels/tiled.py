"""Tiled elementwise kernels for operands with different fastest axes: a transpose, channels first to channels last.

In any loop order one operand would be read with a large stride, a cache line per element. So the two axes are cut into
square tiles: an operand with the other fastest axis is read along it into a local tile, and from there along the output's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....ops.core import scalar as s
from ....ops.core.scalar import Expr
from ...target import Target
from .. import ir as loops
from ..ir import Buffer, Kernel, Let, Local, Statement
from .elementwise import grain, place_arguments
from .layout import unflatten


def tile_size(itemsize: int, target: Target) -> int:
    """Elements along a side, a power of two: a tile of at most half of L1 leaves room for other data."""
    elements = target.l1_bytes // 2 // itemsize
    return 1 << (elements.bit_length() - 1) // 2


def tiled_elementwise(
    exprs: Sequence[Expr],
    inputs: Sequence[np.dtype],
    outputs: Sequence[np.dtype],
    ndim: int,
    transposed: Sequence[bool],
    flat: Sequence[int],
    target: Target,
    name: str = "tiled",
    streaming: bool = False,
) -> Kernel:
    """A kernel that stores `exprs` (of `arg` leaves) over `ndim` >= 2 dimensions, the last two in tiles.

    Args:
        transposed: per input, whether it is contiguous along the last but one dimension (and goes through a tile).
        flat: per operand that is not transposed (inputs, then outputs; entries of transposed inputs are ignored), the class of
            its stride along the last dimension.

    The kernel's parameters: `rows` (product of the outer sizes), `tiles_i`, `tiles_j`, the sizes, then per operand its
    outer strides and its stride along the last dimension if transposed, else along the last but one, followed by that along
    the last if its class is 2.
    """
    side = tile_size(max(d.itemsize for d in (*inputs, *outputs)), target)
    params = ["rows", "tiles_i", "tiles_j", *(f"n{d}" for d in range(ndim))]
    sizes = [s.param(f"n{d}") for d in range(ndim)]
    buffers: list[Buffer] = []
    for k, dtype in enumerate((*inputs, *outputs)):
        label = f"x{k}" if k < len(inputs) else f"y{k - len(inputs)}"

        def stride(d: int, label: str = label) -> Expr:
            params.append(f"{label}_s{d}")
            return s.param(params[-1])

        strides: list[Expr | int] = [stride(d) for d in range(ndim - 2)]
        if k < len(inputs) and transposed[k]:
            strides += [1, stride(ndim - 1)]
        else:
            strides += [stride(ndim - 2), stride(ndim - 1) if flat[k] == 2 else flat[k]]
        buffers.append(Buffer.of(label, dtype, sizes, strides))
    ins, outs = buffers[: len(inputs)], buffers[len(inputs) :]

    task = s.index("task")
    tiles_i, tiles_j = s.param("tiles_i"), s.param("tiles_j")
    across = Let("across", s.floor_divide(task, tiles_j))
    row = Let("row", s.floor_divide(across.var, tiles_i))
    start_i = Let("start_i", s.remainder(across.var, tiles_i) * side)
    start_j = Let("start_j", s.remainder(task, tiles_j) * side)
    lets, outer = unflatten(row.var, sizes[:-2], "o") if ndim > 2 else ([], [])
    rows_here = Let("rows_here", s.minimum(loops.as_index(side), sizes[-2] - start_i.var))
    columns_here = Let("columns_here", s.minimum(loops.as_index(side), sizes[-1] - start_j.var))
    body: list[Statement] = [across, row, start_i, start_j, *lets, rows_here, columns_here]

    i, j = s.index("i"), s.index("j")
    values: list[Expr] = []
    for k, b in enumerate(ins):
        if not transposed[k]:
            values.append(b[(*outer, start_i.var + i, start_j.var + j)])
            continue
        tile = Buffer.of(f"tile{k}", b.dtype, (side, side))
        p, q = s.index(f"p{k}"), s.index(f"q{k}")
        read = loops.store(tile[p, q], b[(*outer, start_i.var + p, start_j.var + q)])
        along = loops.loop(f"p{k}", rows_here.var, [read], "vector")
        body += [Local(tile), loops.loop(f"q{k}", columns_here.var, [along])]
        values.append(tile[i, j])
    results = [Let(f"v{n}", place_arguments(e, values)) for n, e in enumerate(exprs)]
    place = (*outer, start_i.var + i, start_j.var + j)
    stores = [loops.store(b[place], r.var, streaming) for b, r in zip(outs, results, strict=True)]
    body.append(loops.loop("i", rows_here.var, [loops.loop("j", columns_here.var, [*results, *stores], "vector")]))
    work = loops.grain_for(side * side, grain(exprs))
    loop = loops.loop("task", s.param("rows") * tiles_i * tiles_j, body, parallel=True, grain=work)
    return Kernel(name, tuple(buffers), tuple(params), (loop,))
