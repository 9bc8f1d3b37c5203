"""What the machine can do at most, and how much of it each model's step reaches.

The peaks are measured: a large matmul for arithmetic, a sum of two arrays far larger than the caches for memory. A step
cannot be shorter than the larger of its operations over the first and its bytes over the second, but for two things: the
bytes are what its kernels read and write, each counted once per kernel, also where a cache has them; and a convolution
counts with the multiplications of its definition, of which Winograd's form does fewer.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from .context import Context, Row, python

TITLE = "Distance from the roofline"


def peaks() -> tuple[float, float]:
    """Floating-point operations and bytes per second of this machine, on two threads."""
    import weft as wf

    wf.set_num_threads(2)
    n = 2048
    a, b = wf.randn(n, n), wf.randn(n, n)
    matmul = wf.function(lambda x, y: x @ y)
    flops = 2 * n**3 / _best(lambda: matmul(a, b), 8)
    size = 32 << 20  # 128 MiB each
    x, y = wf.randn(size), wf.randn(size)
    return flops, 12 * size / _best(lambda: x + y, 8)


def _best(run: Any, times: int) -> float:
    run()
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


# The work of a model's step, counted in a separate process, which gives the memory back.
WORK = """
import json
import weft as wf
from benchmarks.models.configurations import batch
from benchmarks.models.worker_weft import build, training_step
from weft.compiler.explain import flops, traffic
step = wf.function(training_step({model!r}, build({model!r})))
data = [wf.tensor(d) for d in batch({model!r})]
step(*data)
compiled = step._latest().compiled
program = compiled.program
print(json.dumps([sum(flops(n) for n in compiled.flow.nodes), sum(traffic(s) for s in program.steps)]))
"""


def work(model: str) -> tuple[int, int]:
    """Operations and bytes of a training step."""
    flops, moved = json.loads(python(sys.executable, WORK.format(model=model)).splitlines()[-1])
    return flops, moved


def measure(context: Context, results: dict[str, Any] | None = None) -> list[Row]:
    """Peaks, and the models whose step time is in `results` (the section "training" of a document)."""
    flops, bandwidth = peaks()
    rows = [Row("peak", {"arithmetic": f"{flops / 1e9:.0f} GFLOP/s", "memory": f"{bandwidth / 1e9:.1f} GB/s"})]
    for model, result in (results or {}).items():
        if "weft" not in result["rows"]:
            continue
        seconds = result["rows"]["weft"]["median"]
        operations, moved = work(model)
        least = max(operations / flops, moved / bandwidth)
        cells = {
            "arithmetic": f"{operations / seconds / 1e9:.0f} GFLOP/s, {operations / seconds / flops:.0%}",
            "memory": f"{moved / seconds / 1e9:.1f} GB/s, {moved / seconds / bandwidth:.0%}",
            "of the roofline": f"{least / seconds:.0%}",
            "limited by": "arithmetic" if operations / flops > moved / bandwidth else "memory",
        }
        rows.append(Row(model, cells))
    return rows
