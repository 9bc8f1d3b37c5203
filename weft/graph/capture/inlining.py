"""Inlining: apply the nodes of a traced branch, body or function to other tensors.

`inline` computes the function of `Variable.assign_fn`, and lets control flow that was read from a file, without its Python
functions, be differentiated: its branches and bodies are traced a second time from their nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import dtypes
from ...autograd.tape import enable_grad, grad_mode
from ...ops.core.registry import Op
from ...ops.core.spec import Spec, is_known
from ...tensor import Tensor, wrap
from ..declared.building import GraphOp
from ..declared.deferred_nodes import DeferredOp
from ..graph import Node, Value, replay
from .control_flow import ControlOp, cond, recording, scan, while_loop
from .subgraph import Sub


def inline(sub: Sub, formals: Sequence[Tensor], captured: Sequence[Tensor]) -> list[Tensor]:
    """The results of a subgraph for other tensors: computed if these are eager, else declared in their graph."""
    operands = [*formals, *captured]

    def call(node: Node, inputs: list[Any]) -> Any:
        op = node.op
        if isinstance(op, Op):
            return op.run(op.call, op.merge(inputs, node.attrs))
        if isinstance(op, ControlOp):
            return control_again(op, inputs)
        graph = recording(*operands, *inputs)
        if isinstance(op, DeferredOp):
            known = all(is_known(t.shape) for t in inputs if isinstance(t, Tensor))
            return op.expand(inputs) if known else op.declare(inputs)
        if graph is None or not isinstance(op, GraphOp) or op.effects & {"writes", "blocks"}:
            raise NotImplementedError(
                f"{sub.graph.name}: `{op.name}` inside a function given to a variable is not supported. Made at {node.where}."
            )
        specs = [Spec(v.shape, v.dtype) for v in node.outputs]
        return [
            wrap(v) for v in graph.add(op, [graph.operand(t) for t in inputs], node.attrs, specs, node.where).outputs
        ]

    mapped: dict[Value, Tensor] = dict(zip([*sub.formals, *sub.graph.entries], operands, strict=True))
    replay(sub.graph.nodes, mapped, wrap, call)
    return [mapped[v] for v in sub.outputs]


def control_again(op: ControlOp, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The results of a control-flow node for other inputs, with its subgraphs traced again."""
    count = len(inputs) - len(op.facts["outer"])
    inner, at = list(inputs[:count]), {id(t): x for t, x in zip(op.facts["outer"], inputs[count:], strict=True)}

    def function(sub: Sub) -> Callable[..., tuple[Tensor, ...]]:
        return lambda *xs: tuple(inline(sub, xs, [at[id(t)] for t in sub.captured]))

    functions = [function(sub) for sub in op.subs]
    if op.kind == "cond":
        return list(cond(inner[0], functions[0], functions[1], *inner[1:]))
    if op.kind == "while":
        return list(while_loop(lambda *state: functions[0](*state)[0], functions[1], tuple(inner)))
    carries, keep = op.facts["carry"], op.facts["keep"]

    def body(carry: Any, xs: Any) -> Any:
        results = functions[0](*carry, *(xs or ()))
        return results[:carries], (*results[carries:], *(carry if keep else ()))

    xs = tuple(inner[carries:]) or None
    final, rows = scan(body, tuple(inner[:carries]), xs, length=op.facts["n"], reverse=op.facts["reverse"])
    return [*final, *(rows or ())]


def backward_again(op: ControlOp, inputs: Sequence[Tensor]) -> Callable[..., list[Any]]:
    """The gradient of a control-flow node that has only its subgraphs: it is declared again and differentiated."""

    def backward(g: list[Any], edges: tuple[Any, ...]) -> list[Any]:
        with enable_grad():
            results = control_again(op, inputs)
        entry = next((t._node.parent for t in results if t._node is not None), None)
        if entry is None:
            return [None] * len(inputs)
        given = {i: gi for i, gi in enumerate(g) if gi is not None and dtypes.is_inexact(gi.dtype)}
        found = entry.op.pullback(entry, given, entry.edges, grad_mode.enabled)
        count = len(inputs) - len(op.facts["outer"])
        at = len(found) - len(entry.op.facts["outer"])
        outer = {id(t): gi for t, gi in zip(entry.op.facts["outer"], found[at:], strict=True)}
        return [*found[:count], *[outer.get(id(t)) for t in inputs[count:]]]

    return backward
