"""What runs across memory: transposed operands in captured functions, and weights brought into oneDNN's blocks.

    python -m benchmarks.copies [--seconds N]

First, functions whose operands run in two directions, captured beside eager: median milliseconds. Then the weights of
1 x 1 convolutions of ResNet-50, brought into the layout of oneDNN's kernels by its reorder and by Weft's copies, which
take turns: median microseconds, and GB/s read and written.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable

import numpy as np

import weft as wf
from weft.backends.llvm.jit import compile_kernel
from weft.backends.llvm.target import host
from weft.backends.onednn.capi import Arg
from weft.backends.onednn.descriptors import MemoryDesc
from weft.backends.onednn.lowerings.blocked_weights import _parts
from weft.backends.onednn.primitives.base import Execution
from weft.backends.onednn.primitives.convolution import convolution_forward
from weft.backends.onednn.primitives.reorder import reorder
from weft.compiler.loop_ir.kernels.copy import copy_kernel
from weft.compiler.program.layout import Layout, Storage, channels_last, row_major
from weft.ops.nn.window import Window

FUNCTIONS = {
    "x.T + y": lambda x, y: x.T + y,
    "maximum(x.T + y, 0).sum(1)": lambda x, y: wf.maximum(x.T + y, 0.0).sum(1),
    "x.T * y + y": lambda x, y: x.T * y + y,
}
WEIGHTS = [(512, 128), (256, 1024), (1024, 256), (512, 1024), (2048, 512), (512, 2048), (2048, 1024)]
"""(output channels, input channels)"""
FLOAT = np.dtype(np.float32)


def in_turns(ways: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """The median seconds of each."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for name, run in ways.items():
            start = time.perf_counter()
            run()
            taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in taken.items()}


def function_of(name: str, seconds: float) -> dict[str, float]:
    rng = np.random.default_rng(0)
    x, y = (wf.tensor(rng.standard_normal(shape, np.float32)) for shape in ((2048, 1024), (1024, 2048)))
    eager = FUNCTIONS[name]
    captured = wf.function(eager)
    captured(x, y)
    return in_turns({"eager": lambda: eager(x, y), "captured": lambda: captured(x, y)}, seconds)


def weights_of(out: int, into: int, seconds: float) -> dict[str, float]:
    shape, image, result = (out, into, 1, 1), (16, into, 14, 14), (16, out, 14, 14)
    source = MemoryDesc.strided(shape, FLOAT)
    described = [MemoryDesc.strided(s, FLOAT, channels_last(s)) for s in (image, result)]
    window = Window((1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1))
    convolution = convolution_forward(described[0], MemoryDesc.any(shape, FLOAT), None, described[1], window)
    wanted = convolution.desc(Arg.WEIGHTS)
    rng = np.random.default_rng(0)
    weight, theirs = rng.standard_normal(shape, np.float32), np.zeros(wanted.nbytes // 4, np.float32)
    ours = np.zeros_like(theirs)
    library = Execution(reorder(source, wanted), {int(Arg.SRC): weight.ctypes.data, int(Arg.DST): theirs.ctypes.data})
    plain = Layout(Storage("arena", 0), FLOAT, shape, row_major(shape))
    parts = _parts(plain, wanted, Layout(Storage("arena", 0), FLOAT, ours.shape, (1,)))
    if parts is None:
        raise SystemExit(f"{shape} in {wanted.format}: left to the library.")
    kernels = [
        compile_kernel(copy_kernel(of.shape, (FLOAT, FLOAT), (of.strides, of.offset), (to.strides, to.offset), host()))
        for of, to in parts
    ]

    def own() -> None:
        for kernel in kernels:
            kernel.call(weight.ctypes.data, ours.ctypes.data)

    library.run()
    own()
    np.testing.assert_array_equal(ours, theirs)
    return in_turns({"oneDNN": library.run, "own": own}, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="per case")
    seconds = parser.parse_args().seconds
    print(f"{platform.processor() or platform.machine()}, load {os.getloadavg()[0]:.1f}")
    for name in FUNCTIONS:
        taken = function_of(name, seconds)
        text = "   ".join(f"{way} {1e3 * t:5.2f} ms" for way, t in taken.items())
        print(f"{name:28} {text}   {taken['eager'] / taken['captured']:.2f}x", flush=True)
    for out, into in WEIGHTS:
        taken = weights_of(out, into, seconds)
        text = "   ".join(f"{way} {1e6 * t:5.0f} us {8e-9 * out * into / t:5.1f} GB/s" for way, t in taken.items())
        print(f"weights {out:4} x {into:<4}          {text}   {taken['oneDNN'] / taken['own']:.2f}x", flush=True)


if __name__ == "__main__":
    main()
