"""Seconds from the command to the first step of a run.

    python -m benchmarks.distributed.startup [--rounds N] [--out FILE.json]

Each round starts `weft train digits --workers 2` once with every engine, in turns, and reads from the events of the run when the
first step was committed. The first round is not counted: it may compile what later ones find in the cache.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import machine

BARS = {"ray": 8.0, "local": 2.0}
"""seconds, at most"""
SECONDS = 300


def first_step(engine: str) -> float:
    """Seconds from the start of the command to the first step of its run."""
    with tempfile.TemporaryDirectory() as folder:
        events = Path(folder) / "events.jsonl"
        command = f"-m weft train digits --workers 2 --epochs 1 --engine {engine} --out {folder}/run --events {events}"
        started = time.time()
        ran = subprocess.run([sys.executable, *command.split()], capture_output=True, text=True, timeout=SECONDS)
        if ran.returncode:
            raise RuntimeError(f"{engine}: the run failed:\n{ran.stderr[-2000:]}")
        (seen,) = [e for e in map(json.loads, events.read_text().splitlines()) if e["event"] == "first_step"]
        return float(seen["time"]) - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="that count (3)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the results as JSON")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    found: dict[str, list[float]] = {engine: [] for engine in BARS}
    for number in range(args.rounds + 1):
        for engine, seconds in found.items():
            taken = first_step(engine)
            if number:
                seconds.append(taken)
    rows: dict[str, Any] = {engine: statistics.median(seconds) for engine, seconds in found.items()}
    print(f"{machine.describe()}, load average {load:.1f} before\n")
    print("| engine | first step after | bar |\n|---|---|---|")
    for engine, taken in rows.items():
        print(
            f"| {engine} | {taken:.1f} s | {'met' if taken <= BARS[engine] else 'missed'}: at most {BARS[engine]:.0f} s |"
        )
    if args.out is not None:
        args.out.write_text(json.dumps({"machine": machine.describe(), "seconds": found}))


if __name__ == "__main__":
    main()
