"""Thread placement: keeps OpenMP workers off the processor of their calling thread.

*Problem*: in a virtual machine the kernel wakes a worker on its caller's own processor, because it takes a halted virtual
processor for one that the host has taken away. Both then share one processor for milliseconds while another idles, and
wide work takes twice as long as it should (with a library that spins, several times as long).

*What is done*: before wide work, if the calling thread runs on another processor than last time, its workers are told to
use any processor it may use except that one. The caller itself stays free to move, and so do the workers among the
rest. *Rejected*: binding each thread to one processor, because two processes would then fight over the same ones.

*Oversubscription*: on a crowded machine a restricted worker would wait for its turn while its caller's processor is
free. So the number of runnable threads is polled, and when it exceeds the processors twice in a row, workers may run
anywhere for a while.

*Guarantee*: nothing but speed depends on it. It does nothing where there is nothing to choose (fewer processors than
threads, no `sched_setaffinity`), and where the user has bound threads with OpenMP's own variables.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable

MIN_MOVE_SECONDS = 0.005
"""Seconds between two changes of affinity: each one wakes the workers, and a caller that migrated may migrate again."""

LOAD_POLL_SECONDS = 0.025
"""Seconds between two readings of the number of runnable threads: one costs as much as a small step's Python code."""

CROWDED_SECONDS = 0.5
"""Seconds for which a machine counts as crowded after a reading."""

_PROCESSORS = os.cpu_count() or 1  # cached: the call is slower than everything else here
_BOUND_BY_USER = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY")


class _Team(threading.local):
    """The placement of this thread's workers: they avoid `cpu` (or are `free`), since time `since`."""

    cpu = -1
    free = False
    since = float("-inf")
    looked = float("-inf")
    full = False
    workers: tuple[int, ...] = ()


_team = _Team()
_ANYWHERE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _current_processor() -> Callable[[], int] | None:
    """`sched_getcpu`, called without releasing the GIL, which would cost more than the call."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    try:
        function = ctypes.PyDLL(None).sched_getcpu
    except (OSError, AttributeError):
        return None
    function.restype, function.argtypes = ctypes.c_int, []
    return function


_processor = _current_processor()


def switched_off() -> bool:
    """Whether placement is disabled by the machine or the user."""
    return _processor is None or any(os.environ.get(name) for name in _BOUND_BY_USER)


def forget() -> None:
    """Reset the recorded placement; the team of this thread changes."""
    _team.cpu, _team.free, _team.full = -1, False, False
    _team.since = _team.looked = float("-inf")


def crowded() -> bool:
    """Whether this machine has more runnable threads than processors."""
    try:
        file = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)  # a file object is ten times slower
        try:
            text = os.read(file, 128)
        finally:
            os.close(file)
        return int(text.split()[3].split(b"/")[0]) > _PROCESSORS
    except (OSError, ValueError, IndexError):
        return False


def spread(library: ctypes.CDLL, width: int) -> None:
    """Make this thread's workers avoid its processor, or on a crowded machine run anywhere, if that has changed.

    Checked at most once per `MIN_MOVE_SECONDS`; a call in between costs 0.1 µs.
    """
    now = time.monotonic()
    if now < _team.since or _processor is None:
        return
    _team.since = now + MIN_MOVE_SECONDS
    if now >= _team.looked:
        _team.looked = now + LOAD_POLL_SECONDS
        before, _team.full = _team.full, crowded()
        if before and _team.full:  # a single reading may be a short spike
            _team.since = now + CROWDED_SECONDS
            _release()
            return
    cpu = _processor()
    if cpu == _team.cpu:
        return
    allowed = os.sched_getaffinity(0)
    if len(allowed) >= width and cpu in allowed:
        _set_affinity(library, width, allowed - {cpu})
        _team.cpu, _team.free = cpu, False
    elif not _team.free:  # a worker of a narrower team may be restricted
        _set_affinity(library, width, allowed)
        _team.cpu, _team.free = -1, True


def _release() -> None:
    """Let the workers run anywhere, without waking them."""
    if _team.cpu < 0:
        return
    allowed = os.sched_getaffinity(0)
    for worker in _team.workers:
        try:
            if os.path.exists(f"/proc/self/task/{worker}"):  # the id of an ended thread may be reused
                os.sched_setaffinity(worker, allowed)
        except OSError:
            continue  # it has just ended
    _team.cpu = -1


def _set_affinity(library: ctypes.CDLL, width: int, processors: set[int]) -> None:
    """Set the affinity of every worker from within that worker, since thread ids may be reused."""
    caller = threading.get_native_id()
    workers: list[int] = []

    def in_worker(_: int | None) -> None:
        me = threading.get_native_id()
        if me == caller:
            return
        workers.append(me)
        try:
            os.sched_setaffinity(0, processors)
        except OSError:
            return  # its processors were just removed; keep the affinity

    library.GOMP_parallel(_ANYWHERE(in_worker), None, width, 0)
    _team.workers = tuple(workers)
