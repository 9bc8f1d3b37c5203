"""Tensors in shared memory, and functions that start processes which use them.

Contract
--------
* `share_memory(tensor)` moves a tensor's values into shared memory. The tensor stays the same object, so references in
  modules and optimisers stay valid. Sent to another process (as an argument of a `Process`, through a
  `Queue` or a `Pipe`), a shared tensor arrives as a tensor **on the same memory**; any other tensor arrives as a copy.
* Segments are anonymous: they have no name in the file system, so none is left behind, however a process ends. A segment
  lives until the last process unmaps it; the process that created it may end first. The sender of a tensor through a
  `Queue` must stay alive until the receiver has taken it out.
* Processes are *spawned*, never forked: OpenMP hangs in a forked child. What they run must be importable by name.
  `Process`, `Queue`, `Pipe`, `Event` … are those of the standard library's spawn context; `spawn` also divides the
  processors between its processes and re-raises their exceptions.
* Nothing here synchronises writers. Lock-free training on shared parameters ("Hogwild") is the intended use.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import multiprocessing as _mp
import multiprocessing.connection as _connection
import multiprocessing.context as _context
import multiprocessing.process as _process
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from multiprocessing import reduction as _reduction
from multiprocessing import resource_tracker as _resource_tracker
from typing import Any

import numpy as np

__all__ = ["ProcessGroup", "get_context", "is_shared", "share_memory", "spawn"]

ALIGNMENT = 64  # bytes; a cache line, and enough for every dtype


def get_context(method: str | None = None) -> _context.SpawnContext:
    """The `multiprocessing` context to use with Weft: always ``spawn``."""
    if method not in (None, "spawn"):
        raise ValueError(
            f"get_context: processes are spawned. Got {method!r}; expected 'spawn'. OpenMP hangs in a forked child."
        )
    return _mp.get_context("spawn")


# Re-exported from the context under the names of the standard library: `Process`, `Queue`, `Event` …
_OF_THE_CONTEXT = frozenset({
    "Array", "Barrier", "Condition", "Event", "JoinableQueue", "Lock", "Manager", "Pipe", "Pool", "Process", "Queue",
    "RLock", "Semaphore", "SimpleQueue", "Value", "active_children", "cpu_count", "current_process",
})  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _OF_THE_CONTEXT:
        return getattr(get_context(), name)
    raise AttributeError(f"module 'weft.multiprocessing' has no attribute {name!r}")


# ---------------------------------------------------------------------------------------------------------------
# Segments


class Segment(mmap.mmap):
    """Anonymous shared memory.

    Arrays on it keep it mapped; it is unmapped when the last of them dies. `fd` is this process's file descriptor of it,
    which can be sent to other processes; it is closed with the mapping.
    """

    fd: int

    @staticmethod
    def create(nbytes: int) -> Segment:
        """Reserve `nbytes` of shared memory, zeroed.

        Raises:
            RuntimeError: there is not enough memory. Reserving it up front turns a bus error at the first write
                into an exception.
        """
        if not SUPPORTED:
            raise RuntimeError(
                f"shared memory: not available on {sys.platform}. Expected a system that can pass open files "
                "between processes (Linux, macOS)."
            )
        nbytes = max(int(nbytes), 1)
        fd = _open_anonymous()
        try:
            os.ftruncate(fd, nbytes)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, 0, nbytes)
            return Segment._map(fd, nbytes)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.ENOSPC, errno.ENOMEM, errno.EFBIG, errno.EDQUOT):
                raise RuntimeError(
                    f"shared memory: cannot reserve {nbytes:,} bytes ({os.strerror(error.errno)}). "
                    "Free memory, enlarge /dev/shm or the memory limit of the container, or ask for less: "
                    "a smaller batch_size, prefetch_factor or num_workers."
                ) from error
            raise

    @staticmethod
    def attach(fd: int) -> Segment:
        """Map a segment another process sent. Takes ownership of `fd`."""
        try:
            status = os.fstat(fd)
            known = _segments.get((status.st_dev, status.st_ino))
            if known is not None:  # already mapped in this process
                os.close(fd)
                return known
            return Segment._map(fd, status.st_size)
        except OSError:
            os.close(fd)
            raise

    @staticmethod
    def _map(fd: int, nbytes: int) -> Segment:
        extra = {"trackfd": False} if sys.version_info >= (3, 13) else {}
        segment = Segment(fd, nbytes, **extra)
        segment.fd = fd
        status = os.fstat(fd)
        _segments[status.st_dev, status.st_ino] = segment
        weakref.finalize(segment, os.close, fd).atexit = False
        return segment

    def array(self, shape: tuple[int, ...], dtype: Any, offset: int = 0) -> np.ndarray:
        """A NumPy array on this memory."""
        return np.ndarray(shape, dtype, buffer=self, offset=offset)

    def __reduce__(self) -> tuple[Any, ...]:
        # Every array on a segment refers to the same Segment object, so one message carries its handle once.
        return _attach_handle, (_reduction.DupFd(self.fd),)


_segments: weakref.WeakValueDictionary[tuple[int, int], Segment] = weakref.WeakValueDictionary()

SUPPORTED = os.name == "posix" and hasattr(_reduction, "DupFd")


def _open_anonymous() -> int:
    """A file descriptor on memory that has no name anywhere."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("weft", os.MFD_CLOEXEC)
    import _posixshmem  # type: ignore[import-not-found]

    # No memfd on this system: a named segment that is unlinked immediately.
    name = f"/weft-{os.getpid()}-{time.monotonic_ns()}"
    fd = _posixshmem.shm_open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode=0o600)
    _posixshmem.shm_unlink(name)
    return fd


