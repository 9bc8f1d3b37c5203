"""Interrupting native loops: deadlines of sessions, and Ctrl-C.

A native loop runs without Python, possibly for ever. It polls two words in every iteration. `stop` ends it: the owner of
the thread (a step of a session, with its deadline) gets the word when the loop begins and may set it. `tick` makes the
loop call back into Python, which runs pending signal handlers: Python runs them on the main thread only, and only while
that executes bytecode. So Ctrl-C ends a loop of the main thread within a fraction of a second.
"""

from __future__ import annotations

import os
import threading
from typing import Any

TICK_SECONDS = 0.1  # seconds between two calls back into Python


class Interrupted(RuntimeError):
    """A loop was stopped. Variables are unchanged, or hold completely assigned values."""


class _Watched(threading.local):
    by: Any = None  # an object with `begin(flag)`, `end(flag)` and `check()`, or None


watched = _Watched()


class attended:
    """A context for a native run with loops, in which their words `stop` and `tick` are served."""

    __slots__ = ("stop", "tick", "watch", "ticking")

    def __init__(self, stop: Any, tick: Any) -> None:
        self.stop, self.tick, self.watch = stop, tick, watched.by
        self.ticking = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> None:
        if self.ticking:
            _ticker.add(self.tick)
        if self.watch is not None:
            self.watch.begin(self.stop)

    def __exit__(self, *_: object) -> None:
        if self.watch is not None:
            self.watch.end(self.stop)
        if self.ticking:
            _ticker.remove(self.tick)


class _Ticker:
    """A thread that sets the `tick` of the main thread's loops, and sleeps while there are none."""

    def __init__(self) -> None:
        self._ticks: list[Any] = []  # added and removed by the main thread only
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, tick: Any) -> None:
        tick.value = 0
        self._ticks.append(tick)
        if not self._wake.is_set():
            self._wake.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="weft-signals", daemon=True)
            self._thread.start()

    def remove(self, tick: Any) -> None:
        self._ticks.remove(tick)

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            self._wake.wait()
            pause.wait(TICK_SECONDS)
            if not self._ticks:
                self._wake.clear()
                if self._ticks:  # a loop began between the two lines above
                    self._wake.set()
            for tick in list(self._ticks):
                tick.value = 1


_ticker = _Ticker()


def _renew() -> None:
    """Restart the ticker thread in a forked child, where a loop that forked continues."""
    global _ticker
    ticks, _ticker = _ticker._ticks, _Ticker()
    for tick in ticks:
        _ticker.add(tick)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
