"""Rematerialisation: recomputes a long-lived value right before its last readers, to save memory.

%a = relu(%x); %b = conv(%a, %w); …; %g = conv_grad(%a, %d)                        before
%a = relu(%x); %b = conv(%a, %w); …; %c = relu(%x); %g = conv_grad(%c, %d)         after

Only ops that cost one pass over memory are recomputed, and only from values that are alive at the later point anyway. This
pass does not run by default: `weft.compiler.build` requests as much of it as a memory budget needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...graph.graph import CONSTANT, PLACEHOLDER, Node, Value
from ..flow import Flow, rebuild
from ..fusion import is_view

DEPTH = 24  # ops that are done again for one value, at most
WAIT = 50  # a value must wait for more than this fraction of the nodes
SMALL = 16  # an operand this many times smaller than the value may live longer for it


@dataclass(eq=False)
class Candidate:
    """A value worth computing again: readers at or after the node number `cut` get the second one."""

    value: Value
    cut: int
    saved: int  # bytes times the nodes during which they are free
    needs: set[Value]  # what must be in memory at that time


def candidates(flow: Flow, dear: int = 0) -> list[Candidate]:
    """What to recompute, the most worthwhile first; for one value at most `dear` products and the like are done again."""
    readers = _readers(flow)
    kept = set(flow.outputs)
    found = []
    least = max(8, len(flow.nodes) // WAIT)
    for node in flow.nodes:
        if not (_cheap(node) or dear and _pure(node)) or is_view(node) or node.outputs[0] in kept:
            continue
        value = node.outputs[0]
        events = [node.order, *sorted(readers.get(value, ()))]
        gap, cut = max(((b - a, b) for a, b in zip(events, events[1:], strict=False)), default=(0, 0))
        needs = _needs(value, cut, readers, dear) if gap > least else None
        if needs is not None:
            found.append(Candidate(value, cut, gap * value.nbytes, needs))
    found.sort(key=lambda c: -c.saved)
    # what one candidate is made from stays in memory, so it is none itself
    chosen: dict[Value, Candidate] = {}
    needed: set[Value] = set()
    for c in found:
        if c.value not in needed and not any(v in chosen for v in c.needs):
            chosen[c.value] = c
            needed |= c.needs
    return list(chosen.values())


def recompute(flow: Flow, candidates: list[Candidate]) -> Flow:
    """The flow with these values computed a second time; `late` of the result holds the second computations."""
    chosen = {c.value: c for c in candidates}
    place: dict[Value, Value] = {}  # old -> new, of everything that was read so far
    second: dict[Any, Value] = {}  # of chosen values, and of views of second values

    def read(new: Flow, value: Value, at: int) -> Value:
        """`value` for a reader at node number `at`."""
        c = chosen.get(value)
        if c is not None and at >= c.cut:
            needs = c.needs
            if value not in second:
                second[value] = new.second(value, lambda v: v not in needs, place, {})
            return second[value]
        if is_view(value.node):
            old = value.node.inputs[0]
            base = read(new, old, at)
            if base is not place[old]:
                key = (value, base)
                if key not in second:
                    second[key] = new.second(value, lambda _: False, {old: base}, {})
                return second[key]
        return place[value]

    def rule(new: Flow, node: Node, args: tuple[Any, ...]) -> Any:
        place.update({v: w for v, w in zip(node.inputs, args, strict=True) if isinstance(v, Value)})
        if is_view(node):  # made anew for late readers
            return None
        return new.again(node, tuple([read(new, v, node.order) if isinstance(v, Value) else v for v in node.inputs]))

    return rebuild(flow, rule)


def _readers(flow: Flow) -> dict[Value, list[int]]:
    """For every value the numbers of the nodes that read it, directly or through views."""
    found: dict[Value, list[int]] = {}
    for node in flow.nodes:
        if is_view(node):
            continue
        for v in node.inputs:
            while isinstance(v, Value):
                found.setdefault(v, []).append(node.order)
                v = v.node.inputs[0] if is_view(v.node) else None
    for v in flow.outputs:
        while isinstance(v, Value):
            found.setdefault(v, []).append(len(flow.nodes))
            v = v.node.inputs[0] if is_view(v.node) else None
    return found


def _pure(node: Node) -> bool:
    op: Any = node.op
    if op is PLACEHOLDER or op is CONSTANT or len(node.outputs) != 1:
        return False
    return not op.effects and not hasattr(op, "subs")


def _cheap(node: Node) -> bool:
    """Whether the node costs no more than a pass over memory."""
    op: Any = node.op
    return _pure(node) and (op.expression is not None or op.name in ("cast", "filled") or is_view(node))


def _available(value: Value, at: int, readers: dict[Value, list[int]]) -> bool:
    """Whether the value is in memory at node number `at` anyway."""
    node = value.node
    if node.op is PLACEHOLDER or node.op is CONSTANT:
        return True
    return max(readers.get(value, ()), default=-1) >= at


def _needs(value: Value, at: int, readers: dict[Value, list[int]], dear: int) -> set[Value] | None:
    """What computing `value` again at node number `at` reads; None if that is not there or takes too much work."""
    limit = value.nbytes // SMALL
    seen: set[Value] = set()
    needs: set[Value] = set()
    stack = [value]
    while stack:
        v = stack.pop()
        if v in seen:
            continue
        seen.add(v)
        if v is not value and not is_view(v.node) and (v.nbytes <= limit or _available(v, at, readers)):
            needs.add(v)
            continue
        if not _cheap(v.node):
            dear -= 1
        if len(seen) > DEPTH or dear < 0 or not _pure(v.node):
            return None
        stack += [w for w in v.node.inputs if isinstance(w, Value)]
    return needs
