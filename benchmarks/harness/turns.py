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
    `relative` compares within a group. Returns rows by name, what was skipped and what failed.
    """
    result: dict[str, Any] = {"rows": {}, "skipped": {}, "failed": {}, "machine": []}
    started = time.monotonic()
    reference: Worker | None = None
    group: list[Worker] = []
    wanted = []
    for entry in entries:
        if entry.command is None:
            result["skipped"][entry.name] = entry.reason
            say(f"  {entry.name}: skipped, {entry.reason}")
        else:
            wanted.append(entry)
    share = plan.seconds / max(len(wanted), 1)  # of the time, per worker
    try:
        for entry in wanted:
            members = [reference, *group] if reference else group
            if group and machine.available_bytes() < max(2 << 30, int(1.3 * max(w.peak for w in members))):
                _take_turns(reference, group, plan, started + share * (len(result["rows"]) + len(group)), result, say)
                _close(group)
            worker = _start(entry, plan, result, say)
            if worker is None:
                continue
            expected = worker.hello["check"] if reference is None else reference.hello["check"]
            apart = disagreement(worker.hello["check"], expected)
            if apart > plan.tolerance:
                result["failed"][entry.name] = f"disagrees by {apart:.2g}: {worker.hello['check']} against {expected}"
                say(f"  {entry.name}: FAILED, {result['failed'][entry.name]}")
                worker.close()
            elif reference is None:
                reference = worker
            elif plan.rounds == 0:
                say(f"  {entry.name}: agrees to {apart:.1e}; first step {worker.hello['first_seconds']:.1f} s")
                worker.close()
            else:
                group.append(worker)
        if reference and plan.rounds:
            _take_turns(reference, group, plan, started + plan.seconds, result, say)
    finally:
        _close(group)
        if reference:
            reference.close()
    return result


def _contenders(workers: list[Worker], rounds: int) -> list[Worker]:
    """Who takes part in a further round: not those that are far behind already."""
    if rounds < LEAST:
        return list(workers)
    limit = BEHIND * statistics.median(workers[0].seconds)
    return [w for w in workers if statistics.median(w.seconds) < limit]


def _steps(plan: Plan, seconds: float) -> int:
    """How many steps of so many seconds fill a turn."""
    return max(1, min(10_000, int(plan.turn / max(seconds, 1e-7))))


def _start(entry: Entry, plan: Plan, result: dict[str, Any], say: Callable[[str], None]) -> Worker | None:
    assert entry.command is not None
    try:
        return Worker(entry.name, entry.command, entry.env, plan.threads, plan.patience)
    except WorkerError as error:
        where = "skipped" if error.missing else "failed"
        result[where][entry.name] = str(error)
        say(f"  {entry.name}: {'skipped' if error.missing else 'FAILED'}, {error}")
        return None


def _close(group: list[Worker]) -> None:
    for worker in group:
        worker.close()
    group.clear()


def _take_turns(
    reference: Worker | None, group: list[Worker], plan: Plan, until: float, result: dict[str, Any],
    say: Callable[[str], None],
) -> None:  # fmt: skip
    """Time the workers of one group and add their rows."""
    workers = [*([reference] if reference else []), *group]
    steps = {w: _steps(plan, w.hello["step_seconds"]) for w in workers}
    for w in workers:
        w.seconds.clear()
    load, before = os.getloadavg()[0], machine.sample([w.process.pid for w in workers])
    pings: list[float | None] = []
    rounds = 0
    longest = 0.0
    while rounds < plan.rounds and (rounds < LEAST or time.monotonic() + longest < until):
        at = time.monotonic()
        for w in _contenders(workers, rounds):
            pings.append(ping.nanoseconds())
            try:
                w.time(steps[w])
            except WorkerError as error:
                result["failed"][w.name] = str(error)
                say(f"  {w.name}: FAILED, {error}")
                if w is reference:
                    return  # nothing to compare with
                workers.remove(w)
            time.sleep(0.05)  # for threads of the one before to fall asleep
        longest = max(longest, time.monotonic() - at) if rounds < LEAST else time.monotonic() - at
        rounds += 1
        steps = {w: _steps(plan, statistics.median(w.seconds)) for w in workers}
    business = machine.between(before, machine.sample([w.process.pid for w in workers]), load)
    result["machine"].append(business.facts() | {"pings": [round(p) for p in pings if p is not None]})
    say(f"  {rounds} rounds of {', '.join(w.name for w in workers)}; {business}")
    middle = statistics.median(workers[0].seconds) if workers else 1.0
    for w in workers:
        if w is reference and w.name in result["rows"]:
            continue
        low, median, high = quartiles(w.seconds)
        result["rows"][w.name] = {
            "median": median, "low": low, "high": high, "best": min(w.seconds), "steps": len(w.seconds), "rounds": rounds,
            "relative": median / middle, "first_seconds": w.hello["first_seconds"], "check": w.hello["check"],
            "peak_bytes": w.peak, "what": w.hello["ready"], "busy": business.busy,
        }  # fmt: skip
