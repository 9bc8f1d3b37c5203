"""Where values meet those who wait for them: the exchange of one step in one process.

The two ends of an edge know each other by (client, step, edge) and, in loops, by the tag of the iteration. A value that
comes before its step has begun is kept; later ones are passed to the part that waits for them, without a thread, and used on
the thread that brings them. A second value for an edge, or one for a step that is over, is dropped.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from .remote_channel import Channel
from .remote_messages import TOKEN, VALUE, TaskLostError, pack, pack_token
from .remote_segments import MIN_BYTES, Lender

MAX_ENDED = 4096  # steps of a client that are remembered as over
EARLY_SECONDS = 120.0  # how long values of a step that has not begun are kept


class Exchange:
    """The values of one step on their way into this process, and the way out of it.

    Args:
        client, step: whose step it is.
        route: the channel to a task, or to the client; raises TaskLostError.
        lender: the shared memory for large values; None: all go through the connection.
    """

    __slots__ = ("client", "step", "route", "lender", "made", "_lock", "_deliver", "_early")

    def __init__(self, client: int, step: int, route: Callable[[int], Channel], lender: Lender | None = None) -> None:
        self.client, self.step, self.route, self.lender = client, step, route, lender
        self.made = time.monotonic()
        self._lock = threading.Lock()
        self._deliver: Callable[..., None] | None = None
        self._early: list[Any] = []

    # Out ------------------------------------------------------------------------------------------------------------

    def send(self, edge: int, destination: int, array: np.ndarray | None, handle: int = 0) -> None:
        """Send the value of an edge; returns when it is on its way. `handle`: of the part that it may begin."""
        a = self.client | handle << 32
        try:
            channel = self.route(destination)
            if array is not None and array.nbytes >= MIN_BYTES and self.lender is not None and destination >= 0:
                if self.lender.send(channel, edge, self.step, a, array):
                    return
            head, data = pack((array,))
            channel.send(VALUE, edge, self.step, a, head, data)
        except OSError as error:
            raise TaskLostError(f"session: a value cannot be sent to another task: {error}.") from error

    def send_token(self, destination: int, edge: int, tag: Any, array: Any, dead: bool) -> None:
        """Send a token of a loop."""
        head, data = pack_token(tag, None if dead or array is None else np.asarray(array), dead)
        try:
            self.route(destination).send(TOKEN, edge, self.step, self.client, head, data)
        except OSError as error:
            raise TaskLostError(f"session: a token cannot be sent to another task: {error}.") from error

    # In -------------------------------------------------------------------------------------------------------------

    def listen(self, deliver: Callable[..., None]) -> None:
        """Pass everything that comes, and what came before, on to `deliver`: (edge, array), or for tokens (source, edge, tag,
        array, dead)."""
        with self._lock:
            self._deliver, early = deliver, self._early
            self._early = []
        for what in early:
            deliver(*what)

    def forget(self) -> None:
        """The step is over here: nothing is passed on any more."""
        self._deliver, self._early = _dropped, []

    def deposit(self, *what: Any) -> Callable[[], None] | None:
        """Something has come; returns what is to be done about it."""
        deliver = self._deliver
        if deliver is None:
            with self._lock:
                deliver = self._deliver
                if deliver is None:
                    self._early.append(what)
                    return None
        return functools.partial(deliver, *what)


def _dropped(*what: Any) -> None:
    """Takes what comes too late."""


class Exchanges:
    """The exchanges of one client's steps in a process. Values may come before the step begins, and after it is over."""

    def __init__(self, client: int, route: Callable[[int], Channel], lender: Lender | None = None) -> None:
        self.client, self.route, self.lender = client, route, lender
        self._lock = threading.Lock()
        self._open: dict[int, Exchange] = {}
        self._ended: OrderedDict[int, None] = OrderedDict()

    def get(self, step: int) -> Exchange | None:
        """The exchange of a step, made if necessary; None if the step is over."""
        found = self._open.get(step)
        if found is None:
            with self._lock:
                found = self._open.get(step)
                if found is None and step not in self._ended:
                    found = self._open[step] = Exchange(self.client, step, self.route, self.lender)
        return found

    def end(self, step: int, late: bool = True) -> None:
        """A step is over; `late`: values of it may still come, and are dropped."""
        with self._lock:
            self._open.pop(step, None)
            if late:
                self._ended[step] = None
                while len(self._ended) > MAX_ENDED:
                    self._ended.popitem(last=False)

    def purge(self, running: Callable[[int], bool]) -> None:
        """Forget values of steps that never began."""
        old = time.monotonic() - EARLY_SECONDS
        with self._lock:
            for step in [s for s, e in self._open.items() if e.made < old and not running(s)]:
                del self._open[step]
