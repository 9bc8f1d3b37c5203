"""Lowers row-wise optimiser updates of embedding tables: first occurrences of rows, in-place updates, deferred rows.

Indices were validated by the look-up they come from. They are clamped all the same, so that no other memory is ever read
or written; there is no check that could fail after a variable was written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ....graph.graph import Node
from ....ops.core import scalar as s
from ...loop_ir import ir as loops
from ...loop_ir.ir import Buffer, Kernel
from ...loop_ir.kernels.tiles import parts
from ...program.layout import Layout, row_major, same_strides
from ...program.steps import KernelCall
from ...target import Target
from ..nests import grain
from ..registry import lowers
from ..routines import Operand, Routine, native, over_rows, wrapped

if TYPE_CHECKING:
    from ..lower import Lowering


def _element(buffer: Buffer, layout: Layout, k: Any) -> Any:
    """Element k of a vector of integers."""
    return s.cast(buffer[k * layout.strides[0] + layout.offset], np.int64)


def _clamped(i: Any, size: int) -> Any:
    return s.minimum(s.maximum(i, 0), max(size - 1, 0))


def _buffers(*layouts: Layout) -> tuple[Buffer, ...]:
    return tuple([Buffer.of(f"b{i}", x.dtype, (1 << 40,)) for i, x in enumerate(layouts)])


@lowers("row_numbers")
def lower_row_numbers(lowering: Lowering, node: Node) -> bool:
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
    lowering.steps.append(KernelCall("row numbers", [node], storages[:1], storages[1:], kernel, storages))
    return True


@lowers("row_places")
def lower_row_places(lowering: Lowering, node: Node) -> bool:
    """For every position the first one of the same row: positions are stored in `notes[row]` from the last to the first.

    The notes are not cleared beforehand: only entries that this step has written are read.
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
    lowering.steps.append(KernelCall("row places", [node], storages[:1], storages[1:], kernel, storages))
    return True


@lowers("row_chain")
def lower_row_chain(lowering: Lowering, node: Node) -> bool:
    """Counts and linked lists of the positions of each row, in one pass; `met[first]` is the latest position of the row."""
    place = lowering.layout_of(node.inputs[0])
    count = place.shape[0]
    times_out, following_out = (lowering.place(node, i, (1,), node, None) for i in range(2))
    r = Routine(lowering, node, "row chain")
    places, times, following = r.reads(place), r.writes(times_out), r.writes(following_out)
    met = r.scratch((count,), np.int64)
    k = s.index("k")
    first = loops.Let("first", _clamped(places.at(k), count))
    before = loops.Let("before", s.where(s.eq(first.var, k), k, _clamped(met.at(first.var), count)))
    body: list[Any] = [
        first,
        before,
        loops.store(following.at(before.var), k),  # of a first position itself: overwritten by the next statement
        loops.store(following.at(k), loops.as_index(count)),
        loops.store(times.at(k), loops.as_index(0)),
        loops.store(times.at(first.var), times.at(first.var) + 1),
        loops.store(met.at(first.var), k),
    ]
    r.add([loops.loop("k", count, body)])
    return True


@lowers("put_rows")
def lower_put_rows(lowering: Lowering, node: Node) -> bool:
    """In place if the old table has no other readers: then only the rows of `index` are touched."""
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
    lowering.steps.append(KernelCall("put rows", [node], storages, [target.storage], kernel, storages))
    if target is not out:
        lowering.copy(target, node, out)
    return True


BLOCK_VECTORS = 4
"""vectors of a row that live in registers, with their means, while steps are replayed"""


