"""Spans of the steps of all tasks in one trace file, for Perfetto or chrome://tracing.

Every task appends its spans to a file on its host. After the last of the wanted steps the driver reads these files, brings
them to one clock and writes the trace. Processes of one host share a clock (CLOCK_MONOTONIC); how far the clocks of two hosts
are apart, their relays estimate from messages with time stamps (`clock_offset`). A task that does not record pays nothing: its
step is an instance of another class.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from . import context as contexts
from .host import task_of

if TYPE_CHECKING:
    from .engine import Engine

STEPS = (10, 29)  # that are recorded unless the user says otherwise: compilation is over
FLUSH_SECONDS = 0.1
MAIN = "steps"  # the track of a worker
HOST_PIDS = 10_000_000  # greater than any process number

now = time.monotonic_ns


def file_name(task: str) -> str:
    """The file with the spans of a task, in the run's directory on its host."""
    return f"trace-{task}.jsonl"


class Recorder:
    """The spans of this process. Thread-safe.

    Args:
        path: the file to append to.
        task: the name of the task.
        host: the number of its host.
        steps: the first and the last step to record.
    """

    def __init__(self, path: str, task: str, host: int, steps: tuple[int, int]) -> None:
        self.path, (self.first, self.last) = path, steps
        self._lock = threading.Lock()
        self._lines: list[list[Any]] = [["task", task, os.getpid(), host]]
        self._flushed = time.monotonic()
        self._best: dict[int, int] = {}  # host -> the shortest delay of a message to it and back

    def wants(self, step: int) -> bool:
        """Whether a step is recorded."""
        return self.first <= step <= self.last

    def add(self, name: str, track: str, start: int, **args: Any) -> None:
        """A span from `start` to now, in nanoseconds of `now`."""
        end = now()
        with self._lock:
            last: list[Any] = self._lines[-1] if self._lines else [""]
            if name == "wait" and last[0] == "span" and last[1:3] == [name, track] and last[5] == args:
                last[4] = end - last[3]  # it went on after a look at the others
            else:
                self._lines.append(["span", name, track, start, end - start, args])

    def clock(self, peer: int, offset: int, delay: int) -> None:
        """How far the clock of another host is ahead; the estimate with the shortest delay counts."""
        with self._lock:
            if delay < self._best.get(peer, delay + 1):
                self._best[peer] = delay
                self._lines.append(["clock", peer, offset, delay])

    def flush(self, at_once: bool = False) -> None:
        """Append to the file what was recorded, if it is time to."""
        if not at_once and time.monotonic() - self._flushed < FLUSH_SECONDS:
            return
        with self._lock:
            lines, self._lines = self._lines, []
        self._flushed = time.monotonic()
        with contextlib.suppress(OSError), open(self.path, "a") as file:  # a full disk loses the trace, not the run
            file.write("".join(json.dumps(line) + "\n" for line in lines))


@functools.cache
def recorder() -> Recorder | None:
    """The recorder of this process; None if the run is not traced."""
    context = contexts.current()
    if context is None or context.trace is None:
        return None
    task = task_of(os.getpid()) or f"task-{os.getpid()}"
    first, last = context.trace
    made = Recorder(os.path.join(context.directory, file_name(task)), task, context.host, (first, last))
    atexit.register(made.flush, True)
    return made


@functools.cache
def traced(step: type) -> Any:
    """A class of steps (`team._Step`) whose parts become spans."""
    base: Any = step

    class Traced(base):
        def _span(self, name: str, start: int, track: str = MAIN, **args: Any) -> None:
            self.team.recorder.add(name, track, start, step=self.number, **args)

        def run(self) -> None:
            start = now()
            try:
                super().run()
            finally:
                self._span("step", start)
                self.team.recorder.flush(self.number == self.team.recorder.last)

        def finish(self, shard: int, claimant: int, index: int, statistics: Any, seconds: float) -> None:
            start = now() - int(seconds * 1e9)
            super().finish(shard, claimant, index, statistics, seconds)
            track = MAIN if self.team.together is None else f"shard {shard}"  # else they are computed side by side
            self._span("shard", start, track, shard=shard, copy=claimant != self.team.member)

        def seal(self) -> None:
            start, shards = now(), len(self.unsealed)
            super().seal()
            if shards:
                self._span("seal", start, shards=shards)

        def _await(self, *what: Any) -> bool:
            start = now()
            ready: bool = super()._await(*what)
            self._span("wait", start, kind=what[0])
            return ready

        def _all_units(self, kind: str, count: int, compute: Callable[[int], None]) -> bool:
            def timed(index: int) -> None:
                start = now()
                compute(index)
                self._span("norm" if kind == "norms" else "update", start, slice=index)

            complete: bool = super()._all_units(kind, count, timed)
            return complete

        def _commit(self) -> None:
            start = now()
            super()._commit()
            self._span("commit", start)

    return Traced


