"""Lowering of structured control flow to native branches and loops over nested steps.

A branch writes its results into the node's result storages. A loop keeps its state in memory that lives as long as the
loop; every iteration computes the new state and then copies it over the old one. A scan reads slices of its inputs and
writes slices of its outputs through *cursors*: storages whose address advances with each iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...graph.graph import Node
from ..flow import from_graph
from ..program.layout import Layout, Storage, row_major
from ..program.steps import Branch, Move, Scan, Step, WhileLoop
from .lower import Lowering

if TYPE_CHECKING:
    from ...graph.capture.subgraph import Sub


def lower_control(lowering: Lowering, node: Node) -> None:
    """Add the steps of a cond, while or scan node."""
    {"cond": _cond, "while": _while, "scan": _scan}[node.op.kind](lowering, node)


def _sub_steps(
    lowering: Lowering,
    sub: Sub,
    outer: Sequence[Any],
    formals: Sequence[Layout],
    captured: Sequence[Layout],
    targets: Sequence[Layout],
) -> list[Step]:
    """The steps of a subgraph on the given inputs, with its results in `targets`."""
    from ..passes import optimise

    layout_of = {id(t): layout for t, layout in zip(outer, captured, strict=True)}
    inputs = [*sub.formals, *sub.graph.entries]
    flow = optimise(from_graph(sub.graph, inputs, sub.outputs), lowering.target)
    inner = Lowering(flow, lowering.target)
    inner.storages = lowering.storages
    inner.run([*formals, *[layout_of[id(t)] for t in sub.captured]], list(targets))
    return inner.steps


def _place_all(lowering: Lowering, node: Node) -> list[Layout]:
    return [lowering.place(node, i, row_major(tuple(v.shape)), node, None) for i, v in enumerate(node.outputs)]


def _cond(lowering: Lowering, node: Node) -> None:
    count = node.op.facts["operands"]
    flag = lowering.layout_of(node.inputs[0])
    if flag.offset:
        flag = lowering.copy(flag, node)
    operands = [lowering.layout_of(v) for v in node.inputs[1 : 1 + count]]
    captured = [lowering.layout_of(v) for v in node.inputs[1 + count :]]
    targets = _place_all(lowering, node)
    branches = [_sub_steps(lowering, sub, node.op.facts["outer"], operands, captured, targets) for sub in node.op.subs]
    lowering.steps.append(
        Branch("cond", [node], [flag.storage, *[x.storage for x in (*operands, *captured)]], [x.storage for x in targets],
               flag.storage, *branches)
    )  # fmt: skip


def _while(lowering: Lowering, node: Node) -> None:
    count = node.op.facts["operands"]
    condition, body = node.op.subs
    outer = node.op.facts["outer"]
    captured = [lowering.layout_of(v) for v in node.inputs[count:]]
    state = [lowering.temporary(tuple(v.shape), v.dtype) for v in node.outputs]
    for value, layout in zip(node.inputs[:count], state, strict=True):
        lowering.copy(lowering.layout_of(value), node, layout)
    flag = lowering.temporary(tuple(condition.outputs[0].shape), np.dtype(np.bool_))
    test = _sub_steps(lowering, condition, outer, state, captured, [flag])
    new = [lowering.temporary(x.shape, x.dtype) for x in state]
    work = _sub_steps(lowering, body, outer, state, captured, new)
    work += _copies(lowering, node, new, state)
    lowering.steps.append(
        WhileLoop("while", [node], [x.storage for x in (*captured, *state)], [x.storage for x in (*state, *new, flag)],
                  flag.storage, test, work)
    )  # fmt: skip
    for layout, target in zip(state, _place_all(lowering, node), strict=True):
        lowering.copy(layout, node, target)


def _copies(lowering: Lowering, node: Node, sources: Sequence[Layout], targets: Sequence[Layout]) -> list[Step]:
    """Copy steps, detached from the main list."""
    mark = len(lowering.steps)
    for source, target in zip(sources, targets, strict=True):
        lowering.copy(source, node, target)
    made = lowering.steps[mark:]
    del lowering.steps[mark:]
    return made


def _scan(lowering: Lowering, node: Node) -> None:
    facts = node.op.facts
    carries, xs_count, n, reverse = facts["carry"], facts["xs"], facts["n"], facts["reverse"]
    (body,) = node.op.subs
    xs = [lowering.layout_of(v) for v in node.inputs[carries : carries + xs_count]]
    captured = [lowering.layout_of(v) for v in node.inputs[carries + xs_count :]]
    state = [lowering.temporary(tuple(v.shape), v.dtype) for v in node.outputs[:carries]]
    for value, layout in zip(node.inputs[:carries], state, strict=True):
        lowering.copy(lowering.layout_of(value), node, layout)
    results = _place_all(lowering, node)
    ys = results[carries : carries + facts["ys"]]
    kept = results[carries + facts["ys"] :]
    cursors: list[tuple[Storage, Layout]] = []

    def cursor(whole: Layout) -> Layout:
        """One slice of `whole` along axis 0, at the address of the current iteration."""
        storage = lowering.new_storage("cursor", whole.storage.nbytes)
        cursors.append((storage, whole))
        return Layout(storage, whole.dtype, whole.shape[1:], whole.strides[1:])

    x_slices = [cursor(x) for x in xs]
    y_slices = [cursor(y) for y in ys]
    kept_slices = [cursor(k) for k in kept]
    new = [lowering.temporary(x.shape, x.dtype) for x in state]
    work = _copies(lowering, node, state, kept_slices) if kept else []
    work += _sub_steps(lowering, body, facts["outer"], [*state, *x_slices], captured, [*new, *y_slices])
    work += _copies(lowering, node, new, state)
    moves = []
    for storage, whole in cursors:
        stride = whole.strides[0] * whole.dtype.itemsize
        start = whole.byte_offset + ((n - 1) * stride if reverse else 0)
        moves.append(Move(storage, whole.storage, start, -stride if reverse else stride))
    lowering.steps.append(
        Scan("scan", [node], [x.storage for x in (*xs, *captured, *state)],
             [x.storage for x in (*state, *new, *ys, *kept)], work, n, moves)
    )  # fmt: skip
    for layout, target in zip(state, results[:carries], strict=True):
        lowering.copy(layout, node, target)
