"""Matrix products and convolutions through `weft.backends.onednn.eager`, beside torch (channels_last).

    python benchmarks/onednn_kernels.py                                   Weft alone
    python benchmarks/onednn_kernels.py --peer /path/to/torch/bin/python  beside torch in a separate process
    python benchmarks/onednn_kernels.py --layouts                         which layouts oneDNN is fastest with

Each case runs alternately here and in the peer's process (A B A B ...), so that noise of the machine hits both alike;
the table shows medians in milliseconds, their ratio and, against noise, the ratio of the shortest times.
`--keep-memory` tells the peer's C library to keep freed memory in huge pages, as Weft's allocator does.
`--json FILE` writes the figures. On a busy machine `--threads 1 --cpu-time` compares the processor time of one
thread, which waiting for a core does not count into.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

BATCH = 16
# An OpenMP worker of the other process spins for some milliseconds after its work is done; wait until it sleeps.
PAUSE = 0.03
KEEP_MEMORY = (
    "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184"
    ":glibc.malloc.top_pad=268435456"
)


class Conv(NamedTuple):
    """One distinct convolution of ResNet-50 and how often the network has it."""

    inputs: int
    outputs: int
    kernel: int
    stride: int
    size: int
    count: int

    @property
    def padding(self) -> int:
        return self.kernel // 2

    @property
    def window(self) -> Any:
        from weft.ops.nn.window import Window

        return Window((self.kernel,) * 2, (self.stride,) * 2, ((self.padding,) * 2,) * 2, (1, 1))

    @property
    def gigaflops(self) -> float:
        size = (self.size + 2 * self.padding - self.kernel) // self.stride + 1
        return 2e-9 * BATCH * self.outputs * size * size * self.inputs * self.kernel**2


RESNET50 = [
    Conv(3, 64, 7, 2, 224, 1), Conv(64, 64, 1, 1, 56, 1), Conv(64, 64, 3, 1, 56, 3), Conv(64, 256, 1, 1, 56, 4),
    Conv(256, 64, 1, 1, 56, 2), Conv(256, 128, 1, 1, 56, 1), Conv(128, 128, 3, 2, 56, 1), Conv(128, 512, 1, 1, 28, 4),
    Conv(256, 512, 1, 2, 56, 1), Conv(512, 128, 1, 1, 28, 3), Conv(128, 128, 3, 1, 28, 3), Conv(512, 256, 1, 1, 28, 1),
    Conv(256, 256, 3, 2, 28, 1), Conv(256, 1024, 1, 1, 14, 6), Conv(512, 1024, 1, 2, 28, 1), Conv(1024, 256, 1, 1, 14, 5),
    Conv(256, 256, 3, 1, 14, 5), Conv(1024, 512, 1, 1, 14, 1), Conv(512, 512, 3, 2, 14, 1), Conv(512, 2048, 1, 1, 7, 3),
    Conv(1024, 2048, 1, 2, 14, 1), Conv(2048, 512, 1, 1, 7, 2), Conv(512, 512, 3, 1, 7, 2),
]  # fmt: skip

Work = Callable[[], object]


def weft_cases(threads: int) -> Callable[[str], Work]:
    """Name of a case -> the function to time, on Weft."""
    import numpy as np

    from weft.backends.onednn import eager, library
    from weft.runtime import memory
    from weft.runtime import threads as weft_threads

    weft_threads.set_num_threads(threads)
    if not library.available():
        raise SystemExit("onednn_kernels: oneDNN is not available here.")
    rng = np.random.default_rng(0)

    def image(*shape: int) -> Any:
        array = memory.empty_channels_last(shape)
        array[...] = rng.standard_normal(shape, np.float32)
        return array

    def case(name: str) -> Work:
        kind, *numbers = name.split()
        sizes = [int(number) for number in numbers]
        if kind == "matmul":
            a, b = (
                rng.standard_normal((sizes[0], sizes[1]), np.float32),
                rng.standard_normal((sizes[1], sizes[2]), np.float32),
            )
            return lambda: eager.matmul(a, b)
        conv = Conv(*sizes, 1)  # type: ignore[arg-type]
        x = image(BATCH, conv.inputs, conv.size, conv.size)
        w = rng.standard_normal((conv.outputs, conv.inputs, conv.kernel, conv.kernel), np.float32)
        settings = (conv.window, 1)
        if kind == "forward":
            return lambda: eager.conv_forward(x, w, None, *settings)
        g = image(*eager.conv_forward(x, w, None, *settings).shape)
        if kind == "data":
            return lambda: eager.conv_backward_data(g, w, x.shape, *settings)
        return lambda: eager.conv_backward_weights(x, g, w.shape, *settings)

    return case


def torch_cases(threads: int) -> Callable[[str], Work]:
    """The same on torch."""
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    last = torch.channels_last

    def case(name: str) -> Work:
        kind, *numbers = name.split()
        sizes = [int(number) for number in numbers]
        if kind == "matmul":
            a, b = torch.randn(sizes[0], sizes[1]), torch.randn(sizes[1], sizes[2])
            return lambda: a @ b
        conv = Conv(*sizes, 1)  # type: ignore[arg-type]
        x = torch.randn(BATCH, conv.inputs, conv.size, conv.size).to(memory_format=last)
        w = torch.randn(conv.outputs, conv.inputs, conv.kernel, conv.kernel).to(memory_format=last)
        stride, padding = conv.stride, conv.padding
        if kind == "forward":
            return lambda: torch.conv2d(x, w, None, stride, padding)
        g = torch.randn_like(torch.conv2d(x, w, None, stride, padding))
        mask = [kind == "data", kind == "weights", False]
        backward = torch.ops.aten.convolution_backward
        return lambda: backward(g, x, w, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, mask)

    return case


def timed(work: Work, clock: Callable[[], float]) -> float:
    start = clock()
    work()
    return (clock() - start) * 1e3


def serve(cases: Callable[[str], Work], clock: Callable[[], float]) -> None:
    """The peer's side: reads names of cases, warms up on a new one, answers with the time of one run."""
    current, work = "", None
    print("ready", flush=True)
    for line in sys.stdin:
        name = line.strip()
        if name != current:
            current, work = name, cases(name)
            for _ in range(2):
                work()
        assert work is not None
        print(timed(work, clock), flush=True)


