"""Regions: the pure parts of a step, each compiled to one program and run as one node.

Note [Regions]. A *unit* is what an executor starts: a node that must run by itself (it blocks, has effects on the host, or
is a routing op), or a region. A region is the set of pure and state nodes that have the same units among
their ancestors. So a region waits for nothing that each of its nodes would not wait for, regions and units form no cycle,
and a step without blocking nodes is one region: one program call.

A region learns the shapes of its inputs when it runs, and is specialised and compiled once per combination. Inside, state
is functional: a read is the value on entry or the last one assigned, in the order in which nodes were declared; final
values are stored at the end, under the locks of Note [Atomic state ops].
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...autograd.tape import memory_of, mutations, no_grad, note_mutation, renew, tick
from ...compiler.build import CompiledFlow, compile_flow
from ...compiler.flow import Flow
from ...ops.core.spec import Spec, is_known
from ...runtime.limits import LeastRecentlyUsed, max_programs
from ...tensor import wrap
from ..capture.control_flow import ControlOp
from ..capture.subgraph import Sub, SubGraph
from ..declared.building import NO_OP, GraphOp
from ..declared.deferred_nodes import DeferredOp
from ..declared.variables import ReadOp, State, WriteOp, locked
from ..graph import CONSTANT, PLACEHOLDER, Node, Value
from .interpret import located, run_node, scan_length
from .leases import note_effects

ndarray = np.ndarray
MAX_INTERPRETED_ELEMENTS = 4096  # up to this size, a region that only moves values is left to NumPy


class DynamicSize(Exception):
    """A size that depends on data: the region cannot be compiled."""


class Region:
    """Nodes in order, with the values that come in and go out. Several threads may run one region at once."""

    __slots__ = (
        "nodes",
        "inputs",
        "outputs",
        "writes",
        "write_ops",
        "states",
        "locks",
        "reference",
        "_made",
        "_lock",
        "_last",
    )

    def __init__(
        self, nodes: Sequence[Node], inputs: Sequence[Value], outputs: Sequence[Value], reference: bool = False
    ) -> None:
        self.nodes = list(nodes)
        self.inputs, self.outputs = list(inputs), list(dict.fromkeys(outputs))
        self.writes: list[State] = list(dict.fromkeys(n.op.state for n in nodes if isinstance(n.op, WriteOp)))
        self.write_ops = [n.op for n in nodes if isinstance(n.op, WriteOp)]
        used = [n.op.state for n in nodes if isinstance(n.op, (ReadOp, WriteOp))]
        self.states: list[State] = sorted(set(used), key=lambda s: s.number)
        whole = {op.state for op in self.write_ops if op.kind != "scatter_add"}
        rows = [s for s in self.writes if s not in whole]
        self.locks = locked(self.states, self.writes, rows) if self.states else None
        self.reference = reference  # NumPy kernels only, never compiled
        # One per combination of shapes; in a tuple, for None is a result: it is interpreted.
        self._made: LeastRecentlyUsed[Any, tuple[_Compiled | None]] = LeastRecentlyUsed(max_programs)
        self._lock = threading.Lock()
        self._last: tuple[Any, Any] = (None, None)

    def run(self, arrays: Sequence[ndarray]) -> list[ndarray]:
        """The outputs on arrays for the inputs; stores what the nodes assign."""
        key = [(a.shape, a.dtype) for a in arrays] if arrays else None
        last = self._last
        made = last[1] if last[0] == key and last[0] is not None else self._prepared(key)
        locks = self.locks
        if locks is None:
            return made.run(arrays) if made is not None else self._interpret(arrays)
        with locks:
            if not self.writes:
                return made.run(arrays) if made is not None else self._interpret(arrays)
            try:
                outputs = made.run(arrays) if made is not None else self._interpret(arrays)
            except Exception:
                raise  # before the first variable was written
            except BaseException:  # Ctrl-C comes at any moment
                note_effects(self.write_ops)
                raise
            note_effects(self.write_ops)
            return outputs

    def _prepared(self, key: Any) -> Any:
        name = tuple(key) if key is not None else ()
        with self._lock:
            found = self._made.get(name)
            if found is None:
                found = (self._compile(name),)
                self._made.put(name, found)
            self._last = (key, found[0])
            return found[0]

    def _compile(self, key: tuple[Any, ...]) -> _Compiled | None:
        if self.reference:
            return None
        try:
            flow, finals = functional(self, [Spec(shape, dtype) for shape, dtype in key])
        except DynamicSize:
            return None
        work = [n for n in flow.nodes if n.op is not CONSTANT and n.op is not PLACEHOLDER]
        if not work and all((v.size or 0) <= MAX_INTERPRETED_ELEMENTS for v in flow.outputs):
            return None
        index = {id(s): i for i, s in enumerate(self.states)}
        targets = [None] * len(self.outputs) + [index[id(s)] for s, _ in finals]
        states = [s.tensor._data for s in self.states]
        return _Compiled(self, compile_flow(flow, len(self.inputs), states, targets), [s for s, _ in finals])

    def _interpret(self, arrays: Sequence[ndarray]) -> list[ndarray]:
        env: dict[Value, Any] = dict(zip(self.inputs, arrays, strict=True))
        current = {s: np.array(s.tensor._data) for s in self.states}
        for node in self.nodes:
            op = node.op
            if op is CONSTANT:
                env[node.outputs[0]] = node.attrs[0]
            elif op is NO_OP:
                continue
            elif op.__class__ is ReadOp:
                env[node.outputs[0]] = current[op.state]
            elif op.__class__ is WriteOp:
                try:
                    new = op.apply(wrap(current[op.state]), [wrap(env[v]) for v in node.inputs])._data
                except Exception as error:
                    raise located(error, node) from error.__cause__
                env[node.outputs[0]] = current[op.state] = new
            else:
                outs = run_node(node, [env[v] if v.__class__ is Value else v for v in node.inputs], self.reference)
                for v, a in zip(node.outputs, outs, strict=True):
                    env[v] = a
        for s in self.writes:  # everything that can fail has been computed
            s.store(current[s])
        owned = []
        taken: set[int] = set()
        for v in self.outputs:
            a = env[v]
            if (
                a.base is not None
                or v.node.op is CONSTANT
                or id(a) in taken
                or any(a is b for b in arrays)
                or self.states
            ):
                a = np.array(a)
            taken.add(id(a))
            owned.append(a)
        return owned


class _Compiled:
    """A region for one combination of input shapes."""

    __slots__ = ("region", "compiled", "written", "count", "_writes")

    def __init__(self, region: Region, compiled: CompiledFlow, written: list[State]) -> None:
        self.region, self.compiled, self.written = region, compiled, written
        self.count = len(region.outputs)
        self._writes: list[Any] = [None] * len(written)

    def run(self, arrays: Sequence[ndarray]) -> list[ndarray]:
        compiled = self.compiled
        arguments = [compiled.fit(i, a) for i, a in enumerate(arrays)]
        variables = [s.tensor._data for s in self.region.states]
        if variables and not all(map(_is, variables, compiled.seen)):
            compiled.check_variables(variables)
        outputs = compiled.program(arguments, variables)
        if self.written:
            self._note()
        return outputs[: self.count]

    def _note(self) -> None:
        """Tell the tape of the writes (see Note [Mutation clock]); cheap from the second run on."""
        now = tick()
        for i, s in enumerate(self.written):
            data = s.tensor._data
            write = self._writes[i]
            if write is not None and write[2] is data:
                known = mutations.get(write[0])
                if known is not None and known[-1] is write[1]:
                    renew(write[1].moment, now)
                    continue
            note_mutation(data, "assign")
            key = id(memory_of(data))
            self._writes[i] = (key, mutations[key][-1], data)


def _is(a: Any, b: Any) -> bool:
    return a is b


def functional(region: Region, specs: Sequence[Spec]) -> tuple[Flow, list[tuple[State, Value]]]:
    """The region as a flow with known sizes, and the final values of the state it writes (also the last outputs)."""
    flow = Flow(region.nodes[0].graph.name if region.nodes else "region")
    mapped: dict[Value, Value] = {}
    for v, spec in zip(region.inputs, specs, strict=True):
        mapped[v] = flow.add(PLACEHOLDER, (), (), (spec,), v.node.where, v.node.name).outputs[0]
        flow.inputs.append(mapped[v])
    current: dict[State, Value] = {}
    for s in region.states:
        spec = Spec(s.tensor.shape, s.tensor.dtype)
        current[s] = flow.add(PLACEHOLDER, (), (), (spec,), None, s.name).outputs[0]
        flow.inputs.append(current[s])
    entry = dict(current)
    for node in region.nodes:
        op = node.op
        if op is NO_OP:
            continue
        if op is CONSTANT:
            mapped[node.outputs[0]] = flow.constant(node.attrs[0])
        elif op.__class__ is ReadOp:
            mapped[node.outputs[0]] = current[op.state]
        else:
            try:
                outs = _emit(flow, node, [mapped[v] if isinstance(v, Value) else v for v in node.inputs], current)
            except DynamicSize:
                raise
            except Exception as error:
                raise located(error, node) from error.__cause__
            for v, out in zip(node.outputs, outs, strict=True):
                if not is_known(out.shape):
                    raise DynamicSize(node.name)
                mapped[v] = out
    finals = [(s, current[s]) for s in region.writes if current[s] is not entry[s]]
    flow.outputs = [*[mapped[v] for v in region.outputs], *[v for _, v in finals]]
    return flow, finals


def _emit(flow: Flow, node: Node, args: Sequence[Any], current: dict[State, Value]) -> Sequence[Value]:
    op = node.op
    if op.__class__ is WriteOp:
        flow.current = node.where
        with no_grad():
            new = op.apply(wrap(current[op.state]), [wrap(v) for v in args])._data
        flow.current = None
        current[op.state] = new
        return (new,)
    if isinstance(op, DeferredOp):
        flow.current = node.where
        try:
            return _expanded(flow, op, args)
        finally:
            flow.current = None
    if isinstance(op, GraphOp):
        raise DynamicSize(node.name)
    if isinstance(op, ControlOp):
        op, specs = specialised(op, [Spec(v.shape, v.dtype) for v in args])
        return flow.add(op, args, (), specs, node.where, node.name).outputs
    return flow.emit(op, args, node.attrs, node.where).outputs


def _expanded(graph: Any, op: DeferredOp, args: Sequence[Any]) -> Sequence[Value]:
    """Expand a deferred op now that sizes are known, see Note [Deferred nodes]."""
    first = len(graph.nodes)
    with no_grad():
        made = op.expand([wrap(v) if isinstance(v, Value) else v for v in args])
    for node in graph.nodes[first:]:
        if not all(is_known(v.shape) for v in node.outputs):
            raise DynamicSize(node.name)
    return [graph.operand(t) for t in made]


def specialised(op: ControlOp, specs: Sequence[Spec]) -> tuple[ControlOp, list[Spec]]:
    """A control-flow op for inputs of these specs, and the specs of its outputs: its subgraphs are inferred again."""
    outer = op.facts["outer"]
    inner, captured = specs[: len(specs) - len(outer)], specs[len(specs) - len(outer) :]
    at = {id(t): s for t, s in zip(outer, captured, strict=True)}
    formals = list(inner[1:]) if op.kind == "cond" else list(inner)
    facts = op.facts
    if op.kind == "scan":
        carry = op.facts["carry"]
        n = scan_length(facts["n"], [s.shape[0] for s in inner[carry:]])
        if not n:
            raise DynamicSize("a scan of nothing")
        facts = {**facts, "n": n}
        formals = [*inner[:carry], *[Spec(s.shape[1:], s.dtype) for s in inner[carry:]]]
    subs = [_specialised_sub(sub, formals, [at[id(t)] for t in sub.captured]) for sub in op.subs]
    made = ControlOp(op.kind, subs, **facts)
    outs = [Spec(v.shape, v.dtype) for v in subs[-1].outputs]
    if op.kind == "scan":
        kept = [Spec((n, *s.shape), s.dtype) for s in formals[:carry]] if op.facts["keep"] else []
        outs = [*outs[:carry], *[Spec((n, *s.shape), s.dtype) for s in outs[carry:]], *kept]
    if op.kind == "while" and outs != formals:
        raise DynamicSize("a state whose sizes change")
    if op.kind == "cond" and outs != [Spec(v.shape, v.dtype) for v in subs[0].outputs]:
        raise DynamicSize("branches of different sizes")
    return made, outs


class _Specialised(SubGraph):
    """A subgraph for known sizes: constants created by the expansion of deferred nodes belong to it."""

    def outside(self, tensor: Any) -> Value:
        return self.constant(tensor._data)

    @property
    def open_sizes(self) -> bool:
        return False


def _specialised_sub(sub: Sub, formals: Sequence[Spec], captured: Sequence[Spec]) -> Sub:
    new: Sub = object.__new__(Sub)
    graph = new.graph = _Specialised(sub.graph.name)
    graph.captured = sub.captured
    mapped: dict[Value, Any] = {}
    new.formals = []
    for v, spec in zip([*sub.formals, *sub.graph.entries], [*formals, *captured], strict=True):
        made = mapped[v] = graph.add(PLACEHOLDER, (), (), (spec,), v.node.where, "formal").outputs[0]
        (new.formals if len(new.formals) < len(sub.formals) else graph.entries).append(made)
    for node in sub.graph.nodes:
        if node.op is PLACEHOLDER:
            continue
        if node.op is CONSTANT:
            mapped[node.outputs[0]] = graph.constant(node.attrs[0])
            continue
        args = [mapped[v] if isinstance(v, Value) else v for v in node.inputs]
        try:
            if isinstance(node.op, DeferredOp):
                outs: Sequence[Value] = _expanded(graph, node.op, args)
            elif isinstance(node.op, GraphOp):
                raise DynamicSize(node.name)
            elif isinstance(node.op, ControlOp):
                op, specs = specialised(node.op, [Spec(v.shape, v.dtype) for v in args])
                outs = graph.add(op, args, (), specs, node.where, node.name).outputs
            else:
                outs = graph.emit(node.op, args, node.attrs, node.where).outputs
        except DynamicSize:
            raise
        except Exception as error:
            raise located(error, node) from error.__cause__
        if not all(is_known(v.shape) for v in outs):
            raise DynamicSize(node.name)
        mapped.update(zip(node.outputs, outs, strict=True))
    graph.outputs = [mapped[v] for v in sub.outputs]
    new.structure, new.static = sub.structure, sub.static
    graph.finished = True
    return new
