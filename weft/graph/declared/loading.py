"""Read graphs from untrusted files.

`load_graph` reads what `weft.graph.declared.serialize` writes. A loaded graph runs and can be differentiated, also
through structured control flow, whose branches and bodies are traced again from their nodes.

Nothing in a file is trusted. Every field is checked for its type and range where it is used (`weft.io.checked`), every
reference for its target, the versions of the format and of every op and function before anything is built. The results of
a node are inferred again and compared (`weft.graph.declared.node_checks`). A node is one of a fixed set of kinds, an op of
the table, or a deferred call of an op or of a function on the allow-list of `weft.graph.declared.callables`: no name in a
file is imported, looked up in a module or evaluated. Paths of `save_variables` and `restore_variables` are refused
when such a node runs unless the caller allowed them. See `docs/security.md`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ... import debug as debug
from ... import dtypes, random
from ...errors import FileError, Location
from ...io.checked import Checked, file_error, parse_json
from ...io.tensor_file import MAX_AXES
from ...ops.array.indexing import Slice
from ...ops.core import define, registry
from ...ops.core.attributes import VALUES, field_names
from ...ops.core.registry import Op
from ...ops.core.spec import Spec, Symbol
from ...ops.nn import namespace as namespace  # completes the table
from ...tensor import Tensor, wrap
from ..capture.control_flow import ControlOp, record
from ..capture.inlining import backward_again
from ..capture.subgraph import MAX_NESTING, Sub, SubGraph
from ..execute.placement import Constraint
from ..graph import CONSTANT, PLACEHOLDER, Graph, Node, Value
from . import callables, node_checks
from .building import NO_OP, DeclaredGraph, IterationNumbers, leaf
from .deferred_nodes import DeferredCall, DeferredGradient, DeferredOp, DeferredRule, Place, defer_rules, link
from .graph_files import graph_files, read_graph_files
from .queues import Barrier, PriorityQueue, Queue, RandomShuffleQueue, _BarrierOp, _QueueOp
from .routing import RoutingOp
from .serialize import FORMAT, QUEUES, VERSION, RestoreOp, SaveOp
from .variables import KINDS, ReadOp, State, WriteOp, state_of

ndarray = np.ndarray
MAX_PROGRAM_BYTES = 1 << 28
MAX_ATTRIBUTE_DEPTH = 32
MAX_ORDER = 16  # of a deferred derivative
MAX_PATH = 4096
_JSON_DEPTH = 5 * MAX_NESTING + MAX_ATTRIBUTE_DEPTH * 2 + 16  # a subgraph is five levels below its graph
_DTYPES = {d.name: d for d in dtypes.ALL}
_SOURCES = {"placeholder": PLACEHOLDER, "constant": CONSTANT, "no_op": NO_OP}
_ROUTING_OPS = ("switch", "merge", "enter", "exit", "next_iteration")
_QUEUE_METHODS = ("enqueue", "enqueue_many", "dequeue", "dequeue_many", "dequeue_up_to", "size", "close", "cancel")
_SUBS = {"cond": 2, "while": 2, "scan": 1}


def load_graph(path: Any, allow_files: bool | Iterable[Any] = False) -> DeclaredGraph:
    """Read a graph that `save_graph` wrote. Its variables are new ones with the stored values: `graph.variables()`.

    Args:
        allow_files: which paths the graph's `save_variables` and `restore_variables` nodes may use: True for any, or a
            list of files and folders. By default such a node raises PermissionError when it runs.

    Raises:
        FileError: a file is damaged, is not a graph, or holds something that is not allowed; the message says where.
    """
    from ...optim import steps as steps  # for its ops

    data, arrays = read_graph_files(path, _parse)
    program_file, _ = graph_files(path)
    try:
        return _Reader(Checked(data, file_error("load", program_file)), arrays, _permission(allow_files)).graph()
    except RecursionError:
        raise FileError("load", program_file, "is nested too deeply.") from None


def _parse(text: bytes, program_file: Path) -> dict[str, Any]:
    """The program's JSON, of a format and version that can be read."""
    data = parse_json(text, file_error("load", program_file), MAX_PROGRAM_BYTES, _JSON_DEPTH)
    if not isinstance(data.value, dict) or data.value.get("format") != FORMAT:
        data.fail(f"is not a saved graph. Expected the format {FORMAT!r}.")
    if (version := data["version"].integer(1)) > VERSION:
        data["version"].fail(f"has version {version}; this Weft reads up to {VERSION}.")
    return dict(data.value)


