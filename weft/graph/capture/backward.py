"""The pullback of a captured function: the program that eager code runs to differentiate its results.

While the function's graph is still open, the gradients of its results are captured too, from placeholders for the
outer gradients. What the pullback needs from the forward pass becomes further outputs of the forward program; the
pullback itself is a second program, compiled when it is first needed.

What the pullback reads of arguments and outside tensors is read again when it runs: if one was overwritten in between,
that is an error, as eagerly. Outside tensors that the function itself writes (the state of a random generator) are kept
as they were.

Gradients that will be differentiated again (`create_graph=True`) come from a separate captured function: the nodes of
the forward pass are run again and differentiated, and that function has a pullback in turn. Where the tape was cut
(`no_grad`, `detach`, a Function of the user's, hooks) they would give other gradients, so that is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...autograd.engine import run_backward
from ...autograd.hooks import hooks_of, retains_gradient
from ...autograd.tape import FREED, Leaf, Node, Output, check_overwritten
from ...ops.core.inplace import rebase
from ...ops.core.spec import spec_of
from ...tensor import Tensor, wrap
from ..graph import CONSTANT, PLACEHOLDER, Value, replay
from .relinking import Made
from .tracing import Uncapturable

if TYPE_CHECKING:
    from .trace import Trace


def _tape(tensors: Iterable[Tensor], ends: Iterable[Any] = ()) -> Iterator[Any]:
    """The nodes, outputs of nodes and leaves of the tape that `tensors` were computed from, up to `ends`."""
    stack, seen = [t._node for t in tensors], set(ends)
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        if isinstance(node, Output):
            stack.append(node.parent)
        elif not isinstance(node, Leaf):
            stack.extend(node.edges)


def is_freed(tensor: Tensor) -> bool:
    """Whether a backward pass inside the function already used up the tape of `tensor`."""
    return any(isinstance(node, Node) and node.saved is FREED for node in _tape([tensor]))


def _hooked(roots: list[Tensor], ends: Iterable[Any]) -> bool:
    """Whether a hook may change a gradient on its way from `roots` to `ends`."""
    return any(node.hooks for node in _tape(roots, ends))


def _check_hooks(trace: Trace, roots: list[Tensor]) -> None:
    """Hooks of tensors that the caller gets are run by the caller's backward passes, also where those begin at them."""
    made = [] if trace.relinks is None else [m.leaf for m in trace.relinks.targets]
    if any(map(retains_gradient, roots)) or any(map(hooks_of, made)):
        raise Uncapturable("it returns a tensor with a gradient hook of its own, or one that retains its gradient", "")


def capture_backward(trace: Trace, places: list[tuple[Any, Tensor]]) -> Backward | None:
    """Capture the gradients of results and written tensors with respect to everything outside that requires them.

    `places` says of each where it goes (see `Trace.roots`).
    """
    _check_hooks(trace, [r for _, r in places])
    places = [(where, r) for where, r in places if not is_freed(r) and not isinstance(r._node, Leaf)]
    roots = [r for _, r in places]
    if not roots:
        return None
    graph = trace.capture.graph
    boundary = len(graph.nodes)
    with trace.capture:
        cotangents = [wrap(graph.placeholder(tuple(r.shape), r.dtype, "cotangent")) for r in roots]
        wanted: list[tuple[Any, Tensor]] = []
        for i, t in enumerate(trace.capture.leaves):
            if t._node is not None:
                wanted.append((i, t))
        for variable in graph.variables:
            wanted += [
                (t, wrap(variable.entry, node))
                for t, node in variable.places
                if node is not None and not (node.__class__ is Leaf and node.is_over)
            ]
        if trace.relinks is not None:
            wanted += [(made, wrap(made.value, made.leaf)) for made in trace.relinks.targets]
        has_hooks = trace.capture.gradients.hooked_bodies or _hooked(roots, [t._node for _, t in wanted])
        # an outside tensor that was itself computed ends the tape of the function; the caller's tape continues it
        gradients = run_backward(
            roots, list(cotangents), inputs=[t for _, t in wanted], retain_graph=False, beyond=False, transposed=True
        )
    assert gradients is not None
    reached = [(target, g._data) for (target, _), g in zip(wanted, gradients, strict=True) if g is not None]
    made = Backward(trace, places, [c._data for c in cotangents], reached, boundary)
    made.hooked = has_hooks
    return made


