"""Control-flow primitives: `switch`, `merge`, `enter`, `exit`, `next_iteration`, and the engine that runs them.

Note [Dead tokens]. A value travels along an edge as a token. `switch(data, pred)` sends a live token to the port of the
branch taken and a *dead* one to the other. A node with a dead input does not run and sends dead tokens on. `merge` is not
strict: it runs as soon as one live token comes, and is dead only if all are. `enter` moves a token into a frame (a loop),
`next_iteration` into the next iteration of it, `exit` out of it; a dead token ends at `next_iteration`, which is how a loop
stops. Tokens carry their frame and iteration, so iterations may overlap.

A graph is acyclic except for edges that `next_iteration` makes, so a cycle without it cannot be built. Mixing values of
different frames in one node is an error when the node is made. `cond`, `while_loop` and `scan` are the structured forms;
prefer them: they compile. These primitives are run node by node.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..autograd.tape import Node as TapeNode
from ..autograd.tape import Output, grad_mode, tick
from ..errors import describe, format_shape, user_location
from ..ops.spec import Spec, is_known, spec_of
from ..tensor import Tensor, wrap
from .declare import DeclaredGraph, GraphOp, get_default_graph
from .executor import Plan, Run, Unit
from .graph import Node, Value
from .interpret import located
from .partition import Key

ndarray = np.ndarray
Tag = tuple[tuple[str, int], ...]


class PrimitiveOp(GraphOp):
    """One of the primitives. It is run by the frame engine, which routes its tokens."""

    rules = joint_rule = pull_arrays = None
    keeps_arrays = False
    saved_items: tuple[Any, ...] = ()

    def __init__(self, name: str, frame: str = "", is_constant: bool = False) -> None:
        super().__init__(name)
        self.frame, self.is_constant = frame, is_constant
        self.backward: Any = None

    def pullback(self, node: Any, g: Any, edges: tuple[Any, ...], create_graph: bool) -> Any:
        if self.backward is None:
            raise RuntimeError(
                f"gradients: a loop built from primitives ({self.name}) has no gradient. Use `wf.while_loop` or `wf.scan`."
            )
        grads = [g.get(i) for i in range(len(node.outputs))] if isinstance(g, dict) else [g]
        return self.backward(grads)


def frame_of(node: Node) -> tuple[str, ...]:
    return node.graph.frames.get(node, ()) if isinstance(node.graph, DeclaredGraph) else ()


def _symbolic(name: str, x: Any) -> Tensor:
    if hasattr(x, "__weft_tensor__"):
        x = x.__weft_tensor__()
    if not isinstance(x, Tensor):
        x = Tensor(x)
    if not isinstance(x._data, Value):
        x = wrap(get_default_graph().operand(x))
    if not isinstance(x._data.node.graph, DeclaredGraph):
        raise TypeError(f"{name}: only for tensors of a declared graph. In captured functions use `wf.cond` and `wf.while_loop`.")
    return x


def _node(op: PrimitiveOp, tensors: Sequence[Tensor], specs: Sequence[Spec], backward: Any = None) -> list[Tensor]:
    graph = tensors[0]._data.node.graph
    node = graph.add(op, [graph.operand(t) for t in tensors], (), specs, user_location(2), op.name)
    results = [wrap(v) for v in node.outputs]
    if grad_mode.enabled and any(t._node is not None for t in tensors):
        entry = TapeNode()
        entry.op, entry.edges = op, tuple([t._node for t in tensors])
        entry.saved, entry.attrs, entry.specs, entry.hooks, entry.where = (), (), None, None, node.where
        entry.outputs = tuple([spec_of(v) for v in node.outputs])
        entry.seq = tick()
        op.backward = backward(results) if backward is not None else None
        for i, r in enumerate(results):
            if dtypes.is_inexact(r.dtype):
                r._node = Output(entry, i)
    return results


def switch(data: Any, pred: Any) -> tuple[Tensor, Tensor]:
    """(false port, true port): `data` goes to the port that `pred` (one bool) says, a dead token to the other."""
    data, pred = _symbolic("switch", data), _symbolic("switch", pred)
    if pred.dtype != dtypes.bool_ or pred._data.size not in (1, None):
        raise TypeError(f"switch: pred must be one bool. Got {describe(pred)}.")
    spec = Spec(data.shape, data.dtype)

    def backward(results: list[Tensor]) -> Any:
        ports = [r.detach() for r in results]

        def pull(g: list[Any]) -> list[Any]:
            from ..ops.creation import filled_like

            # a port nobody used still says whether it is live: zeros like it
            sides = [filled_like(p, 0, p.dtype) if gi is None else gi for p, gi in zip(ports, g, strict=True)]
            return [merge(*sides)[0], None]

        return pull

    no, yes = _node(PrimitiveOp("switch"), [data, pred], [spec, spec], backward)
    return no, yes


def merge(*inputs: Any) -> tuple[Tensor, Tensor]:
    """(value, index) of the first input whose token is live. In a loop: `merge(entered)`, closed by `next_iteration`."""
    if not inputs:
        raise ValueError("merge: expected at least one input. Got none.")
    tensors = [_symbolic("merge", x) for x in inputs]
    if len({t.dtype for t in tensors}) > 1:
        raise TypeError(f"merge: inputs must have one dtype. Got {[t.dtype.name for t in tensors]}.")
    shapes = [t.shape for t in tensors]
    shape: Any = shapes[0]
    for s in shapes[1:]:
        if shape is None or s is None or len(shape) != len(s):
            shape = None
        else:
            shape = tuple([a if a == b else None for a, b in zip(shape, s, strict=True)])
    if len(tensors) == 1 and tensors[0]._data.node.op.name != "enter":
        raise ValueError("merge: one input is only for loops, where it must come from `enter`.")

    def backward(results: list[Tensor]) -> Any:
        if len(tensors) == 1:
            return None
        index = results[1].detach()

        def pull(g: list[Any]) -> list[Any]:
            return [None if g[0] is None else switch(g[0], index == i)[1] for i in range(len(tensors))]

        return pull

    value, index = _node(PrimitiveOp("merge"), tensors, [Spec(shape, tensors[0].dtype), Spec((), dtypes.int32)], backward)
    return value, index


def enter(data: Any, frame: str, is_constant: bool = False) -> Tensor:
    """`data` inside the loop `frame`, in its first iteration; with `is_constant` in every iteration."""
    if not isinstance(frame, str) or not frame:
        raise ValueError(f"enter: expected the name of a frame. Got {frame!r}.")
    data = _symbolic("enter", data)
    (made,) = _node(PrimitiveOp("enter", frame, is_constant), [data], [Spec(data.shape, data.dtype)])
    node = made._data.node
    node.graph.frames[node] = (*frame_of(data._data.node), frame)
    return made


def exit(data: Any) -> Tensor:
    """`data` of a loop, outside of it."""
    data = _symbolic("exit", data)
    frame = frame_of(data._data.node)
    if not frame:
        raise ValueError(f"exit: the tensor is not inside a frame; `enter` it first. It was made at {data._data.node.where}.")
    (made,) = _node(PrimitiveOp("exit"), [data], [Spec(data.shape, data.dtype)])
    made._data.node.graph.frames[made._data.node] = frame[:-1]
    return made


def next_iteration(data: Any, into: Tensor) -> Tensor:
    """Send `data` to the next iteration, where the loop's `merge` (its value `into`) takes it."""
    data, into = _symbolic("next_iteration", data), _symbolic("next_iteration", into)
    node, target = data._data.node, into._data.node
    if target.op.name != "merge" or len(target.inputs) != 1:
        raise ValueError(f"next_iteration: `into` must be the value of a loop's `merge(entered)`, not closed yet. Got {into!r}.")
    if not frame_of(node) or frame_of(node) != frame_of(target):
        raise ValueError(
            f"next_iteration: data and merge must be in the same frame. Got {'/'.join(frame_of(node)) or 'none'} and "
            f"{'/'.join(frame_of(target)) or 'none'}. Data was made at {node.where}."
        )
    if data.dtype != into.dtype:
        raise TypeError(f"next_iteration: the loop's value is {into.dtype.name}. Got {data.dtype.name}.")
    if is_known(data.shape) and is_known(into.shape) and data.shape != into.shape:
        raise ValueError(
            f"next_iteration: the loop's value has shape {format_shape(into.shape)}. Got {format_shape(data.shape)}."
        )
    (made,) = _node(PrimitiveOp("next_iteration"), [data], [Spec(data.shape, data.dtype)])
    target.inputs = (*target.inputs, made._data)
    return made


