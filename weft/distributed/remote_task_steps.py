"""The steps of clients on a task: registered parts, and one record per step while it runs.

A part is read, checked and planned once. A step of it begins on the thread that received its message, goes on, on the
threads that bring values, and answers the client when it has fetched values, or effects that no other part waits for.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph.declared.node_checks import may_be
from ..graph.declared.variables import ReadOp, State, locked
from ..graph.execute.executor import Plan, Unit
from ..graph.execute.leases import give_back
from ..graph.execute.resumable import ResumableEngine, deferring, resume, run_engines
from ..graph.execute.resumable_tokens import Idle, ResumableTokens
from ..graph.execute.run import CancelledError, Run
from ..graph.execute.tokens import TokenPart
from ..graph.graph import CONSTANT, PLACEHOLDER, Node, Value
from ..runtime.device import Device
from ..runtime.interrupts import Interrupted, watched
from .remote_channel import Channel
from .remote_messages import DONE, FAILED, IDLE, STOP_DONE, STOP_LATE, STOPPED, dump_error, pack
from .remote_partition import ReceiveOp, SendOp
from .remote_parts import Read
from .rendezvous import Exchange


class StepRun(Run):
    """The run of a step whose parts are in several processes; send and receive nodes find the others by `exchange`."""

    __slots__ = ("exchange",)

    def __init__(self, step: int, exchange: Exchange | None) -> None:
        super().__init__(None, step)
        self.exchange = exchange


class TokenParts:
    """The part of one process of a step with loops: the plan that a token engine needs."""

    def __init__(self, nodes: Sequence[Node], fed: set[Value], fetched: Sequence[Value], device: Device | None) -> None:
        self.fed, self.fetched = fed, list(fetched)
        self.constants = {n.outputs[0]: n.attrs[0] for n in nodes if n.op is CONSTANT}
        self.part = TokenPart(device)
        self.framed = 0  # nodes inside of loops
        given = {*fed, *self.constants}
        for node in nodes:
            op = node.op
            if op is CONSTANT or op is PLACEHOLDER:
                continue
            if isinstance(op, ReceiveOp):
                self.part.edges[op.edge] = node.outputs[0] if node.outputs else node
            elif isinstance(op, SendOp):
                what: Any = node.inputs[0] if node.inputs else node.control[0]
                self.part.remote.setdefault(what, {})[op.destination, op.edge] = None
            else:
                self.part.add(node, given)
                self.framed += node in node.graph.frames  # type: ignore[attr-defined]
        self.is_body = bool(self.framed) and self.framed == len(self.part.items)  # nothing but nodes of loops


class TaskPart:
    """A registered part, planned."""

    def __init__(self, read: Read) -> None:
        self.read, self.mode = read, read.mode
        self.fed, self.fetched = read.fed, read.fetched
        self.nodes: list[Node] = read.graph.nodes
        self.names = {id(n.op): n.name for n in self.nodes}
        self.plan: Any = None
        devices = {n: Device(c.kind or "cpu", c.index or 0) for n in self.nodes if n.device for c in n.device[:1]}
        several = len(set(devices.values())) > 1 or any(d.kind != "cpu" for d in devices.values())
        if read.mode == "tokens":
            self.plan = TokenParts(self.nodes, set(read.fed), read.fetched, next(iter(devices.values()), None))
        elif read.mode == "dataflow":
            self.plan = PartPlan(self.nodes, set(read.fed), read.fetched, devices if several else {})


class PartPlan(Plan):
    """The plan of a part: send nodes are units that count as none of the user's, receive nodes are arrivals, by edge."""

    def __init__(
        self, nodes: Sequence[Node], fed: set[Value], fetched: Sequence[Value], devices: dict[Node, Any] | None = None
    ) -> None:
        super().__init__(nodes, fed, fetched, devices)
        self.arrivals: dict[int, Unit] = {}
        for unit in self.units:
            op = unit.node.op
            if isinstance(op, SendOp):
                unit.size = 0
                unit.region = _Sending(op)  # type: ignore[assignment]
            elif isinstance(op, ReceiveOp):
                unit.size = 0
                self.arrivals[op.edge] = unit
        self._send_from_memory()
        self.counts = [len(u.after) for u in self.units]
        self.initial = [u for u in self.units if not u.after and not isinstance(u.node.op, ReceiveOp)]

        self.phases = self._phases()

    def _phases(self) -> list[list[Unit]] | None:
        """If nothing blocks and at most one value comes from elsewhere: the units before it and those after it, in order."""
        if len(self.arrivals) > 1 or any(u.start is not None for u in self.units):
            return None
        later: set[int] = set()
        for unit in self.units:  # in topological order
            if isinstance(unit.node.op, ReceiveOp) or unit.after & later:
                later.add(unit.index)
        work = [u for u in self.units if not isinstance(u.node.op, ReceiveOp)]
        phases = [[u for u in work if u.index not in later], [u for u in work if u.index in later]]
        return phases if self.arrivals else phases[:1]

    def _send_from_memory(self) -> None:
        """Let a variable that is only read to be sent be sent from its memory, without a copy in between."""
        removed: set[int] = set()
        for unit in self.units:
            ops = [self.units[i].node.op for i in unit.consumers]
            if (
                len(unit.nodes) == 1
                and isinstance(unit.node.op, ReadOp)
                and ops
                and unit.outputs[0] not in self.fetched
            ):
                if all(isinstance(op, SendOp) for op in ops):
                    unit.region = _SendingState(unit.node.op.state, ops)  # type: ignore[assignment]
                    unit.outputs = []
                    removed.update(unit.consumers)
        if not removed:
            return
        self.units = [u for u in self.units if u.index not in removed]
        number = {u.index: i for i, u in enumerate(self.units)}
        for unit in self.units:
            unit.index = number[unit.index]
            unit.after = {number[i] for i in unit.after}
            unit.consumers = [number[i] for i in unit.consumers if i in number]


