"""The members of a cluster as scalar expressions over loads: what a loop nest computes, before loops exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...graph.graph import CONSTANT, Node, Value
from ...ops.core import scalar as s
from ...ops.core.scalar import Expr
from ..fusion import Cluster
from ..program.layout import Layout, Storage

MAX_LITERAL_MEMBERS = 60  # members of a cluster up to which constants are literals in the code


class Load:
    """An element of a layout at an affine index of the space, plus gathered parts: `offset + Σ strides·i + extra`."""

    __slots__ = ("storage", "dtype", "offset", "strides", "extra", "leaf")

    def __init__(
        self, storage: Storage, dtype: np.dtype, offset: int, strides: tuple[int, ...], extra: Expr | None, leaf: Expr
    ) -> None:
        self.storage, self.dtype, self.offset, self.strides, self.extra, self.leaf = (
            storage,
            dtype,
            offset,
            strides,
            extra,
            leaf,
        )


class Expressions:
    """The members of one cluster. `layout_of(value)` gives the layout of a value from outside.

    The loop builder provides available values: `scalars` holds those of reduced members, `kept` those of full members that
    an earlier phase stored.
    """

    scalars: dict[Node, Expr]
    kept: dict[Node, Expr]

    def __init__(self, cluster: Cluster, layout_of: Callable[[Value], Layout]) -> None:
        self.cluster = cluster
        self.layout_of = layout_of
        self.space = cluster.space
        self.rank = len(self.space)
        self.loads: dict[Any, Load] = {}
        self.leaves: dict[Expr, Load] = {}
        self.members = sorted(cluster.members, key=lambda n: n.order)
        self.memo: dict[Any, Expr] = {}
        self._levels()

    # Levels -------------------------------------------------------------------------------------------------------------

    def _inside(self, value: Value) -> Node | None:
        return self.cluster.member_of(value)

    def _levels(self) -> None:
        """`level[n]`: the phase in which a full member is computable, or after which a reduced one is known (+1)."""
        self.level: dict[Node, int] = {}
        for n in self.members:
            below = [
                self.level[m] for m in (self._inside(v) for v in n.inputs if isinstance(v, Value)) if m is not None
            ]
            base = max(below, default=0)
            self.level[n] = base + 1 if self._is_reduction(n) else base
        self.phases = max(self.level.values(), default=0) + 1

    def _is_reduction(self, n: Node) -> bool:
        return n.op.reduction is not None

    def _full(self, n: Node) -> bool:
        return not self._is_reduction(n) and self.cluster.full(n)

    # Expressions ----------------------------------------------------------------------------------------------------------

    def read(self, layout: Layout, axes: tuple[int | None, ...], extra: Expr | None = None) -> Expr:
        """A load of `layout`, whose axes map to these axes of the space."""
        strides = [0] * self.rank
        for d, st, a in zip(layout.shape, layout.strides, axes, strict=True):
            if d != 1 and a is not None:
                strides[a] += st
        key = (id(layout.storage), layout.dtype, layout.offset, tuple(strides), extra)
        found = self.loads.get(key)
        if found is None:
            leaf = s.var(f"load{len(self.loads)}", layout.dtype)
            found = self.loads[key] = Load(layout.storage, layout.dtype, layout.offset, tuple(strides), extra, leaf)
            self.leaves[leaf] = found
        return found.leaf

    def operand(self, value: Any, consumer: Node, phase: int) -> Expr:
        """The element of an operand at the consumer's index."""
        member = self._inside(value)
        if member is not None:
            return self.member(member, phase)
        node = value.node
        if self._literal(value):
            return s.const(node.attrs[0].item(), value.dtype)
        axes = self._consumer_axes(consumer)
        layout = self.layout_of(value)
        return self.read(layout, axes[len(axes) - len(layout.shape) :])

    def _literal(self, value: Value) -> bool:
        """Whether a constant becomes a literal. Not in long kernels: they would differ only in that value, and are slow to
        compile."""
        node = value.node
        return node.op is CONSTANT and node.attrs[0].size == 1 and len(self.members) <= MAX_LITERAL_MEMBERS

    def _consumer_axes(self, n: Node) -> tuple[int | None, ...]:
        return tuple(range(self.rank)) if self._is_reduction(n) else self.cluster.axes[n]

    def member(self, n: Node, phase: int) -> Expr:
        """The value of a member in a phase: a scalar for reduced ones, the element at the index for full ones."""
        if self._is_reduction(n) or not self._full(n):
            return self.reduced_value(n)
        if self.level[n] < phase:
            kept = self.kept.get(n)
            if kept is not None:
                return kept
        key = (n, phase if self.level[n] < phase else self.level[n])
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = self.compute(n, phase)
        return found

    def reduced_value(self, n: Node) -> Expr:
        return self.scalars[n]

    def compute(self, n: Node, phase: int) -> Expr:
        op, out = n.op, n.outputs[0]
        if op.gather is not None:
            return self._take(n) if op.gather == "axis" else self._take_along(n)
        args = [self.operand(v, n, phase) for v in n.inputs]
        if op.element is not None:
            return s.cast(op.run(op.element, op.merge(args, n.attrs)), out.dtype)
        return s.cast(_half_out(op.expression(*_half_in(args)), out.dtype), out.dtype)

    def _index(self, n: Node, indices: Value, axes: tuple[int | None, ...], size: int) -> Expr:
        layout = self.layout_of(indices)
        i = s.cast(self.read(layout, axes), np.int64)
        if s.kind(indices.dtype) == "i":
            i = s.where(s.lt(i, 0), i + size, i)
        return s.minimum(s.maximum(i, 0), max(size - 1, 0))

    def _take(self, n: Node) -> Expr:
        x, indices = n.inputs
        axis = n.attrs[0] % len(x.shape)
        axes = self.cluster.axes[n]
        layout = self.layout_of(x)
        k = len(indices.shape)
        i = self._index(n, indices, axes[axis : axis + k], x.shape[axis])
        rest = Layout(layout.storage, layout.dtype, layout.shape[:axis] + layout.shape[axis + 1 :],
                      layout.strides[:axis] + layout.strides[axis + 1 :], layout.offset)  # fmt: skip
        return self.read(rest, axes[:axis] + axes[axis + k :], i * layout.strides[axis])

    def _take_along(self, n: Node) -> Expr:
        x, indices = n.inputs
        axis = n.attrs[0] % len(x.shape)
        axes = self.cluster.axes[n]
        layout = self.layout_of(x)
        i = self._index(n, indices, axes, x.shape[axis])
        strides = tuple([0 if a == axis else st for a, st in enumerate(layout.strides)])
        shape = tuple([1 if a == axis else d for a, d in enumerate(layout.shape)])
        rest = Layout(layout.storage, layout.dtype, shape, strides, layout.offset)
        return self.read(rest, axes, i * layout.strides[axis])


def _half_in(args: list[Expr]) -> list[Expr]:
    """Half precision is computed in float32."""
    return [s.cast(a, s.FLOAT32) if a.dtype in (s.FLOAT16, s.BFLOAT16) else a for a in args]


def _half_out(value: Any, dtype: np.dtype) -> Expr:
    return value if isinstance(value, Expr) else s.const(value, dtype)
