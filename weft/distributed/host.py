"""Host: the tasks of a run on one machine, and the run's directory there.

A task is a child process, or was one of a driver that died: such tasks are found again by a variable of their environment,
and adopted. Standard library only: this module also runs in drivers and agents, which start without the rest of Weft.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from .events import LOG, MAX_TOLD, TOLD
from .processes import FROZEN_SECONDS, is_stopped, variable, wait_gone, with_variable
from .progress import Progress
from .scale import WANTED

MARK = "WEFT_DISTRIBUTED_TASK"
"""names the run's directory and the task in the environment of its process; tasks do not pass it on"""
REAPED = "reaped"  # a directory with the exit statuses of orphaned tasks, one file per process number
LISTENING = "listening"  # a file in which a task says where it listens
OF_THE_RUN = (REAPED, "plan.json", "supervisor.json", "result.json", "asked", WANTED, LOG, "status.json")
"""what command and driver keep in the run's directory; it is not lost with the memory of a host"""
STATUS_SECONDS = 1.0  # how long to wait for the exit status of an adopted task
SAMPLE_SECONDS = 1.0  # how often figures are read from the boards


@dataclasses.dataclass(frozen=True)
class Ended:
    """A task's process is gone. `status` is its exit status, negative for the signal that killed it; `version` is how many steps
    the run had committed by then, as far as this host knows."""

    name: str
    status: int
    version: int = 0


@dataclasses.dataclass(frozen=True)
class Listens:
    """A task on a host says where it can be reached: the contents of the file `listening`."""

    host: int
    text: str


@dataclasses.dataclass(frozen=True)
class HostJoined:
    """A host can be used; `workers` is how many it has processors for."""

    host: int
    workers: int


@dataclasses.dataclass(frozen=True)
class HostLost:
    """A host is gone, with all its tasks."""

    host: int
    reason: str


@dataclasses.dataclass(frozen=True)
class Note:
    """Something that the user should know."""

    text: str


@dataclasses.dataclass(frozen=True)
class Reported:
    """Events that tasks of a host report: lines of JSON, see `events`."""

    host: int
    text: str


@dataclasses.dataclass(frozen=True)
class Sampled:
    """What there is to see on a host: the process numbers of its tasks by name, those that are stopped, the load of the machine,
    and what its boards say (`Progress.sample`)."""

    host: int
    tasks: dict[str, int]
    stopped: list[str]
    load: float
    boards: list[dict[str, Any]]


Event = Ended | Listens | HostJoined | HostLost | Note | Reported | Sampled


@dataclasses.dataclass(frozen=True)
class Place:
    """What tasks need to know of the host they run on.

    Attributes:
        directory: the run's directory on this host; only the user can enter it.
        lifeline: a file descriptor of every task; it is closed when the tasks should end.
        package: the directory of `weft.distributed`.
        address: at which other hosts reach this one.
        temporary: whether the keeper removes the directory when the lifeline is closed: its maker may have been killed.
    """

    directory: str
    lifeline: int
    package: str
    address: str = "127.0.0.1"
    temporary: bool = False


@dataclasses.dataclass
class _Process:
    pid: int
    handle: int  # a pidfd
    child: subprocess.Popen[bytes] | None  # None if it was adopted
    stopped_since: float | None = None


