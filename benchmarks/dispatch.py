"""What one eager op costs when the arrays are tiny: Weft beside torch, one process each, interleaved.

    python benchmarks/dispatch.py [--torch PYTHON] [--rounds N]

`--torch` names the Python interpreter that has torch (default: this one). Each round starts one process per library,
in turn, on two threads; a figure is the median over rounds of the best of many short loops within a process. Without
torch only Weft is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

SIZE = 16
GOALS = {"add": 0.8, "add, recorded": 0.6, "10-op chain, forward+backward": 0.55}
IMPORT_GOAL = 0.4


def best_time(fn: Callable[[], object], loops: int, repeats: int = 60) -> float:
    """Seconds per call: the best of many short loops, which is the cost of the code without interruptions."""
    for _ in range(loops):
        fn()
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(loops):
            fn()
        best = min(best, time.perf_counter() - start)
    return best / loops


def measure(library: str) -> dict[str, float]:
    """The figures of one library in this process, in microseconds (the import in seconds)."""
    start = time.perf_counter()
    if library == "weft":
        import weft as lib
    else:
        import torch as lib  # type: ignore[import-not-found, no-redef]

        lib.set_num_threads(2)
    imported = time.perf_counter() - start
    values = [i / SIZE + 0.5 for i in range(SIZE)]
    x, y = lib.tensor(values), lib.tensor(values)
    p = lib.tensor(values, requires_grad=True)
    w = lib.tensor([1.0])
    exp, tanh, sigmoid = lib.exp, lib.tanh, lib.sigmoid

    def add() -> object:
        return x + y

    def recorded() -> object:
        return p + y

    def chain() -> object:
        p.grad = None
        a = p * x
        a = a + y
        a = tanh(a)
        a = a * p
        a = a - x
        a = exp(a)
        a = a + w
        a = sigmoid(a)
        a = a * y
        a.sum().backward()
        return p.grad

    figures = {
        "add": best_time(add, 400) * 1e6,
        "add, recorded": best_time(recorded, 400) * 1e6,
        "10-op chain, forward+backward": best_time(chain, 30) * 1e6,
        "import": imported,
    }
    if library == "weft":
        figures["add of a number"] = best_time(lambda: x + 1.5, 400) * 1e6
        figures["exp"] = best_time(lambda: exp(x), 400) * 1e6
        figures["x[3:9]"] = best_time(lambda: x[3:9], 400) * 1e6
        figures["sum"] = best_time(lambda: x.sum(), 200) * 1e6
        figures["reshape"] = best_time(lambda: x.reshape(4, 4), 200) * 1e6
        m = x.reshape(4, 4)
        figures["matmul 4x4"] = best_time(lambda: m @ m, 200) * 1e6
    return figures


def run_child(python: str, library: str) -> dict[str, float] | None:
    """Measure `library` in a fresh process of `python`; None if it is not installed there."""
    root = Path(__file__).resolve().parent.parent
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # imports are measured as users have them, compiled
    if library == "weft":
        environment["PYTHONPATH"] = str(root)
        environment["PYTHONPYCACHEPREFIX"] = str(Path(tempfile.gettempdir()) / "weft-benchmark-bytecode")
    done = subprocess.run(
        [python, __file__, "--child", library],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=False,
    )
    if done.returncode:
        if "ModuleNotFoundError" in done.stderr:
            return None
        raise RuntimeError(f"the {library} process failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default=sys.executable, metavar="PYTHON", help="the interpreter that has torch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", choices=("weft", "torch"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.child)))
        return
    rounds: dict[str, list[dict[str, float]]] = {"weft": [], "torch": []}
    for _ in range(options.rounds):
        for library, python in (("weft", sys.executable), ("torch", options.torch)):
            figures = run_child(python, library)
            if figures is not None:
                rounds[library].append(figures)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {options.rounds} rounds")
    print(f"{'':32}{'weft':>10}{'torch':>10}{'ratio':>8}{'goal':>8}")
    for name in rounds["weft"][0]:
        mine = statistics.median(f[name] for f in rounds["weft"])
        theirs = [f[name] for f in rounds["torch"] if name in f]
        unit = "s" if name == "import" else "µs"
        line = f"{name:32}{mine:8.2f} {unit:2}"
        if theirs:
            other = statistics.median(theirs)
            line += f"{other:7.2f} {unit:2}{mine / other:8.2f}"
            if name in GOALS:
                line += f"{GOALS[name]:8.2f}" + ("" if mine / other <= GOALS[name] else "  missed")
        if name == "import":
            line += f"   goal {IMPORT_GOAL} s" + ("" if mine <= IMPORT_GOAL else "  missed")
        print(line)


if __name__ == "__main__":
    main()
