"""Lowers matmuls to native kernels or to a library, on operands of any strides, transposed views included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....graph.graph import Node
from ....ops.internal.epilogue import IDENTITY, Epilogue
from ...loop_ir.kernels import skinny_matmul
from ...loop_ir.kernels.small_matmul import small_matmul, suits
from ...program.layout import Layout, row_major
from ...program.steps import KernelCall
from ..library import library
from ..registry import lowers
from .epilogue import matrix_operands
from .labels import label_with
from .product import leads, lower_blocks, multiply, multiply_deep, suits_deep
from .product import suits as suits_blocks
from .update import defer_product

if TYPE_CHECKING:
    from ..lower import Lowering


@lowers("matmul")
def lower_matmul(lowering: Lowering, node: Node) -> bool:
    """`x1 @ x2` with broadcast batch axes; vectors become matrices."""
    a, b = (lowering.layout_of(v) for v in node.inputs)
    out = node.outputs[0]
    if 0 in a.shape or 0 in b.shape or 0 in out.shape:
        return False
    if multiply_skinny(lowering, node, a, b) or _small(lowering, node, a, b):
        return True
    deep = suits_deep(a, b, lowering.target)
    if defer_product(lowering, node, a, b, lambda: not deep and suits_blocks(a, b) and leads(lowering.target)):
        return True
    if deep and leads(lowering.target):
        multiply_deep(lowering, node, a, b, lowering.place(node, 0, row_major(tuple(out.shape)), node, None))
        return True
    return (
        suits_blocks(a, b)
        and leads(lowering.target)
        and lower_blocks(lowering, node)
        or library().matmul(lowering, node)
    )


def multiply_skinny(
    lowering: Lowering, node: Node, a: Layout, b: Layout, epilogue: Epilogue = IDENTITY, operands: Sequence[Layout] = ()
) -> bool:
    """A skinny matmul with a transposed matrix and an epilogue: a native kernel that reads the matrix once."""
    if len(a.shape) != 2 or len(b.shape) != 2 or not skinny_matmul.suits(a, b):
        return False
    y = lowering.place(node, 0, row_major(tuple(node.outputs[0].shape)), node, None)
    target = y
    if y.strides[1] != 1:
        target = lowering.temporary(y.shape, y.dtype)
    layouts = [a, b, *operands, target]
    storages = [x.storage for x in layouts]
    kernel = skinny_matmul.skinny_matmul(a, b, target, lowering.target, epilogue, operands)
    label = label_with("matmul", epilogue)
    lowering.steps.append(KernelCall(label, [node], storages[:-1], storages[-1:], kernel, storages))
    if target is not y:
        lowering.copy(target, node, y)
    return True


@lowers("matmul_epilogue")
def lower_matmul_epilogue(lowering: Lowering, node: Node) -> bool:
    (epilogue,) = node.attrs
    if not library().available() or any(v.dtype != np.float32 for v in node.inputs):
        return False
    a, b = (dense_rows_or_columns(lowering, lowering.layout_of(v), node) for v in node.inputs[:2])
    operands = matrix_operands(lowering, node)
    if multiply_skinny(lowering, node, a, b, epilogue, operands):
        return True
    if suits_blocks(a, b) and leads(lowering.target):
        return multiply(lowering, node, a, b, epilogue, operands)
    return library().matmul_epilogue(lowering, node, a, b, epilogue, operands)


CALL_COST = 32768  # of a library call, in multiplications
PACKING_COST = 4  # of packing an element, in multiplications


def _small(lowering: Lowering, node: Node, a: Layout, b: Layout) -> bool:
    """Lower a small matmul to the native kernel.

    It needs unit stride along the columns of the right operand and of the result. Either the product itself or its
    transpose (b.T @ a.T, whose result is column-major) is computed, whichever needs less packing.
    """
    out = node.outputs[0]
    shape = tuple(out.shape)
    if len(a.shape) != 2 or len(b.shape) != 2 or not suits(a, b, Layout(a.storage, a.dtype, shape, row_major(shape))):
        return False
    fixed = out in lowering.wanted  # the layout of a program output is fixed
    lanes = lowering.target.lanes  # register tiles have a multiple of this many columns
    straight = _price(a, b, lanes)
    flipped = _price(_flipped(b), _flipped(a), lanes) + 3 * shape[0] * shape[1]
    work = shape[0] * shape[1] * a.shape[1]
    price = straight if fixed else min(straight, flipped)
    if price >= CALL_COST and PACKING_COST * price > work and a.dtype == np.float32 and library().available():
        return False  # few rows times a transposed matrix: packing would dominate
    if not fixed and flipped < straight:
        result = _multiply(lowering, node, _flipped(b), _flipped(a))
        lowering.layouts[out] = _flipped(result)
        return True
    result = _multiply(lowering, node, a, b)
    if fixed:
        lowering.copy(result, node, lowering.place(node, 0, row_major(shape), node, None))
    else:
        lowering.layouts[out] = result
    return True


def _flipped(x: Layout) -> Layout:
    return Layout(x.storage, x.dtype, x.shape[::-1], x.strides[::-1], x.offset)


def _price(a: Layout, b: Layout, lanes: int) -> int:
    """The estimated cost of `a @ b`: multiplications in whole vectors, and packing of `b` if needed."""
    (m, k), n = a.shape, b.shape[1]
    vectors = -(-n // lanes)
    return m * k * vectors + (0 if _packed(b, lanes) else 3 * k * n)


def _packed(b: Layout, lanes: int) -> bool:
    return b.strides[1] == 1 and b.shape[1] % lanes == 0


def _multiply(lowering: Lowering, node: Node, a: Layout, b: Layout) -> Layout:
    """Add the kernel; columns are padded to whole vectors, so the result may have a larger row stride."""
    (m, k), n = a.shape, b.shape[1]
    lanes = lowering.target.lanes
    wide = -(-n // lanes) * lanes
    if not _packed(b, lanes):
        scratch = lowering.temporary((k, wide), b.dtype)
        b = lowering.copy(b, node, Layout(scratch.storage, b.dtype, (k, n), (wide, 1)))
    scratch = lowering.temporary((m, wide), a.dtype)
    padded_b = Layout(b.storage, b.dtype, (k, wide), b.strides, b.offset)
    storages = [a.storage, b.storage, scratch.storage]
    kernel = small_matmul(a, padded_b, scratch, lowering.target, lowering.open_sizes)
    lowering.steps.append(KernelCall("matmul", [node], storages[:2], storages[2:], kernel, storages))
    return Layout(scratch.storage, a.dtype, (m, n), (wide, 1))


def dense_rows_or_columns(lowering: Lowering, x: Layout, node: Node) -> Layout:
    """The operand with one of its two matrix axes contiguous: broadcast or oddly strided ones are copied."""
    if len(x.shape) >= 2 and any(st == 0 and d > 1 for st, d in zip(x.strides[-2:], x.shape[-2:], strict=True)):
        return lowering.copy(x, node)
    if len(x.shape) == 1 and x.strides[0] == 0 and x.shape[0] > 1:
        return lowering.copy(x, node)
    if any(st < 0 for st in x.strides):
        return lowering.copy(x, node)
    if len(x.shape) >= 2 and not any(st == 1 or d == 1 for st, d in zip(x.strides[-2:], x.shape[-2:], strict=True)):
        return lowering.copy(x, node)
    if any(st == 0 and d > 1 for st, d in zip(x.strides[:-2], x.shape[:-2], strict=True)):
        keep = tuple([1 if st == 0 else d for st, d in zip(x.strides[:-2], x.shape[:-2], strict=True)])
        return Layout(x.storage, x.dtype, keep + x.shape[-2:], x.strides, x.offset)
    return x
