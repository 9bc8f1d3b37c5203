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
    from ..distributed.board import MAX_SHARDS
    from ..distributed.launch import Run

    if arguments.shards > MAX_SHARDS:
        raise CommandError(f"--shards must be at most {MAX_SHARDS}. Got {arguments.shards}.")
    if arguments.hosts > arguments.workers[1]:
        raise CommandError(
            f"--hosts {arguments.hosts} needs at least as many workers. Got --workers {arguments.workers[1]}."
        )
    run = Run(
        program, arguments.workers, arguments.shards, arguments.threads, arguments.hosts, engine=engine_of(arguments),
        address=arguments.address, events=writable(arguments.events, "--events"), trace=_trace(arguments),
        check_every=arguments.check_every, memory=arguments.memory,
    )  # fmt: skip
    return run.run()


def engine_of(arguments: argparse.Namespace) -> str:
    """The engine that the options `--engine` and `--address` mean."""
    if arguments.address is not None and arguments.engine == "local":
        raise CommandError("--address names a Ray cluster; it does not go with --engine local.")
    return arguments.engine or ("local" if arguments.address is None else "ray")


def _trace(arguments: argparse.Namespace) -> tuple[str, tuple[int, int]] | None:
    from ..distributed.trace import STEPS

    path = writable(arguments.trace, "--trace")
    if path is None:
        if arguments.trace_steps is not None:
            raise CommandError("--trace-steps says which steps are recorded; say where to with --trace FILE.")
        return None
    return path, arguments.trace_steps or STEPS


def writable(path: str | None, option: str) -> str | None:
    """A file that the run will write; whether it can is known before the run begins, not after."""
    if path is None:
        return None
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        why = "is a directory" if os.path.isdir(path) else f"cannot be written: see the directory {folder}"
        raise CommandError(f"{option}: {path} {why}.")
    return path
