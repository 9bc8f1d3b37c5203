"""Flow: the compiler's graph. It is purely functional: inputs in, outputs out, nothing else is observable.

Passes are functions from Flow to Flow. `rebuild` copies a flow node by node and lets a rule replace some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import Location
from ..graph.graph import CONSTANT, PLACEHOLDER, Graph, Node, Value, format_graph
from ..ops.core.registry import get


class Flow(Graph):
    """Nodes from `inputs` (placeholders, in order) to `outputs`."""

    def __init__(self, name: str = "flow") -> None:
        super().__init__(name)
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.late: set[Node] = set()  # recomputed nodes: never merged with the originals
        self.current: Location | None = None  # names for nodes that a rule adds
        self._taken: frozenset[str] = frozenset()  # names of inputs: a pull-back's may equal those of its nodes

    def add(
        self, op: Any, inputs: Sequence[Any], attrs: tuple[Any, ...], specs: Any, where: Any = None, name: Any = None
    ) -> Node:
        return super().add(op, inputs, attrs, specs, self.current if self.current is not None else where, name)

    def again(self, node: Node, inputs: tuple[Any, ...]) -> tuple[Value, ...]:
        """Append a copy of a node of another flow, on other inputs; returns its outputs."""
        name = node.name if node.name not in self._taken else self.unique_name(node.name)
        made = Node(self, node.op, inputs, node.attrs, name)
        made.outputs = outputs = tuple([Value(made, v.index, v.shape, v.dtype) for v in node.outputs])
        made.where = node.where
        made.order = len(self.nodes)
        self.nodes.append(made)
        if isinstance(node.graph, Flow) and node in node.graph.late:
            self.late.add(made)
        return outputs

    def second(
        self, value: Value, again: Callable[[Value], bool], place: dict[Value, Value], made: dict[Any, Value]
    ) -> Value:
        """Append a recomputation of `value`, and of its operands as far as `again(operand)` holds.

        Other operands are reused: `place` maps values of the old flow to values of this one. `made` holds the existing
        recomputations, and gets the new ones.
        """
        if value not in made:
            node = value.node
            inputs = [
                v if not isinstance(v, Value) else self.second(v, again, place, made) if again(v) else place[v]
                for v in node.inputs
            ]
            copy = Graph.add(self, node.op, inputs, node.attrs, [value], node.where)
            self.late.add(copy)
            made[value] = copy.outputs[0]
        return made[value]

    def uses(self) -> dict[Value, int]:
        """The number of uses of every value, by nodes and as an output."""
        found: dict[Value, int] = {}
        for node in self.nodes:
            for v in node.inputs:
                if isinstance(v, Value):
                    found[v] = found.get(v, 0) + 1
        for v in self.outputs:
            found[v] = found.get(v, 0) + 1
        return found

    def readers(self) -> dict[Value, list[Node]]:
        """The nodes that read a value, once per use."""
        found: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for v in node.inputs:
                if isinstance(v, Value):
                    found.setdefault(v, []).append(node)
        return found

    def __str__(self) -> str:
        return format_graph(self, self.outputs)


FILLED = get("filled")


def filled_with(value: Any) -> Any:
    """The number that every element of a `filled` value has; None for other values."""
    return value.node.attrs[1] if isinstance(value, Value) and value.node.op is FILLED else None


Rule = Callable[[Flow, Node, tuple[Any, ...]], Sequence[Value] | None]


def from_graph(
    graph: Graph, inputs: Sequence[Value], outputs: Sequence[Value], observed: Callable[[Node], bool] | None = None
) -> Flow:
    """A Flow with the nodes that `outputs` need, and with the checks and prints for which `observed` holds; by default, all."""
    flow = Flow(graph.name)
    _copy(flow, graph, inputs, outputs, None, observed)
    return flow


def rebuild(flow: Flow, rule: Rule | None = None) -> Flow:
    """A copy of the nodes that the outputs need; `rule(new_flow, node, new_inputs)` may return replacement values."""
    new = Flow(flow.name)
    _copy(new, flow, flow.inputs, flow.outputs, rule)
    return new


def _copy(
    new: Flow,
    old: Graph,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    rule: Rule | None,
    observed: Callable[[Node], bool] | None = None,
) -> None:
    nodes = old.nodes
    needed: set[Node] = set()
    stack = [v.node for v in outputs]
    stack += [n for n in nodes if n.op.observes and (observed is None or observed(n))]
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            stack.extend(v.node for v in node.inputs if isinstance(v, Value))
    mapped: dict[Value, Value] = {}
    for v in inputs:
        mapped[v] = made = new.add(PLACEHOLDER, (), (), (v,), v.node.where, v.node.name).outputs[0]
        new.inputs.append(made)
    new._taken = frozenset([v.node.name for v in new.inputs])
    new._names.update(old._names)  # copies keep their names, so new nodes must avoid all names in use
    for node in nodes:
        if node not in needed or node.op is PLACEHOLDER:
            continue
        if node.op is CONSTANT:
            mapped[node.outputs[0]] = new.constant(node.attrs[0])
            continue
        args = tuple([mapped[v] if isinstance(v, Value) else v for v in node.inputs])
        replaced = None
        if rule is not None:
            new.current = node.where
            replaced = rule(new, node, args)
            new.current = None
        if replaced is None:
            replaced = new.again(node, args)
        for before, value in zip(node.outputs, replaced, strict=True):
            mapped[before] = value
    new.outputs = [mapped[v] for v in outputs]
