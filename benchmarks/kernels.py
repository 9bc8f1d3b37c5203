"""Generated kernels beside NumPy and torch: elementwise, reductions, softmax, normalisation, random numbers.

    python benchmarks/kernels.py [--torch PYTHON] [--rounds N] [--threads N] [--only NAME ...]

`--torch` names a Python interpreter that has torch (default: this one; without torch its column is empty). Each library
runs in a separate process that stays alive; the processes take turns case by case (A B C, A B C, …), so that noise
from other programs hits all alike. A figure is the median over rounds of the best of a few runs; `spread` is the range
of Weft's rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# name -> (what it is, goal as a multiple of torch's time)
CASES: dict[str, tuple[str, float | None]] = {
    "gelu": ("GELU (erf), 16M float32, output reused", 0.25),
    "add": ("x + y, 16M float32", None),
    "softmax": ("softmax (4096, 1024) over the last axis", 0.7),
    "softmax0": ("softmax (4096, 1024) over the first axis", None),
    "softmax_grad": ("gradient of softmax (4096, 1024)", None),
    "layer_norm": ("layer norm (8192, 768), forward and backward", 0.7),
    "sum0": ("sum over axis 0 of (4096, 4096)", 1.0),
    "sum1": ("sum over axis 1 of (4096, 4096)", 1.0),
    "sum": ("sum of (4096, 4096)", None),
    "argmax1": ("argmax over axis 1 of (4096, 4096)", None),
    "batch_stats": ("mean and variance of (16*56*56, 256) by column", None),
    "normal": ("16M normal random numbers, float32", None),
}


def numpy_cases() -> dict[str, Callable[[], Any]]:
    import numpy as np

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(1 << 24, np.float32) for _ in range(2))
    out = np.empty_like(a)
    x = rng.standard_normal((4096, 1024), np.float32)
    square = rng.standard_normal((4096, 4096), np.float32)
    h, g = (rng.standard_normal((8192, 768), np.float32) for _ in range(2))
    w = rng.standard_normal(768, np.float32)
    pixels = rng.standard_normal((16 * 56 * 56, 256), np.float32)

    def softmax(v: Any, axis: int) -> Any:
        e = np.exp(v - v.max(axis, keepdims=True))
        return e / e.sum(axis, keepdims=True)

    def layer_norm() -> Any:
        mean = h.mean(1, keepdims=True)
        rstd = 1 / np.sqrt(h.var(1, keepdims=True) + np.float32(1e-5))
        n = (h - mean) * rstd
        y = n * w + w
        q = g * w
        dx = rstd * (q - q.mean(1, keepdims=True) - n * (q * n).mean(1, keepdims=True))
        return y, dx, (g * n).sum(0), g.sum(0)

    return {
        "add": lambda: np.add(a, b, out=out),
        "softmax": lambda: softmax(x, 1),
        "softmax0": lambda: softmax(x, 0),
        "softmax_grad": lambda: x * (x - (x * x).sum(1, keepdims=True)),
        "layer_norm": layer_norm,
        "sum0": lambda: square.sum(0),
        "sum1": lambda: square.sum(1),
        "sum": lambda: square.sum(),
        "argmax1": lambda: square.argmax(1),
        "batch_stats": lambda: (pixels.mean(0), pixels.var(0)),
        "normal": lambda: rng.standard_normal(1 << 24, np.float32, out=out),
    }


def weft_cases() -> dict[str, Callable[[], Any]]:
    import numpy as np

    from weft.backends.llvm import eager
    from weft.ops.core import scalar as s
    from weft.runtime import memory

    rng = np.random.default_rng(0)

    def sample(*shape: int) -> Any:
        array = memory.empty(shape, np.float32)
        array[...] = rng.standard_normal(shape, np.float32)
        return array

    def gelu(v: Any) -> Any:
        return 0.5 * v * (1 + s.erf(v * 0.7071067811865476))

    a, b, out = sample(1 << 24), sample(1 << 24), memory.empty((1 << 24,), np.float32)
    x, square, pixels = sample(4096, 1024), sample(4096, 4096), sample(16 * 56 * 56, 256)
    h, g, w = sample(8192, 768), sample(8192, 768), sample(768)

    def layer_norm() -> Any:
        y, mean, rstd = eager.layer_norm(h, w, w, 1, 1e-5)
        return y, eager.layer_norm_backward(g, h, w, mean, rstd, 1, True)

    return {
        "gelu": lambda: eager.elementwise("gelu", gelu, (a,), a.shape, out),
        "add": lambda: eager.elementwise("add", s.add, (a, b), a.shape, out),
        "softmax": lambda: eager.softmax(x, 1),
        "softmax0": lambda: eager.softmax(x, 0),
        "softmax_grad": lambda: eager.softmax_backward(x, x, 1),
        "layer_norm": layer_norm,
        "sum0": lambda: eager.reduce("sum", square, (0,)),
        "sum1": lambda: eager.reduce("sum", square, (1,)),
        "sum": lambda: eager.reduce("sum", square, (0, 1)),
        "argmax1": lambda: eager.reduce("argmax", square, (1,)),
        "batch_stats": lambda: eager.batch_statistics(pixels),
        "normal": lambda: eager.random_normal((1 << 24,), np.dtype(np.float32), 1, 0, out=out),
    }


def torch_cases() -> dict[str, Callable[[], Any]]:
    import torch
    from torch.nn import functional as F

    a, b, out = torch.randn(1 << 24), torch.randn(1 << 24), torch.empty(1 << 24)
    x, square, pixels = torch.randn(4096, 1024), torch.randn(4096, 4096), torch.randn(16 * 56 * 56, 256)
    h, g = torch.randn(8192, 768, requires_grad=True), torch.randn(8192, 768)
    w, c = torch.randn(768, requires_grad=True), torch.randn(768, requires_grad=True)

    def layer_norm() -> Any:
        y = F.layer_norm(h, (768,), w, c)
        return y, torch.autograd.grad(y, (h, w, c), g)

    return {
        "gelu": lambda: F.gelu(a),
        "add": lambda: torch.add(a, b, out=out),
        "softmax": lambda: torch.softmax(x, 1),
        "softmax0": lambda: torch.softmax(x, 0),
        "softmax_grad": lambda: torch._softmax_backward_data(x, x, 1, torch.float32),
        "layer_norm": layer_norm,
        "sum0": lambda: square.sum(0),
        "sum1": lambda: square.sum(1),
        "sum": lambda: square.sum(),
        "argmax1": lambda: square.argmax(1),
        "batch_stats": lambda: torch.var_mean(pixels, 0, correction=0),
        "normal": lambda: out.normal_(),
    }


def worker(library: str) -> None:
    """Answer each case name on standard input with the best of a few runs, in seconds."""
    cases = {"numpy": numpy_cases, "weft": weft_cases, "torch": torch_cases}[library]()
    if library == "torch":
        import torch

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    print("ready", flush=True)
    for line in sys.stdin:
        case = cases.get(line.strip())
        if case is None:
            print("null", flush=True)
            continue
        case()
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            case()
            best = min(best, time.perf_counter() - start)
        print(json.dumps(best), flush=True)


class Library:
    """A library in its own process."""

    def __init__(self, name: str, python: str, threads: int) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [python, __file__, "--worker", name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
        )  # fmt: skip
        self.available = self._read() == "ready"

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def time(self, case: str) -> float | None:
        if not self.available:
            return None
        assert self.process.stdin is not None
        self.process.stdin.write(case + "\n")
        self.process.stdin.flush()
        answer: float | None = json.loads(self._read() or "null")
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


PAUSE = 0.1  # until the OpenMP threads of the process before have stopped spinning


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=list(CASES))
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return
    pythons = {"weft": sys.executable, "torch": options.torch, "numpy": sys.executable}
    libraries = {name: Library(name, python, options.threads) for name, python in pythons.items()}
    print(
        f"{platform.processor() or platform.machine()}, {options.threads} threads, {options.rounds} rounds; milliseconds"
    )
    print(f"{'':48} {'weft':>8} {'spread':>13} {'torch':>8} {'numpy':>8} {'/torch':>7} {'goal':>5}")
    for case in options.only:
        times: dict[str, list[float]] = {name: [] for name in libraries}
        for _ in range(options.rounds):
            for name, library in libraries.items():
                time.sleep(PAUSE)
                taken = library.time(case)
                if taken is not None:
                    times[name].append(1e3 * taken)
        mid = {name: statistics.median(values) if values else float("nan") for name, values in times.items()}
        text, goal = CASES[case]
        ours = times["weft"] or [float("nan")]
        print(
            f"{text:48} {mid['weft']:8.2f} {min(ours):6.2f}-{max(ours):6.2f} {mid['torch']:8.2f} {mid['numpy']:8.2f} "
            f"{mid['weft'] / mid['torch']:7.2f} {'' if goal is None else goal:>5}",
            flush=True,
        )
    for library in libraries.values():
        library.close()


if __name__ == "__main__":
    main()