class StraightEngine:
    """Runs a part whose order is known beforehand: what needs nothing from elsewhere, and, when the one value that comes from
    there has come, the rest. It has the interface of `ResumableEngine` and costs half as much."""

    __slots__ = (
        "plan", "run_state", "env", "finished", "wake", "error", "executed", "_lock", "_phase", "_arrived", "_busy", "_stopped",
        "_over",
    )  # fmt: skip

    def __init__(self, plan: PartPlan, run: Run, env: dict[Value, Any], finished: Any) -> None:
        self.plan, self.run_state, self.env, self.finished, self.wake = plan, run, env, finished, None
        self.error: BaseException | None = None
        self.executed = self._phase = 0
        self._lock = threading.Lock()
        self._arrived = self._busy = self._stopped = self._over = False

    def waiting(self) -> list[Node]:
        return []

    def halted(self) -> bool:
        return self._stopped

    def forget(self) -> None:
        self.env = {}

    def arrive(self, key: int, array: Any) -> None:
        """As `ResumableEngine.arrive`."""
        unit = self.plan.arrivals[key]
        if unit.outputs:
            if array is None or array.dtype != unit.outputs[0].dtype:
                self.stop(TypeError(f"session: a value of another dtype came for node {unit.node.name!r}."))
                return
            self.env[unit.outputs[0]] = array
        with self._lock:
            self._arrived = True
            ready = self._phase == 1 and not self._busy and not self._stopped
        if ready:
            resume(self)

    def stop(self, error: BaseException | None = None) -> None:
        with self._lock:
            if self._over:
                return
            if self.error is None:
                self.error = error
            self._stopped = True
            ends = not self._busy
            self._over = ends
        if ends:
            self.finished(self.error)

    def drain(self, todo: Any) -> None:
        """Run the units of the current phase, and of the next one if its value is there."""
        phases = self.plan.phases
        assert phases is not None
        with self._lock:
            if self._busy or self._over or self._stopped or (self._phase == 1 and not self._arrived):
                return
            self._busy = True
        run, env, constants, fed = self.run_state, self.env, self.plan.constants, self.plan.fed
        while True:
            try:
                for unit in phases[self._phase]:
                    if run.cancelled or run.deadline is not None:
                        run.check_start()
                    if self.halted():
                        break
                    arrays = [
                        (env[v] if v in env else constants[v]) if v.__class__ is Value else v for v in unit.inputs
                    ]
                    for v, a in zip(unit.outputs, unit.run(arrays), strict=True):
                        if v not in fed:
                            env[v] = a
                    self.executed += unit.size
            except BaseException as error:  # kept, and given to `finished`
                if self.error is None:
                    self.error = error
                self._stopped = True
            with self._lock:
                self._phase += 1
                if self._stopped or self._phase == len(phases):
                    self._over = True
                    break
                if not self._arrived:
                    self._busy = False
                    return
        self.finished(self.error)


