"""Partial runs: one step of a session in several calls, each of which feeds some tensors and fetches others.

Every node of the step runs at most once, in the first call that needs it. After a call, the values that later calls may need are
kept: outputs of nodes that have run which are inputs of nodes that have not.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...autograd.tree import flatten, unflatten
from ...tensor import Tensor, wrap
from ..declared.routing import has_routing
from ..graph import CONSTANT, PLACEHOLDER, Node, Value
from .executor import needed_nodes

if TYPE_CHECKING:
    from .session import Session


class PartialRun:
    """The handle of a partial run: what may still be fed and fetched, and what is known."""

    def __init__(self, session: Session, fetches: Any, feeds: Sequence[Any]) -> None:
        self.session = session
        self.fetches: set[Value | Node] = {session._fetch_target(x) for x in flatten(fetches)[0]}
        self.feeds: set[Value] = {session._feed_target(t) for t in feeds}
        wanted = [t.node if isinstance(t, Value) else t for t in self.fetches if t not in self.feeds]
        self.nodes = needed_nodes(sorted(wanted, key=lambda n: n.order), self.feeds)
        if has_routing(self.nodes):
            raise ValueError(
                "partial_run_setup: the step has routing ops (`wf.enter`, `wf.switch` …), whose nodes run many times. Use "
                "`wf.while_loop` and `wf.cond`, or one `run`."
            )
        self.done: set[Node] = set()
        self.known: dict[Value, Any] = {}  # arrays that were fed, or that later calls need
        self.lock = threading.Lock()
        self._path: tuple[Any, ...] = (frozenset(self.fetches), frozenset(self.feeds))  # of the calls so far

    def call(self, fetches: Any, feeds: Mapping[Value, Any], timeout: float | None) -> Any:
        """One part of the step: feed `feeds` and return the values of `fetches`."""
        leaves, structure = flatten(fetches)
        targets = [self.session._fetch_target(x) for x in leaves]
        with self.lock:
            self._check(targets, feeds)
            self.known.update(feeds)
            new = [t for t in dict.fromkeys(targets) if t not in self.known and t not in self.done]
            if new:
                self._run(new, timeout)
            return unflatten(structure, [wrap(self.known[t]) if isinstance(t, Value) else None for t in targets])

    def _check(self, targets: Sequence[Value | Node], feeds: Mapping[Value, Any]) -> None:
        for t in targets:
            if t not in self.fetches:
                raise ValueError(f"partial_run: {t.name!r} was not among the fetches of `partial_run_setup`.")
        for v in feeds:
            if v not in self.feeds:
                raise ValueError(f"partial_run: {v.name!r} was not among the feeds of `partial_run_setup`.")
            if v in self.known:
                raise ValueError(f"partial_run: {v.name!r} was fed by an earlier call of this partial run.")

    def _run(self, new: list[Value | Node], timeout: float | None) -> None:
        """Run the nodes that `new` still needs and keep what later calls need."""
        session = self.session
        given = set(self.known)
        nodes = needed_nodes([t.node if isinstance(t, Value) else t for t in new], given)
        nodes = [n for n in nodes if n not in self.done]
        for node in nodes:
            for v in node.outputs if node.op is PLACEHOLDER else node.inputs:
                if isinstance(v, Value) and v in self.feeds and v not in given:
                    raise ValueError(f"partial_run: {v.name!r} must be fed before {new[0].name!r} is fetched.")
        running = {n for n in nodes if n.op is not CONSTANT and n.op is not PLACEHOLDER}
        later = [n for n in self.nodes if n not in running and n not in self.done]
        kept = dict.fromkeys(v for n in later for v in n.inputs if isinstance(v, Value) and v.node in running)
        kept.update(dict.fromkeys(t for t in self.fetches if isinstance(t, Value) and t.node in running))
        values = [v for v in dict.fromkeys([*[t for t in new if isinstance(t, Value)], *kept]) if v not in given]
        targets: list[Value | Node] = [*values, *[t for t in new if isinstance(t, Node)]]
        fed = sorted(given, key=lambda v: (v.node.order, v.index))
        self._path = (*self._path, tuple(new), tuple(fed))
        step = session._steps.get(self._path)
        if step is None:
            step = session._prepare(targets, fed, frozenset(self.done))
            session._steps.put(self._path, step)
        arrays = session._run_step(step, [self.known[v] for v in fed], timeout)
        self.known.update(
            {v: a._array("partial_run") for v, a in zip(values, arrays, strict=False) if isinstance(a, Tensor)}
        )
        self.done |= running
