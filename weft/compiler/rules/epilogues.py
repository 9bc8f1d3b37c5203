"""Products and convolutions with post-ops: oneDNN does the steps while the result is in registers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph.graph import Node, Value
from ..layout import Layout, channels_last, row_major
from ..primitives import add_primitive, available, desc, lowers
from .conv import channels_last_layout, convolve
from .matmul import _operand


def _eltwise(step: str) -> Any:
    from ...backends.onednn.capi import Alg
    from ...backends.onednn.primitives.base import Eltwise

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
    from ...backends.onednn.capi import Alg, post_op_argument
    from ...backends.onednn.primitives.base import Binary

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
def lower_matmul_then(lowering: Any, node: Node) -> bool:
    from ...backends.onednn.capi import Arg
    from ...backends.onednn.primitives.matmul import matmul

    (steps,) = node.attrs
    if not available() or any(v.dtype != np.float32 for v in node.inputs):
        return False
    a, b = (_operand(lowering, lowering.layout_of(v), node) for v in node.inputs[:2])
    columns = [_matrix(lowering, node, v) for v in node.inputs[2:]]
    c = lowering.place(node, 0, row_major(tuple(node.outputs[0].shape)), node, None)
    bias = columns[0] if steps[0] == "add" and columns[0].shape[0] == 1 else None
    post, arguments = _post_ops(
        steps[1:] if bias is not None else steps, columns[1:] if bias is not None else columns
    )
    primitive = matmul(desc(a), desc(b), desc(c), None if bias is None else desc(bias), post)
    arguments |= {int(Arg.SRC): a, int(Arg.WEIGHTS): b, int(Arg.DST): c}
    if bias is not None:
        arguments[int(Arg.BIAS)] = bias
    add_primitive(lowering, node, primitive, arguments, _label("matmul", steps))
    return True


def _matrix(lowering: Any, node: Node, value: Value) -> Layout:
    """An operand of a step as a matrix; one number per column is a matrix of one row."""
    x = lowering.layout_of(value)
    if not x.contiguous:
        x = lowering.copy(x, node)
    shape = (value.size // value.shape[-1], value.shape[-1])
    return Layout(x.storage, x.dtype, shape, row_major(shape), x.offset)


@lowers("convolution_then")
def lower_convolution_then(lowering: Any, node: Node) -> bool:
    steps, *attrs = node.attrs
    if not available() or any(v.dtype != np.float32 for v in node.inputs):
        return False
    y_shape = tuple(node.outputs[0].shape)
    post, operands = _post_ops(steps, [_image(lowering, node, v, y_shape) for v in node.inputs[2:]])
    return convolve(lowering, node, attrs, None, post, operands, _label("convolution", steps))


def _image(lowering: Any, node: Node, value: Value, shape: tuple[int, ...]) -> Layout:
    """An operand of a step as oneDNN reads it: channels-last, or one number per channel."""
    x = lowering.layout_of(value)
    if tuple(value.shape) == shape and shape[2:] != (1, 1):
        return channels_last_layout(lowering, x, node)
    if value.size == shape[1]:
        if not x.contiguous:
            x = lowering.copy(x, node)
        return Layout(x.storage, x.dtype, (1, shape[1], 1, 1), channels_last((1, shape[1], 1, 1)), x.offset)
    return channels_last_layout(lowering, x, node)