class _Sending:
    """Sends a value; takes the place of a region."""

    __slots__ = ("op",)

    def __init__(self, op: SendOp) -> None:
        self.op = op

    def run(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        op = self.op
        watched.by.exchange.send(op.edge, op.destination, arrays[0] if arrays else None, op.handle)
        return ()


class _SendingState:
    """Sends the value of a variable to one or several tasks; takes the place of a region."""

    __slots__ = ("state", "ops", "locks")

    def __init__(self, state: State, ops: Sequence[SendOp]) -> None:
        self.state, self.ops, self.locks = state, ops, locked([state], [])

    def run(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        send = watched.by.exchange.send
        with self.locks:
            for op in self.ops:
                send(op.edge, op.destination, self.state.tensor._data, op.handle)
        return ()


def fit(arrays: Sequence[Any], values: Sequence[Value]) -> bool:
    """Whether received arrays are those that a part expects: native code trusts their dtypes and ranks."""
    if len(arrays) != len(values):
        return False
    for a, v in zip(arrays, values, strict=True):
        if a is None or a.dtype != v.dtype or not may_be(v.shape, a.shape):
            return False
    return True


class TaskStep:
    """One step of a part on this task.

    Args:
        part, number: what runs.
        feeds: arrays for the part's fed values.
        exchange: the way to the other parts.
        channel: of the client.
        place: the name of this task for errors.
        over: called when nothing of the step is needed any more.
    """

    __slots__ = (
        "part", "number", "exchange", "channel", "place", "over", "run", "engine", "ended", "stopping", "asked", "_idle",
    )  # fmt: skip

    def __init__(
        self,
        part: TaskPart,
        number: int,
        feeds: Sequence[Any],
        exchange: Exchange,
        channel: Channel,
        place: str,
        over: Any,
    ) -> None:
        self.part, self.number, self.exchange, self.channel = part, number, exchange, channel
        self.place, self.over = place, over
        self.run = StepRun(number, exchange)
        self.run.leased_elsewhere = part.read.leased
        self.ended = self.stopping = self.asked = False
        self._idle: Idle | None = None
        env = dict(zip(part.fed, feeds, strict=True))
        if part.mode == "tokens":
            tokens = ResumableTokens(
                part.plan, part.plan.part, self.run, env, exchange.send_token, self._report_idle, self._finished
            )
            self.engine: Any = tokens
        else:
            straight = part.plan.phases is not None
            self.engine = (StraightEngine if straight else ResumableEngine)(part.plan, self.run, env, self._finished)

    def begin(self) -> None:
        """Run on this thread as far as possible."""
        engine = self.engine
        if engine.__class__ is StraightEngine:  # it runs nothing before it has begun
            self.exchange.listen(engine.arrive)
        else:
            with deferring():  # values that are there already are part of the beginning
                self.exchange.listen(engine.deliver if self.part.mode == "tokens" else engine.arrive)
        run_engines((engine,))

    # Ends -----------------------------------------------------------------------------------------------------------

    def _finished(self, error: BaseException | None) -> None:
        self.ended = True
        part = self.part
        if self.stopping:
            self._send_stopped(error)
        elif error is not None:
            self._send_failed(error)
        else:
            if part.read.answers or part.mode == "tokens":
                self._send_done()
            if not part.read.keeps:
                self.over(self, late=False)
        self.engine.forget()
        self.exchange.forget()

    def _send_done(self) -> None:
        values = self.engine.made if self.part.mode == "tokens" else self.engine.env
        constants = self.part.plan.constants
        arrays: list[Any] = []
        for v in self.part.fetched:
            found = values[v] if v in values else constants.get(v)
            arrays.append(None if found is None else np.asarray(found))
        head, data = pack(arrays)
        self._tell(DONE, head, data, self.engine.executed)

    def _send_failed(self, error: BaseException) -> None:
        if isinstance(error, Interrupted):
            try:
                self.run.check(self.engine.waiting())
            except (CancelledError, TimeoutError) as why:
                error = why
        answer = {"error": dump_error(error, self.place), "expired": self.run.expired}
        self._tell(FAILED, json.dumps(answer).encode())

    def _send_stopped(self, error: BaseException | None) -> None:
        names = self.part.names
        answer = {
            "over": False, "error": None if error is None else dump_error(error, self.place),
            "effects": [names[id(op)] for op in self.run.effects if id(op) in names],
            "leases": sorted({names[id(lease.op)] for lease in self.run.leases if id(lease.op) in names}),
        }  # fmt: skip
        self._tell(STOPPED, json.dumps(answer).encode())

    def _tell(self, kind: int, head: bytes, data: Sequence[memoryview] = (), part: int = 0) -> None:
        try:
            self.channel.send(kind, part, self.number, self.exchange.client, head, data)
        except OSError:
            return  # the client is gone; its steps are ended when its connection is closed

    # What the client says -------------------------------------------------------------------------------------------

    def stop(self, how: int, reason: str) -> None:
        """End the step: now, or as after its deadline; or take its results."""
        if how == STOP_DONE:
            self.engine.stop()
            return
        if how == STOP_LATE:
            waiting = self.engine.waiting()
            self.run.deadline = time.monotonic()
            if self.ended or not (waiting or not self.run.effects):
                return  # what has had effects is completed
            try:
                self.run.check(waiting)
            except TimeoutError as error:
                self.engine.stop(error)
            return
        if self.ended:
            self._send_stopped(None)
            return
        self.stopping = True
        self.run.cancel(reason)
        self.engine.stop(CancelledError(f"session: the step was cancelled. {reason}"))

    def end(self, used: Sequence[str]) -> None:
        """The step is over everywhere. Dequeued elements that were not used go back, except those that `used` names."""
        if self.run.leases:
            elsewhere = {n.op for n in self.part.nodes if n.name in set(used)}
            give_back(self.run, self.part.nodes, elsewhere)
        self.over(self, late=True)

    def keep_nothing(self) -> None:
        """The step has succeeded."""
        self.run.leases = []
        self.over(self, late=True)

    # Steps with loops -----------------------------------------------------------------------------------------------

    def _report_idle(self, report: Idle) -> None:
        self._idle = report
        if self.asked or not (report.expects or self.part.plan.is_body):
            self._send_idle(report)

    def ask(self) -> None:
        """Report from now on whenever there is nothing to do."""
        self.asked = True
        if self._idle is not None:
            self._send_idle(self._idle)

    def _send_idle(self, report: Idle) -> None:
        text = {"number": report.number, "sent": list(report.sent.items()), "received": list(report.received.items())}
        self._tell(IDLE, json.dumps(text).encode())
