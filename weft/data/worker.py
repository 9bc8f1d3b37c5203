"""The main function and the messages of a `DataLoader` worker process.

The main thread fetches batches, one task at a time. A second thread reads the pipe, so the loader never blocks when it
submits a task; when the pipe is closed (the loader is done, or its process is gone), that thread ends the process even
while the dataset is busy.

Messages to the worker:
    ("start", data, places), followed by an open file if there are places
    ("epoch", run, Epoch)
    ("task", run, batch, indices, freed slots)
Messages from it:
    ("segment", number, slot size), followed by the open file
    ("batch", run, batch, tree, slot, unmapped segments, state of the stream)
    ("end", run, batch) when the stream ended before this batch
    ("error", run, batch, text, cause)
    ("failed", text) when it could not start
`run` numbers the iterations of the loader: messages of an abandoned run are discarded.
"""

from __future__ import annotations

import functools
import gc
import os
import pickle
import queue
import socket
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from .. import multiprocessing as shared
from . import seeds
from .collate import fill
from .fetch import End, LoadError, Source, make_fetcher
from .slots import SlotWriter

GRACE = 0.5  # seconds a busy worker may take to finish its sample after the pipe is closed


def send_file(conn: Connection, fd: int) -> None:
    """Send a file descriptor through a pipe, right after the message that announces it."""
    with socket.socket(fileno=os.dup(conn.fileno())) as pipe:
        socket.send_fds(pipe, [b"F"], [fd])


def receive_file(conn: Connection) -> int:
    """Receive the file descriptor that follows a message."""
    with socket.socket(fileno=os.dup(conn.fileno())) as pipe:
        data, fds, _, _ = socket.recv_fds(pipe, 1, 1)
    if not data or not fds:
        raise EOFError
    return fds[0]


