"""Graphs and variables on disk, without pickle.

A graph is two files: `name.json`, the program, and `name.safetensors`, its constants and variables, which the program
refers to by key; `weft.graph.graph_files` writes them as one and finds the two that belong together. The JSON has a
format name and a version; every node has its op's name and version, typed attributes, output dtypes and (perhaps
symbolic) shapes, device constraints, control edges and the user's line as text. Control flow and `assign_fn` carry
subgraphs in the same form. Python callables are never stored: an attribute that is not data is an error that names the
node.

A loaded graph runs and can be differentiated, also through structured control flow, whose branches and bodies are traced
again from their nodes. Loading checks the version of the format and of every op before it builds anything.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import dtypes, random
from ..errors import Location, user_location
from ..io.durable import replace_file
from ..io.tensor_file import write_arrays
from ..ops import dispatch, registry
from ..ops.indexing import Slice
from ..ops.registry import Op
from ..ops.spec import Spec, Symbol
from ..tensor import Tensor, wrap
from .control_flow import ControlOp, record
from .declare import NO_OP, DeclaredGraph, GraphOp, IterationNumbers, get_default_graph, leaf
from .frames import PrimitiveOp
from .graph import CONSTANT, PLACEHOLDER, Graph, Node, Value
from .graph_files import read_graph_files, write_graph_files
from .inlining import backward_again
from .late import LateCall, LateGradient, LateOp, LateRule, Place, link, postpone_rules
from .placement import Constraint
from .queues import (
    Barrier,
    FIFOQueue,
    PriorityQueue,
    Queue,
    RandomShuffleQueue,
    StagingArea,
    _BarrierOp,
    _QueueOp,
)
from .state import ReadOp, State, Variable, WriteOp, locked, state_of
from .subgraph import Sub, SubGraph

ndarray = np.ndarray
FORMAT, VERSION = "weft-graph", 1
_QUEUES: dict[str, type[Queue]] = {q.kind: q for q in (FIFOQueue, PriorityQueue, RandomShuffleQueue, StagingArea)}
_PLAIN = {np.dtype(t) for t in ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")}


# Attributes ---------------------------------------------------------------------------------------------------------------


class _Weights:
    """Arrays by key, as safetensors takes them; dtypes it does not know are stored as bytes."""

    def __init__(self, arrays: Mapping[str, ndarray] | None = None) -> None:
        self.arrays: dict[str, ndarray] = dict(arrays or {})

    def put(self, array: ndarray, prefix: str = "array") -> dict[str, Any]:
        key = f"{prefix}.{len(self.arrays)}"
        plain = np.ascontiguousarray(array)
        self.arrays[key] = plain if array.dtype in _PLAIN else plain.reshape(-1).view(np.uint8)
        return {"array": key, "dtype": array.dtype.name, "shape": list(array.shape)}

    def get(self, entry: Mapping[str, Any]) -> ndarray:
        array = self.arrays[entry["array"]]
        dtype = dtypes.as_dtype(entry["dtype"])
        return np.array(array if array.dtype == dtype else array.view(dtype)).reshape(entry["shape"])


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
    raise TypeError(
        f"save: node {node.name!r} ({node.op.name}) has an attribute of type {type(value).__name__}, which cannot be stored. "
        f"Made at {node.where}."
    )


def _decode(value: Any, weights: _Weights) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return weights.get(value)
    ((kind, content),) = value.items()
    if kind == "float":
        return float.fromhex(content)
    if kind == "complex":
        return complex(*[float.fromhex(c) for c in content])
    if kind == "dtype":
        return dtypes.as_dtype(content)
    if kind == "tuple":
        return tuple([_decode(v, weights) for v in content])
    if kind == "list":
        return [_decode(v, weights) for v in content]
    if kind == "dict":
        return {_decode(k, weights): _decode(v, weights) for k, v in content}
    if kind == "place":
        return Place(content)
    if kind == "index":
        return Slice(*[_decode(v, weights) for v in content])
    if kind == "slice":
        return slice(*[_decode(v, weights) for v in content])
    if kind == "symbol":
        return Symbol(content)
    if kind == "ellipsis":
        return Ellipsis
    raise ValueError(f"load: unknown kind of attribute {kind!r}.")


def _encode_shape(shape: Any) -> Any:
    return None if shape is None else [d if d is None or isinstance(d, int) else {"symbol": str(d)} for d in shape]


def _decode_shape(shape: Any) -> Any:
    return None if shape is None else tuple([Symbol(d["symbol"]) if isinstance(d, dict) else d for d in shape])


def _encode_spec(spec: Any) -> dict[str, Any]:
    return {"shape": _encode_shape(spec.shape), "dtype": spec.dtype.name}


def _decode_spec(entry: Mapping[str, Any]) -> Spec:
    return Spec(_decode_shape(entry["shape"]), dtypes.as_dtype(entry["dtype"]))


def _function_name(function: Any, node: Node) -> dict[str, Any]:
    """How a function of a late node is stored: as an op of the table, or by its name in a module of Weft."""
    op = getattr(function, "op", None)
    if op is not None:
        return {"name": op.name, "version": op.version}
    name = {"module": function.__module__, "function": function.__name__}
    if _named_function(name) is not function:
        raise TypeError(f"save: node {node.name!r} calls {function.__name__!r}, which has no name. Made at {node.where}.")
    return name


def _named_function(entry: Mapping[str, Any]) -> Any:
    """The function that `_function_name` stored; None if there is none of that name."""
    if not entry["module"].startswith("weft."):
        raise ValueError(f"load: expected a function of Weft. Got {entry['module']}.{entry['function']}.")
    found = getattr(importlib.import_module(entry["module"]), entry["function"], None)
    return getattr(found, "__wrapped__", found) if callable(found) else None


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
                [v.node.order, v.index] if isinstance(v, Value) else {"attr": _encode(v, self.weights, node)} for v in node.inputs
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
            entry["where"] = f"{os.path.basename(node.where.filename)}:{node.where.line} in {node.where.code.co_name}"
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
        if isinstance(op, LateOp):
            return {"kind": "late", **self.late(op, node)}
        if isinstance(op, PrimitiveOp):
            return {"kind": "primitive", "how": op.name, "frame": op.frame, "is_constant": op.is_constant}
        if isinstance(op, _QueueOp):
            return {"kind": "queue", "how": op.method, "count": op.count, "queue": self.queue(op.queue)}
        if isinstance(op, _BarrierOp):
            return {"kind": "barrier", "parties": op.barrier.parties, "name": op.barrier.name}
        if isinstance(op, (SaveOp, RestoreOp)):
            states = {k: self.state(s) for k, s in op.states.items()}
            return {"kind": op.name, "path": op.path, "states": states}
        raise TypeError(f"save: node {node.name!r} of kind {op.name!r} cannot be stored. Made at {node.where}.")

    def late(self, op: LateOp, node: Node) -> dict[str, Any]:
        if op.modes:
            raise TypeError(f"save: node {node.name!r} was declared under autocast, which is not stored. Made at {node.where}.")
        entry: dict[str, Any] = {"name": op.name, "specs": [_encode_spec(s) for s in op.specs]}
        if isinstance(op, LateCall):
            entry.update(how="call", function=_function_name(op.function, node), draws=op.draws)
            return {**entry, "arguments": _encode(op.arguments, self.weights, node)}
        if isinstance(op, LateRule):
            rule = {"name": op.op.name, "version": op.op.version}
            attrs = _encode(op.op_attrs, self.weights, node)
            return {**entry, "how": "rule", "op": rule, "attrs": attrs, "count": op.count, "wanted": list(op.wanted)}
        assert isinstance(op, LateGradient)
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
            with locked([state], []):
                weight = self.weights.put(state.tensor._data, "variable")
            found = self.states[id(state)] = {"index": len(self.states), "name": state.name, "value": weight}
            if state.tensor is random.default_generator.state:
                found["generator"] = "default"  # the loaded graph draws from the generator of its process
        return self.states[id(state)]["index"]

    def queue(self, queue: Queue) -> int:
        if id(queue) not in self.queues:
            if queue.kind not in _QUEUES:
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


# Loading ------------------------------------------------------------------------------------------------------------------


class _Reader:
    def __init__(self, data: Mapping[str, Any], weights: _Weights) -> None:
        self.weights = weights
        self.variables = [
            state_of(random.default_generator.state, s["name"])
            if s.get("generator") == "default"
            else state_of(Tensor(weights.get(s["value"])), s["name"])
            for s in data["states"]
        ]
        self.queues = [self.queue(q) for q in data["queues"]]
        self.barriers: dict[str, Barrier] = {}

    def queue(self, entry: Mapping[str, Any]) -> Queue:
        kinds = [dtypes.as_dtype(d) for d in entry["dtypes"]]
        shapes = [_decode_shape(s) for s in entry["shapes"]]
        cls = _QUEUES[entry["kind"]]
        if cls is PriorityQueue:
            made: Queue = PriorityQueue(entry["capacity"], kinds[1:], shapes[1:], entry["name"])
        elif cls is RandomShuffleQueue:
            made = RandomShuffleQueue(entry["capacity"], entry["reserve"], kinds, shapes, None, entry["name"])
        else:
            made = cls(entry["capacity"], kinds, shapes, entry["name"])
        made.single = entry["single"]
        return made

    def fill(self, graph: Graph, entries: Sequence[Mapping[str, Any]]) -> None:
        tensors: dict[Value, Tensor] = {}
        late: list[tuple[Node, list[Any]]] = []
        for entry in entries:
            refs = entry["inputs"]
            ready = [not isinstance(r, list) or r[0] < len(graph.nodes) for r in refs]
            inputs = [self.input(graph, r) for r, ok in zip(refs, ready, strict=True) if ok]
            attrs = tuple([_decode(a, self.weights) for a in entry["attrs"]])
            specs = [_decode_spec(o) for o in entry["outputs"]]
            op = self.op(entry["op"], inputs, graph)
            node = Graph.add(graph, op, inputs, attrs, specs, _place(entry.get("where")), None)
            node.name = entry["name"]
            node.control = tuple([graph.nodes[i] for i in entry.get("control", ())])
            node.device = tuple([Constraint(*c) for c in entry.get("device", ())]) or None
            if not all(ready):
                late.append((node, refs))
            self.link(graph, node, entry, tensors)
        for node, refs in late:  # the edges that next_iteration closes
            node.inputs = tuple([self.input(graph, r) for r in refs])

    def link(self, graph: Graph, node: Node, entry: Mapping[str, Any], tensors: dict[Value, Tensor]) -> None:
        """Give the node a place on the tape and in the graph's tables."""
        made: Any = [wrap(v) for v in node.outputs]
        if isinstance(graph, DeclaredGraph):
            if isinstance(node.op, Op):
                args = [tensors.get(v, wrap(v)) if isinstance(v, Value) else v for v in node.inputs]
                outs: Any = node.outputs if node.op.num_outputs != 1 else node.outputs[0]
                made = dispatch.finish(node.op, args, node.inputs, node.attrs, outs)
                postpone_rules(node, node.inputs, made)
                made = list(made) if isinstance(made, tuple) else [made]
            elif isinstance(node.op, LateOp):
                args = [tensors.get(v, wrap(v)) if isinstance(v, Value) else v for v in node.inputs]
                made = link(node, args)
            elif isinstance(node.op, ControlOp):
                args = [tensors.get(v, wrap(v)) for v in node.inputs]
                node.op.backward = backward_again(node.op, args)
                made = record(node, node.op, args, made)
            elif node.op is PLACEHOLDER or node.op is CONSTANT or isinstance(node.op, (ReadOp, _QueueOp)):
                made = [leaf(t) for t in made]
            if isinstance(node.op, ReadOp):
                graph.reads_of.setdefault(id(node.op.state.tensor), []).extend(made)
            if "frame" in entry:
                graph.frames[node] = tuple(entry["frame"])
            graph.register(node, made)
        tensors.update(zip(node.outputs, made, strict=True))

    @staticmethod
    def input(graph: Graph, ref: Any) -> Any:
        return graph.nodes[ref[0]].outputs[ref[1]] if isinstance(ref, list) else ref["attr"]

    def op(self, entry: Mapping[str, Any], inputs: Sequence[Any], graph: Graph) -> Any:
        kind = entry.get("kind")
        if kind is None:
            return self.table_op(entry)
        if kind in ("placeholder", "constant", "no_op"):
            return {"placeholder": PLACEHOLDER, "constant": CONSTANT, "no_op": NO_OP}[kind]
        if kind == "iteration_numbers":
            return IterationNumbers()
        if kind == "read":
            return ReadOp(self.variables[entry["state"]])
        if kind == "write":
            sub = self.sub(entry["sub"], [wrap(v) for v in inputs]) if "sub" in entry else None
            return WriteOp(entry["how"], self.variables[entry["state"]], sub)
        if kind == "control":
            outer = [wrap(v) for v in inputs[len(inputs) - entry["outer"] :]]
            subs = [self.sub(s, outer) for s in entry["subs"]]
            return ControlOp(entry["how"], subs, **entry["facts"], outer=outer)
        if kind == "late":
            return self.late(entry)
        if kind == "primitive":
            return PrimitiveOp(entry["how"], entry["frame"], entry["is_constant"])
        if kind == "queue":
            return _QueueOp(self.queues[entry["queue"]], entry["how"], entry["count"])
        if kind == "barrier":
            name = entry["name"]
            return _BarrierOp(self.barriers.setdefault(name, Barrier(entry["parties"], name)))
        if kind in ("save_variables", "restore_variables"):
            states = {k: self.variables[i] for k, i in entry["states"].items()}
            return (SaveOp if kind == "save_variables" else RestoreOp)(entry["path"], states)
        raise ValueError(f"load: unknown kind of node {kind!r}.")

    @staticmethod
    def table_op(entry: Mapping[str, Any]) -> Op:
        op = registry.get(entry["name"])
        if op.version < entry["version"]:
            raise ValueError(
                f"load: op {op.name!r} was saved in version {entry['version']}, this Weft has {op.version}. Update Weft."
            )
        return op

    def late(self, entry: Mapping[str, Any]) -> LateOp:
        specs = [_decode_spec(s) for s in entry["specs"]]
        if entry["how"] == "gradient":
            return LateGradient(self.late(entry["of"]), entry["wanted"], specs)
        if entry["how"] == "rule":
            attrs = _decode(entry["attrs"], self.weights)
            return LateRule(self.table_op(entry["op"]), attrs, entry["count"], entry["wanted"], specs)
        named = entry["function"]
        function = self.table_op(named).call if "name" in named else _named_function(named)
        if function is None:
            raise ValueError(f"load: this Weft has no function {named['module']}.{named['function']}.")
        return LateCall(entry["name"], specs, function, _decode(entry["arguments"], self.weights), entry["draws"])

    def sub(self, entry: Mapping[str, Any], outer: Sequence[Tensor]) -> Sub:
        made: Sub = object.__new__(Sub)
        graph = made.graph = SubGraph(entry["name"])
        self.fill(graph, entry["nodes"])
        made.formals = [graph.nodes[i].outputs[0] for i in entry["formals"]]
        graph.entries = [graph.nodes[i].outputs[0] for i in entry["entries"]]
        graph.captured = [outer[i] for i in entry["captured"]]
        graph.outputs = [graph.nodes[i].outputs[j] for i, j in entry["results"]]
        made.structure, made.static = None, []
        graph.finished = True
        return made


