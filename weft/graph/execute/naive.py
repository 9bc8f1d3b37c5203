"""The naive executor: run one node at a time, as the reference for the dataflow executor.

It shares no code with the dataflow executor beyond running one node on arrays. One thread walks over the nodes of a step
in the order of declaration, each as soon as its inputs are there, uncompiled. A loop of routing ops is run as a loop: one
iteration after the other, all nodes of an iteration, until nothing goes into the next. A token that is not sent is the
value DEAD. A node that must wait (a queue op) is set aside while others can run. On several devices every value that
another device uses is sent and received at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...runtime.interrupts import watched
from ..graph import CONSTANT, PLACEHOLDER, Node, Value
from .interpret import located, run_alone
from .run import Run
from .transport import Key

DEAD: Any = type("Dead", (), {"__repr__": lambda self: "DEAD"})()
Path = tuple[str, ...]


class Frame:
    """The nodes of one loop (or, with an empty path, of the step) and the loops inside it, as items to run."""

    def __init__(self, path: Path, nodes: Sequence[Node], frame_of: Any, skip: set[Value]) -> None:
        self.path, self.order = path, min([n.order for n in nodes], default=0)
        inner: dict[str, list[Node]] = {}
        self.items: list[Any] = []
        for node in nodes:
            own = frame_of(node)
            if own == path:
                self.items.append(node)
            else:
                inner.setdefault(own[len(path)], []).append(node)
        self.nodes = list(self.items)
        home: dict[Node, Any] = {n: n for n in self.nodes}
        for name, members in inner.items():
            frame = Frame((*path, name), members, frame_of, skip)
            self.items.append(frame)
            home.update(dict.fromkeys(members, frame))
        self.before: dict[Any, int] = {}
        self.after: dict[Any, list[Any]] = {item: [] for item in self.items}
        needs: dict[Any, set[Any]] = {item: set() for item in self.items}
        for node in nodes:
            for v in node.inputs:
                if v.__class__ is Value and v not in skip and not (node.op.routes == "merge" and _comes_back(v)):
                    needs[home[node]].add(home.get(v.node))
            for other in node.control:
                needs[home[node]].add(home.get(other))
        for item, others in needs.items():
            others -= {item, None}
            self.before[item] = len(others)
            for other in others:
                self.after[other].append(item)


def _comes_back(value: Value) -> bool:
    return value.node.op.routes == "next_iteration"


class Script:
    """A step as the naive executor runs it. It has the interface of `Plan`."""

    def __init__(self, nodes: Sequence[Node], fed: set[Value], fetched: Sequence[Value], devices: dict[Node, Any],
                 frame_of: Any) -> None:  # fmt: skip
        self.fed, self.fetched, self.devices = fed, list(fetched), devices
        self.constants = {n.outputs[0]: n.attrs[0] for n in nodes if n.op is CONSTANT}
        work = [n for n in nodes if n.op is not CONSTANT and not (n.op is PLACEHOLDER and n.outputs[0] in fed)]
        self.root = Frame((), work, frame_of, fed | set(self.constants))
        self.destinations: dict[Any, dict[Any, None]] = {}  # value or node -> the other devices that use it
        if len(set(devices.values())) > 1:
            for node in work:
                for source in (*[v for v in node.inputs if v.__class__ is Value], *node.control):
                    maker = source.node if source.__class__ is Value else source
                    if maker in devices and source not in fed and devices[maker] != devices.get(node):
                        self.destinations.setdefault(source, {})[devices[node]] = None


class Interpreter:
    """One run of a script."""

    def __init__(self, script: Script, run: Run, feeds: dict[Value, Any], transport: Any) -> None:
        self.script, self.run_state, self.feeds, self.transport = script, run, feeds, transport
        self.given = {**script.constants, **feeds}
        self.reports: dict[Any, Any] = {}  # what blocking nodes have reported, by key
        self.waiting: dict[Any, Any] = {}  # how to withdraw those that have not
        self.started: dict[Any, Node] = {}  # their nodes
        self.values: dict[Any, Any] = {}

    def execute(self) -> dict[Value, Any]:
        """Run everything; returns the values outside of loops."""
        watched.by = self.run_state
        try:
            for _ in self._frame(self.script.root, self.values, ()):
                self._wait()
        except BaseException:
            for withdraw in self.waiting.values():
                if withdraw is not None:
                    withdraw()
            raise
        finally:
            watched.by = None
        for v in self.script.fetched:
            if v not in self.given and self.values[v] is DEAD:
                raise RuntimeError(
                    f"run: {v.name!r} has no value: it is in a branch that was not taken. Fetch the result of a `merge`. "
                    f"Made at {v.node.where}."
                )
        return {**self.values, **self.feeds}

    def _woken(self) -> None:
        """A blocking node has reported, on any thread."""

    def _wait(self) -> None:
        run = self.run_state
        with run.changed:
            while not self.reports and run.wait():
                pass
        if not self.reports:
            run.check(list(self.started.values()))

    def _frame(self, frame: Frame, env: dict[Any, Any], tag: Any) -> Iterator[None]:
        """Run every item of a frame once; yields when nothing can run before a blocking node reports."""
        before = dict(frame.before)
        ready = [(item.order, i) for i, item in enumerate(frame.items) if not before[item]]
        heapq.heapify(ready)
        number = {item: i for i, item in enumerate(frame.items)}
        loops: dict[Any, Iterator[None]] = {}
        pending: dict[Any, Node] = {}
        left = len(frame.items)
        while left:
            finished: list[Any] = []
            if ready:
                self.run_state.check_start()
                item = frame.items[heapq.heappop(ready)[1]]
                if isinstance(item, Frame):
                    loops[item] = self._loop(item, env, tag)
                elif self._fire(item, env, tag, pending):
                    finished.append(item)
            else:
                for key in [k for k in pending if k in self.reports]:
                    finished.append(self._collect(key, pending.pop(key), env, tag))
                for item, steps in list(loops.items()):
                    if next(steps, steps) is steps:  # it has come to its end
                        del loops[item]
                        finished.append(item)
                if not finished:
                    yield
            for item in finished:
                left -= 1
                for other in frame.after[item]:
                    before[other] -= 1
                    if not before[other]:
                        heapq.heappush(ready, (other.order, number[other]))

    def _loop(self, frame: Frame, outer: dict[Any, Any], tag: Any) -> Iterator[None]:
        """Run iterations of a loop until none sends anything into the next; what leaves it is put into `outer`."""
        carried: dict[Value, Any] = {}
        leaving: dict[Any, Any] = {}
        iteration = 0
        while True:
            env: dict[Any, Any] = {}
            for node in frame.nodes:
                if node.op.routes == "enter":
                    again = iteration and not node.op.is_constant
                    stopped = any(outer.get(("^", n)) is DEAD for n in node.control)
                    env[node] = DEAD if again or stopped else self._input(node, node.inputs[0], outer)
            env.update(carried)
            yield from self._frame(frame, env, (*tag, (frame.path[-1], iteration)))
            leaving.update({k: token for k, token in env.items() if token is not DEAD or k not in leaving})
            carried = {}
            for node in frame.nodes:
                if node.op.routes == "next_iteration" and env[node.outputs[0]] is not DEAD:
                    carried[(node.outputs[0], "carried")] = env[node.outputs[0]]  # type: ignore[index]
            if not carried:
                break
            iteration += 1
        outer.update({k: token for k, token in leaving.items() if k.__class__ is Value or k.__class__ is tuple})

    # One node -----------------------------------------------------------------------------------------------------------

    def _input(self, node: Node, v: Any, env: dict[Any, Any]) -> Any:
        if v.__class__ is not Value:
            return v
        if v in self.given:
            return self.given[v]
        return env[(v, self.script.devices[node])] if self._remote(v, node) else env[v]

    def _remote(self, source: Any, node: Node) -> bool:
        return source in self.script.destinations and self.script.devices.get(node) in self.script.destinations[source]

    def _fire(self, node: Node, env: dict[Any, Any], tag: Any, pending: dict[Any, Node]) -> bool:
        """Run a node, or start it if it blocks; whether it is done."""
        op = node.op
        live = not any(env[("^", n)] is DEAD for n in node.control if ("^", n) in env)
        outputs: Sequence[Any] | None = None
        if op.routes == "enter":
            outputs = None if env[node] is DEAD else [env[node]]
        elif op.routes == "merge":
            outputs = self._merge(node, env) if live else None
        else:
            inputs = [self._input(node, v, env) for v in node.inputs]
            if live and not any(a is DEAD for a in inputs):
                if op.routes == "switch":
                    taken = bool(np.all(inputs[1]))
                    outputs = [DEAD, inputs[0]] if taken else [inputs[0], DEAD]
                elif op.routes:
                    outputs = [inputs[0]]
                elif hasattr(op, "start"):
                    return self._start(node, inputs, env, tag, pending)
                else:
                    outputs = self.compute(node, inputs)
        self._done(node, outputs, env, tag)
        return True

    def compute(self, node: Node, inputs: Sequence[Any]) -> Sequence[Any]:
        return run_alone(node, inputs, getattr(self.script.devices.get(node), "kind", "cpu") == "ref")

    def _merge(self, node: Node, env: dict[Any, Any]) -> list[Any] | None:
        for i, v in enumerate(node.inputs):
            token = env.get((v, "carried"), DEAD) if _comes_back(v) else self._input(node, v, env)
            if token is not DEAD:
                return [token, np.asarray(i, np.int32)]
        return None

    def _start(self, node: Node, inputs: Sequence[Any], env: Any, tag: Any, pending: dict[Any, Node]) -> bool:
        key = object()
        run = self.run_state

        def report(error: BaseException | None, outputs: Sequence[Any]) -> None:
            with run.changed:
                self.reports[key] = (error, outputs)
                run.changed.notify_all()
            self._woken()

        self.waiting[key] = None
        self.started[key] = node
        try:
            self.waiting[key] = node.op.start(inputs, report, run)
        except Exception as error:
            del self.waiting[key]
            raise located(error, node) from error.__cause__
        pending[key] = node
        if key not in self.reports:
            return False
        self._collect(key, pending.pop(key), env, tag)
        return True

    def _collect(self, key: Any, node: Node, env: dict[Any, Any], tag: Any) -> Node:
        error, outputs = self.reports.pop(key)
        del self.waiting[key], self.started[key]
        if error is not None:
            raise located(error, node)
        self._done(node, outputs, env, tag)
        return node

    def _done(self, node: Node, outputs: Sequence[Any] | None, env: dict[Any, Any], tag: Any) -> None:
        self.run_state.executed += outputs is not None
        for i, v in enumerate(node.outputs):
            self._put(v, DEAD if outputs is None else outputs[i], node, env, tag)
        self._put(("^", node), DEAD if outputs is None else None, node, env, tag)

    def _put(self, what: Any, token: Any, node: Node, env: dict[Any, Any], tag: Any) -> None:
        env[what] = token
        source = what if what.__class__ is Value else node
        for device in self.script.destinations.get(source, ()):
            edge = source.name if source.__class__ is Value else f"^{node.name}"
            key = Key(self.script.devices[node], device, edge, self.run_state.step_id, tag)
            got: list[Any] = []
            self.transport.send(key, token)
            self.transport.receive(key, lambda error, arrays, got=got: got.extend(arrays))
            if source.__class__ is Value:
                env[(source, device)] = got[0]
