"""Lowers depthwise convolutions fused with their neighbours to the kernels of `kernels/depthwise*.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ....graph.graph import Node, Value
from ....ops.nn.window import Window
from ...loop_ir.kernels import depthwise as d
from ...loop_ir.kernels import depthwise_gradients as dg
from ...program.layout import Layout, row_major
from ..registry import lowers
from .channels_last import channels_last_layout, channels_last_result
from .depthwise import add_kernel, ordered_weights, shape_of, streams, suits

if TYPE_CHECKING:
    from ..lower import Lowering


def _applies(node: Node, x: Value, y: Value, window: Window) -> bool:
    return (
        all(v.dtype == np.float32 for v in node.inputs)
        and 0 not in (*x.shape, *y.shape)
        and suits(x.shape, y.shape, window, x.shape[1])
    )


def _columns(lowering: Lowering, node: Node, values: tuple[Value, ...]) -> list[Layout]:
    """Per-channel operands, contiguous."""
    found = [lowering.layout_of(v) for v in values]
    return [x if x.contiguous else lowering.copy(x, node) for x in found]


def _column(lowering: Lowering, node: Node, index: int) -> Layout:
    """The layout of a per-channel result."""
    shape = tuple(node.outputs[index].shape)
    placed: Layout = lowering.place(node, index, row_major(shape), node, None)
    return placed


@lowers("depthwise_forward")
def lower_forward(lowering: Lowering, node: Node) -> bool:
    before, window, moments = node.attrs
    x_value, w_value, *columns = node.inputs
    if not _applies(node, x_value, node.outputs[0], window):
        return False
    shape = shape_of(x_value.shape, node.outputs[0].shape, window)
    x = channels_last_layout(lowering, lowering.layout_of(x_value), node)
    w = ordered_weights(lowering, node, shape, lowering.layout_of(w_value))
    operands = _columns(lowering, node, tuple(columns))
    with channels_last_result(lowering, node) as y:
        grid = d.Grid(shape, False)
        images = x.shape[0]
        streaming = streams(y, lowering.target)
        kernel = d.convolution(shape, False, streaming=streaming, before=before, moments=moments)
        params = [*grid.split(images), x.offset, w.offset, y.offset, *[z.offset for z in operands]]
        writes = [y]
        if moments:
            writes.append(lowering.temporary((images * grid.tiles, 2, shape.channels), x.dtype))
        label = "+".join([*before.names, "depthwise convolution", *["moments"] * moments])
        add_kernel(lowering, node, label, kernel, [x, w, *operands], writes, params)
        if moments:
            mean, var = (_column(lowering, node, i) for i in (1, 2))
            params = [images, mean.offset, var.offset]
            add_kernel(lowering, node, "moments of all", d.join_moments(shape), writes[1:], [mean, var], params)
    return True


@lowers("depthwise_backward")
def lower_backward(lowering: Lowering, node: Node) -> bool:
    before, after, window = node.attrs
    g_value, x_value, w_value, *columns = node.inputs
    if not _applies(node, x_value, g_value, window):
        return False
    shape = shape_of(x_value.shape, g_value.shape, window)
    g = channels_last_layout(lowering, lowering.layout_of(g_value), node)
    x = channels_last_layout(lowering, lowering.layout_of(x_value), node)
    w = ordered_weights(lowering, node, shape, lowering.layout_of(w_value))
    operands = _columns(lowering, node, tuple(columns))
    with channels_last_result(lowering, node) as y:
        strips, tasks = d.Grid(shape, True).split(x.shape[0])
        sums = len(after.results) - 1
        parts = lowering.temporary((tasks, shape.taps + sums, shape.channels), x.dtype)
        kernel = dg.gradients(shape, before, after, streams(y, lowering.target))
        params = [strips, tasks, g.offset, x.offset, w.offset, y.offset, *[z.offset for z in operands]]
        names = [*after.names, *["sum"] * sums]
        label = "+".join(["depthwise convolution grad input", "grad weight", *dict.fromkeys(names)])
        add_kernel(lowering, node, label, kernel, [g, x, w, *operands], [y, parts], params)
    dw = lowering.place(node, 1, row_major(tuple(w_value.shape)), node, None)
    totals = [_column(lowering, node, 2 + k) for k in range(sums)]
    sc, _, sh, sw = dw.strides
    params = [tasks, dw.offset, sc, sh, sw, *[z.offset for z in totals]]
    add = d.add_parts(shape.rows.taps, shape.columns.taps, shape.channels, sums)
    add_kernel(lowering, node, "depthwise convolution grad weight sum", add, [parts], [dw, *totals], params)
    return True
