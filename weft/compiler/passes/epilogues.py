"""Fuses elementwise ops behind a matmul or convolution into its epilogue.

%y = matmul(%x, %w); %z = add(%y, %b); %r = gelu_tanh(%z)                                     before
%r = matmul_epilogue(%x, %w, %b, epilogue=(add(x0, c1), gelu_tanh(r0)))                       after

%y = convolution(%x, %w); %z = scale_shift(%y, %a, %b); %s = add(%z, %old); %r = relu(%s)
%r = convolution_epilogue(%x, %w, %a, %b, %old, epilogue=(multiply(x0, c1), add(r0, c2), add(r1, x3), relu(r2)))

The second is a convolution with the batch normalisation of inference, a residual connection and an activation: one
primitive. Only results without other readers are fused, and only where a library computes the product: small matmuls and
convolutions that Winograd serves better keep their own kernels, followed by elementwise nests.
In frozen functions convolutions with a bias take epilogues too, and those that Winograd may serve take the epilogues that
its output transform supports.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph.graph import Node, Value
from ...ops.core.registry import get, table
from ...ops.core.spec import Spec
from ...ops.internal import fused_products as fused_products  # registers the ops
from ...ops.internal.epilogue import BIAS, IDENTITY, Epilogue, Input
from ..flow import Flow, rebuild
from ..fusion import is_loop, is_view
from ..loop_ir.kernels import skinny_matmul
from ..loop_ir.kernels.epilogue import convolutions_support
from ..loop_ir.kernels.small_matmul import MAX_MULTIPLY_ADDS
from ..lowering.library import library

MAX_STEPS = 6  # of one epilogue
_MATMUL, _CONVOLUTION, _RESHAPE, _PERMUTE, _SCALE_SHIFT = map(
    get, ("matmul", "convolution", "reshape", "permute_dims", "scale_shift")
)
_MATMUL_EPILOGUE, _CONVOLUTION_EPILOGUE = map(get, ("matmul_epilogue", "convolution_epilogue"))
_FUSED = {_MATMUL: _MATMUL_EPILOGUE, _CONVOLUTION: _CONVOLUTION_EPILOGUE}
"""By the op that they extend."""

Steps = list[tuple[str, Value | None]]
"""Elementwise ops on a product in order, each with its other operand, if any."""


def epilogues(flow: Flow, frozen: bool = False) -> Flow:
    """Fuse elementwise ops into the epilogue of the product that they read."""
    if not library().available() or not any(n.op in _FUSED for n in flow.nodes):
        return flow
    uses = flow.uses()

    def rule(new: Flow, node: Node, args: tuple[Any, ...]) -> Any:
        out = node.outputs[0]
        if len(node.outputs) != 1 or out.dtype != np.float32 or node.op.effects:
            return None
        for position, steps in _ways(node, args):
            old, product = node.inputs[position], args[position]
            alone = all(operand is None for _, operand in steps)
            if alone and product.node.op is _RESHAPE and uses.get(old) == 1:
                inner = product.node.inputs[0]  # a reshaped row, as in a linear layer
                if uses.get(old.node.inputs[0]) == 1 and is_skinny(inner) and _takes(inner, steps, frozen):
                    (made,) = _extended(new, inner, steps, inner)
                    return new.add(product.node.op, (made,), product.node.attrs, (out,)).outputs
            if uses.get(old) == 1 and tuple(product.shape) == tuple(out.shape) and _takes(product, steps, frozen):
                return _extended(new, product, steps, out)
        return None

    return _without_idle(rebuild(flow, rule))


def _without_idle(flow: Flow) -> Flow:
    """Undo the epilogues of matmuls whose result is read only by loop nests.

    A loop nest that reads the product adds a bias for free, while a library may need another pass over the result.
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
        if node.op is not _MATMUL_EPILOGUE or is_skinny(node.outputs[0]) or not in_nests(node.outputs[0]):
            return None
        spec = (Spec(node.outputs[0].shape, node.outputs[0].dtype),)
        add = lambda op, operands: new.add(table[op], operands, (), spec).outputs[0]
        return (node.attrs[0].apply(add, [add("matmul", args[:2]), *args[2:]]),)

    return rebuild(flow, rule)


def _ways(node: Node, args: tuple[Any, ...]) -> list[tuple[int, Steps]]:
    """The ways to see a node as epilogue steps on one of its operands: (operand, steps)."""
    name = node.op.name
    if name in library().unary_epilogue_ops:
        return [(0, [(name, None)])]
    if name in library().binary_epilogue_ops:
        return [(i, [(name, args[1 - i])]) for i in (0, 1) if isinstance(args[1 - i], Value)]
    if node.op is _SCALE_SHIFT:
        return [(0, [("multiply", args[1]), ("add", args[2])])]
    return []


