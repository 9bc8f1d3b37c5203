"""The time of a synchronous training step on two workers, beside torch's DDP and beside one worker alone.

    python -m benchmarks.distributed.steps --torch PYTHON [--rounds N] [--tasks mlp,wide,resnet,ncf] [--out FILE.json]

`PYTHON` is the interpreter of an environment that has torch; without it only Weft is timed. Every worker has one thread and a
batch of its own: two workers train on twice as many samples per step as one. Each contestant runs in processes of its own; they
take turns, and the table compares medians of one run. "Alone" is the step of one process, captured as a whole, with the batch of
one worker. Before anything is timed, all of them must have computed the same losses.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.distributed.groups import Group, GroupError, follow
from benchmarks.distributed.step_models import TASKS, data, torch_model, weft_model
from benchmarks.harness import machine

CHECK_STEPS = 6
MAX_OF_DDP, MAX_OF_ALONE = 0.6, 1.15
"""the bars: of torch DDP's time, and of one worker's alone"""


# In the processes that are timed ----------------------------------------------------------------------------------------


def run_weft(name: str, workers: int) -> None:
    """A process of Weft: under `weft run` one of the workers, else the only one."""
    import weft as wf
    from weft import distributed, optim

    model, loss_of = weft_model(name)
    optimizer = optim.SGD(model.parameters(), lr=TASKS[name].rate)

    @distributed.step(optimizer)
    def train(*batch: Any) -> Any:
        loss = loss_of(model(*batch[:-1]), batch[-1])
        loss.backward()
        return loss

    batches = itertools.cycle([[wf.asarray(a) for a in b] for b in data(name, workers)])
    losses: list[float] = []

    def step() -> None:
        losses.append(float(train(*next(batches))))

    follow(step, distributed.is_lead, lambda: {"losses": losses[:CHECK_STEPS]})


def run_torch(name: str, workers: int) -> None:
    """A process of torch: under torchrun one of the workers, else the only one."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    model, loss_of = torch_model(name)
    rank = 0
    whole = model
    if workers > 1:
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(whole.parameters(), lr=TASKS[name].rate)
    size = TASKS[name].batch
    mine = slice(rank * size, (rank + 1) * size)
    batches = itertools.cycle([[torch.from_numpy(a[mine]) for a in b] for b in data(name, workers)])
    losses: list[float] = []

    def step() -> None:
        *inputs, target = next(batches)
        optimizer.zero_grad()
        loss = loss_of(model(*inputs), target)
        loss.backward()
        optimizer.step()
        if len(losses) < CHECK_STEPS and workers > 1:
            dist.all_reduce(loss.detach())  # the mean over the batches of all workers, as Weft reports it
            loss = loss / workers
        losses.append(loss.item())

    follow(step, lambda: rank == 0, lambda: {"losses": losses[:CHECK_STEPS]})
    if workers > 1:
        dist.destroy_process_group()


# In the process that compares -------------------------------------------------------------------------------------------