def _prefetch_rows(
    k: Any, index: Operand, count: int, rows: int, tables: Sequence[Operand], write: bool, target: Target
) -> list[Any]:
    """Prefetch a row a few positions ahead: hardware prefetchers cannot predict gathered rows."""
    width, step = tables[0].layout.shape[1], target.line_bytes // tables[0].layout.dtype.itemsize
    row = loops.Let("ahead", wrapped(index.at(s.minimum(k + target.prefetch.gathered_rows, count - 1)), rows))
    prefetches = [loops.prefetch(_block_of(x, row.var, 0)(s.index("line") * step), write) for x in tables]
    return [row, loops.loop("line", min(-(-width // step), target.prefetch.row_lines), prefetches, "unroll")]


Row = Callable[[Any], Any]
"""element j of a block of a row"""


def _block_of(x: Operand, row: Any, begin: Any) -> Row:
    """The elements from `begin` on of a row of x, whose rows are dense."""
    start = row * x.layout.strides[0] + begin + x.layout.offset
    return lambda j: x.buffer[start + j]


def _held(buffers: Sequence[Buffer]) -> list[Row]:
    """The elements of blocks in registers."""
    return [buffer.__getitem__ for buffer in buffers]


def _moved(old: Sequence[Any], numbers: Sequence[Any], gradient: Any, tag: str) -> tuple[list[loops.Let], list[Any]]:
    """Parameter, mean and mean square after one step of Adam: statements, and the new values (of a parameter, if given).

    Without a gradient it is zero; -(m * rate) has the bits of (0 - m) * rate, for zeros too once they are added to m.
    """
    p, m, v = old
    rate1, rate2, size, scale, eps = numbers
    mean = loops.Let(f"m_{tag}", m - m * rate1 if gradient is None else m + (gradient - m) * rate1)
    square = loops.Let(f"v_{tag}", v - v * rate2 if gradient is None else v + (gradient * gradient - v) * rate2)
    if p is None:
        return [mean, square], [None, mean.var, square.var]
    return [mean, square], [p - mean.var * size / (s.sqrt(square.var) * scale + eps), mean.var, square.var]


def _walk(
    old: Sequence[Row | None], new: Sequence[Row | None], width: int, numbers: Sequence[Any], g: Any, lane: str
) -> loops.Loop:
    """One step of Adam along a row; `g(j)` is the gradient, if there is one. Without a parameter only the means move."""
    j = s.index(lane)
    lets, values = _moved([None if x is None else x(j) for x in old], numbers, None if g is None else g(j), lane)
    stores = [loops.store(x(j), value) for x, value in zip(new, values, strict=True) if x is not None]
    return loops.loop(lane, width, [*lets, *reversed(stores)], "vector")


def _catch_up(row: Sequence[Row | None], width: int, start: Any, behind: Any, history: Operand, tag: str) -> loops.Loop:
    """The steps after `start` that a row has missed, with a gradient of zero; `tag` makes names unique."""
    slot = loops.Let(f"slot{tag}", s.remainder(start + 1 + s.index(f"missed{tag}"), history.layout.shape[0]))
    numbers = [loops.Let(f"n{i}{tag}", history.at(slot.var, i)) for i in range(history.layout.shape[1])]
    walk = _walk(row, row, width, [n.var for n in numbers], None, f"j{tag}")
    return loops.loop(f"missed{tag}", behind, [slot, *numbers, walk])


def _one_dtype(*values: Any) -> bool:
    return native(*values) and len({v.dtype for v in values}) == 1


def _copied(width: int, pairs: Sequence[tuple[Any, Any]], lane: str) -> loops.Loop:
    """target(j) = source(j) for each of the pairs."""
    j = s.index(lane)
    return loops.loop(lane, width, [loops.store(target(j), source(j)) for target, source in pairs], "vector")


def _blocks(width: int, target: Target, body: Callable[[Any, int, str], list[Any]]) -> list[Any]:
    """`body(start, size, tag)` for every block of a row."""
    made: list[Any] = []
    for start, number, size in parts(width, BLOCK_VECTORS * target.lanes):
        tag = str(start)
        at = s.index(f"block{tag}") * size + start if number > 1 else loops.as_index(start)
        inner = body(at, size, tag)
        made += [loops.loop(f"block{tag}", number, inner)] if number > 1 else inner
    return made


@lowers("caught_up")
def lower_caught_up(lowering: Lowering, node: Node) -> bool:
    """Each row is copied, and the steps it has missed are applied to the copy; rows run in parallel.

    Means without readers are not stored.
    """
    index_value, table_value, mean_value, square_value, last_value, step_value, history_value = node.inputs
    if not _one_dtype(table_value, mean_value, square_value, history_value) or not native(index_value, last_value):
        return False
    rows, count = table_value.shape[0], index_value.shape[0]
    index, table, mean, square, last, step, history = (lowering.layout_of(v) for v in node.inputs)
    shape = tuple(node.outputs[0].shape)
    wanted = [i == 0 or lowering.is_read(v) for i, v in enumerate(node.outputs)]
    outs = [lowering.place(node, i, row_major(shape), node, None, True) if w else None for i, w in enumerate(wanted)]
    width = prod(shape[1:])
    sources = [_dense_rows(lowering, node, x) for x in (table, mean, square)]
    targets = [None if x is None else _as_rows(x) or _as_rows(lowering.temporary(shape, x.dtype)) for x in outs]
    r = Routine(lowering, node, "catch up")
    places, since, now, numbers = r.reads(index), r.reads(last), r.reads(step), r.reads(history)
    old = [r.reads(x) for x in sources]
    new = [None if x is None else r.writes(x) for x in targets]

    def row_of(at_k: list[Any]) -> list[Any]:
        k = at_k[0]
        row = loops.Let("place", wrapped(places.at(k), rows))
        start = loops.Let("start", s.cast(since.at(row.var), np.int64))
        behind = loops.Let("behind", s.maximum(s.cast(now.at(), np.int64) - start.var, 0))

        def block(first: Any, size: int, tag: str) -> list[Any]:
            local = [Buffer.of(f"row{i}_{tag}", table.dtype, (size,)) for i in range(3)]
            here, there = _held(local), [_block_of(x, row.var, first) for x in old]
            made = [(_block_of(x, k, first), here[i]) for i, x in enumerate(new) if x is not None]
            return [
                *[loops.Local(b) for b in local],
                _copied(size, list(zip(here, there, strict=True)), f"c{tag}"),
                _catch_up(here, size, start.var, behind.var, numbers, tag),
                _copied(size, made, f"o{tag}"),
            ]

        near = _prefetch_rows(k, places, count, rows, old, False, lowering.target)
        return [row, start, behind, *near, *_blocks(width, lowering.target, block)]

    r.add(over_rows((count,), row_of, work=8 * width))
    for target, out in zip(targets, outs, strict=True):
        if target is not None and out is not None and target.storage is not out.storage:
            lowering.copy(Layout(target.storage, target.dtype, shape, row_major(shape)), node, out)
    return True


def _as_rows(x: Layout) -> Layout | None:
    """An array as (rows, elements of a row), if its rows are dense."""
    if not same_strides(x.strides[1:], row_major(x.shape[1:]), x.shape[1:]):
        return None
    return Layout(x.storage, x.dtype, (x.shape[0], prod(x.shape[1:])), (x.strides[0], 1), x.offset)


def _dense_rows(lowering: Lowering, node: Node, x: Layout) -> Layout:
    """An array as (rows, elements of a row), copied if it has to be."""
    return _as_rows(x) or _as_rows(lowering.copy(x, node))  # type: ignore[return-value]


@lowers("adam_rows", any_strides=True)
def lower_adam_rows(lowering: Lowering, node: Node) -> bool:
    """One pass over the rows of `index`, in place if the old table and means have no other readers.

    Only the first position of a row does work, so no two threads write one row. It sums the row's gradients, applies the
    steps that the row has missed, unless their result is given (`known`), and then the current step.
    """
    index_v, place_v, times_v, following_v, values_v, table_v, mean_v, square_v, last_v, step_v, history_v, known_v = (
        node.inputs[:12]
    )
    numbers_v, replay = node.inputs[12], last_v is not None
    beside = [v for v in (history_v, known_v) if v is not None]
    if not _one_dtype(values_v, table_v, mean_v, square_v, numbers_v, *beside):
        return False
    shape, count, named = tuple(table_v.shape), index_v.shape[0], values_v.shape[0]
    given = [lowering.layout_of(v) for v in (table_v, mean_v, square_v)]
    if not all(x.contiguous for x in given):
        return False
    width = prod(shape[1:])

    def rows_of(value: Any) -> Layout:
        return _dense_rows(lowering, node, lowering.layout_of(value))

    others = [lowering.layout_of(v) for v in (index_v, place_v, times_v, following_v, numbers_v)]
    others.append(rows_of(values_v))
    if replay:
        others += [lowering.layout_of(v) for v in (last_v, step_v, history_v)]
        others += [rows_of(known_v)] if known_v is not None else []
    reads: dict[int, list[Any]] = {id(x.storage): [None] for x in others}
    for x in given:
        reads.setdefault(id(x.storage), []).append((x.offset, x.strides, x.shape))
    outs = [lowering.place(node, i, row_major(shape), node, reads) for i in range(3)]
    targets = [x if x.contiguous else lowering.temporary(shape, x.dtype) for x in outs]
    for x, target in zip(given, targets, strict=True):
        if target.storage is not x.storage or target.offset != x.offset:
            lowering.copy(x, node, target)
    r = Routine(lowering, node, "adam rows")
    where, firsts, times, following, now, gradient, *rest = (r.reads(x) for x in others)
    tables = [r.writes(_dense_rows(lowering, node, x)) for x in targets]

    def row_of(at_k: list[Any]) -> list[Any]:
        k = at_k[0]
        row = loops.Let("place", wrapped(where.at(k), shape[0]))
        first = loops.Let("first", s.where(s.eq(s.cast(firsts.at(k), np.int64), k), 1, 0))
        has_gradient = loops.Let("named", s.where(s.lt(k, named), 1, 0))
        own = loops.Let("own", s.minimum(k, named - 1))
        often = loops.Let("often", _clamped(times.at(own.var), named + 1) * has_gradient.var)
        body: list[Any] = [has_gradient, own, often]
        if replay:
            last, step = rest[:2]
            body.append(loops.Let("start", s.cast(last.at(row.var), np.int64)))
            missed = s.maximum(s.cast(step.at(), np.int64) - 1 - body[-1].var, 0)
            body.append(loops.Let("behind", missed))
        step_numbers = [loops.Let(f"now{i}", now.at(i)) for i in range(5)]

        def block(begin: Any, size: int, tag: str) -> list[Any]:
            there = [_block_of(x, row.var, begin) for x in tables]
            sums = Buffer.of(f"sums{tag}", gradient.layout.dtype, (size,))
            made = _summed(sums, gradient, following, own.var, often.var, begin, tag)
            old = there
            if replay:
                start, behind = (let.var for let in body[3:5])
                local = [Buffer.of(f"row{i}_{tag}", gradient.layout.dtype, (size,)) for i in range(3)]
                old = _held(local)
                made += [loops.Local(b) for b in local]
                made += _behind(old, there, size, start, behind, rest[2:], has_gradient.var, own.var, begin, tag)
            return [*made, _walk(old, there, size, [n.var for n in step_numbers], lambda j: sums[j], f"i{tag}")]

        near = _prefetch_rows(k, where, count, shape[0], tables, True, lowering.target)
        once = loops.loop("once", first.var, [*body, *step_numbers, *_blocks(width, lowering.target, block)])
        return [row, first, *near, once]

    r.add(over_rows((count,), row_of, work=8 * width))
    for target, out in zip(targets, outs, strict=True):
        if target is not out:
            lowering.copy(target, node, out)
    return True


def _summed(
    sums: Buffer, gradient: Operand, following: Operand, first: Any, often: Any, begin: Any, tag: str
) -> list[Any]:
    """The gradients of a row, added to zero in the order of their positions."""
    z, c, zero = s.index(f"z{tag}"), s.index(f"c{tag}"), s.const(0.0, sums.dtype)
    current = Buffer.of(f"current{tag}", np.int64, (1,))
    at = loops.Let(f"at{tag}", _clamped(current[0], gradient.layout.shape[0]))
    add = loops.store(sums[c], sums[c] + _block_of(gradient, at.var, begin)(c))
    onward: list[Any] = [
        at, loops.loop(f"c{tag}", sums.shape[0], [add], "vector"), loops.store(current[0], following.at(at.var)),
    ]  # fmt: skip
    return [
        loops.Local(sums),
        loops.Local(current),
        loops.loop(f"z{tag}", sums.shape[0], [loops.store(sums[z], zero)], "vector"),
        loops.store(current[0], first),
        loops.loop(f"again{tag}", often, onward),
    ]


def _behind(
    row: Sequence[Row], table: Sequence[Row], size: int, start: Any, behind: Any, rest: Sequence[Operand],
    has: Any, own: Any, begin: Any, tag: str,
) -> list[Any]:  # fmt: skip
    """Load a row and apply the steps it has missed. `rest` is the history and, optionally, rows that a look-up has already
    updated: for those (`has` is 1) only the means are updated, without roots and divisions."""
    history = rest[0]
    if len(rest) == 1:
        pairs = list(zip(row, table, strict=True))
        return [_copied(size, pairs, f"r{tag}"), _catch_up(row, size, start, behind, history, tag)]
    known = rest[1]
    pairs = list(zip(row[1:], table[1:], strict=True))
    return [
        _copied(size, pairs, f"r{tag}"),
        loops.loop(f"known{tag}", has, [_copied(size, [(row[0], _block_of(known, own, begin))], f"k{tag}")]),
        loops.loop(f"unknown{tag}", 1 - has, [_copied(size, [(row[0], table[0])], f"u{tag}")]),
        _catch_up([None, *row[1:]], size, start, behind * has, history, f"k{tag}"),
        _catch_up(row, size, start, behind * (1 - has), history, tag),
    ]
