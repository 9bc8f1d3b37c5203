"""Where the other frameworks are: each in a separate virtual environment."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

FRAMEWORKS = ("torch", "jax", "tf", "paddle", "mlx", "ort")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that name interpreters."""
    group = parser.add_argument_group("peers (one that is not given is skipped)")
    group.add_argument("--peers", type=Path, help=f"a folder of virtual environments: {', '.join(FRAMEWORKS)}")
    for name in FRAMEWORKS:
        group.add_argument(f"--{name}", metavar="PYTHON", help=f"an interpreter that has {name}")


def interpreters(args: argparse.Namespace) -> dict[str, str]:
    """Framework to interpreter, for those that are there; Weft runs in this one."""
    found = {"weft": sys.executable}
    for name in FRAMEWORKS:
        given = getattr(args, name)
        if given is None and args.peers is not None:
            inside = args.peers / name / "bin" / "python"
            given = str(inside) if inside.exists() else None
        if given is not None:
            if shutil.which(given) is None:
                raise SystemExit(f"--{name}: there is no interpreter {given!r}")
            found[name] = given
    return found
