"""What the measurements share: interpreters, models, and steps timed in a worker."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.process import ROOT, Worker
from benchmarks.models.runners import PACKAGE, entries


@dataclass(frozen=True)
class Row:
    """One line of a table: what was measured, and a figure (already with its unit) per column."""

    what: str
    figures: dict[str, str]


@dataclass(frozen=True)
class Context:
    """`small` and `large` name models of `benchmarks.models`; `seconds` is spent on each timing."""

    interpreters: dict[str, str]
    small: tuple[str, ...] = ("mlp",)
    large: tuple[str, ...] = ("resnet50",)
    seconds: float = 5.0
    patience: float = 600.0

    @contextmanager
    def weights(self, model: str) -> Iterator[Path]:
        """A file with the model's initial weights."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "weights.npz"
            command = [sys.executable, "-m", f"{PACKAGE}.worker_weft", model, "export", str(path)]
            subprocess.run(command, check=True, cwd=ROOT)
            yield path

    def worker(
        self, runner: str, model: str, weights: Path, threads: int = 2, env: dict[str, str] | None = None
    ) -> Worker | None:
        """A started worker, or None where the framework is not given."""
        (entry,) = entries(model, [runner], self.interpreters, weights)
        if entry.command is None:
            return None
        return Worker(runner, entry.command, {**entry.env, **(env or {})}, threads, self.patience)

    def step_seconds(self, worker: Worker) -> float:
        """The median time of a step, from at least two."""
        worker.seconds.clear()
        worker.time(max(2, int(self.seconds / max(worker.hello["step_seconds"], 1e-6))))
        return statistics.median(worker.seconds)


def python(interpreter: str, code: str, timeout: float = 300, **options: Any) -> str:
    """What a short program prints."""
    done = subprocess.run(
        [interpreter, "-c", code], capture_output=True, text=True, timeout=timeout, cwd=ROOT, check=False, **options
    )
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
    return done.stdout
