"""Parameter servers: the consistencies with a slow worker, compressed gradients, and random kills.

    python -m benchmarks.distributed.parameter_server straggler [--epochs N] [--out FILE.json]
    python -m benchmarks.distributed.parameter_server compression [--epochs N]
    python -m benchmarks.distributed.parameter_server chaos [--kills N] [--seed N]

* *straggler*: digits on four workers, of which one is three times slower. Computing is simulated by sleeping (60 ms
per piece), so that
  two processors suffice. The rate is pieces per second; that of Bounded(3) is also given for the pieces before the
  bound first makes a worker wait, which is when the fast workers have done three more than the slow one.
* *compression*: digits with 32, 8 and 2 bits per number of a gradient, on the local store: loss, test accuracy and
bytes. * *chaos*: kill -9 of random servers, workers and the script itself, which is then started again; sync must end
with the bits of an undisturbed
  run, and every update must have been made once, in sync and async.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WORKERS, SERVERS, FACTOR, SECONDS, BATCH, BOUND = 4, 2, 3.0, 0.060, 64, 3
BARS = {"async": 1.8, f"bounded({BOUND}) before the bound": 1.5}
"""the bars: pieces per second against sync"""
MARK, PAUSE = "WEFT_CHAOS_RUN", "0.3"  # seconds per piece, so that the run lasts


def run(mode: str, epochs: int, pause: float, factor: float, backup: int, directory: str | None) -> None:
    """One training, in the process that starts it and in its workers; prints a line of JSON."""
    import numpy as np

    import weft as wf
    from weft import nn, optim
    from weft.data import DataLoader, digits
    from weft.distributed import Bounded, ParameterServer

    wf.manual_seed(0)
    consistency: Any = Bounded(int(mode[7:])) if mode.startswith("bounded") else mode
    servers = ParameterServer(WORKERS, SERVERS, consistency, backup, directory=directory, threads=1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    train = DataLoader(digits("train"), BATCH, shuffle=True, drop_last=True, seed=0)
    slow = factor if servers.rank == WORKERS - 1 else 1.0
    for x, y in servers.batches(train, optimizer, model=model, epochs=epochs):
        time.sleep(slow * pause)
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        servers.step(loss)
    test = digits("test")
    x, y = (np.stack([np.asarray(s[i]) for s in test]) for i in (0, 1))
    with wf.no_grad():
        accuracy = float((model(wf.asarray(x)).numpy().argmax(1) == y).mean())
    weights = b"".join(np.ascontiguousarray(v.numpy()).tobytes() for v in model.state_dict().values())
    print(json.dumps({
        "mode": mode, "pieces": sum(len(r) for r in servers.results), "accuracy": accuracy,
        "bits": hashlib.sha256(weights).hexdigest()[:16], "results": servers.results,
        "losses": [row["loss"] for row in servers.history],
    }))  # fmt: skip


def start(arguments: list[str], **options: Any) -> subprocess.Popen[str]:
    program = [sys.executable, "-m", "benchmarks.distributed.parameter_server", "run", *arguments]
    return subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def finish(child: subprocess.Popen[str], seconds: float) -> dict[str, Any]:
    out, errors = child.communicate(timeout=seconds)
    if child.returncode:
        raise RuntimeError(f"the run ended with status {child.returncode}:\n{errors[-2000:]}")
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


# The slow worker ----------------------------------------------------------------------------------------------------


def rate(results: list[list[dict[str, Any]]], before_bound: bool) -> float:
    """Pieces per second: the median of the epochs after the first, in which programs are compiled."""
    rates = []
    for epoch in results[1:]:
        pieces = sorted(epoch, key=lambda r: float(r["time"]))
        begun = pieces[0]["time"] - SECONDS
        if before_bound:  # until the first worker has made as many pushes as it may without waiting
            first = min(r["clock"] for r in pieces)
            at = next(i for i, r in enumerate(pieces) if r["clock"] - first >= BOUND)
            pieces = pieces[: at + 1]
        rates.append(len(pieces) / (pieces[-1]["time"] - begun))
    return statistics.median(rates)


def curve(results: list[list[dict[str, Any]]], sync: bool) -> list[tuple[float, int, float]]:
    """(seconds, updates, loss), averaged over the pieces of a quarter of an epoch each."""
    found: list[tuple[float, int, float]] = []
    elapsed, count = 0.0, 0
    for epoch in results:
        pieces = sorted(epoch, key=lambda r: float(r["time"]))
        begun = pieces[0]["time"] - SECONDS
        size = len(pieces) // 4
        for i in range(4):
            part = pieces[i * size : (i + 1) * size if i < 3 else None]
            count += len(part)
            loss = sum(r["numbers"][0] for r in part) / sum(r["numbers"][1] for r in part)
            found.append((elapsed + part[-1]["time"] - begun, count // WORKERS if sync else count, loss))
        elapsed += pieces[-1]["time"] - begun
    return found


def straggler(epochs: int, out: str | None) -> None:
    modes = {
        "sync": ("sync", 0),
        "sync, backup=1": ("sync", 1),
        f"bounded({BOUND})": (f"bounded{BOUND}", 0),
        "async": ("async", 0),
    }
    found: dict[str, Any] = {}
    print(f"one of {WORKERS} workers {FACTOR:g}x slower, {SECONDS * 1e3:g} ms per piece, load {os.getloadavg()[0]:.1f}")
    for name, (mode, backup) in modes.items():
        made = finish(start([mode, str(epochs), str(SECONDS), str(FACTOR), str(backup)]), 600)
        rates = {name: rate(made["results"], False)}
        if mode.startswith("bounded"):
            rates[f"{name} before the bound"] = rate(made["results"], True)
        base = found.get("sync", {"rate": rates[name]})["rate"]
        for label, value in rates.items():
            found[label] = {"rate": value, "speedup": value / base, "bits": made["bits"], "accuracy": made["accuracy"]}
            bar = f"   bar {BARS[label]}x" if label in BARS else ""
            print(f"{label:32} {value:6.1f} pieces/s {value / base:5.2f}x   test accuracy {made['accuracy']:.3f}{bar}")
        found[name]["curve"] = curve(made["results"], mode == "sync")
    print(
        f"sync with and without backup: {'same' if len({found[m]['bits'] for m in list(modes)[:2]}) == 1 else 'DIFFERENT'} bits"
    )
    for name in modes:
        points = found[name]["curve"][3::4]
        print(f"{name:16} " + "  ".join(f"{s:5.1f} s {u:4d} updates loss {v:.3f}" for s, u, v in points))
    if out is not None:
        Path(out).write_text(json.dumps(found, indent=1))


# Compression --------------------------------------------------------------------------------------------------------


def compression(epochs: int) -> None:
    import numpy as np

    import weft as wf
    from weft import nn, optim
    from weft.data import DataLoader, digits
    from weft.distributed import KVStore

    test = digits("test")
    tx, ty = (np.stack([np.asarray(s[i]) for s in test]) for i in (0, 1))
    for kind in (None, "8bit", "2bit"):
        wf.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        kv = KVStore("local", compression=kind)
        names = [name for name, _ in model.named_parameters()]
        params = [p for _, p in model.named_parameters()]
        kv.init(names, [p.detach() for p in params])
        kv.set_optimizer(optim.SGD, lr=0.1, momentum=0.5)
        losses = []
        for _ in range(epochs):
            total, count = 0.0, 0
            for x, y in DataLoader(digits("train"), BATCH, shuffle=True, drop_last=True, seed=0):
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                kv.push(names, [p.grad for p in params])
                for p, value in zip(params, kv.pull(names), strict=True):
                    p._data[...] = value._data
                    p.grad = None
                total, count = total + loss.item(), count + 1
            losses.append(total / count)
        with wf.no_grad():
            accuracy = float((model(wf.asarray(tx)).numpy().argmax(1) == ty).mean())
        bits = {None: 32, "8bit": 8, "2bit": 2}[kind]
        size = sum(p.size for p in params) * bits // 8
        print(
            f"{kind or 'none':6} {size:8,d} bytes per push   loss {'  '.join(f'{v:.4f}' for v in losses)}   "
            f"accuracy {accuracy:.3f}"
        )


# Kills --------------------------------------------------------------------------------------------------------------


def chaos(kills: int, seed: int, modes: list[str]) -> None:
    from weft.distributed import processes

    rng = random.Random(seed)
    epochs = 4
    expected = finish(start(["sync", str(epochs), PAUSE, "1", "0"]), 600)
    for mode in modes:
        with tempfile.TemporaryDirectory(prefix="weft-chaos-") as folder:
            token, killed, counted = f"{os.getpid()}-{mode}", {"server": 0, "worker": 0, "script": 0}, 0
            arguments = [mode, str(epochs), PAUSE, "1", "0", folder]
            begun, restarts = time.monotonic(), 0
            child = start(arguments, env={**os.environ, MARK: token}, start_new_session=True)
            while counted < kills:
                time.sleep(rng.uniform(1.0, 4.0))
                if child.poll() is not None and child.returncode == 0:
                    break  # it was done before all kills
                living = {pid: kind_of(pid, child.pid) for pid in processes.with_variable(MARK, token)}
                if child.poll() is None and len(living) > SERVERS + 1:  # the servers and some workers are there
                    kind = rng.choices(list(killed), [4, 4, 1])[0]
                    try:
                        os.kill(rng.choice([pid for pid, each in living.items() if each == kind]), signal.SIGKILL)
                    except (ProcessLookupError, IndexError):
                        continue
                    killed[kind] += 1
                    counted += 1
                if kill_seen(child):
                    restarts += 1
                    child = start(arguments, env={**os.environ, MARK: token}, start_new_session=True)
            if kill_seen(child):
                child = start(arguments, env={**os.environ, MARK: token}, start_new_session=True)
            made = finish(child, 600)
            same = made["bits"] == expected["bits"]
            pieces = made["pieces"] == expected["pieces"]
            print(
                f"{mode}: {counted} kills {killed}, {time.monotonic() - begun:.0f} s; pieces {made['pieces']} of "
                f"{expected['pieces']}{'' if pieces else ' WRONG'}; bits {'the same' if same else 'others'}"
                f"{'' if same or mode != 'sync' else ' WRONG'}; load {os.getloadavg()[0]:.1f}",
                flush=True,
            )


def kill_seen(child: subprocess.Popen[str]) -> bool:
    """Whether the script was killed: it is started again."""
    try:
        child.wait(0.5)
    except subprocess.TimeoutExpired:
        return False
    return child.returncode == -signal.SIGKILL


def kind_of(pid: int, script: int) -> str:
    if pid == script:
        return "script"
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return "worker"
    return "server" if b"session_task" in command else "worker"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["straggler", "compression", "chaos", "run"])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--modes", default="sync,async")
    parser.add_argument("--out")
    parser.add_argument("arguments", nargs="*")
    given = parser.parse_args()
    if given.what == "run":
        mode, epochs, pause, factor, backup, *directory = given.arguments
        run(mode, int(epochs), float(pause), float(factor), int(backup), directory[0] if directory else None)
    elif given.what == "straggler":
        straggler(given.epochs, given.out)
    elif given.what == "compression":
        compression(given.epochs)
    else:
        chaos(given.kills, given.seed, given.modes.split(","))


if __name__ == "__main__":
    main()
