"""The number of threads, and the OpenMP library shared by compiled kernels and oneDNN.

**Width.** The *logical width* is one number per process: `WEFT_NUM_THREADS`, or `set_num_threads(n)`, or by
default the processors this process may use (affinity mask and control-group quota; `OMP_NUM_THREADS` if the
user set it). It never exceeds OpenMP's thread limit. Compiled kernels and oneDNN's primitives split their work by shape
(`weft.backends.onednn.shares`), so the results are the same bits at any width, on any number of cores.

**OpenMP.** Compiled kernels and oneDNN use the same `libgomp.so.1`, loaded once by `openmp()`. Idle workers
spin for a bounded while (`GOMP_SPINCOUNT` 5000, about a tenth of a millisecond) and then sleep: spinning for
ever collapses on a busy machine, never spinning costs 50 µs per region. Workers keep off their caller's
processor unless the machine is crowded (`weft.runtime.spreading`). A
`GOMP_SPINCOUNT` or `OMP_WAIT_POLICY` set by the user is respected.
`WEFT_OPENMP=0` switches OpenMP off; `WEFT_OPENMP=/path/to/libgomp.so.1` names another copy.

**Which thread.** OpenMP keeps its width per calling thread. Any thread that creates or runs native work calls
`ensure_width()` first (0.1 µs when nothing changed).

**Oversubscription.** Native work that uses the whole width runs inside `with compute_token:`. Threads get
the token in turns. The token limits *concurrency only*: results are the same with and without it, because the logical
width never changes. A thread that has waited `ComputeToken.patience` seconds takes the token over, so a holder that
waits for another thread, or died, delays others but cannot block them.

**Fork.** libgomp's worker threads do not survive a fork, and a child that enters a parallel region waits for
them for ever. So the forking thread's workers are stopped just before the fork (they restart on the next
parallel region) and the child starts at width 1. Where this libgomp cannot stop its workers (GCC before 9), the
child must not enter OpenMP at all: `openmp_usable()` is then false there.
"""

from __future__ import annotations

import ctypes
import operator
import os
import sys
import threading
import time
import warnings
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Self

from .. import settings
from . import _host, spreading

SPIN_COUNT = "5000"
_OMP_PAUSE_SOFT = 1

_state_lock = threading.RLock()
_library: ctypes.CDLL | None = None
_library_tried = False
_width: int | None = None
_generation = 0
_poisoned = False  # true in a forked child whose OpenMP workers could not be stopped before the fork
_pause_failed = False
_width_cell = ctypes.c_int32(1)
_spreads = False  # whether workers can be placed: OpenMP, a width above 1, enough processors


class _ThreadState(threading.local):
    """The generation of the width that this thread has set in OpenMP."""

    generation = -1


_thread_state = _ThreadState()


# ---------------------------------------------------------------------------------------------- the library


def openmp() -> ctypes.CDLL | None:
    """Return libgomp, loading it on the first call; `None` when it is switched off or not installed.

    Symbols are loaded globally, so that oneDNN and compiled kernels resolve to this copy. When the library is
    missing, one `RuntimeWarning` says what to install and Weft computes on one thread.
    """
    if _library_tried:
        return _library
    return _load()


def _load() -> ctypes.CDLL | None:
    global _library, _library_tried
    with _state_lock:
        if _library_tried:
            return _library
        name = settings.OPENMP()
        if not name:
            _library_tried = True
            return None
        # libgomp reads its settings once, while it is being loaded. The variable is removed afterwards so
        # that child processes, which may run other libraries, start with the user's own environment.
        ours = "GOMP_SPINCOUNT" not in os.environ and "OMP_WAIT_POLICY" not in os.environ
        if ours:
            os.environ["GOMP_SPINCOUNT"] = SPIN_COUNT
        try:
            library = ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
            _declare(library)
        except (OSError, AttributeError) as error:
            _library_tried = True
            warnings.warn(
                f"threads: OpenMP is not available, Weft computes on one thread. Got {error}; expected {name}. "
                "Install it with `apt-get install libgomp1` (Debian, Ubuntu), `dnf install libgomp` (Fedora) or "
                "`apk add libgomp` (Alpine), or silence this with WEFT_OPENMP=0.",
                RuntimeWarning,
                stacklevel=3,
            )
            return None
        finally:
            if ours:
                os.environ.pop("GOMP_SPINCOUNT", None)
        _library = library
        _library_tried = True
        return library


def _declare(library: ctypes.CDLL) -> None:
    """Give the functions we call their C types; raises `AttributeError` for a library that is no OpenMP."""
    for name, result, arguments in (
        ("omp_get_thread_limit", ctypes.c_int, []),
        ("omp_get_max_threads", ctypes.c_int, []),
        ("omp_set_num_threads", None, [ctypes.c_int]),
        ("omp_set_dynamic", None, [ctypes.c_int]),
        ("GOMP_parallel", None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]),
    ):
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    pause = getattr(library, "omp_pause_resource_all", None)
    if pause is not None:
        pause.restype = ctypes.c_int
        pause.argtypes = [ctypes.c_int]


