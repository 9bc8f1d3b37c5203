"""Reuses rows of a deferred table that a look-up has already brought up to date, instead of updating them twice.

%p:0, … = caught_up(%i, %table, %m, %v, %last, %t, %history)
%new:0, … = adam_rows(%i and others, …, %table, %m, %v, %last, add(%t, 1), %history, None, …)      before
%new:0, … = adam_rows(%i and others, …, %table, %m, %v, %last, add(%t, 1), %history, %p:0, …)      after

See Note [Deferred rows] in `weft.ops.internal.deferred_tables`.
"""

from __future__ import annotations

from typing import Any

from ...graph.graph import CONSTANT, Node, Value
from ...ops.core.registry import get
from ...ops.internal import deferred_tables as deferred_tables  # defines the ops below
from ..flow import Flow, rebuild

_ADD, _CONCAT = get("add"), get("concat_axis")
_ADAM, _CAUGHT_UP, _ROW_NUMBERS = get("adam_rows"), get("caught_up"), get("row_numbers")
_VALUES, _TABLE, _LAST, _STEP, _HISTORY, _KNOWN = 4, 5, 8, 9, 10, 11
"""Operand positions of `adam_rows`."""


def catch_up_once(flow: Flow) -> Flow:
    """Pass the rows of look-ups to the updates of the same rows, where both read the same table."""
    if not any(n.op is _ADAM for n in flow.nodes):
        return flow
    rows: dict[Any, Value] = {}  # operands of a look-up -> its rows

    def rule(new: Flow, node: Node, args: tuple[Any, ...]) -> Any:
        if node.op is _CAUGHT_UP:
            made = new.again(node, args)
            index, table, mean, square, last, step, history = args
            rows[_numbered(index), table, mean, square, last, step, history] = made[0]
            return made
        if node.op is not _ADAM or args[_LAST] is None or args[_KNOWN] is not None:
            return None
        before = _one_less(args[_STEP])
        if before is None:
            return None
        known = rows.get((_named(args[0]), *args[_TABLE : _LAST + 1], before, args[_HISTORY]))
        if known is None or tuple(known.shape) != tuple(args[_VALUES].shape):
            return None
        return new.again(node, (*args[:_KNOWN], known, *args[_KNOWN + 1 :]))

    return rebuild(flow, rule)


def _numbered(index: Value) -> Value:
    """Indices before normalisation to row numbers, which is idempotent."""
    while index.node.op is _ROW_NUMBERS:
        index = index.node.inputs[0]
    return index


def _named(index: Value) -> Value:
    """The updated rows that come from the gradient: they precede the others."""
    index = _numbered(index)
    if index.node.op is _CONCAT and len(index.shape) == 1:
        index = index.node.inputs[0]
    return _numbered(index)


def _one_less(step: Value) -> Value | None:
    """`t`, if `step` is t + 1."""
    if step.node.op is not _ADD:
        return None
    a, b = step.node.inputs
    for t, one in ((a, b), (b, a)):
        if one.node.op is CONSTANT and one.node.attrs[0].size == 1 and one.node.attrs[0].item() == 1:
            return t
    return None
