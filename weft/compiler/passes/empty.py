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

_NOTHING = {"reduce_sum": 0, "reduce_prod": 1, "any": False, "all": True, "matmul": 0}
_INTO = ("index_add", "scatter", "scatter_add", "setitem")  # with empty updates the result is the first operand


def drop_empty(flow: Flow) -> Flow:
    """Replace values without elements by constants, and reductions over them by their identity."""
    if not any(_is_empty(v) for node in flow.nodes for v in node.outputs):
        return flow

    def rule(new: Flow, node: Node, args: tuple[Any, ...]) -> Any:
        if node.op.effects or hasattr(node.op, "subs") or not node.outputs:
            return None
        if all(_is_empty(v) for v in node.outputs):
            return tuple([new.constant(np.zeros(v.shape, v.dtype)) for v in node.outputs])
        out = node.outputs[0]
        name = node.op.name
        if name in _NOTHING and any(_is_empty(a) for a in args):
            attrs = (tuple(out.shape), _NOTHING[name], out.dtype)
            return new.add(table["filled"], (), attrs, (Spec(out.shape, out.dtype),)).outputs
        if name in _INTO and _is_empty(args[1]):
            return (args[0],)
        return None

    return rebuild(flow, rule)


def _is_empty(value: Any) -> bool:
    return isinstance(value, Value) and 0 in value.shape
