"""Every example runs, for a few steps, as a user would run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
STEPS = 3

# What makes an example small, beside `--steps`, and what its output must hold.
SETTINGS: dict[str, tuple[list[str], str]] = {
    "digits_by_hand": ([], r"test accuracy \d+\.\d\d%"),
    "digits_trainer": (["--out", "out"], r"test accuracy \d+\.\d\d%"),
    "char_gpt": (["--layers", "1", "--width", "16", "--block", "16", "--sample", "20"], r"held-out loss \d\.\d{4}"),
    "image_augmentation": (["--batch", "8", "--images", "40", "--test-images", "20"], r"test accuracy \d+\.\d\d%"),
    "seq2seq_attention": (["--batch", "8", "--length", "4", "--width", "16"], r"tokens right \d+\.\d\d%"),
    "recommender": (["--batch", "64", "--users", "50", "--items", "40"], r"test accuracy \d+\.\d\d%"),
    "sharded_embedding": (["--batch", "64", "--users", "50", "--items", "40"], r"rows that were updated: \d+ users"),
    "gan": (["--batch", "32"], r"\d+\.\d\d% of the points lie in a cluster"),
    "actor_critic": (["--walkers", "8"], r"goal reached \d+\.\d\d%"),
    "optimise_an_input": ([], r"probability of 3: \d\.\d{4} before, \d\.\d{4} after"),
    "physics_informed": (["--points", "16"], r"largest difference from sin\(x\): \d+\.\d{4}"),
}


def run(path: Path, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    return subprocess.run(
        [sys.executable, "-W", "error", str(path), *arguments],
        cwd=directory, env=environment, text=True, capture_output=True, timeout=100, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_the_example_runs_for_a_few_steps(path: Path, tmp_path: Path) -> None:
    arguments, wanted = SETTINGS[path.stem]
    done = run(path, tmp_path, "--steps", str(STEPS), *arguments)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert re.search(wanted, done.stdout), done.stdout


def test_digits_by_hand_learns(tmp_path: Path) -> None:
    done = run(EXAMPLES / "digits_by_hand.py", tmp_path, "--steps", "350")
    assert done.returncode == 0, done.stderr
    accuracy = re.search(r"test accuracy (\d+\.\d\d)%", done.stdout)
    assert accuracy is not None and float(accuracy[1]) >= 97.0, done.stdout


def test_physics_informed_finds_the_solution(tmp_path: Path) -> None:
    done = run(EXAMPLES / "physics_informed.py", tmp_path, "--steps", "400")
    assert done.returncode == 0, done.stderr
    error = re.search(r"largest difference from sin\(x\): (\d+\.\d+)", done.stdout)
    assert error is not None and float(error[1]) < 0.1, done.stdout


def test_every_example_says_how_to_run_it() -> None:
    for path in EXAMPLES.glob("*.py"):
        assert f"python examples/{path.name}" in path.read_text(), path.name
