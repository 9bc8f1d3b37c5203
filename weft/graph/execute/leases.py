"""Leases: return the dequeued elements of an abandoned step to their queue.

Note [Leases]. A step may dequeue an element and then be abandoned: its deadline passes, it is cancelled or interrupted, or a
queue that it waits for is closed. To lose no element, a dequeued element is a *lease* until the step ends. If the step
succeeds, the leases end with it. If it is abandoned, an element that had no effect yet returns to the front of its queue, in
the original order. It had an effect if an assign, an enqueue or a save that depends on the dequeue has run since. So a step
of one dequeue and one assign happens entirely or not at all.

A step with several effects on one device ignores its deadline once the first has happened, except where a node waits (for
space in a queue, say) or loops, so it completes as well. Parts on other devices may be abandoned at that moment.

If the computation on an element raises an error, the element stays consumed: retrying would raise again.

Leases and effects are recorded in the `Run` where they happen, those of a queue under the queue's lock. Withdrawing a pending
call takes the same lock, so once an executor has withdrawn its calls the records are complete.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any, NamedTuple

from ...runtime.interrupts import Interrupted, watched
from ..graph import Node, Value
from .run import CancelledError, Run


class Lease(NamedTuple):
    """What one dequeue has taken, and when, by the clock of its run."""

    op: Any
    queue: Any
    elements: list[Any]
    time: int


def lease(run: Any, op: Any, queue: Any, elements: list[Any]) -> None:
    """A dequeue of `run` has taken `elements`."""
    if isinstance(run, Run) and elements:
        run.leases.append(Lease(op, queue, elements, next(run.clock)))


def note_effects(ops: Iterable[Any], run: Any = None) -> None:
    """Record that the effects of `ops` have happened; by default in the step that this thread runs."""
    run = watched.by if run is None else run
    if isinstance(run, Run) and (run.leases or run.leased_elsewhere):  # without leases there is nothing to return
        now = next(run.clock)
        for op in ops:
            run.effects[op] = now


def is_given_up(run: Run, error: BaseException) -> bool:
    """Whether `error` ended the step from outside, rather than in one of its nodes."""
    from ..declared.queues import QueueClosedError

    if not isinstance(error, Exception) or isinstance(error, (CancelledError, QueueClosedError, Interrupted)):
        return True
    return isinstance(error, TimeoutError) and run.expired


def give_back(run: Run, nodes: Sequence[Node], used_elsewhere: Container[Any] = ()) -> None:
    """Return the elements that a step of `nodes` has taken and not used. It must not be running any more.

    Args:
        used_elsewhere: dequeues on which an effect in another process depends that has happened.
    """
    leases, run.leases = run.leases, []
    used: dict[int, int] = {}  # by dequeue: when something that depends on it last had an effect
    for node in nodes:
        time = run.effects.get(node.op)
        if time is not None:
            for before in ancestors(node):
                used[id(before.op)] = max(time, used.get(id(before.op), 0))
    for taken in reversed(leases):
        if used.get(id(taken.op), -1) < taken.time and taken.op not in used_elsewhere:
            taken.queue.give_back(taken.elements)


def ancestors(node: Node) -> set[Node]:
    """The nodes that `node` depends on."""
    seen: set[Node] = set()
    stack = [node]
    while stack:
        for source in (*stack[-1].inputs, *stack.pop().control):
            before = source.node if source.__class__ is Value else source
            if before.__class__ is Node and before not in seen:
                seen.add(before)
                stack.append(before)
    return seen
