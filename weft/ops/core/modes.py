"""Modes: who sees every op that a thread calls. Capture, autocast, NaN tracing and profiling are modes.

`active` counts the live modes of all threads; while it is zero, nobody looks further, and that look is all that a small
op pays. Data that are not NumPy arrays (symbolic values, batched values) need no mode: NumPy refuses them, and the
general path hands the call to the data's own `apply`.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from ...runtime import forks
from ...tensor import Tensor, wrap
from .registry import Op

active = 0  # read as `modes.active`: a copy would go stale
lines = 0  # how many want tape nodes to remember the user's line: NaN tracing does
_lock = forks.held_over_fork()


class _OfThread(threading.local):
    stack: tuple[Any, ...] = ()


of_thread = _OfThread()


class Mode:
    """Sees every op that its thread calls while it is entered: `handle(op, values)` may answer or call `op.call`.

    While `handle` runs, the mode itself is set aside, so that calling the op again reaches the next mode. `casts` says
    whether the mode decides in which precision ops compute, and does so; None for modes that leave it alone.
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
    """Run without the modes of this thread for a while (`keep` of the outermost ones stay)."""

    __slots__ = ("_keep", "_saved")

    def __init__(self, keep: int = 0) -> None:
        self._keep = keep

    def __enter__(self) -> None:
        self._saved = of_thread.stack
        of_thread.stack = self._saved[: self._keep]

    def __exit__(self, *_: Any) -> None:
        of_thread.stack = self._saved


class installed:
    """Run with `stack` as the modes of this thread for a while, whatever they are now."""

    __slots__ = ("_stack", "_saved")

    def __init__(self, stack: tuple[Any, ...]) -> None:
        self._stack = stack

    def __enter__(self) -> None:
        global active
        with _lock:
            active += 1  # they may all have been left since, and then nobody looks at the stack
        self._saved = of_thread.stack
        of_thread.stack = self._stack

    def __exit__(self, *_: Any) -> None:
        global active
        of_thread.stack = self._saved
        with _lock:
            active -= 1


def constant(array: np.ndarray) -> Tensor:
    """A new tensor that holds `array`. In a captured function it is part of the program, made anew on every call."""
    if active:
        for mode in reversed(of_thread.stack):
            if hasattr(mode, "constant"):
                return mode.constant(array)
    return wrap(array)


def trace_lines(enabled: bool) -> None:
    """Ask that tape nodes remember the user's line (slower), or take that wish back. Only a mode may, while it is entered:
    the short paths of dispatch look for modes alone."""
    global lines
    with _lock:
        lines += 1 if enabled else -1
