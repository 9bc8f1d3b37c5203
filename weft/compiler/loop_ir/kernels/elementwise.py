"""Elementwise kernels: any number of inputs and outputs, any strides, broadcasting by stride 0."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....ops.core import scalar as s
from ....ops.core.scalar import Expr
from .. import ir as loops
from ..ir import Buffer, Kernel, Let, Statement
from .layout import unflatten

_CHEAP = frozenset(s.FUNCTIONS) - frozenset(
    "pow exp exp2 expm1 log log1p log2 log10 sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh erf "
    "erfc lgamma sigmoid hypot logaddexp floor_divide remainder".split()
)


def grain(exprs: Sequence[Expr]) -> int:
    """The minimum number of elements per task: fewer when each is more expensive."""
    costly = sum(1 for node in s.topological(exprs) if node.fn in s.FUNCTIONS and node.fn not in _CHEAP)
    return max(4096, 32768 // (1 + costly))


def place_arguments(expr: Expr, values: Sequence[Expr]) -> Expr:
    """Replace every `arg` leaf by its value."""
    return s.substitute(expr, lambda node: values[node.payload] if node.fn == "arg" else None)


def elementwise(
    exprs: Sequence[Expr],
    inputs: Sequence[np.dtype],
    outputs: Sequence[np.dtype],
    ndim: int,
    classes: Sequence[int],
    name: str = "elementwise",
    streaming: bool = False,
) -> Kernel:
    """A kernel that stores `exprs` (of `arg` leaves) over `ndim` dimensions.

    Args:
        exprs: one per output; evaluated before anything is stored, so an output may be an input's memory.
        inputs, outputs: dtypes. Values are cast to the output's.
        ndim: 1 or more.
        streaming: whether to bypass the cache, because the results are too large to stay in it.
        classes: per operand (inputs, then outputs) the class of its innermost stride: 0, 1, or 2 for any other.

    The kernel's parameters: for `ndim` 1: `n`, then the stride of every operand of class 2. Otherwise `rows`,
    `blocks`, `block`, the sizes, then per operand its outer strides and, in class 2, its inner stride: the outer
    dimensions are one loop of `rows`, and long inner ones are split into `blocks` to be distributed over threads.
    """
    params: list[str] = ["n"] if ndim == 1 else ["rows", "blocks", "block", *(f"n{d}" for d in range(ndim))]
    sizes = [s.param("n")] if ndim == 1 else [s.param(f"n{d}") for d in range(ndim)]
    buffers: list[Buffer] = []
    for k, dtype in enumerate((*inputs, *outputs)):
        label = f"x{k}" if k < len(inputs) else f"y{k - len(inputs)}"
        strides: list[Expr | int] = []
        for d in range(ndim - 1):
            params.append(f"{label}_s{d}")
            strides.append(s.param(params[-1]))
        if classes[k] == 2:
            params.append(f"{label}_s{ndim - 1}")
            strides.append(s.param(params[-1]))
        else:
            strides.append(classes[k])
        buffers.append(Buffer.of(label, dtype, sizes, strides))
    ins, outs = buffers[: len(inputs)], buffers[len(inputs) :]

    def body(where: tuple[Expr, ...]) -> list[Statement]:
        values = [place_arguments(e, [b[where] for b in ins]) for e in exprs]
        if len(values) == 1:
            return [loops.store(outs[0][where], values[0], streaming)]
        lets = [Let(f"v{i}", value) for i, value in enumerate(values)]
        return [*lets, *(loops.store(b[where], let.var, streaming) for b, let in zip(outs, lets, strict=True))]

    work = grain(exprs)
    if ndim == 1:
        loop = loops.loop("i", sizes[0], body((s.index("i"),)), "vector", parallel=True, grain=work)
        return Kernel(name, tuple(buffers), tuple(params), (loop,))

    blocks, block, inner = s.param("blocks"), s.param("block"), sizes[-1]
    task = s.index("task")
    row, part = Let("row", s.floor_divide(task, blocks)), Let("part", s.remainder(task, blocks))
    lets, outer = unflatten(row.var, sizes[:-1], "i")
    start = Let("start", part.var * block)
    loop = loops.loop(
        "task",
        s.param("rows") * blocks,
        [
            row,
            part,
            *lets,
            start,
            loops.loop("j", s.minimum(block, inner - start.var), body((*outer, start.var + s.index("j"))), "vector"),
        ],
        parallel=True,
        grain=loops.grain_for(block, work),
    )
    return Kernel(name, tuple(buffers), tuple(params), (loop,))


def blocking(rows: int, inner: int) -> tuple[int, int]:
    """(blocks, block size) of the inner dimension, from the shape alone; only long rows are split, and only if they are few."""
    if rows >= 64 or inner < 2 * 16384:
        return 1, inner
    blocks = max(1, min(inner // 16384, -(-64 // rows)))
    block = -(-inner // blocks)
    block = -(-block // 64) * 64
    return -(-inner // block), block
