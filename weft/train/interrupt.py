"""Ctrl-C and SIGTERM between steps instead of in the middle of one."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

TERMINATED = 128 + signal.SIGTERM  # the exit status of a process that ended because of a SIGTERM


class Interrupt:
    """While this is entered, a Ctrl-C or SIGTERM is noted in `asked` for the loop to look at; a second one acts at once.

    In the middle of a step weights and optimiser may not fit together, and native code cannot be left. Between steps
    a checkpoint can be written: SIGTERM is how schedulers and containers announce that a machine is taken away. Does nothing
    outside the main thread, or for a signal that the program handles itself.
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
        """What to raise for the signal that came: KeyboardInterrupt, or for SIGTERM the end of the program with status 143."""
        return SystemExit(TERMINATED) if self.asked is signal.SIGTERM else KeyboardInterrupt()

    def __exit__(self, *_: object) -> None:
        while self._before:
            signal.signal(*self._before.popitem())
