"""Two versions of Weft beside each other: `python -m benchmarks.models.versus OLD NEW --models mlp,gpt --seconds 60`.

For a change of a few per cent, which is less than what a shared machine's speed varies by from minute to minute. OLD and NEW
are checkouts (`git worktree add --detach OLD main` makes one). Each trains the same model in a separate process, and they
take turns of a fraction of a second. A round is a turn of each, and the ratio of their medians in one round is what counts:
the table shows its median and quartiles over all rounds. Processes are started anew a few times, because where their memory
lies decides about a few per cent, too; the one that is started second is 1 to 2 % slower, so they take turns at that as well.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import store
from benchmarks.harness.process import Worker
from benchmarks.harness.turns import disagreement, quartiles

from .configurations import CONFIGURATIONS
from .runners import PACKAGE

PAUSE = 0.02  # seconds between two turns, for threads of the one before to fall asleep


def rounds(workers: list[Worker], seconds: float, turn: float) -> list[list[float]]:
    """The median step of each worker, a list per round; whose turn is first changes from round to round."""
    steps = max(3, int(turn / min(w.hello["step_seconds"] for w in workers)))
    until = time.monotonic() + seconds
    found: list[list[float]] = []
    while not found or time.monotonic() < until:
        medians = [0.0] * len(workers)
        order = range(len(workers))
        for i in order if len(found) % 2 == 0 else reversed(order):
            before = len(workers[i].seconds)
            workers[i].time(steps)
            medians[i] = statistics.median(workers[i].seconds[before:])
            time.sleep(PAUSE)
        found.append(medians)
    return found


def compare(model: str, trees: list[Path], args: argparse.Namespace) -> str:
    """A line per tree."""
    command = [sys.executable, "-m", f"{PACKAGE}.worker_weft", model, "captured"]
    found: list[list[float]] = []
    seconds: list[list[float]] = [[] for _ in trees]
    hellos: list[list[dict[str, Any]]] = [[] for _ in trees]
    for turn in range(args.starts):
        with contextlib.ExitStack() as running:
            start = lambda tree: running.enter_context(
                Worker(tree.name, command, {}, args.threads, args.patience, tree)
            )
            started = {tree: start(tree) for tree in (trees if turn % 2 == 0 else trees[::-1])}
            workers = [started[tree] for tree in trees]
            found += rounds(workers, args.seconds / args.starts, args.turn)
            for i, w in enumerate(workers):
                seconds[i] += w.seconds
                hellos[i].append(w.hello)
    lines = []
    for i, tree in enumerate(trees):
        low, middle, high = (1e3 * x for x in quartiles(seconds[i]))
        below, ratio, above = quartiles([r[0] / r[i] for r in found])
        apart = disagreement(hellos[i][0]["check"], hellos[0][0]["check"])
        first = ", ".join([f"{h['first_seconds']:.2f}" for h in hellos[i]])
        lines.append(
            f"{model:12} {tree.name:16} {1e3 * min(seconds[i]):9.3f} {low:9.3f} {middle:9.3f} {high:9.3f}   "
            f"{ratio:6.3f} ({below:.3f} to {above:.3f}), {len(found)} rounds; losses differ by {apart:.1e}; "
            f"first steps {first} s"
        )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--models", default="mlp", help="names, with commas (mlp)")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each model")
    parser.add_argument("--starts", type=int, default=4, help="how often new processes are started")
    parser.add_argument("--turn", type=float, default=0.3, help="seconds of one turn, at least three steps")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--patience", type=float, default=600.0, help="seconds to wait for a first step")
    args = parser.parse_args(argv)
    trees = [args.old.resolve(), args.new.resolve()]
    print(f"{'model':12} {'version':16} {'best':>9} {'quartile':>9} {'median':>9} {'quartile':>9} ms   speed, old = 1")
    for model in store.names(args.models, CONFIGURATIONS, "model"):
        print(compare(model, trees, args), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
