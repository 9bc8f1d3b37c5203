"""The naive executor on a cluster: the client walks over the nodes, and every node runs on its task, one at a time.

The reference for steps on a cluster: it shares with them only how a task runs one node. Every value comes back to the client and
goes from there to the nodes that use it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..graph.declared.routing import frame_of
from ..graph.execute.control_lowering import STEP_OPS
from ..graph.execute.interpret import run_alone
from ..graph.execute.leases import ancestors, give_back, is_given_up
from ..graph.execute.naive import Interpreter, Script
from ..graph.graph import Node, Value
from .remote_client import Lost, Mailbox
from .remote_messages import END, TaskLostError, load_error
from .remote_partition import CLIENT

if TYPE_CHECKING:
    from .remote_step import ClientRun, RemoteStep

WITHDRAW_SECONDS = 10.0


class NaiveStep:
    """A step that is run node by node."""

    def __init__(self, step: RemoteStep) -> None:
        self.step = step
        self.script = Script(step.nodes, step.fed, step.fetched, {}, frame_of)
        self.at: dict[Node, tuple[int, Node]] = {
            n: (task, new) for task, p in step.cut.parts.items() for new, n in p.origin.items() if new in set(p.work)
        }

    def run(self, run: ClientRun, env: dict[Value, Any]) -> dict[Value, Any]:
        """Run one step; returns all values outside of loops."""
        run.leased_elsewhere = any(p.keeps for p in self.step.parts.values())
        walker = _Walker(self, run, env)
        try:
            found = walker.execute()
        except BaseException as error:
            self._give_back(run, error)
            raise
        self._end(run, None)
        return found

    def _end(self, run: ClientRun, used: dict[int, list[str]] | None) -> None:
        hub = run.hub
        for task in self.step.parts:
            head = b"" if used is None else json.dumps(used.get(task, [])).encode()
            try:
                hub.channel(task).send(END, 0, run.step_id, hub.number, head)
            except (OSError, TaskLostError):
                continue  # it has nothing to give back any more

    def _give_back(self, run: ClientRun, error: BaseException) -> None:
        """Return dequeued elements that were not used."""
        if not is_given_up(run, error):
            self._end(run, None)
            run.leases = []
            return
        happened: list[tuple[int, Node]] = [(CLIENT, n) for n in self.step.nodes if n.op in run.effects]
        names = {(task, new.name): n for n, (task, new) in self.at.items()}
        for task in self.step.parts:
            try:
                answer, _ = run.hub.call(task, {"do": "effects", "step": run.step_id}, seconds=WITHDRAW_SECONDS)
            except (TaskLostError, TimeoutError):
                continue
            happened += [(task, names[task, name]) for name in answer["effects"]]
        used: dict[int, list[str]] = {}
        for task, node in happened:
            for before in ancestors(node):
                if before in self.at and self.at[before][0] != task:
                    used.setdefault(self.at[before][0], []).append(self.at[before][1].name)
        self._end(run, used)
        local = set(used.get(CLIENT, ()))
        give_back(run, self.step.nodes, {n.op for n in self.step.nodes if n.name in local})


class _Walker(Interpreter):
    """One run of a script whose nodes are on tasks."""

    def __init__(self, naive: NaiveStep, run: ClientRun, env: dict[Value, Any]) -> None:
        super().__init__(naive.script, run, env, None)
        self.naive, self.client_run = naive, run
        self.calls: dict[int, Any] = {}  # blocking nodes: number of the call -> how to report it
        self.box = run.box

    def compute(self, node: Node, inputs: Sequence[Any]) -> Sequence[Any]:
        task, new = self.naive.at[node]
        if (
            task == CLIENT or STEP_OPS.get(node.op.name, (None,))[0] is node.op.__class__
        ):  # what lowering made is bookkeeping, some of it on lists of rows
            return run_alone(new, inputs)
        run, hub = self.client_run, self.client_run.hub
        try:
            number = hub.start_call(task, *self._message(node, inputs), self.box)
        except TaskLostError:
            raise self._lost(task) from None
        self.calls[number] = key = object()
        until = None if run.deadline is None else run.deadline + WITHDRAW_SECONDS  # the task knows the deadline, too
        told = False
        while key not in self.reports:
            if run.cancelled and not told:
                told, until = True, time.monotonic() + WITHDRAW_SECONDS
                hub.start_call(task, {"do": "cancel", "step": run.step_id, "reason": run.reason}, (), Mailbox())
            if not hub.wait(self.box, until):
                run.check()
                raise TimeoutError(f"session: {self.naive.step.cluster.name_of(task)} does not answer.")
            while self.box.items:
                self._took(self.box.items.popleft())
        error, arrays = self.reports.pop(key)
        if error is not None:
            run.expired = isinstance(error, TimeoutError) and run.deadline is not None
            raise error
        found: Sequence[Any] = arrays
        return found

    def _message(self, node: Node, inputs: Sequence[Any]) -> tuple[dict[str, Any], list[np.ndarray]]:
        task, new = self.naive.at[node]
        arrays = [np.asarray(a) for v, a in zip(node.inputs, inputs, strict=True) if isinstance(v, Value)]
        device = self.naive.step.place[node]
        message = {
            "do": "node", "handle": self.naive.step.handles[task], "node": new.name, "step": self.client_run.step_id,
            "missing": [not isinstance(v, Value) for v in node.inputs], "reference": device.kind == "ref",
            "left": None if self.run_state.deadline is None else self.run_state.deadline - time.monotonic(),
        }  # fmt: skip
        return message, arrays

    def _lost(self, task: int) -> TaskLostError:
        step = self.naive.step
        why = step.cluster.why_lost(task, getattr(step._registered.get(task), "generation", 0))
        return TaskLostError(f"session: {step.cluster.name_of(task)} {why}. {step.owed(task)}")

    # Nodes that block -----------------------------------------------------------------------------------------------

    def _start(self, node: Node, inputs: Sequence[Any], env: Any, tag: Any, pending: dict[Any, Node]) -> bool:
        task, _ = self.naive.at[node]
        if task == CLIENT:
            return super()._start(node, inputs, env, tag, pending)
        hub = self.client_run.hub
        key = object()
        number = hub.start_call(task, *self._message(node, inputs), self.box)
        self.calls[number] = key
        self.waiting[key] = lambda: self._withdraw(task, number)
        self.started[key] = node
        pending[key] = node
        return False

    def _withdraw(self, task: int, number: int) -> None:
        self.client_run.hub.forget_call(number)
        try:
            self.client_run.hub.call(task, {"do": "withdraw", "call": number}, seconds=WITHDRAW_SECONDS)
        except (TaskLostError, TimeoutError):
            return  # then there is nothing to withdraw

    def _woken(self) -> None:
        self.client_run.wake()

    def _wait(self) -> None:
        run, hub = self.client_run, self.client_run.hub
        while not self.reports:
            if run.cancelled or (run.deadline is not None and time.monotonic() >= run.deadline):
                run.check(list(self.started.values()))
            if not hub.wait(self.box, run.deadline):
                continue
            while self.box.items:
                self._took(self.box.items.popleft())

    def _took(self, item: Any) -> None:
        if isinstance(item, Lost):
            if item.task in self.naive.step.parts:
                raise self._lost(item.task)
        elif isinstance(item, tuple):
            number, (answer, arrays) = item
            key = self.calls.pop(number, None)
            if key is not None:
                error = load_error(answer["error"]) if "error" in answer else None
                self.reports[key] = (error, arrays)
