"""`weft status`: who is alive in a run on several workers, how fast it is, and what was recovered."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from typing import Any

from .errors import CommandError

WATCH_SECONDS = 1.0
OVER = ("ended", "stale", "unknown")


def run(arguments: argparse.Namespace) -> int:
    """`weft status [RUN]`"""
    if not arguments.watch:
        _show(arguments)
        return 0
    try:
        return _watch(arguments)
    except KeyboardInterrupt:
        return 0


def _status(target: str) -> dict[str, Any]:
    from ..distributed import status

    try:
        return status.find(target)
    except LookupError as error:
        raise CommandError(f"status: {error.args[0]}. `weft status` without a name lists the runs.") from None


def _show(arguments: argparse.Namespace) -> None:
    from ..distributed import status

    if arguments.json:
        found = [r.status() for r in status.runs()] if arguments.target is None else _status(arguments.target)
        print(json.dumps(found, indent=None if arguments.watch else 2), flush=True)
        return
    from rich.console import Console

    Console().print(*_renderables(arguments), sep="\n")


def _renderables(arguments: argparse.Namespace) -> list[Any]:
    from rich.text import Text

    from ..distributed import status, table

    if arguments.target is None:
        found = status.runs()
        return [table.runs(found)] if found else [Text("no run on several workers is under way on this machine")]
    one = _status(arguments.target)
    return [*[Text(line) for line in table.details(one)], Text(), table.tasks(one)]


def _watch(arguments: argparse.Namespace) -> int:
    """Repeat, on a terminal over what was there; returns when the run is over."""
    from rich.console import Console, Group
    from rich.live import Live

    console = Console()
    drawn = console.is_terminal and not arguments.json
    with Live(console=console, auto_refresh=False) if drawn else contextlib.nullcontext() as live:
        seen = False
        while True:
            try:
                if live is None:
                    _show(arguments)
                else:
                    live.update(Group(*_renderables(arguments)), refresh=True)
                if arguments.target is not None and _status(arguments.target)["state"] in OVER:
                    return 0
            except CommandError:
                if not seen:
                    raise
                return 0  # it ended, and its directory is gone
            seen = True
            time.sleep(WATCH_SECONDS)
