"""Lowers pooling to oneDNN on channels-last activations.

Max pooling stores the positions of its maxima. oneDNN's workspace holds each maximum's position in its window, in the
layout of the result, which is what the op returns. A workspace in another format is usable as long as only the gradient
reads it.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from ....compiler.lowering.registry import lowers
from ....compiler.lowering.rules.channels_last import applies, channels_last_layout, channels_last_result
from ....graph.graph import Node
from ....ops.core.registry import get
from ..capi import Alg, Arg
from ..shares import pool_backward, pool_forward
from .primitives import add_primitive, primitive_or_none

if TYPE_CHECKING:
    from ....compiler.lowering.lower import Lowering

MAX_POOL_BACKWARD = get("max_pool_backward")


@lowers("max_pool")
def lower_max_pool(lowering: Lowering, node: Node) -> bool:
    (x_value,) = node.inputs
    y_value, places = node.outputs
    if not applies(x_value):
        return False
    private = places not in lowering.wanted and all(
        u.op is MAX_POOL_BACKWARD for u in lowering._users(node) if places in u.inputs
    )
    x_shape, y_shape = tuple(x_value.shape), tuple(y_value.shape)
    window = node.attrs[0].covering(x_shape[2:], y_shape[2:])
    primitive = primitive_or_none(lambda: pool_forward(Alg.POOLING_MAX, x_shape, y_shape, x_value.dtype, window))
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
    x_shape, y_shape = tuple(node.outputs[0].shape), tuple(g_value.shape)
    window = node.attrs[1].covering(x_shape[2:], y_shape[2:])
    primitive = primitive_or_none(lambda: pool_backward(Alg.POOLING_MAX, x_shape, y_shape, g_value.dtype, window))
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
    return Alg.POOLING_AVG_INCLUDE_PADDING if include else Alg.POOLING_AVG_EXCLUDE_PADDING


@lowers("avg_pool")
def lower_avg_pool(lowering: Lowering, node: Node) -> bool:
    return _lower_average(lowering, node, backward=False)


@lowers("avg_pool_backward")
def lower_avg_pool_backward(lowering: Lowering, node: Node) -> bool:
    return _lower_average(lowering, node, backward=True)


def _lower_average(lowering: Lowering, node: Node, backward: bool) -> bool:
    value, out = node.inputs[0], node.outputs[0]
    window, include, divisor = node.attrs[-3:]
    x_shape, y_shape = (tuple(out.shape), tuple(value.shape)) if backward else (tuple(value.shape), tuple(out.shape))
    # oneDNN counts the padding that covers an overhang differently
    if not applies(value) or divisor is not None or any(window.overhang(x_shape[2:], y_shape[2:])):
        return False
    make = pool_backward if backward else pool_forward
    primitive = primitive_or_none(lambda: make(_average(include), x_shape, y_shape, value.dtype, window))
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
