"""The token engine: run graphs with routing ops, node by node, on one or several devices.

Tokens are defined in Note [Dead tokens] in `weft.graph.declared.routing`. A token carries its tag: the
loops it is in and their iterations. So iterations overlap: a node of iteration 5 may run before one of iteration 4
has finished, if its inputs are there. Large nodes run on the pool of threads beside each other; small ones on the
engine's own thread.

Every device has a separate engine and thread. A value that another device uses is sent to it with
its tag, live or dead, once per destination and iteration; so is a control edge. The routing ops of a loop are colocated
(`weft.graph.execute.placement`), everything else may be anywhere. The step is over when every engine is idle and nothing is on
its way: as many tokens were taken as were sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Sequence
from typing import Any

import numpy as np

from ...runtime.device import Device
from ...runtime.interrupts import watched
from ..graph import CONSTANT, PLACEHOLDER, Node, Value
from .interpret import located, run_alone
from .run import Run
from .threads import pool, run_together
from .transport import Key, Tag

MIN_THREAD_ELEMENTS = 1 << 15  # of the inputs of a node that is worth another thread


class _Item:
    """A node as an engine sees it: how many tokens it waits for, and what it is."""

    __slots__ = ("node", "inputs", "count", "kind", "start", "outputs", "forward", "expected", "heavy")

    def __init__(self, node: Node) -> None:
        self.node, self.inputs, self.outputs = node, list(node.inputs), node.outputs
        self.count = 0
        self.kind = node.op.routes
        self.start = getattr(node.op, "start", None)
        # a merge is dead when all tokens that can reach this iteration from outside are
        self.forward = sum([v.__class__ is Value and v.node.op.routes != "next_iteration" for v in node.inputs])
        self.expected = self.forward if self.forward == len(node.inputs) else 1  # one token per iteration of a loop
        self.heavy = not self.kind and self.start is None


class TokenPart:
    """The part of one device: its items, the local users of each value, and the other devices that need it."""

    def __init__(self, device: Device | None) -> None:
        self.device = device
        self.items: list[_Item] = []
        self.users: dict[Value, list[tuple[_Item, int]]] = {}
        self.after: dict[Node, list[_Item]] = {}
        self.remote: dict[Any, dict[Any, None]] = {}  # value or node -> devices
        self.edges: dict[Any, Any] = {}  # what arrives from elsewhere, by the name of its edge

    def add(self, node: Node, given: Container[Value]) -> list[Value | Node]:
        """Add a node, whose inputs in `given` are known before the step; returns what it waits for."""
        item = _Item(node)
        self.items.append(item)
        waits: list[Value | Node] = []
        for position, v in enumerate(item.inputs):
            if v.__class__ is Value and v not in given:
                self.users.setdefault(v, []).append((item, position))
                waits.append(v)
        for other in node.control:
            self.after.setdefault(other, []).append(item)
            waits.append(other)
        item.count = len(waits)
        return waits


class TokenPlan:
    """A step with routing ops, made ready to run."""

    def __init__(
        self, nodes: Sequence[Node], fed: set[Value], fetched: Sequence[Value], devices: dict[Node, Any]
    ) -> None:
        self.fed, self.fetched = fed, list(fetched)
        self.constants = {n.outputs[0]: n.attrs[0] for n in nodes if n.op is CONSTANT}
        self.parts: dict[Any, TokenPart] = {}
        work = [n for n in nodes if n.op is not CONSTANT and not (n.op is PLACEHOLDER and n.outputs[0] in fed)]
        given = {*fed, *self.constants}
        for node in work:
            device = devices.get(node)
            part = self.parts.get(device)
            if part is None:
                part = self.parts[device] = TokenPart(device)
            for what in part.add(node, given):
                if isinstance(what, Value):
                    self._edge(part, device, devices.get(what.node), what, what.name)
                else:
                    self._edge(part, device, devices.get(what), what, f"^{what.name}")
        for part in self.parts.values():  # the users of all values are known only now
            for name, what in part.edges.items():
                maker = what.node if what.__class__ is Value else what
                source = self.parts[devices.get(maker)]
                source.remote.setdefault(what, {})[part.device] = None
                assert name

    @staticmethod
    def _edge(part: TokenPart, here: Any, there: Any, what: Any, name: str) -> None:
        if here != there:
            part.edges[name] = what

    def run(self, run: Run, env: dict[Value, Any], transport: Any) -> dict[Value, Any]:
        """Run one step; returns the values outside of loops."""
        together = _Together(run, len(self.parts))
        engines = [TokenEngine(self, part, run, env, transport, together) for part in self.parts.values()]
        if len(engines) > 1:
            for engine in engines:
                transport.listen(run.step_id, engine.part.device, engine.deliver)
        try:
            run_together([engine.execute for engine in engines], run)
        finally:
            if len(engines) > 1:
                transport.forget(run.step_id)
        made: dict[Value, Any] = dict(env)
        for engine in engines:
            run.executed += engine.executed
            made.update(engine.made)
        for v in self.fetched:
            if v not in made and v not in self.constants:
                raise RuntimeError(
                    f"run: {v.name!r} has no value: it is in a branch that was not taken. Fetch the result of a `merge`. "
                    f"Made at {v.node.where}."
                )
        return made


class _Together:
    """How engines find out that all of them are done: `left` counts those at work and the tokens on their way."""

    __slots__ = ("run", "left")

    def __init__(self, run: Run, engines: int) -> None:
        self.run, self.left = run, engines


class _Slot:
    """A node waiting for its tokens in one iteration."""

    __slots__ = ("left", "dead", "arrays", "fired", "dead_count", "taken")

    def __init__(self, left: int, arrays: list[Any]) -> None:
        self.left, self.dead, self.fired, self.dead_count, self.taken = left, False, False, 0, 0
        self.arrays = arrays


class TokenEngine:
    """Runs one part of a plan. Errors and cancellation as in `weft.graph.execute.executor`."""

    def __init__(
        self, plan: TokenPlan, part: TokenPart, run: Run, env: dict[Value, Any], transport: Any, together: Any
    ) -> None:
        self.part, self.run_state, self.transport, self.together = part, run, transport, together
        self.given = {**plan.constants, **env}
        self.wanted = set(plan.fetched)
        self.reference = getattr(part.device, "kind", "cpu") == "ref"
        self.made: dict[Value, Any] = {}
        self.executed = 0
        self.slots: dict[tuple[_Item, Tag], _Slot] = {}
        self.ready: deque[tuple[_Item, Tag, Any]] = deque()  # inputs, or None if dead
        self.finished: deque[Any] = deque()  # reports of other threads
        self.inbox: deque[tuple[Key, Any]] = deque()
        self.pending: dict[Any, Any] = {}
        self.started: dict[Any, _Item] = {}  # those of them that block
        self.loop_constants: dict[Tag, list[tuple[_Item, Any]]] = {}  # by the tag of iteration 0
        self.iterations: dict[Tag, set[int]] = {}  # begun iterations, by the tag of iteration 0
        self.entered: set[Tag] = set()  # frames that something live entered

    # The loop -------------------------------------------------------------------------------------------------------------

    def execute(self) -> None:
        watched.by = self.run_state
        try:
            self._begin_step()
            while True:
                while self.ready:
                    self.run_state.check_start()
                    self._fire(*self.ready.popleft())
                if not self._more():
                    return
        except BaseException as error:
            if not isinstance(error, Exception):  # Ctrl-C: loops on other threads end too
                self.run_state.cancel("It was interrupted.")
            self._stop()
            raise
        finally:
            watched.by = None

    def _begin_step(self) -> None:
        """What needs no token is ready."""
        for item in self.part.items:
            if not item.count:
                self.ready.append((item, (), self._slot(item, ()).arrays))

    def _more(self) -> bool:
        """Take tokens from other devices and threads, waiting if necessary; False when the whole step is over."""
        run, together = self.run_state, self.together
        with run.changed:
            idle = not self.pending and not self.inbox
            if idle:
                together.left -= 1
                if not together.left:
                    run.changed.notify_all()
            while not self.finished and not self.inbox:
                if idle and not together.left:
                    return False
                if not run.wait(bool(self.started)):
                    break
            came, self.inbox = self.inbox, deque()
            together.left += idle - len(came)
            finished, self.finished = self.finished, deque()
        if not came and not finished:
            run.check([item.node for item in self.started.values()])
        for key, (array, dead) in came:
            self._take(key.edge, key.iteration, array, dead)
        self._collect(finished)
        return True

    def _take(self, edge: Any, tag: Tag, array: Any, dead: bool) -> None:
        """A token of another device."""
        what = self.part.edges[edge]
        if what.__class__ is Value:
            self._here(what, tag, array, dead)
        else:
            self._go_here(what, tag, dead)

    def _collect(self, finished: Iterable[Any]) -> None:
        """Reports of nodes that were started or ran on other threads."""
        for key, item, tag, error, outputs in finished:
            self.pending.pop(key, None)
            self.started.pop(key, None)
            if error is not None:
                raise located(error, item.node)
            self._send(item, tag, outputs)

    def deliver(self, key: Key, token: Any) -> None:
        """A token from another device; called from its thread."""
        with self.run_state.changed:
            self.inbox.append((key, token))
            self.run_state.changed.notify_all()

    def _stop(self) -> None:
        """Withdraw pending nodes and wait for those running on other threads."""
        for withdraw in list(self.pending.values()):
            if withdraw is not None:
                withdraw()
        with self.run_state.changed:
            while True:
                while self.finished:
                    self.pending.pop(self.finished.popleft()[0], None)
                if not any(w is None for w in self.pending.values()):
                    return
                self.run_state.changed.wait(1.0)

    # Firing ---------------------------------------------------------------------------------------------------------------

    def _slot(self, item: _Item, tag: Tag) -> _Slot:
        found = self.slots.get((item, tag))
        if found is None:
            arrays = [self.given.get(v) if v.__class__ is Value else v for v in item.inputs]
            found = self.slots[(item, tag)] = _Slot(item.count, arrays)
        return found

    def _fire(self, item: _Item, tag: Tag, arrays: Any) -> None:
        self.slots.pop((item, tag), None)
        if item.kind:
            self.executed += arrays is not None
            self._route(item, tag, arrays)
        elif arrays is None:
            self._send(item, tag, None)
        elif item.start is not None:
            self._start(item, tag, arrays)
        else:
            self.executed += 1
            if (
                self.ready
                and item.heavy
                and sum([a.size for a in arrays if a.__class__ is np.ndarray]) >= MIN_THREAD_ELEMENTS
            ):
                key = object()
                self.pending[key] = None
                pool().submit(self._elsewhere, key, item, tag, arrays)
            else:
                self._send(item, tag, run_alone(item.node, arrays, self.reference))

    def _report(self, key: Any, item: _Item, tag: Tag, error: BaseException | None, outputs: Sequence[Any]) -> None:
        with self.run_state.changed:
            self.finished.append((key, item, tag, error, outputs))
            self.run_state.changed.notify_all()

    def _elsewhere(self, key: Any, item: _Item, tag: Tag, arrays: Sequence[Any]) -> None:
        watched.by = self.run_state
        try:
            outputs = run_alone(item.node, arrays, self.reference)
        except BaseException as error:  # carried to the engine's thread and raised there
            self._report(key, item, tag, error, ())
        else:
            self._report(key, item, tag, None, outputs)
        finally:
            watched.by = None

    def _start(self, item: _Item, tag: Tag, arrays: Sequence[Any]) -> None:
        key = object()
        assert item.start is not None
        self.executed += 1
        self.pending[key] = _nothing
        try:
            withdraw = item.start(
                arrays, lambda error, outputs: self._report(key, item, tag, error, outputs), self.run_state
            )
        except Exception as error:
            del self.pending[key]
            raise located(error, item.node) from error.__cause__
        self.pending[key] = withdraw or _nothing
        self.started[key] = item

    def _route(self, item: _Item, tag: Tag, arrays: Any) -> None:
        node, outputs, dead = item.node, item.outputs, arrays is None
        if item.kind == "switch":
            if dead:
                return self._send(item, tag, None)
            taken = bool(np.all(arrays[1]))
            self._token(outputs[0], tag, arrays[0], taken)
            self._token(outputs[1], tag, arrays[0], not taken)
            self._go(node, tag, False)
        elif item.kind == "enter":
            inner = (*tag, (node.op.frame, 0))
            self._begin(inner)
            if not dead:
                self.entered.add(inner)
            if node.op.is_constant and not dead:
                self.loop_constants.setdefault(inner, []).append((item, arrays[0]))
                for k in sorted(self.iterations[inner]):
                    self._token(outputs[0], (*tag, (node.op.frame, k)), arrays[0], False)
                    self._go(node, (*tag, (node.op.frame, k)), False)
            else:
                self._token(outputs[0], inner, None if dead else arrays[0], dead)
                self._go(node, inner, dead)
        elif item.kind == "exit":
            if not dead:
                self._token(outputs[0], tag[:-1], arrays[0], False)
                self._go(node, tag[:-1], False)
            elif tag[-1][1] == 0 and tag not in self.entered:  # the loop did not run: what leaves it is dead
                self._token(outputs[0], tag[:-1], None, True)
                self._go(node, tag[:-1], True)
        elif item.kind == "next_iteration":
            if not dead:
                frame, k = tag[-1]
                later = (*tag[:-1], (frame, k + 1))
                self._begin(later)
                self._token(outputs[0], later, arrays[0], False)
        else:
            raise AssertionError(item.kind)  # merge is routed when its tokens come

    def _begin(self, tag: Tag) -> None:
        """The first token of an iteration: loop constants come with it."""
        frame, k = tag[-1]
        first = (*tag[:-1], (frame, 0))
        begun = self.iterations.setdefault(first, set())
        if k in begun:
            return
        begun.add(k)
        for item, array in self.loop_constants.get(first, ()):
            self._token(item.outputs[0], tag, array, False)
            self._go(item.node, tag, False)

    # Tokens ---------------------------------------------------------------------------------------------------------------

    def _send(self, item: _Item, tag: Tag, outputs: Sequence[Any] | None) -> None:
        """Tokens of all outputs, dead ones if `outputs` is None."""
        for i, v in enumerate(item.outputs):
            self._token(v, tag, None if outputs is None else outputs[i], outputs is None)
        self._go(item.node, tag, outputs is None)

    def _go(self, node: Node, tag: Tag, dead: bool) -> None:
        if node in self.part.remote:
            self._cross(node, f"^{node.name}", tag, None, dead)
        self._go_here(node, tag, dead)

    def _go_here(self, node: Node, tag: Tag, dead: bool) -> None:
        for item in self.part.after.get(node, ()):
            self._arrive(item, tag, None, None, dead)

    def _token(self, value: Value, tag: Tag, array: Any, dead: bool) -> None:
        if not tag and not dead and value in self.wanted:
            self.made[value] = array
        if value in self.part.remote:
            self._cross(value, value.name, tag, array, dead)
        self._here(value, tag, array, dead)

    def _cross(self, what: Any, edge: str, tag: Tag, array: Any, dead: bool) -> None:
        for device in self.part.remote[what]:
            self._emit(device, edge, tag, array, dead)

    def _emit(self, device: Any, edge: str, tag: Tag, array: Any, dead: bool) -> None:
        """Send a token to another device."""
        with self.run_state.changed:
            self.together.left += 1
        key = Key(self.part.device, device, edge, self.run_state.step_id, tag)  # type: ignore[arg-type]
        self.transport.send(key, (array, dead))

    def _here(self, value: Value, tag: Tag, array: Any, dead: bool) -> None:
        for item, position in self.part.users.get(value, ()):
            self._arrive(item, tag, position, array, dead)

    def _arrive(self, item: _Item, tag: Tag, position: int | None, array: Any, dead: bool) -> None:
        slot = self._slot(item, tag)
        if item.kind == "merge" and position is not None:
            self._merge(item, tag, slot, position, array, dead)
            return
        slot.left -= 1
        slot.dead = slot.dead or dead
        if position is not None:
            slot.arrays[position] = array
        if slot.left == 0:
            self.ready.append((item, tag, None if slot.dead else slot.arrays))

    def _merge(self, item: _Item, tag: Tag, slot: _Slot, position: int, array: Any, dead: bool) -> None:
        slot.dead_count += 1 if dead else 0
        slot.taken += 1
        if slot.taken == item.expected:
            self.slots.pop((item, tag), None)
        if slot.fired:
            return
        if dead and slot.dead_count < item.forward:
            return
        slot.fired = True
        self.executed += not dead
        value, index = item.outputs
        self._token(value, tag, array, dead)
        self._token(index, tag, np.asarray(position, np.int32), dead)
        self._go(item.node, tag, dead)


def _nothing() -> None:
    """Nothing to withdraw: the node has been started and reports by itself."""
