"""Lower structured control flow to switch, merge, enter, exit and next_iteration, for the token engine.

A `cond`, `while_loop` or `scan` whose subgraphs are pure and on one device stays one node: it compiles to native branches
and loops, without a token per node and iteration (`docs/graph.md` has the numbers). A node is lowered when a subgraph holds
state or queue ops, or nodes that the user placed on other devices. `Session(lower=True)` lowers everything, for tests.

Note [Lowered effects]. A node without inputs, or with effects, waits for the *pivot* of its branch or body: a token that
is live exactly when the branch is taken or the iteration runs. The results of a branch or body wait for all its effects. So
effects happen once per taken branch or iteration, and those of one iteration before those of the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import dtypes
from ...ops.core.spec import Spec
from ..capture.control_flow import ControlOp
from ..capture.subgraph import Sub
from ..declared.building import NO_OP, DeclaredGraph, GraphOp
from ..declared.routing import RoutingOp
from ..graph import CONSTANT, PLACEHOLDER, Graph, Node, Value
from .interpret import stack_rows

_INDEX = Spec((), dtypes.int64)  # of an iteration; also stands for a buffer


def _expect(name: str, inputs: Sequence[Spec], *specs: Spec | None) -> None:
    """Raise unless `inputs` are as many as `specs`, and of their dtypes where one is given."""
    if len(inputs) != len(specs) or any(
        s is not None and s.dtype != v.dtype for s, v in zip(specs, inputs, strict=True)
    ):
        raise ValueError(f"{name} does not have these inputs.")


class PassOp(GraphOp):
    """The identity: its input, after its control edges."""

    def __init__(self) -> None:
        super().__init__("pass")

    def results_of(self, inputs: Sequence[Spec], stored: Sequence[Spec]) -> list[Spec]:
        _expect(self.name, inputs, None)
        return list(inputs)

    def run(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        return (arrays[0],)


class RowOp(GraphOp):
    """xs[t] for iteration `i` of a scan."""

    def __init__(self, reverse: bool) -> None:
        super().__init__("row")
        self.reverse = reverse

    def results_of(self, inputs: Sequence[Spec], stored: Sequence[Spec]) -> list[Spec]:
        _expect(self.name, inputs, None, _INDEX)
        return [Spec(None if inputs[0].shape is None else inputs[0].shape[1:], inputs[0].dtype)]

    def run(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        xs, i = arrays
        return (xs[len(xs) - 1 - int(i) if self.reverse else int(i)],)


class BufferOp(GraphOp):
    """A list for the rows that a scan stores: `n`, or the length of the input."""

    buffers = True

    def __init__(self, n: int | None) -> None:
        super().__init__("buffer")
        self.n = n

    def results_of(self, inputs: Sequence[Spec], stored: Sequence[Spec]) -> list[Spec]:
        _expect(self.name, inputs, None)
        return [_INDEX]

    def run(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        return ([None] * (self.n if self.n is not None else len(arrays[0])),)


class StoreOp(GraphOp):
    """Store a row in a buffer, in place: every version of a buffer is used once."""

    buffers = True

    def __init__(self, reverse: bool) -> None:
        super().__init__("store")
        self.reverse = reverse

    def results_of(self, inputs: Sequence[Spec], stored: Sequence[Spec]) -> list[Spec]:
        _expect(self.name, inputs, _INDEX, _INDEX, None)
        return [_INDEX]

    def run(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        buffer, i, row = arrays
        buffer[len(buffer) - 1 - int(i) if self.reverse else int(i)] = row
        return (buffer,)


class StackOp(GraphOp):
    """The rows of a buffer as one array."""

    def __init__(self, spec: Spec) -> None:
        super().__init__("stack")
        self.spec = spec

    def results_of(self, inputs: Sequence[Spec], stored: Sequence[Spec]) -> list[Spec]:
        _expect(self.name, inputs, _INDEX)
        return [self.spec]

    def run(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        sizes = [d if isinstance(d, int) else 0 for d in (self.spec.shape or ())[1:]]
        return (stack_rows(arrays[0]) if arrays[0] else np.empty((0, *sizes), self.spec.dtype),)


class GoesOnOp(GraphOp):
    """Whether iteration `i` is within the scan."""

    def __init__(self, n: int | None) -> None:
        super().__init__("goes_on")
        self.n = n

    def results_of(self, inputs: Sequence[Spec], stored: Sequence[Spec]) -> list[Spec]:
        _expect(self.name, inputs, _INDEX, None)
        return [Spec((), dtypes.bool_)]

    def run(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        i, like = arrays
        return (np.asarray(i < (self.n if self.n is not None else len(like))),)


class CountOp(GraphOp):
    """The number of the next iteration."""

    def __init__(self) -> None:
        super().__init__("count")

    def results_of(self, inputs: Sequence[Spec], stored: Sequence[Spec]) -> list[Spec]:
        _expect(self.name, inputs, _INDEX)
        return [_INDEX]

    def run(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        return (arrays[0] + 1,)


STEP_OPS: dict[str, tuple[type[GraphOp], str | None]] = {
    "pass": (PassOp, None), "row": (RowOp, "reverse"), "buffer": (BufferOp, "n"), "store": (StoreOp, "reverse"),
    "stack": (StackOp, "spec"), "goes_on": (GoesOnOp, "n"), "count": (CountOp, None),
}  # fmt: skip
"""the ops that only lowering makes, by name, each with the attribute that its constructor takes"""


def must_lower(node: Node) -> bool:
    """Whether a control-flow node cannot be one compiled node."""
    return isinstance(node.op, ControlOp) and any(_is_special(sub, node.device) for sub in node.op.subs)


def _is_special(sub: Sub, device: Any) -> bool:
    for node in sub.graph.nodes:
        if isinstance(node.op, GraphOp) and not getattr(node.op, "pure", False):
            return True
        if node.op is not CONSTANT and node.op is not PLACEHOLDER and (node.device or ()) != (device or ()):
            return True
        if isinstance(node.op, ControlOp) and any(_is_special(s, device) for s in node.op.subs):
            return True
    return False


class _Context:
    """Where nodes are placed: the enclosing loops, and the pivot (Note [Lowered effects])."""

    __slots__ = ("path", "pivot", "effects", "device")

    def __init__(self, path: tuple[str, ...], pivot: Node | None, device: Any) -> None:
        self.path, self.pivot, self.device = path, pivot, device
        self.effects: list[Node] = []


class Lowered:
    """A copy of the nodes of a step in which control flow is lowered. `values` and `nodes` map old to new."""

    def __init__(self, nodes: Sequence[Node], everywhere: bool) -> None:
        self.graph = DeclaredGraph(nodes[0].graph.name if nodes else "lowered")
        self.values: dict[Value, Value] = {}
        self.nodes: dict[Node, Node] = {}
        self.everywhere = everywhere
        self.where: Any = None
        top = _Context((), None, None)
        frames = getattr(nodes[0].graph, "frames", {}) if nodes else {}
        waiting: list[tuple[Node, Node]] = []  # merges whose second input is made later
        for node in nodes:
            top.path = frames.get(node, ())
            made = self._copy(node, self.values, top, [self.nodes[c] for c in node.control if c in self.nodes])
            if made is not None and node.op.routes == "merge":
                waiting.append((node, made))
        for old, new in waiting:
            new.inputs = tuple([self.values[v] for v in old.inputs])
        colocated = getattr(nodes[0].graph, "colocated", {}) if nodes else {}
        for node in nodes:
            if node in colocated and node in self.nodes:
                self.graph.colocated[self.nodes[node]] = self.nodes.get(colocated[node], colocated[node])

    # Copying --------------------------------------------------------------------------------------------------------------

    def _copy(self, node: Node, values: dict[Value, Value], context: _Context, control: Sequence[Node]) -> Node | None:
        """Copy a node; `values` maps its inputs to their copies, and receives its outputs."""
        op = node.op
        self.where = node.where
        inputs = [values[v] if v.__class__ is Value and v in values else v for v in node.inputs]
        if isinstance(op, ControlOp) and (self.everywhere or must_lower(node)):
            outer = context.device
            context.device = node.device
            outputs = {"cond": self._cond, "while": self._while, "scan": self._scan}[op.kind](
                node, inputs, context, control
            )
            context.device = outer
            values.update(zip(node.outputs, outputs, strict=True))
            done = self._add(NO_OP, [], [], context, [v.node for v in outputs], f"{node.name}/done", False)
            self.nodes[node] = done
            if _is_special_op(op):
                context.effects.append(done)
            return None
        specs = [Spec(v.shape, v.dtype) for v in node.outputs]
        made = self._add(op, inputs, specs, context, control, node.name, True, node.attrs)
        made.device = node.device
        values.update(zip(node.outputs, made.outputs, strict=True))
        self.nodes[node] = made
        return made

    def _add(
        self, op: Any, inputs: Sequence[Any], specs: Sequence[Spec], context: _Context, control: Sequence[Node],
        name: str, gated: bool = True, attrs: Any = (),
    ) -> Node:  # fmt: skip
        made = Graph.add(self.graph, op, inputs, attrs, specs, self.where, name)
        made.device = context.device
        effect = isinstance(op, GraphOp) and bool(op.effects)
        token = any(v.__class__ is Value and v.node.op is not CONSTANT for v in inputs)
        if op is not CONSTANT:
            edges = list(control)
            if gated and context.pivot is not None and (effect or not token):
                edges.append(context.pivot)
            made.control = tuple(dict.fromkeys(edges))
        if context.path:
            self.graph.frames[made] = context.path
        if effect:
            context.effects.append(made)
        return made

    def _routing(
        self, name: str, inputs: Sequence[Any], context: _Context, title: str, **facts: Any
    ) -> tuple[Value, ...]:
        spec = Spec(inputs[0].shape, inputs[0].dtype)
        specs = {"switch": [spec, spec], "merge": [spec, Spec((), dtypes.int32)]}.get(name, [spec])
        return self._add(RoutingOp(name, **facts), inputs, specs, context, (), f"{title}/{name}").outputs

    def _body(self, sub: Sub, formals: Sequence[Value], captured: Sequence[Value], context: _Context) -> list[Value]:
        """Copy the nodes of a subgraph; returns its results, each gated by the pivot and the effects."""
        values = dict(zip([*sub.formals, *sub.graph.entries], [*formals, *captured], strict=True))
        inside: dict[Node, Node] = {}
        outer, self.nodes = self.nodes, inside
        before = len(context.effects)
        for node in sub.graph.nodes:
            if node.op is not PLACEHOLDER:
                self._copy(node, values, context, [inside[c] for c in node.control if c in inside])
        self.nodes = outer
        effects = context.effects[before:]
        results = []
        for v in sub.outputs:
            spec = Spec(v.shape, v.dtype)
            control = [*([context.pivot] if context.pivot is not None else []), *effects]
            results.append(self._add(PassOp(), [values[v]], [spec], context, control, "result").outputs[0])
        return results

    # The forms ------------------------------------------------------------------------------------------------------------

    def _cond(self, node: Node, inputs: Sequence[Any], context: _Context, control: Sequence[Node]) -> list[Value]:
        op, count = node.op, 1 + node.op.facts["operands"]
        flag = self._add(
            PassOp(), [inputs[0]], [Spec((), dtypes.bool_)], context, control, f"{node.name}/pred"
        ).outputs[0]
        ports = {
            id(v): self._routing("switch", [v, flag], context, node.name) for v in dict.fromkeys([flag, *inputs[1:]])
        }
        results: list[list[Value]] = []
        pivots: list[Value] = []
        for side, sub in ((1, op.subs[0]), (0, op.subs[1])):
            live = self._add(
                PassOp(), [ports[id(flag)][side]], [Spec((), dtypes.bool_)], context, (), f"{node.name}/taken"
            )
            branch = _Context(context.path, live, context.device)
            at = {id(t): ports[id(v)][side] for t, v in zip(op.facts["outer"], inputs[count:], strict=True)}
            formals = [ports[id(v)][side] for v in inputs[1:count]]
            results.append(self._body(sub, formals, [at[id(t)] for t in sub.captured], branch))
            ended = self._add(
                PassOp(), [live.outputs[0]], [Spec((), dtypes.bool_)], context, branch.effects, f"{node.name}/end"
            )
            pivots.append(ended.outputs[0])
        merged = [self._routing("merge", pair, context, node.name)[0] for pair in zip(*results, strict=True)]
        both = self._routing("merge", pivots, context, node.name)[0]
        return [self._after(v, both.node, context) for v in merged]

    def _after(self, value: Value, node: Node, context: _Context) -> Value:
        return self._add(PassOp(), [value], [Spec(value.shape, value.dtype)], context, [node], "result").outputs[0]

    def _loop(
        self, name: str, start: Sequence[Value], constants: Sequence[Value], context: _Context, control: Sequence[Node],
        test: Any, body: Any,
    ) -> list[Value]:  # fmt: skip
        """`while test: state = body`, with functions that add nodes to a context and return values."""
        frame = self.graph.unique_name(f"{name}/frame")
        inner = _Context((*context.path, frame), None, context.device)
        entered: list[Value] = []
        merged: list[Value] = []
        gate = [*control, *([context.pivot] if context.pivot is not None else [])]
        for v in (*start, *constants):
            spec = Spec(v.shape, v.dtype)
            op = RoutingOp("enter", frame, len(entered) >= len(start))
            made = self._add(op, [v], [spec], inner, gate, f"{name}/enter", False)
            entered.append(made.outputs[0])
        for v in entered[: len(start)]:
            merged.append(self._routing("merge", [v], inner, name)[0])
        fixed = entered[len(start) :]
        inner.pivot = merged[0].node
        going = test(merged, fixed, inner)
        ports = [self._routing("switch", [m, going], inner, name) for m in merged]
        live = self._add(
            PassOp(), [ports[0][1]], [Spec(merged[0].shape, merged[0].dtype)], inner, (), f"{name}/runs", False
        )
        iteration = _Context(inner.path, live, context.device)
        news = body([p[1] for p in ports], fixed, iteration)
        for m, new in zip(merged, news, strict=True):
            back = self._routing("next_iteration", [new], iteration, name)[0]
            m.node.inputs = (*m.node.inputs, back)
        results = []
        for no, _ in ports:
            made = self._add(RoutingOp("exit"), [no], [Spec(no.shape, no.dtype)], inner, (), f"{name}/exit", False)
            del self.graph.frames[made]
            if context.path:
                self.graph.frames[made] = context.path
            results.append(made.outputs[0])
        return results

    def _while(self, node: Node, inputs: Sequence[Any], context: _Context, control: Sequence[Node]) -> list[Value]:
        op, count = node.op, node.op.facts["operands"]
        condition, body = op.subs
        at = {id(t): i for i, t in enumerate(op.facts["outer"])}

        def test(state: Any, fixed: Any, place: _Context) -> Value:
            return self._body(condition, state, [fixed[at[id(t)]] for t in condition.captured], place)[0]

        def run(state: Any, fixed: Any, place: _Context) -> list[Value]:
            return self._body(body, state, [fixed[at[id(t)]] for t in body.captured], place)

        return self._loop(node.name, inputs[:count], inputs[count:], context, control, test, run)

    def _scan(self, node: Node, inputs: Sequence[Any], context: _Context, control: Sequence[Node]) -> list[Value]:
        (sub,) = node.op.subs
        facts = node.op.facts
        carries, count, n = facts["carry"], facts["carry"] + facts["xs"], facts["n"]
        number = Spec((), dtypes.int64)
        zero = Graph.constant(self.graph, np.zeros((), np.int64))
        kept = carries if facts["keep"] else 0
        rows_like = inputs[carries] if carries < count else zero
        buffers = [
            self._add(BufferOp(n), [rows_like], [number], context, control, f"{node.name}/buffer").outputs[0]
            for _ in range(facts["ys"] + kept)
        ]
        like = carries if carries < count else None  # the first xs, for the number of iterations

        def test(state: Any, fixed: Any, place: _Context) -> Value:
            xs = fixed[0] if like is not None else state[0]
            return self._add(GoesOnOp(n), [state[0], xs], [Spec((), dtypes.bool_)], place, (), "goes_on").outputs[0]

        def run(state: Any, fixed: Any, place: _Context) -> list[Value]:
            i, carry, rows = state[0], state[1 : 1 + carries], list(state[1 + carries :])
            slices = []
            for x, formal in zip(fixed[: facts["xs"]], sub.formals[carries:], strict=True):
                spec = Spec(formal.shape, formal.dtype)
                slices.append(self._add(RowOp(facts["reverse"]), [x, i], [spec], place, (), "row").outputs[0])
            results = self._body(sub, [*carry, *slices], fixed[facts["xs"] :], place)
            for j, row in enumerate([*results[carries:], *carry[:kept]]):
                rows[j] = self._add(StoreOp(facts["reverse"]), [rows[j], i, row], [number], place, (), "store").outputs[
                    0
                ]
            following = self._add(CountOp(), [i], [number], place, (), "count").outputs[0]
            return [following, *results[:carries], *rows]

        start = [zero, *inputs[:carries], *buffers]
        final = self._loop(node.name, start, inputs[carries:], context, control, test, run)
        stacked = []
        for v, out in zip(final[1 + carries :], node.outputs[carries:], strict=True):
            spec = Spec(out.shape, out.dtype)
            stacked.append(self._add(StackOp(spec), [v], [spec], context, (), "stack").outputs[0])
        return [*final[1 : 1 + carries], *stacked]


def _is_special_op(op: ControlOp) -> bool:
    return any(_has_effects(sub) for sub in op.subs)


def _has_effects(sub: Sub) -> bool:
    return any(
        (isinstance(n.op, GraphOp) and bool(n.op.effects)) or (isinstance(n.op, ControlOp) and _is_special_op(n.op))
        for n in sub.graph.nodes
    )
