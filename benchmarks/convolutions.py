"""The 53 convolutions of ResNet-50, forward and backward: Weft beside torch (channels_last), one process each, interleaved.

    python benchmarks/convolutions.py [--torch PYTHON] [--rounds N] [--batch N] [--each]

`--torch` names the Python interpreter that has torch (default: this one). Each round starts one process per library, in
turn, on two threads; per layer a process takes the median of several runs, and a figure is the median over rounds.
Backward computes the gradients of weight and input (of the weight only for the first layer). `--each` prints every layer.
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

GOAL = 1.05
# (input channels, output channels, kernel, stride, input size, how often it occurs)
LAYERS = [
    (3, 64, 7, 2, 224, 1),
    (64, 64, 1, 1, 56, 1), (64, 64, 3, 1, 56, 3), (64, 256, 1, 1, 56, 4), (256, 64, 1, 1, 56, 2),
    (256, 128, 1, 1, 56, 1), (128, 128, 3, 2, 56, 1), (128, 512, 1, 1, 28, 4), (256, 512, 1, 2, 56, 1),
    (512, 128, 1, 1, 28, 3), (128, 128, 3, 1, 28, 3),
    (512, 256, 1, 1, 28, 1), (256, 256, 3, 2, 28, 1), (256, 1024, 1, 1, 14, 6), (512, 1024, 1, 2, 28, 1),
    (1024, 256, 1, 1, 14, 5), (256, 256, 3, 1, 14, 5),
    (1024, 512, 1, 1, 14, 1), (512, 512, 3, 2, 14, 1), (512, 2048, 1, 1, 7, 3), (1024, 2048, 1, 2, 14, 1),
    (2048, 512, 1, 1, 7, 2), (512, 512, 3, 1, 7, 2),
]  # fmt: skip


def name(layer: tuple[int, ...]) -> str:
    c, o, k, s, n, _ = layer
    return f"{c}->{o} {k}x{k}/{s} @{n}"


def weft_layer(layer: tuple[int, ...], batch: int) -> Callable[[], tuple[float, float]]:
    import numpy as np

    import weft as wf
    from weft.ops.nn.conv.functions import conv2d
    from weft.runtime import memory

    c, o, k, s, n, _ = layer
    rng = np.random.default_rng(0)

    def image(*shape: int) -> wf.Tensor:
        a = memory.empty_channels_last(shape)
        a[...] = rng.standard_normal(shape, np.float32)
        return wf.asarray(a)

    x = image(batch, c, n, n)
    if c > 3:
        x.requires_grad_()
    w = wf.asarray(rng.standard_normal((o, c, k, k), np.float32)).requires_grad_()
    g = image(*conv2d(x, w, stride=s, padding=k // 2).shape)

    def step() -> tuple[float, float]:
        x.grad = w.grad = None
        start = time.perf_counter()
        y = conv2d(x, w, stride=s, padding=k // 2)
        middle = time.perf_counter()
        y.backward(g)
        return middle - start, time.perf_counter() - middle

    return step


def torch_layer(layer: tuple[int, ...], batch: int) -> Callable[[], tuple[float, float]]:
    import torch  # type: ignore[import-not-found]

    c, o, k, s, n, _ = layer
    last = torch.channels_last
    x = torch.randn(batch, c, n, n).to(memory_format=last).requires_grad_(c > 3)
    w = torch.randn(o, c, k, k).to(memory_format=last).requires_grad_()
    g = torch.randn_like(torch.nn.functional.conv2d(x, w, stride=s, padding=k // 2)).to(memory_format=last)

    def step() -> tuple[float, float]:
        x.grad = w.grad = None
        start = time.perf_counter()
        y = torch.nn.functional.conv2d(x, w, stride=s, padding=k // 2)
        middle = time.perf_counter()
        y.backward(g)
        return middle - start, time.perf_counter() - middle

    return step


def measure(library: str, batch: int) -> dict[str, tuple[float, float]]:
    """Median milliseconds (forward, backward) per layer."""
    if library == "torch":
        import torch  # type: ignore[import-not-found]

        torch.set_num_threads(2)
    else:
        from weft.backends.onednn import kernels

        kernels.register()
    figures = {}
    for layer in LAYERS:
        step = (weft_layer if library == "weft" else torch_layer)(layer, batch)
        step(), step()
        runs = [step() for _ in range(7)]
        figures[name(layer)] = tuple(1e3 * statistics.median(column) for column in zip(*runs, strict=True))
    return figures  # type: ignore[return-value]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--measure", choices=("weft", "torch"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.batch)))
        return
    root = str(Path(__file__).resolve().parents[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONPATH": root}
    interpreters = {"weft": sys.executable, "torch": options.torch}
    results: dict[str, list[dict[str, list[float]]]] = {"weft": [], "torch": []}
    for _ in range(options.rounds):
        for library, python in interpreters.items():
            command = [python, __file__, "--measure", library, "--batch", str(options.batch)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
            if done.returncode:
                print(f"{library}: not measured\n{done.stderr.strip()[-2000:]}")
                continue
            results[library].append(json.loads(done.stdout))
    print(
        f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, batch {options.batch}, milliseconds"
    )
    totals = {library: [0.0, 0.0] for library in results}
    for layer in LAYERS:
        line = {}
        for library, rounds in results.items():
            if rounds:
                line[library] = [statistics.median(r[name(layer)][i] for r in rounds) for i in (0, 1)]
                for i in (0, 1):
                    totals[library][i] += line[library][i] * layer[-1]
        if options.each:
            text = "   ".join(f"{lib} {v[0]:7.2f} + {v[1]:7.2f}" for lib, v in line.items())
            ratio = f"   {sum(line['weft']) / sum(line['torch']):5.2f}" if len(line) == 2 else ""
            print(f"{name(layer):24} x{layer[-1]}   {text}{ratio}")
    for library, (forward, backward) in totals.items():
        if results[library]:
            print(f"{library:6} forward {forward:8.1f}   backward {backward:8.1f}   together {forward + backward:8.1f}")
    if results["weft"] and results["torch"]:
        ratio = sum(totals["weft"]) / sum(totals["torch"])
        print(f"Weft takes {ratio:.2f} of torch's time (goal: at most {GOAL})")


if __name__ == "__main__":
    main()
