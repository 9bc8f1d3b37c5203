"""How much a framework and all it needs takes on disk, and how long its import takes."""

from __future__ import annotations

import json
import statistics
import sys
import time

from .context import Context, Row, python

TITLE = "Installed size and import time"
DISTRIBUTIONS = {"weft": "weft", "torch": "torch", "jax": "jax", "tf": "tensorflow_cpu", "paddle": "paddlepaddle"}
IMPORTS = {"weft": "weft", "torch": "torch", "jax": "jax.numpy", "tf": "tensorflow", "paddle": "paddle"}

# Sums the files of a distribution and of what it requires (without extras), each once.
CODE = """
import json, re, sys
from importlib import metadata
from pathlib import Path

def closure(roots):
    todo, seen = list(roots), set()
    while todo:
        name = re.split(r"[^A-Za-z0-9._-]", todo.pop())[0].lower().replace("_", "-").replace(".", "-")
        if name in seen:
            continue
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        seen.add(name)
        todo += [r for r in found.requires or [] if "extra ==" not in r]
    return sorted(seen)

names = closure(sys.argv[1:])
total = 0
for name in names:
    for file in metadata.distribution(name).files or []:
        path = Path(file.locate())
        if path.suffix != ".pyc" and path.is_file():
            total += path.stat().st_size
print(json.dumps([len(names), total]))
"""


def _size(interpreter: str, roots: list[str]) -> tuple[int, int]:
    code = CODE.replace("sys.argv[1:]", repr(roots))
    count, total = json.loads(python(interpreter, code))
    return count, total


def _weft() -> tuple[int, int]:
    """The package of this checkout and the distributions it requires."""
    import tomllib

    from benchmarks.harness.process import ROOT

    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    count, total = _size(sys.executable, wanted)
    own = sum(p.stat().st_size for p in (ROOT / "weft").rglob("*") if p.is_file() and p.suffix != ".pyc")
    return count + 1, total + own


def _import_seconds(interpreter: str, module: str, rounds: int = 3) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        python(interpreter, f"import {module}")
        whole = time.perf_counter() - start
        start = time.perf_counter()
        python(interpreter, "pass")
        times.append(whole - (time.perf_counter() - start))
    return statistics.median(times)


def measure(context: Context) -> list[Row]:
    """MB on disk with all requirements, and seconds of the import beyond an empty interpreter."""
    rows = []
    for framework, distribution in DISTRIBUTIONS.items():
        interpreter = context.interpreters.get(framework)
        if interpreter is None:
            continue
        count, total = _weft() if framework == "weft" else _size(interpreter, [distribution])
        seconds = _import_seconds(interpreter, IMPORTS[framework])
        figures = {"size": f"{total / 1e6:,.0f} MB", "packages": str(count), "import": f"{seconds:.2f} s"}
        rows.append(Row(framework, figures))
    return rows
