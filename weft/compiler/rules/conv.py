"""Convolution and its gradients: oneDNN on channels-last activations.

Weights stay plain arrays outside; oneDNN is fastest with a layout of its own, so they are reordered on the way in and
their gradient on the way out (a few per cent of the convolution's time).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph.graph import Node, Value
from ..layout import Layout, channels_last, row_major, same_strides
from ..primitives import add_primitive, available, desc, lowers


def channels_last_layout(lowering: Any, layout: Layout, node: Node) -> Layout:
    """The layout itself if its channels lie next to each other, else a channels-last copy."""
    wanted = channels_last(layout.shape)
    if same_strides(layout.strides, wanted, layout.shape):
        return Layout(layout.storage, layout.dtype, layout.shape, wanted, layout.offset)
    return lowering.copy(layout, node, lowering.temporary(layout.shape, layout.dtype, wanted))


def place_channels_last(lowering: Any, node: Node, index: int) -> tuple[Layout, Layout]:
    """(channels-last memory for a result, where it must finally lie)."""
    shape = tuple(node.outputs[index].shape)
    wanted = channels_last(shape)
    target = lowering.place(node, index, wanted, node, None)
    if same_strides(target.strides, wanted, shape):
        return Layout(target.storage, target.dtype, shape, wanted, target.offset), target
    return lowering.temporary(shape, target.dtype, wanted), target


def _window(stride: Any, padding: Any, dilation: Any) -> Any:
    from ...backends.onednn.primitives.convolution import Window

    return Window(
        tuple(stride), tuple([p[0] for p in padding]), tuple([p[1] for p in padding]), tuple(dilation)
    )


def _grouped(shape: tuple[int, ...], groups: int) -> tuple[int, ...]:
    return shape if groups == 1 else (groups, shape[0] // groups, *shape[1:])


def _grouped_layout(w: Layout, groups: int) -> Layout:
    if groups == 1:
        return w
    step = w.shape[0] // groups
    return Layout(w.storage, w.dtype, _grouped(w.shape, groups), (w.strides[0] * step, *w.strides), w.offset)


def applies(*values: Any) -> bool:
    """Float32, nothing empty, and oneDNN is there."""
    return available() and all(
        v is None or v.dtype == np.float32 and 0 not in v.shape
        for v in values
        if isinstance(v, Value) or v is None
    )


def _reorder_in(lowering: Any, node: Node, w: Layout, wanted: Any) -> Layout:
    """The weights in the primitive's own layout."""
    from ...backends.onednn.capi import Arg
    from ...backends.onednn.primitives.reorder import reorder

    source = desc(w)
    if source == wanted:
        return w
    room = lowering.temporary((wanted.nbytes,), np.dtype(np.uint8))
    add_primitive(
        lowering, node, reorder(source, wanted), {int(Arg.SRC): w, int(Arg.DST): room}, "reorder weights"
    )
    return room


def _make(build: Any) -> Any:
    """A primitive, or None where oneDNN has none or only its reference loops."""
    from ...backends.onednn.capi import Unsupported
    from ...backends.onednn.eager.kernel import is_reference

    try:
        primitive = build()
    except Unsupported:
        return None
    return None if is_reference(primitive) else primitive


@lowers("convolution")
def lower_convolution(lowering: Any, node: Node) -> bool:
    x_value, w_value, b_value = node.inputs
    if not applies(x_value, w_value, b_value):
        return False
    from ...backends.onednn.capi import Arg
    from ...backends.onednn.descriptors import MemoryDesc
    from ...backends.onednn.primitives.convolution import convolution_forward

    stride, padding, dilation, groups = node.attrs
    window = _window(stride, padding, dilation)
    x_shape, y_shape = tuple(x_value.shape), tuple(node.outputs[0].shape)
    w = _grouped_layout(lowering.layout_of(w_value), groups)
    dtype = x_value.dtype
    bias = None if b_value is None else lowering.layout_of(b_value)
    if bias is not None and not bias.contiguous:
        bias = lowering.copy(bias, node)
    primitive = _make(lambda: convolution_forward(
        MemoryDesc.strided(x_shape, dtype, channels_last(x_shape)), MemoryDesc.any(w.shape, dtype),
        None if bias is None else desc(bias), MemoryDesc.strided(y_shape, dtype, channels_last(y_shape)), window,
    ))  # fmt: skip
    if primitive is None:
        return False
    x = channels_last_layout(lowering, lowering.layout_of(x_value), node)
    w = _reorder_in(lowering, node, w, primitive.desc(Arg.WEIGHTS))
    y, target = place_channels_last(lowering, node, 0)
    arguments = {int(Arg.SRC): x, int(Arg.WEIGHTS): w, int(Arg.DST): y}
    if bias is not None:
        arguments[int(Arg.BIAS)] = bias
    add_primitive(lowering, node, primitive, arguments, "convolution")
    if y is not target and y.storage is not target.storage:
        lowering.copy(y, node, target)
    return True


