"""Watching a run: events, status, tables, traces, and the check of a cluster."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.each import each
from weft import cli
from weft.distributed import board, diagnosis, events, progress, status, table, trace
from weft.distributed.board import Board, Shape
from weft.distributed.driver import RunSpec
from weft.distributed.events import EventLog, History
from weft.distributed.figures import Figures, position
from weft.distributed.host import Ended, HostJoined, HostLost, Place, Reported, Sampled
from weft.distributed.supervisor import Stop
from weft.distributed.terminal import Lines, RemoteBar
from weft.multiprocessing import Segment

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="memfd and pidfd are Linux's"),
    pytest.mark.xdist_group("distributed"),
]
SECONDS = 90.0


# The board, read from outside ---------------------------------------------------------------------------------------


def test_the_board_is_read_as_it_is_laid_out() -> None:
    names = ["PID", "INCARNATION", "BEAT", "SEEN", "SHARD_TIME", "STEP_TIME", "SHARDS_DONE", "POSITION", "SENT_BYTES",
             "RECEIVED_BYTES", "MAGIC"]  # fmt: skip
    assert {name: getattr(progress, name) for name in names} == {name: getattr(board, name) for name in names}
    shape = Shape(5, 3, 4)
    segment = Segment.create(Board.nbytes(shape))
    made = Board(segment, shape)
    made.format()
    made.store("header", board.COMMITTED, 7 << 1 | 1)
    made.members[2, board.PID], made.members[2, board.BEAT] = 4711 << 32 | 5, time.monotonic_ns()
    figures = Figures(made, 2)
    figures.shard_done(0.25)
    figures.position = position(2, 17)
    figures.step_done(0.5)
    found = progress._read(segment)
    (row,) = found["rows"]
    assert found["step"] == 7 and row["pid"] == 4711 and 0 <= row["silent"] < SECONDS
    assert row["figures"] == [250_000_000, 500_000_000, 1, 3 << 32 | 17]


# Events -------------------------------------------------------------------------------------------------------------


def test_the_log_of_a_killed_driver_is_continued_and_nothing_is_written_twice(tmp_path: Path) -> None:
    copy = tmp_path / "kept" / "events.jsonl"
    first = EventLog(str(tmp_path), None)
    first.write("start", 0, "driver", run="one")
    told = events.line("checkpoint", 5, "worker-0", {"path": "p"})
    assert len(first.repeat(told)) == 1
    first.copy_to(str(copy))
    first.write("task_killed", 6, "worker-1", cause="SIGKILL")
    os.truncate(
        copy, copy.stat().st_size - copy.read_text().splitlines(True)[-1].__len__()
    )  # killed between two writes
    second = EventLog(str(tmp_path), str(copy))
    assert [e["event"] for e in second.past] == ["start", "checkpoint", "task_killed"]
    assert second.repeat(told) == [] and len(second.repeat(told + " nonsense\n[]\n")) == 0
    second.write("stop", 9, "driver")
    kinds = ["start", "checkpoint", "task_killed", "stop"]
    assert [e["event"] for e in events.read(str(copy))] == [e["event"] for e in second_log(tmp_path)] == kinds
    for event in events.read(str(copy)):
        assert {"time", "event", "step", "task"} <= event.keys()
    with open(copy, "a") as file:
        file.write('{"torn')
    other = tmp_path / "next"
    other.mkdir()
    EventLog(str(other), str(copy)).write("start", 0, "driver")
    assert [e["event"] for e in events.read(str(copy))] == [*kinds, "start"], "a later run appends on a line of its own"


def second_log(directory: Path) -> list[dict[str, Any]]:
    return list(events.read(str(directory / events.LOG)))


def test_a_full_disk_loses_the_copy_of_the_log_and_not_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = EventLog(str(tmp_path), "/dev/full")
    log.write("start", 0, "driver")
    log.write("stop", 1, "driver")
    assert len(second_log(tmp_path)) == 2
    assert capsys.readouterr().err.count("are not kept in /dev/full: No space left on device") == 1


def test_the_history_adds_up_what_happened() -> None:
    history = History()

    def add(event: str, task: str, step: int = 0, **fields: Any) -> None:
        history.add(json.loads(events.line(event, step, task, fields)))

    add("start", "driver", run="old")
    add("task_started", "worker-9", host=0, pid=9)
    add("start", "driver", run="new", engine="local", shards=8, workers=[2, 2])
    for host in (0, 1):
        add("host_joined", "driver", host=host, room=1, address="here")
        add("task_started", f"worker-{host}", host=host, pid=100 + host)
    add("straggler_named", "worker-1", 8, pid=101, ratio=2.5)
    add("task_killed", "worker-1", 10, pid=101, cause="SIGKILL")
    add("task_started", "worker-1", 10, host=1, pid=102)
    assert history.killed.keys() == {"worker-1"} and history.stragglers == {}
    add("task_recovered", "worker-1", 12, pid=102)
    add("host_lost", "driver", 20, host=1, cause="its node died")
    add("task_ended", "worker-0", 30, status=0)
    add("stop", "driver", 30, status=0, reason="", restart=False)
    found = status.describe_history(history)
    assert found["run"] == "new" and found["step"] == 30 and found["state"] == "ended" and found["restarts"] == 1
    states = {t["task"]: (t["state"], t["restarts"], t["cause"]) for t in found["tasks"]}
    assert states == {"worker-0": ("finished", 0, "status 0"), "worker-1": ("lost", 1, "its node died")}
    assert [host["host"] for host in found["hosts"]] == [0] and not history.killed


# The driver's view --------------------------------------------------------------------------------------------------


class Engine:
    """Hosts whose files are in memory."""

    def __init__(self, hosts: int) -> None:
        self.files: dict[tuple[int, str], bytes] = {}
        self.hosts = hosts

    def places(self) -> dict[int, Place]:
        return {host: Place("nowhere", 0, "nowhere") for host in range(self.hosts)}

    def read(self, host: int, name: str) -> bytes | None:
        return self.files.get((host, name))

    def write(self, host: int, name: str, data: bytes) -> None:
        self.files[host, name] = data


def sample(host: int, step: int, shard: float, *, pid: int, silent: float = 0.0, sent: int = 0) -> Sampled:
    """A host with one worker and a relay."""
    figures = [int(shard * 1e9), int(4 * shard * 1e9), 100, position(1, 3)]
    rows = [
        {"pid": pid, "joined": 1, "silent": silent, "seen": step, "figures": figures},
        {"pid": 900 + host, "joined": 1, "silent": 0.0, "seen": 0, "figures": [sent, 2 * sent, 0, 0]},
    ]
    tasks = {f"worker-{host}": pid, f"relay-{host}": 900 + host}
    return Sampled(host, tasks, [], 0.5, [{"step": step, "rows": rows}])


def plan(**given: Any) -> RunSpec:
    return RunSpec(["x.py"], 2, 2, 2, 8, 1, 0, "", **given)


def test_the_driver_tells_deaths_recoveries_slow_hosts_and_rates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine: Any = Engine(2)
    kept = tmp_path / "kept.jsonl"
    watch = status.Watch(str(tmp_path), plan(events=str(kept)), engine)
    for host in (0, 1):
        watch.see(HostJoined(host, 1))
        watch.started(f"worker-{host}", host, 100 + host)
    watch.see(sample(0, 1, 0.01, pid=100))
    for step in range(4, 40, 4):
        watch.see(sample(0, step, 0.01, pid=100, sent=100 * step))
        watch.see(sample(1, step, 0.03, pid=101, silent=2.5, sent=50 * step))
    watch.see(Ended("worker-1", -signal.SIGKILL, 36))
    watch.started("worker-1", 1, 103)
    watch.tick()
    found = status.Found(str(tmp_path)).status()
    assert next(t for t in found["tasks"] if t["task"] == "worker-1")["state"] == "starting"
    watch.see(sample(1, 36, 0.03, pid=103))
    watch.see(Reported(0, events.line("fit", 36, "worker-0", {"checkpoint_dir": str(tmp_path)}) + "\n"))
    watch.removed("worker-0")
    watch.see(Ended("worker-0", -signal.SIGKILL, 36))
    watch.see(HostLost(1, "its node died"))
    engine.files[0, events.TOLD] = events.line("checkpoint", 36, "worker-0", {"path": "p"}).encode() + b"\n"
    watch.finish(Stop(0))
    log = list(events.read(str(kept)))
    kinds = [e["event"] for e in log]
    assert {"start", "host_joined", "task_started", "rate", "fit", "checkpoint", "task_removed", "host_lost"} <= {
        *kinds
    }
    assert kinds[0] == "start" and kinds[-1] == "stop"
    killed = next(e for e in log if e["event"] == "task_killed")
    assert (
        killed["task"] == "worker-1"
        and killed["pid"] == 101
        and killed["cause"].startswith("SIGKILL, after it had not run")
    )
    recovered = next(e for e in log if e["event"] == "task_recovered")
    assert recovered["task"] == "worker-1" and recovered["pid"] == 103 and recovered["step"] == 36
    slow = [e for e in log if e["event"] == "straggler_named"]
    assert [(e["task"], round(e["ratio"])) for e in slow] == [("host-1", 3)]
    assert "host 1 is 3.0× slower than the others" in capsys.readouterr().err
    rate = next(e for e in log if e["event"] == "rate")
    assert rate["steps"] == 35 and rate["seconds_per_step"] > 0 and rate["workers"].keys() == {"worker-0"}
    assert engine.files[0, status.RESTARTS] == b"1"
    assert watch.snapshot()["epoch"] == 2 and watch.snapshot()["state"] == "ended"
    again = status.Watch(str(tmp_path), plan(events=str(kept)), engine)
    assert again.history.restarts == 2 and again.history.tasks["driver"]["cause"] == "killed", "its successor remembers"


def test_runs_are_found_by_name_process_and_checkpoints_and_stale_ones_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = [os.getpid(), progress_start()]
    for name, command in (("weft-run-live", own), ("weft-run-dead", [own[0], own[1] - 1])):
        (tmp_path / name).mkdir()
        watch = status.Watch(str(tmp_path / name), plan(), Engine(1))  # type: ignore[arg-type]
        watch.started("worker-0", 0, 77 if name.endswith("live") else 78)
        watch.see(
            Reported(0, events.line("fit", 0, "worker-0", {"checkpoint_dir": str(tmp_path / f"kept-{name}")}) + "\n")
        )
        watch.tick()
        (tmp_path / name / status.SPEC).write_text(json.dumps({"command": command}))
    assert {run.name: run.alive for run in status.runs(str(tmp_path))} == {
        "weft-run-live": True,
        "weft-run-dead": False,
    }

    def finds(text: str, name: str, state: str) -> None:
        found = status.find(text, str(tmp_path))
        assert (found["run"], found["state"]) == (name, state)

    each(finds, {
        "name": ("weft-run-live", "weft-run-live", "starting"),
        "short name": ("live", "weft-run-live", "starting"),
        "directory": (str(tmp_path / "weft-run-dead"), "weft-run-dead", "stale"),
        "process of a worker": ("78", "weft-run-dead", "stale"),
        "process of the command": (str(os.getpid()), "weft-run-live", "starting"),
        "checkpoints": (str(tmp_path / "kept-weft-run-live"), "weft-run-live", "starting"),
        "checkpoints of one that is gone": (str(tmp_path / "kept-weft-run-dead"), "weft-run-dead", "unknown"),
    })  # fmt: skip
    for text, words in (("4", "number 4"), ("none", "no run 'none'"), (str(tmp_path), "neither")):
        with pytest.raises(LookupError, match=words):
            status.find(text, str(tmp_path))
    assert cli.main(["status"]) == 0 and "no run on several workers" in capsys.readouterr().out
    assert cli.main(["status", "none"]) == 2 and "`weft status` without a name" in capsys.readouterr().err


def progress_start() -> int:
    from weft.distributed.processes import start_time

    found = start_time(os.getpid())
    assert found is not None
    return found


# Tables -------------------------------------------------------------------------------------------------------------


def drawn(*renderables: Any) -> str:
    file = io.StringIO()
    Console(file=file, width=80, height=24).print(*renderables)
    assert all(len(line) <= 80 for line in file.getvalue().splitlines())
    return file.getvalue()


def test_tables_fit_into_80_columns_and_show_what_is_wrong_first() -> None:
    history = History()
    for host in (0, 1):
        history.hosts[host] = {"address": "a", "room": 50}
    for number in range(100):
        entry = {"host": number % 2, "pid": 1_000_000 + number, "state": "running", "restarts": 0, "cause": None}
        history.tasks[f"worker-{number}"] = entry
    history.tasks["keeper-0"] = {"host": 0, "pid": 5, "state": "running", "restarts": 0, "cause": None}
    history.tasks["worker-97"].update(state="killed", restarts=3, cause="SIGKILL, after it had not run for 3 seconds")
    history.stragglers["worker-42"] = 2.5
    found = status.describe_history(history)
    for host in found["hosts"]:
        host.update(load=1.5, bytes_sent=3 << 30, bytes_received=5 << 20)
    for task in found["tasks"]:
        task.update(seconds_per_shard=0.0123, shards=123_456)
    text = drawn(table.tasks(found, everything=False, most=6))
    assert text.count("worker-") == 6 and "… and 94 more" in text and "keeper" not in text
    assert "2.5× slower" in text and "3, last: SIGKILL" in text and "3.0 GiB" in text and "12.3 ms" in text
    everything = drawn(table.tasks(found))
    assert everything.count("worker-") == 100 and "keeper-0" in everything
    assert table.headline(found).plain == "unknown · step 0 · 99 workers · 3 restarts"


def test_lines_and_messages_of_tasks_are_told_apart() -> None:
    file, lines = io.StringIO(), Lines()
    bar = RemoteBar(file)
    bar.start()
    bar.add_task("epoch 1/2", total=5, completed=0, loss="", rate="")
    bar.console.print("a line", markup=False)
    bar.update(0, completed=3, loss="loss 1", rate="")
    bar.remove_task(0)
    data = file.getvalue().encode() + "half of ä line".encode()
    cut = data.index("ä".encode()) + 1  # in the middle of a character
    first, messages = lines.feed(data[:cut])
    second, more = lines.feed(data[cut:])
    assert (first, second, more, lines.open) == (["a line"], [], [], "half of ä line")
    assert [m["bar"] for m in messages] == ["clear", "add", "update", "clear"] and messages[2]["completed"] == 3
    text = file.getvalue().split("\n")[0]
    assert lines.feed(f" and {text}\nmore\n".encode()) == (["half of ä line and more"], [{"bar": "clear"}])
    assert lines.feed(b"\x1eweft that is none\n") == (["\x1eweft that is none"], [])


# Traces -------------------------------------------------------------------------------------------------------------


def test_spans_of_hosts_are_merged_on_one_clock(tmp_path: Path) -> None:
    ahead = 5_000_000_000  # the second host's clock
    texts = []
    for task, host, peer in (("relay-0", 0, 1), ("relay-1", 1, 0)):
        recorder = trace.Recorder(str(tmp_path / task), task, host, (3, 4))
        assert [recorder.wants(step) for step in (2, 3, 4, 5)] == [False, True, True, False]
        name, track = ("send", "to host 1") if host == 0 else ("receive", "from host 0")
        recorder.add(name, track, trace.now(), step=3, part=0, node=1, host=peer, bytes=100)
        recorder.add("wait", trace.MAIN, trace.now(), step=3)
        recorder.add("wait", trace.MAIN, trace.now(), step=3)  # continues
        recorder.clock(peer, ahead if host == 0 else -ahead, 2000)
        recorder.clock(peer, 0, 9000)  # a slow message says less
        recorder.flush(at_once=True)
        lines = (tmp_path / task).read_text().splitlines()
        if host == 1:
            for i, line in enumerate(lines):
                entry = json.loads(line)
                if entry[0] == "span":
                    entry[3] += ahead
                    lines[i] = json.dumps(entry)
        texts.append("\n".join([*lines, '["span", "torn']))
    made = trace.merge(texts)
    spans = [e for e in made["traceEvents"] if e["ph"] == "X"]
    assert sorted(e["name"] for e in spans) == ["receive", "send", "wait", "wait"]
    times = [e["ts"] for e in spans]
    assert max(times) - min(times) < SECONDS * 1e6, "within the test, not five seconds apart"
    assert made["otherData"]["host 1"]["shift_us"] == -ahead / 1e3
    (start,), (end,) = ([e for e in made["traceEvents"] if e["ph"] == ph] for ph in "sf")
    assert start["id"] == end["id"] and start["pid"] != end["pid"]
    same = [text.replace(str(ahead), "900") for text in texts]
    assert trace.merge(same)["otherData"]["host 1"]["shift_us"] == 0, "an offset within its error is none"


# The check of a cluster ---------------------------------------------------------------------------------------------


def report(**changes: Any) -> dict[str, Any]:
    """What a cluster of two machines in order would give; `changes` are for its second host, or worker, or all of it."""
    host = {
        "boot": "b", "hostname": "h", "cpus": 4, "processors": 4, "quota": None, "load": 0.1, "features": ["avx", "avx2"],
        "weft": "1", "python": "3", "numpy": "2", "memory_machine": 1 << 40, "memory_total": 1 << 40,
        "memory_available": 1 << 38, "shm_bytes": 1 << 30, "overcommit": "0", "open_files": 1024,
    }  # fmt: skip
    hosts = [{**host, "host": i, "boot": f"{i}", "clock_seconds": 0.0, "clock_error_seconds": 0.001} for i in range(2)]
    times = {"alone": [0.01] * 11, "together": [0.01] * 11}
    workers = [
        {"task": f"worker-{i}", "host": i, "nice": 0, "threads": 4, "compute_seconds": dict(times)} for i in range(2)
    ]
    link = {"from": 0, "to": 1, "latency_seconds": 1e-5, "bytes_per_second": 1e9}
    restart = {"task": "worker-1", "host": 1, "noticed_seconds": 0.1, "start_seconds": 1.0}
    made: dict[str, Any] = {
        "hosts_wanted": 2,
        "hosts": hosts,
        "workers": workers,
        "links": [link],
        "restarts": [restart],
    }
    for name, value in changes.items():
        target = next(t for t in (hosts[1], workers[1], link, restart, made) if name in t)
        target[name] = value
    return made


def test_what_is_wrong_with_a_cluster_is_named(tmp_path: Path) -> None:
    assert diagnosis.findings(report()) == []

    def finds(severity: str, words: str, **changes: Any) -> None:
        (found,) = diagnosis.findings(report(**changes))
        assert found.severity == severity and words in found.text, found

    slow = {"alone": [0.02] * 11, "together": [0.02] * 11}
    crowded = {"alone": [0.007] * 11, "together": [0.01] * 11}
    cases: dict[str, tuple[str, str, dict[str, Any]]] = {
        "missing host": ("error", "2 of 3 hosts have joined", {"hosts_wanted": 3}),
        "weft": ("error", "versions of weft differ: 1 on host 0, 9 on host 1", {"weft": "9"}),
        "python": ("error", "versions of python differ", {"python": "3.9"}),
        "numpy": ("warning", "versions of numpy differ", {"numpy": "3"}),
        "features": ("warning", "host 0 also avx2; host 1 also sse", {"features": ["avx", "sse"]}),
        "niceness": ("warning", "worker-1 run at niceness 15", {"nice": 15}),
        "threads": ("warning", "host 1: 5 threads of the workers share 4 processors", {"threads": 5}),
        "quota": ("note", "allows 2.5 of 4 processors", {"quota": 2.5}),
        "load": ("note", "host 1: busy, load 3.0 on 4 processors", {"load": 3.0}),
        "memory limit": ("note", "limits memory to 512.0 GiB of 1.0 TiB", {"memory_total": 1 << 39}),
        "memory left": ("warning", "only 1.0 MiB of memory", {"memory_available": 1 << 20}),
        "shared memory": ("warning", "/dev/shm has 1.0 MiB", {"shm_bytes": 1 << 20}),
        "overcommit": ("warning", "vm.overcommit_memory=2", {"overcommit": "2"}),
        "files": ("warning", "may open 64 files", {"open_files": 64}),
        "clock": ("warning", "the clock of host 1 is 3 s behind that of host 0", {"clock_seconds": -3.0}),
        "slow worker": ("warning", "worker-1 on host 1 computes 2.0× slower", {"compute_seconds": slow}),
        "crowded": ("note", "slow each other down 1.4×", {"compute_seconds": crowded}),
        "latency": ("warning", "a message from host 0 to host 1 takes 5 ms", {"latency_seconds": 5e-3}),
        "bandwidth": ("warning", "from host 0 to host 1 moves 20 MB/s", {"bytes_per_second": 20e6}),
        "death": ("warning", "the death of worker-1 was noticed after 9.0 s", {"noticed_seconds": 9.0}),
    }
    each(lambda severity, words, changes: finds(severity, words, **changes), cases)
    two = report(hosts_wanted=3, load=9.0)
    assert [f.severity for f in diagnosis.findings(two)] == ["error", "note"]

    token = tmp_path / "token"
    token.write_text("x")
    variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}

    def secures(mode: int, given: dict[str, str], words: str) -> None:
        token.chmod(mode)
        found = diagnosis.security("ray", "a:1", given)
        assert [words in f.text for f in found] == [True] * bool(words)

    each(secures, {
        "private": (0o600, variables, ""),
        "readable": (0o644, variables, f"has mode 0644: others can read it. `chmod 600 {token}`"),
        "missing": (0o600, {**variables, "RAY_AUTH_TOKEN_PATH": str(tmp_path / "none")}, "cannot be read"),
        "variable": (0o600, {**variables, "RAY_AUTH_TOKEN": "x"}, "which child processes see"),
        "no token": (0o600, {}, "asks for no token"),
    })  # fmt: skip
    assert diagnosis.security("local", None, {}) == []


@pytest.mark.timeout(3 * SECONDS, method="signal")
def test_the_check_measures_hosts_workers_and_links(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "check.json"
    assert cli.main(["cluster", "check", "--hosts", "2", "--workers", "3", "--threads", "1", "--json", str(file)]) == 0
    shown = capsys.readouterr().out
    found = json.loads(file.read_text())
    assert [host["host"] for host in found["hosts"]] == [0, 1] and len(found["workers"]) == 3
    assert [(link["from"], link["to"]) for link in found["links"]] == [(0, 1), (1, 0)]
    assert [memory["latency_seconds"] is None for memory in found["shared_memory"]] == [False, True]
    rates = [*found["links"], *found["shared_memory"]]
    assert all(entry["bytes_per_second"] > 0 for entry in rates)
    for worker in found["workers"]:
        quantiles = worker["compute_seconds"]["together"]
        assert len(quantiles) == 11 and quantiles == sorted(quantiles) and quantiles[0] > 0 and worker["nice"] == 0
    assert all(r["noticed_seconds"] >= 0 and r["start_seconds"] > 0 for r in found["restarts"])
    assert abs(found["hosts"][1]["clock_seconds"]) <= found["hosts"][1]["clock_error_seconds"] + 0.01
    assert "worker-2" in shown and "1 → 0" in shown
    for finding in found["findings"]:
        assert finding["severity"] in ("warning", "note")


# A whole run --------------------------------------------------------------------------------------------------------

SCRIPT = """
import os, sys, time
import numpy as np
import weft as wf
from weft import data, nn, optim

