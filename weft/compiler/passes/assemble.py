"""Replaces a sum of slices padded with zeros by one concatenation.

%p = put_into_zeros(%q, (3, n), [0]); %r = put_into_zeros(%k, (3, n), [1]); %s = add(%p, %r)      before
%s = concat_axis(%q, %k, 0 …, axis=0)                                                            after

The gradient of `q, k, v = x[0], x[1], x[2]` or `x.split(...)` has this form.
"""

from __future__ import annotations

from typing import Any

from ...graph.graph import Node, Value
from ...ops.array.indexing import Slice
from ...ops.core.registry import get
from ...ops.core.spec import Spec
from ..flow import FILLED, Flow, rebuild

_ADD, _CONCAT, _PUT, _RESHAPE = map(get, ("add", "concat_axis", "put_into_zeros", "reshape"))

Segments = list[tuple[int, int, Value | None]]
"""(start, stop, value; None for zeros) along one axis, in order."""


def assemble(flow: Flow) -> Flow:
    """Replace sums of values that are zero outside disjoint parts along one axis by one concatenation."""
    if not any(n.op is _PUT for n in flow.nodes):
        return flow
    uses = flow.uses()
    known: dict[Value, tuple[int, Segments]] = {}  # of values of the new flow

    def rule(new: Flow, node: Node, args: tuple[Any, ...]) -> Any:
        if node.op is _PUT:
            found = _part(node, args[0])
            if found is None:
                return None
            made = new.again(node, args)
            known[made[0]] = found
            return made
        if node.op is not _ADD or any(uses.get(v) != 1 for v in node.inputs if isinstance(v, Value)):
            return None
        a, b = (known.get(v) for v in args)
        if a is None or b is None or a[0] != b[0] or tuple(args[0].shape) != tuple(args[1].shape):
            return None
        merged = _merged(a[1], b[1])
        if merged is None:
            return None
        value = _concat(new, node.outputs[0], a[0], merged)
        known[value] = (a[0], merged)
        return (value,)

    return rebuild(rebuild(flow, rule))  # the second rebuild removes dead zeros


def _part(node: Node, value: Value) -> tuple[int, Segments] | None:
    """The single axis and the range where a `put_into_zeros` puts its operand."""
    shape, index = node.attrs
    axis, start, stop = -1, 0, 0
    position = 0
    items = list(index)
    taken = sum(1 for i in items if i is not None and i is not Ellipsis)
    for item in items:
        if item is None:
            return None
        if item is Ellipsis:
            position += len(shape) - taken
            continue
        size = shape[position]
        if item.__class__ is Slice:
            first, last, step = slice(*item).indices(size)
            if step != 1:
                return None
            here = (first, last)
        else:
            here = (item % size, item % size + 1)
        if here != (0, size) or item.__class__ is not Slice:
            if axis >= 0:
                return None
            axis, (start, stop) = position, here
        position += 1
    if axis < 0 or stop <= start:
        return None
    segments: Segments = [(0, start, None), (start, stop, value), (stop, shape[axis], None)]
    return axis, [s for s in segments if s[1] > s[0]]


def _merged(a: Segments, b: Segments) -> Segments | None:
    """The merged parts, if they are disjoint."""
    taken = sorted([s for s in (*a, *b) if s[2] is not None], key=lambda s: s[0])
    merged: Segments = []
    at = 0
    for start, stop, value in taken:
        if start < at:
            return None
        if start > at:
            merged.append((at, start, None))
        merged.append((start, stop, value))
        at = stop
    end = a[-1][1]
    return merged if at == end else [*merged, (at, end, None)]


def _concat(new: Flow, out: Value, axis: int, segments: Segments) -> Value:
    parts = []
    for start, stop, value in segments:
        shape = (*out.shape[:axis], stop - start, *out.shape[axis + 1 :])
        spec = (Spec(shape, out.dtype),)
        if value is None:
            parts.append(new.add(FILLED, (), (shape, 0, out.dtype), spec).outputs[0])
        elif tuple(value.shape) != shape:
            parts.append(new.add(_RESHAPE, (value,), (shape, None), spec).outputs[0])
        else:
            parts.append(value)
    if len(parts) == 1:
        return parts[0]
    return new.add(_CONCAT, tuple(parts), (axis,), (Spec(out.shape, out.dtype),)).outputs[0]
