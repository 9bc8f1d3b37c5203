"""All-reduce between two processes of one machine, beside torch's gloo.

    python -m benchmarks.distributed.allreduce --torch PYTHON [--rounds N]

`PYTHON` is the interpreter of an environment that has torch; without it only Weft is timed. Each framework runs two
processes of its own, with one thread each. They take turns, and while one is timed the other one sleeps. A call sums a
float32 tensor over both processes, in place: an ordinary tensor, and for Weft also one in shared memory
(`distributed.empty`). The times are those of rank 0; the ratios compare medians of the same run.

With `--pin` the ranks of each framework get a processor each. On a machine that has other work the system often runs
both ranks on one processor, for which no all-reduce is made.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"4 KB": 4 << 10, "1 MB": 1 << 20, "100 MB": 100 << 20}
CALLS = {"4 KB": 300, "1 MB": 60, "100 MB": 3}
"""of one turn"""
BARS = {"shared": (0.1, 0.1, 0.4), "ordinary": (0.1, 0.3, 0.7)}
"""at most so much of gloo's time"""
WEFT, TORCH = "weft", "torch gloo"
STARTUP_SECONDS = 120.0
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "WEFT_NUM_THREADS"), "1")


# In the processes that are timed ----------------------------------------------------------------------------------------


class Rank:
    """What a framework offers: rank 0 gets orders, tells the other rank, and both carry them out."""

    rank: int

    def share(self, order: list[int]) -> list[int]:
        """The order of rank 0, on both."""
        raise NotImplementedError

    def case(self, kind: str, count: int) -> Callable[[], Any]:
        """A function that sums `count` numbers in place."""
        raise NotImplementedError

    def check(self) -> float:
        """The sum of 1 and 2 over the ranks."""
        raise NotImplementedError


class WeftRank(Rank):
    def __init__(self) -> None:
        import numpy as np

        import weft as wf
        from weft import distributed

        self.np, self.wf, self.d = np, wf, distributed
        self.rank = distributed.rank()

    def share(self, order: list[int]) -> list[int]:
        return [int(v) for v in self.d.broadcast(self.np.array(order, self.np.int64)).numpy()]

    def case(self, kind: str, count: int) -> Callable[[], Any]:
        x = self.d.empty(count) if kind == "shared" else self.wf.zeros(count)
        return lambda: self.d.all_reduce(x, out=x)

    def check(self) -> float:
        return float(self.d.all_reduce(self.np.float32(self.rank + 1)))


class TorchRank(Rank):
    def __init__(self, rank: int, store: str) -> None:
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
        self.torch, self.d, self.rank = torch, dist, rank

    def share(self, order: list[int]) -> list[int]:
        tensor = self.torch.tensor(order)
        self.d.broadcast(tensor, 0)
        return [int(v) for v in tensor]

    def case(self, kind: str, count: int) -> Callable[[], Any]:
        x = self.torch.zeros(count)
        return lambda: self.d.all_reduce(x)

    def check(self) -> float:
        x = self.torch.tensor(self.rank + 1.0)
        self.d.all_reduce(x)
        return float(x)


KINDS = ("shared", "ordinary")


