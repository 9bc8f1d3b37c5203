"""Steps of a session on a cluster, in the client: placed, cut and registered once, then started by one message per task.

The thread that runs a step sends it off, runs the client's own part of it, and waits for the answers of the parts that have
something to say. A part that fails, a task that dies, `cancel()` and the deadline end the step everywhere: the parts stop, say
what they did, and return the elements that they dequeued and did not use.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..graph.declared.queues import _QueueOp
from ..graph.declared.routing import frame_of, has_routing
from ..graph.declared.variables import WriteOp
from ..graph.execute.leases import ancestors, give_back, is_given_up
from ..graph.execute.placement import as_devices
from ..graph.execute.resumable import ResumableEngine, run_engines
from ..graph.execute.resumable_tokens import Idle, ResumableTokens
from ..graph.execute.run import Run
from ..graph.graph import CONSTANT, Node, Value
from ..runtime.device import Device
from .remote_client import Hub, Lost, Mailbox
from .remote_messages import (
    ASK,
    DONE,
    END,
    FAILED,
    IDLE,
    START,
    STOP,
    STOP_DONE,
    STOP_LATE,
    STOP_NOW,
    STOPPED,
    TOKEN,
    VALUE,
    TaskLostError,
    load_error,
    pack,
)
from .remote_partition import CLIENT, Cut, Part, SendOp
from .remote_parts import write_part
from .remote_placement import ClusterPlacement, state_in
from .remote_saving import in_process
from .remote_task_steps import PartPlan, TokenParts
from .rendezvous import Exchange

if TYPE_CHECKING:
    from .cluster import Cluster

STOP_SECONDS = 30.0  # how long the parts of a step may take to stop; those of a step that lost a task have less
LOST_SECONDS = 1.0
LATE_SECONDS = 1.0  # how long after the deadline a part may take to say what it waits for
QUIET_SECONDS = 0.02  # after which parts with loops are asked whether they have anything to do
_WAKE = object()  # in a mailbox: look around


class ClientRun(Run):
    """The run of a step on a cluster. `exchange` is the way between the client's own part and the others."""

    __slots__ = ("exchange", "box", "hub")

    def __init__(self, timeout: float | None, step: int, hub: Hub) -> None:
        super().__init__(timeout, step)
        self.hub, self.box = hub, Mailbox()
        self.exchange: Exchange | None = None

    def cancel(self, reason: str) -> None:
        super().cancel(reason)
        self.wake()

    def wake(self) -> None:
        """Let the thread that runs the step look around."""
        self.box.put(_WAKE)
        self.hub.ring()


