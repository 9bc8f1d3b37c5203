"""Tables of runs and of their tasks for people, from the status that a driver writes."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ..runtime.memory import format_bytes
from .status import STALE_SECONDS, Found
from .supervisor import WORKER, role

WIDE = 110  # columns that a bar of 40 fits into beside the numbers
_STYLES = {
    "running": "green", "finished": "green", "starting": "dim", "silent": "yellow", "stopped": "red", "killed": "red",
    "lost": "red",
}  # fmt: skip


def duration(seconds: float | None) -> str:
    """A time in the unit that suits it.

    >>> duration(0.0123), duration(75), duration(None)
    ('12.3 ms', '75 s', '–')
    """
    if seconds is None:
        return "–"
    for unit, size in (("µs", 1e-6), ("ms", 1e-3)):
        if seconds < 1000 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds < 300 else f"{seconds / 60:.0f} min"


def bar(console: Console, transient: bool = False) -> Progress:
    """A bar that shows the progress of an epoch; on a narrow terminal the rest of the line is left for it."""
    narrow = console.width < WIDE
    return Progress(
        TextColumn("{task.description}"), BarColumn(bar_width=None if narrow else 40), MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"), TextColumn("{task.fields[rate]}"), TimeRemainingColumn(),
        console=console, transient=transient, expand=narrow,
    )  # fmt: skip


def headline(status: dict[str, Any]) -> str:
    """What there is to say about a run in one line.

    >>> common = {"state": "running", "hosts": [], "tasks": [], "restarts": 1}
    >>> headline({"step": 1200, "epoch": 3, "seconds_per_step": 0.004, **common})
    'step 1,200 · epoch 3 · 4 ms per step · 0 workers · 1 restart'
    """
    workers = [
        t for t in status["tasks"] if role(t["task"]) == WORKER and t["state"] in ("running", "silent", "stopped")
    ]
    parts = [f"step {status['step']:,}"]
    if status["epoch"] is not None:
        parts.append(f"epoch {status['epoch']}")
    if status["seconds_per_step"] is not None:
        parts.append(f"{duration(status['seconds_per_step'])} per step")
    parts.append(_count(len(workers), "worker"))
    if len(status["hosts"]) > 1:
        parts.append(_count(len(status["hosts"]), "host"))
        moved = sum(host.get("bytes_sent", 0) for host in status["hosts"])
        parts += [f"{format_bytes(moved)} moved"] if moved else []
    if status["restarts"]:
        parts.append(_count(status["restarts"], "restart"))
    if status["state"] not in ("running", "ended"):
        parts.insert(0, status["state"])
    return " · ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def tasks(status: dict[str, Any], everything: bool = True, most: int = 1000) -> Table:
    """The tasks of a run by host: what they do, how long a shard takes them, what was recovered.

    Args:
        status: of the run.
        everything: also tasks that are no workers and have nothing to report.
        most: rows; the ones with something to report come before the others.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim", expand=False)
    several = len(status["hosts"]) > 1
    table.add_column("task", no_wrap=True, min_width=11)
    table.add_column("process", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True, min_width=12)
    for name in ("per shard", "shards", *(("sent", "received") if several else ())):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("restarts", no_wrap=True, overflow="ellipsis")
    hosts: dict[int, dict[str, Any]] = {host["host"]: host for host in status["hosts"]}
    shown = [t for t in status["tasks"] if everything or role(t["task"]) == WORKER or t["restarts"] or _alarming(t)]
    rows = {id(t) for t in sorted(shown, key=lambda t: not (_alarming(t) or t["restarts"]))[: max(most, 1)]}
    for number in sorted({*hosts, *[t["host"] for t in shown]}) if several else [None]:
        if number is not None:
            host = hosts.get(number, {"straggler": None})
            traffic = [format_bytes(host[key]) if key in host else "" for key in ("bytes_sent", "bytes_received")]
            state = Text(_host_state(host, number in hosts), style="yellow" if host["straggler"] else "")
            table.add_row(Text(f"host {number}", style="bold"), "", state, "", "", *traffic, "")
        for task in shown:
            if id(task) in rows and number in (None, task["host"]):
                table.add_row(*_row(task, several))
    if len(rows) < len(shown):
        table.add_row(Text(f"… and {len(shown) - len(rows)} more", style="dim"))
    return table


def _alarming(task: dict[str, Any]) -> bool:
    return bool(task["straggler"]) or task["state"] in ("silent", "stopped", "killed", "lost")


def _host_state(host: dict[str, Any], there: bool) -> str:
    if not there:
        return "lost"
    if host["straggler"]:
        return f"{host['straggler']:.1f}× slower"
    return f"load {host['load']:.1f}" if "load" in host else "joined"