def serve(rank: Rank, path: str, pin: bool) -> None:
    """Time what rank 0 is asked for over a socket: {"kind", "bytes", "calls"} -> {"seconds"}, until it is closed."""
    if pin:
        processors = sorted(os.sched_getaffinity(0))
        for thread in os.listdir("/proc/self/task"):  # those that the frameworks have started, too
            os.sched_setaffinity(int(thread), {processors[rank.rank % len(processors)]})
    with contextlib.ExitStack() as stack:
        lines = None
        if rank.rank == 0:
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(path)
            lines = stack.enter_context(connection.makefile("rw"))
        checked = rank.check()
        cases: dict[tuple[int, int], Callable[[], Any]] = {}
        if lines is not None:
            print(json.dumps({"ready": checked}), file=lines, flush=True)
        while True:
            order = [0, 0, 0]
            line = lines.readline() if lines is not None else ""
            if line:
                asked = json.loads(line)
                order = [KINDS.index(asked["kind"]), asked["bytes"], asked["calls"]]
            kind, nbytes, calls = rank.share(order)
            if not calls:
                return
            key = (kind, nbytes)
            if key not in cases:
                cases = {key: rank.case(KINDS[kind], nbytes // 4)}  # one at a time: the largest takes 100 MB
            call = cases[key]
            call()
            seconds = []
            for _ in range(calls):
                start = time.perf_counter()
                call()
                seconds.append(time.perf_counter() - start)
            if lines is not None:
                print(json.dumps({"seconds": seconds}), file=lines, flush=True)


# In the process that compares -------------------------------------------------------------------------------------------


class Side:
    """A framework's two processes."""

    def __init__(self, name: str, directory: str, commands: list[list[str]], env: dict[str, str]) -> None:
        self.name = name
        path = os.path.join(directory, f"{name.split()[0]}.sock")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            server.listen(1)
            server.settimeout(0.5)
            self.processes = [
                subprocess.Popen(
                    [*command, path], cwd=ROOT, env={**os.environ, **THREADS, **env}, stdin=subprocess.DEVNULL
                )
                for command in commands
            ]
            try:
                self.connection = self._accept(server)
                self.connection.settimeout(STARTUP_SECONDS)
                self.lines = self.connection.makefile("rw")
                checked = json.loads(self.lines.readline())["ready"]
                if checked != 3.0:
                    raise SystemExit(f"{name}: the sum of 1 and 2 over the ranks is {checked}")
            except BaseException:
                self._end(0.1)
                raise

    def _accept(self, server: socket.socket) -> socket.socket:
        end = time.monotonic() + STARTUP_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                return server.accept()[0]
            ended = [p.returncode for p in self.processes if p.poll() is not None]
            if ended:
                raise SystemExit(f"{self.name}: ended with status {ended[0]} before it was ready")
        raise SystemExit(f"{self.name}: not ready after {STARTUP_SECONDS:.0f} seconds")

    def time(self, kind: str, nbytes: int, calls: int) -> list[float]:
        """The seconds of so many calls."""
        print(json.dumps({"kind": kind, "bytes": nbytes, "calls": calls}), file=self.lines, flush=True)
        found: list[float] = json.loads(self.lines.readline())["seconds"]
        return found

    def close(self) -> None:
        self.lines.close()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()
        self._end(10.0)

    def _end(self, seconds: float) -> None:
        for process in self.processes:
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)


@contextlib.contextmanager
def sides(torch: str | None, pin: bool) -> Iterator[list[Side]]:
    """The frameworks, started one after the other."""
    me = str(Path(__file__).resolve())
    options = ["--pin"] if pin else []
    with tempfile.TemporaryDirectory(prefix="allreduce-") as directory:
        found: list[Side] = []
        try:
            run = [
                sys.executable,
                "-m",
                "weft",
                "run",
                "--workers",
                "2",
                "--threads",
                "1",
                me,
                *options,
                "--rank-of",
                "weft",
            ]
            found.append(Side(WEFT, directory, [run], {}))
            if torch is not None:
                store = os.path.join(directory, "store")
                base = [torch, me, *options, "--rank-of", "torch", "--store", store]
                found.append(Side(TORCH, directory, [[*base, "--rank", str(r)] for r in (0, 1)], {}))
            yield found
        finally:
            for side in found:
                side.close()


def processes(found: list[Side]) -> list[int]:
    """The process numbers of all that was started."""
    from weft.distributed.processes import descendants

    starts = [p.pid for side in found for p in side.processes]
    return [*starts, *[pid for start in starts for pid in descendants(start)]]


def measure(found: list[Side], rounds: int) -> dict[tuple[str, str, str], list[float]]:
    """The seconds of all calls, by (framework, kind, size); the frameworks take turns."""
    seconds: dict[tuple[str, str, str], list[float]] = {}
    for size, nbytes in SIZES.items():
        for turn in range(rounds):
            for side in found:
                for kind in KINDS if side.name == WEFT else KINDS[1:]:
                    times = side.time(kind, nbytes, CALLS[size])
                    if turn:  # the first turn touches the memory
                        seconds.setdefault((side.name, kind, size), []).extend(times)
    return seconds


def table(seconds: dict[tuple[str, str, str], list[float]]) -> str:
    """A markdown table of medians, and of ratios to gloo's."""
    lines = ["| all-reduce, 2 processes | " + " | ".join(SIZES) + " |", "|---" * (len(SIZES) + 1) + "|"]
    medians = {key: statistics.median(values) for key, values in seconds.items()}
    titles = {
        (WEFT, "shared"): "Weft, in shared memory",
        (WEFT, "ordinary"): "Weft, ordinary tensors",
        (TORCH, "ordinary"): "torch gloo",
    }
    for (name, kind), title in titles.items():
        cells = []
        for i, size in enumerate(SIZES):
            median, peer = medians.get((name, kind, size)), medians.get((TORCH, "ordinary", size))
            if median is None:
                cells.append("–")
                continue
            text = f"{median * 1e6:,.0f} µs"
            if name == WEFT and peer is not None:
                text += f" ({median / peer:.3f} of gloo's time; at most {BARS[kind][i]})"
            cells.append(text)
        if any(cell != "–" for cell in cells):
            lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter that has torch")
    parser.add_argument("--rounds", type=int, default=8, help="turns of each framework, for each size (8)")
    parser.add_argument("--pin", action="store_true", help="a processor for each rank")
    parser.add_argument("--rank-of", choices=["weft", "torch"], help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    parser.add_argument("socket", nargs="?", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank_of == "torch":
        serve(TorchRank(args.rank, args.store), args.socket, args.pin)
    elif args.rank_of == "weft":
        serve(WeftRank(), args.socket, args.pin)
    else:
        from benchmarks.harness import machine

        if args.torch is None:
            print("torch gloo: skipped, no interpreter is given (--torch PYTHON)")
        load = os.getloadavg()[0]
        with sides(args.torch, args.pin) as found:
            ours = processes(found)
            before = machine.sample(ours)
            seconds = measure(found, max(args.rounds, 2))
            business = machine.between(before, machine.sample(ours), load)
        print(table(seconds))
        print(business)


if __name__ == "__main__":
    main()
