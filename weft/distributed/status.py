"""Status: what a run looks like now, as its driver sees it, and how others find that out.

The driver puts together what hosts report once a second (`Watch`) and writes it to a file of the run's directory. Everything that
shows a run reads this file: the table in the terminal, `weft status`. So looking at a run does not disturb it. Standard library
only.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .. import __version__
from . import directories, trace
from .events import LOG, TOLD, EventLog, History, read, say
from .host import Ended, Event, HostJoined, HostLost, Reported, Sampled
from .processes import FROZEN_SECONDS, signal_name, start_time
from .stragglers import EVERY, MIN_SHARDS, Stragglers, describe
from .supervisor import KEEPER, RELAY, WORKER, Stop, number, role

if TYPE_CHECKING:
    from .driver import RunSpec
    from .engine import Engine

STATUS, SPEC = "status.json", "spec.json"
RESTARTS = "restarts"  # a file on each host: how often tasks were started again
PREFIX = "weft-run-"  # of the names of directories of runs
SCHEMA = 1
WRITE_SECONDS = 1.0
WINDOW_SECONDS = 10.0  # over which the rate of steps is averaged
MAX_RATE_SECONDS = 60.0  # between two events about the rate; after a minute they become rarer
STALE_SECONDS = 5.0  # after which a status is not that of now


class Watch:
    """The driver's view of its run: writes the log of events and the file with the status.

    Args:
        directory: of the run.
        spec: what the user asked for.
        engine: what the tasks run on.
    """

    def __init__(self, directory: str, spec: RunSpec, engine: Engine) -> None:
        self._directory, self._spec, self._engine = directory, spec, engine
        self.log, self.history = EventLog(directory, spec.events), History()
        for event in self.log.past:
            self.history.add(event)
        self._samples: dict[int, Sampled] = {}
        self._removed: set[str] = set()  # workers that were told to go
        self._hosts = Stragglers()  # which hosts are slow
        self._checked = 0
        self._trail: collections.deque[tuple[float, int, int]] = collections.deque()  # (time, step, bytes)
        self._begun = time.monotonic()
        self._written = self._rated = float("-inf")
        self._rate_from: tuple[float, int, int] | None = None
        self._restarts = -1
        self._stopping = 0
        self._traced = spec.trace is None
        self._begin()

    def _begin(self) -> None:
        spec = self._spec
        if not self.log.past:
            self._write(
                "start", "driver", run=os.path.basename(self._directory), arguments=spec.arguments,
                workers=[spec.min_workers, spec.max_workers], hosts=spec.hosts, shards=spec.shards, threads=spec.threads,
                engine=spec.engine, version=__version__, python=sys.version.split()[0],
            )  # fmt: skip
        else:
            before = self.history.tasks.get("driver", {})
            self._write("task_killed", "driver", host=0, pid=before.get("pid"), cause="killed")
        self._write("task_started", "driver", host=0, pid=os.getpid())
        if "driver" in self.history.killed:
            seconds = time.time() - self.history.killed["driver"]
            self._write("task_recovered", "driver", host=0, pid=os.getpid(), seconds=round(seconds, 3))

    def _write(self, event: str, task: str, **fields: Any) -> None:
        self.history.add(self.log.write(event, self.step, task, **fields))

    @property
    def step(self) -> int:
        """How many steps are committed, as far as the driver knows."""
        found = [sample.boards[0]["step"] for sample in self._samples.values() if sample.boards]
        return max([self.history.step, *found])

    # What happens -----------------------------------------------------------------------------------------------------

    def started(self, name: str, host: int, pid: int) -> None:
        """A task was started."""
        if pid:
            self._write("task_started", name, host=host, pid=pid)

    def removed(self, name: str) -> None:
        """A worker is told to go: there are more than are needed."""
        self._removed.add(name)

    def asked(self, number: int) -> None:
        """The run is asked to end by a signal."""
        self._stopping = number
        self._write("stopping", "driver", signal=signal_name(number))

    def see(self, event: Event) -> None:
        """An event of the engine."""
        if isinstance(event, Sampled):
            self._sampled(event)
        elif isinstance(event, Reported):
            for told in self.log.repeat(event.text):
                self._told(told)
        elif isinstance(event, Ended):
            self._ended(event)
        elif isinstance(event, HostJoined):
            place = self._engine.places().get(event.host)
            address = None if place is None else place.address
            self._write("host_joined", "driver", host=event.host, room=event.workers, address=address)
        elif isinstance(event, HostLost):
            self._samples.pop(event.host, None)
            self._write("host_lost", "driver", host=event.host, cause=event.reason)

    def _told(self, event: dict[str, Any]) -> None:
        self.history.add(event)
        if event["event"] == "fit" and self.history.checkpoint_dir is not None:
            self.log.copy_to(os.path.join(self.history.checkpoint_dir, LOG))

    def _ended(self, event: Ended) -> None:
        self.history.step = max(self.history.step, event.version)
        entry = self.history.tasks.get(event.name, {})
        where = {"host": entry.get("host"), "pid": entry.get("pid")}
        if event.status >= 0 or self._stopping == -event.status:
            self._write(
                "task_ended", event.name, **where, status=event.status if event.status >= 0 else 128 - event.status
            )
        elif event.name in self._removed:
            self._removed.discard(event.name)
            self._write("task_removed", event.name, **where)
        else:
            self._write("task_killed", event.name, **where, cause=self._cause(event, entry.get("pid")))

    def _cause(self, event: Ended, pid: int | None) -> str:
        name = signal_name(-event.status)
        silent = [row["silent"] for row in self._rows(pid)]
        if event.status == -signal.SIGKILL and silent and max(silent) > FROZEN_SECONDS / 2:
            return f"{name}, after it had not run for {FROZEN_SECONDS:g} seconds"
        return name

    def _rows(self, pid: int | None) -> list[dict[str, Any]]:
        """The rows of a process on the boards."""
        samples = self._samples.values()
        return [row for sample in samples for board in sample.boards for row in board["rows"] if row["pid"] == pid]

    def _sampled(self, sample: Sampled) -> None:
        self._samples[sample.host] = sample
        now = time.monotonic()
        self._trail.append((now, self.step, self._moved()))
        while now - self._trail[0][0] > WINDOW_SECONDS and len(self._trail) > 2:
            self._trail.popleft()
        for name, at in list(self.history.killed.items()):
            pid = sample.tasks.get(name)
            if pid is not None and (role(name) == KEEPER or self._rows(pid)):
                seconds = round(time.time() - at, 3)
                self._write("task_recovered", name, host=sample.host, pid=pid, seconds=seconds)
        self._compare_hosts()
        self._report_rate()

    def _compare_hosts(self) -> None:
        """Name hosts whose workers are slow; workers of one host compare each other."""
        if self.step < self._checked + EVERY or len(self._samples) < 2:
            return
        self._checked = self.step
        seconds = {}
        for host, sample in self._samples.items():
            own = [f["seconds_per_shard"] for f in self._figures(sample).values() if f["shards"] >= MIN_SHARDS]
            if own and min(own) > 0:
                seconds[host] = statistics.median(own)
        for verdict in self._hosts.check(seconds):
            kind, fields = describe(verdict)
            self._write(kind, f"host-{verdict.worker}", **{"host": verdict.worker, **fields})
            what = f"{verdict.ratio:.1f}× slower than" if verdict.slow else "as fast again as"
            say(f"step {self.step}: host {verdict.worker} is {what} the others")

    def _figures(self, sample: Sampled) -> dict[str, dict[str, Any]]:
        """The figures of the workers of a host by name, summed over the optimisers of the program."""
        found: dict[str, dict[str, Any]] = {}
        for name, pid in sample.tasks.items():
            rows = [row for board in sample.boards for row in board["rows"] if row["pid"] == pid]
            if role(name) == WORKER and rows:
                shard, step, shards, position = (sum(column) for column in zip(*[row["figures"] for row in rows]))
                found[name] = {
                    "seconds_per_shard": shard / 1e9, "seconds_per_step": step / 1e9, "shards": shards,
                    "position": position if len(rows) == 1 else 0, "silent": min(row["silent"] for row in rows),
                }  # fmt: skip
        return found

    def _traffic(self, sample: Sampled) -> tuple[int, int]:
        """The bytes that the relay of a host has sent and received."""
        pid = sample.tasks.get(f"{RELAY}-{sample.host}")
        rows = [row for board in sample.boards[:1] for row in board["rows"] if row["pid"] == pid]
        return (rows[0]["figures"][0], rows[0]["figures"][1]) if rows else (0, 0)

    def _moved(self) -> int:
        return sum(self._traffic(sample)[0] for sample in self._samples.values())

    def _report_rate(self, now_or_never: bool = False) -> None:
        """Now and then an event about the rate of steps."""
        now = time.monotonic()
        latest = (now, self.step, self._moved())
        if self._rate_from is None:
            self._rate_from = latest if self.step else None
            return
        interval = min(max((now - self._begun) / 60.0, WRITE_SECONDS), MAX_RATE_SECONDS)
        since, step, moved = self._rate_from
        if self.step == step or now - since < interval and not now_or_never:
            return
        self._rate_from = latest
        workers = {}
        for sample in self._samples.values():
            for name, figures in self._figures(sample).items():
                workers[name] = {"seconds_per_shard": figures["seconds_per_shard"], "shards": figures["shards"]}
        self._write(
            "rate", "driver", steps=self.step - step, seconds_per_step=round((now - since) / (self.step - step), 9),
            bytes=max(latest[2] - moved, 0), workers=workers,
        )  # fmt: skip

    # What is written --------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Write the status if it is time to."""
        now = time.monotonic()
        if now - self._written < WRITE_SECONDS:
            return
        self._written = now
        self._publish(self.snapshot())
        if self.history.restarts != self._restarts:
            self._restarts = self.history.restarts
            for host in self._engine.places():
                self._engine.write(host, RESTARTS, str(self._restarts).encode())
        last = None if self._spec.trace_steps is None else self._spec.trace_steps[1]
        steps = [board["step"] for sample in self._samples.values() for board in sample.boards]
        if last is not None and not self._traced and steps and min(steps) > last + 1:
            self._write_trace()

    def _write_trace(self) -> None:
        """Put the spans of all tasks into one file."""
        self._traced, path = True, self._spec.trace
        assert path is not None
        made = trace.merge(trace.collect(self._engine, self.history.tasks))
        try:
            trace.write(path, made)
        except OSError as error:
            say(f"the trace could not be written to {path}: {error.strerror}")
            return
        spans = sum(event["ph"] == "X" for event in made["traceEvents"])
        self._write("trace", "driver", path=path, spans=spans)
        say(f"{spans:,} spans of the run are in {path}")

    def finish(self, stop: Stop) -> None:
        """The run is over; its tasks may still be there, and its hosts are."""
        for host in self._engine.places():
            told = self._engine.read(host, TOLD)
            for event in self.log.repeat((told or b"").decode(errors="replace")):
                self._told(event)
        if not self._traced and not stop.restart:
            self._write_trace()
        self._report_rate(now_or_never=True)
        self._write("stop", "driver", status=stop.status, reason=stop.reason, restart=stop.restart)
        self._publish(self.snapshot())

    def _publish(self, snapshot: dict[str, Any]) -> None:
        path = os.path.join(self._directory, STATUS)
        with contextlib.suppress(OSError):  # a full disk: those who look see an old status, and when it was written
            with open(f"{path}.new", "w") as file:
                json.dump(snapshot, file)
            os.replace(f"{path}.new", path)

    def snapshot(self) -> dict[str, Any]:
        """The status; `docs/distributed.md` lists the fields."""
        found = describe_history(self.history)
        figures = {name: f for sample in self._samples.values() for name, f in self._figures(sample).items()}
        stopped = {name for sample in self._samples.values() for name in sample.stopped}
        running = {name: pid for sample in self._samples.values() for name, pid in sample.tasks.items()}
        for entry in found["tasks"]:
            name = entry["task"]
            own = figures.get(name, {}) if running.get(name) == entry["pid"] else {}  # not those of its predecessor
            if entry["state"] == "running" and name != "driver":
                entry["state"] = self._state(name, stopped, own)
            if own:
                entry.update({key: own[key] for key in ("seconds_per_shard", "seconds_per_step", "shards")})
        for host in found["hosts"]:
            sample = self._samples.get(host["host"])
            if sample is not None:
                host["load"] = round(sample.load, 2)
                host["bytes_sent"], host["bytes_received"] = self._traffic(sample)
        at = max([f["position"] for f in figures.values()], default=0)
        pace = self._pace()
        found.update(
            run=os.path.basename(self._directory), directory=self._directory, step=self.step, driver=os.getpid(),
            epoch=(at >> 32) or None, batch=at & 0xFFFFFFFF if at else None, seconds_per_step=pace,
            state="ended" if found["stop"] else "stopping" if self._stopping else "running" if self.step else "starting",
            events=self.log.copy, time=time.time(),
        )  # fmt: skip
        return found

    def _state(self, name: str, stopped: set[str], figures: dict[str, Any]) -> str:
        if name in stopped:
            return "stopped"
        if role(name) != WORKER:
            return "running"
        if not figures:
            return "starting"
        return "silent" if figures["silent"] > FROZEN_SECONDS / 2 else "running"

    def _pace(self) -> float | None:
        """Seconds per step, on average over the last seconds."""
        if len(self._trail) < 2:
            return None
        (since, first, _), (until, last, _) = self._trail[0], self._trail[-1]
        return (until - since) / (last - first) if last > first else None


