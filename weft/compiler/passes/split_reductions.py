"""Splits large reductions with few results into two steps, so that several threads have work.

%s = reduce_sum(%x: (64, 4096), axis=None)                       before
%p = reduce_sum(%x, axis=(1,)); %s = reduce_sum(%p, axis=None)   after
"""

from __future__ import annotations

from typing import Any

from ...graph.graph import Node
from ...ops.core.spec import Spec, normalize_axes, num_elements, reduced_shape
from ..flow import Flow, rebuild

MIN_ELEMENTS = 65536  # from which a second kernel pays off
LONG_SUM_ELEMENTS = 1024  # from which two steps are also more accurate


def split_reductions(flow: Flow) -> Flow:
    """Reduce all axes but the first, then the first, where the result has few elements."""

    def rule(new: Flow, node: Node, args: tuple[Any, ...]) -> Any:
        op = node.op
        if op.reduction is None:
            return None
        x, (axis, keepdims), out = args[0], node.attrs, node.outputs[0]
        axes = sorted(normalize_axes(op.name, axis, len(x.shape)))
        total = num_elements(x.shape) or 0
        results = num_elements(out.shape) or 0
        few = results <= 8 and x.shape[axes[0]] >= 4
        long = total // max(results, 1) >= LONG_SUM_ELEMENTS and x.shape[axes[0]] >= 2 and axes[0] == 0
        if total < MIN_ELEMENTS or len(axes) < 2 or not (few or long):
            return None
        rest = tuple(axes[1:])
        partial = new.add(op, (x,), (rest, True), (Spec(reduced_shape(x.shape, rest, True), out.dtype),)).outputs[0]
        return new.add(op, (partial,), (tuple(axes), keepdims), (Spec(out.shape, out.dtype),)).outputs

    return rebuild(flow, rule)
