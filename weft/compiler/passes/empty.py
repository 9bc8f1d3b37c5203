"""Replaces values without elements, and reductions of them, by constants.

%y = exp(%x: (0, 3))                      before
%y = constant (0, 3)                      after

%s = reduce_sum(%x: (0, 3), axis=0)       before
%s = filled((3,), 0)                      after
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph.graph import Node, Value
from ...ops.core.registry import table
from ...ops.core.spec import Spec
from ..flow import Flow, rebuild


def drop_empty(flow: Flow) -> Flow:
    """Replace values without elements by constants, and reductions over them by their identity."""
    if not any(_is_empty(v) for node in flow.nodes for v in node.outputs):
        return flow

    def rule(new: Flow, node: Node, args: tuple[Any, ...]) -> Any:
        if node.op.effects or node.op.subs or not node.outputs:
            return None
        if all(_is_empty(v) for v in node.outputs):
            return tuple([new.constant(np.zeros(v.shape, v.dtype)) for v in node.outputs])
        out = node.outputs[0]
        value = _value_of_nothing(node)
        if value is not None and any(_is_empty(a) for a in args):
            attrs = (tuple(out.shape), value, out.dtype)
            return new.add(table["filled"], (), attrs, (Spec(out.shape, out.dtype),)).outputs
        if node.op.scatter is not None and _is_empty(args[1]):
            return (args[0],)
        return None

    return rebuild(flow, rule)


def _value_of_nothing(node: Node) -> Any:
    """Every element of the result if an operand is empty, or None."""
    reduction = node.op.reduction
    if reduction is None or reduction.needs_elements:
        return node.op.empty_value
    return reduction.identity_of(node.outputs[0].dtype)


def _is_empty(value: Any) -> bool:
    return isinstance(value, Value) and 0 in value.shape
