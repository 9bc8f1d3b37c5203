"""A training step beside two processes that keep both processors busy: a fair share is half the speed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.harness.report import milliseconds

from .context import Context, Row

TITLE = "A training step beside two busy processes"


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that compute for ever."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def measure(context: Context) -> list[Row]:
    """Milliseconds of a step alone and beside them."""
    rows = []
    for model in (*context.small, *context.large):
        image = model in context.large
        with context.weights(model) as weights:
            for runner in ("weft", "torch-cl" if image else "torch"):
                worker = context.worker(runner, model, weights)
                if worker is None:
                    continue
                with worker:
                    alone = context.step_seconds(worker)
                    with busy(2):
                        crowded = context.step_seconds(worker)
                cells = {
                    "alone": f"{milliseconds(alone)} ms",
                    "beside two": f"{milliseconds(crowded)} ms",
                    "times as long": f"{crowded / alone:.2f}",
                }
                rows.append(Row(f"{model}, {runner}", cells))
    return rows
