"""Groups: the processes of one framework that take steps together, and the process that times groups in turns.

Orders are files, so that no framework's own means are needed to pass them on: `order.json` says how many steps there should be in
total, every process takes those that are missing, and rank 0 writes what each took to `answer-N.json`. Between orders the
processes sleep, so a group disturbs the others as little as possible.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "WEFT_NUM_THREADS"), "1")
POLL_SECONDS = 0.002
PATIENCE_SECONDS = 300.0


class GroupError(RuntimeError):
    """A group ended, or did not answer in time; the message has the last line that it printed."""


class Group:
    """A framework's processes, seen from the process that compares.

    Args:
        name: for tables.
        command: starts them; their program calls `follow`.
        env: additions to the environment.
    """

    def __init__(self, name: str, command: Sequence[str], env: dict[str, str] | None = None) -> None:
        self.name = name
        self._folder = tempfile.TemporaryDirectory(prefix="steps-")
        self.folder = Path(self._folder.name)
        self._errors = open(self.folder / "errors", "w+")
        self.steps = self._orders = 0
        self.seconds: list[float] = []
        self.process = subprocess.Popen(
            list(command), cwd=ROOT, env={**os.environ, **THREADS, **(env or {}), "GROUP_FOLDER": str(self.folder)},
            stdin=subprocess.DEVNULL, stdout=self._errors, stderr=self._errors, start_new_session=True,
        )  # fmt: skip

    def time(self, steps: int) -> list[float]:
        """Take so many steps; returns the seconds of each, on rank 0."""
        answer = self.order(steps)
        found: list[float] = answer["seconds"]
        self.seconds += found
        return found

    def order(self, steps: int) -> dict[str, Any]:
        """Take so many steps; returns what rank 0 has to say."""
        self.steps += steps
        self._orders += 1
        _write(self.folder / "order.json", {"steps": self.steps, "number": self._orders})
        path = self.folder / f"answer-{self._orders}.json"
        end = time.monotonic() + PATIENCE_SECONDS
        while not path.exists():
            if self.process.poll() is not None or time.monotonic() > end:
                raise GroupError(f"{self.name}: {self._last_words()}")
            time.sleep(POLL_SECONDS)
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def _last_words(self) -> str:
        self._errors.flush()
        lines = [line for line in (self.folder / "errors").read_text(errors="replace").splitlines() if line.strip()]
        how = "does not answer" if self.process.poll() is None else f"ended with status {self.process.returncode}"
        return f"{how}: {lines[-1] if lines else 'no message'}"

    def close(self) -> None:
        """End the processes."""
        _write(self.folder / "order.json", {"steps": -1, "number": 0})
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(20)
        self._errors.close()
        self._folder.cleanup()


def follow(step: Callable[[], Any], lead: Callable[[], bool], tell: Callable[[], dict[str, Any]] = dict) -> None:
    """Called by every process of a group: take the steps that are ordered, until there are no more.

    Args:
        step: takes one, together with the other processes.
        lead: whether this process answers.
        tell: more for the answer.
    """
    folder = Path(os.environ["GROUP_FOLDER"])
    done = answered = 0
    while True:
        order = _read(folder / "order.json")
        if order is None or order["number"] == answered:
            time.sleep(POLL_SECONDS)
            continue
        if order["steps"] < 0:
            return
        seconds = []
        while done < order["steps"]:
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
            done += 1
        answered = order["number"]
        if lead():
            _write(folder / f"answer-{answered}.json", {"seconds": seconds, **tell()})


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    except FileNotFoundError:
        return None


def _write(path: Path, value: dict[str, Any]) -> None:
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(value))
    os.replace(temporary, path)