class Pace(wf.train.Callback):
    scope = "everywhere"
    def on_step_end(self, trainer, logs):
        time.sleep(0.002)

class Until(wf.train.Callback):
    def on_epoch_end(self, trainer, logs):
        if os.path.exists(sys.argv[1] + "/enough"):
            trainer.stop("that is enough")

wf.manual_seed(0)
model = nn.Linear(12, 2)
x = np.random.default_rng(0).normal(size=(640, 12)).astype(np.float32)
board = wf.train.TensorBoard(sys.argv[1] + "/board", every=1, histograms=False, graph=False)
trainer = wf.Trainer(
    model, optim.SGD(model.parameters(), lr=0.1), nn.CrossEntropyLoss(), callbacks=[Pace(), Until(), board],
    checkpoint_dir=sys.argv[1] + "/kept", checkpoint_every=1000, resume="auto",
)
trainer.fit(data.DataLoader(data.TensorDataset(x, (x[:, 0] > 0).astype(np.int64)), 16), epochs=10**6)
print("END", trainer.stopped, flush=True)
"""


class OnTerminal:
    """`weft run` on a terminal of 80 columns, with standard output in a pipe."""

    def __init__(self, *words: str) -> None:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        program = [sys.executable, "-m", "weft", "run", *words]
        environment = {**os.environ, "TERM": "xterm"}
        self.process = subprocess.Popen(
            program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave, env=environment, start_new_session=True
        )  # fmt: skip
        os.close(slave)
        self._master = master
        self._shown = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:  # the other end is closed
                return
            if not data:
                return
            self._shown += data

    @property
    def shown(self) -> str:
        return self._shown.decode(errors="replace")

    def until(self, what: str, condition: Callable[[], Any]) -> Any:
        """Wait for something; fails when the run ends before."""
        end = time.monotonic() + SECONDS
        while not (found := condition()):
            assert self.process.poll() is None, f"the run ended before: {what}\n{self.shown}"
            assert time.monotonic() < end, f"does not happen: {what}\n{self.shown}"
            time.sleep(0.05)
        return found

    def wait(self) -> tuple[int, str]:
        """(status, output)"""
        out, _ = self.process.communicate(timeout=SECONDS)
        self._reader.join(SECONDS)
        return self.process.returncode, out.decode()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=SECONDS)
        self._reader.join(SECONDS)
        os.close(self._master)


@pytest.mark.timeout(4 * SECONDS, method="signal")
def test_a_run_is_watched_from_its_start_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, traced = tmp_path / "train.py", tmp_path / "trace.json"
    script.write_text(SCRIPT)
    options = ["--workers", "2", "--hosts", "2", "--shards", "4", "--threads", "1"]
    run = OnTerminal(*options, "--trace", str(traced), "--trace-steps", "20..60", str(script), str(tmp_path))
    try:

        def look() -> dict[str, Any]:
            (found,) = status.runs()
            return found.status()

        def log(kind: str) -> list[dict[str, Any]]:
            return [e for e in events.read(str(tmp_path / "kept" / "events.jsonl")) if e["event"] == kind]

        def moved() -> bool:
            found = look()
            return (
                found["step"] > 70
                and len(found["hosts"]) == 2
                and min(h.get("bytes_sent", 0) for h in found["hosts"]) > 0
            )

        run.until("a run", lambda: status.runs())
        run.until("bytes between the hosts", moved)
        run.until("a trace", traced.exists)
        worker = next(t for t in look()["tasks"] if t["task"] == "worker-1")
        os.kill(worker["pid"], signal.SIGKILL)
        run.until("a recovery", lambda: [e for e in log("task_recovered") if e["task"] == "worker-1"])
        run.until("a checkpoint", lambda: log("checkpoint"))
        run.until("the table", lambda: "1 restart" in run.shown)
        assert cli.main(["status", "--json", str(tmp_path / "kept")]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["state"] == "running" and found["restarts"] == 1 and found["epoch"] >= 1
        assert cli.main(["status", found["run"]]) == 0
        assert "1, last: SIGKILL" in capsys.readouterr().out
        assert cli.main(["status"]) == 0 and found["run"] in capsys.readouterr().out
        (tmp_path / "enough").touch()
        code, out = run.wait()
        assert code == 0 and "END that is enough" in out, run.shown
    finally:
        run.close()
    assert "per shard" in run.shown and "worker-1 was killed by SIGKILL" in run.shown and "epoch 1/" in run.shown
    assert "\x1eweft" not in run.shown, "messages are not shown"
    kinds = [e["event"] for e in events.read(str(tmp_path / "kept" / "events.jsonl"))]
    assert kinds[0] == "start" and kinds[-1] == "stop" and {"rate", "trace", "fit", "task_ended"} <= {*kinds}
    (killed,) = log("task_killed")
    assert (killed["task"], killed["pid"], killed["cause"], killed["host"]) == ("worker-1", worker["pid"], "SIGKILL", 1)
    assert sum(e["bytes"] for e in log("rate")) > 0 and all(e["seconds_per_step"] > 0 for e in log("rate"))
    assert cli.main(["status", str(tmp_path / "kept")]) == 0 and "ended with status 0" in capsys.readouterr().out

    spans = [e for e in json.loads(traced.read_text())["traceEvents"] if e["ph"] == "X"]
    assert {"step", "shard", "seal", "wait", "update", "commit"} <= {e["name"] for e in spans}
    assert all(20 <= e["args"]["step"] <= 60 for e in spans)
    for event in spans:
        assert event["name"] not in ("send", "receive") or event["args"]["bytes"] > 0
    written = b"".join(path.read_bytes() for path in (tmp_path / "board").iterdir())
    for name in (b"step_seconds", b"shards_per_second", b"stragglers", b"restarts"):
        assert b"distributed/" + name in written


def test_options_that_make_no_sense_are_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text("")

    def refuses(options: list[str], words: str) -> None:
        assert cli.main(["run", "--workers", "1", *options, str(script)]) == 2
        assert words in capsys.readouterr().err

    each(refuses, {
        "steps without a file": (["--trace-steps", "1..2"], "say where to with --trace FILE"),
        "a directory": (["--events", str(tmp_path)], "is a directory"),
        "no directory": (["--trace", str(tmp_path / "none" / "x")], "cannot be written"),
    })  # fmt: skip
    for text in ("5..2", "0..4", "x"):
        with pytest.raises(SystemExit):
            cli.main(["run", "--workers", "1", "--trace", "t.json", "--trace-steps", text, str(script)])
    assert os.listdir(tmp_path) == ["train.py"]
