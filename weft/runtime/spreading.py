"""Keep the workers of a team off the processor of the thread they work for.

*Problem*: in a virtual machine the kernel wakes a worker on its caller's own processor, because it takes a halted virtual
processor for one that the host has taken away. Both then share one processor for milliseconds while another idles, and
wide work takes twice as long as it should (with a library that spins, several times as long).

*What is done*: before wide work, if the calling thread runs on another processor than last time, its workers are told to
use any processor it may use except that one. The caller itself stays free to move, and so do the workers among the
rest. *Rejected*: binding each thread to one processor, because two processes would then fight over the same ones.

*On a crowded machine* a worker must not be kept from any processor: it would wait for its turn behind others while its
caller's is free. So every now and then the number of runnable threads is looked at, and when it exceeds the
processors twice in a row, workers may run anywhere for a while.

*Guarantee*: nothing but speed depends on it. It does nothing where there is nothing to choose (fewer processors than
threads, no `sched_setaffinity`), and where the user has bound threads with OpenMP's own variables.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable

AT_MOST_EVERY = 0.005
"""Seconds between two moves: telling the workers wakes them, and a caller that is pushed around moves again soon."""

LOOK_EVERY = 0.025
"""Seconds between two looks at how many threads want to run: it costs as much as a small step's Python code."""

CROWDED_FOR = 0.5
"""Seconds for which a machine that was found crowded counts as such."""

_PROCESSORS = os.cpu_count() or 1  # asking takes longer than all else here
_BOUND_BY_USER = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY")


class _Team(threading.local):
    """What the workers of this thread were told: to avoid `cpu` (or `free`: to go anywhere), at the time `since`."""

    cpu = -1
    free = False
    since = float("-inf")
    looked = float("-inf")
    full = False
    workers: tuple[int, ...] = ()


_team = _Team()
_ANYWHERE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _current_processor() -> Callable[[], int] | None:
    """`sched_getcpu`, without letting the GIL go (that would cost more than the call)."""
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
    """Whether this machine, or the user, leaves nothing to do here."""
    return _processor is None or any(os.environ.get(name) for name in _BOUND_BY_USER)


def forget() -> None:
    """This thread's team changes: nothing is known about where its workers may run."""
    _team.cpu, _team.free, _team.full = -1, False, False
    _team.since = _team.looked = float("-inf")


def crowded() -> bool:
    """Whether more threads want to run on this machine than it has processors."""
    try:
        file = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)  # a file object takes ten times as long
        try:
            text = os.read(file, 128)
        finally:
            os.close(file)
        return int(text.split()[3].split(b"/")[0]) > _PROCESSORS
    except (OSError, ValueError, IndexError):
        return False


def spread(library: ctypes.CDLL, width: int) -> None:
    """Tell this thread's workers to avoid its processor, or on a crowded machine to run anywhere, if that changed since they
    were told. Nothing is looked at more often than `AT_MOST_EVERY` (0.1 µs in between)."""
    now = time.monotonic()
    if now < _team.since or _processor is None:
        return
    _team.since = now + AT_MOST_EVERY
    if now >= _team.looked:
        _team.looked = now + LOOK_EVERY
        before, _team.full = _team.full, crowded()
        if before and _team.full:  # one look may have met somebody who ran for a moment
            _team.since = now + CROWDED_FOR
            _release()
            return
    cpu = _processor()
    if cpu == _team.cpu:
        return
    allowed = os.sched_getaffinity(0)
    if len(allowed) >= width and cpu in allowed:
        _tell(library, width, allowed - {cpu})
        _team.cpu, _team.free = cpu, False
    elif not _team.free:  # a worker of a narrower team may have been told otherwise
        _tell(library, width, allowed)
        _team.cpu, _team.free = -1, True


def _release() -> None:
    """Let the workers run anywhere, without waking them."""
    if _team.cpu < 0:
        return
    allowed = os.sched_getaffinity(0)
    for worker in _team.workers:
        try:
            if os.path.exists(f"/proc/self/task/{worker}"):  # a worker that is gone has left its number to others
                os.sched_setaffinity(worker, allowed)
        except OSError:
            continue  # it went this moment
    _team.cpu = -1


def _tell(library: ctypes.CDLL, width: int, processors: set[int]) -> None:
    """Every worker asks for itself: by the time somebody else asked, its thread number might be another's."""
    caller = threading.get_native_id()
    workers: list[int] = []

    def ask(_: int | None) -> None:
        me = threading.get_native_id()
        if me == caller:
            return
        workers.append(me)
        try:
            os.sched_setaffinity(0, processors)
        except OSError:
            return  # its processors were taken away this moment; it goes on where it is

    library.GOMP_parallel(_ANYWHERE(ask), None, width, 0)
    _team.workers = tuple(workers)
