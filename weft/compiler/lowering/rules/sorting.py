"""Lowers sort, argsort and topk to native loops; see `weft.compiler.loop_ir.kernels.sorting` for the algorithms."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ....graph.graph import Node
from ....ops.core import scalar as s
from ...loop_ir import ir as loops
from ...loop_ir.ir import Accumulator, Buffer, Let, Local
from ...loop_ir.kernels.sorting import MAX_RANK_ELEMENTS, before, digit, digits, element, key, key_bits, key_dtype
from ...program.layout import Layout, row_major
from ..registry import lowers
from ..routines import Operand, Routine, native, over_rows

if TYPE_CHECKING:
    from ..lower import Lowering

CHUNKS = 16  # parts of one long row that are sorted in parallel
MIN_CHUNKED_ELEMENTS = 1 << 16  # elements of a row from which chunks are faster
MAX_SELECTED = 24  # results per row up to which repeated selection is faster than sorting


def last_axis(layout: Layout, axis: int) -> Layout:
    """The same elements with `axis` moved to the end."""
    axis %= len(layout.shape)
    shape = (*layout.shape[:axis], *layout.shape[axis + 1 :], layout.shape[axis])
    strides = (*layout.strides[:axis], *layout.strides[axis + 1 :], layout.strides[axis])
    return Layout(layout.storage, layout.dtype, shape, strides, layout.offset)


@lowers("argsort")
def lower_argsort(lowering: Lowering, node: Node) -> bool:
    axis, descending, _ = node.attrs
    if not native(*node.inputs) or not len(node.inputs[0].shape):
        return False
    x = last_axis(lowering.layout_of(node.inputs[0]), axis)
    out = lowering.place(node, 0, row_major(tuple(node.outputs[0].shape)), node, None)
    order_into(lowering, node, x, last_axis(out, axis), descending)
    return True


@lowers("sort")
def lower_sort(lowering: Lowering, node: Node) -> bool:
    axis, descending, _ = node.attrs
    if not native(*node.inputs) or not len(node.inputs[0].shape):
        return False
    x = last_axis(lowering.layout_of(node.inputs[0]), axis)
    out = last_axis(lowering.place(node, 0, row_major(tuple(node.outputs[0].shape)), node, None), axis)
    if x.shape[-1] > MAX_RANK_ELEMENTS:  # elements are recovered from their keys: no payload to move
        _by_radix(lowering, node, x, out, descending, values=True)
        return True
    order = lowering.temporary(x.shape, np.dtype(np.int32))
    _rank(lowering, node, x, order, descending)
    _pick(lowering, node, x, order, out)
    return True


@lowers("topk_pair")
def lower_topk(lowering: Lowering, node: Node) -> bool:
    k, axis, largest, _ = node.attrs
    if not native(*node.inputs) or not k or not len(node.inputs[0].shape):
        return False
    x = last_axis(lowering.layout_of(node.inputs[0]), axis)
    values, places = (
        last_axis(lowering.place(node, i, row_major(tuple(v.shape)), node, None), axis)
        for i, v in enumerate(node.outputs)
    )
    if k <= MAX_SELECTED and x.shape[-1] > MAX_RANK_ELEMENTS and key_bits(x.dtype) <= 32:
        _select(lowering, node, x, places, k, largest)
    else:
        order = lowering.temporary(x.shape, np.dtype(np.int32))
        order_into(lowering, node, x, order, largest)
        first = Layout(order.storage, order.dtype, (*x.shape[:-1], k), order.strides)
        _convert(lowering, node, first, places)
    _pick(lowering, node, x, places, values)
    return True


def order_into(lowering: Lowering, node: Node, x: Layout, out: Layout, descending: bool) -> None:
    """Steps that store the indices that sort the rows of `x` (its last axis) in `out`, of any integer dtype."""
    if x.shape[-1] <= MAX_RANK_ELEMENTS:
        _rank(lowering, node, x, out, descending)
    else:
        _by_radix(lowering, node, x, out, descending, values=False)


def _by_radix(lowering: Lowering, node: Node, x: Layout, out: Layout, descending: bool, values: bool) -> None:
    """The indices that sort the rows of `x`, or with `values` the sorted elements, into `out`."""
    if x.shape[-1] >= MIN_CHUNKED_ELEMENTS and prod(x.shape[:-1]) <= 2:
        for row in np.ndindex(*x.shape[:-1]):
            _radix_chunks(lowering, node, _row(x, row), _row(out, row), descending, values)
    else:
        _radix(lowering, node, x, out, descending, values)


def _row(x: Layout, row: tuple[int, ...]) -> Layout:
    start = x.offset + sum(i * st for i, st in zip(row, x.strides, strict=False))
    return Layout(x.storage, x.dtype, x.shape[-1:], x.strides[-1:], start)


def _rank(lowering: Lowering, node: Node, x: Layout, out: Layout, descending: bool) -> None:
    r = Routine(lowering, node, "sort by rank")
    source, target = r.reads(x), r.writes(out)
    n = x.shape[-1]
    keys = Buffer.of("keys", key_dtype(x.dtype), (n,))
    rank = Buffer.of("rank", np.int32, (n,))

    def row(at: list[Any]) -> list[Any]:
        i, j, k, m = (s.index(v) for v in "ijkm")
        fill = [loops.store(keys[i], key(source.at(*at, i), descending)), loops.store(rank[i], s.const(0, np.int32))]
        goes_first = s.cast(before(keys[k], k, keys[j], j), np.int32)
        count = loops.loop("j", n, [loops.store(rank[j], rank[j] + goes_first)], "vector")
        place = loops.store(target.at(*at, s.cast(rank[m], np.int64)), s.cast(m, out.dtype))
        return [
            Local(keys), Local(rank), loops.loop("i", n, fill, "vector"), loops.loop("k", n, [count]),
            loops.loop("m", n, [place]),
        ]  # fmt: skip

    r.add(over_rows(x.shape[:-1], row, work=n * n // 4 + n))


class _Passes:
    """The ping-pong buffers of a radix sort: keys, and indices unless only `values` are needed."""

    def __init__(self, r: Routine, x: Layout, out: Layout, descending: bool, values: bool) -> None:
        self.values = values
        self.source, self.target = r.reads(x), r.writes(out)
        self.dtype, self.descending = x.dtype, descending
        self.digits = digits(key_bits(x.dtype), x.shape[-1])
        rooms = min(len(self.digits) - 1, 2)
        self.keys = [r.scratch(x.shape, key_dtype(x.dtype)) for _ in range(rooms)]
        self.indices = [] if values else [r.scratch(x.shape, np.int32) for _ in range(rooms)]

    def key(self, number: int, at: list[Any], i: Any) -> Any:
        """The key at `i` in pass `number`."""
        if number == 0:
            return key(self.source.at(*at, i), self.descending, one_zero=not self.values)
        return self.keys[(number - 1) % 2].at(*at, i)

    def move(self, number: int, at: list[Any], i: Any, value: Any, place: Any) -> list[Any]:
        """Statements that move the element at `i`, with key `value`, to `place`."""
        last = number == len(self.digits) - 1
        if self.values:
            if last:
                return [loops.store(self.target.at(*at, place), element(value, self.dtype, self.descending))]
            return [loops.store(self.keys[number % 2].at(*at, place), value)]
        index = s.cast(i, np.int32) if number == 0 else self.indices[(number - 1) % 2].at(*at, i)
        if last:
            return [loops.store(self.target.at(*at, place), s.cast(index, self.target.layout.dtype))]
        return [
            loops.store(self.indices[number % 2].at(*at, place), index),
            loops.store(self.keys[number % 2].at(*at, place), value),
        ]


def _radix(lowering: Lowering, node: Node, x: Layout, out: Layout, descending: bool, values: bool) -> None:
    """One row per task."""
    r = Routine(lowering, node, "radix sort")
    p = _Passes(r, x, out, descending, values)
    n = x.shape[-1]
    size = 1 << max(w for _, w in p.digits)
    counts = Buffer.of("counts", np.int32, (len(p.digits), size))
    running = Buffer.of("running", np.int32, (1,))

    def row(at: list[Any]) -> list[Any]:
        body: list[Any] = [Local(counts), Local(running)]
        for d in range(len(p.digits)):
            clear = loops.store(counts[d, s.index(f"z{d}")], s.const(0, np.int32))
            body.append(loops.loop(f"z{d}", size, [clear], "vector"))
        i = s.index("i")
        value = Let("value", p.key(0, at, i))
        count: list[Any] = [value]
        for d, (shift, width) in enumerate(p.digits):
            where = Let(f"digit{d}", digit(value.var, shift, width))
            count += [where, loops.store(counts[d, where.var], counts[d, where.var] + 1)]
        body.append(loops.loop("i", n, count))
        for d, (shift, width) in enumerate(p.digits):
            c, m = s.index(f"c{d}"), s.index(f"m{d}")
            held = Let(f"held{d}", counts[d, c])
            body.append(loops.store(running[0], s.const(0, np.int32)))
            body.append(
                loops.loop(
                    f"c{d}",
                    1 << width,
                    [held, loops.store(counts[d, c], running[0]), loops.store(running[0], running[0] + held.var)],
                )
            )
            body.append(loops.loop(f"m{d}", n, _scatter(p, d, at, m, counts, (d,), shift, width)))
        return body

    r.add(over_rows(x.shape[:-1], row, work=n * 16))


def _scatter(
    p: _Passes, number: int, at: list[Any], i: Any, counts: Any, lead: tuple[Any, ...], shift: int, width: int
) -> list[Any]:
    """Move the element at `i` to the next free slot of its digit."""
    value = Let(f"value{number}", p.key(number, at, i))
    where = Let(f"where{number}", digit(value.var, shift, width))
    slot = counts.at(*lead, where.var) if isinstance(counts, Operand) else counts[(*lead, where.var)]
    place = Let(f"place{number}", slot)
    return [
        value, where, place, loops.store(slot, place.var + 1),
        *p.move(number, at, i, value.var, s.cast(place.var, np.int64)),
    ]  # fmt: skip


def _radix_chunks(lowering: Lowering, node: Node, x: Layout, out: Layout, descending: bool, values: bool) -> None:
    """One long row: every pass counts and moves its chunks in parallel."""
    r = Routine(lowering, node, "radix sort")
    p = _Passes(r, x, out, descending, values)
    n = x.shape[-1]
    size = 1 << max(w for _, w in p.digits)
    counts = r.scratch((CHUNKS, size), np.int32)
    running = r.scratch((1,), np.int32)
    part = -(-n // CHUNKS)
    body: list[Any] = []
    for d, (shift, width) in enumerate(p.digits):
        k, q = s.index(f"k{d}"), s.index(f"q{d}")
        i, j, z = s.index(f"i{d}"), s.index(f"j{d}"), s.index(f"z{d}")
        clear = loops.loop(f"z{d}", 1 << width, [loops.store(counts.at(k, z), s.const(0, np.int32))], "vector")
        slot = Let(f"slot{d}", digit(p.key(d, [], k * part + i), shift, width))
        count = loops.loop(
            f"i{d}",
            s.minimum(loops.as_index(part), n - k * part),
            [slot, loops.store(counts.at(k, slot.var), counts.at(k, slot.var) + 1)],
        )
        body.append(loops.loop(f"k{d}", CHUNKS, [clear, count], parallel=True))
        c, e = s.index(f"c{d}"), s.index(f"e{d}")
        held = Let(f"held{d}", counts.at(e, c))
        total: list[Any] = [
            held,
            loops.store(counts.at(e, c), running.at(0)),
            loops.store(running.at(0), running.at(0) + held.var),
        ]
        body.append(loops.store(running.at(0), s.const(0, np.int32)))
        body.append(loops.loop(f"c{d}", 1 << width, [loops.loop(f"e{d}", CHUNKS, total)]))
        moves = _scatter(p, d, [], q * part + j, counts, (q,), shift, width)
        body.append(
            loops.loop(
                f"q{d}",
                CHUNKS,
                [loops.loop(f"j{d}", s.minimum(loops.as_index(part), n - q * part), moves)],
                parallel=True,
            )
        )
    r.add(body)


def _select(lowering: Lowering, node: Node, x: Layout, places: Layout, k: int, largest: bool) -> None:
    """The first k elements of every row in sorted order, by repeated selection of the successor of the previous one."""
    r = Routine(lowering, node, "select")
    source, target = r.reads(x), r.writes(places)
    n = x.shape[-1]
    keys = r.scratch(x.shape, np.int64)
    picked = Buffer.of("picked", np.int64, (2,))

    def row(at: list[Any]) -> list[Any]:
        i, j, t = s.index("i"), s.index("j"), s.index("t")
        # the largest key first: an ascending key for the largest elements, its complement for the smallest
        fill = loops.store(keys.at(*at, i), s.cast(key(source.at(*at, i), not largest), np.int64))
        best = Accumulator("best", "argmax", np.dtype(np.int64))
        last_key, last_place = Let("last_key", picked[0]), Let("last_place", picked[1])
        value = keys.at(*at, j)
        open_ = s.bitwise_or(
            s.lt(value, last_key.var), s.bitwise_and(s.eq(value, last_key.var), s.gt(j, last_place.var))
        )
        candidate = s.where(open_, value, s.const(-1, np.int64))
        pick: list[Any] = [
            last_key, last_place, best, loops.loop("j", n, [loops.update(best, candidate, j)], "vector"),
            loops.store(picked[0], best.value), loops.store(picked[1], best.index),
            loops.store(target.at(*at, t), best.index),
        ]  # fmt: skip
        return [
            Local(picked), loops.store(picked[0], s.const(1 << 40, np.int64)),
            loops.store(picked[1], s.const(-1, np.int64)), loops.loop("i", n, [fill], "vector"),
            loops.loop("t", k, pick),
        ]  # fmt: skip

    r.add(over_rows(x.shape[:-1], row, work=n * (k + 2)))


def _pick(lowering: Lowering, node: Node, x: Layout, order: Layout, out: Layout) -> None:
    """`out[..., i] = x[..., order[..., i]]`."""
    r = Routine(lowering, node, "pick")
    source, index, target = r.reads(x), r.reads(order), r.writes(out)

    def point(at: list[Any]) -> list[Any]:
        return [loops.store(target.at(*at), source.at(*at[:-1], s.cast(index.at(*at), np.int64)))]

    r.add(over_rows(out.shape, point, vector=True, work=2))


def _convert(lowering: Lowering, node: Node, source: Layout, target: Layout) -> None:
    """A copy into another dtype."""
    r = Routine(lowering, node, "convert")
    x, y = r.reads(source), r.writes(target)
    r.add(over_rows(source.shape, lambda at: [loops.store(y.at(*at), s.cast(x.at(*at), target.dtype))], vector=True))
