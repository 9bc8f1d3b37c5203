"""Processes of this machine, by what the kernel says about them. Standard library only."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import time
from collections.abc import Iterable

PR_SET_CHILD_SUBREAPER = 36
FROZEN_SECONDS = 3.0
"""a process that does not run for this long is killed: nothing that it could write may be used before"""


def _status(pid: int) -> list[bytes]:
    """The fields of a process's status after its name; empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if there is no such process, or it has ended."""
    fields = _status(pid)
    return None if not fields or fields[0] in (b"Z", b"X") else int(fields[19])


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal and not continued."""
    return _status(pid)[:1] == [b"T"]


def all_pids() -> list[int]:
    """The processes of this machine."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdecimal()]


def with_variable(name: str, prefix: str) -> dict[int, str]:
    """The running processes that were started with an environment variable that begins with `prefix`: pid -> its value."""
    wanted = f"{name}={prefix}".encode()
    found = {}
    for pid in all_pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:  # it ended meanwhile, or belongs to another user
            continue
        value = next((word for word in words if word.startswith(wanted)), None)
        if value is not None and start_time(pid) is not None:
            found[pid] = value.partition(b"=")[2].decode()
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
