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

MAX_RECOMPUTED_OPS = 24  # for one value
IDLE_DIVISOR = 50  # a value must be idle for more than a fiftieth of the nodes
NEGLIGIBLE_RATIO = 16  # the lifetime of an operand this many times smaller may be extended


@dataclass(eq=False)
class Candidate:
    """A value worth recomputing: readers at or after node number `cut` get the recomputed one."""

    value: Value
    cut: int
    saved: int  # bytes times the nodes for which they are freed
    needs: set[Value]  # operands that must be alive then


def candidates(flow: Flow, expensive: int = 0) -> list[Candidate]:
    """Candidates by decreasing gain; at most `expensive` matmul-like ops are recomputed for one value."""
    readers = _readers(flow)
    kept = set(flow.outputs)
    found = []
    least = max(8, len(flow.nodes) // IDLE_DIVISOR)
    for node in flow.nodes:
        if not (_cheap(node) or expensive and _pure(node)) or is_view(node) or node.outputs[0] in kept:
            continue
        value = node.outputs[0]
        events = [node.order, *sorted(readers.get(value, ()))]
        gap, cut = max(((b - a, b) for a, b in zip(events, events[1:], strict=False)), default=(0, 0))
        needs = _needs(value, cut, readers, expensive) if gap > least else None
        if needs is not None:
            found.append(Candidate(value, cut, gap * value.nbytes, needs))
    found.sort(key=lambda c: -c.saved)
    # the operands of a candidate stay alive, so they are no candidates
    chosen: dict[Value, Candidate] = {}
    needed: set[Value] = set()
    for c in found:
        if c.value not in needed and not any(v in chosen for v in c.needs):
            chosen[c.value] = c
            needed |= c.needs
    return list(chosen.values())


def recompute(flow: Flow, candidates: list[Candidate]) -> Flow:
    """The flow with these values recomputed; `late` of the result holds the recomputed nodes."""
    chosen = {c.value: c for c in candidates}
    place: dict[Value, Value] = {}  # old -> new value
    second: dict[Any, Value] = {}  # of recomputed values and views of them

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
        if is_view(node):  # recomputed for late readers
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
    return not op.effects and not op.subs


def _cheap(node: Node) -> bool:
    """Whether the node costs no more than a pass over memory."""
    op: Any = node.op
    return _pure(node) and (op.expression is not None or op.element is not None or is_view(node))


def _available(value: Value, at: int, readers: dict[Value, list[int]]) -> bool:
    """Whether the value is alive at node number `at` anyway."""
    node = value.node
    if node.op is PLACEHOLDER or node.op is CONSTANT:
        return True
    return max(readers.get(value, ()), default=-1) >= at


def _needs(value: Value, at: int, readers: dict[Value, list[int]], expensive: int) -> set[Value] | None:
    """The operands for recomputing `value` at node number `at`; None if they are dead by then or it costs too much."""
    limit = value.nbytes // NEGLIGIBLE_RATIO
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
            expensive -= 1
        if len(seen) > MAX_RECOMPUTED_OPS or expensive < 0 or not _pure(v.node):
            return None
        stack += [w for w in v.node.inputs if isinstance(w, Value)]
    return needs
