"""Coordinators and queue runners: threads that fill queues, and stop together."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..graph import Node
from .queues import Queue, QueueClosedError


class Coordinator:
    """A group of threads that stop together: the first error, or `request_stop()`, ends all of them.

    >>> coordinator, q = wf.Coordinator(), wf.FIFOQueue(10, wf.float32)
    >>> thread = coordinator.start(lambda: q.put(1.0), "producer")
    >>> q.get(timeout=10).item()
    1.0
    >>> coordinator.request_stop()
    >>> coordinator.join()
    """

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._threads: list[threading.Thread] = []

    def should_stop(self) -> bool:
        return self._stop.is_set()

    def request_stop(self, error: BaseException | None = None) -> None:
        """Ask all threads to stop; the first `error` given is raised by `join`."""
        with self._lock:
            if error is not None and self._error is None and not self._stop.is_set():
                self._error = error
        self._stop.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until a stop is requested; return False if `timeout` seconds pass first."""
        return self._stop.wait(timeout)

    def start(self, target: Callable[[], None], name: str) -> threading.Thread:
        """Run `target` in a new thread, which is returned; an exception requests a stop."""

        def run() -> None:
            try:
                target()
            except BaseException as error:
                self.request_stop(error)

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def join(self, threads: Sequence[threading.Thread] | float | None = None, timeout: float = 60.0) -> None:
        """Wait for all threads to end, and raise the error that stopped them; TimeoutError after `timeout` seconds.

        Args:
            threads: threads that the coordinator did not start itself, to wait for as well.
            timeout: seconds, for all threads together; also accepted alone, `join(5.0)`.
        """
        if isinstance(threads, (int, float)):
            timeout, threads = float(threads), None
        end = time.monotonic() + timeout
        for thread in dict.fromkeys([*self._threads, *(threads or ())]):
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                raise TimeoutError(f"coordinator: thread {thread.name!r} did not end within {timeout} seconds.")
        if self._error is not None:
            raise self._error


class QueueRunner:
    """Threads that keep a queue filled, one per enqueue op.

    Each runs its op until the queue is closed, its input ends, or the coordinator stops. The last one to end closes the
    queue, so that readers end too.

    >>> with wf.Graph().as_default() as graph:
    ...     q = wf.FIFOQueue(4, wf.float32, ())
    ...     runner = wf.QueueRunner(q, [q.enqueue(wf.constant(1.0))])
    ...     batch = q.dequeue_many(3)
    >>> coordinator = wf.Coordinator()
    >>> with wf.Session(graph) as sess:
    ...     threads = runner.start(sess, coordinator)
    ...     sess.run(batch).tolist()
    ...     coordinator.request_stop()
    ...     coordinator.join()
    [1.0, 1.0, 1.0]
    """

    def __init__(self, queue: Queue, enqueue_ops: Sequence[Node]) -> None:
        if not enqueue_ops:
            raise ValueError("QueueRunner: expected at least one enqueue op. Got none.")
        self.queue, self.enqueue_ops = queue, list(enqueue_ops)
        self._left = len(self.enqueue_ops)
        self._lock = threading.Lock()

    def start(self, session: Any, coordinator: Coordinator) -> list[threading.Thread]:
        """Start the threads and return them. Stopping the coordinator cancels pending enqueues."""
        threads = []
        for i, op in enumerate(self.enqueue_ops):
            run = functools.partial(self._run, session, coordinator, op)
            threads.append(coordinator.start(run, f"{self.queue.name}-runner-{i}"))
        threads.append(coordinator.start(lambda: self._watch(coordinator), f"{self.queue.name}-watch"))
        return threads

    def _run(self, session: Any, coordinator: Coordinator, op: Node) -> None:
        try:
            while not coordinator.should_stop():
                session.run(op)
        except (QueueClosedError, StopIteration):
            pass  # end of input: the ordinary way to stop
        finally:
            with self._lock:
                self._left -= 1
                last = not self._left
            if last:
                self.queue.close()

    def _watch(self, coordinator: Coordinator) -> None:
        while not coordinator.wait(0.05):
            if self._left == 0:
                return
        self.queue.close(cancel_pending=True)
