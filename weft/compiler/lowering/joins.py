"""Computes the parts of a concatenation directly in the memory of the result.

%a = multiply(%x, %y); %b = take_axis(%t, %i); %c = concat_axis(%a, %b, axis=1)

The loop nests of %a and %b write into the columns of %c, which removes the copies. A part has the strides of the whole, so
this applies to parts whose readers accept any strides and whose rows are long enough for loops over them.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ...graph.graph import Node, Value
from ...ops.core import scalar as s
from ...ops.core.registry import get
from ..program.layout import Layout, channels_last, row_major, same_strides
from .registry import reads_any_strides

if TYPE_CHECKING:
    from .lower import Lowering

MIN_RUN_ELEMENTS = 32
"""Minimum contiguous elements of a part."""
_CONCAT = get("concat_axis")


def part_of(lowering: Lowering, value: Value, strides: tuple[int, ...]) -> Layout | None:
    """The layout of `value` inside the concatenation that it is a part of (allocated with the first part), or None if it has
    other uses. On its own it would have these `strides`."""
    for node in lowering.readers_of(value):
        if node.op is _CONCAT and _fits(lowering, value, strides, node):
            axis = node.attrs[0] % len(value.shape)
            whole = memory_of(lowering, node, strides)
            position = [v is value for v in node.inputs].index(True)
            start = sum(v.shape[axis] for v in node.inputs[:position])
            offset = whole.offset + start * whole.strides[axis]
            return Layout(whole.storage, whole.dtype, tuple(value.shape), whole.strides, offset)
    return None


def memory_of(lowering: Lowering, node: Node, strides: tuple[int, ...]) -> Layout:
    """The memory of a concatenation whose parts have these strides, allocated on first use."""
    found = lowering.joined.get(node)
    if found is None:
        out, first = node.outputs[0], node.inputs[0]
        shape = tuple(out.shape)
        order = row_major(shape) if _is_row_major(strides, tuple(first.shape)) else channels_last(shape)
        found = part_of(lowering, out, order) or lowering.temporary(shape, out.dtype, order)
        lowering.joined[node] = found
    return found


def _is_row_major(strides: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether strides are row-major, also where the shape makes them ambiguous (one channel)."""
    images = len(shape) > 2 and shape[1] > 1 and same_strides(strides, channels_last(shape), shape)
    return not images


def _fits(lowering: Lowering, value: Value, strides: tuple[int, ...], node: Node) -> bool:
    out, shape = node.outputs[0], tuple(value.shape)
    axis = node.attrs[0] % len(shape)
    if out in lowering.wanted or value in lowering.wanted or out.dtype != value.dtype or out.dtype not in s.DTYPES:
        return False
    if (value in lowering.constant_values) != (out in lowering.constant_values):
        return False
    plain = _is_row_major(strides, shape)
    if not same_strides(strides, row_major(shape) if plain else channels_last(shape), shape):
        return False
    order = range(len(shape)) if plain else (0, *range(2, len(shape)), 1)
    inner = list(order)[list(order).index(axis) :]
    if prod(shape[a] for a in inner) < MIN_RUN_ELEMENTS:
        return False
    return all(u is node or reads_any_strides(u) for u in lowering._users(value.node))
