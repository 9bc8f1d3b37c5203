"""3 x 3 convolutions of ResNet-50 and VGG-19, forward and both gradients: oneDNN's direct kernels beside Winograd's products.

    python benchmarks/winograd.py [--layers resnet50,vgg19] [--ways direct,winograd_f4,winograd_f2] [--steps]

Every form of a layer is compiled as a separate program and run in turn with the others on one thread; figures are
processor time (medians), which other processes disturb least. `--steps` says where the time goes.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.compiler.trials import Trial
    from weft.graph.graph import Node

os.environ.setdefault("WEFT_NUM_THREADS", "1")

LAYERS = {
    "resnet50": [(16, 64, 64, 56), (16, 128, 128, 28), (16, 256, 256, 14), (16, 512, 512, 7)],
    "vgg19": [
        (2, 64, 64, 224), (4, 64, 128, 112), (4, 128, 128, 112), (8, 128, 256, 56), (8, 256, 256, 56),
        (8, 256, 512, 28), (8, 512, 512, 28), (8, 512, 512, 14),
    ],
}  # fmt: skip
"""(images, input channels, output channels, height and width); the largest images of VGG-19 with fewer of them."""
OPS = ("forward", "grad input", "grad weight")


def node_of(op: str, n: int, c: int, k: int, size: int) -> Node:
    """A flow with one convolution or gradient."""
    import numpy as np

    from weft.compiler.flow import Flow
    from weft.ops.core.spec import Spec
    from weft.ops.nn.conv import convolution
    from weft.ops.nn.window import Window

    flow, dtype = Flow("benchmark"), np.dtype(np.float32)
    x, y, w = (n, c, size, size), (n, k, size, size), (k, c, 3, 3)
    attrs = (Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)), 1)
    record, inputs, first, result = {
        "forward": (convolution.convolution, (x, w, None), (), y),
        "grad input": (convolution.convolution_backward_input, (y, w, None), ((size, size),), x),
        "grad weight": (convolution.convolution_backward_weight, (x, y), (), w),
    }[op]
    values = [None if shape is None else flow.placeholder(shape, dtype) for shape in inputs]
    return flow.add(record.op, values, (*first, *attrs), [Spec(result, dtype)])


def trials_of(op: str, layer: tuple[int, int, int, int], names: list[str]) -> dict[str, Trial]:
    from weft.backends.onednn.lowerings import OneDNN
    from weft.compiler.lowering.rules import conv
    from weft.compiler.trials import Trial
    from weft.compiler.tuning import Sample

    library = OneDNN()
    direct = {
        "forward": library.convolution,
        "grad input": library.convolution_backward_input,
        "grad weight": library.convolution_backward_weight,
    }[op]
    tiled = {"forward": conv._winograd, "grad input": conv._winograd_input, "grad weight": conv._winograd_weight}[op]
    node = node_of(op, *layer)
    shapes = tuple(None if v is None else tuple(v.shape) for v in node.inputs)
    whole = Sample(shapes, (tuple(node.outputs[0].shape),), node.attrs, 1.0, lambda label: False)
    ways = {"direct": direct} | {name: partial(tiled, m) for name, m in conv.TILES.items()}
    return {name: Trial(node, ways[name], whole) for name in names}


def measure(trials: dict[str, Trial], seconds: float) -> dict[str, list[float]]:
    """Milliseconds of processor time per step, as the median of interleaved runs."""
    times: dict[str, list[list[float]]] = {name: [[] for _ in trial.steps] for name, trial in trials.items()}
    for trial in trials.values():
        trial.instance.run(trial.arguments, [])
    start = time.perf_counter()
    for _ in range(9):
        for name, trial in trials.items():
            run, at = trial.instance.program.run_native, trial.instance.table_at
            for i in range(len(trial.steps)):
                before = time.thread_time()
                run(at + 16 * i, 1)
                times[name][i].append(1e3 * (time.thread_time() - before))
        if time.perf_counter() - start > seconds:
            break
    return {name: [statistics.median(runs) for runs in steps] for name, steps in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", default="resnet50,vgg19")
    parser.add_argument("--ways", default="direct,winograd_f4")
    parser.add_argument("--seconds", type=float, default=2.0, help="per layer and op")
    parser.add_argument("--steps", action="store_true")
    options = parser.parse_args()
    names = options.ways.split(",")
    print(
        f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )
    print("milliseconds of processor time on one thread; in brackets the first way's time over this one's")
    for group in options.layers.split(","):
        for layer in LAYERS[group]:
            n, c, k, size = layer
            for op in OPS:
                trials = trials_of(op, layer, names)
                steps = measure(trials, options.seconds)
                totals = {name: sum(times) for name, times in steps.items()}
                text = "   ".join(f"{w} {t:7.1f} ({totals[names[0]] / t:.2f})" for w, t in totals.items())
                print(f"{group:9} {c:3}->{k:<3} @{size:<3} x{n:<2} {op:12} {text}", flush=True)
                for name, trial in trials.items() if options.steps else ():
                    parts: dict[str, float] = {}
                    for step, t in zip(trial.steps, steps[name], strict=True):
                        parts[step.label] = parts.get(step.label, 0.0) + t
                    print("      " + ", ".join(f"{label} {t:.1f}" for label, t in parts.items()))


if __name__ == "__main__":
    main()
