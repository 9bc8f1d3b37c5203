"""Lowers LSTM layers to a native loop over time whose body is one kernel (see `kernels/recurrent.py`).

The weights are packed once per sequence. A step reads the state that the previous step wrote into the results themselves,
through cursors that advance with time: nothing is copied. Masks, other dtypes and odd sizes are decomposed or run on the
host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ....graph.graph import Node, Value
from ...flow import filled_with
from ...fusion import base_of
from ...loop_ir.ir import Kernel
from ...loop_ir.kernels import recurrent as kernels
from ...loop_ir.kernels.panels import pack_panels
from ...program.layout import Layout, Storage, row_major
from ...program.steps import KernelCall, Move, Scan, Step
from ..registry import lowers

if TYPE_CHECKING:
    from ..lower import Lowering

MAX_BATCH = 4096


def serves(gates: Any, weight_hh: Any, mask: Any) -> bool:
    """Whether the kernels support such a layer: whole vectors of hidden units. Takes tensors or values."""
    shape, size = tuple(gates.shape), weight_hh.shape[-1]
    return (
        gates.dtype == np.float32
        and mask is None
        and all(isinstance(d, int) and d > 0 for d in (*shape, size))
        and size % kernels.UNITS == 0
        and shape[1] <= MAX_BATCH
    )


def _dense(lowering: Lowering, value: Value | None, node: Node) -> Layout | None:
    """An operand with a contiguous last axis and no broadcast axes."""
    if value is None:
        return None
    layout = lowering.layout_of(value)
    return layout if layout.strides[-1] == 1 else lowering.copy(layout, node)


def _step(node: Node, label: str, kernel: Kernel, reads: Sequence[Layout | None], writes: Sequence[Layout]) -> Step:
    inputs = [x.storage for x in reads if x is not None]
    outputs = [x.storage for x in writes]
    return KernelCall(label, [node], inputs, outputs, kernel, [*inputs, *outputs])


def _is_zero(value: Value) -> bool:
    """Whether the value is known to be zero everywhere."""
    return filled_with(base_of(value)) == 0


class _Walk:
    """Builds the steps of a loop over time; `at` is a slice at a fixed time, `cursor` one that advances."""

    def __init__(self, lowering: Lowering, node: Node) -> None:
        self.lowering, self.node = lowering, node
        self.moves: list[Move] = []
        self.wholes: list[Storage] = []

    @staticmethod
    def at(whole: Layout | None, time: int) -> Layout | None:
        if whole is None:
            return None
        offset = whole.offset + time * whole.strides[0]
        return Layout(whole.storage, whole.dtype, whole.shape[1:], whole.strides[1:], offset)

    def cursor(self, whole: Layout | None, first: int, direction: int) -> Layout | None:
        """The slice at time `first`, then `first + direction`, …"""
        if whole is None:
            return None
        storage = self.lowering.new_storage("cursor", whole.storage.nbytes)
        stride = whole.strides[0] * whole.dtype.itemsize
        self.moves.append(Move(storage, whole.storage, whole.byte_offset + first * stride, direction * stride))
        self.wholes.append(whole.storage)
        return Layout(storage, whole.dtype, whole.shape[1:], whole.strides[1:])

    def loop(self, count: int, steps: list[Step], fixed: Sequence[Layout]) -> None:
        """`count` iterations of `steps`, which also use the layouts `fixed`."""
        if count > 0:
            used = [*self.wholes, *[x.storage for x in fixed]]
            self.lowering.steps.append(Scan("lstm", [self.node], used, used, list(steps), count, self.moves))


def _pack(lowering: Lowering, node: Node, weight: Layout, kernel: Callable[[Layout, Layout], Kernel]) -> Layout:
    (depth, width) = weight.shape
    panels = lowering.temporary((depth * width,), weight.dtype)
    packed = Layout(panels.storage, weight.dtype, (1, depth * width), (depth * width, 1))
    lowering.steps.append(_step(node, "pack weights", kernel(weight, packed), [weight], [packed]))
    return packed


@lowers("lstm_sequence")
def lower_lstm(lowering: Lowering, node: Node) -> bool:
    """`hidden`, `cells` and `acts` of all times, each step from the results of the one before."""
    gates_value, h_value, c_value, w_value, mask = node.inputs
    (reverse,) = node.attrs
    if not serves(gates_value, w_value, mask):
        return False
    gates, h0, c0, weight = (_dense(lowering, v, node) for v in (gates_value, h_value, c_value, w_value))
    assert gates is not None and h0 is not None and c0 is not None and weight is not None
    results = [lowering.place(node, i, row_major(tuple(v.shape)), node, None) for i, v in enumerate(node.outputs)]
    packed = _pack(lowering, node, weight, kernels.pack_gates)
    count = gates.shape[0]
    first, direction = (count - 1, -1) if reverse else (0, 1)
    walk = _Walk(lowering, node)

    def one(a: Any, h: Any, c: Any, outs: Any) -> Step:
        w = packed if h is not None else None
        hidden, cells, acts = outs
        kernel = kernels.lstm_step(a, h, c, w, hidden, cells, acts, lowering.target, lowering.open_sizes)
        return _step(node, "lstm step", kernel, [a, h, c, w], outs)

    # a NaN weight shows up from the second step on
    start = None if count > 1 and _is_zero(h_value) else h0
    lowering.steps.append(one(walk.at(gates, first), start, c0, [walk.at(r, first) for r in results]))
    if count > 1:
        a = walk.cursor(gates, first + direction, direction)
        h, c = (walk.cursor(r, first, direction) for r in results[:2])
        outs = [walk.cursor(r, first + direction, direction) for r in results]
        walk.loop(count - 1, [one(a, h, c, outs)], [packed])
    return True


@lowers("lstm_sequence_backward")
def lower_lstm_backward(lowering: Lowering, node: Node) -> bool:
    """The gradient of the gates of all times, from the last to the first, then those of the initial state."""
    gh_value, gc_value, c_value, w_value, cells_value, acts_value, mask = node.inputs
    (reverse,) = node.attrs
    if not serves(acts_value, w_value, mask):
        return False
    values = (gh_value, gc_value, c_value, w_value, cells_value, acts_value)
    gh, gc, c0, weight, cells, acts = (_dense(lowering, v, node) for v in values)
    assert c0 is not None and weight is not None and cells is not None and acts is not None
    out, g_h0, g_c0 = (
        lowering.place(node, i, row_major(tuple(v.shape)), node, None) for i, v in enumerate(node.outputs)
    )
    panels = partial(pack_panels, width=kernels.COLUMNS, target=lowering.target)
    packed = _pack(lowering, node, weight, panels)
    lowering.fill(g_c0, 0, node)  # carries the gradient of the cells from step to step
    count = acts.shape[0]
    last, direction = (0, 1) if reverse else (count - 1, -1)  # start and direction of the loop
    end = last + direction * (count - 1)
    walk = _Walk(lowering, node)

    def one(later: Any, w: Any, xs: Sequence[Any], before: Any, out: Any) -> Step:
        gh, gc, acts, cells = xs
        kernel = kernels.lstm_step_backward(
            later, w, gh, gc, acts, cells, before, g_c0, out, lowering.target, lowering.open_sizes
        )
        return _step(node, "lstm step backward", kernel, [later, w, gh, gc, acts, cells, before], [g_c0, out])

    def fixed(time: int, later: Any, before: Any) -> Step:
        xs = [walk.at(x, time) for x in (gh, gc, acts, cells)]
        return one(later, None if later is None else packed, xs, before, walk.at(out, time))

    lowering.steps.append(fixed(last, None, walk.at(cells, last + direction) if count > 1 else c0))
    if count > 2:
        start = last + direction
        later = walk.cursor(out, last, direction)
        xs = [walk.cursor(x, start, direction) for x in (gh, gc, acts, cells)]
        before = walk.cursor(cells, start + direction, direction)
        target = walk.cursor(out, start, direction)
        walk.loop(count - 2, [one(later, packed, xs, before, target)], [packed, g_c0])
    if count > 1:
        lowering.steps.append(fixed(end, walk.at(out, end - direction), c0))
    whole = walk.at(out, end)
    assert whole is not None
    if lowering.is_read(node.outputs[1]):  # layers mostly start from zeros, whose gradient is not used
        lowering.steps.append(
            _step(
                node,
                "lstm initial state",
                kernels.times_panels(whole, packed, g_h0, lowering.target, lowering.open_sizes),
                [whole, packed],
                [g_h0],
            )
        )
    return True
