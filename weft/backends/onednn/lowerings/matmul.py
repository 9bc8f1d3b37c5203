"""Lowers matmuls to oneDNN, on operands of any strides, transposed views included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....compiler.lowering.library import Matrices, Product
from ....compiler.lowering.rules.labels import label_with
from ....compiler.lowering.rules.matmul import dense_rows_or_columns
from ....compiler.program.layout import Layout, row_major
from ....graph.graph import Node
from ....ops.internal.epilogue import Epilogue
from .. import library
from ..capi import Arg
from ..descriptors import MemoryDesc
from ..primitives.base import Sum
from ..shares import matmul
from .post_ops import bias_and_post_ops
from .primitives import add_primitive, dense, desc, usable

if TYPE_CHECKING:
    from ....compiler.lowering.lower import Lowering


def lower_matmul(lowering: Lowering, node: Node) -> bool:
    """A `matmul` node: `x1 @ x2` with broadcast batch axes; vectors become matrices."""
    a, b = (lowering.layout_of(v) for v in node.inputs)
    out = node.outputs[0]
    if a.dtype != np.float32 or not library.available():
        return False
    a, b = dense_rows_or_columns(lowering, a, node), dense_rows_or_columns(lowering, b, node)
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


def lower_matmul_epilogue(
    lowering: Lowering, node: Node, a: Layout, b: Layout, epilogue: Epilogue, operands: Sequence[Layout]
) -> bool:
    """A `matmul_epilogue` node."""
    c = lowering.place(node, 0, row_major(tuple(node.outputs[0].shape)), node, None)
    bias, post, arguments = bias_and_post_ops(epilogue, operands)
    primitive = matmul(desc(a), desc(b), desc(c), None if bias is None else desc(bias), post)
    arguments |= {int(Arg.SRC): a, int(Arg.WEIGHTS): b, int(Arg.DST): c}
    if bias is not None:
        arguments[int(Arg.BIAS)] = bias
    add_primitive(lowering, node, primitive, arguments, label_with("matmul", epilogue))
    return True


def prepare_product(a: Matrices, b: Matrices, c: Matrices, accumulate: bool = False) -> Product:
    """See `weft.compiler.lowering.library.Library.product`."""
    left, right, result = (MemoryDesc.strided(shape, np.dtype(np.float32), strides) for shape, strides in (a, b, c))
    primitive = matmul(left, right, result, post_ops=(Sum(),) if accumulate else ())

    def add(lowering: Lowering, node: Node, a: Layout, b: Layout, c: Layout, label: str) -> None:
        arguments = {int(Arg.SRC): a, int(Arg.WEIGHTS): b, int(Arg.DST): c}
        add_primitive(lowering, node, primitive, arguments, label, accumulate)

    return add


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
