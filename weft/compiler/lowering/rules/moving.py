"""Lowers ops that only move elements (concatenation, slice assignment, im2col and back) to a few copies each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ....graph.graph import Node
from ....ops.array.view_rules import SLICED
from ....ops.core import scalar as s
from ....ops.nn.window import Window
from ...loop_ir import ir as loops
from ...program.layout import Layout, channels_last, like_order, row_major, same_strides, viewed
from ..registry import lowers
from ..routines import Routine, native, over_rows

if TYPE_CHECKING:
    from ..lower import Lowering


@lowers("concat_axis", any_strides=True)
def lower_concat(lowering: Lowering, node: Node) -> bool:
    """Copy every part into the result, unless it was computed there (`weft.compiler.lowering.joins`)."""
    out = node.outputs[0]
    if not native(out):
        return False
    axis = node.attrs[0] % len(out.shape)
    parts = [lowering.layout_of(v) for v in node.inputs]
    shape = tuple(out.shape)
    target = lowering.joined.get(node)
    if target is None:
        target = lowering.place(node, 0, _order(parts[0], shape), node, None, joins=True)
    lowering.layouts[out] = target
    start = 0
    for part in parts:
        place = target.offset + start * target.strides[axis]
        there = part.storage is target.storage and part.offset == place
        if 0 not in part.shape and not there:
            lowering.copy(part, node, Layout(target.storage, target.dtype, part.shape, target.strides, place))
        start += part.shape[axis]
    return True


def _order(first: Layout, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Channels-last for images, row-major for everything else."""
    last = (
        len(shape) > 2 and first.shape[1] > 1 and same_strides(first.strides, channels_last(first.shape), first.shape)
    )
    return channels_last(shape) if last else row_major(shape)


@lowers("setitem")
def lower_setitem(lowering: Lowering, node: Node) -> bool:
    """A copy of x with a slice overwritten; a variable without other readers is updated in place."""
    x_value, value = node.inputs
    if not native(x_value, value):
        return False
    x, new = lowering.layout_of(x_value), lowering.layout_of(value)
    reads: dict[int, list[Any]] = {id(x.storage): [(x.offset, x.strides, x.shape)]}
    if new.storage is x.storage:  # the slice may be written before all of the value is read
        reads[id(x.storage)].append(None)
    elif new.storage.kind == "variable":
        reads[id(new.storage)] = [None]
    target = lowering.place(node, 0, like_order(tuple(x_value.shape), x.strides), node, reads)
    if target.storage is not x.storage:
        lowering.copy(x, node, target)
    _write_part(lowering, node, new, target, node.attrs[0])
    return True


@lowers("put_into_zeros")
def lower_put_into_zeros(lowering: Lowering, node: Node) -> bool:
    """Zeros with a slice overwritten by the value."""
    (value,) = node.inputs
    out = node.outputs[0]
    if not native(value, out):
        return False
    target = lowering.place(node, 0, row_major(tuple(out.shape)), node, None)
    lowering.fill(target, 0, node)
    _write_part(lowering, node, lowering.layout_of(value), target, node.attrs[1])
    return True


def _write_part(lowering: Lowering, node: Node, value: Layout, target: Layout, index: Any) -> None:
    shape = np.broadcast_to(np.empty((), np.int8), target.shape)[_thawed(index)].shape
    part = viewed(target, SLICED, tuple(shape), index)
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
    from ....ops.array.indexing import thaw

    items = thaw(index)
    return items if Ellipsis in items else (*items, Ellipsis)


# Windows ----------------------------------------------------------------------------------------------------------------


def _windows(x: Layout, window: Window, sizes: Any) -> Layout:
    """(N, C, *kernel, *sizes): every window of a padded (N, C, *spatial), as a view."""
    steps = x.strides[2:]
    inner = tuple([st * d for st, d in zip(steps, window.dilation, strict=True)])
    outer = tuple([st * t for st, t in zip(steps, window.stride, strict=True)])
    shape = (*x.shape[:2], *window.kernel, *sizes)
    return Layout(x.storage, x.dtype, shape, (*x.strides[:2], *inner, *outer), x.offset)


def _inner(window: Window, spatial: Any) -> tuple[Any, ...]:
    from ....ops.array.indexing import Slice

    every = Slice(None, None, None)
    return (every, every, *[Slice(low, low + n, None) for n, low in zip(spatial, window.before, strict=True)])


@lowers("unfold_windows")
def lower_unfold(lowering: Lowering, node: Node) -> bool:
    """A copy of the windows of the padded image, seen as overlapping views."""
    (x_value,) = node.inputs
    (window,) = node.attrs
    if not native(x_value, *node.outputs):
        return False
    x = lowering.layout_of(x_value)
    spatial = x.shape[2:]
    sizes = window.counts(spatial)
    if window.padded:
        padded = lowering.temporary((*x.shape[:2], *window.padded_sizes(spatial, sizes)), x.dtype)
        lowering.fill(padded, 0, node)
        _write_part(lowering, node, x, padded, _inner(window, spatial))
        x = padded
    windows = _windows(x, window, sizes)
    out = lowering.place(node, 0, row_major(tuple(node.outputs[0].shape)), node, None)
    target = out if out.contiguous else lowering.temporary(out.shape, out.dtype)
    columns = Layout(target.storage, target.dtype, windows.shape, row_major(windows.shape), target.offset)
    lowering.copy(windows, node, columns)
    if target is not out:
        lowering.copy(target, node, out)
    return True


@lowers("unfold_backward")
def lower_fold(lowering: Lowering, node: Node) -> bool:
    """Add columns back to the image (col2im), one kernel position after another; images run in parallel."""
    g_value = node.inputs[0]
    _, window = node.attrs
    if not native(g_value, *node.outputs) or g_value.dtype.itemsize == 2:
        return False
    out = lowering.place(node, 0, row_major(tuple(node.outputs[0].shape)), node, None)
    spatial = out.shape[2:]
    sizes = window.counts(spatial)
    g = lowering.layout_of(g_value)
    if not g.contiguous:
        g = lowering.copy(g, node)
    apart = (*out.shape[:2], *window.kernel, *sizes)
    columns = Layout(g.storage, g.dtype, apart, row_major(apart), g.offset)
    image = lowering.temporary((*out.shape[:2], *window.padded_sizes(spatial, sizes)), out.dtype)
    lowering.fill(image, 0, node)
    r = Routine(lowering, node, "fold")
    source, target = r.reads(columns), r.writes(_windows(image, window, sizes))

    def add(at: list[Any]) -> list[Any]:
        names = [*[f"k{i}" for i in range(window.axes)], *[f"o{i}" for i in range(len(sizes))]]
        place = (*at, *[s.index(v) for v in names])
        body: list[Any] = [loops.store(target.at(*place), target.at(*place) + source.at(*place))]
        for position, (name, size) in enumerate(zip(reversed(names), reversed((*window.kernel, *sizes)), strict=True)):
            body = [loops.loop(name, size, body, "vector" if position == 0 and size > 1 else "serial")]
        return body

    work = int(np.prod(apart[2:]))
    r.add(over_rows(out.shape[:2], add, work=work))
    part = viewed(image, SLICED, out.shape, _inner(window, spatial))
    assert part is not None
    lowering.copy(part, node, out)
    return True