def has_primitives(nodes: Sequence[Node]) -> bool:
    return any(isinstance(n.op, PrimitiveOp) for n in nodes)


# The engine ---------------------------------------------------------------------------------------------------------------


class _Slot:
    """A unit waiting for its tokens in one frame and iteration."""

    __slots__ = ("left", "dead", "arrays", "fired", "dead_count")

    def __init__(self, left: int, count: int) -> None:
        self.left, self.dead, self.fired, self.dead_count = left, False, False, 0
        self.arrays: list[Any] = [None] * count


class FrameEngine:
    """Runs a plan of single nodes with tokens. See Note [Dead tokens]; errors and cancellation as in `Engine`."""

    def __init__(self, plan: Plan, run: Run, env: dict[Value, Any], transport: Any) -> None:
        self.plan, self.run_state, self.env, self.transport = plan, run, env, transport
        self.wanted = set(plan.fetched)
        self.slots: dict[tuple[int, Tag], _Slot] = {}
        self.ready: deque[tuple[Unit, Tag, Any]] = deque()  # (unit, tag, its inputs, or None if dead)
        self.finished: deque[Any] = deque()
        self.pending: dict[Any, Any] = {}
        self.loop_constants: dict[Tag, list[tuple[Unit, Any]]] = {}  # by the frame's tag in iteration 0
        self.iterations: set[Tag] = set()
        self.users: dict[Value, list[tuple[Unit, int]]] = {}
        self.after: dict[Node, list[Unit]] = {}
        self._wire()

    def _wire(self) -> None:
        self.tokens: dict[int, int] = {}
        for unit in self.plan.units:
            count = 0
            for position, v in enumerate(unit.inputs):
                if v.__class__ is Value and v not in self.env and v not in self.plan.constants:
                    self.users.setdefault(v, []).append((unit, position))
                    count += 1
            for node in unit.node.control:
                self.after.setdefault(node, []).append(unit)
                count += 1
            self.tokens[unit.index] = count

    def execute(self) -> None:
        try:
            for unit in self.plan.units:
                if not self.tokens[unit.index]:
                    self.ready.append((unit, (), self._slot(unit, ()).arrays))
            while self.ready or self.pending:
                while self.ready:
                    self.run_state.check()
                    self._fire(*self.ready.popleft())
                if self.pending:
                    self._wait()
        except BaseException:
            for withdraw in self.pending.values():
                if withdraw is not None:
                    withdraw()
            raise
        for v in self.plan.fetched:
            if v not in self.env and v not in self.plan.constants:
                raise RuntimeError(
                    f"run: {v.name!r} has no value: it is in a branch that was not taken. Fetch the result of a `merge`. "
                    f"Made at {v.node.where}."
                )

    def _slot(self, unit: Unit, tag: Tag) -> _Slot:
        found = self.slots.get((unit.index, tag))
        if found is None:
            found = self.slots[(unit.index, tag)] = _Slot(self.tokens[unit.index], len(unit.inputs))
            for i, v in enumerate(unit.inputs):
                if v.__class__ is Value:
                    found.arrays[i] = self.env.get(v) if v in self.env else self.plan.constants.get(v)
                else:
                    found.arrays[i] = v
        return found

    def _wait(self) -> None:
        run = self.run_state
        with run.changed:
            while not self.finished and not run.cancelled:
                left = None if run.deadline is None else run.deadline - time.monotonic()
                if left is not None and left <= 0:
                    break
                run.changed.wait(left)
        if not self.finished:
            run.check()
        while self.finished:
            key, unit, tag, error, outputs = self.finished.popleft()
            self.pending.pop(key, None)
            if error is not None:
                raise located(error, unit.node)
            self._send(unit, tag, outputs)

    def _fire(self, unit: Unit, tag: Tag, arrays: Any) -> None:
        self.slots.pop((unit.index, tag), None)
        op = unit.node.op
        if isinstance(op, PrimitiveOp):
            self.run_state.executed += arrays is not None
            self._route(op, unit, tag, arrays)
        elif arrays is None:
            self._send(unit, tag, None)
        elif unit.start is not None:
            key = object()
            self.pending[key] = None

            def done(error: BaseException | None, outputs: Sequence[Any]) -> None:
                with self.run_state.changed:
                    self.finished.append((key, unit, tag, error, outputs))
                    self.run_state.changed.notify_all()

            withdraw = unit.start(arrays, done, self.run_state)
            if key in self.pending:
                self.pending[key] = withdraw
        else:
            self.run_state.executed += 1
            self._send(unit, tag, unit.run(arrays))

    def _route(self, op: PrimitiveOp, unit: Unit, tag: Tag, arrays: Any) -> None:
        outputs = unit.node.outputs
        dead = arrays is None
        if op.name == "switch":
            if dead:
                return self._send(unit, tag, None)
            taken = bool(np.all(arrays[1]))
            self._token(outputs[0], tag, arrays[0], taken)
            self._token(outputs[1], tag, arrays[0], not taken)
            self._go(unit.node, tag, False)
        elif op.name == "enter":
            inner = (*tag, (op.frame, 0))
            self._begin(inner)
            if op.is_constant and not dead:
                self.loop_constants.setdefault(inner, []).append((unit, arrays[0]))
                for other in [t for t in self.iterations if len(t) == len(inner) and t[:-1] == tag and t[-1][0] == op.frame]:
                    self._token(outputs[0], other, arrays[0], False)
            else:
                self._token(outputs[0], inner, None if dead else arrays[0], dead)
        elif op.name == "exit":
            if not dead:
                self._token(outputs[0], tag[:-1], arrays[0], False)
                self._go(unit.node, tag[:-1], False)
            elif tag[-1][1] == 0 and self._entered_dead(unit, tag):
                self._token(outputs[0], tag[:-1], None, True)
                self._go(unit.node, tag[:-1], True)
        elif op.name == "next_iteration":
            if not dead:
                frame, k = tag[-1]
                later = (*tag[:-1], (frame, k + 1))
                self._begin(later)
                self._token(outputs[0], later, arrays[0], False)
        else:
            raise AssertionError(op.name)  # merge is routed when its tokens come

    def _entered_dead(self, unit: Unit, tag: Tag) -> bool:
        """Whether nothing live ever entered this frame: then the loop does not run, and what leaves it is dead."""
        return (*tag[:-1], (tag[-1][0], -1)) not in self.iterations

    def _begin(self, tag: Tag) -> None:
        """The first token of an iteration: loop constants come with it."""
        if tag in self.iterations:
            return
        self.iterations.add(tag)
        first = (*tag[:-1], (tag[-1][0], 0))
        for unit, array in self.loop_constants.get(first, []):
            self._token(unit.node.outputs[0], tag, array, False)

    def _send(self, unit: Unit, tag: Tag, outputs: Sequence[Any] | None) -> None:
        """Tokens of all outputs, dead ones if `outputs` is None."""
        for i, v in enumerate(unit.outputs):
            self._token(v, tag, None if outputs is None else outputs[i], outputs is None)
        self._go(unit.node, tag, outputs is None)

    def _go(self, node: Node, tag: Tag, dead: bool) -> None:
        for unit in self.after.get(node, ()):
            self._arrive(unit, tag, None, None, dead)

    def _token(self, value: Value, tag: Tag, array: Any, dead: bool) -> None:
        if not dead and tag and value.node.op.name == "enter":
            self.iterations.add((*tag[:-1], (tag[-1][0], -1)))  # something live entered
        if value in self.wanted and not tag and not dead:
            self.env[value] = array
        source = self.plan.devices.get(value.node)
        crossed: dict[Any, Any] = {}  # each value is sent once per destination
        for unit, position in self.users.get(value, ()):
            arrived = array
            if unit.device != source and not dead:
                if unit.device not in crossed:
                    crossed[unit.device] = self._cross(value, source, unit.device, tag, array)
                arrived = crossed[unit.device]
            self._arrive(unit, tag, position, arrived, dead)

    def _cross(self, value: Value, source: Any, destination: Any, tag: Tag, array: Any) -> Any:
        """A value of one iteration on its way to another device. In this process it is there at once."""
        key = Key(source, destination, value.name, self.run_state.step_id, tag)
        self.transport.send(key, array)
        got: list[Any] = []
        self.transport.receive(key, lambda error, arrays: got.extend(arrays))
        return got[0]

    def _arrive(self, unit: Unit, tag: Tag, position: int | None, array: Any, dead: bool) -> None:
        slot = self._slot(unit, tag)
        if unit.node.op.name == "merge" and position is not None:
            self._merge(unit, tag, slot, position, array, dead)
            return
        slot.left -= 1
        slot.dead = slot.dead or dead
        if position is not None:
            slot.arrays[position] = array
        if slot.left == 0:
            self.ready.append((unit, tag, None if slot.dead else slot.arrays))

    def _merge(self, unit: Unit, tag: Tag, slot: _Slot, position: int, array: Any, dead: bool) -> None:
        if slot.fired:
            return
        slot.dead_count += dead
        forward = sum(1 for v in unit.inputs if v.node.op.name != "next_iteration")
        if dead and slot.dead_count < forward:
            return
        slot.fired = True
        self.run_state.executed += not dead
        value, index = unit.node.outputs
        self._token(value, tag, array, dead)
        self._token(index, tag, np.asarray(position, np.int32), dead)
        self._go(unit.node, tag, dead)
