"""Run the units of a plan on whichever thread brings what they wait for.

`Engine` keeps the calling thread until the step ends. A `ResumableEngine` keeps none while it waits: the thread that brings
an event (a value from another part, an element of a queue, the end of a unit) runs what that event made ready, and leaves.
So a part that waits costs no thread, and a value is used on the thread that brought it, without a hand-over.

A thread that is inside one engine when it wakes another runs that one afterwards, not inside: chains of queues do not nest.
Units that took long the last time are shared with the pool of threads if there is other work. An engine with an owner, a
thread that waits for the step, is run by that thread and the pool only: a `put` of the user does not run another's step.

Contract: as `Engine`. When a unit fails or `stop` is called no further unit starts, waiting nodes are withdrawn, units
that run are completed, and then `finished(error)` is called, once; with None when all units have run.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any

from ...runtime.interrupts import watched
from ..graph import Node, Value
from .executor import Unit
from .interpret import located
from .run import Run
from .threads import pool

SHARED_SECONDS = 2e-4  # a unit that took longer is worth another thread


class _Here(threading.local):
    todo: deque[Any] | None = None  # engines to run on this thread, after the current one
    run: Run | None = None  # the step of the current one


_here = _Here()


def run_engines(engines: Iterable[Any]) -> None:
    """Run what is ready in all of `engines`, and in those that they wake, on this thread; returns when they wait or ended."""
    before = watched.by
    _here.todo = todo = deque(engines)
    try:
        while todo:
            engine = todo.popleft()
            watched.by = _here.run = engine.run_state
            engine.drain(todo)
    finally:
        _here.todo = _here.run = None
        watched.by = before


class deferring:
    """While entered, engines that this thread wakes are not run; `engines` has them afterwards."""

    __slots__ = ("engines",)

    def __enter__(self) -> deferring:
        assert _here.todo is None
        self.engines = _here.todo = deque()
        return self

    def __exit__(self, *_: Any) -> None:
        _here.todo = None


def resume(engine: Any) -> None:
    """Run what is ready in an engine: on this thread, if it is inside another one after that, or let its owner do it."""
    todo = _here.todo
    if todo is not None and (engine.wake is None or _here.run is engine.run_state):
        todo.append(engine)
    elif engine.wake is not None:
        engine.wake()
    else:
        run_engines((engine,))


class ResumableEngine:
    """One run of a plan, or of a part of one.

    Args:
        plan: the units. Those in `plan.arrivals`, by key, are never started: they are done when `arrive` brings their value.
        run: the step.
        env: the fed values; receives those that are computed.
        finished: called once, with the error or None.
        wake: tells the owner, on any thread, that something is ready; None: there is none.
    """

    __slots__ = (
        "plan", "run_state", "env", "finished", "wake", "error", "executed", "_lock", "_counts", "_ready", "_pending",
        "_left", "_running", "_stopped", "_over",
    )  # fmt: skip

    def __init__(
        self, plan: Any, run: Run, env: dict[Value, Any], finished: Callable[[BaseException | None], None],
        wake: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self.plan, self.run_state, self.env, self.finished, self.wake = plan, run, env, finished, wake
        self.error: BaseException | None = None
        self.executed = 0
        self._lock = threading.Lock()
        self._counts = list(plan.counts)
        self._ready: deque[Unit] = deque(plan.initial)
        self._pending: dict[
            Unit, Any
        ] = {}  # started and not done: how to withdraw them; None while they are being started
        self._left = len(plan.units)
        self._running = 0
        self._stopped = self._over = False

    @property
    def ready(self) -> bool:
        """Whether a unit could run now."""
        return bool(self._ready)

    def waiting(self) -> list[Node]:
        """The nodes that wait for something outside of the step."""
        with self._lock:
            return [u.node for u in self._pending if u.size]

    def arrive(self, key: Any, array: Any) -> None:
        """The value of a unit that another part computes, on any thread; a second one for the same unit is ignored."""
        unit = self.plan.arrivals[key]
        if unit.outputs and (array is None or array.dtype != unit.outputs[0].dtype):
            self.stop(TypeError(f"session: a value of another dtype came for node {unit.node.name!r}."))
            return
        with self._lock:
            if self._stopped or self._counts[unit.index]:
                return
            self._counts[unit.index] = -1
            if unit.outputs:
                self.env[unit.outputs[0]] = array
            self._left -= 1
            self._release(unit)
            ready = bool(self._ready)
        if ready:
            resume(self)

    def forget(self) -> None:
        """Let the values of a step that is over go at once, not when the garbage collector finds the cycle they are in."""
        self.env = {}

    def stop(self, error: BaseException | None = None) -> None:
        """Start nothing more, withdraw what waits, and end with `error` once no unit runs."""
        with self._lock:
            if self._over:
                return
            if self.error is None:
                self.error = error
            self._stopped = True
            self._ready.clear()
            waiting = {u: w for u, w in self._pending.items() if w is not None}
            for unit in waiting:
                del self._pending[unit]
        for withdraw in waiting.values():
            withdraw()
        self._settle()

    # Units ----------------------------------------------------------------------------------------------------------------

    def drain(self, todo: deque[Any]) -> None:
        """Run units until none is ready. Other threads may do the same."""
        run, ready, lock = self.run_state, self._ready, self._lock
        with lock:
            unit = ready.popleft() if ready else None
            others = bool(ready)
            self._running += unit is not None
        if unit is None:  # a plan without units is over at once
            self._settle()
        while unit is not None:
            try:
                run.check_start()
                if unit.start is not None:
                    self._start(unit)
                    outputs: Sequence[Any] | None = None
                else:
                    if unit.seconds > SHARED_SECONDS and (others or todo):
                        self._share(todo, others)
                    begun = perf_counter()
                    outputs = unit.run(self._inputs(unit))
                    unit.seconds = perf_counter() - begun
                    self._keep(unit, outputs)
            except BaseException as error:  # kept, and given to `finished`
                self.stop(error)
                outputs = None
            with lock:
                if outputs is not None:
                    self.executed += unit.size
                    self._left -= 1
                    self._release(unit)
                unit = ready.popleft() if ready else None
                others = bool(ready)
                if unit is None:
                    self._running -= 1
        self._settle()

    def _share(self, todo: deque[Any], others: bool) -> None:
        """Let other threads take what this one would do after a long unit."""
        while todo:
            pool().submit(run_engines, (todo.popleft(),))
        if others:
            pool().submit(run_engines, (self,))

    def _inputs(self, unit: Unit) -> list[Any]:
        env, constants = self.env, self.plan.constants
        return [(env[v] if v in env else constants[v]) if v.__class__ is Value else v for v in unit.inputs]

    def _keep(self, unit: Unit, outputs: Sequence[Any]) -> None:
        env, fed = self.env, self.plan.fed
        for v, a in zip(unit.outputs, outputs, strict=True):
            if v not in fed:
                env[v] = a

    def _release(self, unit: Unit) -> None:
        """Make the consumers of a unit ready that wait for nothing else; the lock is held."""
        counts, units, stopped = self._counts, self.plan.units, self._stopped
        for i in unit.consumers:
            counts[i] -= 1
            if not counts[i] and not stopped:
                self._ready.append(units[i])

    def _start(self, unit: Unit) -> None:
        """Start a node that blocks; it reports from any thread, perhaps at once."""
        with self._lock:
            self._pending[unit] = None
        assert unit.start is not None
        try:
            withdraw = unit.start(
                self._inputs(unit), lambda error, outputs: self._done(unit, error, outputs), self.run_state
            )
        except Exception as error:
            with self._lock:
                self._pending.pop(unit, None)
            raise located(error, unit.node) from error.__cause__
        with self._lock:
            if unit not in self._pending:
                return
            if not self._stopped:
                self._pending[unit] = withdraw or _nothing
                return
            del self._pending[unit]
        if withdraw is not None:
            withdraw()

    def _done(self, unit: Unit, error: BaseException | None, outputs: Sequence[Any]) -> None:
        with self._lock:
            known = unit in self._pending
            if known:
                del self._pending[unit]
                self._running += 1  # until its consumers are ready
        if not known:
            return
        if error is not None:
            self.stop(located(error, unit.node))
        elif not self._stopped:
            self._keep(unit, outputs)
        with self._lock:
            if error is None and not self._stopped:
                self.executed += unit.size
                self._left -= 1
                self._release(unit)
            self._running -= 1
            ready = bool(self._ready)
        if ready:
            resume(self)
        else:
            self._settle()

    def _settle(self) -> None:
        """Report the end if this is it."""
        with self._lock:
            ended = not self._left or (self._stopped and not self._pending)
            if self._over or self._running or not ended:
                return
            self._over = True
        self.finished(self.error)


def _nothing() -> None:
    """Nothing to withdraw: the node reports by itself."""
