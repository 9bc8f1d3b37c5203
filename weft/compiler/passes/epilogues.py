"""Fuses elementwise ops behind a matmul or convolution into its epilogue.

%y = matmul(%x, %w); %z = add(%y, %b); %r = gelu_tanh(%z)                         before
%r = matmul_then(%x, %w, %b, steps=("add", "gelu_tanh"))                          after

%y = convolution(%x, %w); %z = scale_shift(%y, %a, %b); %s = add(%z, %old); %r = relu(%s)
%r = convolution_then(%x, %w, %a, %b, %old, steps=("multiply", "add", "add", "relu"))

The second is a convolution with the batch normalisation of inference, a residual connection and an activation: one
primitive. Only results without other readers are fused, and only where oneDNN computes the product: small matmuls and
convolutions that Winograd serves better keep their own kernels, followed by elementwise nests.
In frozen functions convolutions with a bias take steps too, and those that Winograd may serve take the steps that its
output transform supports.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph.graph import Node, Value
from ...ops.core.registry import table
from ...ops.core.spec import Spec
from ...ops.internal import epilogues as fused
from ..flow import Flow, rebuild
from ..fusion import is_loop, is_view
from ..loop_ir.kernels import skinny_matmul
from ..loop_ir.kernels.small_matmul import MAX_MULTIPLY_ADDS
from ..lowering.primitives import available

ACTIVATIONS = ("relu", "relu6", "gelu_exact", "gelu_tanh", "silu", "hardswish", "sigmoid", "tanh")
LOSES_NAN = {"relu", "relu6"}
"""oneDNN maps NaN to 0 in these. Training must not hide NaN, so only frozen functions use them."""
MAX_STEPS = 6  # of one epilogue
_WITH_EPILOGUE = {"matmul_then", "convolution_then"}


def epilogues(flow: Flow, frozen: bool = False) -> Flow:
    """Fuse elementwise ops into the epilogue of the product that they read."""
    if not available() or not any(n.op.name in ("matmul", "convolution") for n in flow.nodes):
        return flow
    uses = flow.uses()

    def rule(new: Flow, node: Node, args: tuple[Any, ...]) -> Any:
        out = node.outputs[0]
        if len(node.outputs) != 1 or out.dtype != np.float32 or node.op.effects:
            return None
        for position, steps, operands in _ways(node, args):
            old, product = node.inputs[position], args[position]
            if not operands and product.node.op.name == "reshape" and uses.get(old) == 1:
                inner = product.node.inputs[0]  # a reshaped row, as in a linear layer
                if uses.get(old.node.inputs[0]) == 1 and is_skinny(inner) and _takes(inner, steps, operands, frozen):
                    (made,) = _extended(new, inner, steps, operands, inner)
                    return new.add(product.node.op, (made,), product.node.attrs, (out,)).outputs
            if (
                uses.get(old) == 1
                and tuple(product.shape) == tuple(out.shape)
                and _takes(product, steps, operands, frozen)
            ):
                return _extended(new, product, steps, operands, out)
        return None

    return _without_idle(rebuild(flow, rule))


def _without_idle(flow: Flow) -> Flow:
    """Undo the epilogues of matmuls whose result is read only by loop nests.

    A loop nest that reads the product adds a bias for free, while oneDNN may need another pass over the result.
    """
    flow = rebuild(flow)  # removes dead products
    readers = flow.readers()
    outputs = set(flow.outputs)

    def in_nests(value: Value) -> bool:
        """Whether only loop nests read the value, directly or through views."""
        if value in outputs:
            return False
        return all(in_nests(r.outputs[0]) if is_view(r) else is_loop(r) for r in readers.get(value, ()))

    def rule(new: Flow, node: Node, args: tuple[Any, ...]) -> Any:
        if node.op.name != "matmul_then" or is_skinny(node.outputs[0]) or not in_nests(node.outputs[0]):
            return None
        spec = (Spec(node.outputs[0].shape, node.outputs[0].dtype),)
        value = new.add(table["matmul"], args[:2], (), spec).outputs[0]
        rest = iter(args[2:])
        for step in node.attrs[0]:
            operands = (value, next(rest)) if step in ("add", "multiply") else (value,)
            value = new.add(table[step], operands, (), spec).outputs[0]
        return (value,)

    return rebuild(flow, rule)


def _ways(node: Node, args: tuple[Any, ...]) -> list[tuple[int, tuple[str, ...], list[Value]]]:
    """The ways to see a node as epilogue steps on one of its operands: (operand, steps, their operands)."""
    name = node.op.name
    if name in ACTIVATIONS:
        return [(0, (name,), [])]
    if name in ("add", "multiply"):
        return [(i, (name,), [args[1 - i]]) for i in (0, 1) if isinstance(args[1 - i], Value)]
    if name == "scale_shift":
        return [(0, ("multiply", "add"), list(args[1:]))]
    return []


def _takes(product: Value, steps: tuple[str, ...], operands: list[Value], frozen: bool) -> bool:
    """Whether this value supports the steps as its epilogue."""
    if not frozen and LOSES_NAN.intersection(steps):
        return False
    node = product.node
    shape = tuple(product.shape)
    if node.op.name in _WITH_EPILOGUE:
        matrix = node.op.name == "matmul_then"
        if len(node.attrs[0]) + len(operands) > MAX_STEPS:
            return False
        if not matrix and _tiled(node) and not takes_steps((*node.attrs[0], *steps)):
            return False
    elif node.op.name == "matmul":
        matrix = True
        a, b = node.inputs
        if len(a.shape) != 2 or len(b.shape) != 2:
            return False
        if a.shape[0] * a.shape[1] * b.shape[1] <= MAX_MULTIPLY_ADDS and not is_skinny(product):
            return False
    elif node.op.name == "convolution":
        matrix = False
        bias = node.inputs[2] is not None
        if len(shape) != 4 or not frozen and (bias or _tiled(node)):
            return False
        if _tiled(node) and not takes_steps((*("add",) * bias, *steps)):
            return False
    else:
        return False
    if any(v.dtype != np.float32 for v in (*[v for v in node.inputs if v is not None], *operands)):
        return False
    return all(_per_column(v, shape) if matrix else _fits(v, shape) for v in operands)


def is_skinny(product: Value) -> bool:
    """Whether a value is a skinny matmul with a transposed matrix, which has its own kernel."""
    node = product.node
    if node.op.name not in ("matmul", "matmul_then"):
        return False
    a, b = node.inputs[:2]
    return (
        len(a.shape) == len(b.shape) == 2
        and a.shape[0] <= skinny_matmul.MAX_ROWS
        and b.shape[0] >= skinny_matmul.MIN_DEPTH
        and b.shape[0] * b.shape[1] >= skinny_matmul.MIN_MATRIX_ELEMENTS
        and b.dtype == np.float32
        and b.node.op.name == "permute_dims"
    )


def _tiled(node: Node) -> bool:
    """Whether Winograd supports this convolution."""
    from ..lowering.rules.winograd import suits

    stride, _, dilation, groups = node.attrs[-4:]
    return suits(stride, dilation, groups, tuple(node.inputs[1].shape[2:]))


def takes_steps(steps: tuple[str, ...]) -> bool:
    """Whether the output transform of Winograd supports these steps: adds, and an activation at the end."""
    return all(step == "add" or step in ("relu", "relu6") and i == len(steps) - 1 for i, step in enumerate(steps))


def _per_column(value: Value, shape: tuple[int, ...]) -> bool:
    """Whether the operand has one element per column. A full matrix is better added by the nest that reads the product."""
    return tuple(value.shape) in ((shape[1],), (1, shape[1]))


def _fits(value: Value, shape: tuple[int, ...]) -> bool:
    """Whether the operand is per-channel, or an image like the result."""
    channels = shape[1]
    return tuple(value.shape) in ((1, channels, 1, 1), (channels, 1, 1), shape)


def _extended(
    new: Flow, product: Value, steps: tuple[str, ...], operands: list[Value], out: Value
) -> tuple[Value, ...]:
    node = product.node
    if node.op.name in _WITH_EPILOGUE:
        inputs, attrs = (*node.inputs, *operands), ((*node.attrs[0], *steps), *node.attrs[1:])
        op = node.op
    else:
        if node.op.name == "convolution" and node.inputs[2] is not None:
            bias = node.inputs[2]
            column = (bias.shape[0], 1, 1)
            bias = new.add(table["reshape"], (bias,), (column, None), (Spec(column, bias.dtype),)).outputs[0]
            steps, operands = ("add", *steps), [bias, *operands]
        inputs, attrs = (*node.inputs[:2], *operands), (steps, *node.attrs)
        op = (fused.matmul_then if node.op.name == "matmul" else fused.convolution_then).op  # type: ignore[attr-defined]
    return new.add(op, inputs, attrs, (Spec(out.shape, out.dtype),)).outputs