class Payload:
    """A pickled object whose large arrays are in shared memory, stored once for all workers."""

    MIN_BUFFER_BYTES = 1 << 16  # smaller buffers stay in the pickle

    def __init__(self, value: Any) -> None:
        buffers: list[memoryview] = []

        def in_band(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if not shared.SUPPORTED or raw.nbytes < self.MIN_BUFFER_BYTES:
                return True
            buffers.append(raw)
            return False

        self.data = pickle.dumps(value, protocol=5, buffer_callback=in_band)
        self.places: list[tuple[int, int]] = []
        self.segment: shared.Segment | None = None
        total = 0
        for raw in buffers:
            self.places.append((total, raw.nbytes))
            total += -(-raw.nbytes // shared.ALIGNMENT) * shared.ALIGNMENT
        if buffers:
            self.segment = shared.Segment.create(total)
            for raw, (offset, nbytes) in zip(buffers, self.places, strict=True):
                self.segment[offset : offset + nbytes] = raw

    def send(self, conn: Connection) -> None:
        conn.send(("start", self.data, self.places))
        if self.segment is not None:
            send_file(conn, self.segment.fd)

    @staticmethod
    def load(data: bytes, places: list[tuple[int, int]], segment: shared.Segment | None) -> Any:
        view = None if segment is None else memoryview(segment)
        buffers = [] if view is None else [view[offset : offset + nbytes] for offset, nbytes in places]
        return pickle.loads(data, buffers=buffers)


def worker_main(conn: Connection, worker: int, num_workers: int, slots: int, share: bool) -> None:
    """Serve one loader until its pipe is closed."""
    shared.accept_interrupts(ignore=True)  # the loader's process handles Ctrl-C and stops its workers
    seeds.set_worker(seeds.WorkerInfo(worker, num_workers))
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    done = threading.Event()
    threading.Thread(target=_read_pipe, args=(conn, inbox, done), name="weft-pipe", daemon=True).start()
    try:
        _serve(conn, inbox, worker, num_workers, SlotWriter(slots) if share else None)
    except (BrokenPipeError, ConnectionError):
        pass  # the loader is gone
    finally:
        done.set()


def _read_pipe(conn: Connection, inbox: queue.SimpleQueue[Any], done: threading.Event) -> None:
    try:
        while True:
            message = conn.recv()
            if message[0] == "start" and message[2]:
                message = (*message, shared.Segment.attach(receive_file(conn)))
            inbox.put(message)
    except (EOFError, OSError):
        inbox.put(("stop",))
    if not done.wait(GRACE):
        os._exit(0)


def _serve(
    conn: Connection, inbox: queue.SimpleQueue[Any], worker: int, num_workers: int, writer: SlotWriter | None
) -> None:
    source: Source | None = None
    fetcher: Any = None
    problem: tuple[str, BaseException] | None = None  # why this epoch's fetcher could not be made
    current = -1
    while True:
        kind, *rest = inbox.get()
        if kind == "stop":
            return
        if kind == "start":
            try:
                source = Payload.load(rest[0], rest[1], rest[2] if len(rest) > 2 else None)
            except Exception as error:  # whatever the user's code raises is reported
                conn.send(("failed", _start_problem(error)))
                return
            gc.collect()
            gc.freeze()  # the dataset lives as long as the process: exclude it from collections
        elif kind == "epoch":
            current, epoch = rest
            try:
                assert source is not None
                fetcher, problem = make_fetcher(source, epoch, worker, num_workers), None
            except Exception as error:  # as above
                fetcher, problem = None, (_text(error), error)
        elif kind == "task":
            run, batch, indices, freed = rest
            if writer is not None:
                writer.release(freed)
            if run != current:
                continue
            if problem is not None:
                conn.send(("error", run, batch, problem[0], _portable(problem[1])))
                continue
            _answer(conn, writer, run, batch, functools.partial(fetcher.fetch, batch, indices))


def _answer(
    conn: Connection, writer: SlotWriter | None, run: int, batch: int, fetch: Callable[[], tuple[Any, Any]]
) -> None:
    """Make one batch and send it, or send the error."""
    try:
        tree, state = fetch()
        if writer is None:
            message: tuple[Any, ...] = ("batch", run, batch, fill(tree, np.empty), None, [], state)
        else:
            references, slot, new, gone = writer.write(tree)
            if new is not None:
                number, segment, size = new
                conn.send(("segment", number, size))
                send_file(conn, segment.fd)
            message = ("batch", run, batch, references, slot, gone, state)
        try:
            conn.send(message)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise shared.unpicklable("DataLoader: what collate_fn returned", error) from error
    except End:
        conn.send(("end", run, batch))
    except (BrokenPipeError, ConnectionError):
        raise
    except Exception as error:  # whatever the user's code raises is reported
        conn.send(("error", run, batch, _text(error), _portable(error)))


def _text(error: BaseException) -> str:
    """The sample or batch and the original traceback."""
    if isinstance(error, LoadError) and error.__cause__ is not None:
        cause = error.__cause__
        place = f"loading {error} failed with {type(cause).__name__}: {cause}"
        return f"{place}\n\n" + "".join(traceback.format_exception(cause))
    return f"failed with {type(error).__name__}: {error}\n\n" + "".join(traceback.format_exception(error))


def _portable(error: BaseException) -> BaseException | None:
    """The exception itself if it can be pickled and unpickled, else None."""
    cause = error.__cause__ if isinstance(error, LoadError) and error.__cause__ is not None else error
    try:
        copy = pickle.loads(pickle.dumps(cause))
    except Exception:  # exceptions with custom constructors often cannot be pickled; the text has the traceback
        return None
    return copy if isinstance(copy, BaseException) else None


def _start_problem(error: BaseException) -> str:
    hint = ""
    if "__main__" in str(error) or "__mp_main__" in str(error):
        hint = (
            " A worker process imports your program again and did not find this name in it: classes and functions "
            "typed into a notebook or an interactive session do not exist there. Put them in a .py file and import it, "
            "or use num_workers=0."
        )
    return f"the dataset or collate_fn could not be rebuilt: {type(error).__name__}: {error}.{hint}\n\n" + "".join(
        traceback.format_exception(error)
    )
