"""Lowers argmax, argmin and searchsorted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .... import dtypes
from ....graph.graph import Node
from ....ops.core import scalar as s
from ...loop_ir import ir as loops
from ...loop_ir.ir import Accumulator, Let
from ...loop_ir.kernels.sorting import key
from ...program.layout import Layout, row_major
from ..registry import lowers
from ..routines import Routine, native, over_rows, wrapped
from .sorting import last_axis

if TYPE_CHECKING:
    from ..lower import Lowering

PARTS = 16  # of one long vector, searched in parallel
MIN_SPLIT_ELEMENTS = 1 << 16


@lowers("argmax", "argmin")
def lower_arg(lowering: Lowering, node: Node) -> bool:
    """The index of the first extreme element, or of the first NaN."""
    axis, _ = node.attrs
    (x_value,) = node.inputs
    if not native(x_value):
        return False
    x = lowering.layout_of(x_value)
    out = lowering.place(node, 0, row_major(tuple(node.outputs[0].shape)), node, None)
    if axis is None or not len(x.shape):
        if not x.contiguous:
            x = lowering.copy(x, node)
        size = x_value.size
        x = Layout(x.storage, x.dtype, (size,), (1,), x.offset)
        result = Layout(out.storage, out.dtype, (), (), out.offset)
        if size >= MIN_SPLIT_ELEMENTS:
            _in_parts(lowering, node, x, result)
            return True
    else:
        place = axis % len(x.shape)
        x = last_axis(x, axis)
        if len(out.shape) == len(x.shape):  # keepdims
            kept = [a for a in range(len(out.shape)) if a != place]
            result = Layout(out.storage, out.dtype, x.shape[:-1], tuple([out.strides[a] for a in kept]), out.offset)
        else:
            result = out
    _extremes(lowering, node, x, result)
    return True


def _extremes(lowering: Lowering, node: Node, x: Layout, out: Layout) -> None:
    r = Routine(lowering, node, node.op.name)
    source, target = r.reads(x), r.writes(out)
    n = x.shape[-1]
    lanes = x.strides[-1] != 1 and len(x.shape) > 1 and x.shape[-2] > 1

    def row(at: list[Any]) -> list[Any]:
        best = _accumulator(node, x)
        j = s.index("j")
        walk = loops.loop("j", n, [loops.update(best, _plain(source.at(*at, j)), j)], "serial" if lanes else "vector")
        return [best, walk, loops.store(target.at(*at), best.index)]

    r.add(over_rows(x.shape[:-1], row, work=n, vector=lanes))


def _accumulator(node: Node, x: Layout, name: str = "best") -> Accumulator:
    dtype = np.dtype(np.uint8) if s.kind(x.dtype) == "b" else x.dtype
    return Accumulator(name, node.op.name, dtype)


def _plain(value: Any) -> Any:
    return s.cast(value, np.uint8) if s.kind(value.dtype) == "b" else value


def _in_parts(lowering: Lowering, node: Node, x: Layout, out: Layout) -> None:
    """Two-step reduction of a long vector: extremes of its parts, then the first extreme among them."""
    r = Routine(lowering, node, node.op.name)
    source, target = r.reads(x), r.writes(out)
    n = x.shape[0]
    part = -(-n // PARTS)
    best = _accumulator(node, x)
    values, places = r.scratch((PARTS,), best.dtype), r.scratch((PARTS,), np.int64)
    k, j, m = s.index("k"), s.index("j"), s.index("m")
    walk = loops.loop(
        "j", s.minimum(loops.as_index(part), n - k * part),
        [loops.update(best, _plain(source.at(k * part + j)), k * part + j)], "vector",
    )  # fmt: skip
    each: list[Any] = [best, walk, loops.store(values.at(k), best.value), loops.store(places.at(k), best.index)]
    parts = -(-n // part)
    last = _accumulator(node, x, "last")
    body: list[Any] = [
        loops.loop("k", parts, each, parallel=True), last,
        loops.loop("m", parts, [loops.update(last, values.at(m), m)]),
        loops.store(target.at(), places.at(last.index)),
    ]  # fmt: skip
    r.add(body)


@lowers("search_places")
def lower_search(lowering: Lowering, node: Node) -> bool:
    """Binary search for all elements at once: the same number of halvings for each."""
    sorted_value, x_value, sorter_value = node.inputs
    if not native(sorted_value, x_value, sorter_value):
        return False
    dtype = dtypes.promote(sorted_value.dtype, x_value.dtype)
    if dtype not in s.DTYPES:
        return False
    n = sorted_value.shape[0]
    among, x = lowering.layout_of(sorted_value), lowering.layout_of(x_value)
    out = lowering.place(node, 0, row_major(tuple(x_value.shape)), node, None)
    sorter = None if sorter_value is None else lowering.layout_of(sorter_value)
    if sorter is not None:
        lowering.check_indices(sorter, -n, n, node)
    r = Routine(lowering, node, "search")
    vector, elements, target = r.reads(among), r.reads(x), r.writes(out)
    order = None if sorter is None else r.reads(sorter)

    def point(at: list[Any]) -> list[Any]:
        wanted = Let("wanted", key(s.cast(elements.at(*at), dtype), False))
        statements: list[Any] = [wanted]

        def passes(place: Any) -> Any:
            """1 if the element at `place` precedes the searched value."""
            where = place if order is None else wrapped(order.at(place), n)
            found = key(s.cast(vector.at(where), dtype), False)
            before = s.lt(found, wanted.var) if node.attrs[0] == "left" else s.le(found, wanted.var)
            return s.cast(before, np.int64)

        low: Any = loops.as_index(0)
        length, count = n, 0
        while length > 1:
            half = length // 2
            let = Let(f"low{count}", low + passes(low + (half - 1)) * half)
            statements.append(let)
            low, length, count = let.var, length - half, count + 1
        return [*statements, loops.store(target.at(*at), low + passes(low))]

    r.add(over_rows(x.shape, point, vector=True, work=8 * max(n.bit_length(), 1)))
    return True
