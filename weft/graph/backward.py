"""The pull-back of a captured function: its results can be differentiated by eager code outside.

While the function's graph is still open, the gradients of its results are captured too, from placeholders for the
outer gradients. What the pull-back needs from the forward pass becomes further outputs of the forward program; the
pull-back itself is a second program, compiled when it is first needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..autograd.engine import run_backward
from ..autograd.tape import FREED, Leaf, Node, Output, tick
from ..ops.spec import spec_of
from ..tensor import Tensor, wrap
from .graph import CONSTANT, PLACEHOLDER, Value

if TYPE_CHECKING:
    from .function import Trace


def is_freed(tensor: Tensor) -> bool:
    """Whether a backward pass inside the function already used up the tape of `tensor`."""
    stack, seen = [tensor._node], set()
    while stack:
        node = stack.pop()
        node = node.parent if isinstance(node, Output) else node
        if node is None or isinstance(node, Leaf) or node in seen:
            continue
        if node.saved is FREED:
            return True
        seen.add(node)
        stack.extend(node.edges)
    return False


def capture_backward(trace: Trace, roots: list[Tensor]) -> Backward | None:
    """Capture the gradients of `roots` with respect to everything outside that requires them."""
    roots = [r for r in roots if not is_freed(r) and not isinstance(r._node, Leaf)]
    if not roots:
        return None
    graph = trace.capture.graph
    boundary = len(graph.nodes)
    with trace.capture:
        cotangents = [wrap(graph.placeholder(tuple(r.shape), r.dtype, "cotangent")) for r in roots]
        wanted: list[tuple[Any, Tensor]] = []
        for i, t in enumerate(trace.stand_ins):
            if isinstance(t._node, Leaf):
                wanted.append((i, t))
        for variable in graph.variables:
            if isinstance(variable.tensor._node, Leaf):
                wanted.append((variable.tensor, variable.tensor))
        if not wanted:
            return None
        gradients = run_backward(roots, list(cotangents), inputs=[t for _, t in wanted], retain_graph=False)
    assert gradients is not None
    reached = [(target, g._data) for (target, _), g in zip(wanted, gradients, strict=True) if g is not None]
    return Backward(trace, [r._data for r in roots], [c._data for c in cotangents], reached, boundary)


class Backward:
    """The pull-back of one trace. `saved` are values the forward program must return for it."""

    def __init__(
        self, trace: Trace, roots: list[Value], cotangents: list[Value], reached: list[Any], boundary: int
    ) -> None:
        graph = trace.capture.graph
        self.trace, self.cotangents, self.reached = trace, cotangents, reached
        self.positions = [trace.values.index(r) for r in roots]
        outside = set(graph.inputs) | {v.entry for v in graph.variables}
        needed: dict[Value, None] = {}
        seen: set[Any] = set()
        stack = [g for _, g in reached]
        while stack:
            v = stack.pop()
            node = v.node
            if node.order < boundary:
                if v not in outside and node.op is not CONSTANT:
                    needed[v] = None
                continue
            if node in seen or node.op is PLACEHOLDER:
                continue
            seen.add(node)
            stack.extend(x for x in node.inputs if isinstance(x, Value))
        self.saved = list(needed)
        self.compiled: Any = None
        self.op = _PullbackOp(self)

    def compile(self) -> Any:
        if self.compiled is None:
            from ..compiler.build import compile_flow
            from ..compiler.flow import from_graph

            graph = self.trace.capture.graph
            inputs = [*self.saved, *self.cotangents, *graph.inputs, *[v.entry for v in graph.variables]]
            flow = from_graph(graph, inputs, [g for _, g in self.reached])
            arrays = [v.tensor._data for v in graph.variables]
            count = len(inputs) - len(arrays)
            self.compiled = compile_flow(flow, count, arrays, [None] * len(self.reached))
        return self.compiled

    def attach(self, tensors: list[Tensor], results: list[Tensor], saved: list[Any]) -> None:
        """Link the results of one call to the tape."""
        node = Node()
        node.op = self.op
        targets = [tensors[t] if isinstance(t, int) else t for t, _ in self.reached]
        node.edges = tuple([t._node for t in targets])
        node.saved = (tuple(saved), tuple([t._data for t in tensors]))
        node.attrs = ()
        node.specs = node.hooks = node.where = None
        node.outputs = tuple([spec_of(results[p]._data) for p in self.positions])
        node.seq = tick()
        for i, p in enumerate(self.positions):
            results[p]._node = Output(node, i)

    def run(self, node: Node, gradients: list[Tensor]) -> list[Tensor]:
        compiled = self.compile()
        saved, arguments = node.saved
        variables = [v.tensor._data for v in self.trace.capture.graph.variables]
        if variables != compiled.seen:
            compiled.check_variables(variables)
        inputs = [*saved, *[g._data for g in gradients], *arguments]
        outputs = compiled.program([compiled.fit(i, a) for i, a in enumerate(inputs)], variables)
        return [wrap(a) for a in outputs]


class _PullbackOp:
    """What the backward engine sees in place of an op record."""

    rules = joint_rule = pull_arrays = None
    keeps_arrays = True  # a second backward needs retain_graph
    saved_items: tuple[Any, ...] = ()
    variadic = False
    tensor_names: tuple[str, ...] = ()

    def __init__(self, backward: Backward) -> None:
        self.name = backward.trace.capture.graph.name
        self._backward = backward

    def pullback(self, node: Node, g: Any, edges: tuple[Any, ...], create_graph: bool) -> list[Any]:
        if create_graph:
            raise RuntimeError(
                f"backward of {self.name}: a captured function cannot be differentiated twice from outside. "
                "Take the second derivative inside the captured function, or run with WEFT_EAGER=1."
            )
        from ..ops.creation import zeros_like_spec

        return self._backward.run(
            node, [zeros_like_spec(spec) if g.get(i) is None else g[i] for i, spec in enumerate(node.outputs)]
        )
