"""Operands of epilogues as layouts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....graph.graph import Node
from ....ops.internal.epilogue import BIAS, IDENTITY, Epilogue
from ...program.layout import Layout, channels_last, row_major
from .channels_last import channels_last_layout

if TYPE_CHECKING:
    from ..lower import Lowering


def matrix_operands(lowering: Lowering, node: Node) -> list[Layout]:
    """The operands of a matmul's epilogue as matrices; one element per column is a matrix of one row."""
    made = []
    for value in node.inputs[2:]:
        x = lowering.layout_of(value)
        if not x.contiguous:
            x = lowering.copy(x, node)
        shape = (value.size // value.shape[-1], value.shape[-1])
        made.append(Layout(x.storage, x.dtype, shape, row_major(shape), x.offset))
    return made


def fused_epilogue(node: Node) -> Epilogue | None:
    """The attribute of a `convolution_epilogue`; None for a plain `convolution`."""
    first = node.attrs[0]
    return first if isinstance(first, Epilogue) else None


def image_epilogue(lowering: Lowering, node: Node) -> tuple[Epilogue, list[Layout]]:
    """The epilogue of a `convolution` (its bias) or `convolution_epilogue`, and its operands as channels-last images."""
    epilogue = fused_epilogue(node)
    if epilogue is None:
        epilogue = IDENTITY if node.inputs[2] is None else BIAS
    _, channels, *spatial = node.outputs[0].shape
    column = (1, channels, *[1] * len(spatial))
    made = []
    for operand in epilogue.operands:
        x = lowering.layout_of(node.inputs[1 + operand.index])
        if operand.per_channel:
            x = x if x.contiguous else lowering.copy(x, node)
            x = Layout(x.storage, x.dtype, column, channels_last(column), x.offset)
        made.append(channels_last_layout(lowering, x, node))
    return epilogue, made