def _permission(allowed: bool | Iterable[Any]) -> Callable[[str], bool]:
    """Whether a path of the file may be used."""
    if allowed is True or allowed is False:
        return lambda path: allowed is True
    if isinstance(allowed, (str, os.PathLike)):
        allowed = [allowed]
    places = [Path(os.path.realpath(p)) for p in allowed]
    return lambda path: any(Path(os.path.realpath(path)).is_relative_to(place) for place in places)


class _Reader:
    """Builds a graph from checked data."""

    def __init__(self, data: Checked, arrays: Mapping[str, ndarray], permitted: Callable[[str], bool]) -> None:
        self.data, self.arrays, self.permitted = data, arrays, permitted
        self._used: set[str] = set()
        self.states = [self.state(i, s) for i, s in enumerate(data["states"].items())]
        self.queues = [self.queue(i, q) for i, q in enumerate(data["queues"].items())]
        self.barriers: dict[str, Barrier] = {}

    def graph(self) -> DeclaredGraph:
        program = self.data["graph"]
        graph = DeclaredGraph(program["name"].text())
        self.fill(graph, program["nodes"], 0)
        for pair in self.data["colocated"].items():
            a, b = pair.items(2)
            graph.colocated[a.index(graph.nodes)] = b.index(graph.nodes)
        updates = self.data.get("updates")
        for entry in [] if updates is None else updates.items():
            node, causes = entry.items(2)
            graph.updates[node.index(graph.nodes)] = tuple([c.index(graph.nodes) for c in causes.items()])
        return graph

    # Values ---------------------------------------------------------------------------------------------------------

    def array(self, entry: Checked) -> ndarray:
        """A stored array, without a copy: a file that names it often must not take more memory for that."""
        key, dtype = entry["array"].text(), self.dtype(entry["dtype"])
        shape = tuple([d.integer(0) for d in entry["shape"].items()])
        array = self.arrays.get(key)
        if array is None:
            entry["array"].fail(f"the file of arrays has no {key!r}.")
        if array.dtype != dtype and array.dtype != np.uint8:
            entry.fail(f"the stored array is {array.dtype.name}, not {dtype.name}.")
        if len(shape) > MAX_AXES or array.nbytes != prod(shape) * dtype.itemsize or 0 in shape and array.size:
            entry.fail(f"the stored array has {array.nbytes} bytes, which do not make {dtype.name} of shape {shape}.")
        if array.dtype != dtype:
            array = array.reshape(-1).view(dtype)
        return array.reshape(shape)

    @staticmethod
    def dtype(entry: Checked) -> np.dtype:
        return _DTYPES[entry.text(_DTYPES)]

    @staticmethod
    def shape(entry: Checked) -> Any:
        if entry.value is None:
            return None
        sizes: list[Any] = []
        for size in entry.items():
            if isinstance(size.value, dict):
                sizes.append(Symbol(size["symbol"].text()))
            else:
                sizes.append(None if size.value is None else size.integer(0))
        if len(sizes) > MAX_AXES:
            entry.fail(f"no array has {len(sizes)} axes.")
        return tuple(sizes)

    def spec(self, entry: Checked) -> Spec:
        return Spec(self.shape(entry["shape"]), self.dtype(entry["dtype"]))

    def attribute(self, entry: Checked, depth: int = 0) -> Any:
        """The value that `serialize._encode` wrote."""
        value = entry.value
        if value is None or type(value) in (bool, int, str):
            return value
        if depth > MAX_ATTRIBUTE_DEPTH:
            entry.fail(f"an attribute is nested deeper than {MAX_ATTRIBUTE_DEPTH} levels.")
        inner = entry.mapping()
        if "array" in inner:
            return self.array(entry)
        if len(inner) != 1:
            entry.expected("one kind of attribute")
        ((kind, content),) = inner.items()
        if kind == "float":
            return _hexadecimal(content)
        if kind == "complex":
            return complex(*[_hexadecimal(c) for c in content.items(2)])
        if kind == "dtype":
            return self.dtype(content)
        if kind == "dict":
            pairs = [pair.items(2) for pair in content.items()]
            return {_hashable(k, self.attribute(k, depth + 1)): self.attribute(v, depth + 1) for k, v in pairs}
        if kind == "place":
            return Place(content.integer(0))
        if kind == "symbol":
            return Symbol(content.text())
        if kind == "ellipsis":
            return Ellipsis
        if kind in VALUES:
            return self.value(VALUES[kind], content, depth)
        if kind not in ("tuple", "list", "index", "slice"):
            entry.fail(f"unknown kind of attribute {kind!r}.")
        values = [self.attribute(v, depth + 1) for v in content.items(None if kind in ("tuple", "list") else 3)]
        if kind in ("index", "slice"):
            return Slice(*values) if kind == "index" else slice(*values)
        return values if kind == "list" else tuple(values)

    def value(self, cls: type, entry: Checked, depth: int) -> Any:
        """An attribute value, whose constructor checks its fields."""
        names, inner = field_names(cls), entry.mapping()
        if set(inner) != set(names):
            entry.expected(f"the fields {', '.join(names)}")
        return _checked(entry, cls, *[self.attribute(inner[name], depth + 1) for name in names])

    # State ----------------------------------------------------------------------------------------------------------

    def state(self, number: int, entry: Checked) -> State:
        entry["index"].integer(number, number)
        name, generator = entry["name"].text(), entry.get("generator")
        if generator is not None:
            generator.text(("default",))
            return state_of(random.default_generator.state, name)
        key = entry["value"]["array"].text()
        if key in self._used:
            entry["value"].fail(f"another variable has the array {key!r} already.")
        self._used.add(key)
        return state_of(Tensor(np.array(self.array(entry["value"]))), name)

    def queue(self, number: int, entry: Checked) -> Queue:
        entry["index"].integer(number, number)
        kinds = [self.dtype(d) for d in entry["dtypes"].items()]
        shapes = [self.shape(s) for s in entry["shapes"].items(len(kinds))]
        cls, name = QUEUES[entry["kind"].text(QUEUES)], entry["name"].text()
        capacity, reserve = entry["capacity"].integer(1), entry["reserve"].integer(0)
        if not kinds:
            entry["dtypes"].fail("a queue holds at least one component.")
        if cls is PriorityQueue:
            if kinds[0] != dtypes.int64:
                entry["dtypes"].fail("priorities are int64.")
            made: Queue = PriorityQueue(capacity, kinds[1:], shapes[1:], name)
        elif cls is RandomShuffleQueue:
            if reserve >= capacity:
                entry["reserve"].expected(f"an integer below {capacity}")
            made = RandomShuffleQueue(capacity, reserve, kinds, shapes, None, name)
        else:
            made = cls(capacity, kinds, shapes, name)
        made.single = entry["single"].boolean()
        if made.single and len(kinds) != 1:
            entry["single"].fail(f"the queue has {len(kinds)} components.")
        return made

    # Nodes ----------------------------------------------------------------------------------------------------------

    def fill(self, graph: Graph, entries: Checked, depth: int) -> None:
        """Add the nodes of a graph, which is `depth` branches and bodies deep."""
        if depth > MAX_NESTING:
            entries.fail(f"branches and loops are nested deeper than {MAX_NESTING} levels.")
        tensors: dict[Value, Tensor] = {}
        loops: list[tuple[Node, Checked]] = []
        names: set[str] = set()
        listed = entries.items()
        for entry in listed:
            if (name := entry["name"].text()) in names:
                entry["name"].fail(f"there is another node called {name!r}.")
            names.add(name)
            refs = entry["inputs"].items()
            closes = [r for r in refs if isinstance(r.value, list) and r.items(2)[0].integer(0) >= len(graph.nodes)]
            op = entry["op"].mapping()
            if closes and not (
                "how" in op and op["how"].value == "merge" and "kind" in op and op["kind"].value == "primitive"
            ):
                closes[0].fail("only the merge of a loop may have an input that comes after it.")
            inputs = [self.input(graph, r) for r in refs if r not in closes]
            attrs = tuple([self.attribute(a) for a in entry["attrs"].items()])
            stored = [self.spec(o) for o in entry["outputs"].items()]
            node = self.node(graph, entry, inputs, attrs, stored, depth)
            if closes:
                loops.append((node, entry["inputs"]))
            self.link(graph, node, entry, tensors)
        for node, refs_of in loops:  # the edges that next_iteration closes
            node.inputs = tuple([self.input(graph, r) for r in refs_of.items()])
            if any(not isinstance(v, Value) for v in node.inputs):
                refs_of.fail("a merge needs results of nodes.")
            _checked(refs_of, node_checks.check_loop, node.inputs, node.outputs[0])

    def input(self, graph: Graph, ref: Checked) -> Any:
        if not isinstance(ref.value, list):
            return self.attribute(ref["attr"])
        node, index = ref.items(2)
        return index.index(node.index(graph.nodes).outputs)

    def node(
        self, graph: Graph, entry: Checked, inputs: Sequence[Any], attrs: tuple[Any, ...], stored: Sequence[Spec], depth: int
    ) -> Node:  # fmt: skip
        op = self.op(entry["op"], inputs, depth)
        if isinstance(op, Op):
            attrs = self.upgraded(entry["op"], op, inputs, attrs)
        specs = _checked(entry, node_checks.results, op, inputs, attrs, stored)
        where, control, device = entry.get("where"), entry.get("control"), entry.get("device")
        node = Graph.add(graph, op, inputs, attrs, specs, None if where is None else _Stored(where.text()), None)
        node.name = entry["name"].text()
        if control is not None:
            node.control = tuple([c.index(graph.nodes[:-1]) for c in control.items()])
        if device is not None:
            node.device = tuple([_constraint(c) for c in device.items()]) or None
            for what in (getattr(op, "state", None), getattr(op, "queue", None), getattr(op, "barrier", None)):
                if what is not None:  # it lives where the nodes that use it are
                    what.device = (
                        tuple([c for c in node.device or () if c.job is not None or c.task is not None]) or None
                    )
        return node

    def link(self, graph: Graph, node: Node, entry: Checked, tensors: dict[Value, Tensor]) -> None:
        """Give the node a place on the tape and in the graph's tables."""
        made: Any = [wrap(v) for v in node.outputs]
        if isinstance(graph, DeclaredGraph):
            if isinstance(node.op, Op):
                args = [tensors.get(v, wrap(v)) if isinstance(v, Value) else v for v in node.inputs]
                outs: Any = node.outputs if node.op.num_outputs != 1 else node.outputs[0]
                made = _checked(entry, define.finish, node.op, args, node.inputs, node.attrs, outs)
                defer_rules(node, node.inputs, made)
                made = list(made) if isinstance(made, tuple) else [made]
            elif isinstance(node.op, DeferredOp):
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
            frame = entry.get("frame")
            if frame is not None:
                graph.frames[node] = tuple([f.text() for f in frame.items()])
            graph.register(node, made)
        tensors.update(zip(node.outputs, made, strict=True))

    # Ops ------------------------------------------------------------------------------------------------------------

    def op(self, entry: Checked, inputs: Sequence[Any], depth: int) -> Any:
        kind_entry = entry.get("kind")
        if kind_entry is None:
            return self.table_op(entry)
        kind = kind_entry.text()
        if kind in _SOURCES:
            return _SOURCES[kind]
        if kind == "iteration_numbers":
            return IterationNumbers()
        if kind == "read":
            return ReadOp(entry["state"].index(self.states))
        if kind == "write":
            return self.write(entry, inputs, depth)
        if kind == "control":
            return self.control(entry, inputs, depth)
        if kind == "late":
            return self.late(entry, inputs, 0)
        if kind == "primitive":
            return RoutingOp(entry["how"].text(_ROUTING_OPS), entry["frame"].text(), entry["is_constant"].boolean())
        if kind == "queue":
            count = entry["count"]
            number = None if count.value is None else count.integer(0)
            return _QueueOp(entry["queue"].index(self.queues), entry["how"].text(_QUEUE_METHODS), number)
        if kind == "barrier":
            name, parties = entry["name"].text(), entry["parties"].integer(1)
            barrier = self.barriers.setdefault(name, Barrier(parties, name))
            entry["parties"].integer(barrier.parties, barrier.parties)
            return _BarrierOp(barrier)
        if kind in ("save_variables", "restore_variables"):
            return self.files(entry, SaveOp if kind == "save_variables" else RestoreOp)
        kind_entry.fail(f"unknown kind of node {kind!r}.")

    @staticmethod
    def table_op(entry: Checked) -> Op:
        name, version = entry["name"].text(), entry["version"].integer(0)
        try:
            op = registry.get(name)
        except KeyError as error:
            entry["name"].fail(str(error.args[0]))
        if op.version < version:
            entry["version"].fail(
                f"op {name!r} was saved in version {version}, this Weft has {op.version}. Update Weft."
            )
        return op

    @staticmethod
    def upgraded(entry: Checked, op: Op, inputs: Sequence[Any], attrs: tuple[Any, ...]) -> tuple[Any, ...]:
        """The attributes of `op` in its present version; `entry` has the version of `attrs`."""
        version = entry["version"].integer(0)
        if op.upgrade is None or version >= op.version:
            return attrs
        made: tuple[Any, ...] = _checked(entry, op.upgrade, version, inputs, attrs)
        return made

    def upgraded_call(self, entry: Checked, op: Op, inputs: Sequence[Any], arguments: Any) -> Any:
        """The arguments of a deferred call of `op` in its present version: tensors first, then attributes."""
        args, kwargs = arguments
        count = len(op.tensor_slots)
        places = [a.index if isinstance(a, Place) else None for a in args[:count]]
        if any(i is not None and i >= len(inputs) for i in places):
            entry.fail("an argument stands for an input that is not there.")
        operands = [None if i is None else inputs[i] for i in places]
        return (*args[:count], *self.upgraded(entry, op, operands, args[count:])), kwargs

    def write(self, entry: Checked, inputs: Sequence[Any], depth: int) -> WriteOp:
        how, state, sub = entry["how"].text((*KINDS, "assign_fn")), entry["state"].index(self.states), entry.get("sub")
        if (sub is None) == (how == "assign_fn"):
            entry["how"].fail("assign_fn, and nothing else, has a function.")
        if state.tensor is random.default_generator.state and how != "assign_add":
            entry["how"].fail("a graph may draw from this process's generator, not set it.")
        outer = self.outer(entry, inputs)
        return WriteOp(how, state, None if sub is None else self.sub(sub, outer, depth))

    @staticmethod
    def outer(entry: Checked, inputs: Sequence[Any]) -> list[Tensor]:
        if not all(isinstance(v, Value) for v in inputs):
            entry.fail("expected results of nodes as inputs.")
        return [wrap(v) for v in inputs]

    def control(self, entry: Checked, inputs: Sequence[Any], depth: int) -> ControlOp:
        kind, facts = entry["how"].text(_SUBS), entry["facts"]
        first = len(inputs) - entry["outer"].integer(0, len(inputs))
        outer = self.outer(entry, inputs)[first:]
        subs = [self.sub(s, outer, depth) for s in entry["subs"].items(_SUBS[kind])]
        if kind != "scan":
            return ControlOp(kind, subs, operands=facts["operands"].integer(0), outer=outer)
        n = facts["n"]
        found: dict[str, Any] = {name: facts[name].integer(0) for name in ("carry", "xs", "ys")}
        found |= {name: facts[name].boolean() for name in ("reverse", "keep")}
        return ControlOp(kind, subs, **found, n=None if n.value is None else n.integer(1), outer=outer)

    def sub(self, entry: Checked, outer: Sequence[Tensor], depth: int) -> Sub:
        made: Sub = object.__new__(Sub)
        graph = made.graph = SubGraph(entry["name"].text())
        self.fill(graph, entry["nodes"], depth + 1)
        firsts = {name: [self.first(graph, i) for i in entry[name].items()] for name in ("formals", "entries")}
        made.formals, graph.entries = firsts["formals"], firsts["entries"]
        graph.captured = [i.index(outer) for i in entry["captured"].items()]
        graph.outputs = [self.input(graph, r) for r in entry["results"].items()]
        if not all(isinstance(v, Value) for v in graph.outputs):
            entry["results"].fail("expected results of nodes.")
        made.structure, made.static = None, []
        graph.finished = True
        _checked(entry, node_checks.check_sub, made, graph.captured)
        return made

    @staticmethod
    def first(graph: Graph, entry: Checked) -> Value:
        outputs = entry.index(graph.nodes).outputs
        if not outputs:
            entry.fail("this node has no result.")
        return outputs[0]

    def late(self, entry: Checked, inputs: Sequence[Any], order: int) -> DeferredOp:
        specs = [self.spec(s) for s in entry["specs"].items()]
        how = entry["how"].text(("call", "rule", "gradient"))
        if order > MAX_ORDER:
            entry.fail(f"derivatives above order {MAX_ORDER} are not read.")
        if how == "gradient":
            return DeferredGradient(self.late(entry["of"], inputs, order + 1), self.naturals(entry["wanted"]), specs)
        if how == "rule":
            attrs = self.attribute(entry["attrs"])
            if type(attrs) is not tuple:
                entry["attrs"].expected("a tuple of attributes")
            op = self.table_op(entry["op"])
            attrs = self.upgraded(entry["op"], op, inputs, attrs)
            return DeferredRule(op, attrs, entry["count"].integer(0), self.naturals(entry["wanted"]), specs)
        arguments = self.attribute(entry["arguments"])
        if not _are_arguments(arguments):
            entry["arguments"].expected("positional and named arguments")
        function = self.function(entry["function"])
        if (called := getattr(function, "op", None)) is not None and called.upgrade is not None:
            arguments = self.upgraded_call(entry["function"], called, inputs, arguments)
        return DeferredCall(entry["name"].text(), specs, function, arguments, entry["draws"].integer(0))

    @staticmethod
    def naturals(entry: Checked) -> list[int]:
        return [i.integer(0) for i in entry.items()]

    def function(self, entry: Checked) -> Callable[..., Any]:
        """The function of a deferred call: an op of the table, or a function of the allow-list."""
        if entry.get("name") is not None:
            return self.table_op(entry).call
        function = entry["function"].text()
        if entry.get("module") is not None:  # Weft 0.1
            found = callables.placed(entry["module"].text(), function)
        else:
            found = callables.named(function)
            if found is not None and entry["version"].integer(0) > found.version:
                entry["version"].fail(
                    f"{function!r} was saved in version {entry['version'].value}, this Weft has {found.version}. Update Weft."
                )
        if found is None:
            entry["function"].fail(f"{function!r} is not a function that a graph file may call.")
        return found.function

    def files(self, entry: Checked, kind: type[SaveOp] | type[RestoreOp]) -> SaveOp | RestoreOp:
        path = entry["path"].text()
        if not 0 < len(path) <= MAX_PATH or "\0" in path:
            entry["path"].expected("a path")
        states = {k: i.index(self.states) for k, i in entry["states"].mapping().items()}
        return kind(path, states, self.permitted(path))