class Host:
    """The tasks of a run on this machine.

    Args:
        index: the host's number in the run.
        directory: of the run on this host; it exists.
        lifeline: see `Place`.
        reaped: where the exit statuses of adopted tasks are found.
        address: see `Place`.
        output: descriptors that tasks have as standard output and standard error; by default those of this process.
        temporary: see `Place`.
    """

    def __init__(
        self,
        index: int,
        directory: str,
        lifeline: int,
        reaped: str | None = None,
        address: str = "127.0.0.1",
        output: tuple[int, int] | None = None,
        temporary: bool = False,
    ) -> None:
        self.index, self._reaped = index, reaped
        self._output = output or (None, None)
        self.place = Place(directory, lifeline, os.path.dirname(os.path.abspath(__file__)), address, temporary)
        self.tasks: dict[str, _Process] = {}
        self._progress = Progress(os.path.join(directory, "keeper.sock"))
        self.forget()

    def forget(self) -> None:
        """Report once more what is the case: there is a new driver."""
        self._heard = ""  # where a task listens
        self._told = 0  # bytes of events that were passed on
        self._sampled = 0.0

    def start(self, name: str, arguments: list[str], environment: Mapping[str, str]) -> int:
        """Start a task in a process group of its own, so that Ctrl-C reaches only the command; returns its process number."""
        child = subprocess.Popen(
            [sys.executable, *arguments],
            env={**os.environ, **environment, MARK: f"{self.place.directory}:{name}"},
            pass_fds=(self.place.lifeline,),
            stdin=subprocess.DEVNULL,
            stdout=self._output[0],
            stderr=self._output[1],
            process_group=0,
        )
        self.tasks[name] = _Process(child.pid, os.pidfd_open(child.pid), child)
        return child.pid

    def adopt(self) -> None:
        """Take over the tasks that an earlier driver started."""
        for pid, mark in with_variable(MARK, f"{self.place.directory}:").items():
            with contextlib.suppress(ProcessLookupError):
                self.tasks[mark.rpartition(":")[2]] = _Process(pid, os.pidfd_open(pid), None)

    def handles(self) -> list[int]:
        """Descriptors that can be polled; one is readable when its task has ended."""
        return [task.handle for task in self.tasks.values()]

    def collect(self) -> list[Event]:
        """What happened since the last call."""
        events: list[Event] = self._watch()
        for name, task in list(self.tasks.items()):
            if wait_gone(task.handle, 0):
                del self.tasks[name]
                os.close(task.handle)
                status = self._orphan_status(task.pid) if task.child is None else task.child.wait()
                events.append(Ended(name, status, self._progress.version()))
            elif self._frozen_for(task) > FROZEN_SECONDS:
                # Members do this for each other, but not for a process that has not joined, or at the end of the run.
                events.append(Note(f"{name} is stopped and is killed"))
                self.signal(name, signal.SIGKILL)
                task.stopped_since = None
        text = (self.read(LISTENING) or b"").decode(errors="replace").strip()
        if text != self._heard:
            self._heard = text
            events += [Listens(self.index, text)] if text else []
        return events

    def _watch(self) -> list[Event]:
        """What those who watch the run want to know."""
        events: list[Event] = []
        with contextlib.suppress(FileNotFoundError), open(os.path.join(self.place.directory, TOLD), "rb") as file:
            file.seek(self._told)
            data = file.read(MAX_TOLD)
            whole = data[: data.rfind(b"\n") + 1]
            self._told += len(whole)
            events += [Reported(self.index, whole.decode(errors="replace"))] if whole else []
        now = time.monotonic()
        if self.tasks and now - self._sampled >= SAMPLE_SECONDS:
            self._sampled = now
            stopped = [name for name, task in self.tasks.items() if is_stopped(task.pid)]
            tasks = {name: task.pid for name, task in self.tasks.items()}
            events.append(Sampled(self.index, tasks, stopped, os.getloadavg()[0], self._progress.sample()))
        return events

    def _orphan_status(self, pid: int) -> int:
        """The status of a task that was not our child: its new parent, the command, knows it."""
        end = time.monotonic() + STATUS_SECONDS
        while self._reaped is not None and time.monotonic() < end:
            try:
                with open(os.path.join(self._reaped, str(pid))) as file:
                    return int(file.read())
            except (FileNotFoundError, ValueError):
                time.sleep(0.01)
        return -signal.SIGKILL

    def _frozen_for(self, task: _Process) -> float:
        if not is_stopped(task.pid):
            task.stopped_since = None
            return 0.0
        now = time.monotonic()
        task.stopped_since = task.stopped_since or now
        return now - task.stopped_since

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a task's process; nothing happens if it has ended."""
        if name in self.tasks:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.tasks[name].handle, number)

    def read(self, name: str) -> bytes | None:
        """A file of the run's directory; None if there is none."""
        try:
            with open(os.path.join(self.place.directory, name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Replace a file of the run's directory, which only the user can read; readers see the old one or the new one."""
        path = os.path.join(self.place.directory, name)
        descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(f"{path}.new", path)

    def end_tasks(self) -> list[Ended]:
        """Kill every task and wait until all are gone."""
        ended = []
        for name in self.tasks:
            self.signal(name, signal.SIGKILL)
        for name, task in self.tasks.items():
            wait_gone(task.handle, 30.0)
            os.close(task.handle)
            if task.child is not None:
                task.child.wait()
            ended.append(Ended(name, -signal.SIGKILL))
        self.tasks.clear()
        return ended

    def reset(self) -> None:
        """End every task and empty the directory, as before the start."""
        self.end_tasks()
        self._progress.close()
        self.forget()
        for entry in os.scandir(self.place.directory):
            if entry.name.startswith("host-") or entry.name in OF_THE_RUN:
                continue  # of other hosts, and of command and driver, where directories are nested
            shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)

    def close(self) -> None:
        self.end_tasks()
        self._progress.close()


def task_of(pid: int) -> str | None:
    """The name of the task that a process of this machine runs; None if it runs none, or has ended."""
    mark = variable(pid, MARK)
    return None if mark is None else mark.rpartition(":")[2]
