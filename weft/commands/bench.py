"""`weft bench`: runs the benchmarks of a checkout."""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
from pathlib import Path

import weft

from .config import suggestion
from .errors import CommandError

ABOUT = """\
The benchmarks are scripts in the folder `benchmarks` of Weft's source. They measure
  table      everything below about whole models, as tables and pictures
  models     training speed, beside the other frameworks that are installed
  inference  latency of trained models, likewise
  extras     compile time, size, threads, busy machines, distance from the roofline
  dispatch   microseconds per eager op
  kernels    GFLOP/s and GB/s of single kernels, by shape
They are not part of an installed package: run this command from a checkout."""


def run(arguments: argparse.Namespace) -> int:
    """`weft bench [name …]`"""
    folder = find()
    if folder is None:
        print(ABOUT)
        return 0 if arguments.name is None else 1
    scripts = listed(folder)
    if arguments.name is None:
        print(f"benchmarks in {folder} (run one with `weft bench NAME`):")
        width = max(map(len, scripts), default=0)
        for name, about in scripts.items():
            print(f"  {name:<{width}}  {about}")
        return 0
    if arguments.name not in scripts:
        raise CommandError(f"{arguments.name}: there is no such benchmark.{suggestion(arguments.name, scripts)}")
    command = [sys.executable, "-m", f"benchmarks.{arguments.name}", *arguments.rest]
    path = os.pathsep.join(filter(None, [str(folder.parent), os.environ.get("PYTHONPATH")]))
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode


def find() -> Path | None:
    """The folder of benchmarks: in the current directory, or beside the package."""
    for root in (Path.cwd(), Path(weft.__file__).resolve().parents[1]):
        if (root / "benchmarks").is_dir() and any((root / "benchmarks").glob("*.py")):
            return root / "benchmarks"
    return None


def listed(folder: Path) -> dict[str, str]:
    """The runnable scripts and packages of the folder, with the first line of their docstrings."""
    found = {}
    for path in sorted([*folder.glob("*.py"), *[main.parent for main in folder.glob("*/__main__.py")]]):
        if not path.name.startswith("_"):
            source = path / "__init__.py" if path.is_dir() else path
            about = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
            found[path.stem] = about.partition("\n")[0]
    return found
