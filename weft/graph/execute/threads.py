"""The threads of executors: a small pool for concurrent units, and threads for the parts of a step."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from .run import CancelledError, Run

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_parts: ThreadPoolExecutor | None = None


def pool() -> ThreadPoolExecutor:
    """The pool on which units run concurrently with the calling thread. Its threads never wait for other units."""
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(4, "weft-executor")
        return _pool


def _part_threads() -> ThreadPoolExecutor:
    """Threads for whole parts, which do wait for each other: one per running part, reused by later steps."""
    global _parts
    with _lock:
        if _parts is None:
            _parts = ThreadPoolExecutor(1024, "weft-device")
        return _parts


def run_together(works: Sequence[Callable[[], None]], run: Run) -> None:
    """Run each of `works` on a separate thread, the first on this one. The first error cancels the others and is raised
    when all have ended."""
    if len(works) == 1:
        works[0]()
        return
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)
            run.cancel(f"Another device failed: {error}")

    futures: list[Future[None]] = [_part_threads().submit(guarded, work) for work in works[1:]]
    guarded(works[0])
    try:
        for future in futures:
            future.result()
    except BaseException:  # Ctrl-C while the others run
        run.cancel("It was interrupted.")
        for future in futures:
            future.result()
        raise
    if errors:
        raise next((e for e in errors if not isinstance(e, CancelledError)), errors[0])


def _forget() -> None:
    """A forked child has none of the threads."""
    global _lock, _pool, _parts
    _lock, _pool, _parts = threading.Lock(), None, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
