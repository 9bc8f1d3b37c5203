"""Folds the batch normalisation of inference into the preceding convolution, in frozen functions.

%y = convolution(%x, %w); %z = scale_shift(%y, %a, %b)            before; w, a and b are constant from call to call
%v = multiply(%w, %a); %z = convolution(%x, %v, %b)               after: v is computed once

A bias of the convolution is scaled too. Only convolutions whose result has no other reader are changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph.graph import Node, Value
from ...ops.core.registry import Op, get
from ...ops.core.spec import Spec
from ..flow import Flow, rebuild
from ..lowering.frozen import constant_values

_ADD, _MULTIPLY, _RESHAPE = get("add"), get("multiply"), get("reshape")
_CONVOLUTION, _SCALE_SHIFT = get("convolution"), get("scale_shift")


def fold_scales(flow: Flow, constant_inputs: Sequence[int]) -> Flow:
    """Fold scales into convolutions; `constant_inputs` are the numbers of the inputs that are constant between calls."""
    if not any(n.op is _SCALE_SHIFT for n in flow.nodes):
        return flow
    same = constant_values(flow, constant_inputs)
    uses = flow.uses()

    def rule(new: Flow, node: Node, args: tuple[Any, ...]) -> Any:
        if node.op is not _SCALE_SHIFT:
            return None
        y, scale, shift = node.inputs
        before = y.node
        if before.op is not _CONVOLUTION or uses.get(y) != 1 or tuple(y.shape) != tuple(node.outputs[0].shape):
            return None
        channels = y.shape[1]
        parts = [v for v in (*before.inputs[1:], scale, shift) if v is not None]
        if not all(v in same and v.dtype == np.float32 for v in parts):
            return None
        if not all(_per_channel(v, channels, len(y.shape)) for v in (scale, shift)):
            return None
        x, weight, bias = args[0].node.inputs  # the copied convolution, now dead
        factor, offset = (_flat(new, v, channels) for v in args[1:])
        scaled = _binary(new, _MULTIPLY, weight, _reshaped(new, factor, (channels,) + (1,) * (len(weight.shape) - 1)))
        if bias is not None:
            offset = _binary(new, _ADD, offset, _binary(new, _MULTIPLY, bias, factor))
        spec = Spec(node.outputs[0].shape, node.outputs[0].dtype)
        return new.add(before.op, (x, scaled, offset), before.attrs, (spec,)).outputs

    return rebuild(rebuild(flow, rule))


def _per_channel(value: Value, channels: int, rank: int) -> bool:
    """A per-channel vector reshaped for an array (N, C, ...) of so many axes."""
    shape = tuple(value.shape)
    return shape in ((1, channels) + (1,) * (rank - 2), (channels,) + (1,) * (rank - 2))


def _reshaped(new: Flow, value: Value, shape: tuple[int, ...]) -> Value:
    return new.add(_RESHAPE, (value,), (shape, None), (Spec(shape, value.dtype),)).outputs[0]


def _flat(new: Flow, value: Value, channels: int) -> Value:
    return _reshaped(new, value, (channels,))


def _binary(new: Flow, op: Op, a: Value, b: Value) -> Value:
    """`a` and `b` element by element; the result is shaped like `a`."""
    return new.add(op, (a, b), (), (Spec(a.shape, a.dtype),)).outputs[0]
