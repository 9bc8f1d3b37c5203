"""Ctrl-C between steps instead of in the middle of one."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Self


class Interrupt:
    """While this is entered, the first Ctrl-C is noted in `asked` for the loop to look at; a second one acts at once.

    In the middle of a step weights and optimiser may not fit together, and native code cannot be left. Between steps
    a checkpoint can be written. Does nothing outside the main thread, or where the program handles Ctrl-C itself.
    """

    def __init__(self) -> None:
        self.asked = False
        self._installed = False

    def __enter__(self) -> Self:
        self.asked = False
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._note)
            self._installed = True
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            signal.default_int_handler(number, frame)
        self.asked = True

    def __exit__(self, *_: object) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._installed = False
