"""Damaged files: every reader returns or raises its documented error, for a bounded number of cases from a fixed seed.

`make fuzz` runs the same targets for as long as one likes, from fresh seeds.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.fuzz.targets import TARGETS, check

CASES = 160


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_a_damaged_file_raises_the_documented_error_and_nothing_else(target):
    if target.name == "table":
        pytest.importorskip("pyarrow")
    if target.name == "picture":
        pytest.importorskip("PIL")
    seeds = target.seeds()
    for case in range(CASES // target.cost):
        try:
            check(target, seeds, Random(f"{target.name}-{case}"))
        except Exception as error:
            raise AssertionError(f"{target.name}, case {case}: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_the_undamaged_files_are_read(target, tmp_path):
    if target.name in ("table", "picture"):
        pytest.importorskip("pyarrow" if target.name == "table" else "PIL")
    if target.name == "idx-gz":
        (tmp_path / "0").mkdir()
        target.read(tmp_path / "0", target.seeds()[1])  # the first one is too long, on purpose
        return
    for i, seed in enumerate(target.seeds()):
        (tmp_path / str(i)).mkdir()
        target.read(tmp_path / str(i), seed)
