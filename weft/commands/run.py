"""`weft run`: run a script on several workers that train one model together."""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Sequence

from .errors import CommandError


def run(arguments: argparse.Namespace) -> int:
    """`weft run --workers N script …`"""
    if arguments.workers is None:
        raise CommandError("run: say how many workers there are, for example `weft run --workers 2 train.py`.")
    if arguments.module:
        if importlib.util.find_spec(arguments.script) is None:
            raise CommandError(f"run: there is no module {arguments.script!r}.")
        return run_workers(["-m", arguments.script, *arguments.arguments], arguments)
    if not os.path.isfile(arguments.script):
        raise CommandError(f"run: there is no file {arguments.script!r}. (`-m` runs a module by its name.)")
    return run_workers([arguments.script, *arguments.arguments], arguments)


def run_workers(program: Sequence[str], arguments: argparse.Namespace) -> int:
    """Start workers that run `program`, and wait for them; returns the exit status."""
    from ..distributed.board import MOST_SHARDS
    from ..distributed.launch import Run

    if arguments.shards > MOST_SHARDS:
        raise CommandError(f"--shards must be at most {MOST_SHARDS}. Got {arguments.shards}.")
    if arguments.hosts > arguments.workers[1]:
        raise CommandError(
            f"--hosts {arguments.hosts} needs at least as many workers. Got --workers {arguments.workers[1]}."
        )
    engine = arguments.engine or ("local" if arguments.address is None else "ray")
    if arguments.address is not None and engine == "local":
        raise CommandError("--address names a Ray cluster; it does not go with --engine local.")
    run = Run(
        program, arguments.workers, arguments.shards, arguments.threads, arguments.hosts, engine=engine,
        address=arguments.address,
    )  # fmt: skip
    return run.run()
