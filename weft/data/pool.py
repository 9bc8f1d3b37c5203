"""WorkerPool: starts the worker processes of a loader, submits tasks, receives batches and detects dead workers.

A pool serves one iteration (a *run*) at a time. All methods are called from the iterating thread. Any failure while it
waits (an error in a worker, a worker that dies, Ctrl-C, a timeout) stops the whole pool: no process is left behind, and
segments are anonymous, so no shared memory is either.
"""

from __future__ import annotations

import os
import pickle
import time
import weakref
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from .. import multiprocessing as shared
from .fetch import Epoch, Source
from .slots import SlotReader
from .worker import Payload, receive_file, worker_main


class WorkerError(RuntimeError):
    """A dataset, transform or collate function failed in a worker process.

    The message names the worker and the sample and ends with the worker's traceback; `__cause__` is the original
    exception if it could be pickled.
    """


class _Worker:
    """One process, its pipe, and its number of outstanding tasks."""

    def __init__(self, number: int, process: Any, conn: Connection) -> None:
        self.number, self.process, self.conn = number, process, conn
        self.reader = SlotReader()
        self.owed = 0  # outstanding tasks of the current run


class WorkerPool:
    """`num_workers` processes that load batches of one source."""

    def __init__(self, source: Source, num_workers: int, prefetch_factor: int) -> None:
        self._prefetch = prefetch_factor
        self._run = 0
        self._tasks: dict[int, int] = {}  # batch: worker
        self._arrived: dict[int, tuple[Any, ...]] = {}
        self.workers: list[_Worker] = []
        try:
            payload = Payload(source)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise shared.unpicklable("DataLoader: the dataset or collate_fn, with num_workers > 0", error) from error
        self._stop = weakref.finalize(self, _stop_workers, self.workers, os.getpid())
        try:
            for number in range(num_workers):
                self.workers.append(self._start(number, num_workers))
            for worker in self.workers:
                self._send(worker, payload.send)
        except BaseException:
            self.stop()
            raise

    def _start(self, number: int, num_workers: int) -> _Worker:
        context = shared.get_context()
        ours, theirs = context.Pipe(duplex=True)
        process = context.Process(
            target=worker_main,
            # One slot per batch in flight, one for the batch in use, and one for the batch that the loop variable still holds.
            args=(theirs, number, num_workers, self._prefetch + 2, shared.SUPPORTED),
            name=f"weft-loader-{number}",
            daemon=True,
        )
        try:
            with shared.child_environment(threads=1):
                process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return _Worker(number, process, ours)

    @property
    def alive(self) -> bool:
        return self._stop.alive

    def stop(self) -> None:
        """Stop all workers. Arrays already returned stay valid."""
        self._stop()

    def begin(self, epoch: Epoch) -> None:
        """Start a run; batches of the previous run that are still in flight are discarded."""
        self._run += 1
        self._tasks.clear()
        for _, worker_number, _, slot, _ in self._arrived.values():
            self.workers[worker_number].reader.discard(slot)
        self._arrived.clear()
        for worker in self.workers:
            worker.owed = 0
            self._send(worker, lambda conn: conn.send(("epoch", self._run, epoch)))

    def has_capacity(self) -> bool:
        """Whether another batch may be submitted: the prefetch limit is not reached."""
        return len(self._tasks) + len(self._arrived) < len(self.workers) * self._prefetch

    def submit(self, batch: int, indices: np.ndarray | None) -> None:
        """Submit a batch to the least busy worker; batches of a stream have a fixed worker."""
        if indices is None:
            worker = self.workers[batch % len(self.workers)]
        else:
            worker = min(self.workers, key=lambda w: w.owed)
        worker.owed += 1
        self._tasks[batch] = worker.number
        task = ("task", self._run, batch, indices, worker.reader.take_freed())
        self._send(worker, lambda conn: conn.send(task))

    def take(self, batch: int, timeout: float | None) -> tuple[Any, Any] | None:
        """Wait for a batch. Returns its arrays and the state of the stream, or None at the end of the stream."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while batch not in self._arrived:
            self._receive(batch, timeout, deadline)
        kind, number, tree, slot, state = self._arrived.pop(batch)
        if kind == "end":
            return None
        if kind == "error":  # raised in order, after the batches before it
            text, cause = tree
            raise WorkerError(f"DataLoader: in worker {number}, {text}") from cause
        return self.workers[number].reader.read(tree, slot), state

    def _receive(self, batch: int, timeout: float | None, deadline: float | None) -> None:
        """Handle incoming messages; wait for at least one."""
        by_handle: dict[Any, _Worker] = {}
        for worker in self.workers:
            by_handle[worker.conn] = by_handle[worker.process.sentinel] = worker
        remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready = wait(list(by_handle), remaining)
        if not ready:
            owner = self._tasks.get(batch, -1)
            raise RuntimeError(
                f"DataLoader: batch {batch} had not come from worker {owner} after {timeout} seconds. "
                "The dataset may be blocked; raise timeout= if it is only slow."
            )
        pipes = [by_handle[handle] for handle in ready if isinstance(handle, Connection)]
        for worker in pipes:
            try:
                self._handle(worker, worker.conn.recv())
            except (EOFError, ConnectionError):
                raise self._death(worker) from None
        if not pipes:  # no data is left from the worker that ended
            raise self._death(by_handle[ready[0]])

    def _handle(self, worker: _Worker, message: tuple[Any, ...]) -> None:
        kind, *rest = message
        if kind == "segment":
            worker.reader.add_segment(rest[0], shared.Segment.attach(receive_file(worker.conn)), rest[1])
            return
        if kind == "failed":
            raise RuntimeError(f"DataLoader: worker {worker.number} could not start: {rest[0]}")
        run, batch = rest[:2]
        current = run == self._run
        if current:
            worker.owed -= 1
            del self._tasks[batch]
        if kind == "batch":
            tree, slot, gone, state = rest[2:]
            worker.reader.drop_segments(gone)
            if current:
                self._arrived[batch] = (kind, worker.number, tree, slot, state)
            else:
                worker.reader.discard(slot)
        elif not current:
            return
        elif kind == "end":
            self._arrived[batch] = (kind, worker.number, None, None, None)
        else:
            self._arrived[batch] = (kind, worker.number, rest[2:], None, None)

    def _send(self, worker: _Worker, action: Any) -> None:
        try:
            action(worker.conn)
        except (BrokenPipeError, ConnectionError):
            # The worker may have sent an error before it died: read the rest of the pipe.
            try:
                while worker.conn.poll(0):
                    self._handle(worker, worker.conn.recv())
            except (EOFError, ConnectionError):
                pass
            raise self._death(worker) from None

    def _death(self, worker: _Worker) -> RuntimeError:
        worker.process.join(2.0)
        code = worker.process.exitcode
        batches = sorted(batch for batch, number in self._tasks.items() if number == worker.number)
        doing = f", which was to load batch {batches[0]}," if batches else ""
        hint = ""
        if code == 1:
            hint = (
                " If its traceback above speaks of bootstrapping, guard the main part of your program with "
                '`if __name__ == "__main__":`, because each worker imports it.'
            )
        who = f"worker {worker.number} (process {worker.process.pid})"
        return RuntimeError(f"DataLoader: {who}{doing} {shared.describe_exit(code)}.{hint}")


def _stop_workers(workers: list[_Worker], owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked copy of the loader does not own the workers
    for worker in workers:
        worker.conn.close()  # a worker exits when its pipe is closed
    shared.stop_processes([worker.process for worker in workers], grace=1.0)
    for worker in workers:
        if worker.process.exitcode is not None:
            worker.process.close()
