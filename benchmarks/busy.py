"""How Weft slows down when other programs want the same processors.

    python benchmarks/busy.py [--processes 2] [--seconds 4]

Every case runs for a while alone, then beside `--processes` processes that only count. With as many threads as cores and
two busy neighbours a fair scheduler leaves about half of the machine, so a case should take about twice as long, not ten
times: that would mean that threads spin while the one they wait for is not running. `one thread` is the control: NumPy on
one thread, which waits for no other.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable

import numpy as np

import weft as wf
from weft import nn, optim
from weft.nn import functional as F


def count_for_ever() -> None:
    n = 0
    while True:
        n += 1


def cases() -> dict[str, Callable[[], object]]:
    rng = np.random.default_rng(0)

    def tensor(*shape: int) -> wf.Tensor:
        return wf.asarray(rng.standard_normal(shape, np.float32))

    matrix, vector = tensor(768, 768), tensor(1 << 22)
    images, weight = tensor(8, 64, 56, 56), tensor(64, 64, 3, 3)
    table, small = rng.standard_normal(1 << 19), tensor(64, 256)
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    labels = wf.asarray(rng.integers(0, 10, 64))

    @wf.function
    def step(x: wf.Tensor, y: wf.Tensor) -> wf.Tensor:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return {
        "one thread (NumPy)": lambda: np.exp(table),
        "matmul 768³": lambda: matrix @ matrix,
        "GELU of 4M floats": lambda: F.gelu(vector),
        "convolution 8×64×56×56, 3×3": lambda: F.conv2d(images, weight, padding=1),
        "captured MLP step": lambda: step(small, labels),
    }


def measure(work: dict[str, Callable[[], object]], seconds: float) -> dict[str, tuple[float, float]]:
    """Median and 95th percentile of each case, in seconds; the cases take turns."""
    times: dict[str, list[float]] = {name: [] for name in work}
    end = time.perf_counter() + seconds * len(work)
    while time.perf_counter() < end:
        for name, run in work.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: (statistics.median(t), sorted(t)[int(0.95 * len(t))]) for name, t in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4.0, help="per case")
    options = parser.parse_args()
    work = cases()
    for run in work.values():
        for _ in range(3):
            run()
    load = os.getloadavg()[0]
    alone = measure(work, options.seconds)
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=count_for_ever, daemon=True) for _ in range(options.processes)]
    for process in others:
        process.start()
    try:
        time.sleep(1.0)
        busy = measure(work, options.seconds)
    finally:
        for process in others:
            process.kill()
            process.join()
    print(f"{os.cpu_count()} cores, width {wf.get_num_threads()}, load average before {load:.1f}")
    print(f"{'':30}{'alone':>10}{'busy':>10}{'ratio':>8}{'95 %':>10}")
    for name, (before, _) in alone.items():
        after, slow = busy[name]
        print(f"{name:30}{before * 1e3:7.2f} ms{after * 1e3:7.2f} ms{after / before:8.2f}{slow * 1e3:7.1f} ms")


if __name__ == "__main__":
    main()
