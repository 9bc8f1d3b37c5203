"""`Routine`: hand-written loop nests of lowering rules, with layouts as operands.

    r = Routine(lowering, node, "reverse")
    x, y = r.reads(source), r.writes(target)
    r.add(over_rows(source.shape[:1], lambda i: [loops.store(y.at(*i), x.at(9 - i[0]))]))

`at` maps indices to memory for any strides, so a rule never has to check whether its operand is a view.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...graph.graph import Node, Value
from ...ops.core import scalar as s
from ...ops.core.scalar import Expr
from ..loop_ir import ir as loops
from ..loop_ir.ir import Buffer, Kernel, Statement
from ..loop_ir.kernels.layout import unflatten
from ..program.layout import Layout, Storage
from ..program.steps import KernelCall
from .nests import grain

if TYPE_CHECKING:
    from .lower import Lowering

Index = Expr | int


class Operand:
    """A layout as a buffer of one kernel."""

    def __init__(self, buffer: Buffer, layout: Layout) -> None:
        self.buffer, self.layout = buffer, layout

    def at(self, *indices: Index) -> Expr:
        """The element at these indices."""
        place = loops.as_index(self.layout.offset)
        for i, d, stride in zip(indices, self.layout.shape, self.layout.strides, strict=True):
            if d != 1:
                place = place + loops.as_index(i) * stride
        return self.buffer[place]


class Routine:
    """One kernel step under construction."""

    def __init__(self, lowering: Lowering, node: Node, label: str) -> None:
        self.lowering, self.node, self.label = lowering, node, label
        self._operands: list[Operand] = []
        self._reads: list[Storage] = []
        self._writes: list[Storage] = []

    def _operand(self, layout: Layout) -> Operand:
        made = Operand(Buffer.of(f"b{len(self._operands)}", layout.dtype, (1 << 40,)), layout)
        self._operands.append(made)
        return made

    def reads(self, layout: Layout) -> Operand:
        self._reads.append(layout.storage)
        return self._operand(layout)

    def writes(self, layout: Layout) -> Operand:
        """A buffer that the kernel writes, and may read back."""
        self._writes.append(layout.storage)
        return self._operand(layout)

    def scratch(self, shape: tuple[int, ...], dtype: np.dtype | type) -> Operand:
        """A scratch buffer, initially undefined."""
        return self.writes(self.lowering.temporary(shape, np.dtype(dtype)))

    def add(self, body: Sequence[Statement]) -> None:
        """Append the step."""
        buffers = tuple([o.buffer for o in self._operands])
        storages = [o.layout.storage for o in self._operands]
        kernel = Kernel(self.label.replace(" ", "_"), buffers, (), tuple(body))
        self.lowering.steps.append(KernelCall(self.label, [self.node], self._reads, self._writes, kernel, storages))


def over_rows(
    sizes: Sequence[int],
    body: Callable[[list[Expr]], list[Any]],
    name: str = "row",
    work: int = 1,
    vector: bool = False,
) -> list[Any]:
    """`body(indices)` for every point of `sizes`, in one parallel loop; `work` is the cost of a point.

    With `vector` the points of the last axis are lanes of a vector loop.
    """
    kept = [a for a, d in enumerate(sizes) if d != 1]
    if not kept:
        return body([loops.as_index(0)] * len(sizes))
    walked = [sizes[a] for a in kept]

    def spread(indices: Sequence[Expr]) -> list[Expr]:
        where = dict(zip(kept, indices, strict=True))
        return [where.get(a, loops.as_index(0)) for a in range(len(sizes))]

    outer = walked[:-1] if vector else walked
    lets, indices = unflatten(s.index(name), [loops.as_index(d) for d in outer], name) if outer else ([], [])
    if not vector:
        statements = [*lets, *body(spread(indices))]
        return [loops.loop(name, prod(outer), statements, parallel=True, grain=grain(work))]
    lane, length = name + "_lane", walked[-1]
    statements = body(spread([*indices, s.index(lane)]))
    if not outer:
        return [loops.loop(lane, length, statements, "vector", parallel=True, grain=grain(work))]
    across = loops.loop(lane, length, statements, "vector")
    return [loops.loop(name, prod(outer), [*lets, across], parallel=True, grain=grain(work * length))]


def native(*values: Any) -> bool:
    """Whether kernels can read and write these values: a real dtype, not empty."""
    return all(v.dtype in s.DTYPES and 0 not in v.shape for v in values if isinstance(v, Value))


def wrapped(index: Expr, size: int) -> Expr:
    """A checked index, made non-negative and clamped, so that no read is ever out of bounds."""
    i = s.cast(index, np.int64)
    if s.kind(index.dtype) == "i":
        i = s.where(s.lt(i, 0), i + size, i)
    return s.minimum(s.maximum(i, 0), max(size - 1, 0))
