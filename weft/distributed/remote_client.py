"""A client's connections with the tasks of a cluster.

Threads that wait for tasks read for each other: one of them, the leader, polls all connections and puts what comes into the
mailboxes of those it is for; when its own message has come it leaves, and another waiting thread leads. So a single thread that
runs a step is woken by the kernel only, and no thread is needed in between. While nobody waits, a thread of the hub looks at the
connections now and then: for pings, and for tasks that died.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import wire
from .remote_channel import Channel
from .remote_messages import (
    CALL,
    DONE,
    PING,
    PONG,
    REPLY,
    TOKEN,
    VALUE,
    TaskLostError,
    load_error,
    pack_call,
    receive_arrays,
    receive_call,
    receive_token,
)
from .wire import WireError

CONNECT_SECONDS = 5.0
PING_SECONDS = 0.4
SILENT_SECONDS = 2.0  # a task that answers no ping for this long fails the steps that need it
BUSY_SECONDS = 15.0  # the same for a process of this machine that is seen to run: the machine may be overloaded
CALL_SECONDS = 120.0


class Mailbox:
    """What has come for one step or call. `wake` is set while its thread sleeps."""

    __slots__ = ("items", "wake")

    def __init__(self) -> None:
        self.items: deque[Any] = deque()
        self.wake: threading.Event | None = None

    def put(self, item: Any) -> None:
        self.items.append(item)
        wake = self.wake
        if wake is not None:
            wake.set()


class Lost:
    """In a mailbox: the task with this number is gone."""

    def __init__(self, task: int) -> None:
        self.task = task


class Link:
    """A connection with one life of a task."""

    def __init__(self, task: int, generation: int, channel: Channel) -> None:
        self.task, self.generation, self.channel = task, generation, channel
        self.heard = self.pinged = time.monotonic()


class Hub:
    """All connections of a client.

    Args:
        number: of the client.
        token: of the cluster.
        lost: called, on any thread, with a link that has ended, and why.
        runs: whether the process of a task is seen to run on this machine.
        name: what people call a task.
    """

    def __init__(
        self, number: int, token: bytes, lost: Callable[[Link, str], None], runs: Callable[[int], bool],
        name: Callable[[int], str],
    ) -> None:  # fmt: skip
        self.number, self.token, self._on_lost, self._runs, self._name = number, token, lost, runs, name
        self.links: dict[int, Link] = {}
        self.steps: dict[int, Mailbox] = {}
        self._calls: dict[int, tuple[Mailbox, int]] = {}
        self._call_numbers = itertools.count(1)
        self._by_descriptor: dict[int, Link] = {}
        self._lock = threading.Lock()
        self._leading = threading.Lock()
        self._sleeping: list[Mailbox] = []
        self._poll = select.poll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll.register(self._bell, select.POLLIN)
        self._closed = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="weft-cluster-hub", daemon=True)
        self._watcher.start()

    # Connections ----------------------------------------------------------------------------------------------------

    def connect(self, task: int, generation: int, address: Any) -> None:
        """Connect with a task.

        Raises:
            OSError: it cannot be reached, or does not know the token.
        """
        channel = Channel(wire.connect(address, self.token, self.number, CONNECT_SECONDS))
        link = Link(task, generation, channel)
        with self._lock:
            old = self.links.get(task)
            self.links[task] = link
            self._by_descriptor[channel.fileno()] = link
        if old is not None:
            old.channel.close()
        self._poll.register(channel.fileno(), select.POLLIN)
        self.ring()

    def lose(self, link: Link, reason: str) -> None:
        """Give a connection up; those who wait for the task are told."""
        with self._lock:
            descriptor = link.channel.fileno()
            if descriptor >= 0 and self._by_descriptor.get(descriptor) is link:
                del self._by_descriptor[descriptor]
                with contextlib.suppress(KeyError):
                    self._poll.unregister(descriptor)
            if self.links.get(link.task) is not link:
                return
            del self.links[link.task]
            boxes = [*self.steps.values(), *[box for box, task in self._calls.values() if task == link.task]]
        link.channel.close()
        self._on_lost(link, reason)
        for box in boxes:
            box.put(Lost(link.task))
        self.ring()

    def channel(self, task: int) -> Channel:
        link = self.links.get(task)
        if link is None:
            raise TaskLostError(f"session: {self._name(task)} is not there.")
        return link.channel

    def ring(self) -> None:
        """Wake the leader."""
        with contextlib.suppress(OSError):  # the hub is closed
            os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        self._closed.set()
        for link in list(self.links.values()):
            self.lose(link, "the client has closed the cluster")
        self.ring()
        self._watcher.join(5.0)
        os.close(self._bell)

    # Waiting --------------------------------------------------------------------------------------------------------

    def wait(self, box: Mailbox, until: float | None = None) -> bool:
        """Wait until something is in `box`; False if the time `until` comes first."""
        try:
            while not box.items:
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return False
                if not self._leading.acquire(blocking=False):
                    self._sleep(box, left)
                    continue
                try:
                    self._read(left)
                    while not box.items:
                        left = None if until is None else until - time.monotonic()
                        if left is not None and left <= 0:
                            return False
                        self._read(left)
                finally:
                    self._leading.release()
            return True
        finally:
            if self._sleeping and not self._leading.locked():
                self._promote()

    def _sleep(self, box: Mailbox, left: float | None) -> None:
        """Wait while another thread leads."""
        box.wake = wake = threading.Event()
        with self._lock:
            self._sleeping.append(box)
        try:
            if not box.items and self._leading.locked():
                wake.wait(left)
        finally:
            with self._lock:
                self._sleeping.remove(box)
            box.wake = None

    def _promote(self) -> None:
        """Let a sleeping thread lead."""
        with self._lock:
            for box in self._sleeping:
                if box.wake is not None and not box.wake.is_set():
                    box.wake.set()
                    return

    def _read(self, seconds: float | None) -> None:
        """As leader: poll once and take what has come."""
        for descriptor, _ in self._poll.poll(None if seconds is None else max(seconds * 1000, 1)):
            if descriptor == self._bell:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._bell)
                continue
            link = self._by_descriptor.get(descriptor)
            if link is None:
                continue
            try:
                while True:
                    self._take(link)
                    if not link.channel.buffered:
                        break
            except (OSError, WireError) as error:
                self.lose(link, str(error))

    def _take(self, link: Link) -> None:
        channel = link.channel
        frame, head = channel.receive()
        link.heard = time.monotonic()
        kind, nbytes = frame.kind, frame.nbytes - frame.b
        if kind == REPLY:
            answer = receive_call(channel, frame, head)
            box, _ = self._calls.pop(frame.part, (None, 0))
            if box is not None:
                box.put((frame.part, answer))
            return
        payload: Any = head
        if kind in (DONE, VALUE):
            payload = receive_arrays(channel, head, nbytes)
        elif kind == TOKEN:
            payload = receive_token(channel, head, nbytes)
        elif nbytes:
            channel.skip(nbytes)
        if kind == PONG:
            return
        found = self.steps.get(frame.step)
        if found is not None:
            found.put((kind, link.task, frame.part, payload))

    # Calls ----------------------------------------------------------------------------------------------------------

    def start_call(self, task: int, message: Mapping[str, Any], arrays: Sequence[np.ndarray], box: Mailbox) -> int:
        """Send a call whose answer comes into `box` as (number, (message, arrays)); returns its number."""
        number = next(self._call_numbers) & 0xFFFFFFFF
        head, data = pack_call(message, arrays)
        self._calls[number] = (box, task)
        try:
            self.channel(task).send(CALL, number, 0, self.number, head, data)
        except OSError as error:
            self._calls.pop(number, None)
            raise TaskLostError(f"session: {self._name(task)} cannot be reached: {error}.") from error
        except TaskLostError:
            self._calls.pop(number, None)
            raise
        return number

    def forget_call(self, number: int) -> None:
        self._calls.pop(number, None)

    def call_all(
        self, messages: Mapping[int, tuple[Mapping[str, Any], Sequence[np.ndarray]]], seconds: float = CALL_SECONDS
    ) -> dict[int, tuple[dict[str, Any], list[np.ndarray]]]:
        """Call several tasks at once; returns their answers, or raises the first error when all have answered."""
        box = Mailbox()
        numbers = {self.start_call(task, *message, box): task for task, message in messages.items()}
        answers: dict[int, Any] = {}
        failed: list[Exception] = []
        end = time.monotonic() + seconds
        try:
            while len(answers) + len(failed) < len(numbers):
                if not self.wait(box, end):
                    missing = ", ".join(self._name(t) for n, t in numbers.items() if n in self._calls)
                    raise TimeoutError(f"session: {missing} did not answer within {seconds:g} seconds.")
                item = box.items.popleft()
                if isinstance(item, Lost):
                    raise TaskLostError(
                        f"session: {self._name(item.task)} was lost during a call; the session goes on when it is back."
                    )
                number, (answer, arrays) = item
                if "error" in answer:
                    failed.append(load_error(answer["error"]))
                else:
                    answers[numbers[number]] = (answer, arrays)
        finally:
            for number in numbers:
                self.forget_call(number)
        if failed:
            raise failed[0]
        return answers

    def call(
        self, task: int, message: dict[str, Any], arrays: Sequence[np.ndarray] = (), seconds: float = CALL_SECONDS
    ) -> tuple[dict[str, Any], list[np.ndarray]]:
        """Call one task and wait for its answer; its error is raised here."""
        return self.call_all({task: (message, arrays)}, seconds)[task]

    # While nobody waits ---------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._closed.wait(PING_SECONDS):
            now = time.monotonic()
            for link in list(self.links.values()):
                if (
                    link.channel.is_sending
                ):  # a large value is on its way: it would have to wait, and is a sign of life itself
                    link.heard = now
                    continue
                silent = now - link.heard
                if silent > SILENT_SECONDS and link.pinged > link.heard + PING_SECONDS:
                    if silent > BUSY_SECONDS or not self._runs(link.task):
                        self.lose(link, f"it has not answered for {silent:.1f} seconds")
                        continue
                link.pinged = now
                try:
                    link.channel.send(PING, 0, 0, 0)
                except OSError as error:
                    self.lose(link, str(error))
            if self._leading.acquire(blocking=False):
                try:
                    self._read(0.001)
                    self._read(0.001)
                finally:
                    self._leading.release()
                    self._promote()
