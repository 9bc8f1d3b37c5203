"""Lowers matmuls and convolutions with an epilogue: to oneDNN post-ops, or to native kernels with an epilogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ....graph.graph import Node, Value
from ...layout import Layout, channels_last, row_major
from ...passes.epilogues import takes_steps
from ..primitives import add_primitive, available, desc, lowers
from . import depthwise, pointwise_conv, winograd
from .channels_last import channels_last_layout, channels_last_result
from .conv import Images, convolve, lower_image, weight_matrix
from .matmul import _operand, library_product, multiply_skinny
from .product import leads, multiply
from .product import suits as suits_blocks

if TYPE_CHECKING:
    from ..lower import Lowering


def _eltwise(step: str) -> Any:
    from ....backends.onednn.capi import Alg
    from ....backends.onednn.primitives.base import Eltwise

    return {
        "relu": Eltwise(Alg.ELTWISE_RELU),
        "relu6": Eltwise(Alg.ELTWISE_CLIP, 0.0, 6.0),
        "gelu_exact": Eltwise(Alg.ELTWISE_GELU_ERF),
        "gelu_tanh": Eltwise(Alg.ELTWISE_GELU_TANH),
        "silu": Eltwise(Alg.ELTWISE_SWISH, 1.0),
        "hardswish": Eltwise(Alg.ELTWISE_HARDSWISH, 1.0 / 6.0, 0.5),
        "sigmoid": Eltwise(Alg.ELTWISE_LOGISTIC),
        "tanh": Eltwise(Alg.ELTWISE_TANH),
    }[step]


def _post_ops(steps: tuple[str, ...], operands: list[Layout]) -> tuple[list[Any], dict[int, Layout]]:
    """The post-ops, and the operands of the binary ones by argument index."""
    from ....backends.onednn.capi import Alg, post_op_argument
    from ....backends.onednn.primitives.base import Binary

    made: list[Any] = []
    arguments: dict[int, Layout] = {}
    rest = iter(operands)
    for step in steps:
        if step in ("add", "multiply"):
            operand = next(rest)
            arguments[post_op_argument(len(made))] = operand
            made.append(Binary(Alg.BINARY_ADD if step == "add" else Alg.BINARY_MUL, desc(operand)))
        else:
            made.append(_eltwise(step))
    return made, arguments


def _label(name: str, steps: tuple[str, ...]) -> str:
    return " + ".join([name, *steps])


@lowers("matmul_then")
def lower_matmul_then(lowering: Lowering, node: Node) -> bool:
    from ....backends.onednn.capi import Arg
    from ....backends.onednn.shares import matmul

    (steps,) = node.attrs
    if not available() or any(v.dtype != np.float32 for v in node.inputs):
        return False
    a, b = (_operand(lowering, lowering.layout_of(v), node) for v in node.inputs[:2])
    columns = [_matrix(lowering, node, v) for v in node.inputs[2:]]
    if multiply_skinny(lowering, node, a, b, steps, columns):
        return True
    if suits_blocks(a, b) and leads(library_product):
        return multiply(lowering, node, a, b, steps, columns)
    c = lowering.place(node, 0, row_major(tuple(node.outputs[0].shape)), node, None)
    bias = columns[0] if steps[0] == "add" and columns[0].shape[0] == 1 else None
    post, arguments = _post_ops(steps[1:] if bias is not None else steps, columns[1:] if bias is not None else columns)
    primitive = matmul(desc(a), desc(b), desc(c), None if bias is None else desc(bias), post)
    arguments |= {int(Arg.SRC): a, int(Arg.WEIGHTS): b, int(Arg.DST): c}
    if bias is not None:
        arguments[int(Arg.BIAS)] = bias
    add_primitive(lowering, node, primitive, arguments, _label("matmul", steps))
    return True


def _matrix(lowering: Lowering, node: Node, value: Value) -> Layout:
    """An operand of a step as a matrix; one element per column is a matrix of one row."""
    x = lowering.layout_of(value)
    if not x.contiguous:
        x = lowering.copy(x, node)
    shape = (value.size // value.shape[-1], value.shape[-1])
    return Layout(x.storage, x.dtype, shape, row_major(shape), x.offset)


@lowers("convolution_then")
def lower_convolution_then(lowering: Lowering, node: Node) -> bool:
    if not available() or any(v.dtype != np.float32 for v in node.inputs):
        return False
    kernel, shape = tuple(node.inputs[1].shape[2:]), tuple(node.outputs[0].shape)
    like = (i for i, v in enumerate(node.inputs) if i >= 2 and tuple(v.shape) == shape)
    images = Images(_label("conv", node.attrs[0]), node.inputs[0], node.outputs[0], (0, *like))
    if not takes_steps(node.attrs[0]):
        return _direct_then(lowering, node)
    return lower_image(lowering, node, images, kernel, _direct_then, _winograd_then, _depthwise_then, _pointwise_then)


def _direct_then(lowering: Lowering, node: Node, isa: str = "") -> bool:
    """`convolution_then` by oneDNN; a leading per-channel add becomes its bias."""
    steps, *attrs = node.attrs
    shape = tuple(node.outputs[0].shape)
    operands = [_image(lowering, node, v, shape) for v in node.inputs[2:]]
    bias = None
    rest = steps
    if steps[0] == "add" and _is_column(node.inputs[2], shape):
        column, *operands = operands
        bias = Layout(column.storage, column.dtype, (shape[1],), (1,), column.offset)
        rest = steps[1:]
    post, arguments = _post_ops(rest, operands)
    return convolve(lowering, node, attrs, bias, post, arguments, _label("convolution", steps), isa)


def _winograd_then(m: int, lowering: Lowering, node: Node) -> bool:
    """`convolution_then` by Winograd, with the steps in the output transform."""
    x = channels_last_layout(lowering, lowering.layout_of(node.inputs[0]), node)
    epilogue, operands = _own_steps(lowering, node)
    weight = lowering.layout_of(node.inputs[1])
    with channels_last_result(lowering, node) as y:
        padding = node.attrs[2]
        before = padding[0][0], padding[1][0]
        winograd.convolve(lowering, node, m, x, weight, y, before, epilogue, operands)
    return True


def _depthwise_then(lowering: Lowering, node: Node) -> bool:
    """`convolution_then` by the native depthwise kernel, with the steps as its epilogue."""
    steps, *attrs = node.attrs
    shape = depthwise.shape_of(node.inputs[0].shape, node.outputs[0].shape, node.inputs[1].shape[2:], attrs)
    x = channels_last_layout(lowering, lowering.layout_of(node.inputs[0]), node)
    epilogue, operands = _own_steps(lowering, node)
    weight = lowering.layout_of(node.inputs[1])
    with channels_last_result(lowering, node) as y:
        label = _label("depthwise convolution", steps)
        depthwise.convolve(lowering, node, shape, x, weight, y, False, epilogue, operands, label)
    return True


def _pointwise_then(lowering: Lowering, node: Node) -> bool:
    """`convolution_then` by the native 1 x 1 kernel, with the steps as its epilogue."""
    x = channels_last_layout(lowering, lowering.layout_of(node.inputs[0]), node)
    epilogue, operands = _own_steps(lowering, node)
    with channels_last_result(lowering, node) as y:
        label = _label("convolution", node.attrs[0])
        pointwise_conv.multiply(lowering, node, x, weight_matrix(lowering, node), y, epilogue, operands, label)
    return True


def _own_steps(lowering: Lowering, node: Node) -> tuple[tuple[str, ...], list[Layout]]:
    """The steps of a `convolution_then` as native kernels take them, and their operands."""
    shape = tuple(node.outputs[0].shape)
    operands = [_image(lowering, node, v, shape) for v in node.inputs[2:]]
    kinds = iter(["bias" if _is_column(v, shape) else "image" for v in node.inputs[2:]])
    return tuple([next(kinds) if step == "add" else step for step in node.attrs[0]]), operands


def _is_column(value: Value, shape: tuple[int, ...]) -> bool:
    """Whether an operand is per-channel for an image of this shape."""
    return value.size == shape[1] and tuple(value.shape) != shape


def _image(lowering: Lowering, node: Node, value: Value, shape: tuple[int, ...]) -> Layout:
    """An operand of a step as oneDNN reads it: channels-last, or per-channel."""
    x = lowering.layout_of(value)
    if tuple(value.shape) == shape and shape[2:] != (1, 1):
        return channels_last_layout(lowering, x, node)
    if value.size == shape[1]:
        if not x.contiguous:
            x = lowering.copy(x, node)
        return Layout(x.storage, x.dtype, (1, shape[1], 1, 1), channels_last((1, shape[1], 1, 1)), x.offset)
    return channels_last_layout(lowering, x, node)
