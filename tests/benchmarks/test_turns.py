"""Comparing workers: turns, checks before timing, what is skipped and what fails. Workers here are a few lines each."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.harness.process import Worker, WorkerError
from benchmarks.harness.protocol import CLOCK, LONG
from benchmarks.harness.report import Section
from benchmarks.harness.runners import Runner
from benchmarks.harness.turns import Entry, Plan, compare, disagreement, quartiles

FAKE = """
import time
from benchmarks.harness.protocol import serve
losses = iter({losses})
def step():
    time.sleep({seconds})
    return next(losses, 0.0)
serve(step, "fake")
"""
QUICK = Plan(seconds=1.0, rounds=3, turn=0.02, tolerance=1e-3, patience=20.0)


def fake(name: str, losses: Sequence[float] = (3.0, 2.0, 1.0), seconds: float = 0.001) -> Entry:
    return Entry(name, [sys.executable, "-c", FAKE.format(losses=list(losses), seconds=seconds)])


def test_workers_take_turns_and_are_compared_with_the_first() -> None:
    said: list[str] = []
    result = compare([fake("weft"), fake("slow", seconds=0.01)], QUICK, said.append)
    rows = result["rows"]
    assert list(rows) == ["weft", "slow"] and not result["failed"]
    assert rows["weft"]["relative"] == 1.0 and rows["slow"]["relative"] > 2
    assert rows["slow"]["low"] <= rows["slow"]["median"] <= rows["slow"]["high"]
    assert rows["weft"]["rounds"] >= 2 and rows["weft"]["steps"] > rows["slow"]["steps"] >= 2
    assert rows["weft"]["peak_bytes"] > 2**20 and rows["weft"]["check"] == [3.0, 2.0, 1.0]
    assert len(result["machine"]) == 1 and "rounds of weft, slow" in said[-1]


def test_processor_time_leaves_out_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replace(QUICK, turn=0.001)  # of the processor's time: some ten steps that sleep
    monkeypatch.setenv(CLOCK, "processor")
    row = compare([fake("weft", seconds=0.02)], plan, lambda text: None)["rows"]["weft"]
    assert row["best"] < 0.01
    monkeypatch.setenv(CLOCK, "passing")
    row = compare([fake("weft", seconds=0.02)], plan, lambda text: None)["rows"]["weft"]
    assert row["best"] >= 0.02


def test_a_worker_that_computes_something_else_is_not_timed() -> None:
    said: list[str] = []
    result = compare(
        [fake("weft"), fake("wrong", (3.0, 2.0, 1.1)), fake("nan", (float("nan"),) * 3)], QUICK, said.append
    )
    assert list(result["rows"]) == ["weft"] and set(result["failed"]) == {"wrong", "nan"}
    assert any("wrong: FAILED, disagrees by" in line for line in said)


def test_missing_and_broken_workers_are_told_apart() -> None:
    missing = Entry("missing", [sys.executable, "-c", "import no_such_framework"])
    broken = Entry("broken", [sys.executable, "-c", "raise ValueError('bad layer')"])
    absent = Entry("absent", None, reason="no interpreter with absent given")
    said: list[str] = []
    result = compare([fake("weft"), missing, broken, absent], QUICK, said.append)
    assert set(result["skipped"]) == {"missing", "absent"} and "bad layer" in result["failed"]["broken"]
    assert any("absent: skipped, no interpreter" in line for line in said)


def test_a_worker_that_ends_while_it_is_timed_leaves_the_others_running() -> None:
    dies = FAKE.format(losses=[3.0, 2.0, 1.0], seconds=0.001).replace(
        "serve(", "import itertools, os\ncount = itertools.count()\nplain = step\n"
        "def step():\n    return plain() if next(count) < 5 else os._exit(7)\nserve(",
    )  # fmt: skip
    entry = Entry("dies", [sys.executable, "-c", dies])
    result = compare([fake("weft"), entry], QUICK, lambda text: None)
    assert list(result["rows"]) == ["weft"] and "ended with 7" in result["failed"]["dies"]
    result = compare([entry, fake("weft")], QUICK, lambda text: None)  # without the reference there is no comparison
    assert result["rows"] == {} and "ended with 7" in result["failed"]["dies"]


def test_who_is_far_behind_takes_part_in_few_rounds_only() -> None:
    plan = Plan(seconds=30.0, rounds=6, turn=0.0, patience=20.0)
    rows = compare([fake("weft"), fake("near"), fake("far", seconds=0.05)], plan, lambda text: None)["rows"]
    assert rows["far"]["steps"] == 3 and rows["weft"]["steps"] == 6


def test_a_step_that_takes_long_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LONG, "0.1")
    said: list[str] = []
    entries = [
        fake("weft"),
        fake("long", (3.0, 2.0), seconds=0.15),
        fake("wrong", (3.0, 2.5), seconds=0.15),
        fake("near"),
    ]
    result = compare(entries, QUICK, said.append)
    rows = result["rows"]
    assert set(rows) == {"weft", "long", "near"} and "disagrees" in result["failed"]["wrong"]
    assert rows["long"]["steps"] == 1 and rows["long"]["check"] == [3.0, 2.0] and rows["long"]["relative"] > 10
    assert any(line.startswith("  long: a step takes 0 s, timed once") for line in said)
    section = Section(
        "s", {"m": "M"}, {n: Runner("weft" if n == "weft" else "f", "", n) for n in rows}, lambda name: (1, ""), ""
    )
    table = section.markdown({"machine": {}, "sections": {"s": {"m": result}}})
    assert f"{rows['long']['median'] * 1e3:.0f} (one step)" in table
    rows = compare([fake("weft"), fake("long", (3.0, 2.0), seconds=0.15)], QUICK, said.append)["rows"]
    assert set(rows) == {"weft", "long"} and rows["weft"]["rounds"] == 3  # the reference is timed all the same


def test_who_ends_beside_a_group_is_tried_again_without_it(tmp_path: Path) -> None:
    flag = tmp_path / "started"
    code = (
        "import os, pathlib\nflag = pathlib.Path({flag!r})\nif not flag.exists():\n    flag.touch()\n    os._exit(9)\n"
    )
    hungry = Entry(
        "hungry", [sys.executable, "-c", code.format(flag=str(flag)) + FAKE.format(losses=[3, 2, 1], seconds=0.001)]
    )
    said: list[str] = []
    result = compare([fake("weft"), fake("a"), hungry], QUICK, said.append)
    assert set(result["rows"]) == {"weft", "a", "hungry"} and not result["failed"] and len(result["machine"]) == 2
    assert any("hungry: ended with 9: no message. Trying again without a" in line for line in said)
    flag.unlink()
    result = compare([fake("weft"), hungry, fake("a")], QUICK, said.append)  # no other worker to wait for
    assert set(result["rows"]) == {"weft", "a"} and "ended with 9" in result["failed"]["hungry"]


def test_no_rounds_only_checks() -> None:
    said: list[str] = []
    result = compare([fake("weft"), fake("peer")], Plan(rounds=0, patience=20.0), said.append)
    assert result["rows"] == {} and not result["failed"] and "peer: agrees to 0.0e+00" in said[0]


def test_waiting_for_a_worker_ends() -> None:
    with pytest.raises(WorkerError, match="no answer within 0 s"):
        Worker("hangs", [sys.executable, "-c", "import time; time.sleep(60)"], {}, 1, patience=0.3)


def test_workers_that_do_not_fit_in_memory_run_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.harness.machine.available_bytes", lambda: 0)
    result = compare([fake("weft"), fake("a"), fake("b")], QUICK, lambda text: None)
    assert set(result["rows"]) == {"weft", "a", "b"} and len(result["machine"]) == 2


def test_disagreement() -> None:
    assert disagreement([100.0, 1.0], [100.0, 2.0]) == 0.01  # relative to the largest
    assert disagreement([0.1], [0.2]) == pytest.approx(0.1)  # but to 1 at least
    assert disagreement([1.0], [1.0, 2.0]) == float("inf")
    assert quartiles([1.0]) == (1.0, 1.0, 1.0) and quartiles([1.0, 2.0, 3.0])[1] == 2.0
