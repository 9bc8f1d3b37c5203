"""Workers take turns (A B A B …), so that the noise of a shared machine hits all alike."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import machine, ping
from .process import Worker, WorkerError
from .protocol import long_seconds

LEAST = 3  # rounds in which all take part, however long it takes
BEHIND = 2.5  # times as slow as the reference: not worth more rounds than those


@dataclass(frozen=True)
class Entry:
    """A runner: how its worker is started. Without a command it is skipped, for the reason given."""

    name: str
    command: Sequence[str] | None
    env: dict[str, str] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class Plan:
    """How long and how carefully to measure.

    Args:
        seconds: for all of it, starting included; three rounds are run whatever it says.
        rounds: at most so many; none means that only the check is done.
        turn: seconds of one worker's turn (at least one step).
        tolerance: by how much the check numbers may differ, relative to the largest of them and to 1.
        threads: of each worker.
        patience: seconds to wait for an answer.
    """

    seconds: float = 120.0
    rounds: int = 9
    turn: float = 2.0
    tolerance: float = 1e-3
    threads: int = 2
    patience: float = 600.0


def disagreement(got: Sequence[float], expected: Sequence[float]) -> float:
    """The largest relative difference of two lists of numbers; infinite if they cannot be compared."""
    if len(got) != len(expected) or any(x != x for x in got):
        return float("inf")
    scale = max(1.0, *(abs(x) for x in expected))
    return max((abs(a - b) / scale for a, b in zip(got, expected)), default=float("inf"))


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    if len(values) == 1:
        return (values[0],) * 3
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def compare(entries: Sequence[Entry], plan: Plan, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Start every worker, check that all agree with the first one, and time them in turns.

    Workers that do not fit in memory together run in groups; the first one, the reference, takes part in every group, and
    `relative` compares within a group. One that ends beside a group before it was ready is tried again when the group has
    gone: it may have wanted its memory. A worker whose steps take long (`protocol.long_seconds`) is timed once, when it
    starts. Returns rows by name, what was skipped and what failed.
    """
    comparison = _Comparison(plan, say)
    wanted = []
    for entry in entries:
        if entry.command is None:
            comparison.leave_out(entry.name, entry.reason, skipped=True)
        else:
            wanted.append(entry)
    try:
        for i, entry in enumerate(wanted):
            comparison.add(entry, until=plan.seconds * i / len(wanted))
        comparison.finish_group(plan.seconds)
    finally:
        comparison.close()
    return comparison.result


def _contenders(workers: list[Worker], rounds: int) -> list[Worker]:
    """Who takes part in a further round: not those that are far behind already."""
    if rounds < LEAST:
        return list(workers)
    limit = BEHIND * statistics.median(workers[0].seconds)
    return [w for w in workers if statistics.median(w.seconds) < limit]


def _row(w: Worker, relative_to: float, rounds: int, business: machine.Business) -> dict[str, Any]:
    """What is known of a worker that was timed."""
    low, median, high = quartiles(w.seconds)
    return {
        "median": median, "low": low, "high": high, "best": min(w.seconds), "steps": len(w.seconds), "rounds": rounds,
        "relative": median / relative_to, "first_seconds": w.hello["first_seconds"], "check": w.hello["check"],
        "peak_bytes": w.peak, "what": w.hello["ready"], "busy": business.busy,
    }  # fmt: skip


