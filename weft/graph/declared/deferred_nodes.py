"""Deferred nodes: calls whose expansion waits until the shapes of a step are known.

Note [Deferred nodes]. A placeholder may leave sizes, or its whole shape, unknown. Most shape rules and functions accept
unknown sizes. Where one does not (`split`, an LSTM, a gradient rule that needs to know how an axis was divided), the call
itself becomes one node: a `DeferredOp` that holds the function and its arguments. When a step is specialised for the shapes of
its feeds, the node is expanded to the nodes that the function declares for these shapes, so the compiled program is the same
as with known sizes; an executor that runs nodes one at a time calls the function eagerly.

* `DeferredCall`: a public function. The number and dtypes of its results are found by probing
  (`weft.graph.declared.shape_probing`).
* `DeferredRule`: the gradient rule of one op of the table, applied to inputs, outputs and the gradients of the outputs. It is
  used for every op with unknown sizes that is not elementwise.
* `DeferredGradient`: the gradient of a deferred node, which runs its function again. So derivatives of any order exist.

The declared specs of the results are checked against the actual results at expansion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import dtypes
from ...autograd.engine import dense, pullback, run_backward
from ...autograd.tape import Node as TapeNode
from ...autograd.tape import Output, enable_grad, grad_mode, no_grad
from ...autograd.tree import flatten, unflatten
from ...errors import format_shape, user_location
from ...ops.core import define
from ...ops.core.registry import Op
from ...ops.core.spec import Spec, is_known, same_size, spec_of
from ...tensor import Tensor, wrap
from ..capture.subgraph import after
from ..capture.tracing import capturing
from ..graph import Node, Value
from .building import DeclaredGraph, GraphOp
from .shape_probing import Drawing, casts, probe

ndarray = np.ndarray


class DeferredOp(GraphOp):
    """A pure function of tensors that is expanded once sizes are known. `specs` are the declared specs of its results."""

    pure = True
    pull_arrays = rules = joint_rule = None
    keeps_arrays = False
    saved_items: tuple[Any, ...] = ()

    def __init__(self, name: str, specs: Sequence[Spec]) -> None:
        super().__init__(name)
        self.specs = list(specs)
        self.num_outputs = len(self.specs)
        self.modes = casts()

    def compute(self, tensors: list[Any]) -> list[Tensor]:
        """The results on tensors of known shapes."""
        raise NotImplementedError

    def expand(self, tensors: Sequence[Any], *modes: Any) -> list[Tensor]:
        """The results on tensors of known shapes: eager ones, or those of any graph. Checks them against `specs`."""
        with define.installed((*modes, *self.modes)):
            made = self.compute(list(tensors))
        if len(made) != len(self.specs):
            raise ValueError(
                f"{self.name}: made {len(made)} results for these sizes, but {len(self.specs)} were declared."
            )
        for t, spec in zip(made, self.specs, strict=True):
            if t.dtype != spec.dtype or not _may_be(spec.shape, t.shape):
                raise ValueError(
                    f"{self.name}: the result is {t.dtype.name}{format_shape(t.shape)} for these sizes, but "
                    f"{spec.dtype.name}{format_shape(spec.shape)} was declared."
                )
        return made

    def run(self, arrays: Sequence[Any], reference: bool = False) -> tuple[Any, ...]:
        """The results on arrays; `reference`: by NumPy kernels only."""
        tensors = [wrap(a) if isinstance(a, ndarray) else a for a in arrays]
        with no_grad():
            return tuple([t._data for t in self.expand(tensors, *([_ReferenceKernels()] if reference else []))])

    def pullback(self, node: Any, g: Any, edges: tuple[Any, ...], create_graph: bool) -> list[Any]:
        """The gradient, as seen by the backward engine: another deferred node."""
        given = [g.get(i) for i in range(len(node.outputs))]
        wanted = [i for i, e in enumerate(edges) if e is not None]
        specs = [Spec(node.operands[i].shape, node.operands[i].dtype) for i in wanted]
        found = DeferredGradient(self, wanted, specs).declare([*node.operands, *given])
        return _spread(len(edges), wanted, found)

    def declare(self, tensors: Sequence[Any]) -> list[Tensor]:
        """Add the node to the graph of `tensors` and link its results to the tape."""
        graph = _graph_of(tensors)
        operands = [graph.symbolic(t) for t in tensors] if isinstance(graph, DeclaredGraph) else list(tensors)
        node = graph.add(self, [graph.operand(t) for t in operands], (), self.specs, user_location(3), self.name)
        for t in operands:
            graph.hold(t)
        results = link(node, operands)
        graph.made(tuple(results))
        return results


def _graph_of(tensors: Sequence[Any]) -> Any:
    """The graph that a node on `tensors` is added to: that of the branch or body being traced, else their own."""
    mode = capturing()
    if mode is not None:
        return mode.graph
    return next(t._data.node.graph for t in tensors if isinstance(t, Tensor) and isinstance(t._data, Value))


def _may_be(shape: Any, found: Any) -> bool:
    return shape is None or found is None or len(shape) == len(found) and all(map(same_size, shape, found))


def _spread(count: int, places: Sequence[int], items: Sequence[Any]) -> list[Any]:
    found: list[Any] = [None] * count
    for i, item in zip(places, items, strict=True):
        found[i] = item
    return found


class _Entry(TapeNode):
    """A tape entry that keeps the operands of its node: its gradient recomputes the node."""

    __slots__ = ("operands",)
    operands: list[Any]


def link(node: Node, operands: Sequence[Any]) -> list[Tensor]:
    """The results of a deferred node as tensors, on the tape if an operand is."""
    results = [wrap(v) for v in node.outputs]
    if grad_mode.enabled and any(isinstance(t, Tensor) and t._node is not None for t in operands):
        edges = tuple([t._node if isinstance(t, Tensor) else None for t in operands])
        outputs = tuple([spec_of(v) for v in node.outputs])
        entry = _Entry(node.op, edges, where=node.where, outputs=outputs)
        entry.operands = list(operands)
        entry.link(results)
    return results


class _ReferenceKernels(define.Mode):
    """Mode that runs every op by its NumPy kernel."""

    def handle(self, op: Op, values: tuple[Any, ...]) -> Any:
        from ..execute.interpret import reference_kernel

        tensors = [define.operand(op, i, v) for i, v in enumerate(op.tensors(values))]
        datas = [t._data if isinstance(t, Tensor) else t for t in tensors]
        attrs = op.attrs(values)
        return define.finish(op, tensors, datas, attrs, reference_kernel(op, datas, attrs))


# Calls --------------------------------------------------------------------------------------------------------------------


class Place:
    """Placeholder for tensor number `index` among static arguments."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class DeferredCall(DeferredOp):
    """`function(*args, **kwargs)`, where `arguments` is (args, kwargs) with a `Place` for every tensor.

    The last `draws` operands are the states of the random draws that the function makes.
    """

    def __init__(
        self, name: str, specs: Sequence[Spec], function: Callable[..., Any], arguments: Any, draws: int = 0
    ) -> None:
        super().__init__(name, specs)
        self.function, self.arguments, self.draws = function, arguments, draws

    def compute(self, tensors: list[Any]) -> list[Tensor]:
        first = len(tensors) - self.draws
        with Drawing(tensors[first:]):
            result = called(self.function, self.arguments, tensors[:first])
        return [t for t in flatten(result)[0] if t is not None]


