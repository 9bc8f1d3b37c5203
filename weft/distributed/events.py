"""Events of a run as JSON lines: who came, who was lost, what was recovered, how fast steps are.

The driver writes the log: its own events, and what tasks tell it. A task appends a line to a file in the directory of its host
(`tell`); the host passes new lines on. The log is in the run's directory while the run lasts. A copy for the user, which
outlives the run and to which later runs append, is kept where `--events` says, or beside the checkpoints. Standard library
only.

`docs/distributed.md` lists the kinds of events and their fields.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from . import context as contexts
from .supervisor import WORKER

LOG = "events.jsonl"  # in the run's directory, and in a directory of checkpoints
TOLD = "told.jsonl"  # in the run's directory on each host: what its tasks say
MAX_TOLD = 1 << 20  # bytes that are passed on at once

_FIRST_FIELDS = ("time", "event", "step", "task")


def line(event: str, step: int, task: str, fields: dict[str, Any]) -> str:
    """An event as a line of text, with the time of now.

    >>> json.loads(line("task_killed", 7, "worker-1", {"pid": 4711}))["step"]
    7
    """
    common = (round(time.time(), 6), event, step, task)
    return json.dumps({**dict(zip(_FIRST_FIELDS, common)), **fields})


def tell(event: str, task: str | None = None, step: int | None = None, **fields: Any) -> None:
    """Add an event to the log of the run that this process belongs to; nothing happens in an ordinary process.

    Args:
        event: its kind.
        task: the task that it is about; by default this one.
        step: how many steps are committed; by default those that this worker has seen.
        fields: more about it, as for JSON.
    """
    from . import _team

    context = contexts.current()
    if context is None:
        return
    if step is None:
        step = 0 if _team is None else int(_team.version)
    own = f"{WORKER}-{os.environ.get(contexts.WORKER, '0')}"
    text = line(event, step, task or own, {"host": context.host, "pid": os.getpid(), **fields})
    with contextlib.suppress(OSError):  # a full disk loses the event, not the run
        _append(os.path.join(context.directory, TOLD), text + "\n")


def say(text: str) -> None:
    """Print a line for the user."""
    with contextlib.suppress(OSError):  # the command is gone, and the terminal with it
        print(f"weft: {text}", file=sys.stderr, flush=True)


def read(path: str) -> Iterator[dict[str, Any]]:
    """The events in a file; lines that are none, such as the last one of a full disk, are left out."""
    try:
        with open(path, errors="replace") as file:
            for text in file:
                with contextlib.suppress(ValueError):
                    event = json.loads(text)
                    if isinstance(event, dict) and "event" in event:
                        yield event
    except FileNotFoundError:
        return


def _append(path: str, text: str) -> None:
    """Add to a file in one write, so that lines of several processes do not mix."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


class EventLog:
    """The log, as the driver writes it. Its successor finds what is written, and writes nothing twice.

    Args:
        directory: of the run.
        copy: the path of the copy for the user; None if it is not known yet.
    """

    def __init__(self, directory: str, copy: str | None) -> None:
        self._path = os.path.join(directory, LOG)
        self.past = list(read(self._path))
        """what an earlier driver has written"""
        self._told = {json.dumps(event) for event in self.past}
        self.copy: str | None = None
        if copy is not None:
            self.copy_to(copy)

    def copy_to(self, path: str) -> None:
        """Keep a copy in `path` from now on; the events until now are added, unless a driver before has done that."""
        if self.copy is not None:
            return
        self.copy = path
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            last, torn = _last_line(path)
            lines = _lines(self._path)
            done = lines.index(last) + 1 if last in lines else 0
            if lines[done:] or torn:
                _append(path, "\n" * torn + "".join(lines[done:]))
        except OSError as error:
            self._lost(error)

    def write(self, event: str, step: int, task: str, **fields: Any) -> dict[str, Any]:
        """Add an event; returns it."""
        return self._add(line(event, step, task, fields))

    def repeat(self, text: str) -> list[dict[str, Any]]:
        """Add lines that tasks told; returns the events that are new."""
        found = []
        for told in text.splitlines():
            with contextlib.suppress(ValueError):
                event = json.loads(told)
                if isinstance(event, dict) and "event" in event and json.dumps(event) not in self._told:
                    self._told.add(json.dumps(event))
                    found.append(self._add(json.dumps(event)))
        return found

    def _add(self, text: str) -> dict[str, Any]:
        for path in (self._path, self.copy):
            if path is not None:
                try:
                    _append(path, text + "\n")
                except OSError as error:
                    self._lost(error)
        event: dict[str, Any] = json.loads(text)
        return event

    def _lost(self, error: OSError) -> None:
        if self.copy is not None:
            say(f"the events of the run are not kept in {self.copy}: {error.strerror}")
            self.copy = None