def _row(task: dict[str, Any], indented: bool) -> list[Any]:
    state = Text(task["state"], style=_STYLES.get(task["state"], "red"))
    if task["straggler"] and task["state"] == "running":
        state = Text(f"{task['straggler']:.1f}× slower", style="yellow")
    seconds = task.get("seconds_per_shard")
    cells: list[Any] = [
        f"{'  ' * indented}{task['task']}", str(task["pid"] or ""), state, duration(seconds) if seconds else "",
        f"{task['shards']:,}" if "shards" in task else "", *([""] * 2 * indented),
    ]  # fmt: skip
    cause = task["cause"] if task["cause"] is not None and task["state"] != "finished" else ""
    cells.append(f"{task['restarts']}, last: {cause}" if task["restarts"] else cause)
    return cells


def details(status: dict[str, Any]) -> list[str]:
    """What `weft status` says about a run besides the table, a line each."""
    lines = [f"{status['run']}: {command(status)}"]
    if status["state"] == "stale":
        lines.append(f"stale: its command is gone. `rm -r {status['directory']}` removes what it left behind")
    elif status["state"] == "ended":
        stop = status["stop"]
        reason = f": {stop['reason']}" if stop["reason"] else ""
        lines.append(f"ended with status {stop['status']}{reason}")
    elif status["state"] == "unknown":
        lines.append("it has not said that it ended, and it does not run on this machine")
    elif time.time() - status["time"] > STALE_SECONDS:
        lines.append(f"its driver has said nothing for {duration(time.time() - status['time'])}")
    lines.append(headline(status))
    if status["epoch"] is not None and status["batch"] is not None:
        lines[-1] = lines[-1].replace(f"epoch {status['epoch']}", f"epoch {status['epoch']}, batch {status['batch']}")
    if status["resume"]:
        lines.append(f"resumed from {status['resume']['path']}")
    if status["checkpoint"]:
        lines.append(f"last checkpoint after step {status['checkpoint']['step']}: {status['checkpoint']['path']}")
    if status.get("events"):
        lines.append(f"events in {status['events']}")
    return lines


def command(status: dict[str, Any]) -> str:
    """What a run runs."""
    words = list(status["arguments"])
    return shlex.join(["weft", *words[2:]] if words[:2] == ["-m", "weft"] else words)


def runs(found: Sequence[Found]) -> Table:
    """A table of runs."""
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim")
    rows = [_run(run) for run in found]
    for number, name in enumerate(("run", "command", "started", "state", "step", "workers")):
        width = max(len(name), *(len(str(row[number])) for row in rows))
        table.add_column(
            name, no_wrap=True, min_width=width, justify="right" if name in ("step", "workers") else "left"
        )
    table.add_column("program", no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*row)
    return table


def _run(run: Found) -> list[str | Text]:
    status = run.status()
    since = "" if not status["started"] else time.strftime("%H:%M:%S", time.localtime(status["started"]))
    state = Text(status["state"], style="red" if status["state"] == "stale" else _STYLES.get(status["state"], ""))
    workers = sum(role(t["task"]) == WORKER and t["state"] == "running" for t in status["tasks"])
    return [run.name, str(run.command or ""), since, state, f"{status['step']:,}", str(workers), command(status)]


def check_tables(report: dict[str, Any]) -> Iterator[Table]:
    """What `weft cluster check` measured: hosts, workers, and links between hosts."""
    hosts = _numbers("host", "address", "processors", "memory", "start", "restart", "message", "copy")
    shared = {entry["host"]: entry for entry in report["shared_memory"]}
    again = {entry["host"]: entry["noticed_seconds"] + entry["start_seconds"] for entry in report["restarts"]}
    for host in report["hosts"]:
        starts = [worker["start_seconds"] for worker in report["workers"] if worker["host"] == host["host"]]
        own = shared[host["host"]]
        hosts.add_row(
            str(host["host"]), host["address"], str(host["cpus"]), format_bytes(host["memory_available"] or 0),
            duration(max(starts)), duration(again.get(host["host"])), duration(own["latency_seconds"]),
            _speed(own["bytes_per_second"]),
        )  # fmt: skip
    yield hosts
    workers = _numbers("worker", "host", "nice", "threads", "shard", "slowest", "GFLOP/s")
    for worker in report["workers"]:
        times = worker["compute_seconds"]["together"]
        workers.add_row(
            worker["task"], str(worker["host"]), str(worker["nice"]), str(worker["threads"]), duration(times[5]),
            duration(times[-1]), f"{report['shard']['flops'] / times[5] / 1e9:.1f}",
        )  # fmt: skip
    yield workers
    if report["links"]:
        links = _numbers("link", "message", "bandwidth")
        for link in report["links"]:
            links.add_row(
                f"{link['from']} → {link['to']}", duration(link["latency_seconds"]), _speed(link["bytes_per_second"])
            )
        yield links


def _numbers(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim")
    for number, name in enumerate(names):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    return table


def _speed(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e9:.3g} GB/s"