class RemoteStep:
    """A step's definition on a cluster. Several threads may run it at once."""

    def __init__(
        self, cluster: Cluster, session: Any, nodes: Sequence[Node], fed: Sequence[Value], fetched: Sequence[Value],
        naive: bool,
    ) -> None:  # fmt: skip
        self.cluster, self.nodes, self.fed, self.fetched = cluster, list(nodes), set(fed), list(fetched)
        self.constants = {n.outputs[0]: n.attrs[0] for n in nodes if n.op is CONSTANT}
        available = cluster.devices if session.devices is None else as_devices(session.devices)
        _check_devices(cluster, available)
        self.tokens = has_routing(nodes)
        self.mode = "nodes" if naive else "tokens" if self.tokens else "dataflow"
        self._lock = threading.Lock()
        self._registered: dict[int, Any] = {}  # task -> the link on which its part was registered
        self.version = -1
        for node in nodes:
            for what in state_in(node.op):
                cluster.keys.check(what)
        with cluster.moving:
            self.placement = ClusterPlacement(nodes, available, cluster.link, cluster.modules)
            self.place = self.placement.of
            name = nodes[0].graph.name if nodes else "step"
            self.cut: Cut = Cut(
                nodes, self.fed, fetched, self.place, cluster.task_of, name, lambda op: in_process(cluster, op)
            )
            self.parts = {t: p for t, p in self.cut.parts.items() if t != CLIENT}
            self.local: Part | None = self.cut.parts.get(CLIENT)
            self.handles = {task: cluster.next_handle() for task in self.parts}
            for part in self.cut.parts.values():
                for node in part.graph.nodes:
                    if isinstance(node.op, SendOp) and self._is_implied(node.op.destination):
                        node.op.handle = self.handles[node.op.destination]
            for task, handle in self.handles.items():
                weakref.finalize(self, cluster.forget_part, task, handle).atexit = False
            self._register(None)
        self._plan_local()
        self.implied = {t for t in self.parts if self._is_implied(t)}
        self.answering = [t for t, p in self.parts.items() if p.answers or self.tokens]
        self.keeping = [t for t, p in self.parts.items() if p.keeps]
        self.silent_nodes = sum(len(p.work) for t, p in self.parts.items() if t not in self.answering)
        self._runner: Any = None
        if naive:
            from .remote_naive import NaiveStep

            self._runner = NaiveStep(self)

    def _is_implied(self, task: int) -> bool:
        return self.mode == "dataflow" and task != CLIENT and self.parts[task].implied

    def _plan_local(self) -> None:
        self.local_plan: Any = None
        part = self.local
        if part is None or self.mode == "nodes":
            return
        nodes, fed, fetched = part.graph.nodes, set(part.fed.values()), list(part.fetched.values())
        if self.tokens:
            self.local_plan = TokenParts(nodes, fed, fetched, None)
        else:
            self.local_plan = PartPlan(nodes, fed, fetched)

    # Registration ---------------------------------------------------------------------------------------------------

    def _register(self, until: float | None) -> None:
        """Send every part to its task, if it is not there; the state that it uses is made first."""
        cluster = self.cluster
        while True:
            version = cluster.version
            cluster.wait_for(self.parts, until)
            links = {t: cluster.hub.links.get(t) for t in self.parts}
            missing = [t for t, link in links.items() if link is not None and self._registered.get(t) is not link]
            messages = {t: self._message(t) for t in missing}
            for task in missing:  # queues with elements go first, by themselves
                for what in self._state_on(task):
                    if isinstance(getattr(what, "home", None), type(None)) and hasattr(what, "move"):
                        cluster.keys.settle(what, self._device_of(task))
            cluster.hub.call_all(messages)
            for task in missing:
                self._registered[task] = links[task]
                for what in self._state_on(task):
                    cluster.keys.settle(what, self._device_of(task))
            if cluster.version == version and None not in links.values():
                self.version = version
                return

    def _device_of(self, task: int) -> Device:
        place = self.cluster._places[task]
        return Device("cpu", 0, place.job, place.task)

    def _state_on(self, task: int) -> list[Any]:
        return list(dict.fromkeys(s for n in self.parts[task].graph.nodes for s in _all_state(n)))

    def _message(self, task: int) -> tuple[dict[str, Any], list[np.ndarray]]:
        keys = self.cluster.keys
        written = write_part(self.parts[task], keys, self.mode)
        initial: list[np.ndarray] = []
        ensure = [keys.entry(what, self._device_of(task), initial) for what in self._state_on(task)]
        message = {"do": "register", "handle": self.handles[task], "names": written.names, "ensure": ensure}
        return message, [np.frombuffer(written.text, np.uint8), *written.arrays, *initial]

    def renew(self, run: Run) -> None:
        """After a task came or went: be registered again with the tasks of this step."""
        with self.cluster.moving, self._lock:
            if self.version != self.cluster.version:
                self._register(run.deadline)

    # Running --------------------------------------------------------------------------------------------------------

    def run(self, run: ClientRun, env: dict[Value, Any]) -> dict[Value, Any]:
        """Run one step; returns fed and fetched values."""
        if self.version != self.cluster.version:
            self.renew(run)
        if self._runner is not None:
            found: dict[Value, Any] = self._runner.run(run, env)
            return found
        hub = self.cluster.hub
        hub.steps[run.step_id] = run.box
        running = _Running(self, run, env)
        try:
            return running.go()
        finally:
            del hub.steps[run.step_id]
            if running.engine is not None:
                running.engine.forget()

    def owed(self, task: int) -> str:
        """What a step waits for from a task, in words."""
        part = self.parts[task]
        names: list[tuple[str, Node]] = [(f"the value of {v.name!r}", v.node) for v in part.fetched]
        for edge in self.cut.edges:
            if edge.source == task and isinstance(edge.what, Value):
                names.append((f"{edge.name!r} to {self.cluster.name_of(edge.destination)}", edge.maker))
        for node in part.work:
            if isinstance(node.op, (WriteOp, _QueueOp)):
                names.append((f"node {node.name!r}", part.origin[node]))
        if not names:
            return "It owed the end of its part."
        text = ", ".join(name for name, _ in names[:3]) + (" and more" if len(names) > 3 else "")
        return f"It owed {text}, made at {names[0][1].where}."

    # What a step looks like -----------------------------------------------------------------------------------------

    def explain(self) -> str:
        """Parts, edges, and bytes per step."""
        cluster = self.cluster
        tasks = sorted(self.cut.parts)
        lines = [f"step over {len(tasks)} parts, {self.mode}:"]
        for task in tasks:
            part = self.cut.parts[task]
            notes = [n for n, yes in (("answers", part.answers and task != CLIENT),) if yes]
            lines.append(f"  {cluster.name_of(task)}: {len(part.work)} nodes{f' ({notes[0]})' if notes else ''}")
            for node in part.work:
                why = self.placement.why.get(part.origin[node], "")
                where = f"   # {node.where.short}" if node.where is not None else ""
                lines.append(f"    {node.name} = {node.op.name}: {why}{where}")
        lines.append("edges:")
        total: int | None = 0
        rows: list[tuple[str, int, int, int | None]] = []
        for task, part in self.parts.items():
            rows += [(f"feed {v.name}", CLIENT, task, _bytes(v)) for v in part.fed]
        rows += [(e.name, e.source, e.destination, e.nbytes) for e in self.cut.edges]
        for task, part in self.parts.items():
            rows += [(f"fetch {v.name}", task, CLIENT, _bytes(v)) for v in part.fetched]
        for name, source, destination, count in rows:
            total = None if total is None or count is None else total + count
            lines.append(f"  {name}: {cluster.name_of(source)} → {cluster.name_of(destination)}, {_text(count)}")
        if not rows:
            lines.append("  none")
        known = sum(count or 0 for *_, count in rows)
        messages = len(self.parts) - len(self.implied) + len(self.cut.edges) + len(self.answering) + len(self.keeping)
        more = "" if total is not None else " and what depends on the sizes of the feeds"
        lines.append(f"per step: {messages} messages, {_text(known)}{more}")
        return "\n".join(lines)


