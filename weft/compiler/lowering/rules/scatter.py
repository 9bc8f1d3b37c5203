"""Lowers scatter, scatter_add, index_add (the gradient of an embedding) and segment_max.

Along the indexed axis elements are written sequentially, so that for repeated indices the last write wins and sums are
added in order; the other axes are vectorised and run in parallel, without conflicting writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ....graph.graph import Node
from ....ops.core import scalar as s
from ....ops.core.scalar import Expr
from ...flow import filled_with
from ...loop_ir import ir as loops
from ...loop_ir.ir import Let
from ...program.layout import Layout, row_major
from ..registry import lowers
from ..routines import Routine, native, over_rows, wrapped

if TYPE_CHECKING:
    from ..lower import Lowering

Combine = Callable[[Expr, Expr], Expr]


def _new(old: Expr, new: Expr) -> Expr:
    return new


def _sum(old: Expr, new: Expr) -> Expr:
    return s.bitwise_or(old, new) if s.kind(old.dtype) == "b" else old + new


def write_along(
    lowering: Lowering,
    node: Node,
    target: Layout,
    index: Layout,
    source: Layout,
    axis: int,
    combine: Combine,
    label: str,
) -> None:
    """A step that does `target[.., index[.., t, ..], ..] = combine(old, source[.., t, ..])` for every t along `axis`.

    `index` and `source` have one shape (a broadcast index has stride 0); the indices have
    been checked.
    """
    r = Routine(lowering, node, label)
    places, new, old = r.reads(index), r.reads(source), r.writes(target)
    shape = source.shape
    others = [a for a in range(len(shape)) if a != axis and shape[a] > 1]
    lane = max(others, key=lambda a: (abs(target.strides[a]) == 1, a), default=None)
    if lane is not None:
        others.remove(lane)
    same = lane is None or index.strides[lane] == 0
    width = 1 if lane is None else shape[lane]
    tile = next((t for t in (512, 256, 128, 64, 32, 16) if width % t == 0 and width // t >= 2), width)

    def column(at: list[Any]) -> list[Any]:
        where: list[Any] = [loops.as_index(0)] * len(shape)
        for a, i in zip(others, at[:-1], strict=True):
            where[a] = i
        where[axis] = s.index("t")
        if lane is not None:
            where[lane] = at[-1] * tile + s.index("c")
        place = Let("place", wrapped(places.at(*where), target.shape[axis]))
        element = old.at(*where[:axis], place.var, *where[axis + 1 :])
        change = loops.store(element, combine(element, s.cast(new.at(*where), target.dtype)))
        if lane is None:
            body: list[Any] = [place, change]
        elif same:
            body = [place, loops.loop("c", tile, [change], "vector")]
        else:
            body = [loops.loop("c", tile, [place, change], "vector")]
        return [loops.loop("t", shape[axis], body)]

    sizes = (*[shape[a] for a in others], width // tile)
    r.add(over_rows(sizes, column, work=shape[axis] * tile))


def _copy_of(lowering: Lowering, node: Node, value: Any, others: Sequence[Layout]) -> tuple[Layout, Layout]:
    """(row-major memory that holds a copy of `value`, the layout that the node's result must have).

    If the result goes into the memory that holds `value` (a few rows of a variable are replaced), nothing is copied,
    unless the step reads that memory through its `others` too. The caller has checked the indices.
    """
    number = filled_with(value)
    if number is not None:
        out = lowering.place(node, 0, row_major(tuple(value.shape)), node, None)
        target = out if out.contiguous else lowering.temporary(tuple(value.shape), out.dtype)
        lowering.fill(target, number, node)
        return target, out
    old = lowering.layout_of(value)
    reads: dict[int, list[Any]] = {id(x.storage): [None] for x in others}
    reads.setdefault(id(old.storage), []).append((old.offset, old.strides, old.shape))
    out = lowering.place(node, 0, row_major(tuple(value.shape)), node, reads, checked=True)
    if out.storage is old.storage:
        return out, out
    target = out if out.contiguous else lowering.temporary(tuple(value.shape), out.dtype)
    lowering.copy(old, node, target)
    return target, out


def _finish(lowering: Lowering, node: Node, target: Layout, out: Layout) -> bool:
    if target is not out:
        lowering.copy(target, node, out)
    return True


def _along(index: Layout, shape: tuple[int, ...], axis: int) -> Layout:
    """A vector of indices as an array of `shape` that is constant along every axis but one."""
    strides = tuple([index.strides[0] if a == axis else 0 for a in range(len(shape))])
    return Layout(index.storage, index.dtype, shape, strides, index.offset)


@lowers("index_add")
def lower_index_add(lowering: Lowering, node: Node) -> bool:
    x_value, index_value, source_value = node.inputs
    if not native(x_value, index_value, source_value) or source_value.dtype != x_value.dtype:
        return False
    axis = node.attrs[0] % len(x_value.shape)
    size = x_value.shape[axis]
    index = lowering.layout_of(index_value)
    lowering.check_indices(index, -size, size, node)
    source = lowering.layout_of(source_value)
    target, out = _copy_of(lowering, node, x_value, (index, source))
    write_along(lowering, node, target, _along(index, source.shape, axis), source, axis, _sum, "index add")
    return _finish(lowering, node, target, out)


@lowers("scatter")
def lower_scatter(lowering: Lowering, node: Node) -> bool:
    return _scatter(lowering, node, _new, "scatter")


@lowers("scatter_add")
def lower_scatter_add(lowering: Lowering, node: Node) -> bool:
    return _scatter(lowering, node, _sum, "scatter add")


def _scatter(lowering: Lowering, node: Node, combine: Combine, label: str) -> bool:
    x_value, index_value, source_value = node.inputs
    if not native(x_value, index_value, source_value) or not len(x_value.shape):
        return False
    axis = node.attrs[0] % len(x_value.shape)
    size = x_value.shape[axis]
    index, source = lowering.layout_of(index_value), lowering.layout_of(source_value)
    lowering.check_indices(index, -size, size, node)
    target, out = _copy_of(lowering, node, x_value, (index, source))
    write_along(lowering, node, target, index, source, axis, combine, label)
    return _finish(lowering, node, target, out)


@lowers("segment_max")
def lower_segment_max(lowering: Lowering, node: Node) -> bool:
    """Fill with -inf, take maxima over the rows, and store 0 for empty segments."""
    x_value, index_value = node.inputs
    (count,) = node.attrs
    if not native(x_value, index_value, *node.outputs) or s.kind(x_value.dtype) != "f":
        return False
    x, index = lowering.layout_of(x_value), lowering.layout_of(index_value)
    lowering.check_indices(index, -count, count, node)
    out = lowering.place(node, 0, row_major(tuple(node.outputs[0].shape)), node, None)
    best = lowering.temporary(out.shape, out.dtype)
    met = lowering.temporary((count,), index.dtype)
    lowering.fill(best, float("-inf"), node)
    lowering.fill(met, 0, node)
    write_along(lowering, node, best, _along(index, x.shape, 0), x, 0, s.maximum, "segment max")
    write_along(lowering, node, met, index, index, 0, lambda old, new: s.const(1, old.dtype), "segment max")
    r = Routine(lowering, node, "segment max")
    found, seen, target = r.reads(best), r.reads(met), r.writes(out)

    def point(at: list[Any]) -> list[Any]:
        value = s.where(s.eq(seen.at(at[0]), 0), s.const(0, out.dtype), found.at(*at))
        return [loops.store(target.at(*at), value)]

    r.add(over_rows(out.shape, point, vector=True))
    return True
