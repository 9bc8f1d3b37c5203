"""Cut a placed step into one graph per task, joined only by send and receive nodes.

Every value that is made on one task and used on another becomes one `send` there and one `receive` here, however many nodes
use it; a control edge between tasks is a send of nothing. Edges have numbers, and with the client's number and the step's
these are the keys by which the two ends find each other (`weft.distributed.rendezvous`). Fed values are placeholders of every
part that uses them; constants are copied. The part of the client's own process is cut in the same way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..graph.declared.building import DeclaredGraph, GraphOp
from ..graph.declared.queues import _QueueOp
from ..graph.declared.routing import frame_of
from ..graph.execute.placement import Constraint
from ..graph.graph import CONSTANT, PLACEHOLDER, Graph, Node, Value
from ..ops.core.spec import Spec
from ..runtime.device import Device

CLIENT = -1  # the number of the client's process among the tasks


class SendOp(GraphOp):
    """Sends its input, or with none the news that its control edges have run, to another task of the step."""

    def __init__(self, edge: int, destination: int, handle: int = 0) -> None:
        super().__init__("send")
        self.edge, self.destination = edge, destination
        self.handle = handle  # of the receiving part if the value may begin its step there, else 0

    def results_of(self, inputs: Sequence[Spec], stored: Sequence[Spec]) -> list[Spec]:
        if len(inputs) > 1:
            raise ValueError(f"send has one input or none. Got {len(inputs)}.")
        return []


class ReceiveOp(GraphOp):
    """What another task of the step sends; for a control edge, that it was sent."""

    def __init__(self, edge: int, source: int) -> None:
        super().__init__("receive")
        self.edge, self.source = edge, source

    def results_of(self, inputs: Sequence[Spec], stored: Sequence[Spec]) -> list[Spec]:
        if inputs or len(stored) > 1:
            raise ValueError("receive has no inputs and at most one result.")
        return list(stored)


@dataclasses.dataclass(frozen=True)
class Edge:
    """A crossing: `what` is a value, or for a control edge a node."""

    number: int
    what: Value | Node
    source: int
    destination: int

    @property
    def name(self) -> str:
        return self.what.name if isinstance(self.what, Value) else f"^{self.what.name}"

    @property
    def maker(self) -> Node:
        return self.what.node if isinstance(self.what, Value) else self.what

    @property
    def nbytes(self) -> int | None:
        """Bytes per step; None if a size is open."""
        if not isinstance(self.what, Value):
            return 0
        return None if not isinstance(self.what.size, int) else self.what.nbytes


class Part:
    """The nodes of one task in one step.

    Attributes:
        task: its number, or CLIENT.
        graph: its nodes, with placeholders for fed values, and with send and receive nodes.
        fed, fetched: values of the step that it is fed and that it answers with, and what they are in `graph`.
        origin: the node of the step that a node of `graph` is the copy of; for a receive, the node that makes the value.
        answers: whether the client waits for its end: the ends of other parts are known from what they send.
        keeps: whether elements that it dequeues may have to go back after it has ended.
        leased: whether another part dequeues.
        implied: whether it has nothing to do before a value comes: then the first one begins its step, without a message.
    """

    def __init__(self, task: int, name: str) -> None:
        self.task, self.graph = task, DeclaredGraph(name)
        self.fed: dict[Value, Value] = {}
        self.fetched: dict[Value, Value] = {}
        self.origin: dict[Node, Node] = {}
        self.answers = self.keeps = self.leased = self.implied = False
        self._values: dict[Value, Value] = {}
        self._nodes: dict[Node, Node] = {}

    @property
    def work(self) -> list[Node]:
        """The nodes that compute something."""
        return [
            n for n in self.graph.nodes
            if n.op is not CONSTANT and n.op is not PLACEHOLDER and not isinstance(n.op, (SendOp, ReceiveOp))
        ]  # fmt: skip

    def _add(self, op: Any, inputs: Sequence[Any], attrs: Any, specs: Sequence[Any], origin: Node, name: str) -> Node:
        made = Graph.add(self.graph, op, inputs, attrs, specs, origin.where, name)
        self.graph._by_name[made.name] = made
        self.origin[made] = origin
        return made


def _specs(node: Node) -> list[Spec]:
    return [Spec(v.shape, v.dtype) for v in node.outputs]


class Cut:
    """The parts of a step, by task, and the edges between them.

    Args:
        nodes: of the step, in order.
        fed, fetched: its fed and fetched values.
        place: the device of every node that computes.
        task_of: the number of the task that a device belongs to.
        in_process: the op that stands for one in the client's process.
    """

    def __init__(
        self, nodes: Sequence[Node], fed: set[Value], fetched: Sequence[Value], place: Mapping[Node, Device],
        task_of: Callable[[Device], int], name: str, in_process: Callable[[Any], Any] = lambda op: op,
    ) -> None:  # fmt: skip
        self.parts: dict[int, Part] = {}
        self.edges: list[Edge] = []
        self._fed, self._name, self._in_process = fed, name, in_process
        self._task = {node: task_of(device) for node, device in place.items()}
        self._outgoing: dict[Any, list[Edge]] = {}
        self._between: dict[tuple[Any, int], Edge] = {}
        self._received: dict[Edge, Node] = {}
        self._find_edges(nodes)
        merges: list[tuple[Part, Node, Node]] = []
        for node in nodes:
            if node in self._task:
                part = self._part(self._task[node])
                made = self._copy(part, node, place[node])
                if node.op.routes == "merge":
                    merges.append((part, node, made))
        for part, node, made in merges:  # their last inputs, which `next_iteration` makes, come after them
            made.inputs = tuple([self._input(part, v) for v in node.inputs])
        for value in fetched:
            if value not in fed and value.node in self._task:
                part = self._part(self._task[value.node])
                part.fetched[value] = part._values[value]
        for part in self.parts.values():
            self._finish(part)
        for part in self.parts.values():
            part.leased = any(other.keeps for other in self.parts.values() if other is not part)
        if not any(part.keeps for part in self.parts.values()):
            for part in self.parts.values():
                part.implied = part.task != CLIENT and not part.fed and not any(_is_root(n) for n in part.graph.nodes)

    def _part(self, task: int) -> Part:
        found = self.parts.get(task)
        if found is None:
            found = self.parts[task] = Part(task, self._name)
        return found

    def _find_edges(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            here = self._task.get(node)
            if here is None:
                continue
            used = {v.node for v in node.inputs if v.__class__ is Value and v not in self._fed}
            for v in node.inputs:
                if v.__class__ is Value and v not in self._fed and v.node in self._task:
                    self._find(v, v.node, here)
            for other in node.control:
                if other in self._task and (other not in used or node.op.routes or frame_of(node)):
                    self._find(other, other, here)

    def _find(self, what: Any, maker: Node, here: int) -> None:
        there = self._task[maker]
        if there != here and (what, here) not in self._between:
            edge = Edge(len(self.edges), what, there, here)
            self._between[what, here] = edge
            self._outgoing.setdefault(what, []).append(edge)
            self.edges.append(edge)

    def _copy(self, part: Part, node: Node, device: Device) -> Node:
        inputs = [self._input(part, v) for v in node.inputs if not _comes_back(node, v)]
        control = [self._before(part, other) for other in node.control if other in self._task]
        op = self._in_process(node.op) if part.task == CLIENT else node.op
        made = part._add(op, inputs, node.attrs, _specs(node), node, node.name)
        made.control = tuple(dict.fromkeys([c for c in control if c is not None]))
        made.device = (Constraint(device.kind, device.index, None, None, False),)
        if frame := frame_of(node):
            part.graph.frames[made] = frame
        part._nodes[node] = made
        for old, new in zip(node.outputs, made.outputs, strict=True):
            part._values[old] = new
            for edge in self._outgoing.get(old, ()):
                part._add(SendOp(edge.number, edge.destination), [new], (), (), node, f"send/{edge.name}")
        for edge in self._outgoing.get(node, ()):
            send = part._add(SendOp(edge.number, edge.destination), (), (), (), node, f"send/{edge.name}")
            send.control = (made,)
        return made

    def _input(self, part: Part, value: Any) -> Any:
        if value.__class__ is not Value:
            return value
        found = part._values.get(value)
        if found is not None:
            return found
        node = value.node
        if value in self._fed:
            made = part._add(PLACEHOLDER, (), (), (Spec(value.shape, value.dtype),), node, f"feed/{value.name}")
            part.fed[value] = made.outputs[0]
        elif node.op is CONSTANT:
            made = part._add(CONSTANT, (), node.attrs, _specs(node), node, node.name)
        else:
            made = self._receive(part, self._between[value, part.task], [Spec(value.shape, value.dtype)])
        part._values[value] = made.outputs[0]
        return made.outputs[0]

    def _before(self, part: Part, node: Node) -> Node | None:
        """What stands for a node, here or on another task, in the control edges of a part."""
        found = part._nodes.get(node)
        if found is None:
            edge = self._between.get((node, part.task))
            if edge is None:  # a value of it is waited for
                return None
            found = part._nodes[node] = self._receive(part, edge, ())
        return found

    def _receive(self, part: Part, edge: Edge, specs: Sequence[Spec]) -> Node:
        found = self._received.get(edge)
        if found is None:
            op = ReceiveOp(edge.number, edge.source)
            found = self._received[edge] = part._add(op, (), (), specs, edge.maker, f"receive/{edge.name}")
        return found

    def _finish(self, part: Part) -> None:
        used: set[Node] = set()
        for node in part.graph.nodes:
            used.update(v.node for v in node.inputs if isinstance(v, Value))
            used.update(node.control)
        ends = [n for n in part.work if n not in used]
        part.answers = bool(ends or part.fetched)
        part.keeps = len(self.parts) > 1 and any(
            isinstance(n.op, _QueueOp) and n.op.method.startswith("dequeue") for n in part.work
        )


def _is_root(node: Node) -> bool:
    """Whether a node of a part waits for nothing."""
    if node.op is CONSTANT or node.op is PLACEHOLDER or isinstance(node.op, ReceiveOp):
        return False
    return not node.control and all(v.__class__ is not Value or v.node.op is CONSTANT for v in node.inputs)


def _comes_back(node: Node, value: Any) -> bool:
    """Whether an input of a loop's merge comes from the end of the loop."""
    return node.op.routes == "merge" and value.__class__ is Value and value.node.op.routes == "next_iteration"
