"""1 x 1 convolutions of MobileNetV2 and ResNet-50, forward and the gradient of the input: oneDNN's kernels beside Weft's.

    python -m benchmarks.pointwise_conv [--batch N] [--seconds N]

Both forms of a layer are compiled as separate programs and run in turn; figures are the least milliseconds and the
GFLOP/s that follow from them.
"""

from __future__ import annotations

import argparse
import os
import platform
from typing import TYPE_CHECKING

from benchmarks.depthwise import both_ways, measure

if TYPE_CHECKING:
    from weft.compiler.trials import Trial

LAYERS = [
    (32, 16, 112), (16, 96, 112), (96, 24, 56), (24, 144, 56), (144, 24, 56), (144, 32, 28), (32, 192, 28), (192, 32, 28),
    (192, 64, 14), (64, 384, 14), (384, 64, 14), (64, 64, 56), (64, 256, 56), (256, 64, 56), (256, 128, 56),
]  # fmt: skip
"""(input channels, output channels, height and width)"""
OPS = ("forward", "grad input")


def trials_of(op: str, n: int, c: int, k: int, size: int) -> dict[str, Trial]:
    from weft.backends.onednn.lowerings import OneDNN
    from weft.compiler.lowering.rules import conv as rules
    from weft.ops.nn.conv import convolution
    from weft.ops.nn.window import Window

    x, y, w = (n, c, size, size), (n, k, size, size), (k, c, 1, 1)
    attrs = (Window((1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)), 1)
    library = OneDNN()
    record, inputs, first, result, direct, own = {
        "forward": (convolution.convolution, (x, w, None), (), y, library.convolution, rules._pointwise),
        "grad input": (convolution.convolution_backward_input, (y, w, None), ((size, size),), x,
                       library.convolution_backward_input, rules._pointwise_input),
    }[op]  # fmt: skip
    return both_ways(record, inputs, (*first, *attrs), result, direct, own)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=1.0, help="per layer and op")
    options = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, batch {options.batch}, load {os.getloadavg()[0]:.1f}")
    for c, k, size in LAYERS:
        for op in OPS:
            best = measure(trials_of(op, options.batch, c, k, size), options.seconds)
            work = 2 * options.batch * size * size * c * k
            text = "   ".join(f"{w} {1e3 * t:6.2f} ms {work / t / 1e9:5.0f} GFLOP/s" for w, t in best.items())
            print(f"{c:4}->{k:<4}@{size:<3} {op:10} {text}   {best['oneDNN'] / best['own']:.2f}x", flush=True)


if __name__ == "__main__":
    main()