class Backward:
    """The pullback of one trace. `saved` are values the forward program must return for it."""

    hooked = False

    def __init__(
        self, trace: Trace, places: list[tuple[Any, Tensor]], cotangents: list[Value], reached: list[Any], boundary: int
    ) -> None:
        graph = trace.capture.graph
        self.trace, self.cotangents, self.reached, self.boundary = trace, cotangents, reached, boundary
        self.roots, self.places = [r._data for _, r in places], [where for where, _ in places]
        written = {v.entry for v in trace.written} | {graph.inputs[i] for i, _ in trace.written_arguments}
        outside = (set(graph.inputs) | {v.entry for v in graph.variables}) - written
        needed: dict[Value, None] = {}
        read: set[Value] = set()
        seen: set[Any] = set()
        stack = [g for _, g in reached]
        while stack:
            v = stack.pop()
            node = v.node
            if node.order < boundary:
                if v in outside:
                    read.add(v)
                elif node.op is not CONSTANT:
                    needed[v] = None
                continue
            if node in seen or node.op is PLACEHOLDER:
                continue
            seen.add(node)
            stack.extend(x for x in node.inputs if isinstance(x, Value))
        # the state that the forward pass started from, for running it again
        for v in self._forward_inputs(written):
            needed[v] = None
        self.saved = list(needed)
        self.variables = [v for v in graph.variables if v.entry not in needed]  # read when the pullback runs
        self.inputs = [
            i for i, v in enumerate(graph.inputs) if v not in needed
        ]  # arguments read when the pullback runs
        self.read_arguments = [i for i, v in enumerate(graph.inputs) if v in read]
        self.read_variables = [v.tensor for v in graph.variables if v.entry in read]
        self.compiled: Any = None
        self._again: Any = None
        self.op = _PullbackOp(self)

    def precedes(self, node: Any) -> bool:
        """Whether a node of the graph belongs to the forward pass. What observes values (checks, prints) does so once."""
        return bool(node.order < self.boundary)

    def _forward_nodes(self) -> list[Any]:
        """The nodes of the forward pass that the results need, in order."""
        needed: set[Any] = set()
        stack = [r.node for r in self.roots]
        while stack:
            node = stack.pop()
            if node not in needed:
                needed.add(node)
                stack.extend(v.node for v in node.inputs if isinstance(v, Value))
        return sorted(needed, key=lambda n: n.order)

    def _forward_inputs(self, written: set[Value]) -> list[Value]:
        return [n.outputs[0] for n in self._forward_nodes() if n.op is PLACEHOLDER and n.outputs[0] in written]

    def compile(self) -> Any:
        if self.compiled is None:
            from ...compiler.build import compile_flow
            from ...compiler.flow import from_graph

            graph = self.trace.capture.graph
            arguments = [graph.inputs[i] for i in self.inputs]
            inputs = [*self.saved, *self.cotangents, *arguments, *[v.entry for v in self.variables]]
            flow = from_graph(graph, inputs, [g for _, g in self.reached], lambda node: not self.precedes(node))
            arrays = [v.tensor._data for v in self.variables]
            count = len(inputs) - len(arrays)
            self.compiled = compile_flow(
                flow, count, arrays, [None] * len(self.reached), sizes=self.trace.owner.pullback_sizes
            )
        return self.compiled

    def attach(
        self, tensors: list[Tensor], results: list[Tensor], saved: list[Any], leaves: Sequence[Leaf] = ()
    ) -> None:
        """Link the results of one call to the tape; `leaves` are those that the call made."""
        edges = [
            leaves[t.index] if t.__class__ is Made else (tensors[t] if isinstance(t, int) else t)._node
            for t, _ in self.reached
        ]
        kept = (tuple(saved), tuple([t._data for t in tensors]))
        node = Node(self.op, tuple(edges), kept, outputs=tuple([spec_of(r) for r in self.roots]))
        for i, place in enumerate(self.places):
            if place.__class__ is int and place >= 0:
                results[place]._node = Output(node, i)
            else:  # a tensor that the function wrote: what it shares memory with gets the history, too
                tensor = tensors[~place] if place.__class__ is int else place
                rebase(tensor, wrap(tensor._data, Output(node, i)))

    def run(self, node: Node, gradients: list[Tensor]) -> list[Tensor]:
        compiled = self.compile()
        saved, arguments = node.saved
        self._check(node)
        variables = [v.tensor._data for v in self.variables]
        if variables != compiled.seen:
            compiled.check_variables(variables)
        inputs = [*saved, *[g._data for g in gradients], *[arguments[i] for i in self.inputs]]
        outputs = compiled.program([compiled.fit(i, a) for i, a in enumerate(inputs)], variables)
        return [wrap(a) for a in outputs]

    def _check(self, node: Node) -> None:
        """Raise if something that is read again was overwritten since the forward pass."""
        _, arguments = node.saved
        op = f"backward of {self.op.name}"
        for i in self.read_arguments:
            check_overwritten(op, f"argument {i}", arguments[i], node.seq)
        for tensor in self.read_variables:
            check_overwritten(op, "an outside tensor", tensor._data, node.seq)

    def run_again(self, node: Node, gradients: list[Tensor]) -> list[Tensor]:
        """The gradients as results of a captured function that can be differentiated in turn."""
        self._check(node)
        graph = self.trace.capture.graph
        saved, arguments = node.saved
        kept = dict(zip(self.saved, saved, strict=True))
        edges = {_key(t): e for t, e in zip(self._targets(), node.edges, strict=True)}
        tensors = [
            wrap(kept.get(v, a), edges.get(i)) for i, (v, a) in enumerate(zip(graph.inputs, arguments, strict=True))
        ]
        states = [
            wrap(kept[v.entry], edges.get(id(_on_tape(v)))) if v.entry in kept else _on_tape(v) for v in graph.variables
        ]
        if self._again is None:
            self._again = self._capture_again()
        return list(
            self._again(
                tensors, [s for s, v in zip(states, graph.variables, strict=True) if v.entry in kept], gradients
            )
        )

    def _targets(self) -> list[Any]:
        """What the gradients are with respect to: numbers of arguments, outside tensors, None for other leaves."""
        return [t.plain if t.__class__ is Made else t for t, _ in self.reached]

    def _capture_again(self) -> Any:
        from .function import CapturedFunction
        from .inlining import control_again

        graph = self.trace.capture.graph
        nodes = self._forward_nodes()
        targets = self._targets()
        cut = next((graph.cuts[n] for n in nodes if n in graph.cuts), None)
        if any(sum(node is not None for _, node in v.places) > 1 for v in graph.variables):
            cut = cut or "outside tensors that share one array"
        if None in targets or len(set(map(_key, targets))) < len(targets):
            cut = cut or "a tensor that the function used before it called `requires_grad_()`"
        if cut is not None or self.hooked:
            what = f"`no_grad`, `detach` or a Function of the user's at {cut}" if cut is not None else "hooks"
            raise RuntimeError(
                f"backward of {self.op.name}: the gradient of a captured function with {what} cannot be differentiated "
                "again from outside. Take the second derivative inside the captured function, or run with WEFT_EAGER=1."
            )
        kept = [v for v in graph.variables if v.entry in set(self.saved)]

        def gradients(arguments: Any, states: Any, cotangents: Any) -> Any:
            from .tracing import capturing

            capture = capturing()
            assert capture is not None
            values: dict[Value, Any] = dict(zip(graph.inputs, arguments, strict=True))
            values |= {v.entry: _on_tape(v) for v in graph.variables}
            values |= {v.entry: s for v, s in zip(kept, states, strict=True)}

            def call(node: Any, operands: list[Any]) -> Any:
                if node.op.subs:
                    return control_again(node.op, operands)
                return capture.graph.call(node.op, operands, node.attrs)

            replay(nodes, values, capture.constant, call)
            entry = {id(t): v.entry for v in graph.variables for t, _ in v.places}
            wanted = [values[graph.inputs[t] if isinstance(t, int) else entry[id(t)]] for t in targets]
            return tuple(
                run_backward(
                    [values[r] for r in self.roots],
                    list(cotangents),
                    create_graph=True,
                    inputs=wanted,
                    beyond=False,
                    transposed=True,
                )
                or ()
            )

        gradients.__name__ = gradients.__qualname__ = f"gradient of {self.op.name}"
        return CapturedFunction(gradients, fullgraph=True)


def _key(target: Any) -> int:
    return target if isinstance(target, int) else id(target)


def _on_tape(variable: Any) -> Tensor:
    """The tensor through which the tape reaches a variable, if one does."""
    return next((t for t, node in variable.places if node is not None), variable.tensor)


class _PullbackOp:
    """What the backward engine sees in place of an op record."""

    rules = joint_rule = pull_arrays = None
    title = "captured function"
    keeps_arrays = True  # a second backward needs retain_graph
    saved_items: tuple[Any, ...] = ()
    variadic = False
    tensor_names: tuple[str, ...] = ()

    def __init__(self, backward: Backward) -> None:
        self.name = backward.trace.capture.graph.name
        self._backward = backward

    def pullback(self, node: Node, g: Any, edges: tuple[Any, ...], create_graph: bool) -> list[Any]:
        from ...ops.array.creation import zeros_like_spec

        given = [zeros_like_spec(spec) if g.get(i) is None else g[i] for i, spec in enumerate(node.outputs)]
        return self._backward.run_again(node, given) if create_graph else self._backward.run(node, given)