def _attach_handle(handle: Any) -> Segment:
    try:
        fd = handle.detach()
    except (ConnectionError, FileNotFoundError, EOFError) as error:
        raise RuntimeError(
            "shared memory: the process that sent this tensor ended before the tensor was received. "
            "Keep the sender alive until its tensors have been taken out of the queue."
        ) from error
    return Segment.attach(fd)


def segment_of(array: np.ndarray) -> Segment | None:
    """The segment an array's memory belongs to, or None if it is private to this process."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, Segment) else None


# ---------------------------------------------------------------------------------------------------------------
# Sharing arrays and tensors


def is_shared(value: Any) -> bool:
    """Whether the memory of a tensor or array is shared, so that other processes can see it change."""
    return segment_of(_array_of(value)) is not None


def share_memory(value: Any) -> Any:
    """Move values into shared memory.

    Args:
        value: a Tensor (moved in place), a Module (its parameters and buffers are moved in place), a NumPy array
            (a shared copy is returned), or a list, tuple or mapping of these. Everything in one call goes into one
            segment. What is shared already stays where it is.

    Returns:
        The same object; for arrays, and containers that hold arrays, the shared copies in a like container.

    Example:
        >>> a = wf.multiprocessing.share_memory(np.arange(3.0))
        >>> wf.multiprocessing.is_shared(a), a.tolist()
        (True, [0.0, 1.0, 2.0])
    """
    leaves: dict[int, Any] = {}
    for leaf in _leaves(value):
        if segment_of(_array_of(leaf)) is None:
            leaves[id(leaf)] = leaf
    moved = _move(leaves)
    return _replace(value, moved)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, np.ndarray) or _is_tensor(value):
        yield value
    elif _is_module(value):
        yield from value.parameters()
        yield from value.buffers()
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    else:
        raise TypeError(
            f"share_memory: cannot share {type(value).__name__}. Expected a Tensor, a Module, a NumPy array, "
            "or a list, tuple or mapping of these."
        )


def _move(leaves: Mapping[int, Any]) -> dict[int, Any]:
    """Copy the leaves into one new segment; tensors are switched over to it in place."""
    arrays = {key: _array_of(leaf) for key, leaf in leaves.items()}
    for array in arrays.values():
        if array.dtype.hasobject:
            raise TypeError(
                f"share_memory: arrays of Python objects cannot be shared. Got dtype {array.dtype}; "
                "expected numbers or booleans."
            )
    if not arrays:
        return {}
    segment = Segment.create(sum(_aligned(array.nbytes) for array in arrays.values()))
    moved: dict[int, Any] = {}
    offset = 0
    for key, array in arrays.items():
        shared = segment.array(array.shape, array.dtype, offset)
        shared[...] = array
        offset += _aligned(array.nbytes)
        leaf = leaves[key]
        if isinstance(leaf, np.ndarray):
            moved[key] = shared
        else:
            _set_array(leaf, shared)
            _announce(type(leaf))
    return moved


def _replace(value: Any, moved: Mapping[int, Any]) -> Any:
    if isinstance(value, np.ndarray):
        return moved.get(id(value), value)
    if isinstance(value, dict):
        return {key: _replace(item, moved) for key, item in value.items()} if moved else value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_replace(item, moved) for item in value)) if moved else value
    if isinstance(value, (list, tuple)):
        return type(value)(_replace(item, moved) for item in value) if moved else value
    return value


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _rebuild_array(
    segment: Segment, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype
) -> np.ndarray:
    return np.ndarray(shape, dtype, buffer=segment, offset=offset, strides=strides)


def _array_parts(array: np.ndarray, segment: Segment) -> tuple[Any, ...]:
    start = np.frombuffer(segment, np.uint8).__array_interface__["data"][0]
    offset = array.__array_interface__["data"][0] - start
    return segment, offset, array.shape, array.strides, array.dtype


def reduce_array(array: np.ndarray) -> tuple[Callable[..., np.ndarray], tuple[Any, ...]]:
    """How `Tensor` pickles its array: `(rebuild, args)` such that ``rebuild(*args)`` equals `array` in the receiver.

    A shared array is sent to another process (arguments of a `Process`, queues, pipes) as a handle. All other pickles
    (files, copies) contain the values.
    """
    if _transfer.active or _context.get_spawning_popen() is not None:
        segment = segment_of(array)
        if segment is not None:
            return _rebuild_array, _array_parts(array, segment)
    return _same_array, (array,)


def _same_array(array: np.ndarray) -> np.ndarray:
    return array


class _Transfer(threading.local):
    """Whether this thread is pickling a tensor for a queue or pipe, as opposed to a file."""

    active = False


_transfer = _Transfer()


def _reduce_for_transfer(tensor: Any) -> Any:
    _transfer.active = True
    try:
        return tensor.__reduce_ex__(pickle.DEFAULT_PROTOCOL)
    finally:
        _transfer.active = False


def _announce(cls: type) -> None:
    """Have queues and pipes send tensors of this class (and views of them) by handle."""
    from .tensor import Tensor

    for kind in {cls, Tensor}:
        _reduction.ForkingPickler.register(kind, _reduce_for_transfer)


def _is_tensor(value: Any) -> bool:
    module = sys.modules.get("weft.tensor")  # not imported yet: then no tensor can exist
    return module is not None and isinstance(value, module.Tensor)


def _is_module(value: Any) -> bool:
    return callable(getattr(value, "parameters", None)) and callable(getattr(value, "buffers", None))


def _array_of(value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    if not _is_tensor(value):
        raise TypeError(f"is_shared: expected a Tensor or a NumPy array. Got {type(value).__name__}.")
    return value._array("share_memory")


def _set_array(tensor: Any, array: np.ndarray) -> None:
    if not tensor.is_leaf:
        raise ValueError(
            "share_memory: only leaf tensors can be moved. This one was computed by an op; share `x.detach()`."
        )
    tensor._data = array


# ---------------------------------------------------------------------------------------------------------------
# Starting processes

_start_lock = threading.Lock()
_THREAD_VARIABLES = ("WEFT_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@contextlib.contextmanager
def child_environment(threads: int) -> Iterator[None]:
    """A context for `Process.start()`: the child uses `threads` threads and ignores Ctrl-C while it starts.

    A spawned child reads the environment once, when its libraries load, so the variables are set during the start and
    restored. The signal mask is inherited too: the child unblocks SIGINT after it has installed its handler (see
    `accept_interrupts`), so Ctrl-C causes no traceback during its imports.
    """
    mask = getattr(signal, "pthread_sigmask", None)
    # The first start would also start Python's resource tracker, which unblocks SIGINT when it is done.
    _resource_tracker.ensure_running()
    with _start_lock:
        saved = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
        os.environ.update(dict.fromkeys(_THREAD_VARIABLES, str(threads)))
        blocked = mask(signal.SIG_BLOCK, {signal.SIGINT}) if mask else None
        try:
            yield
        finally:
            if mask:
                mask(signal.SIG_SETMASK, blocked)
            for name, value in saved.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def accept_interrupts(*, ignore: bool) -> None:
    """In a child: unblock the SIGINT that `child_environment` blocked; with `ignore`, the parent handles Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        return
    if ignore:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def describe_exit(code: int | None) -> str:
    """An exit code in words: ``was killed by signal 9 (SIGKILL)``."""
    if code is None:
        return "stopped answering"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    hint = {
        "SIGKILL": "; the system does this when memory runs out",
        "SIGBUS": "; shared memory (/dev/shm) may be full",
    }.get(name, "")
    return f"was killed by signal {-code} ({name}){hint}"


