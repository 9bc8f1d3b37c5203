"""Keep the workers of a team off the processor of the thread they work for.

*Problem*: in a virtual machine the kernel wakes a worker on its caller's own processor, because it takes a halted virtual
processor for one that the host has taken away. Both then share one processor for milliseconds while another idles, and
wide work takes twice as long as it should (with a library that spins, several times as long).

*What is done*: before wide work, if the calling thread runs on another processor than last time, its workers are told to
use any processor it may use except that one. The caller itself stays free to move, and so do the workers among the
rest. *Rejected*: binding each thread to one processor, because two processes would then fight over the same ones.

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

_BOUND_BY_USER = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY")


class _Team(threading.local):
    """What the workers of this thread were told: to avoid `cpu` (or `free`: to go anywhere), at the time `since`."""

    cpu = -1
    free = False
    since = float("-inf")


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
    _team.cpu, _team.free = -1, False
    _team.since = float("-inf")


def spread(library: ctypes.CDLL, width: int) -> None:
    """Tell this thread's workers to avoid its processor, if it moved since they were told (0.2 µs if it did not)."""
    if _processor is None or _processor() == _team.cpu:
        return
    now = time.monotonic()
    if now - _team.since < AT_MOST_EVERY:
        return
    _team.since = now
    cpu = _processor()
    allowed = os.sched_getaffinity(0)
    if len(allowed) >= width and cpu in allowed:
        _tell(library, width, allowed - {cpu})
    elif not _team.free:  # a worker of a narrower team may have been told otherwise
        _tell(library, width, allowed)
        _team.free = True
    _team.cpu = cpu


def _tell(library: ctypes.CDLL, width: int, processors: set[int]) -> None:
    """Every worker asks for itself: by the time somebody else asked, its thread number might be another's."""
    caller = threading.get_native_id()

    def ask(_: int | None) -> None:
        if threading.get_native_id() == caller:
            return
        try:
            os.sched_setaffinity(0, processors)
        except OSError:
            return  # its processors were taken away this moment; it goes on where it is

    library.GOMP_parallel(_ANYWHERE(ask), None, width, 0)
