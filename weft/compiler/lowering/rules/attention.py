"""Lowers attention, forward and backward, to the blocked kernels of `kernels/attention.py`.

Unsupported cases (dropout, odd sizes, a gradient for the mask) are decomposed into matmuls and a softmax earlier, or run
as a host call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....graph.graph import Node, Value
from ....ops.nn.attention_call import Backward, Forward
from ...loop_ir.kernels.attention import attention_backward, attention_forward, serves_backward, serves_forward
from ...program.layout import Layout, like_order, row_major
from ...program.steps import KernelCall
from ..registry import lowers

if TYPE_CHECKING:
    from ..lower import Lowering


def _rows(lowering: Lowering, value: Value, node: Node) -> Layout:
    """An operand with a contiguous last axis; others would be gathered element by element."""
    layout = lowering.layout_of(value)
    return layout if layout.strides[-1] == 1 else lowering.copy(layout, node)


def _mask(lowering: Lowering, values: Forward) -> Layout | None:
    """The mask broadcast to one element per score."""
    if values.mask is None:
        return None
    mask, shape = lowering.layout_of(values.mask), (*values.query.shape[:-1], values.key.shape[-2])
    extra = len(shape) - len(mask.shape)
    own = [0 if d == 1 else st for d, st in zip(mask.shape, mask.strides, strict=True)]
    return Layout(mask.storage, mask.dtype, shape, (0,) * extra + tuple(own), mask.offset)


def _step(lowering: Lowering, node: Node, label: str, kernel: Any, call: Any, writes: list[Layout]) -> None:
    inputs = [x.storage for x in call if isinstance(x, Layout)]
    outputs = [x.storage for x in writes]
    lowering.steps.append(KernelCall(label, [node], inputs, outputs, kernel, [*inputs, *outputs]))


@lowers("attention_forward")
def lower_forward(lowering: Lowering, node: Node) -> bool:
    values = Forward(*node.inputs, *node.attrs)
    if not serves_forward(values):
        return False
    query, key, value = (_rows(lowering, x, node) for x in (values.query, values.key, values.value))
    mask = _mask(lowering, values)
    shape = tuple(node.outputs[0].shape)
    out = lowering.place(node, 0, like_order(shape, query.strides), node, None)
    lse = lowering.place(node, 1, row_major(tuple(node.outputs[1].shape)), node, None)
    call = Forward(query, key, value, mask, None, values.attention)
    kernel = attention_forward(call, out, lse, lowering.target)
    _step(lowering, node, "attention", kernel, call, [out, lse])
    return True


@lowers("attention_backward")
def lower_backward(lowering: Lowering, node: Node) -> bool:
    values = Backward(*node.inputs, *node.attrs)
    if not serves_backward(values):
        return False
    call = values._replace(
        grad=_rows(lowering, values.grad, node),
        query=_rows(lowering, values.query, node),
        key=_rows(lowering, values.key, node),
        value=_rows(lowering, values.value, node),
        result=_rows(lowering, values.result, node),
        grad_lse=None if values.grad_lse is None else lowering.layout_of(values.grad_lse),
        mask=_mask(lowering, values.forward),
        state=None,
        lse=lowering.layout_of(values.lse),
    )
    places: list[Layout] = []
    for i, x in enumerate((call.query, call.key, call.value)):
        places.append(lowering.place(node, i, like_order(tuple(node.outputs[i].shape), x.strides), node, None))
    lowering.place(node, 3, (1,), node, None)  # the gradient of the mask: empty
    g_query, g_key, g_value = places
    kernel = attention_backward(call, g_query, g_key, g_value, lowering.target)
    _step(lowering, node, "attention backward", kernel, call, places)
    return True