def describe_history(history: History) -> dict[str, Any]:
    """The status of a run as far as its events tell; see `Watch.snapshot`."""
    start, stop = history.start, history.stop
    tasks = [
        {"task": name, **entry, "straggler": history.stragglers.get(name)}
        for name, entry in sorted(history.tasks.items(), key=_order)
    ]
    hosts = [
        {"host": host, **entry, "straggler": history.stragglers.get(f"host-{host}")}
        for host, entry in sorted(history.hosts.items())
    ]
    return {
        "schema": SCHEMA, "run": start.get("run"), "state": "ended" if stop else "unknown", "time": history.time,
        "started": start.get("time"), "arguments": start.get("arguments", []), "engine": start.get("engine"),
        "shards": start.get("shards"), "workers": start.get("workers"), "step": history.step, "epoch": None, "batch": None,
        "seconds_per_step": history.rate.get("seconds_per_step"), "hosts": hosts, "tasks": tasks,
        "restarts": history.restarts, "checkpoint_dir": history.checkpoint_dir, "checkpoint": history.checkpoint,
        "resume": history.resume, "stop": stop,
    }  # fmt: skip


def _order(item: tuple[str, Any]) -> tuple[int, int]:
    """Workers by their numbers, then the services of each host."""
    name = item[0]
    if name == "driver":
        return 3, 0
    return {WORKER: 0, RELAY: 1, KEEPER: 2}.get(role(name), 4), number(name)


