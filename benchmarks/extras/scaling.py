"""One thread against two: how much the second one brings."""

from __future__ import annotations

from benchmarks.harness.report import milliseconds

from .context import Context, Row

TITLE = "A training step on one and on two threads"


def measure(context: Context) -> list[Row]:
    """Milliseconds of a step; each runner alone, first with one thread, then with two."""
    rows = []
    for model in (*context.small, *context.large):
        image = model in context.large
        with context.weights(model) as weights:
            for runner in ("weft", "torch-cl" if image else "torch"):
                seconds = []
                for threads in (1, 2):
                    worker = context.worker(runner, model, weights, threads)
                    if worker is None:
                        break
                    with worker:
                        seconds.append(context.step_seconds(worker))
                if len(seconds) == 2:
                    one, two = seconds
                    cells = {"1 thread": f"{milliseconds(one)} ms", "2 threads": f"{milliseconds(two)} ms"}
                    cells["speed-up"] = f"{one / two:.2f}×"
                    rows.append(Row(f"{model}, {runner}", cells))
    return rows
