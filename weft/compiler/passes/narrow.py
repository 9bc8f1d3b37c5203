"""Moves slicing in front of a broadcasting op whose result is read only in slices.

%g = multiply(%column, %row); %a = getitem(%g, [:, 0:64]); %b = getitem(%g, [:, 64:128])                before
%a = multiply(%column, getitem(%row, [:, 0:64])); %b = multiply(%column, getitem(%row, [:, 64:128]))    after

The gradient of `concat([x, y], axis=1) @ w` with one output has this form: a large array that is never read as a whole.
Its slices fuse with their readers. Where an operand is as large as the result this would gain nothing, and keep a bias out
of the preceding product's epilogue.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ...graph.graph import Node, Value
from ...ops.array.indexing import Slice
from ...ops.core.registry import get
from ...ops.core.spec import Spec
from ..flow import Flow, rebuild

_ALL = Slice(None, None, None)
_GETITEM = get("getitem")


def narrow(flow: Flow) -> Flow:
    """Take slices of the operands instead of slices of the result."""
    if not any(n.op is _GETITEM for n in flow.nodes):
        return flow
    readers = flow.readers()
    outputs = set(flow.outputs)

    def rule(new: Flow, node: Node, args: tuple[Any, ...]) -> Any:
        if node.op is not _GETITEM:
            return None
        whole = node.inputs[0]
        if whole in outputs or not _spread(whole) or not _only_parts(whole, readers[whole]):
            return None
        made, out = args[0].node, node.outputs[0]
        inputs = [_part(new, v, node.attrs[0], len(whole.shape)) for v in made.inputs]
        return new.add(made.op, inputs, made.attrs, (Spec(out.shape, out.dtype),)).outputs

    return rebuild(rebuild(flow, rule))  # the second rebuild removes the dead wholes


def _spread(value: Value) -> bool:
    """Whether a value is computed elementwise from much smaller operands."""
    node = value.node
    if node.op.expression is None or len(node.outputs) != 1 or not all(isinstance(v, Value) for v in node.inputs):
        return False
    return 4 * sum(prod(v.shape) for v in node.inputs) <= prod(value.shape)


def _only_parts(value: Value, readers: list[Node]) -> bool:
    """Whether all readers take slices, which together are not larger than the whole."""
    plain = all(
        n.op is _GETITEM and len(n.inputs) == 1 and all(i.__class__ is Slice for i in n.attrs[0]) for n in readers
    )
    return plain and sum(prod(n.outputs[0].shape) for n in readers) <= prod(value.shape)


def _part(new: Flow, operand: Value, index: tuple[Any, ...], rank: int) -> Value:
    """The slice of an operand for a slice of the result; broadcast axes are not sliced."""
    full = (*index, *[_ALL] * (rank - len(index)))[rank - len(operand.shape) :]
    own = tuple([_ALL if d == 1 else i for d, i in zip(operand.shape, full, strict=True)])
    shape = tuple([len(range(d)[slice(*i)]) for d, i in zip(operand.shape, own, strict=True)])
    if shape == tuple(operand.shape) and all(i[2] in (None, 1) for i in own):
        return operand
    return new.add(_GETITEM, (operand,), (own,), (Spec(shape, operand.dtype),)).outputs[0]
