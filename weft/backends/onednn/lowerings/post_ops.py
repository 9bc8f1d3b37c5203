"""oneDNN post-ops of an epilogue: elementwise ops that a primitive applies before it stores its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....compiler.program.layout import Layout
from ....ops.internal.epilogue import Epilogue
from ..capi import Alg, post_op_argument
from ..primitives.base import Binary, Eltwise, PostOp
from .primitives import desc

BINARY: Mapping[str, Alg] = {"add": Alg.BINARY_ADD, "multiply": Alg.BINARY_MUL}
UNARY: Mapping[str, Eltwise] = {
    "relu": Eltwise(Alg.ELTWISE_RELU),
    "relu6": Eltwise(Alg.ELTWISE_CLIP, 0.0, 6.0),
    "gelu_exact": Eltwise(Alg.ELTWISE_GELU_ERF),
    "gelu_tanh": Eltwise(Alg.ELTWISE_GELU_TANH),
    "silu": Eltwise(Alg.ELTWISE_SWISH, 1.0),
    "hardswish": Eltwise(Alg.ELTWISE_HARDSWISH, 1.0 / 6.0, 0.5),
    "sigmoid": Eltwise(Alg.ELTWISE_LOGISTIC),
    "tanh": Eltwise(Alg.ELTWISE_TANH),
}
LOSES_NAN = frozenset({"relu", "relu6"})
"""Ops of `UNARY` that map NaN to 0."""


class _Chain:
    """The algebra of post-ops: the product is the chain itself, every step extends it."""

    def __init__(self) -> None:
        self.made: list[PostOp] = []
        self.arguments: dict[int, Layout] = {}

    def __call__(self, op: str, operands: list[Any]) -> _Chain:
        first, *others = operands
        if first is not self:
            raise ValueError(f"post-ops are a chain: the first operand of {op} must be the previous result.")
        if op in BINARY:
            (other,) = others
            self.arguments[post_op_argument(len(self.made))] = other
            self.made.append(Binary(BINARY[op], desc(other)))
        else:
            self.made.append(UNARY[op])
        return self


def bias_and_post_ops(
    epilogue: Epilogue, operands: Sequence[Layout]
) -> tuple[Layout | None, list[PostOp], dict[int, Layout]]:
    """(bias, post-ops, operands of the post-ops by argument index): a leading per-channel addition is the bias."""
    bias, rest = epilogue.without_bias()
    chain = _Chain()
    rest.apply(chain, [chain, *operands])
    return None if bias is None else operands[bias.index - 1], chain.made, chain.arguments
