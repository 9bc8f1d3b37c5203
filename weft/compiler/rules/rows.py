"""Rows of a table that an optimiser updates: which position names a row first, rows put in the table's own memory, and
rows that catch up with steps they have missed.

Indices were found valid by the look-up they come from. They are clamped all the same, so that whatever they are, nothing
else is read or written; there is no check that could fail after a variable was written.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...graph.graph import Node
from ...ops import scalar as s
from .. import loops
from ..layout import Layout, row_major
from ..loops import Buffer, Kernel
from ..lower import Step
from ..nests import grain
from ..primitives import lowers
from ..routines import Routine, native, over_rows, wrapped


def _element(buffer: Buffer, layout: Layout, k: Any) -> Any:
    """Element k of a vector of integers."""
    return s.cast(buffer[k * layout.strides[0] + layout.offset], np.int64)


def _clamped(i: Any, size: int) -> Any:
    return s.minimum(s.maximum(i, 0), max(size - 1, 0))


def _buffers(*layouts: Layout) -> tuple[Buffer, ...]:
    return tuple([Buffer.of(f"b{i}", x.dtype, (1 << 40,)) for i, x in enumerate(layouts)])


@lowers("row_numbers")
def lower_row_numbers(lowering: Any, node: Node) -> bool:
    index = lowering.layout_of(node.inputs[0])
    if len(index.shape) != 1:
        return False
    rows = node.attrs[0]
    out = lowering.place(node, 0, (1,), node, None)
    b = _buffers(index, out)
    k = s.index("k")
    i = _element(b[0], index, k)
    if s.kind(index.dtype) == "i":
        i = s.where(s.lt(i, 0), i + rows, i)
    store = loops.store(b[1][k * out.strides[0] + out.offset], _clamped(i, rows))
    kernel = Kernel("row_numbers", b, (), (loops.loop("k", index.shape[0], [store]),))
    storages = [index.storage, out.storage]
    lowering.steps.append(Step("kernel", "row numbers", [node], storages[:1], storages[1:], kernel, storages))
    return True


@lowers("row_places")
def lower_row_places(lowering: Any, node: Node) -> bool:
    """A note per row of the table, written from the last position to the first, then read by every position.

    The notes are never cleared: only what was written in this run is read.
    """
    rows, index_value = node.attrs[0], node.inputs[0]
    count = index_value.shape[0]
    index = lowering.layout_of(index_value)
    out = lowering.place(node, 0, (1,), node, None)
    notes = lowering.temporary((max(rows, 1),), np.dtype(np.int32 if count < 1 << 31 else np.int64))
    b = _buffers(index, notes, out)
    back, k = (count - 1) - s.index("r"), s.index("k")
    note = loops.store(b[1][_clamped(_element(b[0], index, back), rows)], s.cast(back, notes.dtype))
    read = s.cast(b[1][_clamped(_element(b[0], index, k), rows)], np.int64)
    store = loops.store(b[2][k * out.strides[0] + out.offset], read)
    kernel = Kernel("row_places", b, (), (loops.loop("r", count, [note]), loops.loop("k", count, [store])))
    storages = [index.storage, notes.storage, out.storage]
    lowering.steps.append(Step("kernel", "row places", [node], storages[:1], storages[1:], kernel, storages))
    return True


@lowers("put_rows")
def lower_put_rows(lowering: Any, node: Node) -> bool:
    """In the memory of the table itself, if nobody wants the old one: then only the named rows are touched."""
    x_value, index_value, source_value, place_value = node.inputs
    shape = tuple(x_value.shape)
    rows, count = shape[0], index_value.shape[0]
    x = lowering.layout_of(x_value)
    if x.dtype not in s.DTYPES or 0 in shape or not count or not x.contiguous or source_value.dtype != x.dtype:
        return False
    index, place = lowering.layout_of(index_value), lowering.layout_of(place_value)
    source = lowering.layout_of(source_value)
    if not source.contiguous:
        source = lowering.copy(source, node)
    reads: dict[int, list[Any]] = {id(x.storage): [(x.offset, x.strides, x.shape)]}
    for other in (index, source, place):
        reads.setdefault(id(other.storage), []).append(None)
    out = lowering.place(node, 0, row_major(shape), node, reads)
    target = out if out.contiguous else lowering.temporary(shape, x.dtype)
    if target.storage is not x.storage or target.offset != x.offset:
        lowering.copy(x, node, target)
    width = 1
    for d in shape[1:]:
        width *= d
    b = _buffers(index, place, source, target)
    k, j = s.index("k"), s.index("j")
    row = loops.Let("row", _clamped(_element(b[0], index, k), rows) * width + target.offset)
    origin = loops.Let("origin", _clamped(_element(b[1], place, k), count) * width + source.offset)
    # Two threads may write one row, with the same bits: both copy the row of the first position.
    store = loops.store(b[3][row.var + j], b[2][origin.var + j])
    copied: list[Any] = [row, origin, loops.loop("j", width, [store], "vector")]
    sweep = loops.loop("k", count, copied, parallel=True, grain=grain(width))
    storages = [index.storage, place.storage, source.storage, target.storage]
    kernel = Kernel("put_rows", b, (), (sweep,))
    lowering.steps.append(Step("kernel", "put rows", [node], storages, [target.storage], kernel, storages))
    if target is not out:
        lowering.copy(target, node, out)
    return True


def _walk(operands: Any, at: Any, width: int, numbers: Any, g: Any, lane: str) -> loops.Loop:
    """One step of Adam along a row: `at(operand, j)` is an element, `numbers` are those of the step, `g(j)` the gradient."""
    j = s.index(lane)
    p, m, v = (at(x, j) for x in operands)
    rate1, rate2, size, scale, eps = numbers
    gradient = g(j)
    mean = loops.Let(f"m_{lane}", m + (gradient - m) * rate1)
    square = loops.Let(f"v_{lane}", v + (gradient * gradient - v) * rate2)
    moved = p - mean.var * size / (s.sqrt(square.var) * scale + eps)
    stores = [loops.store(m, mean.var), loops.store(v, square.var), loops.store(p, moved)]
    return loops.loop(lane, width, [mean, square, *stores], "vector")


def _catch_up(operands: Any, at: Any, width: int, start: Any, behind: Any, history: Any, dtype: Any) -> loops.Loop:
    """The steps after `start` that a row has missed, with a gradient of zero."""
    slot = loops.Let("slot", s.remainder(start + 1 + s.index("missed"), history.layout.shape[0]))
    numbers = [loops.Let(f"n{i}", history.at(slot.var, i)) for i in range(history.layout.shape[1])]
    walk = _walk(operands, at, width, [n.var for n in numbers], lambda j: s.const(0.0, dtype), "j")
    return loops.loop("missed", behind, [slot, *numbers, walk])


def _one_dtype(*values: Any) -> bool:
    return native(*values) and len({v.dtype for v in values}) == 1


@lowers("caught_up")
def lower_caught_up(lowering: Any, node: Node) -> bool:
    """Each row is copied, then walks through the steps it has missed; rows are shared out among threads."""
    index_value, table_value, mean_value, square_value, last_value, step_value, history_value = node.inputs
    if not _one_dtype(table_value, mean_value, square_value, history_value) or not native(index_value, last_value):
        return False
    rows, count = table_value.shape[0], index_value.shape[0]
    index, table, mean, square, last, step, history = (lowering.layout_of(v) for v in node.inputs)
    sources = [x if x.contiguous else lowering.copy(x, node) for x in (table, mean, square)]
    shape = tuple(node.outputs[0].shape)
    outs = [lowering.place(node, i, row_major(shape), node, None) for i in range(3)]
    width = prod(shape[1:])
    r = Routine(lowering, node, "catch up")
    places, since, now, numbers = r.reads(index), r.reads(last), r.reads(step), r.reads(history)
    old = [r.reads(x) for x in sources]
    new = [r.writes(x) for x in outs]

    def row_of(at_k: list[Any]) -> list[Any]:
        k, c = at_k[0], s.index("c")
        row = loops.Let("place", wrapped(places.at(k), rows))
        start = loops.Let("start", s.cast(since.at(row.var), np.int64))
        behind = loops.Let("behind", s.maximum(s.cast(now.at(), np.int64) - start.var, 0))

        def at(x: Any, j: Any, line: Any = k) -> Any:
            return x.buffer[line * width + j + x.layout.offset]

        copied = [loops.store(at(n, c), at(o, c, row.var)) for o, n in zip(old, new, strict=True)]
        return [
            row, start, behind, loops.loop("c", width, copied, "vector"),
            _catch_up(new, at, width, start.var, behind.var, numbers, table.dtype),
        ]  # fmt: skip

    r.add(over_rows((count,), row_of, work=8 * width))
    return True


@lowers("adam_rows")
def lower_adam_rows(lowering: Any, node: Node) -> bool:
    """One pass over the rows that are named, in the memory of the table and its means if nobody wants the old ones.

    Only the first place of a row does anything, so no two threads meet in one.
    """
    index_v, place_v, sums_v, table_v, mean_v, square_v, last_v, step_v, history_v, numbers_v = node.inputs
    replay = last_v is not None
    if not _one_dtype(sums_v, table_v, mean_v, square_v, numbers_v, *([history_v] if replay else [])):
        return False
    shape, count = tuple(table_v.shape), index_v.shape[0]
    given = [lowering.layout_of(v) for v in (table_v, mean_v, square_v)]
    if not all(x.contiguous for x in given):
        return False
    index, place, sums, numbers = (lowering.layout_of(v) for v in (index_v, place_v, sums_v, numbers_v))
    if not sums.contiguous:
        sums = lowering.copy(sums, node)
    others = [index, place, sums, numbers]
    if replay:
        others += [lowering.layout_of(v) for v in (last_v, step_v, history_v)]
    reads: dict[int, list[Any]] = {id(x.storage): [None] for x in others}
    for x in given:
        reads.setdefault(id(x.storage), []).append((x.offset, x.strides, x.shape))
    outs = [lowering.place(node, i, row_major(shape), node, reads) for i in range(3)]
    targets = [x if x.contiguous else lowering.temporary(shape, x.dtype) for x in outs]
    for x, target in zip(given, targets, strict=True):
        if target.storage is not x.storage or target.offset != x.offset:
            lowering.copy(x, node, target)
    width = prod(shape[1:])
    r = Routine(lowering, node, "adam rows")
    where, firsts, gradient, now, *rest = (r.reads(x) for x in others)
    tables = [r.writes(x) for x in targets]

    def row_of(at_k: list[Any]) -> list[Any]:
        k = at_k[0]
        row = loops.Let("place", wrapped(where.at(k), shape[0]))
        first = loops.Let("first", s.where(s.eq(s.cast(firsts.at(k), np.int64), k), 1, 0))

        def at(x: Any, j: Any) -> Any:
            return x.buffer[row.var * width + j + x.layout.offset]

        def g(j: Any) -> Any:
            return gradient.buffer[k * width + j + gradient.layout.offset]

        body: list[Any] = [row, first]
        if replay:
            last, step, history = rest
            start = loops.Let("start", s.cast(last.at(row.var), np.int64))
            missed = s.maximum(s.cast(step.at(), np.int64) - 1 - start.var, 0)
            behind = loops.Let("behind", missed * first.var)
            body += [start, behind, _catch_up(tables, at, width, start.var, behind.var, history, given[0].dtype)]
        step_numbers = [loops.Let(f"now{i}", now.at(i)) for i in range(5)]
        walk = _walk(tables, at, width, [n.var for n in step_numbers], g, "i")
        return [*body, loops.loop("once", first.var, [*step_numbers, walk])]

    r.add(over_rows((count,), row_of, work=8 * width))
    for target, out in zip(targets, outs, strict=True):
        if target is not out:
            lowering.copy(target, node, out)
    return True
