"""Sessions over several processes: Weft's clusters and, beside them, TensorFlow's `tf.distribute.Server`.

    python benchmarks/distributed/sessions.py                        # Weft, within a host and over TCP
    python benchmarks/distributed/sessions.py --beside PYTHON        # and TensorFlow, with an interpreter that has it
    python benchmarks/distributed/sessions.py --json FILE            # write the figures

Cases: a null step (a scalar on a parameter server goes to a worker and comes back as its update), a dense read of 100 MB (and
1 GB) of a variable by a worker, and 32 rows of a table that a worker reads and updates. The frameworks take turns, one round of
each case at a time, so that both meet the same machine; figures are medians over all rounds. Processes: a client, a server and
a worker with one thread each.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
ROWS = 32
WIDTH = 64
ROUNDS = 9
CASES = ("null step", "dense 100 MB", "dense 1 GB", "sparse, 256 MB table", "sparse, 1 GB table", "sparse, 4 GB table")
CALLS = {"null step": 200, "dense 100 MB": 4, "dense 1 GB": 1}  # per round; of sparse cases 100
BYTES = {"dense 100 MB": 100 << 20, "dense 1 GB": 1 << 30}
TABLES = {"sparse, 256 MB table": 1 << 28, "sparse, 1 GB table": 1 << 30, "sparse, 4 GB table": 1 << 32}
Call = Callable[[], Any]


def ids_of(rows: int) -> Callable[[], np.ndarray]:
    rng = np.random.default_rng(0)
    return lambda: rng.integers(0, rows, ROWS)


# Weft ---------------------------------------------------------------------------------------------------------------


def weft_cases(transport: str, names: list[str]) -> tuple[dict[str, Call], Call]:
    """The calls of each case, and what ends the cluster."""
    sys.path.insert(0, str(ROOT))
    import weft as wf

    cluster = wf.distributed.Cluster(ps=1, worker=1, transport=transport, threads=1)
    ps, worker = "/job:ps/task:0", "/job:worker/task:0"
    cases: dict[str, Call] = {}
    sessions = []
    for name in names:
        graph = wf.Graph(name)
        with graph.as_default():
            if name == "null step":
                with wf.device(ps):
                    w = wf.Variable.remote((), init=1.0)
                with wf.device(worker):
                    half = w * 0.5
                fetch, feeds, make = wf.group(w.assign_sub(half)), [], None
            elif name in BYTES:
                with wf.device(ps):
                    w = wf.Variable.remote((BYTES[name] // 4 // 1024, 1024), init=1.0)
                with wf.device(worker):
                    fetch = w[0, 0] + 1.0
                feeds, make = [], None
            else:
                rows = TABLES[name] // 4 // WIDTH
                ids = wf.placeholder(wf.int64, (ROWS,))
                with wf.device(ps):
                    table = wf.Variable.remote((rows, WIDTH), init=1.0)
                    taken = wf.take(table, ids, axis=0)
                with wf.device(worker):
                    change = taken * -0.01
                fetch, feeds, make = wf.group(table.scatter_add(ids, change)), [ids], ids_of(rows)
        session = wf.Session(graph, cluster=cluster)
        sessions.append(session)
        cases[name] = _call(session.make_callable(fetch, feeds), make)
    return cases, cluster.close


def _call(run: Callable[..., Any], make: Callable[[], np.ndarray] | None) -> Call:
    return run if make is None else lambda: run(make())


# TensorFlow ---------------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def tensorflow_cases(names: list[str]) -> tuple[dict[str, Call], Call]:
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    import tensorflow as tf

    v1 = tf.compat.v1
    v1.disable_eager_execution()
    spec = {"ps": [f"127.0.0.1:{free_port()}"], "worker": [f"127.0.0.1:{free_port()}"]}
    program = (
        "import json, sys, tensorflow as tf\n"
        "config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=2)\n"
        "tf.distribute.Server(json.loads(sys.argv[1]), sys.argv[2], 0, config=config).join()\n"
    )
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    servers = [subprocess.Popen([sys.executable, "-c", program, json.dumps(spec), job], **quiet) for job in spec]
    ps, worker = "/job:ps/task:0", "/job:worker/task:0"
    session = v1.Session(f"grpc://{spec['worker'][0]}")
    cases: dict[str, Call] = {}
    for name in names:
        if name == "null step":
            with tf.device(ps):
                w = v1.get_variable("null", initializer=1.0, use_resource=True)
            with tf.device(worker):
                half = w * 0.5
            with tf.device(ps):
                fetch = w.assign_sub(half).op
            session.run(w.initializer)
            cases[name] = session.make_callable(fetch)
        elif name in BYTES:
            with tf.device(ps):
                shape = (BYTES[name] // 4 // 1024, 1024)
                w = v1.get_variable(name.replace(" ", "_"), shape, initializer=v1.ones_initializer(), use_resource=True)
                whole = w.read_value()
            with tf.device(worker):
                fetch = whole[0, 0] + 1.0
            session.run(w.initializer)
            cases[name] = session.make_callable(fetch)
        else:
            rows = TABLES[name] // 4 // WIDTH
            ids = v1.placeholder(tf.int64, (ROWS,))
            with tf.device(ps):
                label = name.replace(" ", "_").replace(",", "")
                table = v1.get_variable(label, (rows, WIDTH), initializer=v1.ones_initializer(), use_resource=True)
                taken = tf.gather(table, ids)
            with tf.device(worker):
                change = taken * -0.01
            with tf.device(ps):
                fetch = table.scatter_add(tf.IndexedSlices(change, ids)).op
            session.run(table.initializer)
            cases[name] = _call(session.make_callable(fetch, [ids]), ids_of(rows))

    def close() -> None:
        session.close()
        for server in servers:
            server.kill()
            server.wait(10)

    return cases, close


# Taking turns -------------------------------------------------------------------------------------------------------


def serve(kind: str, names: list[str]) -> None:
    """A worker process: runs the round that each line of its input names and prints the seconds of every call."""
    cases, close = tensorflow_cases(names) if kind == "tensorflow" else weft_cases(kind, names)
    try:
        for name in names:
            for _ in range(3):
                cases[name]()
        print("ready", flush=True)
        for line in sys.stdin:
            name = line.strip()
            call, times = cases[name], []
            for _ in range(CALLS.get(name, 100)):
                begun = time.perf_counter()
                call()
                times.append(time.perf_counter() - begun)
            print(json.dumps(times), flush=True)
    finally:
        close()


class Contender:
    """A framework in a process of its own."""

    def __init__(self, label: str, python: str, kind: str, names: list[str]) -> None:
        self.label = label
        command = [python, __file__, "--serve", kind, "--cases", json.dumps(names)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.times: dict[str, list[float]] = {name: [] for name in names}
        if self._line() != "ready":
            raise SystemExit(f"{label} does not start.")

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def round(self, name: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        self.times[name] += json.loads(self._line())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


def compare(peer: str | None, names: list[str], rounds: int) -> dict[str, dict[str, float]]:
    """Seconds of every case in every framework: the median of all calls."""
    contenders = [
        Contender("weft", sys.executable, "auto", names),
        Contender("weft, tcp", sys.executable, "tcp", names),
    ]
    if peer is not None:
        contenders.append(Contender("tensorflow", peer, "tensorflow", names))
    try:
        for _ in range(rounds):
            for name in names:
                for contender in contenders:
                    contender.round(name)
    finally:
        for contender in contenders:
            contender.close()
    return {name: {c.label: statistics.median(c.times[name]) for c in contenders} for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", metavar="PYTHON", help="an interpreter that has TensorFlow")
    parser.add_argument(
        "--cases", default=json.dumps(CASES[:5]), help="names of the cases, as JSON; all: " + json.dumps(CASES)
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    names = json.loads(given.cases)
    if given.serve:
        serve(given.serve, names)
        return
    results = compare(given.beside, names, given.rounds)
    for name, times in results.items():
        peer = times.get("tensorflow")
        print(f"{name:24}", end="")
        for label, seconds in times.items():
            ratio = f" ({seconds / peer:.2f}x)" if peer and label != "tensorflow" else ""
            print(f"  {label} {seconds * 1e6:,.0f} us{ratio}", end="")
        print()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    if given.json:
        Path(given.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
