"""One run of a step: its deadline, whether it was cancelled, and how many nodes it has executed."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from typing import Any


class CancelledError(RuntimeError):
    """The step was cancelled: by `Session.cancel`, by closing the session, or by closing a queue with its waiting calls."""


_making = threading.Lock()


class Run:
    """State shared by the executors of one run. `changed` is notified of every event that an executor may wait for."""

    __slots__ = (
        "deadline", "cancelled", "reason", "changed", "executed", "step_id", "_loops", "expired", "clock", "leases", "effects",
        "leased_elsewhere",
    )  # fmt: skip

    def __init__(self, timeout: float | None, step_id: int = 0) -> None:
        self.deadline = None if timeout is None else time.monotonic() + timeout
        self.cancelled = False
        self.reason = ""
        self.expired = False  # whether `check` has raised for the deadline
        # Dequeued elements and the effects since, see Note [Leases].
        self.clock = itertools.count()
        self.leases: list[Any] = []
        self.effects: dict[Any, int] = {}
        self.leased_elsewhere = False  # whether another process dequeues in this step
        self.executed = 0
        self.step_id = step_id
        self._loops: dict[
            int, tuple[Any, threading.Timer | None]
        ] = {}  # flags that stop native loops, and their timers

    def __getattr__(self, name: str) -> threading.Condition:
        """`changed` is made when it is first used: many steps wait for nothing."""
        if name != "changed":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        with _making:
            try:
                made: threading.Condition = object.__getattribute__(self, "changed")
            except AttributeError:
                made = self.changed = threading.Condition()
        return made

    def cancel(self, reason: str) -> None:
        with self.changed:
            self.cancelled, self.reason = True, reason
            for flag, _ in self._loops.values():
                flag.value = 1
            self.changed.notify_all()

    def check(self, waiting: Sequence[Any] = ()) -> None:
        """Raise if the step was cancelled or its time is over, naming the nodes that it was `waiting` for."""
        if self.cancelled:
            raise CancelledError(f"session: the step was cancelled. {self.reason}")
        if self.deadline is not None and time.monotonic() >= self.deadline:
            self.expired = True
            text = "".join([f" It was waiting for node {n.name!r}, made at {n.where}." for n in waiting[:3]])
            raise TimeoutError(f"session: the step did not finish before its deadline.{text}")

    def check_start(self) -> None:
        """`check` before a unit starts. A step that has used what it dequeued is better off complete (Note [Leases]): for it
        the time only counts where it waits or loops."""
        if not self.effects or self.cancelled:
            self.check()

    # A native loop runs without Python, perhaps endlessly: it polls a flag in every iteration.

    def begin(self, flag: Any) -> None:
        """A native loop starts, which stops when `flag` is set."""
        timer = None
        if self.deadline is not None:
            timer = threading.Timer(max(0.0, self.deadline - time.monotonic()), self._expire, (flag,))
            timer.daemon = True
        with self.changed:
            self._loops[id(flag)] = (flag, timer)
            flag.value = int(self.cancelled)
        if timer is not None:
            timer.start()

    def _expire(self, flag: Any) -> None:
        with self.changed:
            if id(flag) in self._loops:
                flag.value = 1

    def end(self, flag: Any) -> None:
        """The loop has ended."""
        with self.changed:
            _, timer = self._loops.pop(id(flag))
        if timer is not None:
            timer.cancel()

    def wait(self, blocked: bool = True) -> bool:
        """Wait for a change, with `changed` held; False if the step's time is over or it was cancelled.

        `blocked` says whether something is waited for that may never come, rather than for units that run.
        """
        if self.cancelled:
            return False
        hurry = self.deadline is not None and (blocked or not self.effects)
        left = self.deadline - time.monotonic() if hurry and self.deadline is not None else None
        if left is not None and left <= 0:
            return False
        self.changed.wait(left)
        return True
