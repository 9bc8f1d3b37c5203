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
_ALIVE = ("running", "silent", "stopped")
_ALARMING = ("silent", "stopped", "killed", "lost")
_STYLES = {
    "running": "green", "finished": "green", "starting": "dim", "silent": "yellow", "stopped": "red", "killed": "red",
    "lost": "red",
}  # fmt: skip
_TITLES = ("task", "process", "state", "per shard", "shards", "restarts")
_LEFT = (True, False, True, False, False, True)
_GAP = "  "


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


def headline(status: dict[str, Any]) -> Text:
    """What there is to say about a run in one line.

    >>> common = {"state": "running", "hosts": [], "tasks": [], "restarts": 1}
    >>> headline({"step": 1200, "epoch": 3, "batch": 17, "seconds_per_step": 0.004, **common}).plain
    'step 1,200 · epoch 3, batch 17 · 4 ms per step · 0 workers · 1 restart'
    """
    workers = [t for t in status["tasks"] if role(t["task"]) == WORKER and t["state"] in _ALIVE]
    parts = [f"step {status['step']:,}"]
    if status["epoch"] is not None:
        parts.append(f"epoch {status['epoch']}, batch {status['batch']}")
    if status["seconds_per_step"] is not None:
        parts.append(f"{duration(status['seconds_per_step'])} per step")
    parts.append(_count(len(workers), "worker"))
    if status["restarts"]:
        parts.append(_count(status["restarts"], "restart"))
    if status["state"] not in ("running", "ended"):
        parts.insert(0, status["state"])
    return Text(" · ".join(parts), no_wrap=True, overflow="ellipsis")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def tasks(status: dict[str, Any], everything: bool = True, most: int = 1000) -> Text:
    """The tasks of a run by host: what they do, how long a shard takes them, what was recovered.

    Args:
        status: of the run.
        everything: also tasks that are no workers and have nothing to report.
        most: tasks; the ones with something to report come before the others.
    """
    shown = [t for t in status["tasks"] if everything or role(t["task"]) == WORKER or _notable(t)]
    chosen = {t["task"] for t in sorted(shown, key=lambda t: not _notable(t))[: max(most, 1)]}
    several = len(status["hosts"]) > 1
    indent = "  " * several
    rows = {t["task"]: _row(t) for t in shown if t["task"] in chosen}
    widths = [max(len(cell) for cell in column) for column in zip(_TITLES, *rows.values())]
    table = Text(no_wrap=True, overflow="ellipsis")
    table.append(indent + _aligned(_TITLES, widths), style="dim")
    hosts = {host["host"]: host for host in status["hosts"]}
    for number in sorted({*hosts, *[t["host"] for t in shown]}) if several else [None]:
        if number is not None:
            table.append(f"\nhost {number}", style="bold")
            table.append(_host(hosts.get(number)))
        for task in shown:
            if task["task"] in chosen and number in (None, task["host"]):
                line = Text("\n" + indent + _aligned(rows[task["task"]], widths))
                start = 1 + len(indent) + widths[0] + widths[1] + 2 * len(_GAP)
                line.stylize(_style(task), start, start + widths[2])
                table.append(line)
    if len(chosen) < len(shown):
        table.append(f"\n{indent}… and {len(shown) - len(chosen)} more", style="dim")
    return table


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    texts = [cell.ljust(width) if left else cell.rjust(width) for cell, width, left in zip(cells, widths, _LEFT)]
    return _GAP.join(texts).rstrip()


def _notable(task: dict[str, Any]) -> bool:
    return bool(task["straggler"] or task["restarts"] or task["state"] in _ALARMING)


def _style(task: dict[str, Any]) -> str:
    return "yellow" if task["straggler"] and task["state"] == "running" else _STYLES.get(task["state"], "red")


def _host(host: dict[str, Any] | None) -> str:
    """What there is to say about a host."""
    if host is None:
        return " · lost"
    parts = [""]
    if host["straggler"]:
        parts.append(f"{host['straggler']:.1f}× slower than the others")
    if "load" in host:
        parts.append(f"load {host['load']:.1f}")
        parts += [f"{format_bytes(host[f'bytes_{what}'])} {what}" for what in ("sent", "received")]
    return " · ".join(parts)


def _row(task: dict[str, Any]) -> list[str]:
    slow = task["straggler"] and task["state"] == "running"
    seconds, cause = task.get("seconds_per_shard"), task["cause"]
    why = cause if cause is not None and task["state"] != "finished" else ""
    return [
        task["task"], str(task["pid"] or ""), f"{task['straggler']:.1f}× slower" if slow else task["state"],
        duration(seconds) if seconds else "", f"{task['shards']:,}" if "shards" in task else "",
        f"{task['restarts']}, last: {why}" if task["restarts"] else why,
    ]  # fmt: skip


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
    lines.append(headline(status).plain)
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