def stop_processes(processes: Iterable[_process.BaseProcess], grace: float = 0.0) -> None:
    """Stop and reap processes: wait `grace` seconds, then send SIGTERM, then SIGKILL."""
    processes = [p for p in processes if p.pid is not None]
    for wait, action in ((grace, None), (0.5, "terminate"), (5.0, "kill")):
        alive = [p for p in processes if p.is_alive()]
        if action:
            for process in alive:
                getattr(process, action)()
        deadline = time.monotonic() + wait
        for process in alive:
            process.join(max(0.0, deadline - time.monotonic()))
    for process in processes:
        if not process.is_alive():
            process.join()


def unpicklable(where: str, error: BaseException) -> TypeError:
    """The error for something that cannot be sent to a spawned process."""
    return TypeError(
        f"{where}: it cannot be sent to another process ({type(error).__name__}: {error}). Expected functions and "
        "classes defined at the top level of an importable module; lambdas, nested functions, open files and locks "
        "cannot be sent. Move the definition into a .py file and import it."
    )


def watch_parent() -> None:
    """End this process when its parent has died."""
    parent = _process.parent_process()
    if parent is None:
        return

    def wait() -> None:
        _connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=wait, name="weft-parent-watch", daemon=True).start()


def _run_child(conn: _connection.Connection, function: Callable[..., Any], rank: int, args: tuple[Any, ...]) -> None:
    watch_parent()
    accept_interrupts(ignore=False)
    try:
        message: tuple[str, Any] = ("result", function(rank, *args))
        try:
            conn.send(message)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            conn.send(("error", str(unpicklable(f"spawn: the result of process {rank}", error))))
    except KeyboardInterrupt:
        sys.exit(130)  # the parent gets the same signal and reports it
    except Exception as error:  # whatever the user's code raises is reported
        conn.send(("error", f"{type(error).__name__}: {error}\n\n{traceback.format_exc()}"))
        sys.exit(1)
    finally:
        conn.close()


