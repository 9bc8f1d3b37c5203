"""Lowers pooling to oneDNN on channels-last activations.

Max pooling stores the positions of its maxima. oneDNN's workspace holds each maximum's position in its window, in the
layout of the result, which is what the op returns. A workspace in another format is usable as long as only the gradient
reads it.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from ....graph.graph import Node
from ..primitives import add_primitive, lowers
from .channels_last import applies, channels_last_layout, channels_last_result, primitive_or_none, window_of

if TYPE_CHECKING:
    from ..lower import Lowering


def _padding(x: tuple[int, ...], y: tuple[int, ...], kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    """Padding that makes the windows of `ceil_mode` end where oneDNN expects."""
    made = []
    for i in range(len(kernel)):
        before = padding[i][0]
        reach = (y[i + 2] - 1) * stride[i] + (kernel[i] - 1) * dilation[i] + 1
        made.append((before, max(reach - x[i + 2] - before, 0)))
    return tuple(made)


@lowers("max_pool")
def lower_max_pool(lowering: Lowering, node: Node) -> bool:
    (x_value,) = node.inputs
    y_value, places = node.outputs
    if not applies(x_value):
        return False
    private = places not in lowering.wanted and all(
        u.op.name == "max_pool_backward" for u in lowering._users(node) if places in u.inputs
    )
    from ....backends.onednn.capi import Alg, Arg
    from ....backends.onednn.shares import pool_forward

    kernel, stride, padding, dilation, _ = node.attrs
    x_shape, y_shape = tuple(x_value.shape), tuple(y_value.shape)
    full = _padding(x_shape, y_shape, kernel, stride, padding, dilation)
    window = window_of(stride, full, dilation)
    primitive = primitive_or_none(
        lambda: pool_forward(Alg.POOLING_MAX, x_shape, y_shape, x_value.dtype, tuple(kernel), window)
    )
    if primitive is None:
        return False
    plain = primitive.workspace_nbytes == places.nbytes
    if not private and not plain:
        return False
    x = channels_last_layout(lowering, lowering.layout_of(x_value), node)
    if plain:
        indices: Any = channels_last_result(lowering, node, 1)
    else:
        indices = nullcontext(lowering.temporary((max(primitive.workspace_nbytes, 1),), np.dtype(np.uint8)))
    with channels_last_result(lowering, node) as y, indices as workspace:
        arguments = {int(Arg.SRC): x, int(Arg.DST): y}
        if primitive.takes(Arg.WORKSPACE):
            arguments[int(Arg.WORKSPACE)] = workspace
        add_primitive(lowering, node, primitive, arguments, "max pool")
    lowering.layouts[places] = workspace
    return True


@lowers("max_pool_backward")
def lower_max_pool_backward(lowering: Lowering, node: Node) -> bool:
    g_value, places_value = node.inputs[:2]
    if not applies(g_value):
        return False
    from ....backends.onednn.capi import Alg, Arg
    from ....backends.onednn.shares import pool_backward

    _, kernel, stride, padding, dilation, _ = node.attrs
    x_shape, y_shape = tuple(node.outputs[0].shape), tuple(g_value.shape)
    window = window_of(stride, _padding(x_shape, y_shape, kernel, stride, padding, dilation), dilation)
    primitive = primitive_or_none(
        lambda: pool_backward(Alg.POOLING_MAX, x_shape, y_shape, g_value.dtype, tuple(kernel), window)
    )
    places = lowering.layout_of(places_value)
    if primitive is None:
        return False
    if len(places.shape) > 1:
        if primitive.workspace_nbytes != places_value.nbytes:
            return False
        places = channels_last_layout(lowering, places, node)
    g = channels_last_layout(lowering, lowering.layout_of(g_value), node)
    with channels_last_result(lowering, node) as gx:
        arguments = {int(Arg.DIFF_DST): g, int(Arg.DIFF_SRC): gx}
        if primitive.takes(Arg.WORKSPACE):
            arguments[int(Arg.WORKSPACE)] = places
        add_primitive(lowering, node, primitive, arguments, "max pool grad")
    return True


def _average(include: bool) -> Any:
    from ....backends.onednn.capi import Alg

    return Alg.POOLING_AVG_INCLUDE_PADDING if include else Alg.POOLING_AVG_EXCLUDE_PADDING


def _exact(x: tuple[int, ...], y: tuple[int, ...], kernel: Any, stride: Any, padding: Any) -> bool:
    """Whether the windows end inside the padding: oneDNN counts padding that `ceil_mode` adds differently."""
    return all((y[i + 2] - 1) * stride[i] + kernel[i] <= x[i + 2] + sum(padding[i]) for i in range(len(kernel)))


@lowers("avg_pool", "avg_pool_backward")
def lower_avg_pool(lowering: Lowering, node: Node) -> bool:
    backward = node.op.name == "avg_pool_backward"
    value, out = node.inputs[0], node.outputs[0]
    kernel, stride, padding, _, include, divisor = node.attrs[1:] if backward else node.attrs
    x_shape, y_shape = (tuple(out.shape), tuple(value.shape)) if backward else (tuple(value.shape), tuple(out.shape))
    if not applies(value) or divisor is not None or not _exact(x_shape, y_shape, kernel, stride, padding):
        return False
    from ....backends.onednn.capi import Arg
    from ....backends.onednn.shares import pool_backward, pool_forward

    ones = (1,) * len(kernel)
    window = window_of(stride, _padding(x_shape, y_shape, kernel, stride, padding, ones), ones)
    make = pool_backward if backward else pool_forward
    primitive = primitive_or_none(lambda: make(_average(include), x_shape, y_shape, value.dtype, tuple(kernel), window))
    if primitive is None:
        return False
    source = channels_last_layout(lowering, lowering.layout_of(value), node)
    with channels_last_result(lowering, node) as result:
        names = (Arg.DIFF_DST, Arg.DIFF_SRC) if backward else (Arg.SRC, Arg.DST)
        add_primitive(
            lowering,
            node,
            primitive,
            {int(names[0]): source, int(names[1]): result},
            "average pool" + " grad" * backward,
        )
    return True
