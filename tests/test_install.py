"""The project's own files: what is promised in them is there."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import tomllib
from pathlib import Path

import weft

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_console_scripts_exist() -> None:
    for target in PROJECT["project"]["scripts"].values():
        module, function = target.split(":")
        assert callable(getattr(importlib.import_module(module), function))


def test_version_is_written_once() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", weft.__version__)


def test_package_is_typed_and_licensed() -> None:
    assert (ROOT / "weft" / "py.typed").exists()
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def test_extras_used_by_other_extras_exist() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    for requirements in extras.values():
        for requirement in requirements:
            if requirement.startswith("weft["):
                names = requirement.removeprefix("weft[").removesuffix("]").split(",")
                assert set(names) <= set(extras)


def test_make_finds_a_python_and_states_its_targets() -> None:
    done = subprocess.run(["make", "help"], cwd=ROOT, text=True, capture_output=True, timeout=30, check=True)
    for target in ("demo", "test", "lint", "clean"):
        assert f"make {target}" in done.stdout


def test_make_without_a_suitable_python_says_what_to_do(tmp_path: Path) -> None:
    done = subprocess.run(
        ["make", f"VENV={tmp_path}/venv", "CANDIDATES=no-such-python", "test"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        text=True,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode != 0
    assert "no Python 3.11 or newer" in done.stderr


def test_continuous_integration_script_is_executable_and_strict() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "set -euo pipefail" in script.read_text()