class ProcessGroup:
    """The processes of a `spawn` call. `join()` waits for all; a failure of one stops the rest."""

    def __init__(self, processes: list[Any], connections: list[_connection.Connection]) -> None:
        self.processes = processes
        self._connections = connections
        self._results: list[Any] = [None] * len(processes)
        self._waiting = set(range(len(processes)))

    @property
    def pids(self) -> list[int]:
        """The process ids, by rank."""
        return [process.pid for process in self.processes]

    def join(self, timeout: float | None = None) -> list[Any]:
        """Wait for all processes and return the results of `fn`, by rank.

        Raises:
            RuntimeError: a process failed or died; the message has its rank and its traceback or exit code. The
                others have been stopped.
            TimeoutError: not all had ended after `timeout` seconds; all have been stopped.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while self._waiting:
                remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
                ready = _connection.wait([self._connections[rank] for rank in self._waiting], remaining)
                if not ready:
                    raise TimeoutError(
                        f"spawn: processes {sorted(self._waiting)} had not ended after {timeout} seconds; "
                        "they have been stopped."
                    )
                for rank in [rank for rank in sorted(self._waiting) if self._connections[rank] in ready]:
                    self._receive(rank)
            for process in self.processes:
                process.join()
            return list(self._results)
        except BaseException:
            self.stop()
            raise

    def _receive(self, rank: int) -> None:
        try:
            kind, value = self._connections[rank].recv()
        except (EOFError, ConnectionError):
            self.processes[rank].join(5.0)
            raise RuntimeError(f"spawn: process {rank} {describe_exit(self.processes[rank].exitcode)}.") from None
        if kind == "error":
            raise RuntimeError(f"spawn: process {rank} failed with {value}")
        self._results[rank] = value
        self._waiting.discard(rank)

    def stop(self) -> None:
        """Stop all running processes."""
        stop_processes(self.processes)
        for conn in self._connections:
            conn.close()
        self._waiting.clear()


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    timeout: float | None = None,
    *,
    threads: int | None = None,
) -> Any:
    """Run ``fn(rank, *args)`` in `nprocs` new processes.

    Args:
        fn: a function defined at the top level of a module.
        args: further arguments of `fn`; shared tensors among them stay shared.
        nprocs: the number of processes.
        join: wait for them (True), or return a `ProcessGroup` at once (False).
        timeout: with `join`, seconds to wait before all are stopped.
        threads: compute threads per process; by default the processors divided by `nprocs`.

    Returns:
        The results of the processes, by rank; with ``join=False`` a `ProcessGroup`.

    Raises:
        RuntimeError, TimeoutError: see `ProcessGroup.join`.
        TypeError: `fn` or `args` cannot be sent to another process.
    """
    if not isinstance(nprocs, int) or nprocs < 1:
        raise ValueError(f"spawn: nprocs must be a positive integer. Got {nprocs!r}.")
    if threads is None:
        threads = max(1, (os.cpu_count() or 1) // nprocs)
    context = get_context()
    processes: list[Any] = []
    connections: list[_connection.Connection] = []
    try:
        for rank in range(nprocs):
            ours, theirs = context.Pipe(duplex=False)
            connections.append(ours)
            process = context.Process(target=_run_child, args=(theirs, fn, rank, args), name=f"weft-{rank}")
            try:
                with child_environment(threads):
                    process.start()
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise unpicklable("spawn: fn or args", error) from error
            finally:
                theirs.close()
            processes.append(process)
    except BaseException:
        ProcessGroup(processes, connections).stop()
        raise
    group = ProcessGroup(processes, connections)
    return group.join(timeout) if join else group
