"""Where the time of Weft's captured step goes: `python -m benchmarks.models.kernel_times resnet50,mlp [--folder OUT]`.

Every kernel of the step with its share of the time, what it computes per second and what it moves, summed over kernels
of one label; then the single kernels that take longest. Figures are the least of the steps that were profiled: the one
that other processes disturbed least.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from pathlib import Path
from typing import Any

import weft as wf
from weft.compiler.explain import flops, lines_of, traffic

from .configurations import CONFIGURATIONS, batches
from .worker_weft import build, training_step


def spans_by_position(spans: list[dict[str, Any]], steps: int) -> list[float]:
    """Seconds of each program step, the least over the repetitions."""
    count = len(spans) // steps
    return [min(s["dur"] for s in spans[i::count]) / 1e6 for i in range(count)]


def report(name: str, steps: int, top: int) -> str:
    """The profile of one model as text."""
    step = wf.function(training_step(name, build(name)))
    data = itertools.cycle([[wf.tensor(d) for d in b] for b in batches(name)])
    for _ in range(3):
        step(*next(data)).item()
    plain = []
    for _ in range(steps):
        start = time.perf_counter()
        step(*next(data)).item()
        plain.append(time.perf_counter() - start)
    trace = wf.profile()
    with trace:
        for _ in range(steps):
            step(*next(data))
    program = step._latest().compiled.program
    seconds = spans_by_position([s for s in trace.spans if s["cat"] != "op"], steps)
    total = sum(seconds)
    rows: dict[str, list[float]] = {}
    single = []
    for st, took in zip(program.steps, seconds, strict=True):
        work, moved = sum(flops(n) for n in st.nodes), traffic(st)
        row = rows.setdefault(f"{st.kind}: {st.label}", [0.0, 0, 0, 0])
        for i, x in enumerate((took, 1, work, moved)):
            row[i] += x
        made = next((f"{v.dtype.name}{list(v.shape)}" for v in st.nodes[-1].outputs[:1]), "")
        single.append((took, st, work, moved, made))
    single.sort(key=lambda r: -r[0])
    c = CONFIGURATIONS[name]
    lines = [
        f"{name}: batch {c.batch}; step {statistics.median(plain) * 1e3:.2f} ms (best {min(plain) * 1e3:.2f}), "
        f"{total * 1e3:.2f} ms in {len(seconds)} kernels, {sum(r[2] for r in rows.values()) / 1e9:.2f} GFLOP, "
        f"{sum(r[3] for r in rows.values()) / 2**20:.0f} MiB moved",
        "", f"by label ({len(rows)} labels):", "        ms  share  count   GFLOP/s    GB/s  kernel",
    ]  # fmt: skip
    for label, (took, n, work, moved) in sorted(rows.items(), key=lambda kv: -kv[1][0])[:top]:
        lines.append(
            f"{took * 1e3:10.3f} {took / total:6.1%} {int(n):6d} {work / took / 1e9:9.1f} {moved / took / 1e9:7.1f}  "
            f"{label[:150]}"
        )
    lines += ["", "single kernels:", "        ms  share  GFLOP/s    GB/s  kernel"]
    for took, st, work, moved, made in single[: 2 * top]:
        where = ", ".join(lines_of(st.nodes)[:3])
        lines.append(
            f"{took * 1e3:10.3f} {took / total:6.1%} {work / took / 1e9:8.1f} {moved / took / 1e9:7.1f}  "
            f"{st.kind}: {st.label[:90]} -> {made}  [{where}]"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", help="names, with commas")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--top", type=int, default=12)
    parser.add_argument("--folder", type=Path, help="write MODEL.txt there too")
    args = parser.parse_args()
    wf.set_num_threads(2)
    for name in args.models.split(","):
        text = report(name, args.steps, args.top)
        print(text, flush=True)
        if args.folder:
            args.folder.mkdir(parents=True, exist_ok=True)
            (args.folder / f"{name}.txt").write_text(text)


if __name__ == "__main__":
    main()