def _checked(entry: Checked, rule: Callable[..., Any], *args: Any) -> Any:
    """Apply `rule` to a part of the file; errors name the place in the file."""
    try:
        return rule(*args)
    except (FileError, MemoryError, RecursionError):
        raise
    except Exception as error:  # a shape rule may fail in any way on what does not fit
        raise entry.error(f"does not fit together: {error}") from error


def _hexadecimal(entry: Checked) -> float:
    try:
        return float.fromhex(entry.text())
    except (ValueError, OverflowError):
        entry.expected("a hexadecimal floating-point number")


def _hashable(entry: Checked, key: Any) -> Any:
    if key is not None and type(key) not in (bool, int, float, str):
        entry.expected("a plain key")
    return key


def _are_arguments(value: Any) -> bool:
    if type(value) is not tuple or len(value) != 2:
        return False
    args, kwargs = value
    return type(args) is tuple and type(kwargs) is dict and all(type(k) is str for k in kwargs)


def _constraint(entry: Checked) -> Constraint:
    kind, index, job, task, soft = entry.items(5)
    numbers = [None if v.value is None else v.integer(0) for v in (index, task)]
    names = [None if v.value is None else v.text() for v in (kind, job)]
    return Constraint(names[0], numbers[0], names[1], numbers[1], soft.boolean())


class _Stored(Location):
    """A user's line of the program that saved the graph; its source may not be here."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        super().__init__(_Stored.__init__.__code__, 0)
        self.text = text

    def __str__(self) -> str:
        return f"{self.text} (when it was saved)"

    @property
    def short(self) -> str:
        return self.text.partition(" in ")[0]

    @property
    def place(self) -> str:
        return self.text
