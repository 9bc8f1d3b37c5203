"""One of four workers is three times slower: plain synchronous steps, beside backups and stealing.

    python -m benchmarks.distributed.stragglers [--steps N] [--rounds N] [--out FILE.json]

Computing is simulated by sleeping, in proportion to the samples of a shard, so that two processors suffice for four workers. The
global batch is the same everywhere: a worker that is not slow needs 60 ms for its quarter.

* *plain*: four shards, and copies are switched off, so every step takes as long as the slow worker.
* *backup*: four shards; workers that have finished compute a copy of the shard that would end last.
* *stealing*: sixteen shards; workers that have finished take those that are left.
The weights after the run must be those of a run without a slow worker, bit by bit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.distributed.groups import Group, follow
from benchmarks.harness import machine

WORKERS, FACTOR, BATCH, SECONDS = 4, 3.0, 64, 0.060
BARS = {"backup": 1.15, "stealing": 2.0}
"""the bars: times as fast as plain"""
SHARDS = {"plain": 4, "backup": 4, "stealing": 16}


def worker(mode: str, slow: bool) -> None:
    """One of the workers of a run."""
    import numpy as np

    import weft as wf
    from weft import distributed, nn, optim
    from weft.distributed.team import Team

    if mode == "plain":
        Team.patience_with = lambda self, member: float("inf")  # type: ignore[method-assign]
    pace = FACTOR if slow and os.environ["WEFT_DISTRIBUTED_WORKER"] == str(WORKERS - 1) else 1.0
    wf.manual_seed(0)
    model = nn.Linear(8, 4)
    optimizer = optim.SGD(model.parameters(), lr=0.01)

    @distributed.step(optimizer, capture=False)
    def train(x: Any, y: Any) -> Any:
        time.sleep(pace * SECONDS * x.shape[0] / (BATCH / WORKERS))
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    rng = np.random.default_rng(0)
    x, y = (wf.asarray(rng.standard_normal((BATCH, n), np.float32)) for n in (8, 4))

    def digest() -> dict[str, str]:
        return {
            "digest": hashlib.sha256(b"".join(p.numpy().tobytes() for p in model.state_dict().values())).hexdigest()
        }

    follow(lambda: train(x, y), distributed.is_lead, digest)


def group(mode: str, slow: bool) -> Group:
    program = ["-m", "benchmarks.distributed.stragglers", "--worker", mode, *(["--slow"] if slow else [])]
    run = f"weft run --workers {WORKERS} --threads 1 --shards {SHARDS[mode]} --engine local"
    return Group(mode, [sys.executable, "-m", *run.split(), *program])


def measure(steps: int, rounds: int) -> dict[str, Any]:
    """The seconds per step of each mode, in turns, and whether the bits are those of a run without a slow worker."""
    groups = [group(mode, True) for mode in SHARDS]
    rows: dict[str, Any] = {}
    try:
        for one in groups:
            one.time(12)  # programs, and figures about who is slow
            one.seconds.clear()
        digests = {}
        for _ in range(rounds):
            for one in groups:
                answer = one.order(steps)
                # Of a whole turn: the lead may be the slow worker, for whom a step that others took already is none.
                one.seconds.append(statistics.fmean(answer["seconds"]))
                digests[one.name] = answer["digest"]
        total = groups[0].steps
        for one in groups:
            rows[one.name] = {"median": statistics.median(one.seconds), "steps": steps * len(one.seconds)}
    finally:
        for one in groups:
            one.close()
    for mode in SHARDS:
        if mode != "backup":  # its bits are those of plain
            calm = group(mode, False)
            try:
                expected = calm.order(total)["digest"]
            finally:
                calm.close()
        rows[mode]["same_bits"] = digests[mode] == expected
    return rows


def table(rows: dict[str, Any]) -> str:
    """A markdown table."""
    plain = rows["plain"]["median"]
    lines = ["| one of 4 workers 3× slower | ms per step | times plain | bits |", "|---|---|---|---|"]
    for mode, row in rows.items():
        ratio = plain / row["median"]
        bar = f" ({'met' if ratio >= BARS[mode] else 'missed'}: at least {BARS[mode]})" if mode in BARS else ""
        lines.append(
            f"| {mode}, {SHARDS[mode]} shards | {row['median'] * 1e3:.0f} | {ratio:.2f}{bar} | "
            f"{'unchanged' if row['same_bits'] else 'DIFFERENT'} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="of one turn (20)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each mode (3)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the results as JSON")
    parser.add_argument("--worker", choices=list(SHARDS), help=argparse.SUPPRESS)
    parser.add_argument("--slow", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker is not None:
        worker(args.worker, args.slow)
        return
    load = os.getloadavg()[0]
    rows = measure(args.steps, args.rounds)
    print(f"{date.today()}, {machine.describe()}, load average {load:.1f} before\n\n{table(rows)}")
    if args.out is not None:
        args.out.write_text(json.dumps({"date": str(date.today()), "machine": machine.describe(), "rows": rows}))


if __name__ == "__main__":
    main()
