"""Start a run and wait for its end.

This process, the command, writes down what the user asked for and starts a driver, which starts everything else; if the driver is
killed it starts another one. Everything ends with the command: it holds the other end of the lifeline.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from . import directories
from .driver import ASKED, RESULT, STATE, STATUS_NO_ENGINE, RunSpec
from .host import MARK, REAPED
from .processes import adopt_orphans, kill_all, start_time, with_variable
from .scale import set_wanted
from .status import PREFIX, SPEC
from .supervisor import WORKER, Stop, role
from .terminal import Terminal, of_run

MAX_RESTARTS = 3  # in a row, each soon after the one before
SOON_SECONDS = 600.0
MAX_DRIVERS = 100
MAX_LOST_DRIVERS = 3  # that ended without a reason, as Ray ends a process that has lost its control service
POLL_SECONDS = 0.05
RECONNECT_SECONDS = 120.0  # how long to wait for a cluster that was lost
RETRY_SECONDS = 3.0


def this_program(reason: str, instead: str) -> list[str]:
    """How to run this program again: a path, or `-m` and a module, and its arguments.

    Args:
        reason: who runs it again, for the error.
        instead: what to do where there is no script.

    Raises:
        RuntimeError: there is no script.
    """
    main: Any = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        return ["-m", spec.name.removesuffix(".__main__"), *sys.argv[1:]]
    path = getattr(main, "__file__", None)
    if path is None:
        raise RuntimeError(f"{reason}, and there is no script here (a notebook, or an interactive session). {instead}")
    return [path, *sys.argv[1:]]


class Run:
    """One run.

    Args:
        arguments: the script and its arguments, or ``["-m", module, …]``.
        workers: how many workers, or (least, most).
        shards: into how many logical shards a global batch is cut.
        threads: of each worker; by default the processors are divided among them.
        hosts: how many hosts.
        say: prints what happens.
        results, fit: see `Context`.
        engine: "local", or "ray".
        address: of a Ray cluster that runs already.
        events: a file for the events of the run; by default it is beside the checkpoints.
        trace: a file for spans of all tasks, and the first and last step to record.
        check_every: after how many steps workers check each other; 0 for never.
        memory: "full" or "lean", see `Context`.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        workers: int | tuple[int, int],
        shards: int = 8,
        threads: int | None = None,
        hosts: int = 1,
        say: Callable[[str], None] | None = None,
        results: str | None = None,
        fit: int = 0,
        engine: str = "local",
        address: str | None = None,
        events: str | None = None,
        trace: tuple[str, tuple[int, int]] | None = None,
        check_every: int = 0,
        memory: str = "full",
    ) -> None:
        least, most = workers if isinstance(workers, tuple) else (workers, workers)
        self.directory = directories.make(PREFIX)
        self.spec = RunSpec(
            list(arguments), least, most, hosts, shards, threads or max(1, len(os.sched_getaffinity(0)) // most),
            secrets.randbits(31), secrets.token_hex(32), results, fit, engine, address,
            os.getcwd() if address is not None else None, (os.getpid(), start_time(os.getpid()) or 0),
            None if events is None else os.path.abspath(events),
            trace=None if trace is None else os.path.abspath(trace[0]), trace_steps=None if trace is None else trace[1],
            check_every=check_every,
            memory=memory,
        )  # fmt: skip
        self._read, self._write = os.pipe()
        self.say = say or (lambda text: print(f"weft: {text}", file=sys.stderr, flush=True))
        self.driver: subprocess.Popen[bytes] | None = None
        self._terminal: Terminal | None = None  # draws a table while the run lasts
        self._orphans: set[int] = set()
        self._asked = False
        self._unreachable_since: float | None = None

    def run(self) -> int:
        """Wait until the run is over; returns its exit status."""
        adopt_orphans()
        handlers = {signal.SIGINT: self._forward, signal.SIGTERM: self._forward}
        handlers.update(dict.fromkeys((signal.SIGUSR1, signal.SIGUSR2), self._scale))
        previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        say, restarts = self.say, 0
        try:
            self._terminal = of_run(self.directory)
            if self._terminal is not None:
                self._terminal.start()
                self.say = self._terminal.say
            while True:
                began = time.monotonic()
                ended = self._drive()
                restarts = restarts + 1 if time.monotonic() - began < SOON_SECONDS else 1
                if not ended.restart or restarts >= MAX_RESTARTS:
                    break
                self.say(f"{ended.reason}; the run starts again from its last checkpoint")
                self._end_tasks()
                shutil.rmtree(self.directory, ignore_errors=True)  # what the old run agreed on
                os.mkdir(self.directory, 0o700)
            if ended.reason:
                self.say(ended.reason)
            return ended.status
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            self.close()
            if self._terminal is not None:
                self._terminal.stop()
                self.say = say

    def _forward(self, number: int, _: object) -> None:
        """Tell the driver to end the run; one that has just been started, or is yet to be, reads the file."""
        self._asked = True
        with open(os.path.join(self.directory, ASKED), "w") as file:
            file.write(str(int(number)))
        if self.driver is not None:
            self.driver.send_signal(number)

    def _scale(self, number: int, _: object) -> None:
        """SIGUSR1 asks for one worker more, SIGUSR2 for one fewer."""
        with contextlib.suppress(OSError, ValueError), open(os.path.join(self.directory, STATE)) as file:
            names = json.load(file)["supervisor"]["workers"]
            count = sum(role(name) == WORKER for name in names) + (1 if number == signal.SIGUSR1 else -1)
            set_wanted(self.directory, max(count, 1))

    def _drive(self) -> Stop:
        """Keep a driver running until one of them says that the run is over."""
        os.makedirs(os.path.join(self.directory, REAPED), exist_ok=True)
        with open(os.path.join(self.directory, SPEC), "w") as file:
            json.dump(dataclasses.asdict(self.spec), file)
        lost = 0
        for _ in range(MAX_DRIVERS):
            self.driver = subprocess.Popen(
                [sys.executable, "-m", "weft.distributed.driver", self.directory, str(self._read)],
                pass_fds=(self._read,),
                process_group=0,  # Ctrl-C comes through this process
                **(self._terminal.streams() if self._terminal is not None else {}),
            )
            while (status := self._wait_for_driver()) is None:
                self._reap_orphans()
            result = os.path.join(self.directory, RESULT)
            if status >= 0 and os.path.exists(result):  # if it was killed then, the next one ends the tasks
                with open(result) as file:
                    stop = Stop(**json.load(file))
                if status == STATUS_NO_ENGINE and self._engine_may_return(stop.reason):
                    os.unlink(result)
                    continue
                return stop
            self._unreachable_since = None
            lost += status >= 0
            if lost >= MAX_LOST_DRIVERS:
                return Stop(status or 1)
            how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            self.say(f"the driver {how} and is started again")
            self._orphans |= set(with_variable(MARK, f"{self.directory}"))
        return Stop(1, "the driver was killed too often")

    def _engine_may_return(self, reason: str) -> bool:
        """Whether to try again to reach the cluster: it was there before. Waits a moment."""
        if not os.path.exists(os.path.join(self.directory, STATE)) and self._unreachable_since is None:
            return False
        now = time.monotonic()
        if self._unreachable_since is None:
            self._unreachable_since = now
            self.say(f"{reason} Waiting {RECONNECT_SECONDS:.0f} seconds for it to come back.")
        time.sleep(min(RETRY_SECONDS, max(0.0, self._unreachable_since + RECONNECT_SECONDS - now)))
        return now - self._unreachable_since < RECONNECT_SECONDS and not self._asked

    def _wait_for_driver(self) -> int | None:
        assert self.driver is not None
        try:
            return self.driver.wait(POLL_SECONDS if self._orphans else 1.0)
        except subprocess.TimeoutExpired:
            return None

    def _reap_orphans(self) -> None:
        """Tell the driver how the tasks of its predecessor ended: they are children of this process now."""
        for pid in list(self._orphans):
            with contextlib.suppress(ChildProcessError):  # it has not been given to this process yet
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    self._orphans.discard(pid)
                    path = os.path.join(self.directory, REAPED, str(pid))
                    with open(f"{path}.new", "w") as file:
                        file.write(str(os.waitstatus_to_exitcode(status)))
                    os.replace(f"{path}.new", path)

    def _end_tasks(self) -> None:
        kill_all(with_variable(MARK, self.directory))
        end = time.monotonic() + 5.0
        while self._orphans and time.monotonic() < end:
            self._reap_orphans()
            self._orphans = {pid for pid in self._orphans if os.path.exists(f"/proc/{pid}")}

    def close(self) -> None:
        """End every process of the run and remove its directory."""
        if self.driver is not None and self.driver.poll() is None:
            self.driver.kill()
            self.driver.wait(10)
        for descriptor in (self._read, self._write):
            os.close(descriptor)
        self._end_tasks()
        shutil.rmtree(self.directory, ignore_errors=True)
