"""Processes of this machine, by what the kernel says about them. Standard library only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Iterable

PR_SET_CHILD_SUBREAPER = 36
STARVED_SECONDS = 30.0
"""as `FROZEN_SECONDS`, for a process that could run if others did not"""
FROZEN_SECONDS = 3.0
"""a process that does not run for this long is killed: nothing that it could write may be used before"""


def _status(pid: int, path: str = "") -> list[bytes]:
    """The fields of the status of a process, or of a thread's file, after its name; empty if there is no such process."""
    try:
        with open(path or f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if there is no such process, or it has ended."""
    fields = _status(pid)
    return None if not fields or fields[0] in (b"Z", b"X") else int(fields[19])


def identity(pid: int, started: int) -> int:
    """One word for a process: its number, and the low bits of its start time, so that a reused number is another process."""
    return pid << 32 | started & 0xFFFFFFFF


class Handles:
    """Pidfds of processes, by their identity."""

    def __init__(self) -> None:
        self._handles: dict[int, int] = {}

    def of(self, who: int) -> int:
        """The pidfd of a process; -1 if it was gone when it was first asked for."""
        handle = self._handles.get(who)
        if handle is None:
            pid = who >> 32
            started = start_time(pid)
            handle = -1
            if started is not None and identity(pid, started) == who:
                with contextlib.suppress(ProcessLookupError):
                    handle = os.pidfd_open(pid)
            self._handles[who] = handle
        return handle

    def alive(self, who: int) -> bool:
        """Whether a process runs; the kernel says so, not its silence."""
        handle = self.of(who)
        return handle >= 0 and not wait_gone(handle, 0)


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal and not continued."""
    return _status(pid)[:1] == [b"T"]


def wants_to_run(pid: int) -> bool:
    """Whether a thread of a process waits for a processor or for a disk: it does not run because others do."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return any(_status(pid, f"/proc/{pid}/task/{thread}/stat")[:1] in ([b"R"], [b"D"]) for thread in threads)


def signal_name(number: int) -> str:
    """The name of a signal, such as SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def all_pids() -> list[int]:
    """The processes of this machine."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdecimal()]


def variable(pid: int, name: str) -> str | None:
    """A variable of the environment that a process was started with; None if it has none of that name, or cannot be looked at."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:  # it ended meanwhile, or belongs to another user
        return None
    start = f"{name}=".encode()
    return next((word[len(start) :].decode() for word in words if word.startswith(start)), None)


def with_variable(name: str, prefix: str) -> dict[int, str]:
    """The running processes that were started with an environment variable that begins with `prefix`: pid -> its value."""
    found = {}
    for pid in all_pids():
        value = variable(pid, name)
        if value is not None and value.startswith(prefix) and start_time(pid) is not None:
            found[pid] = value
    return found


def descendants(root: int) -> list[int]:
    """The processes that `root` started, and those that they started."""
    parents = {pid: int(fields[1]) for pid in all_pids() if (fields := _status(pid))}
    found: list[int] = []
    layer = {root}
    while layer:
        layer = {pid for pid, parent in parents.items() if parent in layer} - {root, *found}
        found += sorted(layer)
    return found


def adopt_orphans() -> None:
    """Make this process the parent of its descendants whose own parent dies, instead of init."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_all(pids: Iterable[int], seconds: float = 10.0) -> None:
    """Kill processes and wait until they are gone."""
    handles = []
    for pid in pids:
        try:
            handles.append(os.pidfd_open(pid))
        except ProcessLookupError:
            continue
    for handle in handles:
        try:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        except ProcessLookupError:
            continue
    end = time.monotonic() + seconds
    for handle in handles:
        wait_gone(handle, max(end - time.monotonic(), 0))
        os.close(handle)


def wait_gone(handle: int, seconds: float) -> bool:
    """Wait for the end of a process, given by its pidfd."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
