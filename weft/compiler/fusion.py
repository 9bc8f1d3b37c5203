"""Fusion: decides which nodes become one loop nest.

A *cluster* has an iteration space (a shape) and a set of reduced axes. Its members are elementwise ops and gathers over
the whole space ("full"), reductions of full members over exactly the reduced axes, and elementwise ops on their results
("reduced"), which may feed full members again: softmax, layer norm and losses are single clusters. A node joins the
clusters of its producers as long as the clusters still form an acyclic graph. Values used outside a cluster are stored;
everything else lives in registers.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ..graph.graph import CONSTANT, PLACEHOLDER, Node, Value
from ..ops.core import scalar as s
from ..ops.core.spec import normalize_axes
from ..ops.core.views import Axes
from .flow import Flow

MAX_MEMBERS = 120  # compile time grows faster than the size of a cluster
MAX_BUFFERS = 28
MIN_SIBLING_ELEMENTS = 1 << 12  # from which sibling reductions share one loop nest
SMALL_CLUSTER_ELEMENTS = 1 << 16  # up to which a cluster costs next to nothing beside a large one
LARGE_CLUSTER_ELEMENTS = 1 << 17  # from which another pass over memory is expensive
_DTYPES = set(s.DTYPES)


def is_loop(node: Node) -> bool:
    """Whether the node can be part of a loop nest."""
    op = node.op
    if op is PLACEHOLDER or op is CONSTANT or len(node.outputs) != 1:
        return False
    if any(0 in v.shape for v in (*node.inputs, *node.outputs) if isinstance(v, Value)):
        return False  # empty iteration space: left to NumPy
    if node.outputs[0].dtype not in _DTYPES or any(
        isinstance(v, Value) and v.dtype not in _DTYPES for v in node.inputs
    ):
        return False
    elementwise = op.expression is not None or op.element is not None
    return elementwise or op.reduction is not None or op.gather is not None


def is_view(node: Node) -> bool:
    return node.op.view is not None


def base_of(value: Value) -> Value:
    """The base of a chain of views, or the value itself."""
    while is_view(value.node):
        value = value.node.inputs[0]
    return value


@dataclass(eq=False)
class Cluster:
    """Nodes that share loops. `axes[node]` maps the axes of a member's result to axes of the space."""

    number: int
    space: tuple[int, ...]
    reduced: frozenset[int] = frozenset()
    members: list[Node] = field(default_factory=list)
    axes: dict[Node, Axes] = field(default_factory=dict)
    deps: int = 0  # bit set of the units this one depends on, transitively

    @property
    def bit(self) -> int:
        return 1 << self.number

    def full(self, node: Node) -> bool:
        """Whether the member's result has one element per point of the space."""
        return self.axes[node] == tuple(range(len(self.space))) and tuple(node.outputs[0].shape) == self.space

    def member_of(self, value: Value) -> Node | None:
        """The member that computes `value`, seen through views; None for values from outside."""
        node = value.node
        while node not in self.axes:
            if not is_view(node):
                return None
            node = node.inputs[0].node
        return node


Unit = Cluster | Node


def members(unit: Unit) -> list[Node]:
    """The nodes that a unit computes."""
    return unit.members if isinstance(unit, Cluster) else [unit]


