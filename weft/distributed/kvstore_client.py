"""How a worker talks with parameter servers: operations by priority, sent again to a server that was started again.

A thread sends the operations. Those with a higher priority go first, so that the layers which the next forward pass
needs first travel first; of one key, or any other name of a sequence, one operation is under way at a time, in the
order in which they were asked for. Few pushes are under way at once, for a later one of higher priority must not wait
for many; pulls, which may wait on the server, do not count. An operation that a server has not answered when it dies
is sent again, as it was: the server accepts a push once.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from .cluster import BACK_SECONDS, Cluster
from .parameter_server_store import KeyStore
from .remote_client import Lost, Mailbox
from .remote_messages import TaskLostError, load_error

MAX_PUSHES = 2  # under way at once
GLANCE_SECONDS = 0.2
_WAKE = "wake"


class Operation:
    """A message to a server, and its answer once it has come."""

    def __init__(
        self, server: int, message: dict[str, Any], arrays: Sequence[np.ndarray], sequence: str, priority: int
    ) -> None:
        self.server, self.message, self.arrays = server, message, list(arrays)
        self.sequence, self.priority = sequence, priority
        self.lost_since: float | None = None
        self._done = threading.Event()
        self._answer: tuple[dict[str, Any], list[np.ndarray]] | None = None
        self._error: BaseException | None = None

    @property
    def is_push(self) -> bool:
        return self.message["kv"] == "push"

    def succeed(self, answer: dict[str, Any], arrays: Sequence[np.ndarray]) -> None:
        if "error" in answer:
            self._error = load_error(answer["error"])
        else:
            self._answer = (answer, list(arrays))
        self._done.set()

    def fail(self, error: BaseException) -> None:
        self._error = error
        self._done.set()

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    def wait(self, seconds: float) -> tuple[dict[str, Any], list[np.ndarray]]:
        """The answer.

        Raises:
            TimeoutError: it has not come in time.
        """
        if not self._done.wait(seconds):
            named = self.message.get("keys") or self.message.get("key") or self.sequence
            raise TimeoutError(
                f"KVStore: {self.message['kv']} of {named} was not answered within {seconds:g} seconds. In sync, a pull waits "
                "until all workers have pushed; with Bounded, until the slowest has caught up."
            )
        if self._error is not None:
            raise self._error
        assert self._answer is not None
        return self._answer


class LocalServer:
    """A server within this process, with the interface of `Sender`."""

    servers = 1

    def __init__(self, place: str) -> None:
        self._store = KeyStore(None, place)

    def submit(
        self,
        server: int,
        message: dict[str, Any],
        arrays: Sequence[np.ndarray] = (),
        sequence: str = "",
        priority: int = 0,
    ) -> Operation:
        made = Operation(server, message, arrays, sequence, priority)
        self._store.answer(
            made.message, made.arrays, lambda answer, results=(): made.succeed(answer, [np.array(a) for a in results])
        )
        return made

    def close(self) -> None:
        self._store.close()


class Sender:
    """The servers of a store, as one worker sees them.

    Args:
        cluster: whose tasks they are.
        tasks: their numbers.
    """

    def __init__(self, cluster: Cluster, tasks: Sequence[int]) -> None:
        self.cluster, self._tasks, self.servers = cluster, list(tasks), len(tasks)
        self._box = Mailbox()
        self._lock = threading.Lock()
        self._order = itertools.count()
        self._sequences: dict[tuple[int, str], deque[Operation]] = {}
        self._ready: list[tuple[int, int, Operation]] = []
        self._started: dict[int, Operation] = {}
        self._lost: list[Operation] = []
        self._pushes = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="weft-kvstore", daemon=True)
        self._thread.start()

    def submit(
        self,
        server: int,
        message: dict[str, Any],
        arrays: Sequence[np.ndarray] = (),
        sequence: str = "",
        priority: int = 0,
    ) -> Operation:
        """Send a message to a server when its turn has come."""
        made = Operation(server, message, arrays, sequence, priority)
        with self._lock:
            if self._closed:
                raise RuntimeError("KVStore: it is closed.")
            queue = self._sequences.setdefault((server, sequence), deque())
            queue.append(made)
            if len(queue) == 1:
                self._offer(made)
            elif priority > queue[0].priority:  # what is before it must not hold it up
                queue[0].priority = priority
                self._offer(queue[0])
        self._wake()
        return made

    def _offer(self, operation: Operation) -> None:
        heapq.heappush(self._ready, (-operation.priority, next(self._order), operation))

    def _wake(self) -> None:
        self._box.put(_WAKE)
        self.cluster.hub.ring()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._wake()
        self._thread.join(5.0)

    # The thread -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closed:
                self._start_some()
                self.cluster.hub.wait(self._box, time.monotonic() + GLANCE_SECONDS)
                while self._box.items:
                    self._take(self._box.items.popleft())
                if self._lost:
                    self._send_again()
            error: BaseException = RuntimeError("KVStore: it was closed before this was done.")
        except BaseException as raised:
            error = raised
        with self._lock:
            self._closed = True
            left = [op for queue in self._sequences.values() for op in queue]
        for operation in left:
            operation.fail(error)

    def _start_some(self) -> None:
        held = []
        while True:
            with self._lock:
                if not self._ready:
                    break
                entry = heapq.heappop(self._ready)
            operation = entry[2]
            if operation.is_done or operation in self._started.values() or operation in self._lost:
                continue  # it was offered twice, since its priority was raised
            if operation.is_push and self._pushes >= MAX_PUSHES:
                held.append(entry)
                continue
            self._start(operation)
        with self._lock:
            for entry in held:
                heapq.heappush(self._ready, entry)

    def _start(self, operation: Operation) -> None:
        task = self._tasks[operation.server]
        try:
            number = self.cluster.hub.start_call(task, operation.message, operation.arrays, self._box)
        except TaskLostError:
            self._lose(operation)
            return
        operation.lost_since = None
        self._started[number] = operation
        self._pushes += operation.is_push

    def _take(self, item: Any) -> None:
        if item is _WAKE:
            return
        if isinstance(item, Lost):
            for number, operation in list(self._started.items()):
                if self._tasks[operation.server] == item.task:
                    del self._started[number]
                    self.cluster.hub.forget_call(number)
                    self._pushes -= operation.is_push
                    self._lose(operation)
            return
        number, (answer, arrays) = item
        found = self._started.pop(number, None)
        if found is None:
            return
        self._pushes -= found.is_push
        found.succeed(answer, arrays)
        self._finish(found)

    def _finish(self, operation: Operation) -> None:
        with self._lock:
            name = (operation.server, operation.sequence)
            queue = self._sequences[name]
            queue.popleft()
            if queue:
                self._offer(queue[0])
            else:
                del self._sequences[name]

    def _lose(self, operation: Operation) -> None:
        if operation.lost_since is None:
            operation.lost_since = time.monotonic()
        self._lost.append(operation)

    def _send_again(self) -> None:
        """Send what was lost with a server to its successor."""
        lost, self._lost = self._lost, []
        for task in {self._tasks[op.server] for op in lost}:
            with contextlib.suppress(TaskLostError):
                self.cluster.wait_for([task], time.monotonic() + GLANCE_SECONDS)
        for operation in lost:
            since = operation.lost_since
            if since is not None and time.monotonic() - since > BACK_SECONDS:
                name = self.cluster.name_of(self._tasks[operation.server])
                operation.fail(TaskLostError(f"KVStore: the server {name} was lost and did not come back in time."))
                self._finish(operation)
            elif self._tasks[operation.server] in self.cluster.hub.links:
                self._start(operation)
            else:
                self._lost.append(operation)