def clock_offset(sent: int, received: int, answered: int, arrived: int) -> tuple[int, int]:
    """How far another clock is ahead of this one, and the delay of the messages: half of it bounds the error.

    Args:
        sent: when a message was sent, by this clock.
        received: when the other end received it, by its clock.
        answered: when it sent the answer.
        arrived: when the answer arrived, by this clock.

    >>> clock_offset(100, 1060, 1070, 130)
    (950, 20)
    """
    return (received - sent + answered - arrived) // 2, (arrived - sent) - (answered - received)


# One file -------------------------------------------------------------------------------------------------------------


def collect(engine: Engine, tasks: Iterable[str]) -> list[str]:
    """The contents of the files that the tasks of a run have written, on whatever hosts they were."""
    found = []
    for host in engine.places():
        for task in tasks:
            data = engine.read(host, file_name(task))
            if data:
                found.append(data.decode(errors="replace"))
    return found


def merge(files: Iterable[str]) -> dict[str, Any]:
    """One trace from the spans of many tasks, in Chrome's format, on the clock of the first host."""
    processes = [process for text in files for process in _parse(text)]
    shift = _shifts(processes)
    several = len(shift) > 1
    events: list[dict[str, Any]] = []
    for process in sorted(processes, key=lambda p: (p["host"], p["task"], p["pid"])):
        pid = process["pid"] + HOST_PIDS * process["host"] if several else process["pid"]
        name = f"{process['task']} (host {process['host']}, process {process['pid']})"
        events.append({"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}})
        tracks = {track: i for i, track in enumerate(dict.fromkeys(span[1] for span in process["spans"]))}
        for track, thread in tracks.items():
            events.append({"name": "thread_name", "ph": "M", "pid": pid, "tid": thread, "args": {"name": track}})
        for label, track, start, duration, args in process["spans"]:
            where = {"pid": pid, "tid": tracks[track]}
            at = (start + shift[process["host"]]) / 1e3
            kind = "wire" if label in ("send", "receive") else "step"
            span = {"name": label, "cat": kind, "ph": "X", "ts": at, "dur": duration / 1e3, **where, "args": args}
            events += [span, *_arrow(span, process["host"])]
    clocks = {f"host {host}": {"shift_us": value / 1e3} for host, value in shift.items()}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": clocks}


def _arrow(span: dict[str, Any], host: int) -> Iterator[dict[str, Any]]:
    """An end of the arrow from where a partial sum is sent to where it arrives."""
    args = span["args"]
    if span["cat"] == "wire" and "node" in args:
        sends = span["name"] == "send"
        ends = (host, args["host"]) if sends else (args["host"], host)
        name = f"{args.get('part', 0)}/{args['step']}/{args['node']}/{ends[0]}>{ends[1]}"
        at = span["ts"] if sends else span["ts"] + span["dur"]
        yield {
            "name": "partial sum", "cat": "wire", "ph": "s" if sends else "f", "id": name, "ts": at, "pid": span["pid"],
            "tid": span["tid"], **({} if sends else {"bp": "e"}),
        }  # fmt: skip


def _parse(text: str) -> Iterator[dict[str, Any]]:
    """The processes that wrote to a file, one after the other."""
    process: dict[str, Any] | None = None
    for line in text.splitlines():
        try:
            kind, *rest = json.loads(line)
        except ValueError:  # its writer was killed in the middle of it
            continue
        if kind == "task":
            if process is not None:
                yield process
            process = {"task": rest[0], "pid": rest[1], "host": rest[2], "spans": [], "clocks": []}
        elif process is not None:
            process["spans" if kind == "span" else "clocks"].append(rest)
    if process is not None:
        yield process


def _shifts(processes: list[dict[str, Any]]) -> dict[int, int]:
    """What to add to the times of each host to get those of the first one."""
    hosts = sorted({process["host"] for process in processes})
    best: dict[int, tuple[int, int]] = {}  # host -> (delay, shift)
    for process in processes:
        for peer, offset, delay in process["clocks"]:
            for host, other, value in ((process["host"], peer, offset), (peer, process["host"], -offset)):
                if hosts and other == hosts[0] and delay < best.get(host, (delay + 1, 0))[0]:
                    best[host] = (delay, value)
    # An offset within its error is that of one clock: these hosts are directories of one machine.
    return {host: 0 if abs(best.get(host, (0, 0))[1]) <= best.get(host, (0, 0))[0] else best[host][1] for host in hosts}


def write(path: str, trace: dict[str, Any]) -> None:
    """Write a trace file, all or nothing."""
    temporary = f"{path}.new"
    with open(temporary, "w") as file:
        json.dump(trace, file)
    os.replace(temporary, path)
