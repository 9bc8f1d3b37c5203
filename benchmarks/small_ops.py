"""What eager ops on tiny tensors cost beside torch: one process per library, in turns, best of many short loops.

    python benchmarks/small_ops.py [--torch PYTHON] [--rounds N]

`benchmarks/dispatch.py` has the three figures that are goals; this table says where an op still takes the general path.
"fw+bw" is forward, `.sum()` and backward.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def cases(library: str) -> dict[str, Callable[[], object]]:
    """The calls, on 4×10 floats unless the name says otherwise."""
    import numpy as np

    if library == "weft":
        import weft as lib
        from weft.nn import functional as F

        concat, axis = lib.concat, {"axis": -1}
    else:
        import torch as lib
        import torch.nn.functional as F

        lib.set_num_threads(2)
        concat, axis = lib.cat, {"dim": -1}
    rng = np.random.default_rng(0)

    def tensor(*shape: int, grad: bool = False) -> Any:
        values = rng.standard_normal(shape, np.float32)
        made = lib.asarray(values) if library == "weft" else lib.from_numpy(values)
        return made.requires_grad_() if grad else made

    x, w, b, s = tensor(16, 64), tensor(64, 64), tensor(64), tensor(4, 10)
    xg, wg, bg, sg = (
        tensor(16, 64, grad=True),
        tensor(64, 64, grad=True),
        tensor(64, grad=True),
        tensor(4, 10, grad=True),
    )
    y = lib.asarray(np.array([1, 2, 3, 0]))
    mean, var = s[0] + 0, s[1] * s[1]

    def both(fn: Callable[[], Any], *leaves: Any) -> Callable[[], object]:
        def run() -> None:
            for p in leaves:
                p.grad = None
            fn().sum().backward()

        return run

    return {
        "add": lambda: s + s,
        "matmul 16×64×64": lambda: x @ w,
        "matmul 16×64×64 fw+bw": both(lambda: xg @ wg, xg, wg),
        "linear 16×64×64": lambda: F.linear(x, w, b),
        "linear 16×64×64 fw+bw": both(lambda: F.linear(xg, wg, bg), xg, wg, bg),
        "sum": lambda: s.sum(),
        "mean over an axis": lambda: s.mean(-1),
        "reshape": lambda: s.reshape((2, 20)),
        "transpose": lambda: s.T,
        "x[1:3]": lambda: s[1:3],
        "x[index tensor]": lambda: s[y],
        "x[1:3] fw+bw": both(lambda: sg[1:3], sg),
        "where": lambda: lib.where(s > 0, s, s),
        "concat": lambda: concat([s, s]),
        "softmax": lambda: F.softmax(s, **axis),
        "softmax fw+bw": both(lambda: F.softmax(sg, **axis), sg),
        "cross entropy": lambda: F.cross_entropy(s, y),
        "cross entropy fw+bw": both(lambda: F.cross_entropy(sg, y), sg),
        "layer norm": lambda: F.layer_norm(s, (10,)),
        "batch norm, running statistics": lambda: F.batch_norm(s, mean, var),
        "layer norm 16×64, weights": lambda: F.layer_norm(x, (64,), b, b),
        "softmax 16×64": lambda: F.softmax(x, **axis),
        "layer norm fw+bw": both(lambda: F.layer_norm(sg, (10,)), sg),
    }


def measure(library: str) -> dict[str, float]:
    """Microseconds per call."""
    found = {}
    for name, run in cases(library).items():
        for _ in range(50):
            run()
        best = float("inf")
        for _ in range(25):
            start = time.perf_counter()
            for _ in range(80):
                run()
            best = min(best, time.perf_counter() - start)
        found[name] = best / 80 * 1e6
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default=sys.executable, metavar="PYTHON", help="the interpreter that has torch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", choices=("weft", "torch"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.child)))
        return
    root = str(Path(__file__).resolve().parent.parent)
    best: dict[str, dict[str, float]] = {"weft": {}, "torch": {}}
    for _ in range(options.rounds):
        for library, python in (("weft", sys.executable), ("torch", options.torch)):
            environment = {**os.environ, "OMP_NUM_THREADS": "2"}
            if library == "weft":
                environment["PYTHONPATH"] = root
            done = subprocess.run(
                [python, __file__, "--child", library],
                capture_output=True,
                text=True,
                env=environment,
                timeout=300,
                check=True,
            )
            for name, value in json.loads(done.stdout.splitlines()[-1]).items():
                best[library][name] = min(value, best[library].get(name, value))
    print(f"load average {os.getloadavg()[0]:.1f}, {options.rounds} rounds, best in µs")
    print(f"{'':34}{'weft':>9}{'torch':>9}{'ratio':>8}")
    for name, mine in best["weft"].items():
        theirs = best["torch"][name]
        print(f"{name:34}{mine:9.2f}{theirs:9.2f}{mine / theirs:8.2f}")


if __name__ == "__main__":
    main()