# Finding runs ---------------------------------------------------------------------------------------------------------


class Found:
    """A run on this machine.

    Args:
        directory: of the run.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.spec: dict[str, Any] = _load(os.path.join(directory, SPEC)) or {}
        command = self.spec.get("command") or [0, 0]
        self.command = int(command[0])
        self.alive = bool(self.command) and start_time(self.command) == command[1]
        """whether the command that started it runs; else the directory is stale"""

    @property
    def name(self) -> str:
        return os.path.basename(self.directory)

    def status(self) -> dict[str, Any]:
        """The latest status; what the spec says if there is none yet."""
        found = _load(os.path.join(self.directory, STATUS))
        if found is None:
            found = {
                **describe_history(History()), "run": self.name, "directory": self.directory, "state": "starting",
                "arguments": self.spec.get("arguments", []), "engine": self.spec.get("engine"), "shards": self.spec.get("shards"),
                "workers": [self.spec.get("min_workers"), self.spec.get("max_workers")], "time": time.time(),
            }  # fmt: skip
        found["command"] = self.command
        if not self.alive:
            found["state"] = "stale"
        return found


def runs(root: str | None = None) -> list[Found]:
    """The runs of this user on this machine, the newest last; some of them may be stale."""
    found = []
    for entry in _directories(root or directories.parent()):
        with contextlib.suppress(OSError):  # it ended meanwhile
            found.append((os.stat(entry).st_ctime, Found(entry)))
    return [run for _, run in sorted(found, key=lambda pair: pair[0])]


def _directories(root: str) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError), os.scandir(root) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.getuid():
                        yield entry.path


def find(text: str, root: str | None = None) -> dict[str, Any]:
    """The status of the run that `text` names: its directory, a process number of it, or a directory of checkpoints.

    Raises:
        LookupError: there is no such run.
    """
    candidates = runs(root)
    path = os.path.realpath(text)
    for run in candidates:
        if text in (run.name, run.name.removeprefix(PREFIX)) or path == os.path.realpath(run.directory):
            return run.status()
    if text.isdecimal():
        for run in candidates:
            status = run.status()
            pids = {run.command, status.get("driver"), *[task["pid"] for task in status["tasks"]]}
            if int(text) in pids:
                return status
        raise LookupError(f"no run of this user has a process with the number {text}")
    if os.path.exists(text):
        return _of_path(text, candidates)
    raise LookupError(f"there is no run {text!r}, and no such directory")


def _of_path(text: str, candidates: list[Found]) -> dict[str, Any]:
    """The status of the run that writes its checkpoints or its events there, or did so."""
    wanted = {os.path.realpath(text), os.path.realpath(os.path.join(text, "checkpoints"))}
    for run in candidates:
        status = run.status()
        places = {os.path.realpath(path) for path in (status["checkpoint_dir"], status.get("events")) if path}
        if run.alive and wanted & places:
            return status
    for path in (text, os.path.join(text, LOG), os.path.join(text, "checkpoints", LOG)):
        if os.path.isfile(path):
            history = History()
            for event in read(path):
                history.add(event)
            if history.start:
                return describe_history(history)
    raise LookupError(f"{text} is neither the directory of a run nor one with the events of a run ({LOG})")


def _load(path: str) -> dict[str, Any] | None:
    try:
        with open(path) as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
