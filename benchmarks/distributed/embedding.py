"""Sharded embeddings: the time of an update of 32 rows, and a table that no single process may hold.

    python -m benchmarks.distributed.embedding                          # updates of tables of 1 and 4 GB
    python -m benchmarks.distributed.embedding --beside PYTHON          # and TensorFlow's, with an interpreter that has it
    python -m benchmarks.distributed.embedding --large                  # 2 GB on 4 servers of 800 MB, then on 3
    python -m benchmarks.distributed.embedding --json FILE              # write the figures

An update looks up 32 random rows of 64 float32 numbers and sends a gradient for each back, which the server applies; all rows of
the table exist. Cases take turns; figures are medians over all rounds. TensorFlow's case is that of `sessions.py`: the same
rows go from a parameter server to a worker and back as an update.

`--large` limits the writable memory of every server to what it had before the table plus 800 MB (RLIMIT_DATA), trains on random
rows, writes a checkpoint, ends the cluster, and goes on with the checkpoint on 3 servers; rows are compared with the expected
values.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from weft import nn, optim
from weft.distributed import Cluster, Embedding
from weft.distributed.embedding_init import first_rows

from .sessions import ROUNDS, ROWS, WIDTH, Contender

CALLS = 100  # per round
GIGABYTE = 1 << 30
PEER_CASE = "sparse, 1 GB table"
LIMIT = 800 << 20  # of the memory of a server, beside what it has before the table
LARGE_ROWS = 2 * GIGABYTE // (4 * WIDTH)
RATE = 0.5
INIT = nn.init.normal(0.1, seed=17)


# The time of an update ----------------------------------------------------------------------------------------------


@contextmanager
def update(cluster: Cluster, gigabytes: int) -> Iterator[Callable[[], None]]:
    """A call that looks 32 rows of a table of this size up and updates them."""
    rows = gigabytes * GIGABYTE // (4 * WIDTH)
    with Embedding(rows, WIDTH, optimizer=partial(optim.SGD, lr=0.01), cluster=cluster, init=INIT) as table:
        table.materialize()
        rng = np.random.default_rng(0)

        def call() -> None:
            ids = rng.integers(0, rows, ROWS)
            table.push(ids, table.pull(ids))

        yield call


def measure(sizes: list[int], peer: str | None, rounds: int) -> dict[str, float]:
    """Seconds per update: the median of all calls."""
    times: dict[str, list[float]] = {f"weft, {size} GB": [] for size in sizes}
    beside = Contender("tensorflow", peer, "tensorflow", [PEER_CASE]) if peer else None
    with Cluster(ps=1, threads=1) as cluster:
        calls, ending = [], []
        for size in sizes:
            opened = update(cluster, size)
            calls.append(opened.__enter__())
            ending.append(opened)
        for call in calls:
            for _ in range(CALLS):
                call()
        for _ in range(rounds):
            for call, taken in zip(calls, times.values(), strict=True):
                for _ in range(CALLS):
                    begun = time.perf_counter()
                    call()
                    taken.append(time.perf_counter() - begun)
            if beside is not None:
                beside.round(PEER_CASE)
        for opened in ending:
            opened.__exit__(None, None, None)
    if beside is not None:
        times["tensorflow, 1 GB"] = beside.times[PEER_CASE]
        beside.close()
    return {name: statistics.median(taken) for name, taken in times.items()}


# A table that no process may hold -----------------------------------------------------------------------------------


def limit_servers(cluster: Cluster) -> None:
    """Let every server have no more than LIMIT of writable memory beyond what it has now."""
    for pid in [task["pid"] for task in cluster.tasks.values()]:
        most = status_of(pid, "VmData") + LIMIT
        resource.prlimit(pid, resource.RLIMIT_DATA, (most, most))


def status_of(pid: int, name: str) -> int:
    """A size in the kernel's status of a process, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def train(table: Embedding, updates: dict[int, int], steps: int, rng: np.random.Generator) -> None:
    """Updates with gradients of ones; `updates` counts them per row."""
    for _ in range(steps):
        ids = rng.choice(LARGE_ROWS, 256, replace=False)
        table.push(ids, np.ones((len(ids), WIDTH), np.float32))
        for row in ids.tolist():
            updates[row] = updates.get(row, 0) + 1


def check(table: Embedding, updates: dict[int, int], rng: np.random.Generator) -> None:
    rows = np.concatenate([np.fromiter(updates, np.int64), rng.integers(0, LARGE_ROWS, 1000)])
    expected = first_rows(INIT, rows, WIDTH, np.dtype(np.float32))
    for _ in range(max(updates.values())):
        more = np.array([updates.get(row, 0) for row in rows.tolist()]) > 0
        expected[more] -= np.float32(RATE)
        updates = {row: count - 1 for row, count in updates.items()}
    found = table.pull(rows).numpy()
    if not np.allclose(found, expected, rtol=1e-6, atol=1e-6):
        raise SystemExit("the rows are not what they should be.")


def large() -> dict[str, Any]:
    """2 GB on 4 servers, checkpoint, 3 servers; returns seconds and memory."""
    directory = tempfile.mkdtemp(prefix="weft-embedding-")
    rng, updates = np.random.default_rng(1), dict[int, int]()
    make = partial(Embedding, LARGE_ROWS, WIDTH, optimizer=partial(optim.SGD, lr=RATE), init=INIT)
    facts: dict[str, Any] = {"table bytes": 4 * WIDTH * LARGE_ROWS}
    try:
        for servers in (4, 3):
            with Cluster(ps=servers, threads=1) as cluster, make(cluster=cluster) as table:
                limit_servers(cluster)
                begun = time.perf_counter()
                if servers == 4:
                    table.materialize()
                else:
                    table.load(os.path.join(directory, "table"))
                facts[f"{servers} servers, seconds to {'make' if servers == 4 else 'load'} all rows"] = since(begun)
                check(table, updates or {0: 0}, rng)
                train(table, updates, 50, rng)
                check(table, updates, rng)
                if table.info()["rows"] != LARGE_ROWS:
                    raise SystemExit(f"{table.info()['rows']} rows exist; expected {LARGE_ROWS}.")
                if servers == 4:
                    begun = time.perf_counter()
                    table.save(os.path.join(directory, "table"))
                    facts["seconds to write a checkpoint"] = since(begun)
                found = [status_of(task["pid"], "VmHWM") >> 20 for task in cluster.tasks.values()]
                facts[f"{servers} servers, peak resident MB, with the code"] = found
    finally:
        shutil.rmtree(directory)
    return facts


def since(begun: float) -> float:
    return round(time.perf_counter() - begun, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", metavar="PYTHON", help="an interpreter that has TensorFlow")
    parser.add_argument("--sizes", default="1,4", help="of tables, in GB")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--large", action="store_true", help="the table that no process may hold")
    parser.add_argument("--json", metavar="FILE")
    given = parser.parse_args()
    results: dict[str, Any]
    if given.large:
        results = large()
        for name, value in results.items():
            print(f"{name:44} {value}")
    else:
        results = measure([int(size) for size in given.sizes.split(",")], given.beside, given.rounds)
        peer = results.get("tensorflow, 1 GB")
        for name, seconds in results.items():
            ratio = f" ({seconds / peer:.2f}x)" if peer and name != "tensorflow, 1 GB" else ""
            print(f"update of {ROWS} rows, {name:20} {seconds * 1e6:,.0f} us{ratio}")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    if given.json:
        Path(given.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
