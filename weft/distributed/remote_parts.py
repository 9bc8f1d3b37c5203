"""Parts of a step as text, for the tasks that run them: the form of graph files, with state by name instead of by value.

A task reads a part as it would read a graph file: every field, reference, version and shape is checked, ops come from the
table and functions from the allow-list (`weft.graph.declared.loading`). In addition to the nodes of files a part has send
and receive nodes and those that lowering makes. Variables, queues and barriers are named by key; the task has them already.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..errors import Location
from ..graph.declared.building import DeclaredGraph
from ..graph.declared.loading import _JSON_DEPTH, MAX_PROGRAM_BYTES, _Reader
from ..graph.declared.queues import Barrier, Queue, _BarrierOp
from ..graph.declared.serialize import QUEUES, _encode_shape, _encode_spec, _Writer
from ..graph.declared.variables import State
from ..graph.execute.control_lowering import STEP_OPS
from ..graph.graph import Graph, Node, Value
from ..io.checked import Checked, parse_json
from ..ops.core.spec import Spec
from .remote_partition import Part, ReceiveOp, SendOp

FORMAT, VERSION = "weft-part", 1
MAX_TASKS = 1 << 16
MAX_HANDLE = (1 << 32) - 1


class PartError(ValueError):
    """A part that cannot be run here."""


def refuse(reason: str, place: str) -> Exception:
    return PartError(f"part: {place + ': ' if place else ''}{reason}")


# Writing ------------------------------------------------------------------------------------------------------------


class Keys(Protocol):
    """The names of state on its task."""

    def of(self, what: State | Queue | Barrier) -> str: ...


def queue_facts(queue: Queue) -> dict[str, Any]:
    """What a task needs to make a queue like this one."""
    return {
        "kind": queue.kind, "name": queue.name, "capacity": queue.capacity, "dtypes": [d.name for d in queue.dtypes],
        "shapes": [_encode_shape(s) for s in queue.shapes], "single": queue.single,
        "reserve": getattr(queue, "min_after_dequeue", 0),
    }  # fmt: skip


class _PartWriter(_Writer):
    def __init__(self, keys: Keys) -> None:
        super().__init__()
        self.keys = keys
        self.barriers: dict[int, dict[str, Any]] = {}

    def node(self, node: Node) -> dict[str, Any]:
        entry = super().node(node)
        if node.where is not None:
            entry["where"] = str(node.where)
        return entry

    def op(self, node: Node) -> dict[str, Any]:
        op = node.op
        if isinstance(op, SendOp):
            return {"kind": "send", "edge": op.edge, "task": op.destination, "handle": op.handle}
        if isinstance(op, ReceiveOp):
            return {"kind": "receive", "edge": op.edge, "task": op.source}
        if isinstance(op, _BarrierOp):
            return {"kind": "barrier", "barrier": self.barrier(op.barrier)}
        made = STEP_OPS.get(op.name)
        if made is not None and op.__class__ is made[0]:
            value = None if made[1] is None else getattr(op, made[1])
            return {"kind": "step", "how": op.name, "value": _encode_spec(value) if isinstance(value, Spec) else value}
        return super().op(node)

    def state(self, state: State) -> int:
        if id(state) not in self.states:
            data = state.tensor._data
            self.states[id(state)] = {
                "index": len(self.states), "key": self.keys.of(state), "name": state.name,
                "shape": list(data.shape), "dtype": data.dtype.name,
            }  # fmt: skip
        return int(self.states[id(state)]["index"])

    def queue(self, queue: Queue) -> int:
        if id(queue) not in self.queues:
            if queue.kind not in QUEUES:
                raise TypeError(f"session: a queue of kind {queue.kind!r} cannot be on a task.")
            self.queues[id(queue)] = {"index": len(self.queues), "key": self.keys.of(queue)}
        return int(self.queues[id(queue)]["index"])

    def barrier(self, barrier: Barrier) -> int:
        if id(barrier) not in self.barriers:
            self.barriers[id(barrier)] = {"index": len(self.barriers), "key": self.keys.of(barrier)}
        return int(self.barriers[id(barrier)]["index"])


@dataclasses.dataclass(frozen=True)
class Written:
    """A part as it is sent: its text, the names and values of its arrays, and the states, queues and barriers it uses."""

    text: bytes
    names: list[str]
    arrays: list[np.ndarray]


def write_part(part: Part, keys: Keys, mode: str) -> Written:
    """A part for its task. `mode` says how it is run: "dataflow", "tokens" or "nodes"."""
    writer = _PartWriter(keys)
    program = writer.graph(part.graph)
    data = {
        "format": FORMAT, "version": VERSION, "mode": mode, "graph": program, "states": list(writer.states.values()),
        "queues": list(writer.queues.values()), "barriers": list(writer.barriers.values()),
        "fed": [v.node.order for v in part.fed.values()],
        "fetched": [[v.node.order, v.index] for v in part.fetched.values()],
        "answers": part.answers, "keeps": part.keeps, "leased": part.leased,
    }  # fmt: skip
    arrays = writer.weights.arrays
    return Written(json.dumps(data, separators=(",", ":")).encode(), list(arrays), list(arrays.values()))


# Reading ------------------------------------------------------------------------------------------------------------


class Store(Protocol):
    """What a task holds, by key; KeyError if there is no such thing."""

    states: dict[str, State]
    queues: dict[str, Queue]
    barriers: dict[str, Barrier]


class SentLine(Location):
    """The user's line in the client's program."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        super().__init__(SentLine.__init__.__code__, 0)
        self.text = text

    def __str__(self) -> str:
        return self.text

    @property
    def short(self) -> str:
        return self.text.partition(" in ")[0]

    @property
    def place(self) -> str:
        return self.text