class Peer:
    """The other process."""

    def __init__(self, python: str, threads: int, keep_memory: bool, cpu_time: bool) -> None:
        environment = dict(os.environ)
        if keep_memory:
            environment["GLIBC_TUNABLES"] = KEEP_MEMORY
        command = [python, os.path.abspath(__file__), "--serve", "--threads", str(threads)]
        command += ["--cpu-time"] if cpu_time else []
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        if self._answer() != "ready":
            raise SystemExit(f"onednn_kernels: {python} has no working torch.")

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def time(self, name: str) -> float:
        assert self._process.stdin is not None
        print(name, file=self._process.stdin, flush=True)
        return float(self._answer())

    def close(self) -> None:
        self._process.communicate(timeout=60)


class Times(NamedTuple):
    """Milliseconds of one case: median and shortest, here and in the peer (0 without one)."""

    ours: float
    theirs: float
    our_best: float
    their_best: float


def measure(
    name: str, cases: Callable[[str], Work], peer: Peer | None, rounds: int, clock: Callable[[], float]
) -> Times:
    """Runs the case here and in the peer alternately."""
    work = cases(name)
    for _ in range(2):
        work()
    if peer is not None:
        peer.time(name)
    ours, theirs = [], []
    pause = PAUSE if peer is not None else 0.0
    for _ in range(rounds):
        time.sleep(pause)
        ours.append(timed(work, clock))
        if peer is not None:
            time.sleep(pause)
            theirs.append(peer.time(name))
    return Times(
        statistics.median(ours), statistics.median(theirs) if theirs else 0.0, min(ours), min(theirs, default=0.0)
    )


