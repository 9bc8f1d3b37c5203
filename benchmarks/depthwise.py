"""Depthwise 3 x 3 convolutions of MobileNetV2, forward and both gradients: oneDNN's kernels beside Weft's.

    python benchmarks/depthwise.py [--batch N] [--seconds N]

Both forms of a layer are compiled as separate programs and run in turn; figures are the least milliseconds, and the
memory traffic per second if every image is read or written once.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.compiler.trials import Trial
    from weft.compiler.tuning import Way

LAYERS = [
    (32, 112, 1), (96, 112, 2), (144, 56, 1), (144, 56, 2), (192, 28, 1), (192, 28, 2), (384, 14, 1), (576, 14, 1),
    (576, 14, 2), (960, 7, 1),
]  # fmt: skip
"""(channels, height and width, stride)"""
OPS = ("forward", "grad input", "grad weight")


def trials_of(op: str, n: int, c: int, size: int, stride: int) -> tuple[dict[str, Trial], int]:
    from weft.backends.onednn.lowerings import OneDNN
    from weft.compiler.lowering.rules import conv as rules
    from weft.ops.nn.conv import convolution
    from weft.ops.nn.window import Window

    out = (size - 1) // stride + 1
    x, y, w = (n, c, size, size), (n, c, out, out), (c, 1, 3, 3)
    attrs = (Window((3, 3), (stride, stride), ((1, 1), (1, 1)), (1, 1)), c)
    library = OneDNN()
    record, inputs, first, result, direct, own = {
        "forward": (convolution.convolution, (x, w, None), (), y, library.convolution, rules._depthwise),
        "grad input": (convolution.convolution_backward_input, (y, w, None), ((size, size),), x,
                       library.convolution_backward_input, rules._depthwise_input),
        "grad weight": (convolution.convolution_backward_weight, (x, y), (), w,
                        library.convolution_backward_weight, rules._depthwise_weight),
    }[op]  # fmt: skip
    moved = 4 * n * c * (size * size + out * out)
    return both_ways(record, inputs, (*first, *attrs), result, direct, own), moved


def both_ways(
    record: Any, inputs: tuple[Any, ...], attrs: tuple[Any, ...], result: tuple[int, ...], direct: Way, own: Way
) -> dict[str, Trial]:
    """An op of float32 shapes, computed in two ways."""
    import numpy as np

    from weft.compiler.flow import Flow
    from weft.compiler.trials import Trial
    from weft.compiler.tuning import Sample
    from weft.ops.core.spec import Spec

    flow, dtype = Flow("benchmark"), np.dtype(np.float32)
    values = [None if shape is None else flow.placeholder(shape, dtype) for shape in inputs]
    node = flow.add(record.op, values, attrs, [Spec(result, dtype)])
    whole = Sample(tuple(inputs), (result,), node.attrs, 1.0, lambda label: False)
    return {"oneDNN": Trial(node, direct, whole), "own": Trial(node, own, whole)}


def measure(trials: dict[str, Trial], seconds: float) -> dict[str, float]:
    """The least seconds of interleaved runs."""
    best = {name: float("inf") for name in trials}
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        for name, trial in trials.items():
            before = time.perf_counter()
            trial.instance.run(trial.arguments, [])
            best[name] = min(best[name], time.perf_counter() - before)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=1.0, help="per layer and op")
    options = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, batch {options.batch}, load {os.getloadavg()[0]:.1f}")
    for c, size, stride in LAYERS:
        for op in OPS:
            trials, moved = trials_of(op, options.batch, c, size, stride)
            best = measure(trials, options.seconds)
            text = "   ".join(f"{w} {1e3 * t:6.2f} ms {moved / t / 1e9:5.1f} GB/s" for w, t in best.items())
            print(f"{c:4} @{size:<3} /{stride} {op:12} {text}   {best['oneDNN'] / best['own']:.2f}x", flush=True)


if __name__ == "__main__":
    main()