class _Comparison:
    """The reference, the group that is alive beside it, and what is known so far."""

    def __init__(self, plan: Plan, say: Callable[[str], None]) -> None:
        self.plan, self.say = plan, say
        self.started = time.monotonic()
        self.reference: Worker | None = None
        self.group: list[Worker] = []
        self.result: dict[str, Any] = {"rows": {}, "skipped": {}, "failed": {}, "machine": []}

    def leave_out(self, name: str, why: str, skipped: bool = False) -> None:
        """Note and say why a worker has no row."""
        self.result["skipped" if skipped else "failed"][name] = why
        self.say(f"  {name}: {'skipped' if skipped else 'FAILED'}, {why}")

    def close(self) -> None:
        """End all workers."""
        self._close_group()
        if self.reference:
            self.reference.close()

    def _close_group(self) -> None:
        for worker in self.group:
            worker.close()
        self.group.clear()

    def add(self, entry: Entry, until: float) -> None:
        """Start a worker and check it. If it does not fit, the group before it is timed first, until so many seconds."""
        peaks = [w.peak for w in (self.reference, *self.group) if w]
        if self.group and machine.available_bytes() < max(2 << 30, int(1.3 * max(peaks))):
            self.finish_group(until)
        load, before = os.getloadavg()[0], machine.sample([])
        began = time.monotonic()
        try:
            worker = self._start(entry, until)
        except WorkerError as error:
            self.leave_out(entry.name, str(error), error.missing)
            return
        check = worker.hello["check"]
        expected = check if self.reference is None else self.reference.hello["check"]
        apart = disagreement(check, expected[: max(2, len(check))])  # two numbers of one with long steps
        if apart > self.plan.tolerance:
            worker.close()
            self.leave_out(entry.name, f"disagrees by {apart:.2g}: {check} against {expected}")
        elif self.reference is None:
            self.reference = worker
        elif self.plan.rounds == 0:
            self.say(f"  {entry.name}: agrees to {apart:.1e}; first step {worker.hello['first_seconds']:.1f} s")
            worker.close()
        elif worker.hello["step_seconds"] >= long_seconds():
            business = machine.between(before, machine.sample([worker.process.pid]), load)
            self._time_once(worker, business)
            self.started += time.monotonic() - began  # not at the cost of the others' rounds
        else:
            self.group.append(worker)

    def _start(self, entry: Entry, until: float) -> Worker:
        assert entry.command is not None
        start = lambda: Worker(entry.name, entry.command, entry.env, self.plan.threads, self.plan.patience)
        try:
            return start()
        except WorkerError as error:
            if error.missing or not error.ended or not self.group:
                raise
            self.say(f"  {entry.name}: {error}. Trying again without {', '.join(w.name for w in self.group)}")
        self.finish_group(until)
        return start()

    def _time_once(self, worker: Worker, business: machine.Business) -> None:
        """A row from the last step before a worker was ready, beside the reference's."""
        assert self.reference is not None
        worker.seconds.append(worker.hello["step_seconds"])
        self.result["rows"][worker.name] = _row(worker, self.reference.hello["step_seconds"], 0, business)
        self.say(f"  {worker.name}: a step takes {worker.seconds[0]:.0f} s, timed once; {business}")
        worker.close()

    def _steps(self, seconds: float) -> int:
        """How many steps of so many seconds fill a turn."""
        return max(1, min(10_000, int(self.plan.turn / max(seconds, 1e-7))))

    def finish_group(self, until: float) -> None:
        """Time the workers of the group in turns, until so many seconds after the start, add their rows, end them."""
        if self.reference is None or self.plan.rounds == 0:
            return
        if not self.group and self.reference.name in self.result["rows"]:
            return
        workers = [self.reference, *self.group]
        steps = {w: self._steps(w.hello["step_seconds"]) for w in workers}
        for w in workers:
            w.seconds.clear()
        load, before = os.getloadavg()[0], machine.sample([w.process.pid for w in workers])
        pings: list[float | None] = []
        rounds = 0
        longest = 0.0
        while rounds < self.plan.rounds and (rounds < LEAST or time.monotonic() + longest < self.started + until):
            at = time.monotonic()
            for w in _contenders(workers, rounds):
                pings.append(ping.nanoseconds())
                try:
                    w.time(steps[w])
                except WorkerError as error:
                    self.leave_out(w.name, str(error))
                    if w is self.reference:
                        self._close_group()
                        return  # nothing to compare with
                    workers.remove(w)
                time.sleep(0.05)  # for threads of the one before to fall asleep
            longest = max(longest, time.monotonic() - at) if rounds < LEAST else time.monotonic() - at
            rounds += 1
            steps = {w: self._steps(statistics.median(w.seconds)) for w in workers}
        business = machine.between(before, machine.sample([w.process.pid for w in workers]), load)
        self.result["machine"].append(business.facts() | {"pings": [round(p) for p in pings if p is not None]})
        self.say(f"  {rounds} rounds of {', '.join(w.name for w in workers)}; {business}")
        middle = statistics.median(self.reference.seconds)
        for w in workers:
            if w is not self.reference or w.name not in self.result["rows"]:
                self.result["rows"][w.name] = _row(w, middle, rounds, business)
        self._close_group()
