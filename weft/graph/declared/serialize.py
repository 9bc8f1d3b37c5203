"""Write graphs and variables to disk, without pickle.

A graph is two files: `name.json`, the program, and `name.safetensors`, its constants and variables, which the program
refers to by key; `weft.graph.declared.graph_files` writes them as one and finds the two that belong together. The JSON has a
format name and a version; every node has its op's name and version, typed attributes, output dtypes and (perhaps
symbolic) shapes, device constraints, control edges and the user's line as text. Control flow and `assign_fn` carry
subgraphs in the same form. Python callables are never stored: an attribute that is not data is an error that names the
node.

`weft.graph.declared.loading` reads these files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ... import random
from ...errors import user_location
from ...io.durable import replace_file
from ...io.shards import index_file, read_sharded
from ...io.tensor_file import read_arrays, write_arrays
from ...ops.array.indexing import Slice
from ...ops.core.attributes import field_names, name_of
from ...ops.core.registry import Op
from ...ops.core.spec import Symbol
from ...tensor import Tensor
from ..capture.control_flow import ControlOp
from ..capture.subgraph import Sub
from ..graph import CONSTANT, PLACEHOLDER, Graph, Node, Value
from .building import NO_OP, DeclaredGraph, GraphOp, IterationNumbers, get_default_graph, stay_with
from .callables import stored_name
from .deferred_nodes import DeferredCall, DeferredGradient, DeferredOp, DeferredRule, Place
from .graph_files import write_graph_files
from .queues import FIFOQueue, PriorityQueue, Queue, RandomShuffleQueue, StagingArea, _BarrierOp, _QueueOp
from .routing import RoutingOp
from .variables import ReadOp, State, Variable, WriteOp, locked

ndarray = np.ndarray
FORMAT, VERSION = "weft-graph", 1
QUEUES: dict[str, type[Queue]] = {q.kind: q for q in (FIFOQueue, PriorityQueue, RandomShuffleQueue, StagingArea)}
_PLAIN = {np.dtype(t) for t in ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")}


# Attributes ---------------------------------------------------------------------------------------------------------------


class _Weights:
    """Arrays by key, as safetensors takes them; dtypes it does not know are stored as bytes."""

    def __init__(self) -> None:
        self.arrays: dict[str, ndarray] = {}

    def put(self, array: ndarray, prefix: str = "array") -> dict[str, Any]:
        key = f"{prefix}.{len(self.arrays)}"
        plain = np.ascontiguousarray(array)
        self.arrays[key] = plain if array.dtype in _PLAIN else plain.reshape(-1).view(np.uint8)
        return {"array": key, "dtype": array.dtype.name, "shape": list(array.shape)}


def _encode(value: Any, weights: _Weights, node: Node) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return {"float": float(value).hex()}
    if isinstance(value, complex):
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if isinstance(value, np.dtype):
        return {"dtype": value.name}
    if isinstance(value, Slice):
        return {"index": [_encode(v, weights, node) for v in value]}
    if type(value) is tuple:
        return {"tuple": [_encode(v, weights, node) for v in value]}
    if isinstance(value, list):
        return {"list": [_encode(v, weights, node) for v in value]}
    if isinstance(value, dict):
        return {"dict": [[_encode(k, weights, node), _encode(v, weights, node)] for k, v in value.items()]}
    if isinstance(value, Place):
        return {"place": value.index}
    if isinstance(value, slice):
        return {"slice": [_encode(v, weights, node) for v in (value.start, value.stop, value.step)]}
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, Symbol):
        return {"symbol": value.name}
    if isinstance(value, ndarray):
        return weights.put(value)
    if (name := name_of(value)) is not None:
        fields = field_names(value.__class__)
        return {name: {field: _encode(getattr(value, field), weights, node) for field in fields}}
    raise TypeError(
        f"save: node {node.name!r} ({node.op.name}) has an attribute of type {type(value).__name__}, which cannot be stored. "
        f"Made at {node.where}."
    )


def _encode_shape(shape: Any) -> Any:
    return None if shape is None else [d if d is None or isinstance(d, int) else {"symbol": str(d)} for d in shape]


def _encode_spec(spec: Any) -> dict[str, Any]:
    return {"shape": _encode_shape(spec.shape), "dtype": spec.dtype.name}


def _function_name(function: Any, node: Node) -> dict[str, Any]:
    """How the function of a deferred node is stored: as an op of the table, or as a function of the allow-list."""
    op = getattr(function, "op", None)
    if op is not None:
        return {"name": op.name, "version": op.version}
    found = stored_name(function)
    if found is None:
        raise TypeError(
            f"save: node {node.name!r} calls {function.__name__!r}, which is no op and no public function that files may "
            f"name (see docs/security.md). Made at {node.where}."
        )
    name, version = found
    return {"function": name, "version": version}


# Saving -------------------------------------------------------------------------------------------------------------------


class _Writer:
    def __init__(self) -> None:
        self.weights = _Weights()
        self.states: dict[int, dict[str, Any]] = {}
        self.queues: dict[int, dict[str, Any]] = {}

    def graph(self, graph: Graph) -> dict[str, Any]:
        return {"name": graph.name, "nodes": [self.node(n) for n in graph.nodes]}

    def node(self, node: Node) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "name": node.name,
            "op": self.op(node),
            "inputs": [
                [v.node.order, v.index] if isinstance(v, Value) else {"attr": _encode(v, self.weights, node)}
                for v in node.inputs
            ],
            "attrs": [_encode(a, self.weights, node) for a in node.attrs],
            "outputs": [_encode_spec(v) for v in node.outputs],
        }
        if node.control:
            entry["control"] = [n.order for n in node.control]
        if node.device:
            entry["device"] = [list(c) for c in node.device]
        if isinstance(node.graph, DeclaredGraph) and node in node.graph.frames:
            entry["frame"] = list(node.graph.frames[node])
        if node.where is not None:
            entry["where"] = node.where.place
        return entry

    def op(self, node: Node) -> dict[str, Any]:
        op = node.op
        if isinstance(op, Op):
            return {"name": op.name, "version": op.version}
        if op is PLACEHOLDER or op is CONSTANT or op is NO_OP or isinstance(op, IterationNumbers):
            return {"kind": op.name}
        if isinstance(op, ReadOp):
            return {"kind": "read", "state": self.state(op.state)}
        if isinstance(op, WriteOp):
            found = {"kind": "write", "how": op.kind, "state": self.state(op.state)}
            return found if op.sub is None else {**found, "sub": self.sub(op.sub, op.sub.captured)}
        if isinstance(op, ControlOp):
            facts = {k: v for k, v in op.facts.items() if k != "outer"}
            outer = op.facts["outer"]
            subs = [self.sub(s, outer) for s in op.subs]
            return {"kind": "control", "how": op.kind, "facts": facts, "outer": len(outer), "subs": subs}
        if isinstance(op, DeferredOp):
            return {"kind": "late", **self.late(op, node)}
        if isinstance(op, RoutingOp):
            # "primitive": the word of files since 0.1
            return {"kind": "primitive", "how": op.name, "frame": op.frame, "is_constant": op.is_constant}
        if isinstance(op, _QueueOp):
            return {"kind": "queue", "how": op.method, "count": op.count, "queue": self.queue(op.queue)}
        if isinstance(op, _BarrierOp):
            return {"kind": "barrier", "parties": op.barrier.parties, "name": op.barrier.name}
        if isinstance(op, (SaveOp, RestoreOp)):
            states = {k: self.state(s) for k, s in op.states.items()}
            return {"kind": op.name, "path": op.path, "states": states}
        raise TypeError(f"save: node {node.name!r} of kind {op.name!r} cannot be stored. Made at {node.where}.")

    def late(self, op: DeferredOp, node: Node) -> dict[str, Any]:
        if op.modes:
            raise TypeError(
                f"save: node {node.name!r} was declared under autocast, which is not stored. Made at {node.where}."
            )
        entry: dict[str, Any] = {"name": op.name, "specs": [_encode_spec(s) for s in op.specs]}
        if isinstance(op, DeferredCall):
            entry.update(how="call", function=_function_name(op.function, node), draws=op.draws)
            return {**entry, "arguments": _encode(op.arguments, self.weights, node)}
        if isinstance(op, DeferredRule):
            rule = {"name": op.op.name, "version": op.op.version}
            attrs = _encode(op.op_attrs, self.weights, node)
            return {**entry, "how": "rule", "op": rule, "attrs": attrs, "count": op.count, "wanted": list(op.wanted)}
        assert isinstance(op, DeferredGradient)
        return {**entry, "how": "gradient", "of": self.late(op.of, node), "wanted": list(op.wanted)}

    def sub(self, sub: Sub, outer: Sequence[Tensor]) -> dict[str, Any]:
        at = {id(t): i for i, t in enumerate(outer)}
        return {
            **self.graph(sub.graph),
            "formals": [v.node.order for v in sub.formals],
            "entries": [v.node.order for v in sub.graph.entries],
            "captured": [at[id(t)] for t in sub.captured],
            "results": [[v.node.order, v.index] for v in sub.outputs],
        }

    def state(self, state: State) -> int:
        if id(state) not in self.states:
            weight = self.weights.put(state.value(), "variable")
            found = self.states[id(state)] = {"index": len(self.states), "name": state.name, "value": weight}
            if state.tensor is random.default_generator.state:
                found["generator"] = "default"  # the loaded graph draws from the generator of its process
        return self.states[id(state)]["index"]

    def queue(self, queue: Queue) -> int:
        if id(queue) not in self.queues:
            if queue.kind not in QUEUES:
                raise TypeError(f"save: a queue of kind {queue.kind!r} cannot be stored.")
            self.queues[id(queue)] = {
                "index": len(self.queues), "kind": queue.kind, "name": queue.name, "capacity": queue.capacity,
                "dtypes": [d.name for d in queue.dtypes], "shapes": [_encode_shape(s) for s in queue.shapes],
                "single": queue.single, "reserve": getattr(queue, "min_after_dequeue", 0),
            }  # fmt: skip
        return self.queues[id(queue)]["index"]


def save_graph(graph: DeclaredGraph, path: Any) -> Path:
    """Write `graph` with the present values of its variables to `path`.json and `path`.safetensors, all or nothing.

    Raises:
        OSError: it could not be written, say because the disk is full. A graph that was there before is intact.
    """
    writer = _Writer()
    program = writer.graph(graph)
    colocated = [[a.order, b.order] for a, b in graph.colocated.items()]
    data = {
        "format": FORMAT, "version": VERSION, "graph": program, "colocated": colocated,
        "updates": [[n.order, [c.order for c in causes]] for n, causes in graph.updates.items()],
        "states": list(writer.states.values()), "queues": list(writer.queues.values()),
    }  # fmt: skip
    return write_graph_files(path, data, writer.weights.arrays)


# Checkpoints beside training ----------------------------------------------------------------------------------------------


class SaveOp(GraphOp):
    """Writes variables to a file: all of one moment, and the file appears only when it is whole."""

    effects = frozenset(("reads", "host"))

    def __init__(self, path: str, states: dict[str, State], allowed: bool = True) -> None:
        super().__init__("save_variables")
        self.path, self.states, self.allowed = path, states, allowed

    def run(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        _refuse_path(self)

        weights: dict[str, ndarray] = {}
        with locked(list(self.states.values()), []):
            for name, s in self.states.items():
                weights[name] = np.array(s.tensor._data, order="C")
        about = {f"dtype.{k}": a.dtype.name for k, a in weights.items()}
        about.update({f"shape.{k}": json.dumps(a.shape) for k, a in weights.items()})
        plain = {k: a if a.dtype in _PLAIN else a.reshape(-1).view(np.uint8) for k, a in weights.items()}
        with replace_file(self.path) as file:
            write_arrays(file, plain, about)
        return ()


class RestoreOp(GraphOp):
    """Reads variables from a file that `SaveOp` wrote; all are checked before the first is stored."""

    effects = frozenset(("writes", "host"))

    def __init__(self, path: str, states: dict[str, State], allowed: bool = True) -> None:
        super().__init__("restore_variables")
        self.path, self.states, self.allowed = path, states, allowed

    def run(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        _refuse_path(self)
        if not os.path.exists(self.path) and index_file(self.path).exists():  # a cluster wrote it
            self.store(read_sharded(self.path, self.states))
        else:
            self.store(*read_arrays(self.path, self.name))
        return ()

    def store(self, stored: Mapping[str, ndarray], about: Mapping[str, str] | None = None) -> None:
        """Store values from a file whose metadata is `about`."""
        about = about or {}
        found: dict[str, ndarray] = {}
        for name, s in self.states.items():
            if name not in stored:
                raise KeyError(f"restore_variables: {self.path} has no variable {name!r}.")
            array = stored[name]
            kind = about.get(f"dtype.{name}", array.dtype.name)
            if kind == s.tensor.dtype.name != array.dtype.name and array.nbytes == s.tensor._data.nbytes:
                array = array.reshape(-1).view(s.tensor.dtype)  # a dtype that is stored as bytes
                if about.get(f"shape.{name}") == json.dumps(s.tensor.shape):
                    array = array.reshape(s.tensor.shape)
            if array.shape != s.tensor.shape or array.dtype != s.tensor.dtype:
                raise ValueError(
                    f"restore_variables: variable {name!r} is {s.tensor.dtype.name} {s.tensor.shape}, the file has "
                    f"{kind} {array.shape}."
                )
            found[name] = array
        states = list(self.states.values())
        with locked([], states):
            for name, s in self.states.items():
                s.store(found[name])


def _refuse_path(op: SaveOp | RestoreOp) -> None:
    """Raise unless the caller of `Graph.load` allowed the path, which a graph file names."""
    if not op.allowed:
        action = "write" if isinstance(op, SaveOp) else "read"
        raise PermissionError(
            f"{op.name}: the graph was loaded from a file that wants to {action} {op.path!r}, which was not allowed. If you "
            f"trust it, load the graph with `wf.Graph.load(path, allow_files=[{op.path!r}])`."
        )


def _named(op: str, variables: Any) -> dict[str, State]:
    items = variables if isinstance(variables, Mapping) else {v.name: v for v in variables}
    if not items or not all(isinstance(v, Variable) for v in items.values()):
        raise TypeError(f"{op}: expected a list of Variables, or a dictionary from names to Variables.")
    return {str(k): v.state for k, v in items.items()}


def save_variables(variables: Any, path: Any) -> Node:
    """Return a node that writes `variables` atomically to the file `path`, also while other steps train.

    Args:
        variables: a list, or a dictionary by name.
        path: a safetensors file.

    >>> with wf.Graph().as_default() as graph:
    ...     v = wf.Variable([1.0, 2.0], name="v")
    ...     clear = v.assign([0.0, 0.0])
    ...     save = wf.save_variables([v], "state.safetensors")
    ...     restore = wf.restore_variables([v], "state.safetensors")
    >>> with wf.Session(graph) as sess:
    ...     for step in (save, clear, restore):
    ...         _ = sess.run(step)
    >>> v.tensor.tolist()
    [1.0, 2.0]
    """
    return _files_node(SaveOp(str(path), _named("save_variables", variables)))


def restore_variables(variables: Any, path: Any) -> Node:
    """Return a node that reads `variables`, as given to `save_variables`, from the file `path`."""
    return _files_node(RestoreOp(str(path), _named("restore_variables", variables)))


def _files_node(op: SaveOp | RestoreOp) -> Node:
    node = get_default_graph().add(op, (), (), (), user_location(2), op.name)
    stay_with(node, None)  # variables on tasks of a cluster are written there, but begun here
    return node
