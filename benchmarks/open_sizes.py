"""Captured functions called with many sizes: how often machine code is made, and what kernels for many sizes cost.

    WEFT_CACHE=0 python benchmarks/open_sizes.py [--sizes N] [--from FIRST] [--model gpt|lstm|conv] [--rounds N]

For every model: the calls that needed new machine code and the modules they loaded, the time of a first call with a size for
which nothing was compiled, and, for a few sizes, the time of a call relative to a function that was compiled for that size
alone (in turns).
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import weft as wf
from weft import nn
from weft.backends.llvm import jit
from weft.models.gpt import GPT
from weft.nn import functional as F

Built = tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]
"""A function, and its arguments for a size."""


def gpt() -> Built:
    """The forward pass of a small GPT, two sequences of a varying length."""
    model = GPT(vocab_size=256, block_size=1024, n_layer=2, n_head=4, n_embd=128).eval()

    def forward(tokens: Any) -> Any:
        with wf.no_grad():
            return model(tokens)

    return forward, lambda n: (wf.tensor(np.random.default_rng(n).integers(0, 256, (2, n))),)


def lstm() -> Built:
    """A training step of an LSTM on sequences of a varying length."""
    layer, head = nn.LSTM(32, 64, batch_first=True), nn.Linear(64, 8)
    optimizer = wf.optim.SGD([*layer.parameters(), *head.parameters()], lr=0.1)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(head(layer(x)[0]).reshape(-1, 8), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    def arguments(n: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(n)
        return wf.tensor(rng.standard_normal((8, n, 32), np.float32)), wf.tensor(rng.integers(0, 8, (8, n)))

    return step, arguments


def conv() -> Built:
    """A training step of a convolutional network on a varying number of images."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 64, 10),
    )  # fmt: skip
    optimizer = wf.optim.Adam(model.parameters(), lr=1e-3)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def arguments(n: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(n)
        return wf.tensor(rng.standard_normal((n, 3, 16, 16), np.float32)), wf.tensor(rng.integers(0, 10, n))

    return step, arguments


MODELS: dict[str, Callable[[], Built]] = {"gpt": gpt, "lstm": lstm, "conv": conv}


def modules() -> int:
    """Modules of machine code that this process has loaded so far, whether it compiled them or found them on disk."""
    return jit.engine().loaded


def count(
    captured: Callable[..., Any], arguments: Callable[[int], tuple[Any, ...]], sizes: list[int]
) -> dict[str, Any]:
    """Call `captured` once for every size: calls that loaded code, the modules, and milliseconds of the other calls."""
    events: dict[int, int] = {}
    quiet: list[float] = []
    for n in sizes:
        given = arguments(n)
        before, start = modules(), time.perf_counter()
        captured(*given)
        seconds = time.perf_counter() - start
        if modules() > before:
            events[n] = modules() - before
        else:
            quiet.append(1e3 * seconds)
    return {"events": events, "modules": sum(events.values()), "quiet": quiet}


def ratio(open_call: Callable[[], Any], special_call: Callable[[], Any], rounds: int) -> float:
    """The time of one call relative to the other, in turns: the best of the rounds, in processor time of all threads, because
    other processes only ever delay."""
    times: list[list[float]] = [[], []]
    for call in (open_call, special_call):
        call()
    start = time.perf_counter()
    special_call()
    repeats = max(1, int(0.003 / max(time.perf_counter() - start, 1e-6)))
    for _ in range(rounds):
        for call, found in zip((open_call, special_call), times, strict=True):
            start = time.process_time()
            for _ in range(repeats):
                call()
            found.append(time.process_time() - start)
    return min(times[0]) / min(times[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, default=200)
    parser.add_argument("--from", type=int, default=33, dest="first")
    parser.add_argument("--model", choices=list(MODELS))
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    sizes = list(range(options.first, options.first + options.sizes))
    for name, build in MODELS.items():
        if options.model not in (None, name):
            continue
        wf.manual_seed(0)
        fn, arguments = build()
        captured = wf.function(fn, max_programs=len(sizes))
        found = count(captured, arguments, sizes)
        quiet = f"{statistics.median(found['quiet']):.0f} ms" if found["quiet"] else "-"
        print(
            f"{name}: {len(sizes)} sizes from {sizes[0]}: {len(found['events'])} calls made code, {found['modules']} modules"
        )
        print(f"  modules by size: {found['events']}; a first call with another size took {quiet} (median)")
        for n in sizes[len(sizes) // 8 :: max(len(sizes) // 4, 1)]:
            os.environ["WEFT_OPEN_SIZES"] = "0"
            special = wf.function(build()[0])
            given = arguments(n)
            special(*given)
            os.environ["WEFT_OPEN_SIZES"] = "1"
            relative = ratio(partial(captured, *given), partial(special, *given), options.rounds)
            print(f"  size {n}: {relative:.2f}x the time of a program for this size alone", flush=True)


if __name__ == "__main__":
    main()