def compare_layouts(threads: int, rounds: int, clock: Callable[[], float]) -> None:
    """ResNet-50's convolutions with given and with chosen layouts, and what reordering the weights costs."""
    import numpy as np

    from weft.backends.onednn import primitives as p
    from weft.backends.onednn.capi import Arg
    from weft.backends.onednn.descriptors import MemoryDesc, channels_last_strides
    from weft.runtime import memory
    from weft.runtime import threads as weft_threads

    weft_threads.set_num_threads(threads)
    f32 = np.dtype(np.float32)
    arena = memory.zeros((512 << 20,), np.uint8)

    def seconds(primitive: p.Primitive) -> float:
        offset, pointers = arena.__array_interface__["data"][0], {}
        for argument in primitive.arguments:
            pointers[argument.index] = offset
            offset += -(-argument.nbytes // 4096) * 4096
        execution = p.Execution(primitive, pointers)
        execution.run()
        return statistics.median(timed(execution.run, clock) for _ in range(rounds))

    def image(*shape: int) -> MemoryDesc:
        return MemoryDesc.strided(shape, f32, channels_last_strides(shape))

    totals: dict[str, list[float]] = {"channels-last": [0.0] * 3, "chosen": [0.0] * 3, "reorders": [0.0] * 3}
    for conv in RESNET50:
        window = conv.window
        x = (BATCH, conv.inputs, conv.size, conv.size)
        size = (conv.size + 2 * conv.padding - conv.kernel) // conv.stride + 1
        y, w = (BATCH, conv.outputs, size, size), (conv.outputs, conv.inputs, conv.kernel, conv.kernel)
        weights, plain = MemoryDesc.any(w, f32), MemoryDesc.strided(w, f32)
        for label, make in (("channels-last", image), ("chosen", lambda *shape: MemoryDesc.any(shape, f32))):
            made = [
                p.convolution_forward(make(*x), weights, None, make(*y), window),
                p.convolution_backward_data(make(*x), weights, make(*y), window),
                p.convolution_backward_weights(make(*x), weights, None, make(*y), window),
            ]
            for i, primitive in enumerate(made):
                if i != 1 or conv.inputs != 3:
                    totals[label][i] += conv.count * seconds(primitive)
            if label == "channels-last":
                wanted = [made[0].desc(Arg.WEIGHTS), made[1].desc(Arg.WEIGHTS), made[2].desc(Arg.DIFF_WEIGHTS)]
                pairs = [(plain, wanted[0]), (plain, wanted[1]), (wanted[2], plain)]
                for i, pair in enumerate(pairs):
                    totals["reorders"][i] += conv.count * seconds(p.reorder(*pair))
    print(f"{'ms per step':32}{'forward':>9}{'data':>9}{'weights':>9}")
    for label, parts in totals.items():
        print(f"{label:32}" + "".join(f"{part:9.1f}" for part in parts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="a Python interpreter that has torch")
    parser.add_argument("--keep-memory", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="only the cases whose name contains this")
    parser.add_argument("--json")
    parser.add_argument("--layouts", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    clock = time.thread_time if options.cpu_time else time.perf_counter
    if options.cpu_time and options.threads != 1:
        parser.error("--cpu-time counts one thread: add --threads 1")
    if options.serve:
        serve(torch_cases(options.threads), clock)
        return
    if options.layouts:
        compare_layouts(options.threads, options.rounds, clock)
        return
    cases = weft_cases(options.threads)
    peer = Peer(options.peer, options.threads, options.keep_memory, options.cpu_time) if options.peer else None
    rows = [(f"matmul {size} {size} {size}", 2e-9 * size**3, 0) for size in (256, 512, 1024, 2048)]
    for conv in RESNET50:
        for kind in ("forward", "data", "weights"):
            # The gradient with respect to the images themselves is not needed.
            if not (kind == "data" and conv.inputs == 3):
                rows.append((f"{kind} {' '.join(map(str, conv[:5]))}", conv.gigaflops, conv.count))
    print(f"{'case':32}{'weft ms':>9}{'torch ms':>9}{'ratio':>7}{'of best':>8}{'GFLOP/s':>9}")
    totals: dict[str, list[float]] = {}
    figures = []
    for name, gigaflops, count in rows:
        if options.only not in name:
            continue
        times = measure(name, cases, peer, options.rounds, clock)
        figures.append({"case": name, "count": count, **times._asdict()})
        print(f"{name:32}{_ratios(times)}{gigaflops / times.our_best * 1e3:9.0f}", flush=True)
        if count:
            total = totals.setdefault(name.split()[0], [0.0] * 4)
            totals[name.split()[0]] = [t + count * value for t, value in zip(total, times, strict=True)]
    if totals:
        totals["ResNet-50, all"] = [sum(part) for part in zip(*totals.values(), strict=True)]
    for kind, total in totals.items():
        print(f"{'sum of ' + kind:32}{_ratios(Times(*total))}")
    if peer is not None:
        peer.close()
    if options.json:
        with open(options.json, "w") as file:
            json.dump(figures, file, indent=1)


def _ratios(times: Times) -> str:
    if not times.theirs:
        return f"{times.ours:9.2f}{'':24}"
    ratio, best = times.ours / times.theirs, times.our_best / times.their_best
    return f"{times.ours:9.2f}{times.theirs:9.2f}{ratio:7.2f}{best:8.2f}"


if __name__ == "__main__":
    main()
