"""Pruning and branches: a new checkpoint is never the victim, and `latest` follows the branch that was written last."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from tests.faults import Faults, crashes, full_disk
from weft.io import (
    CheckpointError,
    CheckpointManager,
    CheckpointWarning,
    checkpoint,
    durable,
    latest,
    list_checkpoints,
    open_checkpoint,
    write_checkpoint,
)
from weft.io import manager as manager_module
from weft.io.branches import Lineage


def parts(step: int, branch: str = "") -> dict[str, object]:
    return {"model": {"weight": wf.full((4,), float(step))}, "note": [step, branch]}


def flip(path: Path) -> None:
    data = bytearray((path / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (path / "model.safetensors").write_bytes(bytes(data))


def names(directory: Path) -> list[str]:
    return [path.name.removeprefix("step-").lstrip("0") for path in list_checkpoints(directory)]


def good_notes(directory: Path) -> list[object]:
    found = []
    for path in list_checkpoints(directory):
        try:
            found.append(open_checkpoint(path).part("note"))
        except CheckpointError:
            continue
    return found


def as_written_by_0_1(path: Path) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["serial"], manifest["branches"]
    text = json.dumps(manifest, indent=2).encode()
    (path / "manifest.json").write_bytes(text)
    digest = checkpoint.hashlib.sha256(text).hexdigest()
    (path / "manifest.sha256").write_text(digest + "\n")


@pytest.mark.parametrize("old", [False, True], ids=["", "written-by-0.1"])
def test_new_checkpoints_are_kept_beside_damaged_ones_of_higher_steps(tmp_path: Path, old: bool) -> None:
    for step in (100, 200, 300):
        path = write_checkpoint(tmp_path, step, parts(step))
        if old:
            as_written_by_0_1(path)
        flip(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)
        with CheckpointManager(tmp_path, keep=3) as manager:
            for step in range(1, 6):
                manager.save(step, parts(step))
                found = manager.latest()
                assert found is not None and found.step == step
    assert good_notes(tmp_path) == [[3, ""], [4, ""], [5, ""]]


def test_damaged_ones_do_not_count_among_those_to_keep_and_are_named_once(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        write_checkpoint(tmp_path, step, parts(step))
    flip(tmp_path / "step-00000002")
    flip(tmp_path / "step-00000003")
    manager = CheckpointManager(tmp_path, keep=2, background=False)
    manager.save(4, parts(4))
    with pytest.warns(CheckpointWarning) as caught:
        manager.wait()
    assert ["step-00000003 is damaged" in str(w.message) for w in caught] == [True, False]
    assert "does not count among the 2 to keep" in str(caught[1].message)
    assert good_notes(tmp_path) == [[1, ""], [4, ""]]
    manager.save(5, parts(5))
    manager.close()  # a second warning would be an error here
    assert names(tmp_path) == ["4", "5"]


def test_a_damaged_best_one_does_not_cost_the_second_best(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path, keep=1, score="loss") as manager:
        manager.save(1, parts(1), {"loss": 0.2})
        manager.save(2, parts(2), {"loss": 0.1})
    write_checkpoint(tmp_path, 1, parts(1), scores={"loss": 0.2})
    flip(tmp_path / "step-00000002")
    manager = CheckpointManager(tmp_path, keep=1, score="loss", background=False)
    manager.save(3, parts(3), {"loss": 0.3})
    with pytest.warns(CheckpointWarning, match="step-00000002 is damaged"):
        manager.close()
    assert [1, ""] in good_notes(tmp_path) and [3, ""] in good_notes(tmp_path)


def test_a_branch_keeps_its_checkpoints_and_latest_follows_it(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path, keep=3) as manager:
        for step in (10, 20, 30):
            manager.save(step, parts(step, "old"))
    with CheckpointManager(tmp_path, keep=3) as manager:
        start = open_checkpoint(tmp_path / "step-00000010")
        assert [p.name for p in manager.branch_from(start)] == ["step-00000020", "step-00000030"]
        for step in (15, 20):
            manager.save(step, parts(step, "new"))
            manager.wait()
            assert latest(tmp_path).part("note") == [step, "new"]
        # The same step of the other branch has made room; nothing is gone as long as the new branch is young.
        assert names(tmp_path) == ["10", "15", "20", "20.branch-0", "30"]
    with CheckpointManager(tmp_path, keep=3) as manager:  # a later process goes on with the branch
        assert manager.latest().part("note") == [20, "new"]
        manager.save(25, parts(25, "new"))
        manager.wait()
        assert good_notes(tmp_path) == [[15, "new"], [20, "new"], [25, "new"], [30, "old"]]
        manager.save(30, parts(30, "new"))
    assert good_notes(tmp_path) == [[20, "new"], [25, "new"], [30, "new"], [30, "old"]]
    assert latest(tmp_path).part("note") == [30, "new"]
    with CheckpointManager(tmp_path, keep=3) as manager:  # … and back to what was abandoned
        manager.branch_from(open_checkpoint(tmp_path / "step-00000030.branch-0"))
        manager.save(40, parts(40, "old"))
    assert latest(tmp_path).part("note") == [40, "old"]
    lineage = json.loads((tmp_path / "step-00000040" / "manifest.json").read_text())["branches"]
    assert lineage == [[0, None], [2, 30]]


def test_latest_follows_a_branch_that_ended_before_its_first_checkpoint(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path, keep=3) as manager:
        for step in (10, 20, 30):
            manager.save(step, parts(step, "old"))
    for _ in range(2):  # also if it is killed again
        with CheckpointManager(tmp_path, keep=3) as manager:
            manager.branch_from(open_checkpoint(tmp_path / "step-00000010"))
        assert latest(tmp_path).part("note") == [10, "old"]
    with CheckpointManager(tmp_path, keep=3) as manager:  # a process that goes on with the latest
        manager.save(40, parts(40, "new"))  # beyond all steps that were abandoned
        manager.wait()
        assert latest(tmp_path).part("note") == [40, "new"]
        assert json.loads((tmp_path / "step-00000040" / "manifest.json").read_text())["branches"] == [
            [0, None],
            [1, 10],
        ]
        flip(tmp_path / "step-00000040")
        with pytest.warns(CheckpointWarning, match="step-00000040 is damaged"):
            assert latest(tmp_path) is not None


def test_going_on_from_the_newest_takes_a_begun_branch_back(tmp_path: Path) -> None:
    for step in (10, 20):
        write_checkpoint(tmp_path, step, parts(step))
    with CheckpointManager(tmp_path) as manager:
        manager.branch_from(open_checkpoint(tmp_path / "step-00000010"))
    with CheckpointManager(tmp_path) as manager:
        assert manager.branch_from(open_checkpoint(tmp_path / "step-00000020")) == []
    assert latest(tmp_path).step == 20


def test_a_begun_branch_whose_start_is_damaged_falls_back(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        write_checkpoint(tmp_path, step, parts(step))
    with CheckpointManager(tmp_path) as manager:
        manager.branch_from(open_checkpoint(tmp_path / "step-00000020"))
    flip(tmp_path / "step-00000020")
    with pytest.warns(CheckpointWarning, match="step-00000020 is damaged"):
        assert latest(tmp_path).step == 10


def test_a_branch_from_another_directory_is_not_silently_left(tmp_path: Path) -> None:
    elsewhere = write_checkpoint(tmp_path / "other", 7, parts(7))
    write_checkpoint(tmp_path / "run", 50, parts(50, "old"))
    with CheckpointManager(tmp_path / "run") as manager:
        manager.branch_from(open_checkpoint(elsewhere))
    with pytest.raises(CheckpointError, match="was resumed from .*step-00000007 and wrote no checkpoint"):
        latest(tmp_path / "run")


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"\xff", b'{"schema": 1}', b'{"schema": 1, "serial": 9, "branches": 3}', b"[" * 9000]
)
def test_a_damaged_note_of_a_branch_is_named_and_ignored(tmp_path: Path, content: bytes) -> None:
    write_checkpoint(tmp_path, 10, parts(10))
    (tmp_path / "branch.json").write_bytes(content)
    with pytest.warns(CheckpointWarning, match="branch.json"):
        assert latest(tmp_path).step == 10


def test_going_back_again_and_again_keeps_a_bounded_number(tmp_path: Path) -> None:
    start = write_checkpoint(tmp_path / "other", 5, parts(5))
    for turn in range(6):  # a job that is queued again with the same `resume=`
        with CheckpointManager(tmp_path / "run", keep=2) as manager:
            manager.branch_from(open_checkpoint(start))
            for step in (10, 20, 30):
                manager.save(step, parts(step, str(turn)))
        assert latest(tmp_path / "run").part("note") == [30, str(turn)]
    assert sorted(good_notes(tmp_path / "run")) == [[20, "5"], [30, "3"], [30, "4"], [30, "5"]]


def test_going_on_from_the_newest_or_from_an_empty_directory_is_no_branch(tmp_path: Path) -> None:
    elsewhere = write_checkpoint(tmp_path / "other", 7, parts(7))
    with CheckpointManager(tmp_path / "run", keep=2) as manager:
        assert manager.branch_from(open_checkpoint(elsewhere)) == []
        manager.save(8, parts(8))
        manager.wait()
        assert manager.branch_from(manager.latest()) == []
        manager.save(9, parts(9))
    manifest = json.loads((tmp_path / "run" / "step-00000009" / "manifest.json").read_text())
    assert manifest["branches"] == [[0, None]]


def test_a_start_from_another_directory_abandons_all_that_is_there(tmp_path: Path) -> None:
    elsewhere = write_checkpoint(tmp_path / "other", 7, parts(7))
    write_checkpoint(tmp_path / "run", 50, parts(50, "old"))
    with CheckpointManager(tmp_path / "run", keep=1) as manager:
        assert [p.name for p in manager.branch_from(open_checkpoint(elsewhere))] == ["step-00000050"]
        manager.save(50, parts(50, "new"))
        manager.wait()
        assert latest(tmp_path / "run").part("note") == [50, "new"]
    assert good_notes(tmp_path / "run") == [[50, "new"], [50, "old"]]


def test_an_older_one_is_not_removed_for_a_new_one_that_does_not_verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = CheckpointManager(tmp_path, keep=1, background=False)
    manager.save(1, parts(1))
    real = checkpoint.write_directory

    def with_a_flipped_bit(path: Path, *args: object) -> None:
        real(path, *args)
        flip(path)

    monkeypatch.setattr(checkpoint, "write_directory", with_a_flipped_bit)
    with pytest.raises(CheckpointError, match="step-00000002 is damaged"):
        manager.save(2, parts(2))
    manager.close()
    assert good_notes(tmp_path) == [[1, ""]]


def test_a_failed_rename_puts_the_replaced_directory_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path, 1, parts(1))
    real = os.rename
    calls: list[str] = []

    def second_fails(a: object, b: object) -> None:
        calls.append(str(b))
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(a, b)

    monkeypatch.setattr(durable.os, "rename", second_fails)
    with pytest.raises(CheckpointError, match="the disk is full"):
        write_checkpoint(tmp_path, 1, parts(2))
    assert good_notes(tmp_path) == [[1, ""]] and os.listdir(tmp_path) == ["step-00000001"]


MODULES = (durable, checkpoint, manager_module)


def test_an_error_at_any_operation_leaves_a_good_checkpoint(tmp_path: Path) -> None:
    for at in range(1, 60):
        directory = tmp_path / str(at)
        with CheckpointManager(directory, keep=1, background=False) as manager:
            manager.save(1, parts(1))
            faults = Faults(at, full_disk, MODULES)
            failed = False
            with faults.active():
                try:
                    manager.save(2, parts(2))
                except CheckpointError:
                    failed = True
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CheckpointWarning)  # the older one could not be removed
                manager.wait()
            found = latest(directory)
            assert found is not None and found.part("note") == [found.step, ""] and (failed or found.step == 2)
        if faults.count < at:
            break
    assert 10 < at < 59, "the faults must reach every operation of a save"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="simulates a crash in a forked process")
def test_a_crash_at_any_operation_leaves_a_good_checkpoint(tmp_path: Path) -> None:
    def save_and_prune(directory: Path) -> None:
        with CheckpointManager(directory, keep=1, background=False) as manager:
            manager.branch_from(open_checkpoint(directory / "step-00000001"))
            manager.save(2, parts(2, "new"))

    for at in range(1, 60):
        directory = tmp_path / str(at)
        for step in (1, 2, 3):
            write_checkpoint(directory, step, parts(step, "old"))
        crashed = crashes(at, MODULES, lambda directory=directory: save_and_prune(directory))
        with CheckpointManager(directory, keep=1):  # clears away what was left half done
            found = latest(directory)
        assert found is not None and found.part("note") in ([3, "old"], [1, "old"], [2, "new"])
        assert [3, "old"] in good_notes(directory), "the last one of the abandoned branch is kept"
        if not crashed:
            break
    assert 10 < at < 59 and found.part("note") == [2, "new"]


def test_random_histories_never_lose_the_new_checkpoint(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    for case in range(8):
        directory, keep = tmp_path / str(case), int(rng.integers(1, 4))
        step = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CheckpointWarning)
            manager = CheckpointManager(directory, keep=keep, background=False)
            for turn in range(10):
                present = list_checkpoints(directory)
                action = rng.integers(0, 5)
                if action == 0 and present:
                    flip(present[int(rng.integers(len(present)))])
                    manager.close()
                    manager = CheckpointManager(directory, keep=keep, background=False)
                elif action == 1 and good_notes(directory):
                    choice = str(rng.choice([str(p) for p in present]))
                    try:
                        start = open_checkpoint(choice)
                    except CheckpointError:
                        continue
                    manager.branch_from(start)
                    step = start.step
                step += int(rng.integers(1, 3))
                manager.save(step, parts(step, str(turn)))
                found = manager.latest()
                assert found is not None and found.part("note") == [step, str(turn)]
            manager.close()
        assert len(good_notes(directory)) >= keep


def test_lineage_knows_its_ancestors() -> None:
    lineage = Lineage().fork(1, 10).fork(2, 15)
    assert lineage.holds(0, 10) and not lineage.holds(0, 11)
    assert lineage.holds(1, 15) and not lineage.holds(1, 16) and lineage.holds(2, 1000)
    assert not lineage.holds(3, 1)
    assert lineage.fork(3, 12).branches == ((0, None), (1, 10), (3, 12))
    assert lineage.fork(3, 10).branches == ((0, None), (3, 10))
