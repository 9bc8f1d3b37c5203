"""The dataflow executor: run the units of a step as soon as their dependencies are done.

Units (Note [Regions]) run on the calling thread, and on a small pool
of threads when several are ready. A blocking node (a queue op) is started and occupies no thread: its queue calls back. So
any number of them may wait, and the pool cannot deadlock. `weft.graph.execute.naive` is the reference that gives the
same results.

Contract: several threads may run one step at once. When a node fails, when the step is cancelled or its deadline passes,
no further unit starts, waiting queue ops are withdrawn, units that run are completed, and then the error is raised: an
assign happens wholly or not at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.interrupts import watched
from ..declared.building import NO_OP, GraphOp
from ..declared.deferred_nodes import DeferredOp
from ..declared.variables import ReadOp, WriteOp
from ..graph import CONSTANT, PLACEHOLDER, Node, Value
from .interpret import located, run_node
from .regions import Region
from .run import Run
from .threads import pool

ndarray = np.ndarray


class Unit:
    """The unit of execution: a region, or a single node."""

    __slots__ = (
        "index",
        "nodes",
        "region",
        "inputs",
        "outputs",
        "after",
        "consumers",
        "device",
        "start",
        "size",
        "seconds",
    )

    def __init__(self, nodes: Sequence[Node], device: Any = None) -> None:
        self.nodes = list(nodes)
        self.device = device
        self.region: Region | None = None
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.after: set[int] = set()  # units that must have run
        self.consumers: list[int] = []
        self.index = 0
        self.start: Callable[..., Any] | None = None  # for blocking nodes
        self.size = len(nodes)  # in nodes of the graph
        self.seconds = 0.0  # how long it took the last time

    @property
    def node(self) -> Node:
        return self.nodes[0]

    def __repr__(self) -> str:
        return f"<unit {', '.join(n.name for n in self.nodes[:4])}{' …' if len(self.nodes) > 4 else ''}>"

    def run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        return self.region.run(arrays) if self.region is not None else run_node(self.node, arrays)


def is_single(node: Node) -> bool:
    """Whether a node must be a separate unit."""
    return (
        isinstance(node.op, GraphOp) and not isinstance(node.op, (ReadOp, WriteOp, DeferredOp)) and node.op is not NO_OP
    )


def needed_nodes(targets: Sequence[Node], fed: frozenset[Value] | set[Value]) -> list[Node]:
    """The ancestors of `targets`, cut at the values in `fed`, in the order of declaration."""
    seen: set[Node] = set()

    def need(nodes: Sequence[Node]) -> None:
        stack = list(nodes)
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            for v in node.inputs:
                if v.__class__ is Value and v not in fed:
                    stack.append(v.node)
            stack.extend(node.control)

    need(targets)
    graph = targets[0].graph if targets else None
    updates = getattr(graph, "updates", None)
    while updates:  # what a module writes in place happens in every step that computes its result
        more = [n for n, causes in updates.items() if n not in seen and any(c in seen for c in causes)]
        if not more:
            break
        need(more)
    for node in getattr(graph, "observers", ()):
        if node not in seen and all(v.__class__ is not Value or v in fed or v.node in seen for v in node.inputs):
            seen.add(node)
    return sorted(seen, key=lambda n: n.order)


class Plan:
    """The units of a step and how they depend on each other."""

    def __init__(
        self, nodes: Sequence[Node], fed: set[Value], fetched: Sequence[Value], devices: dict[Node, Any] | None = None
    ) -> None:
        self.nodes = list(nodes)
        self.fed, self.fetched = fed, list(fetched)
        self.constants = {n.outputs[0]: n.attrs[0] for n in nodes if n.op is CONSTANT}
        self.devices = devices or {}
        self.unit_of: dict[Node, Unit] = {}
        self.units = self._regions()
        for i, unit in enumerate(self.units):
            unit.index = i
            for n in unit.nodes:
                self.unit_of[n] = unit
        self._connect()
        self.counts = [len(u.after) for u in self.units]
        self.initial = [u for u in self.units if not u.after]

    def _work(self) -> list[Node]:
        return [
            n for n in self.nodes if n.op is not CONSTANT and not (n.op is PLACEHOLDER and n.outputs[0] in self.fed)
        ]

    def _regions(self) -> list[Unit]:
        nodes = self._work()
        masks: dict[Node, int] = {}
        bits: dict[Node, int] = {}
        crossings: dict[Node, int] = {}  # a value that comes from another device is waited for like a blocking node
        for node in nodes:
            mask = 0
            for p in self._before(node):
                mask |= masks.get(p, 0) | bits.get(p, 0)
                if self.devices.get(p) != self.devices.get(node) and p in masks:
                    if p not in crossings:
                        crossings[p] = 1 << (len(bits) + len(crossings))
                    mask |= crossings[p]
            masks[node] = mask
            if is_single(node):
                bits[node] = 1 << (len(bits) + len(crossings))
        home: dict[Node, Any] = {n: (masks[n], self.devices.get(n)) for n in nodes if n not in bits}
        self._sink_reads(nodes, home)
        units: dict[Any, Unit] = {}
        found: list[Unit] = []
        for node in nodes:
            if node in bits:
                found.append(Unit([node], self.devices.get(node)))
                continue
            unit = units.get(home[node])
            if unit is None:
                unit = units[home[node]] = Unit([], self.devices.get(node))
                found.append(unit)
            unit.nodes.append(node)
        return found

    def _sink_reads(self, nodes: Sequence[Node], home: dict[Node, Any]) -> None:
        """Move a read that only one region uses into that region, which then reads in place instead of a copy."""
        users: dict[Node, set[Any]] = {}
        for node in nodes:
            for p in self._before(node):
                users.setdefault(p, set()).add(home.get(node, node))
        fetched = {v.node for v in self.fetched}
        for node in nodes:
            if node.op.__class__ is ReadOp and not node.control and node not in fetched:
                used = users.get(node, set())
                (only,) = used if len(used) == 1 else (None,)
                if only is not None and not isinstance(only, Node) and only[1] == home[node][1]:
                    home[node] = only

    def _before(self, node: Node) -> list[Node]:
        return [v.node for v in node.inputs if v.__class__ is Value and v not in self.fed] + list(node.control)

    def _connect(self) -> None:
        wanted = set(self.fetched)
        for unit in self.units:
            for node in unit.nodes:
                for p in self._before(node):
                    other = self.unit_of.get(p)
                    if other is not None and other is not unit:
                        unit.after.add(other.index)
                for v in node.inputs:
                    if v.__class__ is Value and (v in self.fed or self.unit_of.get(v.node) is not unit):
                        if v in self.constants:
                            continue
                        wanted.add(v)
        for unit in self.units:
            made = [v for n in unit.nodes for v in n.outputs]
            if len(unit.nodes) == 1 and is_single(unit.node):
                unit.inputs = list(unit.node.inputs)
                unit.outputs = made
                unit.start = getattr(unit.node.op, "start", None)
            else:
                inside = set(made)
                inputs = dict.fromkeys(
                    v for n in unit.nodes for v in n.inputs
                    if v.__class__ is Value and v not in inside and v not in self.constants
                )  # fmt: skip
                constants = dict.fromkeys(
                    v.node
                    for n in unit.nodes
                    for v in n.inputs
                    if v.__class__ is Value and v in self.constants and v not in self.fed
                )
                unit.inputs = list(inputs)
                unit.outputs = [v for v in made if v in wanted]
                unit.size = len(unit.nodes)
                reference = getattr(unit.device, "kind", "cpu") == "ref"
                unit.region = Region([*constants, *unit.nodes], unit.inputs, unit.outputs, reference)
            for i in unit.after:
                self.units[i].consumers.append(unit.index)


class Engine:
    """The coordinator of one run: starts units, collects their results, stops at the first error."""

    def __init__(self, plan: Plan, run: Run, env: dict[Value, Any], threads: bool) -> None:
        self.plan, self.run_state, self.env, self.threads = plan, run, env, threads
        self.finished: deque[tuple[Unit, Any, Any]] = deque()  # (unit, error, outputs) from other threads
        self.pending: dict[Unit, Any] = {}  # started and not finished: how to withdraw them, or None
        self.counts = list(plan.counts)
        self.ready = deque(plan.initial)
        self.executed = 0

    def execute(self) -> None:
        """Run all units; on an error leave nothing running and raise it."""
        watched.by = self.run_state
        try:
            self._loop()
        except BaseException as error:
            if not isinstance(error, Exception):  # Ctrl-C: loops on other threads end too
                self.run_state.cancel("It was interrupted.")
            self._stop()
            raise
        finally:
            watched.by = None
        with self.run_state.changed:  # other devices count too
            self.run_state.executed += self.executed

    def _loop(self) -> None:
        run, ready = self.run_state, self.ready
        while True:
            while ready:
                run.check_start()
                unit = ready.popleft()
                if unit.start is not None:
                    self._start(unit)
                elif self.threads and (ready or self.pending) and unit.region is not None:
                    self.pending[unit] = None
                    pool().submit(self._run_elsewhere, unit, self._inputs(unit))
                else:
                    self._complete(unit, unit.run(self._inputs(unit)))
                if self.finished:
                    self._collect()
            if not self.pending:
                return
            self._wait()
            self._collect()

    def _inputs(self, unit: Unit) -> list[Any]:
        env, constants = self.env, self.plan.constants
        return [(env[v] if v in env else constants[v]) if v.__class__ is Value else v for v in unit.inputs]

    def _start(self, unit: Unit) -> None:
        """Start a blocking node; it reports from any thread, perhaps at once."""
        self.pending[unit] = None

        def done(error: BaseException | None, outputs: Sequence[Any]) -> None:
            self._report(unit, error, outputs)

        assert unit.start is not None
        try:
            withdraw = unit.start(self._inputs(unit), done, self.run_state)
        except Exception as error:
            del self.pending[unit]
            raise located(error, unit.node) from error.__cause__
        self.pending[unit] = withdraw

    def _run_elsewhere(self, unit: Unit, arrays: Sequence[Any]) -> None:
        watched.by = self.run_state
        try:
            outputs = unit.run(arrays)
        except BaseException as error:  # carried to the calling thread and raised there
            self._report(unit, error, ())
        else:
            self._report(unit, None, outputs)
        finally:
            watched.by = None

    def _report(self, unit: Unit, error: BaseException | None, outputs: Sequence[Any]) -> None:
        changed = self.run_state.changed
        with changed:
            self.finished.append((unit, error, outputs))
            changed.notify_all()

    def _wait(self) -> None:
        run = self.run_state
        blocking = [u.node for u in self.pending if u.start is not None and u.size]
        with run.changed:
            while not self.finished and run.wait(bool(blocking)):
                pass
        if not self.finished:
            run.check(blocking)

    def _collect(self) -> None:
        while self.finished:
            unit, error, outputs = self.finished.popleft()
            self.pending.pop(unit, None)
            if error is not None:
                raise located(error, unit.node)
            self._complete(unit, outputs)

    def _complete(self, unit: Unit, outputs: Sequence[Any]) -> None:
        self.executed += unit.size
        env = self.env
        for v, a in zip(unit.outputs, outputs, strict=True):
            if v not in self.plan.fed:
                env[v] = a
        counts, units = self.counts, self.plan.units
        for i in unit.consumers:
            counts[i] -= 1
            if not counts[i]:
                self.ready.append(units[i])

    def _stop(self) -> None:
        """Withdraw pending nodes and wait for running units."""
        for withdraw in list(self.pending.values()):
            if withdraw is not None:
                withdraw()
        changed = self.run_state.changed
        with changed:
            while True:
                while self.finished:
                    self.pending.pop(self.finished.popleft()[0], None)
                if not any(w is None and u.start is None for u, w in self.pending.items()):
                    return
                changed.wait(1.0)
