"""Partition a step into one plan per device, joined only by send and receive.

Every value that is made on one device and used on another becomes one `send` there and one `receive` here, however many
nodes use it; a control edge across devices is a send of nothing. The two halves know each other only by their key in a
`Transport`, so it does not matter whether the other device is in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...runtime.device import Device
from ..graph import Value
from .executor import Plan, Unit
from .resumable import ResumableEngine, run_engines
from .run import CancelledError, Run
from .transport import Done, Key, Transport


class Part:
    """The units of one device. It has the interface that `Engine` needs of a plan."""

    def __init__(self, device: Device, plan: Plan) -> None:
        self.device, self.fed, self.constants = device, plan.fed, plan.constants
        self.units: list[Unit] = []
        self.fetched: list[Value] = []
        self.counts: list[int] = []
        self.initial: list[Unit] = []

    def finish(self) -> None:
        self.counts = [len(u.after) for u in self.units]
        self.initial = [u for u in self.units if not u.after]
        for unit in self.units:
            unit.consumers = []
        for unit in self.units:
            for i in unit.after:
                self.units[i].consumers.append(unit.index)

    def add(self, unit: Unit) -> Unit:
        unit.index = len(self.units)
        self.units.append(unit)
        return unit


def _transfer(
    node: Any, device: Device, key: Callable[[int], Key], transport: Transport, value: Value | None, sends: bool
) -> Unit:
    """One half of a crossing; `value` is None for a control edge."""
    unit = Unit([node], device)
    unit.size = 0
    if sends:
        unit.inputs = [] if value is None else [value]

        def start(arrays: Sequence[Any], done: Done, run: Run) -> Any:
            transport.send(key(run.step_id), arrays[0] if arrays else None)
            done(None, ())
    else:
        unit.outputs = [] if value is None else [value]

        def start(arrays: Sequence[Any], done: Done, run: Run) -> Any:
            return transport.receive(key(run.step_id), lambda error, got: done(error, got if value is not None else ()))

    unit.start = start
    return unit


def partition(plan: Plan, transport: Transport) -> list[Part]:
    """The plan cut at device boundaries."""
    parts: dict[Device, Part] = {}
    for unit in plan.units:
        part = parts.get(unit.device)
        if part is None:
            part = parts[unit.device] = Part(unit.device, plan)
        part.add(unit)
    home = {unit: parts[unit.device] for unit in plan.units}
    original = list(plan.units)
    needs = {unit: [original[i] for i in unit.after] for unit in original}
    sends: dict[Any, Unit] = {}
    receives: dict[Any, Unit] = {}
    for unit in original:
        part = home[unit]
        after: set[int] = set()
        used = [v for v in unit.inputs if isinstance(v, Value) and v not in plan.fed and v not in plan.constants]
        for other in needs[unit]:
            if home[other] is part:
                after.add(other.index)
                continue
            values: list[Value | None] = [v for v in used if plan.unit_of.get(v.node) is other] or [
                None
            ]  # None: control
            for v in values:
                edge = (v if v is not None else other, part.device)
                if edge not in receives:
                    name = v.name if v is not None else f"^{other.node.name}"
                    key = _key(other.device, part.device, name)
                    send = _transfer(other.node, other.device, key, transport, v, True)
                    send.after = {other.index}
                    sends[edge] = home[other].add(send)
                    receives[edge] = part.add(_transfer(other.node, part.device, key, transport, v, False))
                after.add(receives[edge].index)
        unit.after = after
    for part in parts.values():
        part.finish()
    return list(parts.values())


def _key(source: Device, destination: Device, edge: str) -> Callable[[int], Key]:
    return lambda step: Key(source, destination, edge, step)


def run_parts(parts: Sequence[Part], run: Run, env: dict[Value, Any], transport: Transport) -> dict[Value, Any]:
    """Run all parts; returns all values that were computed.

    The calling thread runs them in turn, each as far as it comes: most parts of a step wait for each other, and waking a
    thread takes longer than a small part. Long units that could run beside others go to the pool of threads.
    """
    failed: list[BaseException] = []
    left = len(parts)

    def finished(error: BaseException | None) -> None:
        nonlocal left
        with run.changed:
            left -= 1
            if error is not None:
                failed.append(error)
                if not run.cancelled:  # now: this thread goes on with the other parts, which must start nothing
                    _cancel(run, error)
            run.changed.notify_all()

    def wake() -> None:
        with run.changed:
            run.changed.notify_all()

    engines = [ResumableEngine(part, run, dict(env), finished, wake) for part in parts]
    try:
        run_engines(engines)
        while left and not failed:
            with run.changed:
                while left and not failed and not any(engine.ready for engine in engines):
                    if not run.wait(any(engine.waiting() for engine in engines)):
                        run.check([node for engine in engines for node in engine.waiting()])
            run_engines([engine for engine in engines if engine.ready])
    except BaseException as error:  # also Ctrl-C
        failed.append(error)
    if failed:
        _end(engines, run, failed[0], lambda: left)
        transport.forget(run.step_id)
        raise next((e for e in failed if not isinstance(e, CancelledError)), failed[0])
    merged: dict[Value, Any] = {}
    for engine in engines:
        run.executed += engine.executed
        merged.update(engine.env)
    return merged


def _end(engines: Sequence[ResumableEngine], run: Run, error: BaseException, left: Callable[[], int]) -> None:
    """Stop all parts and wait for the units that run."""
    _cancel(run, error)
    for engine in engines:
        engine.stop()
    with run.changed:
        while left():
            run.changed.wait(1.0)


def _cancel(run: Run, error: BaseException) -> None:
    given_up = not isinstance(error, Exception)
    run.cancel("It was interrupted." if given_up else f"Another device failed: {error}")