def called(function: Callable[..., Any], arguments: Any, tensors: Sequence[Any]) -> Any:
    """`function` on arguments in which the places are filled with `tensors`."""
    leaves, structure = flatten(arguments)
    args, kwargs = unflatten(structure, [tensors[v.index] if isinstance(v, Place) else v for v in leaves])
    return function(*args, **kwargs)


def deferred_call(
    graph: Any, function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A deferred node for a call that fails on unknown sizes; None if the call cannot be deferred."""
    leaves, structure = flatten((tuple(args), dict(kwargs)))
    tensors = [t for t in leaves if isinstance(t, Tensor)]
    at = iter(range(len(tensors)))
    arguments = unflatten(structure, [Place(next(at)) if isinstance(v, Tensor) else v for v in leaves])
    found = probe(lambda stand_ins: called(function, arguments, stand_ins), tensors, getattr(function, "op", None))
    if found is None or not found.specs:
        return None
    if found.varies:
        raise ValueError(
            f"{name}: how many results it has depends on a size that is not known when the graph is declared. Got "
            f"{', '.join([format_shape(t.shape) for t in tensors])}. Give the placeholder that size, or use a form with a "
            "fixed number of results, such as `wf.chunk(x, n)` or `wf.split(x, [2, 3])`."
        )
    if found.generators and not isinstance(graph, DeclaredGraph):
        return None  # a branch or body cannot advance a generator
    states = [graph.random_state(g) for g in found.generators]
    op = DeferredCall(name, found.specs, function, arguments, len(states))
    return found.build(op.declare([*tensors, *states]))


# Gradients ----------------------------------------------------------------------------------------------------------------


class DeferredGradient(DeferredOp):
    """The gradients of the deferred op `of` with respect to its operands number `wanted`.

    Operands are those of `of`, then the gradient of each of its results (None where it has none).
    """

    def __init__(self, of: DeferredOp, wanted: Sequence[int], specs: Sequence[Spec]) -> None:
        super().__init__(f"{of.name}_gradient", specs)
        self.of, self.wanted, self.modes = of, tuple(wanted), of.modes

    def compute(self, tensors: list[Any]) -> list[Tensor]:
        from ...ops.array.creation import zeros_like

        first = len(tensors) - len(self.of.specs)
        record = grad_mode.enabled
        inputs = list(tensors[:first])
        for i in self.wanted:
            inputs[i] = wrap(inputs[i]._data, after(inputs[i]))
        with enable_grad():
            outs = self.of.compute(inputs)
        pairs = [(o, g) for o, g in zip(outs, tensors[first:], strict=True) if g is not None and o._node is not None]
        found: Any = [None] * len(self.wanted)
        if pairs:
            outs, seeds = [o for o, _ in pairs], [g for _, g in pairs]
            targets = [inputs[i] for i in self.wanted]
            found = run_backward(outs, seeds, record, record, targets, transposed=True) or found
        return [zeros_like(tensors[i]) if g is None else g for i, g in zip(self.wanted, found, strict=True)]


class DeferredRule(DeferredOp):
    """The gradients of a table's op by its own rules, with respect to its inputs number `wanted`.

    Operands are the op's `count` inputs, its outputs, and the gradient of each of these (or None).
    """

    def __init__(
        self, op: Op, attrs: tuple[Any, ...], count: int, wanted: Sequence[int], specs: Sequence[Spec]
    ) -> None:
        super().__init__(f"{op.name}_gradient", specs)
        self.op, self.op_attrs, self.count, self.wanted = op, attrs, count, tuple(wanted)

    def compute(self, tensors: list[Any]) -> list[Tensor]:
        from ...ops.array.creation import zeros_like
        from ...ops.array.elementwise import astype, real

        inputs, rest = tensors[: self.count], tensors[self.count :]
        outs, given = rest[: len(rest) // 2], rest[len(rest) // 2 :]
        needs = sum([1 << i for i in self.wanted])
        datas = [t._data if isinstance(t, Tensor) else t for t in inputs]
        self._check(datas, outs, given)
        single = self.op.num_outputs == 1
        results: Any = outs[0]._data if single else tuple([t._data for t in outs])
        entry = define.make_node(self.op, inputs, datas, self.op_attrs, results, needs)
        g: Any = given[0]
        if not single:
            entry.outputs = tuple([spec_of(t._data) for t in outs])
            g = {i: t for i, t in enumerate(given) if t is not None}
        edges = tuple([True if i in self.wanted else None for i in range(self.count)])
        found = pullback(entry, g, edges, grad_mode.enabled)
        made = []
        for i in self.wanted:
            gradient = zeros_like(inputs[i]) if found[i] is None else dense(found[i])
            if gradient.dtype != inputs[i].dtype:
                narrow = dtypes.is_complex(gradient.dtype) and not dtypes.is_complex(inputs[i].dtype)
                gradient = astype(real(gradient) if narrow else gradient, inputs[i].dtype)
            made.append(gradient)
        return made

    def _check(self, datas: Sequence[Any], outs: Sequence[Any], given: Sequence[Any]) -> None:
        """Check that `outs` and their gradients have the shapes the op infers: rules and their kernels rely on it."""
        if self.op.expression is not None:
            return  # rules of elementwise ops are made of ops, which check for themselves
        assert self.op.infer is not None
        values = self.op.run(self.op.infer, self.op.merge(datas, self.op_attrs))
        for made, out, g in zip(values if isinstance(values, (tuple, list)) else (values,), outs, given, strict=True):
            if not _may_be(made.shape, out.shape) or g is not None and not _may_be(out.shape, g.shape):
                raise ValueError(
                    f"{self.name}: the rule of {self.op.name!r} was given a result that it does not make: "
                    f"{format_shape(out.shape)} instead of {format_shape(made.shape)}."
                )


class _DeferredRules:
    """Stands for an op with unknown sizes in the backward engine: its gradient is a `DeferredRule`."""

    pull_arrays = rules = joint_rule = None
    keeps_arrays = False
    saved_items: tuple[Any, ...] = ()
    variadic = False

    def __init__(self, node: Node, operands: Sequence[Any]) -> None:
        self.node, self.operands = node, operands
        self.name, self.title, self.tensor_names = node.op.name, node.op.title, node.op.tensor_names

    def pullback(self, entry: TapeNode, g: Any, edges: tuple[Any, ...], create_graph: bool) -> list[Any]:
        node = self.node
        if g.__class__ is dict:
            given = [g.get(i) for i in range(len(node.outputs))]
        else:
            given = [g]
        inputs = [wrap(v, e) if isinstance(v, Value) else v for v, e in zip(self.operands, entry.edges, strict=True)]
        wanted = [i for i, e in enumerate(edges) if e is not None]
        specs = [Spec(None if node.op.broadcasts else inputs[i].shape, inputs[i].dtype) for i in wanted]
        rule = DeferredRule(node.op, node.attrs, len(inputs), wanted, specs)
        outs = [wrap(v) for v in node.outputs]
        return _spread(len(edges), wanted, rule.declare([*inputs, *outs, *[dense(gi) for gi in given]]))


def defer_rules(node: Node, operands: Sequence[Any], result: Any) -> None:
    """If sizes of `node` are unknown, defer the gradient rules of its results, which are on the tape.

    `operands` are its inputs before they were cast to a common dtype.
    """
    if node.op.expression is not None or all(is_known(getattr(v, "shape", ())) for v in (*operands, *node.outputs)):
        return
    for t in result if isinstance(result, tuple) else (result,):
        entry = t._node.parent if t._node.__class__ is Output else t._node
        if entry is not None and entry.op is node.op:
            entry.op, entry.saved = _DeferredRules(node, operands), ()
