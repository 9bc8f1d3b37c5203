"""`weft cluster check`: measure what workers would run on, and say what is wrong with it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import sys
from typing import Any

from .errors import CommandError
from .run import engine_of, writable


def run(arguments: argparse.Namespace) -> int:
    """`weft cluster check`"""
    from ..distributed import diagnosis
    from ..distributed.engine import EngineError
    from ..runtime._host import usable_cpus

    writable(arguments.json, "--json")
    engine = engine_of(arguments)
    most = max(usable_cpus(), arguments.hosts)
    least, most = arguments.workers or ((most, most) if arguments.address is None else (1, 255))
    if arguments.hosts > most:
        raise CommandError(f"--hosts {arguments.hosts} needs at least as many workers. Got --workers {most}.")
    threads = arguments.threads or max(1, usable_cpus() // most)
    try:
        report = _measure(engine, arguments, (least, most), threads)
    except EngineError as error:
        raise CommandError(str(error)) from None
    found = diagnosis.findings(report, diagnosis.security(engine, arguments.address, dict(os.environ)))
    report.update(engine=engine, cluster=arguments.address, findings=[dataclasses.asdict(f) for f in found])
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(report, file, indent=1)
    _print(report, found)
    return 1 if any(f.severity == "error" for f in found) else 0


def _measure(engine: str, arguments: argparse.Namespace, workers: tuple[int, int], threads: int) -> dict[str, Any]:
    """Start an engine, measure, and leave nothing behind."""
    from rich.console import Console

    from ..distributed import directories
    from ..distributed.check import Check
    from ..distributed.driver import RunSpec, make_engine

    directory = directories.make("weft-check-")
    reading, writing = os.pipe()
    spec = RunSpec([], *workers, arguments.hosts, 1, threads, 0, "", engine=engine, address=arguments.address,
                working_dir=os.getcwd() if arguments.address is not None else None)  # fmt: skip
    console = Console(stderr=True)
    try:
        with console.status("starting") as status:
            say = (lambda text: status.update(text)) if sys.stderr.isatty() else (lambda text: None)
            made = make_engine(directory, reading, spec)
            try:
                return Check(made, workers, arguments.hosts, threads, say).measure()
            finally:
                made.close()
    finally:
        os.close(reading)
        os.close(writing)
        shutil.rmtree(directory, ignore_errors=True)


def _print(report: dict[str, Any], found: list[Any]) -> None:
    from rich.console import Console
    from rich.text import Text

    from ..distributed.table import check_tables

    console = Console(highlight=False)
    for table in check_tables(report):
        console.print(table, "")
    marks = {"error": ("✗", "red"), "warning": ("!", "yellow"), "note": ("·", "dim")}
    for finding in found:
        mark, style = marks[finding.severity]
        console.print(Text(f"{mark} {finding.text}", style=style))
    if not found:
        console.print(Text("✓ nothing is wrong", style="green"))