@lowers("convolution_backward_input")
def lower_backward_input(lowering: Any, node: Node) -> bool:
    g_value, w_value = node.inputs[:2]
    if not applies(g_value, w_value):
        return False
    from ...backends.onednn.capi import Arg
    from ...backends.onednn.descriptors import MemoryDesc
    from ...backends.onednn.primitives.convolution import convolution_backward_data

    _, stride, padding, dilation, groups = node.attrs
    x_shape, g_shape = tuple(node.outputs[0].shape), tuple(g_value.shape)
    dtype = g_value.dtype
    w = _grouped_layout(lowering.layout_of(w_value), groups)
    primitive = _make(lambda: convolution_backward_data(
        MemoryDesc.strided(x_shape, dtype, channels_last(x_shape)), MemoryDesc.any(w.shape, dtype),
        MemoryDesc.strided(g_shape, dtype, channels_last(g_shape)), _window(stride, padding, dilation),
    ))  # fmt: skip
    if primitive is None:
        return False
    g = channels_last_layout(lowering, lowering.layout_of(g_value), node)
    w = _reorder_in(lowering, node, w, primitive.desc(Arg.WEIGHTS))
    x, target = place_channels_last(lowering, node, 0)
    add_primitive(
        lowering,
        node,
        primitive,
        {int(Arg.DIFF_DST): g, int(Arg.WEIGHTS): w, int(Arg.DIFF_SRC): x},
        "convolution grad input",
    )
    if x.storage is not target.storage:
        lowering.copy(x, node, target)
    return True


@lowers("convolution_backward_weight")
def lower_backward_weight(lowering: Any, node: Node) -> bool:
    x_value, g_value = node.inputs
    if not applies(x_value, g_value):
        return False
    from ...backends.onednn.capi import Arg
    from ...backends.onednn.descriptors import MemoryDesc
    from ...backends.onednn.primitives.convolution import convolution_backward_weights
    from ...backends.onednn.primitives.reorder import reorder

    _, stride, padding, dilation, groups = node.attrs
    x_shape, g_shape, w_shape = tuple(x_value.shape), tuple(g_value.shape), tuple(node.outputs[0].shape)
    dtype = g_value.dtype
    primitive = _make(lambda: convolution_backward_weights(
        MemoryDesc.strided(x_shape, dtype, channels_last(x_shape)), MemoryDesc.any(_grouped(w_shape, groups), dtype), None,
        MemoryDesc.strided(g_shape, dtype, channels_last(g_shape)), _window(stride, padding, dilation),
    ))  # fmt: skip
    if primitive is None:
        return False
    x = channels_last_layout(lowering, lowering.layout_of(x_value), node)
    g = channels_last_layout(lowering, lowering.layout_of(g_value), node)
    target = lowering.place(node, 0, row_major(w_shape), node, None)
    plain = _grouped_layout(target, groups)
    wanted = primitive.desc(Arg.DIFF_WEIGHTS)
    direct = wanted == desc(plain)
    w = plain if direct else lowering.temporary((wanted.nbytes,), np.dtype(np.uint8))
    arguments = {int(Arg.SRC): x, int(Arg.DIFF_DST): g, int(Arg.DIFF_WEIGHTS): w}
    add_primitive(lowering, node, primitive, arguments, "convolution grad weight")
    if not direct:
        step = {int(Arg.SRC): w, int(Arg.DST): plain}
        add_primitive(lowering, node, reorder(wanted, desc(plain)), step, "reorder grad weight")
    return True