def openmp_usable() -> bool:
    """Whether this process may enter a parallel region now (see *Fork* in the module's docstring)."""
    return not _poisoned and openmp() is not None


def symbol_address(name: str) -> int | None:
    """Address of an OpenMP function such as `"GOMP_parallel"`, or `None` when it cannot be used."""
    library = openmp()
    if library is None:
        return None
    try:
        function = getattr(library, name)
    except AttributeError:
        return None
    return ctypes.cast(function, ctypes.c_void_p).value


def openmp_path() -> str | None:
    """File that Weft's OpenMP was loaded from, or `None`. Does not load it."""
    if _library is None:
        return None
    address = symbol_address("GOMP_parallel")
    assert address is not None
    for start, end, path in _mapped_files():
        if start <= address < end:
            return path
    return str(_library._name)


def openmp_libraries() -> list[str]:
    """Every OpenMP library mapped into this process, ours or another package's (torch and sklearn ship copies)."""
    found: dict[str, None] = {}
    for _, _, path in _mapped_files():
        if Path(path).name.startswith(("libgomp", "libiomp", "libomp")):
            found[path] = None
    return list(found)


def _mapped_files() -> list[tuple[int, int, str]]:
    try:
        text = Path("/proc/self/maps").read_text()
    except OSError:
        return []
    files = []
    for line in text.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith("/"):
            start, end = fields[0].split("-")
            files.append((int(start, 16), int(end, 16), fields[5]))
    return files


# ------------------------------------------------------------------------------------------------ the width


def _limit() -> int:
    """Largest width a process may ask for.

    OpenMP's own limit; and no more threads than the machine can plausibly start, because libgomp ends the
    process when a thread cannot be created.
    """
    limit = max(64, 2 * (os.cpu_count() or 1))
    library = openmp()
    if library is not None:
        limit = min(limit, library.omp_get_thread_limit())
    allowance = _host.thread_allowance()
    if allowance is not None:
        limit = min(limit, allowance + 1)
    return max(limit, 1)


def _initial_width() -> int:
    asked = settings.NUM_THREADS()
    if asked is None:  # fall back to OpenMP's variable, which libgomp validates
        asked = settings.NUM_THREADS.parse(os.environ.get("OMP_NUM_THREADS", "").strip())
    if asked is None:
        return min(_host.usable_cpus(), _limit())
    limit = _limit()
    if asked > limit:
        warnings.warn(
            f"threads: width reduced. Got {asked} threads from the environment; expected at most {limit} "
            "(OpenMP's thread limit and what this machine can start).",
            RuntimeWarning,
            stacklevel=3,
        )
    return min(asked, limit)


def get_num_threads() -> int:
    """The number of threads that native code uses.

    >>> wf.get_num_threads() >= 1
    True
    """
    width = _width
    return width if width is not None else _start()


def _start() -> int:
    with _state_lock:
        if _width is None:
            _store(_initial_width())
        assert _width is not None
        return _width


def _store(width: int) -> None:
    global _width, _generation, _spreads
    with _state_lock:
        _width_cell.value = width if openmp_usable() else 1
        _spreads = _width_cell.value > 1 and not spreading.switched_off()
        _generation += 1
        _width = width


def set_num_threads(n: int) -> None:
    """Set the number of threads that native code uses, for the whole process.

    Work in progress keeps its number of threads. In a forked child this ends the restriction to one thread.

    Args:
        n: from 1 to OpenMP's thread limit; may exceed the number of processors. Results do not depend on it.

    Raises:
        TypeError: `n` is not an integer.
        ValueError: `n` is out of range.

    >>> before = wf.get_num_threads()
    >>> wf.set_num_threads(1); wf.get_num_threads()
    1
    >>> wf.set_num_threads(before)
    """
    if isinstance(n, bool):
        raise TypeError(f"set_num_threads: n must be an integer. Got {n!r}; expected a whole number of at least 1.")
    try:
        width = operator.index(n)
    except TypeError:
        raise TypeError(
            f"set_num_threads: n must be an integer. Got {n!r} of type {type(n).__name__}; "
            "expected a whole number of at least 1."
        ) from None
    limit = _limit()
    if not 1 <= width <= limit:
        raise ValueError(
            f"set_num_threads: n is out of range. Got {width}; expected 1 to {limit} (OpenMP's thread limit and what "
            "this machine can start). OMP_THREAD_LIMIT, set before Weft starts, changes OpenMP's limit."
        )
    _store(width)
    ensure_width()


def ensure_width(force: bool = False) -> int:
    """Make OpenMP use the logical width in the calling thread; return the width.

    Call it in every thread before it creates or runs native work. With `force`, tell OpenMP even if this thread
    did so before: other code in the process (such as threadpoolctl) may have changed it since.
    """
    width = _width if _width is not None else _start()
    if _thread_state.generation != _generation or force:
        _thread_state.generation = _generation
        spreading.forget()
        if openmp_usable():
            library = openmp()
            assert library is not None
            library.omp_set_dynamic(0)
            library.omp_set_num_threads(width)
    return width


