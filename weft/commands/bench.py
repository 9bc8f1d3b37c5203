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
  dispatch   microseconds per eager op
  kernels    GFLOP/s and GB/s of single kernels, by shape
  models     training and inference speed of whole models, beside the other frameworks that are installed
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
    package = [] if not (folder / "__main__.py").exists() else ["__main__"]
    if arguments.name in scripts:
        command = [sys.executable, "-m", f"benchmarks.{arguments.name}", *arguments.rest]
    elif package:
        command = [sys.executable, "-m", "benchmarks", arguments.name, *arguments.rest]
    else:
        raise CommandError(
            f"{arguments.name}: there is no such benchmark.{suggestion(arguments.name, scripts)}"
        )
    path = os.pathsep.join(filter(None, [str(folder.parent), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        command, cwd=folder.parent, env={**os.environ, "PYTHONPATH": path}, check=False
    ).returncode


def find() -> Path | None:
    """The folder of benchmarks: here, or beside the package."""
    for root in (Path.cwd(), Path(weft.__file__).resolve().parents[1]):
        if (root / "benchmarks").is_dir() and any((root / "benchmarks").glob("*.py")):
            return root / "benchmarks"
    return None


def listed(folder: Path) -> dict[str, str]:
    """The scripts of the folder and the first line of what each says about itself."""
    found = {}
    for path in sorted(folder.glob("*.py")):
        if not path.name.startswith("_"):
            about = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            found[path.stem] = about.partition("\n")[0]
    return found
