"""Copies between two layouts of one shape, specialised for each pair of layouts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ....ops.core import scalar as s
from ....ops.core.scalar import Expr
from ...lowering.nests import grain
from ...target import Target
from .. import ir as loops
from ..ir import SQUARE, Buffer, Kernel, Let, Statement
from .tiles import parts
from .transpose import transposing_copy

STRIP = 4 * SQUARE
"""Rows transposed at a time: four cache lines of every source column."""

Place = tuple[tuple[int, ...], int]
"""Strides and offset, in elements."""


@dataclass(frozen=True)
class _Axis:
    """An axis, or several collapsible ones: its size, and its strides in both layouts."""

    size: int
    source: int
    target: int


@functools.lru_cache(4 * loops.MAX_KEPT)
def copy_kernel(
    shape: tuple[int, ...], dtypes: tuple[np.dtype, np.dtype], source: Place, target: Place, machine: Target
) -> Kernel:
    """copy(source, target): loops in the memory order of the target. If the source has another fastest axis, squares of it are
    transposed in registers instead of gathered element by element."""
    axes = _joined(shape, source[0], target[0])
    buffers = [Buffer.of(f"b{i}", dtype, (1 << 40,)) for i, dtype in enumerate(dtypes)]
    read = lambda at: buffers[0][at + source[1]]
    write = lambda at: buffers[1][at + target[1]]
    across = next((a for a in axes if a.source == 1 and a.size >= SQUARE), None)
    if (
        across is not None and across is not axes[-1] and axes[-1].target == 1 and axes[-1].size >= SQUARE
        and dtypes[0] == dtypes[1] and dtypes[0].itemsize == 4
    ):  # fmt: skip
        body = _transposing([a for a in axes[:-1] if a is not across], across, axes[-1], read, write, machine)
    else:
        at = lambda way: _sum([s.index(f"i{k}") * getattr(a, way) for k, a in enumerate(axes)])
        copied: list[Statement] = [loops.store(write(at("target")), read(at("source")))]
        body = _nest(axes, copied)
    return Kernel("copy", tuple(buffers), (), tuple(body))


def _joined(shape: tuple[int, ...], source: tuple[int, ...], target: tuple[int, ...]) -> list[_Axis]:
    """The axes from the target's outermost to its innermost, collapsed where both layouts allow it."""
    made: list[_Axis] = []
    order = sorted([a for a in range(len(shape)) if shape[a] != 1], key=lambda a: (-abs(target[a]), a))
    for a in order:
        axis = _Axis(shape[a], source[a], target[a])
        last = made[-1] if made else None
        if last is not None and (last.source, last.target) == (axis.source * axis.size, axis.target * axis.size):
            made[-1] = _Axis(last.size * axis.size, axis.source, axis.target)
        else:
            made.append(axis)
    return made


def _sum(terms: list[Expr]) -> Expr:
    return functools.reduce(lambda x, y: x + y, terms, loops.as_index(0))


def _nest(axes: list[_Axis], body: list[Statement]) -> list[Statement]:
    """Loops `i0`, `i1`, … over the axes around `body`, which copies one element; the first is parallel, the last vectorised."""
    below, kind = 1, "vector"
    for k in range(len(axes) - 1, -1, -1):
        body = [loops.loop(f"i{k}", axes[k].size, body, kind, parallel=k == 0, grain=grain(below) if k == 0 else 1)]  # type: ignore[arg-type]
        below, kind = below * axes[k].size, "serial"
    return body


def _transposing(
    outer: list[_Axis],
    across: _Axis,
    along: _Axis,
    read: Callable[[Expr], Expr],
    write: Callable[[Expr], Expr],
    machine: Target,
) -> list[Statement]:
    """`across` is the axis contiguous in the source, `along` the one contiguous in the target."""
    first, rest = (outer[0], outer[1:]) if outer else (_Axis(1, 0, 0), [])
    made: list[Statement] = []
    for row0, strips, rows in parts(across.size, STRIP):
        tag = f"t{row0}"
        places = [
            (s.floor_divide(s.index(tag), strips), first),
            (s.remainder(s.index(tag), strips) * rows + row0, across),
        ]
        places += [(s.index(f"{tag}i{k}"), a) for k, a in enumerate(rest)]
        start = Let(f"{tag}s", _sum([i * a.source for i, a in places]))
        end = Let(f"{tag}e", _sum([i * a.target for i, a in places]))
        to = lambda r, c, end=end: write(end.var + r * across.target + c)
        of = lambda r, c, start=start: read(start.var + r + c * along.source)
        body: list[Statement] = [start, end]
        body += transposing_copy(tag, (rows, along.size), (to, across.target), (of, along.source), machine)
        below = rows * along.size
        for k in range(len(rest) - 1, -1, -1):
            body = [loops.loop(f"{tag}i{k}", rest[k].size, body)]
            below *= rest[k].size
        made.append(loops.loop(tag, first.size * strips, body, parallel=True, grain=grain(below)))
    return made