def spread_out() -> None:
    """Spread the threads over processors before work that uses the whole width."""
    if _spreads:
        ensure_width()
        assert _library is not None and _width is not None
        spreading.spread(_library, _width)


class _Alone:
    """See `alone`."""

    __slots__ = ()

    def __enter__(self) -> None:
        ensure_width()
        if _library is not None and not _poisoned:
            _library.omp_set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        if _library is not None and not _poisoned:
            _library.omp_set_num_threads(_width)


alone = _Alone()
"""`with alone:` restricts OpenMP to the calling thread, for work shorter than waking a second thread (about 50 µs). Does not
nest."""


def width_cell_address() -> int:
    """Address of an `int32` with the number of threads compiled code may use right now.

    It holds the logical width, or 1 without OpenMP and in a forked child. Compiled code reads it before each
    parallel region. The address stays valid, and the same, for the life of the process.
    """
    get_num_threads()
    return ctypes.addressof(_width_cell)


# ------------------------------------------------------------------------------------------------ the token


class ComputeToken:
    """Re-entrant, fair permission to use all of the process's width (see module docstring).

    Contract: `acquire`/`release` pair up per thread, best as `with token:`. Waiting releases the GIL. While others
    wait, a thread may re-acquire the token for `turn` seconds (a hand-over after every small operation would cost more
    than the operation); after that, its next release hands it to the longest waiter. A waiter whose patience ends
    takes the token over from its holder, whose later `release` then does nothing; so no misuse, interrupted thread or
    cyclic wait delays a thread by more than about `patience` seconds. Correctness must never depend on holding it.
    """

    __slots__ = ("_depth", "_guard", "_owner", "_turn_began", "_waiters", "patience", "turn")

    def __init__(self, patience: float = 1.0, turn: float = 0.001) -> None:
        self.patience = patience
        self.turn = turn
        self._reset()

    def _reset(self) -> None:
        self._guard = threading.Lock()
        self._owner: int | None = None
        self._depth = 0
        self._turn_began = 0.0  # when the current waiting period began
        self._waiters: deque[tuple[int, threading.Lock]] = deque()

    def acquire(self) -> None:
        """Wait for the token (at most about `patience` seconds) and hold it."""
        me = threading.get_ident()
        if self._owner == me:
            self._depth += 1
            return
        with self._guard:
            if self._owner is None:
                self._owner, self._depth = me, 1
                return
            gate = threading.Lock()
            gate.acquire()
            place = (me, gate)
            if not self._waiters:
                self._turn_began = time.monotonic()
            self._waiters.append(place)
        try:
            self._wait(place)
        except BaseException:  # Ctrl-C while waiting: leave the queue, pass on a token that arrived meanwhile
            if not self._leave_queue(place):
                self.release()
            raise

    def _wait(self, place: tuple[int, threading.Lock]) -> None:
        """Wait until the token is handed over, found free, or taken over when patience ends."""
        me, gate = place
        deadline = time.monotonic() + self.patience
        while not gate.acquire(timeout=min(self.turn, self.patience)):
            with self._guard:
                if place not in self._waiters:  # just handed over
                    return
                # Free: its holder's turn was not over when it let go, and it has not come back.
                if self._owner is None or time.monotonic() >= deadline:
                    self._waiters.remove(place)
                    self._owner, self._depth = me, 1
                    return

    def _leave_queue(self, place: tuple[int, threading.Lock]) -> bool:
        """Remove `place`; false when it is gone because the token has just been handed to it."""
        with self._guard:
            try:
                self._waiters.remove(place)
            except ValueError:
                return False
            return True

    def release(self) -> None:
        """Release the token; at the end of a turn the next waiter gets it. Does nothing if this thread does not hold it."""
        me = threading.get_ident()
        if self._owner != me:
            return
        with self._guard:
            if self._owner != me:  # taken over between the two looks
                return
            self._depth -= 1
            if self._depth:
                return
            self._owner = None
            if self._waiters:
                now = time.monotonic()
                if now - self._turn_began >= self.turn:
                    self._turn_began = now
                    self._owner, gate = self._waiters.popleft()
                    self._depth = 1
                    gate.release()

    def held(self) -> bool:
        """Whether the calling thread holds the token."""
        return self._owner == threading.get_ident()

    def __enter__(self) -> Self:
        self.acquire()
        if self._depth == 1:
            spread_out()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


compute_token = ComputeToken()


# ------------------------------------------------------------------------------------------------- the fork


def _before_fork() -> None:
    """Stop the forking thread's OpenMP workers; other threads' workers do not concern the child."""
    global _pause_failed
    _pause_failed = False
    if _library is not None and not _poisoned:
        pause = getattr(_library, "omp_pause_resource_all", None)
        spreading.forget()
        _pause_failed = pause is None or pause(_OMP_PAUSE_SOFT) != 0


def _after_fork_in_child() -> None:
    global _state_lock, _poisoned
    # Another thread may have held these at the moment of the fork, and does not exist here to release them.
    _state_lock = threading.RLock()
    compute_token._reset()
    _poisoned = _poisoned or _pause_failed
    if _width is not None or _library is not None:
        _store(1)
        ensure_width()


if sys.platform != "win32":
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
