"""Modes: per-thread interceptors of op calls, used by capture, autocast, NaN tracing and profiling.

`active` counts the live modes of all threads; while it is zero, a small op pays only for reading it. Data that are not
NumPy arrays (symbolic values, batched values) need no mode: NumPy rejects them, and the general path hands the call
to the data's own `apply`.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from ...runtime import forks
from ...tensor import Tensor, wrap
from .registry import Op

active = 0  # read as `modes.active`: a copy would go stale
lines = 0  # requests to record the user's line in tape nodes, made by NaN tracing
_lock = forks.held_over_fork()


class _OfThread(threading.local):
    stack: tuple[Any, ...] = ()


of_thread = _OfThread()


class Mode:
    """Intercepts every op that its thread calls while entered: `handle(op, values)` returns a result or calls `op.call`.

    While `handle` runs, the mode itself is suspended, so that calling the op again reaches the next mode. `casts` is whether
    the mode enables casts to a compute precision; None for modes that do not affect precision.
    """

    casts: bool | None = None

    def handle(self, op: Op, values: tuple[Any, ...]) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Any:
        global active
        with _lock:
            active += 1
        of_thread.stack = (*of_thread.stack, self)
        return self

    def __exit__(self, *_: Any) -> None:
        global active
        stack = list(of_thread.stack)
        stack.remove(self)
        of_thread.stack = tuple(stack)
        with _lock:
            active -= 1


def current_modes() -> tuple[Any, ...]:
    """The modes of this thread, innermost last."""
    return of_thread.stack


class suspended:
    """Context manager that suspends the modes of this thread, except the outermost `keep`."""

    __slots__ = ("_keep", "_saved")

    def __init__(self, keep: int = 0) -> None:
        self._keep = keep

    def __enter__(self) -> None:
        self._saved = of_thread.stack
        of_thread.stack = self._saved[: self._keep]

    def __exit__(self, *_: Any) -> None:
        of_thread.stack = self._saved


class installed:
    """Context manager that replaces the modes of this thread by `stack`."""

    __slots__ = ("_stack", "_saved")

    def __init__(self, stack: tuple[Any, ...]) -> None:
        self._stack = stack

    def __enter__(self) -> None:
        global active
        with _lock:
            active += 1  # all may have been exited since, and the stack is read only while `active`
        self._saved = of_thread.stack
        of_thread.stack = self._stack

    def __exit__(self, *_: Any) -> None:
        global active
        of_thread.stack = self._saved
        with _lock:
            active -= 1


def constant(array: np.ndarray) -> Tensor:
    """A new tensor on `array`; in a captured function a constant of the program, created anew on every call."""
    if active:
        for mode in reversed(of_thread.stack):
            if hasattr(mode, "constant"):
                return mode.constant(array)
    return wrap(array)


def trace_lines(enabled: bool) -> None:
    """Start or stop recording the user's source line in tape nodes (slower).

    Only an entered mode may do this: the fast paths check for modes only.
    """
    global lines
    with _lock:
        lines += 1 if enabled else -1
