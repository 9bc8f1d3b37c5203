"""Lowers running sums, products, extremes and recurrences: one pass along the axis that carries a state.

Rows are distributed over threads; where the axis is not the last one, the states of many columns are contiguous and one
vector operation advances all of them. The order of operations along the axis is that of the definition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....graph.graph import Node
from ....ops.core import scalar as s
from ....ops.core.reductions import MAX, MIN
from ....ops.core.scalar import Expr
from ...loop_ir import ir as loops
from ...loop_ir.ir import Buffer, Let, Local
from ...program.layout import Layout, row_major
from ..registry import lowers
from ..routines import Routine, native, over_rows
from .sorting import last_axis

if TYPE_CHECKING:
    from ..lower import Lowering

COLUMNS = 512  # states in one vector loop

Advance = Callable[[list[Expr], list[Expr], Expr], list[Expr]]


def scan_steps(
    lowering: Lowering,
    node: Node,
    sources: Sequence[Layout],
    targets: Sequence[Layout],
    axis: int,
    initial: Sequence[Expr],
    advance: Advance,
    label: str,
    reverse: bool = False,
) -> None:
    """Steps that store `state = advance(state, elements, place)` at every place along `axis`, one target per state."""
    inputs, outputs = [last_axis(x, axis) for x in sources], [last_axis(x, axis) for x in targets]
    r = Routine(lowering, node, label)
    xs, ys = [r.reads(x) for x in inputs], [r.writes(y) for y in outputs]
    n = inputs[0].shape[-1]
    rows = inputs[0].shape[:-1]
    lanes = bool(rows) and rows[-1] > 1 and axis % len(sources[0].shape) != len(sources[0].shape) - 1
    width = rows[-1] if lanes else 1
    tile = min(width, COLUMNS)
    states = [Buffer.of(f"state{i}", value.dtype, (tile,)) for i, value in enumerate(initial)]

    def step(at: list[Any], lane: Any) -> list[Any]:
        place = s.index("t")
        if reverse:
            place = n - 1 - place
        new = advance([st[lane] for st in states], [x.at(*at, place) for x in xs], place)
        lets = [Let(f"new{i}", s.cast(v, st.dtype)) for i, (v, st) in enumerate(zip(new, states, strict=True))]
        stores = [loops.store(st[lane], let.var) for st, let in zip(states, lets, strict=True)]
        results = [
            loops.store(y.at(*at, place), s.cast(let.var, y.layout.dtype)) for y, let in zip(ys, lets, strict=True)
        ]
        return [*lets, *stores, *results]

    def row(at: list[Any]) -> list[Any]:
        start = [loops.store(st[0], value) for st, value in zip(states, initial, strict=True)]
        return [*[Local(st) for st in states], *start, loops.loop("t", n, step(at, 0))]

    def columns(at: list[Any]) -> list[Any]:
        first = at[-1] * tile
        here = s.minimum(loops.as_index(tile), width - first)
        z, c = s.index("z"), s.index("c")
        start = [loops.store(st[z], value) for st, value in zip(states, initial, strict=True)]
        along = loops.loop("t", n, [loops.loop("c", here, step([*at[:-1], first + c], c), "vector")])
        return [*[Local(st) for st in states], loops.loop("z", tile, start, "vector"), along]

    if lanes:
        r.add(over_rows((*rows[:-1], -(-width // tile)), columns, work=2 * n * tile))
    else:
        r.add(over_rows(rows, row, work=4 * n))


def _place_like(lowering: Lowering, node: Node, index: int) -> Layout:
    return lowering.place(node, index, row_major(tuple(node.outputs[index].shape)), node, None)


def _wide(dtype: np.dtype) -> np.dtype:
    """Half precision is accumulated in float32."""
    return s.FLOAT32 if dtype in (s.FLOAT16, s.BFLOAT16) else dtype


@lowers(fact="scan")
def lower_running(lowering: Lowering, node: Node) -> bool:
    """A running reduction without the places of its elements."""
    (x_value,) = node.inputs
    scan = node.op.scan
    if scan is None or len(node.outputs) != 1 or not native(x_value) or s.kind(x_value.dtype) == "b":
        return False
    x = lowering.layout_of(x_value)
    out = _place_like(lowering, node, 0)
    wide = _wide(x.dtype)
    scan_steps(
        lowering, node, [x], [out], node.attrs[0], [s.const(scan.identity_of(wide), wide)],
        lambda state, new, place: [scan.combine(state[0], s.cast(new[0], wide))], "scan",
    )  # fmt: skip
    return True


@lowers("cummax_pair", "cummin_pair")
def lower_running_extreme(lowering: Lowering, node: Node) -> bool:
    """The running extreme and the place of the newest element that equals it; NaN is sticky."""
    (x_value,) = node.inputs
    if not native(x_value) or s.kind(x_value.dtype) == "b":
        return False
    x = lowering.layout_of(x_value)
    values, places = (_place_like(lowering, node, i) for i in range(2))
    wide = _wide(x.dtype)
    assert node.op.scan in (MAX, MIN)
    largest = node.op.scan is MAX
    start = s.const(node.op.scan.identity_of(wide), wide)

    def advance(state: list[Expr], new: list[Expr], place: Expr) -> list[Expr]:
        value = s.cast(new[0], wide)
        takes = s.ge(value, state[0]) if largest else s.le(value, state[0])
        if s.kind(wide) == "f":
            takes = s.bitwise_or(takes, s.isnan(value))
            takes = s.where(s.isnan(state[0]), s.isnan(value), takes)
        return [s.where(takes, value, state[0]), s.where(takes, place, state[1])]

    scan_steps(lowering, node, [x], [values, places], node.attrs[0], [start, s.const(0, np.int64)], advance, "scan")
    return True


@lowers("linear_recurrence")
def lower_recurrence(lowering: Lowering, node: Node) -> bool:
    if not native(*node.inputs):
        return False
    a, b = (lowering.layout_of(v) for v in node.inputs)
    out = _place_like(lowering, node, 0)
    wide = _wide(b.dtype)
    axis, reverse = node.attrs
    scan_steps(
        lowering, node, [a, b], [out], axis, [s.const(0, wide)],
        lambda state, new, place: [s.cast(new[0], wide) * state[0] + s.cast(new[1], wide)], "scan", reverse,
    )  # fmt: skip
    return True