class _PartReader(_Reader):
    """Builds the graph of a part; what it uses is in the store."""

    def __init__(self, data: Checked, arrays: Mapping[str, np.ndarray], store: Store) -> None:
        self.store = store
        super().__init__(data, arrays, lambda path: True)  # the client is the user: it may write what the task may
        self.places = [self._found(b, "barriers") for b in data["barriers"].items()]

    def _found(self, entry: Checked, kind: str) -> Any:
        found = getattr(self.store, kind).get(entry["key"].text())
        if found is None:
            entry["key"].fail(f"this task has no such thing among its {kind}: {entry['key'].value!r}.")
        return found

    def state(self, number: int, entry: Checked) -> State:
        found: State = self._found(entry, "states")
        shape = tuple([d.integer(0) for d in entry["shape"].items()])
        if found.tensor.shape != shape or found.tensor.dtype != self.dtype(entry["dtype"]):
            entry.fail(f"it is {found.tensor.dtype.name} {found.tensor.shape} on the task.")
        return found

    def queue(self, number: int, entry: Checked) -> Queue:
        found: Queue = self._found(entry, "queues")
        return found

    def node(self, graph: Graph, entry: Checked, *rest: Any) -> Node:
        node = super().node(graph, entry, *rest)
        where = entry.get("where")
        if where is not None:
            node.where = SentLine(where.text())
        return node

    def link(self, graph: Graph, node: Node, entry: Checked, tensors: Any) -> None:
        """A part is not differentiated: it needs no tape."""
        if isinstance(graph, DeclaredGraph):
            frame = entry.get("frame")
            if frame is not None:
                graph.frames[node] = tuple([f.text() for f in frame.items()])
            graph._by_name[node.name] = node

    def op(self, entry: Checked, inputs: Sequence[Any], depth: int) -> Any:
        kind = entry.get("kind")
        if kind is None or depth:
            return super().op(entry, inputs, depth)
        if kind.value == "receive":
            return ReceiveOp(entry["edge"].integer(0), entry["task"].integer(-1, MAX_TASKS))
        if kind.value == "send":
            handle = entry["handle"].integer(0, MAX_HANDLE)
            return SendOp(entry["edge"].integer(0), entry["task"].integer(-1, MAX_TASKS), handle)
        if kind.value == "barrier":
            return _BarrierOp(entry["barrier"].index(self.places))
        if kind.value == "step":
            op, attribute = STEP_OPS[entry["how"].text(STEP_OPS)]
            make: Any = op
            return make() if attribute is None else make(self.value_of(attribute, entry["value"]))
        return super().op(entry, inputs, depth)

    def program(self) -> DeclaredGraph:
        program = self.data["graph"]
        graph = DeclaredGraph(program["name"].text())
        self.fill(graph, program["nodes"], 0)
        return graph

    def value_of(self, attribute: str, entry: Checked) -> Any:
        if attribute == "spec":
            return self.spec(entry)
        if attribute == "n":
            return None if entry.value is None else entry.integer(0)
        return entry.boolean()


@dataclasses.dataclass(frozen=True)
class Read:
    """A part that was read."""

    graph: DeclaredGraph
    mode: str
    fed: list[Value]
    fetched: list[Value]
    answers: bool
    keeps: bool
    leased: bool


def read_part(text: bytes, arrays: Mapping[str, np.ndarray], store: Store) -> Read:
    """A part that `write_part` wrote.

    Raises:
        PartError: it holds something that is not allowed, or that this task does not have.
    """
    from ..optim import steps as steps  # for its ops

    data = parse_json(text, refuse, MAX_PROGRAM_BYTES, _JSON_DEPTH)
    if data["format"].text() != FORMAT or data["version"].integer(1) != VERSION:
        data.fail(
            f"expected the format {FORMAT} of version {VERSION}; client and tasks must be of one version of Weft."
        )
    graph = _PartReader(data, arrays, store).program()
    nodes: list[Node] = graph.nodes
    for node in nodes:
        if isinstance(node.op, SendOp) and (len(node.inputs), len(node.control)) not in ((1, 0), (0, 1)):
            raise refuse(f"node {node.name!r} sends neither one value nor the end of one node.", "graph")
        if isinstance(node.op, ReceiveOp) and (node.inputs or len(node.outputs) > 1):
            raise refuse(f"node {node.name!r} receives more than one value.", "graph")
    fed = [_PartReader.first(graph, entry) for entry in data["fed"].items()]
    fetched = []
    for entry in data["fetched"].items():
        order, index = entry.items(2)
        fetched.append(index.index(order.index(nodes).outputs))
    mode = data["mode"].text(("dataflow", "tokens", "nodes"))
    facts = [data[name].boolean() for name in ("answers", "keeps", "leased")]
    return Read(graph, mode, fed, fetched, *facts)
