"""Runs in processes of their own, for tests that kill parts of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAMS = str(Path(__file__).with_name("programs.py"))
SECONDS = 90.0
"""for one run on a busy machine; a test's time-out must be longer than all its runs together"""
TIMEOUT = 3.5 * SECONDS
"""of a test, by a signal: the test's own cleaning up still runs. pytest's thread would end the whole process"""
LAUNCH = """
import dataclasses, json, sys
from weft.distributed.launch import Run
given = json.loads(sys.argv[1])
workers = given.pop("workers")
run = Run(sys.argv[2:], workers if isinstance(workers, int) else tuple(workers), threads=1, **given)
run.spec = dataclasses.replace(run.spec, seed=5)
print("PIDFILE", run.directory, flush=True)
sys.exit(run.run())
"""


class Launched:
    """A run in a process of its own, as `weft run` would have it."""

    def __init__(
        self,
        workers: int | tuple[int, int],
        *words: str,
        shards: int = 4,
        environment: dict[str, str] | None = None,
        cwd: str | None = None,
        script: str = PROGRAMS,
        **given: Any,
    ) -> None:
        options = json.dumps({"workers": workers, "shards": shards, **given})
        program = [sys.executable, "-c", LAUNCH, options, script, *words]
        env = {**os.environ, **(environment or {})}
        self.process = subprocess.Popen(
            program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True, cwd=cwd
        )
        assert self.process.stdout is not None
        self.directory = self.process.stdout.readline().split()[1]

    def wait(self, seconds: float = SECONDS) -> tuple[int, str, str]:
        """(status, output, errors); everything the run started is gone."""
        try:
            out, err = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            state = "\n".join(f"{pid} {command}" for pid, command in in_session(self.process.pid))
            os.killpg(self.process.pid, signal.SIGKILL)  # the command; everything else ends with it
            out, err = self.process.communicate(timeout=SECONDS)
            raise AssertionError(f"the run hangs\n{out}\n{err}\n{state}") from None
        assert not in_session(self.process.pid), "processes of the run are left behind"
        assert not os.path.exists(self.directory), "the directory of the run is left behind"
        return self.process.returncode, out, err

    def _named(self, word: str) -> list[int]:
        return [pid for pid, command in in_session(self.process.pid) if word in command]

    def workers(self) -> list[int]:
        """The process numbers of the workers."""
        return self._named("weft.distributed.task")

    def keeper(self) -> list[int]:
        return self._named("keeper.py")

    def driver(self) -> list[int]:
        return self._named("weft.distributed.driver")

    def relays(self) -> list[int]:
        return self._named("weft.distributed.relay")


def in_session(leader: int) -> list[tuple[int, str]]:
    """(pid, command) of the processes of a session that run."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                command = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == leader and fields[0] != "Z":
                found.append((int(entry), command))
    return found


def result(workers: int, *words: str, **given: Any) -> str:
    """The line that a run prints at its end."""
    return check(*Launched(workers, *words, **given).wait())


def check(status: int, out: str, err: str) -> str:
    """The line that a run printed at its end, which was a good one."""
    lines = [line for line in out.splitlines() if line.startswith("RESULT")]
    assert status == 0 and len(lines) == 1, f"status {status}\n{out}\n{err}"
    return lines[0]


def send(pids: list[int], number: int) -> None:
    """Send a signal to processes, some of which may have ended."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def disturb(run: Launched, act: Callable[[Launched, int], None], times: int = 6) -> threading.Thread:
    """Do something to a run every now and then while it lasts."""

    def work() -> None:
        number = 0
        while run.process.poll() is None and number < times:
            time.sleep(0.5)
            if len(run.workers()) >= 2:
                act(run, number)
                number += 1

    thread = threading.Thread(target=work)
    thread.start()
    return thread
