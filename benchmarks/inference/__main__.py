"""Compare the latency of trained models: see `python -m benchmarks.inference --help`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import peers, store
from benchmarks.harness.process import ROOT
from benchmarks.harness.protocol import CLOCK, WEIGHTS
from benchmarks.harness.report import Section
from benchmarks.harness.runners import KEPT, Runner
from benchmarks.harness.turns import Entry, Plan, compare

from .configurations import CASES, Case


def _images(case: Case) -> bool:
    return case.model != "gpt"


RUNNERS = {
    "weft": Runner("weft", "frozen", "Weft, captured and frozen"),
    "weft-captured": Runner("weft", "captured", "Weft, captured"),
    "weft-eager": Runner("weft", "eager", "Weft, eager"),
    "torch": Runner("torch", "eager", "torch eager"),
    "torch-cl": Runner("torch", "channels_last", "torch eager, channels-last", covers=_images),
    "torch-compile": Runner("torch", "compile", "torch.compile, frozen"),
    "torch-cl-kept": Runner("torch", "channels_last", "torch eager, channels-last, kept memory", KEPT, _images),
    "torch-compile-kept": Runner("torch", "compile", "torch.compile, frozen, kept memory", KEPT),
    "onnxruntime": Runner("ort", "onnxruntime", "onnxruntime"),
    "openvino": Runner("ort", "openvino", "openvino"),
    "onnxruntime-kept": Runner("ort", "onnxruntime", "onnxruntime, kept memory", KEPT),
    "openvino-kept": Runner("ort", "openvino", "openvino, kept memory", KEPT),
}
SECTION = Section(
    "inference",
    {name: case.title for name, case in CASES.items()},
    RUNNERS,
    lambda name: (1, ""),
    "Inference speed relative to the fastest other framework",
)


def entries(name: str, runners: Sequence[str], interpreters: dict[str, str], folder: Path) -> list[Entry]:
    """How to start the runners that cover a case. Writes weights, and the exported model if a runner reads it."""
    case = CASES[name]
    weights, exported = folder / "weights.npz", folder / "model.onnx"
    env = {WEIGHTS: str(weights)}
    command = [sys.executable, "-m", "benchmarks.models.worker_weft", case.model, "settle", str(weights)]
    subprocess.run(command, check=True, cwd=ROOT)
    missing = ""
    if any(RUNNERS[r].framework == "ort" for r in runners) and "ort" in interpreters:
        missing = _export(name, interpreters.get("torch"), exported, env)
    found = []
    for r in runners:
        runner = RUNNERS[r]
        if not runner.covers(case):
            continue
        python = interpreters.get(runner.framework)
        reason = f"no interpreter with {runner.framework} given" if python is None else missing
        if python is None or (runner.framework == "ort" and missing):
            found.append(Entry(r, None, reason=reason))
            continue
        command = [python, "-m", f"benchmarks.inference.worker_{runner.framework}", name, runner.mode]
        found.append(Entry(r, [*command, *([str(exported)] if runner.framework == "ort" else [])], runner.env | env))
    return found


def _export(name: str, torch: str | None, path: Path, env: dict[str, str]) -> str:
    """Export with PyTorch; returns why it could not be done, or nothing."""
    if torch is None:
        return "no interpreter with torch given, which exports the model"
    command = [torch, "-m", "benchmarks.inference.export", name, str(path)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, timeout=600)
    return (
        ""
        if done.returncode == 0
        else f"torch cannot export it: {(done.stderr.strip().splitlines() or [''])[-1][:200]}"
    )


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a comparison."""
    parser.add_argument("--cases", default=",".join(CASES), help="names, with commas (all)")
    parser.add_argument(
        "--runners", default=",".join(RUNNERS), help="names, with commas (all); the first is the reference"
    )
    parser.add_argument("--minutes", type=float, default=6.0, help="for all cases together")
    parser.add_argument("--rounds", type=int, default=21, help="at most so many; 0 only checks that scores agree")
    parser.add_argument("--turn", type=float, default=1.0, help="seconds of one runner's turn, at least one step")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--clock", choices=("passing", "processor"), default="passing",
        help="time that passes, or processor time: for a busy machine, with --threads 1",
    )  # fmt: skip
    parser.add_argument("--patience", type=float, default=600.0, help="seconds to wait for a first step")
    store.add_arguments(parser, "inference")
    peers.add_arguments(parser)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All cases; results are saved after each."""
    interpreters = peers.interpreters(args)
    os.environ[CLOCK] = args.clock  # workers inherit it
    cases, runners = store.names(args.cases, CASES, "case"), store.names(args.runners, RUNNERS, "runner")
    document = store.load(args)
    until = time.monotonic() + 60 * args.minutes
    for i, name in enumerate(cases):
        seconds = max(0.0, until - time.monotonic()) / (len(cases) - i)
        print(f"{CASES[name].title}: {seconds:.0f} s", flush=True)
        plan = Plan(seconds, args.rounds, args.turn, 1e-3, args.threads, args.patience)
        with tempfile.TemporaryDirectory() as folder:
            started = entries(name, runners, interpreters, Path(folder))
            result = compare(started, plan, say=lambda text: print(text, flush=True))
        print(SECTION.lines(name, result), flush=True)
        store.put(document, "inference", name, result)
        if args.rounds:
            store.save(args, document)
    return document


def main(argv: list[str] | None = None) -> int:
    about = "Latency of trained models, beside other frameworks."
    return store.command(argv, about, arguments, measure, SECTION, "inference")


if __name__ == "__main__":
    raise SystemExit(main())
