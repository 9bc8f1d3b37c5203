"""The epilogue of a convolution kernel: elementwise steps applied to a result before it is stored.

Steps are "bias" (adds an operand indexed by channel), "image" (adds an operand with the layout of the result), and names
of unary elementwise ops.
"""

from __future__ import annotations

from ....ops.core import scalar as s
from ....ops.core.registry import table
from ....ops.core.scalar import Expr
from ..ir import Buffer


class Epilogue:
    """Epilogue steps, with `buffers` for their operands and `params`, the names of the operands' offsets."""

    def __init__(self, steps: tuple[str, ...]) -> None:
        self.steps = steps
        numbers = [i for i, step in enumerate(steps) if step in ("bias", "image")]
        self.operands = {i: Buffer.of(f"operand{i}", s.FLOAT32, (1 << 40,)) for i in numbers}
        self.buffers = tuple(self.operands.values())
        self.params = tuple([f"offset{i}" for i in numbers])

    def __call__(self, value: Expr, channel: Expr, here: Expr) -> Expr:
        """The value after the steps; `here` is its offset in the result."""
        for i, step in enumerate(self.steps):
            if i in self.operands:
                value = value + self.operands[i][(channel if step == "bias" else here) + s.param(f"offset{i}")]
            else:
                value = table[step].expression(value)  # type: ignore[misc]
        return value
