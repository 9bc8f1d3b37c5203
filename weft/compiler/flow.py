"""Flow: the graph a compiler works on, purely functional: inputs in, outputs out, nothing else is observable.

Passes are functions from Flow to Flow. `rebuild` copies a flow node by node and lets a rule replace some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import Location
from ..graph.graph import CONSTANT, PLACEHOLDER, Graph, Node, Value, format_graph
from ..ops.spec import Spec


class Flow(Graph):
    """Nodes from `inputs` (placeholders, in order) to `outputs`."""

    def __init__(self, name: str = "flow") -> None:
        super().__init__(name)
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.current: Location | None = None  # given to nodes that a rule adds

    def add(
        self,
        op: Any,
        inputs: Sequence[Any],
        attrs: tuple[Any, ...],
        specs: Any,
        where: Any = None,
        name: Any = None,
    ) -> Node:
        return super().add(
            op, inputs, attrs, specs, self.current if self.current is not None else where, name
        )

    def __str__(self) -> str:
        return format_graph(self, self.outputs)


LASTING = frozenset(("print", "check"))

Rule = Callable[[Flow, Node, tuple[Any, ...]], Sequence[Value] | None]


def from_graph(graph: Graph, inputs: Sequence[Value], outputs: Sequence[Value]) -> Flow:
    """A Flow with the nodes that `outputs` need."""
    flow = Flow(graph.name)
    _copy(flow, graph.nodes, inputs, outputs, None)
    return flow


def rebuild(flow: Flow, rule: Rule | None = None) -> Flow:
    """A copy of the nodes that the outputs need; `rule(new_flow, node, new_inputs)` may return replacement values."""
    new = Flow(flow.name)
    _copy(new, flow.nodes, flow.inputs, flow.outputs, rule)
    return new


def _copy(
    new: Flow, nodes: Sequence[Node], inputs: Sequence[Value], outputs: Sequence[Value], rule: Rule | None
) -> None:
    needed: set[Node] = set()
    stack = [v.node for v in outputs]
    stack += [
        n for n in nodes if n.op.effects & LASTING
    ]  # prints and checks run although nobody reads their result
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            stack.extend(v.node for v in node.inputs if isinstance(v, Value))
    mapped: dict[Value, Value] = {}
    for v in inputs:
        made = new.add(PLACEHOLDER, (), (), (Spec(v.shape, v.dtype),), v.node.where, v.node.name).outputs[0]
        mapped[v] = made
        new.inputs.append(made)
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
            replaced = new.add(
                node.op, args, node.attrs, [Spec(v.shape, v.dtype) for v in node.outputs], node.where
            ).outputs
        for old, value in zip(node.outputs, replaced, strict=True):
            mapped[old] = value
    new.outputs = [mapped[v] for v in outputs]
