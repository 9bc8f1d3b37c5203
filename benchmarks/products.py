"""Large matrix products: Weft's kernels beside oneDNN's.

    python benchmarks/products.py [--seconds N]

Shapes are those of the perceptron, GNMT, GPT, NCF (tall, and its weight gradients) and of 1 x 1 convolutions. Both ways are
compiled as separate captured functions and run in turn, on several operands one after the other, because in a model
other layers run in between; figures are GFLOP/s of the best run and of the median.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import statistics
import time
from collections.abc import Callable

SHAPES = [
    (128, 784, 512, "x @ w.T"), (128, 512, 512, "x @ w"), (512, 512, 512, "x @ w"), (1024, 1024, 1024, "x @ w"),
    (800, 1024, 2048, "x @ w.T"), (800, 2048, 1024, "x @ w"), (2048, 800, 1024, "g.T @ x"),
    (2048, 384, 1536, "x @ w.T"), (2048, 1536, 384, "x @ w"), (2048, 384, 8192, "x @ w.T"),
    (16384, 256, 256, "x @ w.T"), (16384, 256, 256, "x @ w"), (16384, 256, 128, "x @ w.T"),
    (256, 16384, 256, "g.T @ x"), (128, 16384, 256, "g.T @ x"), (64, 16384, 128, "g.T @ x"),
    (64, 50176, 256, "g.T @ x"), (128, 12544, 512, "g.T @ x"), (32, 25088, 192, "g.T @ x"),
]  # fmt: skip
"""(rows, depth, columns, how the operands lie)"""
CACHES = 48 << 20
"""Bytes of operands and results that are gone through, more than the caches hold."""


def functions(m: int, k: int, n: int, kind: str) -> Callable[[str], float]:
    import numpy as np

    import weft as wf
    from weft.compiler import tuning

    rng = np.random.default_rng(0)
    shapes = ((k, m) if kind == "g.T @ x" else (m, k), (n, k) if kind == "x @ w.T" else (k, n))
    copies = max(1, min(8, CACHES // (4 * (m * k + k * n + m * n))))
    operands = [[wf.tensor(rng.standard_normal(shape, np.float32)) for shape in shapes] for _ in range(copies)]
    multiply = {"x @ w.T": lambda x, w: x @ w.T, "x @ w": lambda x, w: x @ w, "g.T @ x": lambda g, x: g.T @ x}[kind]
    made = {}
    for name, way in (("oneDNN", "library"), ("own", "blocks")):
        with tuning.forced(way):
            function = wf.function(multiply)
            function(*operands[0])
        made[name] = (way, function, itertools.cycle(operands))

    def run(name: str) -> float:
        way, function, turns = made[name]
        left, right = next(turns)
        with tuning.forced(way):  # a captured function belongs to the setting it was captured with
            start = time.perf_counter()
            function(left, right)
            return time.perf_counter() - start

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="per shape")
    options = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, load {os.getloadavg()[0]:.1f}")
    for m, k, n, kind in SHAPES:
        run = functions(m, k, n, kind)
        taken: dict[str, list[float]] = {"oneDNN": [], "own": []}
        until = time.perf_counter() + options.seconds
        while time.perf_counter() < until:
            for name, times in taken.items():
                times.append(run(name))
        speed = lambda t, work=2e-9 * m * n * k: f"{work / t:5.0f}"
        text = "   ".join(f"{w} {speed(min(t))} / {speed(statistics.median(t))}" for w, t in taken.items())
        ratio = statistics.median(taken["oneDNN"]) / statistics.median(taken["own"])
        print(f"{m:6} x {k:6} x {n:4}  {kind:8} {text}   {ratio:.2f}x", flush=True)


if __name__ == "__main__":
    main()
