"""The worker processes of a `ParameterServer`: a thread starts them through an engine, and starts again those that are killed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import settings
from . import directories
from .engine import Engine, Task
from .host import Ended, HostJoined, HostLost, Note

VARIABLE = "WEFT_PARAMETER_WORKER"
"""what a worker is told, as JSON in its environment"""
MODULE = "weft.distributed.parameter_server_worker"
GLANCE_SECONDS = 0.1
END_SECONDS = 30.0
LONGEST_PAUSE = 10.0


class WorkerPool:
    """Keeps workers running until each has ended with status 0.

    Args:
        make: makes the engine, for a directory and a lifeline.
        hosts: how many hosts are wanted.
        count: how many workers.
        script: how to run the program: a path, or `-m` and a module, and its arguments.
        facts: what all workers are told.
        threads: of each worker.
    """

    def __init__(
        self, make: Callable[[str, int], Engine], hosts: int, count: int, script: Sequence[str], facts: Mapping[str, Any],
        threads: int,
    ) -> None:  # fmt: skip
        self._make, self._hosts, self._count, self._script, self._facts = make, hosts, count, list(script), dict(facts)
        self._threads = threads
        self._directory = directories.make("weft-workers-")
        self._read, self._write = os.pipe()
        self._closing = threading.Event()
        self._error: BaseException | None = None
        self.restarts = 0
        self.ended: set[int] = set()
        self.pids: dict[int, int] = {}
        self._start_at: dict[int, float] = dict.fromkeys(range(count), 0.0)
        self._pause: dict[int, float] = {}
        self._known: dict[int, Any] = {}
        self._thread = threading.Thread(target=self._run, name="weft-workers", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise what ended the workers."""
        if self._error is not None:
            raise self._error

    def wait(self) -> None:
        """Wait until every worker has ended by itself."""
        end = time.monotonic() + END_SECONDS
        while len(self.ended) < self._count and time.monotonic() < end:
            self.check()
            time.sleep(0.01)

    def close(self) -> None:
        """End the workers; nothing of them is left."""
        self._closing.set()
        self._thread.join(60.0)
        for descriptor in (self._read, self._write):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        shutil.rmtree(self._directory, ignore_errors=True)

    # The thread -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        engine: Engine | None = None
        try:
            engine = self._make(self._directory, self._read)
            while not self._closing.is_set() and self._error is None:
                self._look(engine, engine.wait(GLANCE_SECONDS))
        except BaseException as error:
            self._error = error
        finally:
            if engine is not None:
                engine.close()

    def _look(self, engine: Engine, events: list[Any]) -> None:
        for event in events:
            if isinstance(event, (HostJoined, HostLost)):
                self._known = engine.places()
            elif isinstance(event, Ended):
                self._ended(int(event.name.rpartition("-")[2]), event.status)
            elif isinstance(event, Note):
                print(f"weft: {event.text}", file=sys.stderr, flush=True)
        if len(self._known) < self._hosts and not self.pids:
            return
        for number, when in list(self._start_at.items()):
            if self._known and time.monotonic() >= when:
                del self._start_at[number]
                self._start(engine, number)

    def _ended(self, number: int, status: int) -> None:
        if status == 0:
            self.ended.add(number)
            return
        if status > 0:  # an error of the program: it would happen again
            self._error = RuntimeError(
                f"ParameterServer: worker-{number} ended with status {status}; its message is above."
            )
            return
        how = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
        print(f"weft: worker-{number} was killed by {how} and is started again", file=sys.stderr, flush=True)
        self.restarts += 1
        pause = self._pause.get(number, 0.0)
        self._start_at[number] = time.monotonic() + pause
        self._pause[number] = min((pause or 0.05) * 2, LONGEST_PAUSE)

    def _start(self, engine: Engine, number: int) -> None:
        hosts = sorted(self._known)
        host = hosts[number % len(hosts)]
        facts = {
            **self._facts, "process": number, "generation": time.time_ns(), "lifeline": self._known[host].lifeline,
        }  # fmt: skip
        threads = str(self._threads)
        environment = {
            VARIABLE: json.dumps(facts), settings.NUM_THREADS.name: threads, "OMP_NUM_THREADS": threads,
            "OPENBLAS_NUM_THREADS": threads, settings.TUNE.name: "0",  # kernels by rule: the same bits in every process
        }  # fmt: skip
        self.pids[number] = engine.start(Task(f"worker-{number}", ("-m", MODULE, *self._script), environment, host))