def contestants(name: str, torch: str | None) -> list[Callable[[], Group]]:
    """What is compared: Weft alone, on two workers with two shards and with eight, torch alone and with DDP."""
    me = "benchmarks.distributed.steps"
    alone = [sys.executable, "-m", me, "--as", "weft", "--tasks", name]
    run = [sys.executable, "-m", "weft", "run", "--workers", "2", "--threads", "1", "--engine", "local"]
    found = [
        lambda: Group("alone", alone),
        lambda: Group("2 shards", [*run, "--shards", "2", "-m", me, "--as", "weft", "--tasks", name, "--workers", "2"]),
        lambda: Group("8 shards", [*run, "-m", me, "--as", "weft", "--tasks", name, "--workers", "2"]),
    ]
    if torch is not None:
        launch = [torch, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", me]
        found += [
            lambda: Group("torch alone", [torch, "-m", me, "--as", "torch", "--tasks", name]),
            lambda: Group("torch DDP", [*launch, "--as", "torch", "--tasks", name, "--workers", "2"]),
        ]
    return found


def compare(name: str, torch: str | None, rounds: int, turn: float) -> dict[str, Any]:
    """The seconds per step of every contestant: {name: {"median": …, "steps": …, "losses": […]}}."""
    groups: list[Group] = []
    rows: dict[str, Any] = {}
    try:
        for start in contestants(name, torch):
            try:
                groups.append(start())
                losses = groups[-1].order(CHECK_STEPS)["losses"]
            except GroupError as error:
                print(f"  {error}", flush=True)
                groups.pop().close()
                continue
            rows[groups[-1].name] = {"losses": losses}
        counts = {}
        for group in groups:
            group.time(10)
            counts[group] = max(3, min(2000, round(turn / statistics.median(group.time(5)))))
            group.seconds.clear()
        load, before = os.getloadavg()[0], machine.sample([g.process.pid for g in groups])
        for _ in range(rounds):
            for group in groups:
                group.time(counts[group])
        business = machine.between(before, machine.sample([g.process.pid for g in groups]), load)
        for group in groups:
            rows[group.name].update(median=statistics.median(group.seconds), steps=len(group.seconds))
    finally:
        for group in groups:
            group.close()
    _check(name, rows)
    return {"rows": rows, "machine": str(business)}


def _check(name: str, rows: dict[str, Any]) -> None:
    """Those that train on the same samples must see the same losses."""
    for one, other in (("2 shards", "torch DDP"), ("alone", "torch alone"), ("2 shards", "8 shards")):
        if one in rows and other in rows and not (name == "resnet" and other == "8 shards"):  # batch norm per shard
            a, b = rows[one]["losses"], rows[other]["losses"]
            worst = max(abs(x - y) for x, y in zip(a, b, strict=True))
            if worst > 2e-3:
                raise SystemExit(f"{name}: {one} and {other} disagree: {a} and {b}")


def table(results: dict[str, Any]) -> str:
    """A markdown table."""
    names = ["alone", "2 shards", "8 shards", "torch alone", "torch DDP"]
    lines = [
        "| milliseconds per step | " + " | ".join(names) + " | 2 shards / DDP | 2 shards / alone |", "|---" * 8 + "|"
    ]  # fmt: skip
    for task, found in results.items():
        medians = {key: row.get("median") for key, row in found["rows"].items()}
        cells = [f"{medians[key] * 1e3:.2f}" if medians.get(key) else "–" for key in names]
        for other, most in (("torch DDP", MAX_OF_DDP), ("alone", MAX_OF_ALONE)):
            if medians.get(other) and medians.get("2 shards"):
                ratio = medians["2 shards"] / medians[other]
                cells.append(f"{ratio:.2f} ({'met' if ratio <= most else 'missed'}: at most {most})")
            else:
                cells.append("–")
        lines.append(f"| {TASKS[task].title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter that has torch")
    parser.add_argument("--tasks", default=",".join(TASKS), help=f"of {', '.join(TASKS)}")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contestant (7)")
    parser.add_argument("--turn", type=float, default=1.0, metavar="SECONDS", help="how long one takes (1)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the results as JSON")
    parser.add_argument("--as", dest="framework", choices=["weft", "torch"], help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=1, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.framework is not None:
        (run_weft if args.framework == "weft" else run_torch)(args.tasks, args.workers)
        return
    if args.torch is None:
        print("torch: skipped, no interpreter is given (--torch PYTHON)")
    results = {}
    for name in args.tasks.split(","):
        results[name] = compare(name, args.torch, args.rounds, args.turn)
        print(f"{TASKS[name].title}: {results[name]['machine']}", flush=True)
    print(f"\n{date.today()}, {machine.describe()}\n\n{table(results)}")
    if args.out is not None:
        args.out.write_text(json.dumps({"date": str(date.today()), "machine": machine.describe(), "results": results}))


if __name__ == "__main__":
    main()
