"""A worker, seen from the process that compares."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import protocol

ROOT = Path(__file__).resolve().parents[2]  # the checkout: workers are modules of it
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}


class WorkerError(RuntimeError):
    """A worker ended, or did not answer in time. `missing` says that its framework is not installed."""

    def __init__(self, message: str, ended: bool = False, missing: bool = False) -> None:
        super().__init__(message)
        self.ended, self.missing = ended, missing


def _give_way(pid: int) -> None:
    """If memory runs out, the system is to end a worker and no other process of this machine."""
    with contextlib.suppress(OSError):  # not on this system, or it has ended already
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")


class Worker:
    """One framework running one model in a separate process; see `benchmarks.harness.protocol`.

    `folder` is the checkout whose modules it runs, this one unless another is given.
    """

    def __init__(
        self, name: str, command: Sequence[str], env: dict[str, str], threads: int, patience: float, folder: Path = ROOT
    ) -> None:  # fmt: skip
        self.name = name
        self.patience = patience
        self.seconds: list[float] = []
        self.peak = 0
        self._errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            list(command), cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            env={**os.environ, **QUIET, "OMP_NUM_THREADS": str(threads), protocol.THREADS: str(threads), **env},
        )  # fmt: skip
        _give_way(self.process.pid)
        # Lines are read by a thread, so that waiting for one can end.
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._pump, daemon=True).start()
        try:
            self.hello = self._read()
        except BaseException:
            self.close(grace=0.1)
            raise
        self.peak = self.hello["peak_bytes"]

    def _pump(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError):  # closed meanwhile
            for line in self.process.stdout:
                self._lines.put(line)
        self._lines.put(None)

    def _read(self) -> dict[str, Any]:
        while True:
            try:
                line = self._lines.get(timeout=self.patience)
            except queue.Empty:
                raise WorkerError(f"no answer within {self.patience:.0f} s") from None
            if line is None:
                raise self._ended()
            if line.startswith("{"):
                return json.loads(line)

    def _ended(self) -> WorkerError:
        self.process.wait(30)
        self._errors.seek(0)
        lines = [line for line in self._errors.read().splitlines() if line.strip()]
        last = lines[-1] if lines else "no message"
        missing = "ModuleNotFoundError" in last
        return WorkerError(f"ended with {self.process.returncode}: {last[:300]}", ended=True, missing=missing)

    def time(self, steps: int) -> float:
        """Run so many steps; returns the seconds they took together."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{steps}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        answer = self._read()
        self.seconds += answer["seconds"]
        self.peak = max(self.peak, answer["peak_bytes"])
        return sum(answer["seconds"])

    def close(self, grace: float = 5.0) -> None:
        """End the process; it has so many seconds to end by itself."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError, ValueError):
            self.process.stdin.write("\n")
            self.process.stdin.close()
        try:
            self.process.wait(grace)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(30)
        self.process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