def _lines(path: str) -> list[str]:
    try:
        with open(path) as file:
            return file.readlines()
    except FileNotFoundError:
        return []


def _last_line(path: str, most: int = 1 << 16) -> tuple[str, bool]:
    """The last line of a file, and whether it is incomplete: a full disk cut it off."""
    try:
        with open(path, "rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(end - most, 0))
            lines = file.read(most).decode(errors="replace").splitlines(keepends=True)
    except FileNotFoundError:
        return "", False
    return (lines[-1], not lines[-1].endswith("\n")) if lines else ("", False)


class History:
    """What the events of a run add up to: its tasks, their ends and restarts, hosts, stragglers, checkpoints.

    It is the memory of a driver's successor, and what is known of a run that is over.
    """

    def __init__(self) -> None:
        self.start: dict[str, Any] = {}
        self.step = 0
        self.time = 0.0
        self.hosts: dict[int, dict[str, Any]] = {}
        self.tasks: dict[str, dict[str, Any]] = {}
        """those that were ever started: host, pid, state, restarts, cause of the last end"""
        self.killed: dict[str, float] = {}
        """tasks that were killed and are not back yet -> when"""
        self.stragglers: dict[str, float] = {}
        """task, or "host-1" -> how many times slower than the others"""
        self.checkpoint: dict[str, Any] | None = None
        self.resume: dict[str, Any] | None = None
        self.checkpoint_dir: str | None = None
        self.rate: dict[str, Any] = {}
        self.stop: dict[str, Any] | None = None

    def add(self, event: dict[str, Any]) -> None:
        """Take an event into account."""
        self.time = event.get("time", self.time)
        self.step = max(self.step, event.get("step", 0))
        if event["event"] == "start":
            vars(self).update(vars(History()))  # of a later run, which appends to the same file
            self.start, self.time = event, event["time"]
        handler = getattr(self, f"_on_{event['event']}", None)
        if handler is not None:
            handler(event, event.get("task", ""))

    def _on_host_joined(self, event: dict[str, Any], task: str) -> None:
        self.hosts[event["host"]] = {"address": event.get("address"), "room": event.get("room")}

    def _on_host_lost(self, event: dict[str, Any], task: str) -> None:
        self.hosts.pop(event["host"], None)
        for entry in self.tasks.values():
            if entry["host"] == event["host"] and entry["state"] == "running":
                entry.update(state="lost", cause=event["cause"])

    def _on_task_started(self, event: dict[str, Any], task: str) -> None:
        before = self.tasks.get(task, {"restarts": -1, "cause": None})
        self.tasks[task] = {
            "host": event["host"], "pid": event["pid"], "state": "running", "restarts": before["restarts"] + 1,
            "cause": before["cause"],
        }  # fmt: skip
        self.stragglers.pop(task, None)

    def _on_task_killed(self, event: dict[str, Any], task: str) -> None:
        self.killed[task] = event["time"]
        if task in self.tasks:
            self.tasks[task].update(state="killed", cause=event["cause"])

    def _on_task_recovered(self, event: dict[str, Any], task: str) -> None:
        self.killed.pop(task, None)

    def _on_task_ended(self, event: dict[str, Any], task: str) -> None:
        if task in self.tasks:
            text = f"status {event['status']}"
            self.tasks[task].update(state="finished" if event["status"] == 0 else text, cause=text)

    def _on_task_removed(self, event: dict[str, Any], task: str) -> None:
        self.tasks.pop(task, None)

    def _on_straggler_named(self, event: dict[str, Any], task: str) -> None:
        self.stragglers[task] = event["ratio"]

    def _on_straggler_recovered(self, event: dict[str, Any], task: str) -> None:
        self.stragglers.pop(task, None)

    def _on_fit(self, event: dict[str, Any], task: str) -> None:
        self.checkpoint_dir = event["checkpoint_dir"]

    def _on_checkpoint(self, event: dict[str, Any], task: str) -> None:
        self.checkpoint = event

    def _on_resume(self, event: dict[str, Any], task: str) -> None:
        self.resume = event

    def _on_rate(self, event: dict[str, Any], task: str) -> None:
        self.rate = event

    def _on_stop(self, event: dict[str, Any], task: str) -> None:
        self.stop = event

    @property
    def restarts(self) -> int:
        """How often tasks were started again."""
        return sum(entry["restarts"] for entry in self.tasks.values())
