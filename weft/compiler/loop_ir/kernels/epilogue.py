"""Epilogues in generated kernels: the buffers of their operands, and their value at one element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ....ops.core import scalar as s
from ....ops.core.scalar import Expr
from ....ops.internal.epilogue import Epilogue, Input, expression
from ...program.layout import Layout
from ..ir import Buffer


class Operands:
    """Operands of an epilogue: `buffers`, and `params`, the names of their offsets."""

    def __init__(self, inputs: Sequence[Input], name: str = "operand") -> None:
        self.inputs = inputs
        self.buffers = tuple([Buffer.of(f"{name}{x.index}", s.FLOAT32, (1 << 40,)) for x in inputs])
        self.params = tuple([f"{name}_offset{x.index}" for x in inputs])

    def at(self, channel: Expr, here: Expr | None = None) -> list[Expr]:
        """The operands at this channel of the element at offset `here` of the result."""
        places = [channel if x.per_channel else here for x in self.inputs]
        assert None not in places
        return [b[at + s.param(p)] for b, at, p in zip(self.buffers, places, self.params, strict=True)]


class MatrixOperand(NamedTuple):
    """The layout of an operand of a matmul's epilogue; `row_stride` is 0 if it has one element per column."""

    row_stride: int
    column_stride: int
    offset: int

    def at(self, buffer: Buffer, row: Expr | int, column: Expr) -> Expr:
        place = column * self.column_stride + self.offset
        return buffer[row * self.row_stride + place if self.row_stride else place]


def matrix_operands(layouts: Sequence[Layout]) -> tuple[MatrixOperand, ...]:
    """Of matrices that have the result's shape, or one row."""
    return tuple([MatrixOperand(x.strides[0] if x.shape[0] > 1 else 0, x.strides[1], x.offset) for x in layouts])


def evaluate(epilogue: Epilogue, value: Expr, operands: Sequence[Expr]) -> Expr:
    """The epilogue of one element."""
    found: Expr = epilogue.apply(expression, [value, *operands])
    return found


def convolutions_support(epilogue: Epilogue) -> bool:
    """Whether convolution kernels apply this epilogue: adds, and an activation at the end."""
    *first, last = epilogue.names or ("add",)
    return all(name == "add" for name in first) and last in ("add", "relu", "relu6")