def _place(text: str | None) -> Location | None:
    """The stored line, as something that prints like a Location."""
    return None if text is None else _Stored(text)


class _Stored(Location):
    """A user's line of the program that saved the graph; its source may not be here."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        super().__init__(_Stored.__init__.__code__, 0)
        self.text = text

    def __str__(self) -> str:
        return f"{self.text} (when it was saved)"

    def __repr__(self) -> str:
        return f"Location({self.text})"


def load_graph(path: Any) -> DeclaredGraph:
    """Read a graph that `save_graph` wrote. Its variables are new ones with the stored values: `graph.variables()`."""
    data, arrays = read_graph_files(path, _parse)
    reader = _Reader(data, _Weights(arrays))
    graph = DeclaredGraph(data["graph"]["name"])
    reader.fill(graph, data["graph"]["nodes"])
    for a, b in data["colocated"]:
        graph.colocated[graph.nodes[a]] = graph.nodes[b]
    for node, causes in data.get("updates", ()):
        graph.updates[graph.nodes[node]] = tuple([graph.nodes[c] for c in causes])
    return graph


def _parse(text: bytes, program_file: Path) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"load: {program_file.name} is not JSON: {error}.") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"load: {program_file.name} is not a saved graph. Expected the format {FORMAT!r}.")
    if not isinstance(data.get("version"), int) or data["version"] > VERSION:
        raise ValueError(f"load: {program_file.name} has version {data.get('version')!r}; this Weft reads up to {VERSION}.")
    return data


# Checkpoints beside training ----------------------------------------------------------------------------------------------


class SaveOp(GraphOp):
    """Writes variables to a file: all of one moment, and the file appears only when it is whole."""

    effects = frozenset(("reads", "host"))

    def __init__(self, path: str, states: dict[str, State]) -> None:
        super().__init__("save_variables")
        self.path, self.states = path, states

    def run(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
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

    def __init__(self, path: str, states: dict[str, State]) -> None:
        super().__init__("restore_variables")
        self.path, self.states = path, states

    def run(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        from safetensors import safe_open

        found: dict[str, ndarray] = {}
        with safe_open(self.path, "np") as file:
            about = file.metadata() or {}
            for name, s in self.states.items():
                if name not in file.keys():
                    raise KeyError(f"restore_variables: {self.path} has no variable {name!r}.")
                array = file.get_tensor(name)
                dtype = dtypes.as_dtype(about.get(f"dtype.{name}", array.dtype.name))
                array = array if array.dtype == dtype else array.view(dtype).reshape(json.loads(about[f"shape.{name}"]))
                if array.shape != s.tensor.shape or array.dtype != s.tensor.dtype:
                    raise ValueError(
                        f"restore_variables: variable {name!r} is {s.tensor.dtype.name} {s.tensor.shape}, the file has "
                        f"{array.dtype.name} {array.shape}."
                    )
                found[name] = array
        states = list(self.states.values())
        with locked([], states):
            for name, s in self.states.items():
                s.store(found[name])
        return ()


def _named(op: str, variables: Any) -> dict[str, State]:
    items = variables if isinstance(variables, Mapping) else {v.name: v for v in variables}
    if not items or not all(isinstance(v, Variable) for v in items.values()):
        raise TypeError(f"{op}: expected a list of Variables, or a dictionary from names to Variables.")
    return {str(k): v.state for k, v in items.items()}


def save_variables(variables: Any, path: Any) -> Node:
    """A node that writes `variables` (a list, or a dictionary by name) to the file `path`, safe beside training."""
    op = SaveOp(str(path), _named("save_variables", variables))
    return get_default_graph().add(op, (), (), (), user_location(1), op.name)


def restore_variables(variables: Any, path: Any) -> Node:
    """A node that reads `variables` back from the file `path`."""
    op = RestoreOp(str(path), _named("restore_variables", variables))
    return get_default_graph().add(op, (), (), (), user_location(1), op.name)