class Fuser:
    """Assigns every node that computes something to a unit: a cluster, or a unit with one node."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.units: dict[int, Cluster | Node] = {}
        self.unit_of: dict[Node, int] = {}
        self.deps: dict[int, int] = {}
        self.outputs = set(flow.outputs)
        self.numbers = itertools.count()
        self.large: list[int] = []  # numbers of the clusters over many elements

    def run(self) -> list[Cluster | Node]:
        """The units in topological order."""
        for node in self.flow.nodes:
            if node.op is PLACEHOLDER or node.op is CONSTANT or is_view(node):
                continue
            if is_loop(node):
                self._place(node)
            else:
                self._single(node)
        self._join_siblings()
        return self._ordered()

    def _join_siblings(self) -> None:
        """Merge reductions of one large operand over the same axes: the gradients of weight and bias."""
        walks: dict[Any, list[int]] = {}
        for number, unit in self.units.items():
            if isinstance(unit, Cluster) and unit.reduced and prod(unit.space) >= MIN_SIBLING_ELEMENTS:
                for v in dict.fromkeys(v for n in unit.members for v in n.inputs if isinstance(v, Value)):
                    if v.node not in unit.axes and tuple(v.shape) == unit.space and v.node.op is not CONSTANT:
                        walks.setdefault((v, unit.reduced), []).append(number)
        for numbers in walks.values():
            first: Cluster | None = None
            for number in numbers:
                other = self.units.get(number)
                if not isinstance(other, Cluster) or other is first:
                    continue  # joined already
                if first is not None and self._can_join(first, other) and self._buffers(first, other) <= MAX_BUFFERS:
                    self._join(first, other)
                else:
                    first = other

    # Dependencies -----------------------------------------------------------------------------------------------------

    def producers(self, node: Node) -> list[Node]:
        """The nodes (not views) whose results this node reads."""
        found = []
        for v in node.inputs:
            if isinstance(v, Value):
                base = base_of(v).node
                if base.op is not PLACEHOLDER and base.op is not CONSTANT:
                    found.append(base)
        return found

    def _deps_of(self, node: Node) -> int:
        bits = 0
        for p in self.producers(node):
            unit = self.unit_of[p]
            bits |= self.deps[unit] | 1 << unit
        return bits

    def _single(self, node: Node) -> None:
        number = next(self.numbers)
        self.units[number] = node
        self.unit_of[node] = number
        self.deps[number] = self._deps_of(node)

    def _place(self, node: Node) -> None:
        """Put a loop node into the clusters of its producers, joined into one, or into a new cluster."""
        chosen: Cluster | None = None
        units = dict.fromkeys([self.unit_of[p] for p in self.producers(node)])
        clusters = [u for u in (self.units[number] for number in units) if isinstance(u, Cluster)]
        # the largest first: a per-row value is better read by the nest over rows than the other way round
        for unit in sorted(clusters, key=lambda u: -prod(u.space)):
            if chosen is None:
                if self._fits(node, unit):
                    chosen = unit
            elif self._fits(node, unit) and self._can_join(chosen, unit):
                joined = self._join(chosen, unit)
                if self._fits(node, joined):
                    chosen = joined
        if chosen is None:
            number = next(self.numbers)
            chosen = Cluster(number, self._space(node), self._reduced(node))
            self.units[number] = chosen
            self.deps[number] = 0
            if prod(chosen.space) >= LARGE_CLUSTER_ELEMENTS:
                self.large.append(number)
        self._add(node, chosen)

    @staticmethod
    def _space(node: Node) -> tuple[int, ...]:
        return tuple((node.outputs[0] if node.op.reduction is None else node.inputs[0]).shape)

    @staticmethod
    def _reduced(node: Node) -> frozenset[int]:
        if node.op.reduction is None:
            return frozenset()
        return frozenset(normalize_axes(node.op.name, node.attrs[0], len(node.inputs[0].shape)))

    def _axes_in(self, node: Node, cluster: Cluster) -> Axes | None:
        """The axes of the result of `node` in the space of `cluster`, or None if it does not fit."""
        rank = len(cluster.space)
        identity = tuple(range(rank))
        if node.op.reduction is not None:
            x = node.inputs[0]
            if tuple(x.shape) != cluster.space or cluster.reduced and cluster.reduced != self._reduced(node):
                return None
            source = self.aligned(x, cluster)
            if source is not None and source != identity:
                return None
            gone = self._reduced(node)
            if not gone and source is None and x.node in cluster.axes:
                return None
            return identity if node.attrs[1] else tuple([a for a in identity if a not in gone])
        shape = tuple(node.outputs[0].shape)
        inside = [a for a in (self.aligned(v, cluster) for v in self._aligned_inputs(node)) if a is not None]
        if shape == cluster.space:
            for axes in inside:
                if axes[len(axes) - len(identity) :] != identity[rank - len(axes) :] if len(axes) <= rank else True:
                    return None
            return identity
        if not cluster.reduced or not inside:
            return None
        # a reduced member: every operand from the cluster agrees on the axes
        axes = max(inside, key=len)
        if len(axes) != len(shape):
            return None
        for other in inside:
            if other != axes[len(axes) - len(other) :]:
                return None
        for d, a in zip(shape, axes, strict=True):
            if d != 1 and (a is None or a in cluster.reduced or cluster.space[a] != d):
                return None
            if d == 1 and a is not None and a not in cluster.reduced and cluster.space[a] != 1:
                return None
        return axes

    @staticmethod
    def _aligned_inputs(node: Node) -> list[Value]:
        """The operands that may come from the same cluster: those read at the loop's own index."""
        if node.op.gather is not None:
            return []
        return [v for v in node.inputs if isinstance(v, Value)]

    def aligned(self, value: Value, cluster: Cluster) -> Axes | None:
        """The axes of a value that a member of `cluster` computes (seen through views that keep the order of axes)."""
        node = value.node
        if node in cluster.axes:
            return cluster.axes[node]
        if not is_view(node):
            return None
        base = self.aligned(node.inputs[0], cluster)
        if base is None:
            return None
        return view_axes(node, base, len(cluster.space))

    def _fits(self, node: Node, cluster: Cluster) -> bool:
        if len(cluster.members) >= MAX_MEMBERS:
            return False
        if node in self.flow.late and not self.flow.late.issuperset(cluster.members):
            return False
        if self._axes_in(node, cluster) is None:
            return False
        # every producer in the cluster must be read through aligned views, or be stored first (then it is a cycle)
        for v in node.inputs:
            if isinstance(v, Value) and not self._reads_inside(v, cluster, node):
                return False
        return not self._deps_outside(node, cluster) & cluster.bit and self._buffers(cluster, node) <= MAX_BUFFERS

    def _reads_inside(self, value: Value, cluster: Cluster, node: Node) -> bool:
        """False if the value comes from the cluster in a way that needs it stored before the loops end."""
        if base_of(value).node not in cluster.axes:
            return True
        return value in self._aligned_inputs(node) and self.aligned(value, cluster) is not None

    def _deps_outside(self, node: Node, cluster: Cluster) -> int:
        bits = 0
        for p in self.producers(node):
            unit = self.unit_of[p]
            if unit != cluster.number:
                bits |= self.deps[unit] | 1 << unit
        return bits

    def _buffers(self, cluster: Cluster, extra: Node | Cluster) -> int:
        """The number of buffers of the cluster joined with another node or cluster."""
        others = members(extra)
        outside: set[int] = set()
        for n in (*cluster.members, *others):
            outside.update(
                id(v)
                for v in n.inputs
                if isinstance(v, Value) and v.node not in cluster.axes and v.node.op is not CONSTANT
            )
        return len(outside) + sum(1 for n in cluster.members if self._stored(n, cluster))

    def _stored(self, node: Node, cluster: Cluster) -> bool:
        return node.outputs[0] in self.outputs

    def _can_join(self, a: Cluster, b: Cluster) -> bool:
        if a.space != b.space or (a.reduced and b.reduced and a.reduced != b.reduced):
            return False
        if len(a.members) + len(b.members) >= MAX_MEMBERS:  # plus the node that reads both
            return False
        # a path a -> other -> b (or back) would become a cycle
        a_bit, b_bit = a.bit, b.bit
        a_deps, b_deps = self.deps[a.number], self.deps[b.number]
        for number, deps in self.deps.items():
            if deps & a_bit and b_deps >> number & 1 or deps & b_bit and a_deps >> number & 1:
                return False  # neither a nor b: no unit depends on itself
        return not self._waits(a, b)

    def _waits(self, a: Cluster, b: Cluster) -> bool:
        """Whether readers of one small sum would have to wait for a large nest that only the other one needs.

        Example: the count of valid labels needs no logits. Joined with the sum of the losses it would keep the gradient,
        which is divided by it, out of the nest that computes the losses.
        """
        size = prod(a.space)
        only_one = self.deps[a.number] ^ self.deps[b.number]
        if size > SMALL_CLUSTER_ELEMENTS or not only_one or not (a.reduced and b.reduced):
            return False
        for number in self.large:
            if only_one >> number & 1:
                unit = self.units.get(number)
                if isinstance(unit, Cluster) and prod(unit.space) >= 16 * size:
                    return True
        return False

    def _join(self, a: Cluster, b: Cluster) -> Cluster:
        a.members += b.members
        a.axes.update(b.axes)
        a.reduced = a.reduced or b.reduced
        for n in b.members:
            self.unit_of[n] = a.number
        merged = (self.deps[a.number] | self.deps[b.number]) & ~a.bit & ~b.bit
        del self.units[b.number]
        del self.deps[b.number]
        self.deps[a.number] = merged
        for number, deps in self.deps.items():
            if deps & (a.bit | b.bit):
                self.deps[number] = (deps & ~b.bit) | a.bit | merged
        return a

    def _add(self, node: Node, cluster: Cluster) -> None:
        axes = self._axes_in(node, cluster)
        if axes is None:  # the first member of its own cluster
            rank = len(cluster.space)
            axes = tuple(range(rank))
            if node.op.reduction is not None and not node.attrs[1]:
                axes = tuple([a for a in axes if a not in cluster.reduced])
        if node.op.reduction is not None:
            cluster.reduced = cluster.reduced or self._reduced(node)
        new = self._deps_outside(node, cluster)
        first = not cluster.members  # it has no dependents yet
        cluster.members.append(node)
        cluster.axes[node] = axes
        self.unit_of[node] = cluster.number
        before = self.deps[cluster.number]
        after = before | new
        if after != before:
            self.deps[cluster.number] = after
        if after != before and not first:
            bit = cluster.bit
            for number, deps in self.deps.items():
                if deps & bit:
                    self.deps[number] = deps | after

    def _ordered(self) -> list[Cluster | Node]:
        """Units sorted so that each comes after those it depends on; among ready ones the earliest node first."""
        import heapq

        waiting: dict[int, int] = {}
        users: dict[int, list[int]] = {}
        for number, unit in self.units.items():
            nodes = members(unit)
            needs = {self.unit_of[p] for n in nodes for p in self.producers(n)} - {number}
            waiting[number] = len(needs)
            for other in needs:
                users.setdefault(other, []).append(number)
        key = {
            number: min(n.order for n in unit.members) if isinstance(unit, Cluster) else unit.order
            for number, unit in self.units.items()
        }
        ready = [(key[n], n) for n, count in waiting.items() if count == 0]
        heapq.heapify(ready)
        order: list[Cluster | Node] = []
        while ready:
            _, number = heapq.heappop(ready)
            order.append(self.units[number])
            for user in users.get(number, ()):
                waiting[user] -= 1
                if waiting[user] == 0:
                    heapq.heappush(ready, (key[user], user))
        assert len(order) == len(self.units), "fusion made a cycle"
        return order


def view_axes(node: Node, base: Axes, rank: int) -> Axes | None:
    """The axes of a view's result, given those of its input, or None if the view moves elements."""
    assert node.op.view is not None
    axes = node.op.view.axes(tuple(node.inputs[0].shape), base, tuple(node.outputs[0].shape), *node.attrs)
    if axes is None:
        return None
    if len(axes) == rank:  # fill in axes of size 1 by position
        filled = tuple([i if a is None else a for i, a in enumerate(axes)])
        return (
            filled
            if filled == tuple(range(rank))
            else None
            if any(a is not None and a != i for i, a in enumerate(axes))
            else axes
        )
    return axes


def dump(units: list[Any]) -> str:
    """The units as text, for debugging."""
    lines = []
    for u in units:
        if isinstance(u, Cluster):
            lines.append(f"cluster {u.space} reduce {sorted(u.reduced)}: {', '.join(n.name for n in u.members)}")
        else:
            lines.append(f"node {u.name}: {u.op.name}")
    return "\n".join(lines)
