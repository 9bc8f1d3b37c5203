"""Ops that only move elements: joining, writing into a part, padding with zeros. Each is a few copies."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph.graph import Node, Value
from ...ops import scalar as s
from ..layout import Layout, _sliced, like_order, row_major
from ..primitives import lowers


def _native(*values: Any) -> bool:
    return all(v.dtype in s.DTYPES and 0 not in v.shape for v in values if isinstance(v, Value))


@lowers("concat_axis")
def lower_concat(lowering: Any, node: Node) -> bool:
    """Every part is copied to its place."""
    out = node.outputs[0]
    if not _native(out):
        return False
    axis = node.attrs[0] % len(out.shape)
    parts = [lowering.layout_of(v) for v in node.inputs]
    shape = tuple(out.shape)
    target = lowering.place(
        node, 0, like_order(shape, parts[0].strides if len(shape) > 2 else None), node, None
    )
    start = 0
    for part in parts:
        if 0 not in part.shape:
            place = target.offset + start * target.strides[axis]
            lowering.copy(part, node, Layout(target.storage, target.dtype, part.shape, target.strides, place))
        start += part.shape[axis]
    return True


@lowers("setitem")
def lower_setitem(lowering: Any, node: Node) -> bool:
    """A copy of x, then the value over a part of it."""
    x_value, value = node.inputs
    if not _native(x_value, value):
        return False
    x, new = lowering.layout_of(x_value), lowering.layout_of(value)
    target = lowering.place(node, 0, like_order(tuple(x_value.shape), x.strides), node, None)
    lowering.copy(x, node, target)
    _write_part(lowering, node, new, target, node.attrs[0])
    return True


@lowers("put_into_zeros")
def lower_put_into_zeros(lowering: Any, node: Node) -> bool:
    """Zeros, then the value over a part of them."""
    (value,) = node.inputs
    out = node.outputs[0]
    if not _native(value, out):
        return False
    target = lowering.place(node, 0, row_major(tuple(out.shape)), node, None)
    lowering.fill(target, 0, node)
    _write_part(lowering, node, lowering.layout_of(value), target, node.attrs[1])
    return True


def _write_part(lowering: Any, node: Node, value: Layout, target: Layout, index: Any) -> None:
    shape = np.broadcast_to(np.empty((), np.int8), target.shape)[_thawed(index)].shape
    part = _sliced(target, index, tuple(shape))
    assert part is not None
    if 0 in part.shape:
        return
    extra = len(value.shape) - len(part.shape)
    kept = value.shape[extra:] if extra > 0 else value.shape
    strides = value.strides[extra:] if extra > 0 else value.strides
    lead = len(part.shape) - len(kept)
    spread = (0,) * lead + tuple([0 if d == 1 else st for d, st in zip(kept, strides, strict=True)])
    lowering.copy(Layout(value.storage, value.dtype, part.shape, spread, value.offset), node, part)


def _thawed(index: Any) -> Any:
    from ...ops.indexing import thaw

    items = thaw(index)
    return items if Ellipsis in items else (*items, Ellipsis)