def _takes(product: Value, steps: Steps, frozen: bool) -> bool:
    """Whether this value supports the steps as its epilogue."""
    if not frozen and any(name in library().epilogue_ops_losing_nan for name, _ in steps):
        return False  # training must not hide NaN
    node = product.node
    shape = tuple(product.shape)
    matrix = len(shape) == 2
    operands = [operand for _, operand in steps if operand is not None]
    if node.op in _FUSED.values():
        if len(node.attrs[0].steps) + len(operands) > MAX_STEPS:
            return False
    elif node.op is _MATMUL:
        a, b = node.inputs
        if len(a.shape) != 2 or len(b.shape) != 2:
            return False
        if a.shape[0] * a.shape[1] * b.shape[1] <= MAX_MULTIPLY_ADDS and not is_skinny(product):
            return False
    elif node.op is _CONVOLUTION:
        if len(shape) != 4 or not frozen and (node.inputs[2] is not None or _tiled(node)):
            return False
    else:
        return False
    if not matrix and _tiled(node) and not convolutions_support(_extended_epilogue(product, steps)):
        return False
    if any(v.dtype != np.float32 for v in (*[v for v in node.inputs if v is not None], *operands)):
        return False
    return all(_per_column(v, shape) if matrix else _fits(v, shape) for v in operands)


def is_skinny(product: Value) -> bool:
    """Whether a value is a skinny matmul with a transposed matrix, which has its own kernel."""
    node = product.node
    if node.op not in (_MATMUL, _MATMUL_EPILOGUE):
        return False
    a, b = node.inputs[:2]
    return (
        len(a.shape) == len(b.shape) == 2
        and a.shape[0] <= skinny_matmul.MAX_ROWS
        and b.shape[0] >= skinny_matmul.MIN_DEPTH
        and b.shape[0] * b.shape[1] >= skinny_matmul.MIN_MATRIX_ELEMENTS
        and b.dtype == np.float32
        and b.node.op is _PERMUTE
    )


def _tiled(node: Node) -> bool:
    """Whether Winograd supports this convolution."""
    from ..lowering.rules.winograd import suits

    return suits(*node.attrs[-2:])


def _per_column(value: Value, shape: tuple[int, ...]) -> bool:
    """Whether the operand has one element per column. A full matrix is better added by the nest that reads the product."""
    return tuple(value.shape) in ((shape[1],), (1, shape[1]))


def _fits(value: Value, shape: tuple[int, ...]) -> bool:
    """Whether the operand is per-channel, or an image like the result."""
    channels = shape[1]
    return tuple(value.shape) in ((1, channels, 1, 1), (channels, 1, 1), shape)


def _extended_epilogue(product: Value, steps: Steps) -> Epilogue:
    """The epilogue of the product, a bias included, with further steps."""
    node = product.node
    epilogue = IDENTITY
    if node.op in _FUSED.values():
        epilogue = node.attrs[0]
    elif node.op is _CONVOLUTION and node.inputs[2] is not None:
        epilogue = BIAS
    shape = tuple(product.shape)
    for name, value in steps:
        if value is None:
            epilogue = epilogue.extended(name)
        else:
            per_channel = len(shape) == 2 or tuple(value.shape) != shape
            epilogue = epilogue.extended(name, Input(epilogue.num_inputs, per_channel))
    return epilogue


def _extended(new: Flow, product: Value, steps: Steps, out: Value) -> tuple[Value, ...]:
    node = product.node
    operands = [operand for _, operand in steps if operand is not None]
    epilogue = _extended_epilogue(product, steps)
    if node.op in _FUSED.values():
        op, inputs, attrs = node.op, (*node.inputs, *operands), node.attrs[1:]
    else:
        op, inputs, attrs = _FUSED[node.op], (*node.inputs[:2], *operands), node.attrs
        if node.op is _CONVOLUTION and node.inputs[2] is not None:
            bias = node.inputs[2]
            column = (bias.shape[0], 1, 1)
            bias = new.add(_RESHAPE, (bias,), (column, None), (Spec(column, bias.dtype),)).outputs[0]
            inputs = (*node.inputs[:2], bias, *operands)
    return new.add(op, inputs, (epilogue, *attrs), (Spec(out.shape, out.dtype),)).outputs
