"""Compare training throughput: see `python -m benchmarks.models --help`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import peers, store
from benchmarks.harness.process import ROOT
from benchmarks.harness.protocol import BATCH
from benchmarks.harness.turns import Plan, compare

from .configurations import CONFIGURATIONS
from .runners import PACKAGE, RUNNERS, SECTION, entries


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a comparison."""
    parser.add_argument("--models", default=",".join(CONFIGURATIONS), help="names, with commas (all)")
    every = ",".join(RUNNERS)
    parser.add_argument("--runners", default=every, help=f"names, with commas; the first is the reference ({every})")
    parser.add_argument(
        "--minutes", type=float, default=90.0,
        help="for all models together, but for steps of more than half a minute; with fewer, fewer rounds",
    )  # fmt: skip
    parser.add_argument(
        "--rounds", type=int, default=21, help="at most so many for each model; 0 only checks that losses agree"
    )
    parser.add_argument("--turn", type=float, default=1.0, help="seconds of one runner's turn, at least one step")
    parser.add_argument("--batch", type=int, help="with --rounds 0: check with so few samples")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--patience", type=float, default=1500.0, help="seconds to wait for the first two or three steps"
    )
    store.add_arguments(parser, "training")
    peers.add_arguments(parser)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All models; results are saved after each."""
    interpreters = peers.interpreters(args)
    if args.batch is not None:
        if args.rounds:
            raise SystemExit("--batch: a smaller batch is for checking only. Add --rounds 0.")
        os.environ[BATCH] = str(args.batch)
    models, runners = store.names(args.models, CONFIGURATIONS, "model"), store.names(args.runners, RUNNERS, "runner")
    document = store.load(args)
    until = time.monotonic() + 60 * args.minutes
    for i, model in enumerate(models):
        c = CONFIGURATIONS[model]
        seconds = max(0.0, until - time.monotonic()) / (len(models) - i)
        print(f"{model}: batch {c.batch}, {seconds:.0f} s", flush=True)
        tolerance = c.tolerance * (1 if args.batch is None else 4)  # batch norm over few values is the more sensitive
        plan = Plan(seconds, args.rounds, args.turn, tolerance, args.threads, args.patience)
        with tempfile.TemporaryDirectory() as folder:
            weights = Path(folder) / "weights.npz"
            command = [sys.executable, "-m", f"{PACKAGE}.worker_weft", model, "export", str(weights)]
            subprocess.run(command, check=True, cwd=ROOT)
            result = compare(
                entries(model, runners, interpreters, weights), plan, say=lambda text: print(text, flush=True)
            )
        # who was timed once, see `compare`, does not take the time of the models that follow
        until += sum(r["first_seconds"] + r["median"] for r in result["rows"].values() if not r["rounds"])
        print(SECTION.lines(model, result), flush=True)
        store.put(document, "training", model, result)
        if args.rounds:
            store.save(args, document)
    return document


def main(argv: list[str] | None = None) -> int:
    about = "Training throughput, beside other frameworks."
    return store.command(argv, about, arguments, measure, SECTION, "models")


if __name__ == "__main__":
    raise SystemExit(main())