def _bytes(value: Value) -> int | None:
    return value.nbytes if isinstance(value.size, int) else None


def _text(count: int | None) -> str:
    if count is None:
        return "? bytes"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _all_state(node: Node) -> list[Any]:
    found = list(state_in(node.op))
    for sub in node.op.subs:
        for inner in sub.graph.nodes:
            found += _all_state(inner)
    return found


def _check_devices(cluster: Cluster, available: Sequence[Device]) -> None:
    known = {(d.job, d.task) for d in cluster.devices}
    for device in available:
        if (device.job, device.task) not in known:
            raise ValueError(f"session: {device} is no device of the cluster. Got {[str(d) for d in cluster.devices]}.")


class _Running:
    """One run of a step."""

    def __init__(self, step: RemoteStep, run: ClientRun, env: dict[Value, Any]) -> None:
        self.step, self.run, self.env = step, run, env
        self.cluster, self.hub, self.box = step.cluster, run.hub, run.box
        self.results: dict[Value, Any] = {}
        self.expected = set(step.answering)
        self.begun: list[int] = []  # tasks whose part was started
        self.done: set[int] = set()  # tasks whose part has ended well
        self.stopped: dict[int, dict[str, Any]] = {}
        self.lost: set[int] = set()
        self.until = run.deadline
        self.late: list[TimeoutError] = []
        self.is_late = False
        self.over = step.local_plan is None  # the client's own part
        self.local_error: BaseException | None = None
        self.engine: Any = None
        self.idle: dict[int, Idle] = {}
        self.asked = self.finishing = False

    def go(self) -> dict[Value, Any]:
        try:
            self._start()
            self._loop()
        except BaseException as error:
            self._abandon(error)
            raise
        for task in self.step.keeping:
            self._send(task, END)
        self.run.leases = []
        self.run.executed += self.step.silent_nodes
        return {**self.env, **self.results}

    # The way there --------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        step, run, env = self.step, self.run, self.env
        if run.deadline is not None or run.cancelled:
            run.check()
        hub, number = self.hub, run.step_id
        for task, part in step.parts.items():
            if task in step.implied:
                self.begun.append(task)
                continue
            head, data = pack([env[v] for v in part.fed])
            try:
                hub.channel(task).send(START, step.handles[task], number, hub.number, head, data)
            except (OSError, TaskLostError):
                raise self._task_lost(task) from None
            self.begun.append(task)
        plan, local = step.local_plan, step.local
        if plan is None or local is None:
            return
        run.exchange = Exchange(hub.number, number, hub.channel)
        run.leased_elsewhere = local.leased
        given = {new: env[old] for old, new in local.fed.items()}
        if step.tokens:
            self.engine = ResumableTokens(
                plan, plan.part, run, given, run.exchange.send_token, self._is_idle, self._local_over, run.wake
            )
            run.exchange.listen(self.engine.deliver)
        else:
            self.engine = ResumableEngine(plan, run, given, self._local_over, run.wake)
            run.exchange.listen(self.engine.arrive)
        run_engines((self.engine,))

    def _local_over(self, error: BaseException | None) -> None:
        self.local_error, self.over = error, True
        self.run.wake()

    def _is_idle(self, report: Idle) -> None:
        self.idle[CLIENT] = report
        self.run.wake()

    # Waiting --------------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        step, box, hub = self.step, self.box, self.hub
        while self.expected or not self.over:
            until = self.until
            if step.tokens and not self.asked:
                quiet = time.monotonic() + QUIET_SECONDS
                until = quiet if until is None else min(until, quiet)
            if not hub.wait(box, until):
                self._time_is_over()
                continue
            while box.items:
                self._handle(box.items.popleft())
            if self.engine is not None:
                if self.engine.has_events if step.tokens else self.engine.ready:
                    run_engines((self.engine,))
                if self.over and self.local_error is not None:
                    raise self.local_error
            if step.tokens and not self.finishing:
                self._check_tokens()
        if self.local_error is not None:
            raise self.local_error
        self._take_local()

    def _take_local(self) -> None:
        part, engine = self.step.local, self.engine
        if part is None or engine is None:
            return
        self.run.executed += engine.executed
        values = engine.made if self.step.tokens else engine.env
        for old, new in part.fetched.items():
            if new in values:
                self.results[old] = values[new]
        for value in self.step.fetched:
            if value not in self.results and value not in self.env and value not in self.step.constants:
                raise _not_taken(value)

    def _handle(self, item: Any) -> None:
        if item is _WAKE:
            if self.run.cancelled and not self.local_error:
                self.run.check()
            return
        if isinstance(item, Lost):
            if item.task in self.step.parts and item.task not in self.lost:
                self.lost.add(item.task)
                raise self._task_lost(item.task)
            return
        kind, task, number, payload = item
        if kind == DONE:
            self._answered(task, number, payload)
        elif kind == VALUE:
            assert self.run.exchange is not None
            work = self.run.exchange.deposit(number, payload[0])
            if work is not None:
                work()
        elif kind == TOKEN:
            assert self.run.exchange is not None
            work = self.run.exchange.deposit(task, number, *payload)
            if work is not None:
                work()
        elif kind == FAILED:
            self._failed(task, json.loads(payload))
        elif kind == IDLE:
            text = json.loads(payload)
            report = Idle(text["number"], _counts(text["sent"]), _counts(text["received"]), False)
            known = self.idle.get(task)
            if known is None or known.number <= report.number:
                self.idle[task] = report
        elif kind == STOPPED:
            self.stopped[task] = json.loads(payload)

    def _answered(self, task: int, executed: int, arrays: Sequence[Any]) -> None:
        self.run.executed += executed
        self.done.add(task)
        self.expected.discard(task)
        for value, array in zip(self.step.parts[task].fetched, arrays, strict=True):
            if array is None:
                raise _not_taken(value)
            self.results[value] = array

    def _failed(self, task: int, answer: dict[str, Any]) -> None:
        error = load_error(answer["error"])
        if self.is_late and isinstance(error, TimeoutError):
            self.late.append(error)
            self.expected.discard(task)
            self.run.expired = True
            if "waiting for" in str(error) or not self.expected:
                raise self._late_error()
            return
        if isinstance(error, TaskLostError):  # a task could not reach another one: say which died, if one did
            end = time.monotonic() + LOST_SECONDS
            while self.hub.wait(self.box, end):
                found = self.box.items.popleft()
                if isinstance(found, Lost) and found.task in self.step.parts:
                    self.lost.add(found.task)
                    raise self._task_lost(found.task)
        raise error

    # The deadline ---------------------------------------------------------------------------------------------------

    def _time_is_over(self) -> None:
        if self.step.tokens and not self.asked and (self.until is None or time.monotonic() < self.until):
            self._ask()
            return
        if self.is_late:
            raise self._late_error()
        self.is_late = True
        self.until = time.monotonic() + LATE_SECONDS
        if self.engine is not None and not self.over:
            waiting = self.engine.waiting()
            if waiting:
                self.run.check(waiting)
        for task in self.expected | set(self.step.keeping):
            self._send(task, STOP, STOP_LATE)
        if not self.expected:
            self.run.check()

    def _late_error(self) -> TimeoutError:
        self.run.expired = True
        named = [e for e in self.late if "waiting for" in str(e)]
        found = named or self.late
        return found[0] if found else TimeoutError("session: the step did not finish before its deadline.")

    # Steps with loops -----------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        self.asked = True
        for task in self.step.parts:
            self._send(task, ASK)

    def _check_tokens(self) -> None:
        """Find out whether the step is over: all parts are idle and no token is on its way."""
        step = self.step
        everyone = set(step.cut.parts)
        if not everyone <= set(self.idle):
            if not self.asked and everyone - set(self.idle) <= self._bodies():
                self._ask()
            return
        for a, b in itertools.permutations(everyone, 2):
            if self.idle[a].sent.get(b, 0) != self.idle[b].received.get(a, 0):
                return
        self.finishing = True
        for task in step.parts:
            self._send(task, STOP, STOP_DONE)
        if self.engine is not None:
            self.engine.stop()
            run_engines((self.engine,))

    def _bodies(self) -> set[int]:
        """Parts that have nothing but nodes of loops, and report only when they are asked."""
        return {
            t for t, p in self.step.cut.parts.items()
            if p.work and all(frame_of(p.origin[n]) for n in p.work)
        }  # fmt: skip

    # The end of a step that did not succeed -------------------------------------------------------------------------

    def _send(self, task: int, kind: int, part: int = 0, head: bytes = b"") -> None:
        try:
            self.hub.channel(task).send(kind, part, self.run.step_id, self.hub.number, head)
        except (OSError, TaskLostError):
            self.lost.add(task)

    def _task_lost(self, task: int) -> TaskLostError:
        self.lost.add(task)
        link = self.step._registered.get(task)
        why = self.cluster.why_lost(task, getattr(link, "generation", 0))
        return TaskLostError(
            f"session: {self.cluster.name_of(task)} {why if why.startswith(('was', 'ended')) else f'was lost: {why}'}. "
            f"{self.step.owed(task)} The step was given up; the session goes on when the task is back."
        )

    def _abandon(self, error: BaseException) -> None:
        """Stop all parts, wait for what runs, and return dequeued elements that were not used."""
        step, run, box = self.step, self.run, self.box
        reason = run.reason or (
            "It was interrupted." if not isinstance(error, Exception) else f"Another part failed: {error}"
        )
        if self.engine is not None and not self.over:
            if not run.cancelled:
                Run.cancel(run, reason)
            self.engine.stop()
            run_engines((self.engine,))
        asked = []
        for task in self.begun:
            if task not in self.lost:
                self._send(task, STOP, STOP_NOW, reason.encode()[:1000])
                asked.append(task)
        end = time.monotonic() + (LOST_SECONDS if self.lost else STOP_SECONDS)
        while [t for t in asked if t not in self.stopped and t not in self.lost] or (self.engine and not self.over):
            if not self.hub.wait(box, end):
                break
            item = box.items.popleft()
            if isinstance(item, Lost):
                self.lost.add(item.task)
            elif item is not _WAKE and item[0] == STOPPED:
                self.stopped[item[1]] = json.loads(item[3])
            elif item is not _WAKE and item[0] == DONE:
                self.done.add(item[1])
            if self.engine is not None and not self.over:
                run_engines((self.engine,))
        given_up = is_given_up(run, error) or isinstance(error, TaskLostError)
        used = self._used_dequeues() if given_up else None
        for task in asked:
            if task in self.lost:
                continue
            answer = self.stopped.get(task)
            names = [] if answer is None or used is None else [n for n in answer["leases"] if (task, n) in used]
            if used is None and answer is not None:
                names = answer["leases"]  # its own computation failed: elements stay consumed
            self._send(task, END, 0, json.dumps(names).encode())
        if run.leases and step.local is not None:
            if used is not None:
                ops = {n.op for n in step.local.graph.nodes if (CLIENT, n.name) in used}
                give_back(run, step.local.graph.nodes, ops)
            run.leases = []

    def _used_dequeues(self) -> set[tuple[int, str]]:
        """Dequeues, as (task, name), on which an effect on another task depends that has happened."""
        step = self.step
        happened: set[Node] = set()
        for task, part in step.cut.parts.items():
            answer = self.stopped.get(task)
            finished = task in self.done or (answer is not None and answer["over"])
            names = set() if answer is None else set(answer["effects"])
            for node in part.work:
                if node.op.effects & {"writes"} and not _dequeues(node):
                    mine = task == CLIENT and node.op in self.run.effects
                    if finished or node.name in names or mine:
                        happened.add(part.origin[node])
        used: set[tuple[int, str]] = set()
        where = {part.origin[n]: (task, n.name) for task, part in step.cut.parts.items() for n in part.work}
        for node in happened:
            for before in ancestors(node):
                if _dequeues(before) and before in where and where[before][0] != where[node][0]:
                    used.add(where[before])
        return used


def _dequeues(node: Node) -> bool:
    return isinstance(node.op, _QueueOp) and node.op.method.startswith("dequeue")


def _counts(pairs: Any) -> dict[Any, int]:
    return {int(task): int(count) for task, count in pairs}


def _not_taken(value: Value) -> RuntimeError:
    return RuntimeError(
        f"run: {value.name!r} has no value: it is in a branch that was not taken. Fetch the result of a `merge`. "
        f"Made at {value.node.where}."
    )
