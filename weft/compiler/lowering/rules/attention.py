"""Lowers attention, forward and backward, to the blocked kernels of `kernels/attention.py`.

Unsupported cases (dropout, odd sizes, a gradient for the mask) are decomposed into matmuls and a softmax earlier, or run
as a host call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ....graph.graph import Node, Value
from ...layout import Layout, like_order, row_major
from ...loop_ir.kernels.attention import attention_backward, attention_forward, suits
from ..lower import Step
from ..primitives import lowers

if TYPE_CHECKING:
    from ..lower import Lowering


def serves_forward(query: Any, key: Any, value: Any, mask: Any, dropout_p: float) -> bool:
    """Whether `attention_forward` has a kernel here. Takes tensors, values or arrays."""
    return not dropout_p and suits(query, key, value) and (mask is None or mask.dtype in (np.bool_, np.float32))


def serves_backward(query: Any, key: Any, value: Any, mask: Any, dropout_p: float, mask_grad: bool) -> bool:
    """Whether `attention_backward` has a kernel here."""
    return serves_forward(query, key, value, mask, dropout_p) and not mask_grad


def _rows(lowering: Lowering, value: Value, node: Node) -> Layout:
    """An operand with a contiguous last axis; others would be gathered element by element."""
    layout = lowering.layout_of(value)
    return layout if layout.strides[-1] == 1 else lowering.copy(layout, node)


def _spread(mask: Layout, shape: tuple[int, ...]) -> Layout:
    """The mask broadcast to one element per score."""
    extra = len(shape) - len(mask.shape)
    own = [0 if d == 1 else st for d, st in zip(mask.shape, mask.strides, strict=True)]
    return Layout(mask.storage, mask.dtype, shape, (0,) * extra + tuple(own), mask.offset)


def _step(lowering: Lowering, node: Node, label: str, kernel: Any, reads: list[Any], writes: list[Layout]) -> None:
    inputs = [x.storage for x in reads if x is not None]
    outputs = [x.storage for x in writes]
    lowering.steps.append(Step("kernel", label, [node], inputs, outputs, kernel, [*inputs, *outputs]))


@lowers("attention_forward")
def lower_forward(lowering: Lowering, node: Node) -> bool:
    q_value, k_value, v_value, m_value, _ = node.inputs
    dropout_p, causal, scale = node.attrs
    if not serves_forward(q_value, k_value, v_value, m_value, dropout_p):
        return False
    q, k, v = (_rows(lowering, x, node) for x in (q_value, k_value, v_value))
    mask = None if m_value is None else _spread(lowering.layout_of(m_value), (*q.shape[:-1], k.shape[-2]))
    shape = tuple(node.outputs[0].shape)
    out = lowering.place(node, 0, like_order(shape, q.strides), node, None)
    lse = lowering.place(node, 1, row_major(tuple(node.outputs[1].shape)), node, None)
    kernel = attention_forward(q, k, v, mask, out, lse, bool(causal), float(scale))
    _step(lowering, node, "attention", kernel, [q, k, v, mask], [out, lse])
    return True


@lowers("attention_backward")
def lower_backward(lowering: Lowering, node: Node) -> bool:
    grad, grad_lse, q_value, k_value, v_value, m_value, _, out_value, lse_value = node.inputs
    dropout_p, causal, scale, mask_grad = node.attrs
    if not serves_backward(q_value, k_value, v_value, m_value, dropout_p, mask_grad):
        return False
    g, q, k, v, out = (_rows(lowering, x, node) for x in (grad, q_value, k_value, v_value, out_value))
    lse = lowering.layout_of(lse_value)
    g_lse = None if grad_lse is None else lowering.layout_of(grad_lse)
    mask = None if m_value is None else _spread(lowering.layout_of(m_value), (*q.shape[:-1], k.shape[-2]))
    places: list[Layout] = []
    for i, x in enumerate((q, k, v)):
        places.append(lowering.place(node, i, like_order(tuple(node.outputs[i].shape), x.strides), node, None))
    lowering.place(node, 3, (1,), node, None)  # the gradient of the mask: empty
    gq, gk, gv = places
    kernel = attention_backward(g, g_lse, q, k, v, mask, out, lse, gq, gk, gv, bool(causal), float(scale))
    _step(lowering, node, "attention backward", kernel, [g, g_lse, q, k, v, mask, out, lse], places)
    return True
