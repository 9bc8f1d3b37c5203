"""Modes: per-thread interceptors of op calls, used by capture, autocast, NaN tracing and profiling.

`active` counts the live modes of all threads; while it is zero, a small op pays only for reading it. Data that are not
NumPy arrays (symbolic values, batched values) need no mode: NumPy rejects them, and the general path hands the call
to the data's own `apply`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runtime import forks
from ...tensor import Tensor, wrap
from .registry import Op

if TYPE_CHECKING:
    from ...autograd.tape import Node
    from .recording import Base

active = 0  # read as `modes.active`: a copy would go stale
lines = 0  # requests to record the user's line in tape nodes, made by NaN tracing
_lock = forks.held_over_fork()


class Mode:
    """Intercepts every op that its thread calls while entered.

    This class is the whole protocol. A mode overrides `handle` and those of the other members that concern it; the defaults
    stand for a mode that only sees ops. Members that return None by default ask the modes innermost first, and the first
    other answer counts. While `handle` runs, the mode itself is suspended, so that calling the op again reaches the next mode.
    """

    casts: bool | None = None
    """Whether the mode enables casts to a compute precision; None: it does not affect precision."""

    allows_programs: bool = False
    """Whether a captured function called in the mode runs its program. Otherwise it is inlined: the mode sees its ops."""

    takes_writes: bool = False
    """Whether in-place ops give tensors new values by `assign` and its relatives instead of writing to memory."""

    def handle(self, op: Op, values: tuple[Any, ...]) -> Any:
        """The result of one op call, given a full tuple of argument values; `op.run(op.call, values)` asks the next mode."""
        raise NotImplementedError(f"{type(self).__name__}: a mode must define `handle(op, values)`.")

    # Values that do not come from ops.

    def constant(self, array: np.ndarray) -> Tensor | None:
        """A tensor for an array that the program creates anew on every call."""
        return None

    def random_state(self, generator: Any) -> Tensor | None:
        """The state of the next draw from `generator`."""
        return None

    # Writes in place, asked of the innermost mode that takes writes; see Note [In-place].

    def takes(self, x: Tensor) -> bool:
        """Whether a mode that takes writes takes one to `x`; otherwise it is an eager one."""
        return True

    def assign(self, x: Tensor, value: Tensor) -> None:
        """Give the eager tensor `x` a new value; the mode keeps it until the program runs."""
        raise NotImplementedError(f"{type(self).__name__}: a mode that takes writes must define `assign(x, value)`.")

    def touch(self, x: Tensor) -> None:
        """Called before the value or the tape link of `x` changes."""

    def views_of(self, base: Tensor) -> Base | None:
        """The views that the mode made of the eager tensor `base`; None: its views are those that the tensor lists, and a
        write to a view is a write to its base."""
        return None

    def in_layout_of(self, x: Tensor, value: Tensor) -> Tensor:
        """`value` as it is after it was written to the memory of `x`."""
        return value

    # Events, reported to all modes.

    def wrote(self, op: str, x: Tensor, operands: Sequence[Any]) -> None:
        """The in-place op called `op` wrote to the memory of `x` without a recorded op call."""

    def around_backward(self, node: Node, run: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        """The gradients of the inputs of `node` in a backward pass, which `run()` computes."""
        return run()

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


class _OfThread(threading.local):
    stack: tuple[Mode, ...] = ()


of_thread = _OfThread()


def current_modes() -> tuple[Mode, ...]:
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

    def __init__(self, stack: tuple[Mode, ...]) -> None:
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
            made = mode.constant(array)
            if made is not None:
                return made
    return wrap(array)


def trace_lines(enabled: bool) -> None:
    """Start or stop recording the user's source line in tape nodes (slower).

    Only an entered mode may do this: the fast paths check for modes only.
    """
    global lines
    with _lock:
        lines += 1 if enabled else -1
