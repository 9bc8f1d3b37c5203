"""A run that is killed, again and again and at any moment, ends with the same bits as one that is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from weft.io import latest, list_checkpoints

PROGRAM = Path(__file__).with_name("resume_program.py")
ROOT = Path(__file__).resolve().parents[2]
KILLED = -9


def run(directory: Path, mode: str, workers: int, kill: str) -> tuple[int, str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(PROGRAM), str(directory), mode, str(workers), kill],
        env=environment, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode in (0, KILLED), done.stderr
    return done.returncode, done.stdout.strip()


def finish(directory: Path, mode: str, workers: int, kills: list[str]) -> str:
    """Run, be killed as `kills` say, and run to the end; the result."""
    for kill in kills:
        status, result = run(directory, mode, workers, kill)
        assert status == KILLED, f"{kill} did not kill it"
        found = latest(directory)  # a damaged checkpoint would warn, and a warning is an error here
        assert found is not None or not list_checkpoints(directory)
    status, result = run(directory, mode, workers, "never")
    assert status == 0
    return result


@pytest.mark.parametrize(
    ("mode", "workers", "kills"),
    [("captured", 0, ["after", "write=9", "rename=3"]), ("accumulate", 2, ["after"])],
    ids=["captured", "accumulation-eager-with-workers"],
)
def test_the_bits_are_the_same(tmp_path: Path, mode: str, workers: int, kills: list[str]) -> None:
    rng = np.random.default_rng(len(mode))
    # Five epochs of 12 batches take a quarter of a second at least.
    kills = [f"after={rng.uniform(0.01, 0.1):.3f}" if kill == "after" else kill for kill in kills]
    undisturbed = finish(tmp_path / "whole", mode, 0, [])
    assert finish(tmp_path / "killed", mode, workers, kills) == undisturbed
    assert undisturbed.endswith("after 30 steps" if mode == "accumulate" else "after 60 steps")
