"""Lowers convolution and its gradients to oneDNN, on channels-last activations.

Weights are plain arrays outside; oneDNN is fastest with its blocked layouts, so they are reordered on the way in and their
gradient on the way out (a few per cent of the convolution's time).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....compiler.lowering.rules.channels_last import channels_last_layout, channels_last_result
from ....compiler.lowering.rules.conv import convolution_label
from ....compiler.lowering.rules.epilogue import image_epilogue
from ....compiler.lowering.rules.labels import SUM_OF_PARTS
from ....compiler.program.layout import Layout, row_major
from ....graph.graph import Node
from ..capi import Arg
from ..descriptors import MemoryDesc
from ..shares import conv_backward_data, conv_backward_weights, conv_forward
from .blocked_weights import into_blocks, out_of_blocks
from .post_ops import bias_and_post_ops
from .primitives import add_primitive, desc, primitive_or_none

if TYPE_CHECKING:
    from ....compiler.lowering.lower import Lowering


def _grouped(shape: tuple[int, ...], groups: int) -> tuple[int, ...]:
    return shape if groups == 1 else (groups, shape[0] // groups, *shape[1:])


def _grouped_layout(w: Layout, groups: int) -> Layout:
    if groups == 1:
        return w
    step = w.shape[0] // groups
    return Layout(w.storage, w.dtype, _grouped(w.shape, groups), (w.strides[0] * step, *w.strides), w.offset)


def lower_convolution(lowering: Lowering, node: Node, isa: str = "") -> bool:
    """A `convolution` or `convolution_epilogue` node. `isa`: see `convolution_forward`."""
    bias, post, operands = bias_and_post_ops(*image_epilogue(lowering, node))
    if bias is not None:
        bias = Layout(bias.storage, bias.dtype, (bias.shape[1],), (1,), bias.offset)
    x_value, w_value = node.inputs[:2]
    window, groups = node.attrs[-2:]
    x_shape, y_shape = tuple(x_value.shape), tuple(node.outputs[0].shape)
    w = _grouped_layout(lowering.layout_of(w_value), groups)
    dtype = x_value.dtype
    primitive = primitive_or_none(lambda: conv_forward(
        x_shape, MemoryDesc.any(w.shape, dtype), None if bias is None else desc(bias), y_shape, dtype, window, post, isa,
    ))  # fmt: skip
    if primitive is None:
        return False
    x = channels_last_layout(lowering, lowering.layout_of(x_value), node)
    w = into_blocks(lowering, node, w, primitive.desc(Arg.WEIGHTS))
    with channels_last_result(lowering, node) as y:
        arguments = {**operands, int(Arg.SRC): x, int(Arg.WEIGHTS): w, int(Arg.DST): y}
        if bias is not None:
            arguments[int(Arg.BIAS)] = bias
        add_primitive(lowering, node, primitive, arguments, convolution_label("convolution", node))
    return True


def lower_backward_input(lowering: Lowering, node: Node) -> bool:
    """A `convolution_backward_input` node."""
    g_value, w_value = node.inputs[:2]
    _, window, groups = node.attrs
    x_shape, g_shape = tuple(node.outputs[0].shape), tuple(g_value.shape)
    dtype = g_value.dtype
    w = _grouped_layout(lowering.layout_of(w_value), groups)
    primitive = primitive_or_none(lambda: conv_backward_data(
        x_shape, MemoryDesc.any(w.shape, dtype), g_shape, dtype, window,
    ))  # fmt: skip
    if primitive is None:
        return False
    g = channels_last_layout(lowering, lowering.layout_of(g_value), node)
    w = into_blocks(lowering, node, w, primitive.desc(Arg.WEIGHTS))
    with channels_last_result(lowering, node) as x:
        add_primitive(
            lowering,
            node,
            primitive,
            {int(Arg.DIFF_DST): g, int(Arg.WEIGHTS): w, int(Arg.DIFF_SRC): x},
            "convolution grad input",
        )
    return True


def lower_backward_weight(lowering: Lowering, node: Node) -> bool:
    """A `convolution_backward_weight` node."""
    x_value, g_value = node.inputs
    window, groups = node.attrs
    x_shape, g_shape, w_shape = tuple(x_value.shape), tuple(g_value.shape), tuple(node.outputs[0].shape)
    dtype = g_value.dtype
    primitive = primitive_or_none(lambda: conv_backward_weights(
        x_shape, MemoryDesc.any(_grouped(w_shape, groups), dtype), None, g_shape, dtype, window,
    ))  # fmt: skip
    if primitive is None:
        return False
    x = channels_last_layout(lowering, lowering.layout_of(x_value), node)
    g = channels_last_layout(lowering, lowering.layout_of(g_value), node)
    target = lowering.place(node, 0, row_major(w_shape), node, None)
    plain = _grouped_layout(target, groups)
    wanted = primitive.desc(Arg.DIFF_WEIGHTS)
    direct = wanted == desc(plain)
    size = wanted.nbytes // dtype.itemsize
    w = plain if direct else lowering.temporary((size,), dtype)
    parts = w if primitive.partial == 1 else lowering.temporary((primitive.partial, size), dtype)
    arguments = {int(Arg.SRC): x, int(Arg.DIFF_DST): g, int(Arg.DIFF_WEIGHTS): parts}
    add_primitive(lowering, node, primitive, arguments, "convolution grad weight")
    if parts is not w:
        lowering.add_up(parts, w, node, SUM_OF_PARTS)
    if not direct:
        out_of_blocks(lowering, node, w, wanted, plain)
    return True
