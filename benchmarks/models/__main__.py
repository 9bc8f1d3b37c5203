"""Compare training throughput: see `python -m benchmarks.models --help`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from .configurations import CONFIGURATIONS

HERE = Path(__file__).parent
KEPT = (
    "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184:glibc.malloc.top_pad=268435456"
)
# runner -> (worker file, mode, which interpreter, environment)
RUNNERS: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "weft": ("worker_weft.py", "captured", "weft", {}),
    "weft-eager": ("worker_weft.py", "eager", "weft", {}),
    "torch": ("worker_torch.py", "eager", "torch", {}),
    "torch-cl": ("worker_torch.py", "channels_last", "torch", {}),
    "torch-compile": ("worker_torch.py", "compile", "torch", {}),
    "torch-kept": ("worker_torch.py", "channels_last", "torch", {"GLIBC_TUNABLES": KEPT}),
    "torch-compile-kept": ("worker_torch.py", "compile", "torch", {"GLIBC_TUNABLES": KEPT}),
    "jax": ("worker_jax.py", "jit", "jax", {}),
}


class Worker:
    """One framework training one model in a process of its own."""

    def __init__(self, runner: str, model: str, pythons: dict[str, str]) -> None:
        file, mode, which, extra = RUNNERS[runner]
        env = {**os.environ, "OMP_NUM_THREADS": "2", **extra}
        self.runner = runner
        self.process = subprocess.Popen(
            [pythons[which], str(HERE / file), model, mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env=env,
        )  # fmt: skip
        self.seconds: list[float] = []
        self.peak = 0
        self.hello = self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        assert self.process.stderr is not None
        raise RuntimeError(f"{self.runner}: {self.process.stderr.read()[-800:]}")

    def time(self, steps: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        answer = self._read()
        self.seconds += answer["seconds"]
        self.peak = answer["peak_bytes"]

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.close()
        self.process.wait(30)


def compare(model: str, runners: list[str], pythons: dict[str, str], rounds: int, budget: float) -> dict[str, Any]:
    """Run every runner in turns; returns medians, spreads and first losses."""
    workers = []
    for runner in runners:
        try:
            workers.append(Worker(runner, model, pythons))
        except RuntimeError as error:
            print(f"  {runner}: skipped ({str(error).strip().splitlines()[-1][:120]})", flush=True)
    steps = {}
    for w in workers:
        w.time(1)
        steps[w.runner] = max(1, min(2000, int(budget / max(w.seconds[-1], 1e-6))))
        w.seconds.clear()
    load = os.getloadavg()[0]
    for _ in range(rounds):
        for w in workers:
            w.time(steps[w.runner])
            time.sleep(0.2)
    c = CONFIGURATIONS[model]
    rows = {}
    for w in workers:
        median = statistics.median(w.seconds)
        rows[w.runner] = {
            "median_seconds": median, "best_seconds": min(w.seconds), "per_second": c.items / median, "unit": c.unit,
            "steps": len(w.seconds), "first_seconds": w.hello["first_seconds"], "losses": w.hello["losses"],
            "peak_bytes": w.peak, "what": w.hello["ready"],
        }  # fmt: skip
        w.close()
    return {"model": model, "load_before": load, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="tiny_mlp,mlp")
    parser.add_argument("--runners", default="weft,torch-cl,torch-compile,jax")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget", type=float, default=2.0, help="seconds per runner and round")
    parser.add_argument("--torch", default="python3", help="an interpreter that has torch")
    parser.add_argument("--jax", default="python3", help="an interpreter that has jax")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    pythons = {"weft": sys.executable, "torch": args.torch, "jax": args.jax}
    results = []
    for model in args.models.split(","):
        print(f"{model}: {CONFIGURATIONS[model].kind}, batch {CONFIGURATIONS[model].batch}", flush=True)
        result = compare(model, args.runners.split(","), pythons, args.rounds, args.budget)
        results.append(result)
        rows = result["rows"]
        weft = rows.get("weft", {}).get("median_seconds")
        for name, r in sorted(rows.items(), key=lambda kv: kv[1]["median_seconds"]):
            ratio = f"{r['median_seconds'] / weft:6.2f}×" if weft else ""
            print(
                f"  {name:20s} {r['per_second']:12.1f} {r['unit']}/s  median {r['median_seconds'] * 1e3:10.3f} ms  "
                f"best {r['best_seconds'] * 1e3:10.3f}  first {r['first_seconds']:6.2f} s  {r['peak_bytes'] / 2**20:7.0f} MiB  "
                f"{ratio} of weft's time  loss {r['losses'][0]:.4f} {r['losses'][-1]:.4f}",
                flush=True,
            )
        if result["load_before"] > 1.0:
            print(f"  note: the machine was busy (load {result['load_before']:.1f}); do not trust these figures")
    if args.json:
        machine = {"platform": platform.platform(), "python": platform.python_version(), "cpus": os.cpu_count()}
        args.json.write_text(json.dumps({"machine": machine, "results": results}, indent=1))


if __name__ == "__main__":
    main()
