"""Lowers matmuls to a native kernel or to oneDNN, on operands of any strides, transposed views included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....graph.graph import Node
from ...layout import Layout, row_major
from ...loop_ir.kernels import skinny_matmul
from ...loop_ir.kernels.small_matmul import small_matmul, suits
from ..lower import Step
from ..primitives import add_primitive, available, dense, desc, lowers, usable
from .product import leads, lower_blocks, multiply_deep, suits_deep
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
    deep = suits_deep(a, b)
    if defer_product(lowering, node, a, b, lambda: not deep and suits_blocks(a, b) and leads(library_product)):
        return True
    if deep and leads(library_product):
        multiply_deep(lowering, node, a, b, lowering.place(node, 0, row_major(tuple(out.shape)), node, None))
        return True
    return (
        suits_blocks(a, b)
        and leads(library_product)
        and lower_blocks(lowering, node)
        or library_product(lowering, node)
    )


def library_product(lowering: Lowering, node: Node) -> bool:
    """Lower to oneDNN, if available."""
    a, b = (lowering.layout_of(v) for v in node.inputs)
    out = node.outputs[0]
    if a.dtype != np.float32 or not available():
        return False
    from ....backends.onednn.capi import Arg
    from ....backends.onednn.shares import matmul

    a, b = _operand(lowering, a, node), _operand(lowering, b, node)
    c = lowering.place(node, 0, row_major(tuple(out.shape)), node, None)
    ma, mb, mc = _as_matrix(a, left=True), _as_matrix(b, left=False), _result_matrix(c, a, b)
    rank = max(len(ma.shape), len(mb.shape), len(mc.shape))
    ma, mb, mc = _pad(ma, rank), _pad(mb, rank), _pad(mc, rank)
    if len(ma.shape) > 3:
        ma, mb, mc = _merge_batch(ma, mb, mc)
    if not usable(ma, mb, mc) or len(ma.shape) > 6:
        ma, mb = dense(lowering, ma, node), dense(lowering, mb, node)
    primitive = matmul(desc(ma), desc(mb), desc(mc))
    add_primitive(lowering, node, primitive, {int(Arg.SRC): ma, int(Arg.WEIGHTS): mb, int(Arg.DST): mc}, "matmul")
    return True


def multiply_skinny(
    lowering: Lowering, node: Node, a: Layout, b: Layout, steps: tuple[str, ...] = (), operands: Sequence[Layout] = ()
) -> bool:
    """A skinny matmul with a transposed matrix and the epilogue `steps`: a native kernel that reads the matrix once."""
    if len(a.shape) != 2 or len(b.shape) != 2 or not skinny_matmul.suits(a, b):
        return False
    y = lowering.place(node, 0, row_major(tuple(node.outputs[0].shape)), node, None)
    target = y
    if y.strides[1] != 1:
        target = lowering.temporary(y.shape, y.dtype)
    layouts = [a, b, *operands, target]
    storages = [x.storage for x in layouts]
    kernel = skinny_matmul.skinny_matmul(a, b, target, steps, operands)
    label = " + ".join(["matmul", *steps])
    lowering.steps.append(Step("kernel", label, [node], storages[:-1], storages[-1:], kernel, storages))
    if target is not y:
        lowering.copy(target, node, y)
    return True


CALL_COST = 32768  # of a library call, in multiplications
PACKING_COST = 4  # of packing an element, in multiplications
LANES = 16  # register tiles have a multiple of this many columns


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
    straight = _price(a, b)
    flipped = _price(_flipped(b), _flipped(a)) + 3 * shape[0] * shape[1]
    work = shape[0] * shape[1] * a.shape[1]
    price = straight if fixed else min(straight, flipped)
    if price >= CALL_COST and PACKING_COST * price > work and a.dtype == np.float32 and available():
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


def _price(a: Layout, b: Layout) -> int:
    """The estimated cost of `a @ b`: multiplications in whole vectors, and packing of `b` if needed."""
    (m, k), n = a.shape, b.shape[1]
    vectors = -(-n // LANES)
    return m * k * vectors + (0 if _packed(b) else 3 * k * n)


def _packed(b: Layout) -> bool:
    return b.strides[1] == 1 and b.shape[1] % LANES == 0


def _multiply(lowering: Lowering, node: Node, a: Layout, b: Layout) -> Layout:
    """Add the kernel; columns are padded to whole vectors, so the result may have a larger row stride."""
    (m, k), n = a.shape, b.shape[1]
    wide = -(-n // LANES) * LANES
    if not _packed(b):
        scratch = lowering.temporary((k, wide), b.dtype)
        b = lowering.copy(b, node, Layout(scratch.storage, b.dtype, (k, n), (wide, 1)))
    scratch = lowering.temporary((m, wide), a.dtype)
    padded_b = Layout(b.storage, b.dtype, (k, wide), b.strides, b.offset)
    storages = [a.storage, b.storage, scratch.storage]
    lowering.steps.append(
        Step("kernel", "matmul", [node], storages[:2], storages[2:], small_matmul(a, padded_b, scratch), storages)
    )
    return Layout(scratch.storage, a.dtype, (m, n), (wide, 1))


def _operand(lowering: Lowering, x: Layout, node: Node) -> Layout:
    """oneDNN needs one of the two matrix axes contiguous; broadcast or oddly strided operands are copied."""
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


def _as_matrix(x: Layout, left: bool) -> Layout:
    if len(x.shape) > 1:
        return x
    shape, strides = (1, x.shape[0]), (max(x.shape[0] * x.strides[0], 1), x.strides[0])
    if not left:
        shape, strides = (x.shape[0], 1), (x.strides[0], 1)
    return Layout(x.storage, x.dtype, shape, strides, x.offset)


def _result_matrix(c: Layout, a: Layout, b: Layout) -> Layout:
    shape, strides = c.shape, c.strides
    if len(a.shape) == 1:
        at = len(shape) - (1 if len(b.shape) > 1 else 0)
        shape = (*shape[:at], 1, *shape[at:])
        strides = (*strides[:at], max(c.shape[-1], 1) if len(b.shape) > 1 else 1, *strides[at:])
    if len(b.shape) == 1:
        shape, strides = (*shape, 1), (*strides, 1)
    return Layout(c.storage, c.dtype, shape, strides, c.offset)


def _pad(x: Layout, rank: int) -> Layout:
    """Leading batch axes of size 1, with contiguous strides."""
    extra = rank - len(x.shape)
    if extra <= 0:
        return _tidy(x)
    size = 1
    for d, st in zip(x.shape, x.strides, strict=True):
        size = max(size, d * st)
    return _tidy(Layout(x.storage, x.dtype, (1,) * extra + x.shape, (size,) * extra + x.strides, x.offset))


def _tidy(x: Layout) -> Layout:
    """Axes of size 1 get contiguous strides: oneDNN checks them."""
    strides = list(x.strides)
    for i in range(len(strides) - 1, -1, -1):
        if x.shape[i] == 1:
            strides[i] = x.shape[i + 1] * strides[i + 1] if i + 1 < len(strides) and strides[i + 1] > 0 else 1
    if len(x.shape) >= 2 and x.shape[-1] == 1:
        strides[-1] = 1
        if x.shape[-2] == 1:
            strides[-2] = 1
    return Layout(x.storage, x.dtype, x.shape, tuple(strides), x.offset)


def _merge_batch(a: Layout, b: Layout, c: Layout) -> tuple[Layout, Layout, Layout]:
    """Collapse batch axes where all three layouts allow it: oneDNN is faster with fewer axes."""
    while len(a.shape) > 3:
        joined = []
        for x in (a, b, c):
            (d1, d2), (s1, s2) = x.shape[:2], x.strides[:2]
            if (d1, d2) == (1, 1):
                joined.append((1, s2))
            elif s1 == d2 * s2 and (d1, d2) == tuple(c.shape[:2]):
                joined.append((d1 * d2, s2))
            else:
                return a, b, c
        a, b, c = (
            Layout(x.storage, x.dtype, (d, *x.shape[2:]), (st, *x.strides[2:]), x.offset)
            for x, (d, st) in zip((a, b, c), joined, strict=True)
        )
    return a, b, c
