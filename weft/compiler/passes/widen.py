"""Gives float32 operands to ops that must not accumulate in 16-bit floats, see Note [Short floats] in `weft.ops.core.registry`.

%y: bfloat16 = reduce_sum(%x: bfloat16)                                              before
%w = cast(%x, float32); %s: float32 = reduce_sum(%w); %y = cast(%s, bfloat16)        after

The casts fuse with their neighbours. Later passes and the lowering rules see 16-bit floats only in elementwise ops (whose
scalar expressions are computed in float32 anyway), in ops that move elements, and in matmuls.
"""

from __future__ import annotations

from typing import Any

from ...autograd.tape import no_grad
from ...graph.graph import Node, Value
from ...ops.array.elementwise import astype
from ...ops.core import define
from ...ops.core.short_floats import is_short, widened
from ...tensor import wrap
from ..flow import Flow, rebuild
from .decompose import FlowCapture


def widen(flow: Flow) -> Flow:
    """Compute in float32 where the op record requires it."""
    return rebuild(flow, _rule) if any(_applies(n) for n in flow.nodes) else flow


def _applies(node: Node) -> bool:
    op = node.op
    return (
        getattr(op, "widens", False)
        and op.expression is None
        and any(isinstance(v, Value) and is_short(v.dtype) for v in node.inputs)
    )


def _rule(new: Flow, node: Node, args: tuple[Any, ...]) -> Any:
    if not _applies(node):
        return None
    with no_grad(), FlowCapture(new):
        tensors = [None if a is None else widened(wrap(a)) for a in args]
        made = define.call(node.op, tuple(node.op.merge(tensors, node.attrs)))
        outs = made if isinstance(made, tuple) else (made,)
        outs = tuple([astype(o, v.dtype) for o, v in zip(outs, node.outputs, strict=True)])
    return [new.operand(t) for t in outs]
