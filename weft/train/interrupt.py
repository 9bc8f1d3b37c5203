"""Deferred handling of Ctrl-C and SIGTERM, so that they take effect between training steps."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

TERMINATED = 128 + signal.SIGTERM  # the exit status of a process that ended because of a SIGTERM


class Interrupt:
    """A context in which Ctrl-C or SIGTERM sets `asked`, which the loop polls; a second signal acts immediately.

    In the middle of a step weights and optimiser state may be inconsistent, and native code cannot be unwound. Between
    steps a checkpoint can be written: schedulers and containers send SIGTERM before they take a machine away. Does
    nothing outside the main thread, or for a signal that the program handles itself.
    """

    def __init__(self) -> None:
        self.asked: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self.asked = None
        if threading.current_thread() is threading.main_thread():
            for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
                if signal.getsignal(number) is usual:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        given = signal.Signals(number)
        again = self.asked is given
        if self.asked is not signal.SIGTERM:
            self.asked = given
        if again:
            raise self.error()

    def error(self) -> BaseException:
        """The exception for the received signal: KeyboardInterrupt, or for SIGTERM a SystemExit with status 143."""
        return SystemExit(TERMINATED) if self.asked is signal.SIGTERM else KeyboardInterrupt()

    def __exit__(self, *_: object) -> None:
        while self._before:
            signal.signal(*self._before.popitem())
