"""Checkpoints: whole or absent, verified, pruned, written in the background."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from weft.io import (
    CheckpointError,
    CheckpointManager,
    CheckpointWarning,
    best,
    checkpoint,
    latest,
    list_checkpoints,
    load,
    open_checkpoint,
    write_checkpoint,
)

PARTS = {"model": {"weight": wf.ones((2, 3))}, "loader": {"epoch": 3}, "notes": (1, {2: "x"})}


def steps(directory: Path) -> list[int]:
    return [int(path.name.removeprefix("step-")) for path in list_checkpoints(directory)]


def test_a_checkpoint_comes_back(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, 12, PARTS, scores={"loss": 0.5, "nan": float("nan")}, facts={"weft": "x"})
    assert path.name == "step-00000012"
    assert sorted(p.name for p in path.iterdir()) == [
        "loader.json", "manifest.json", "manifest.sha256", "model.safetensors", "notes.json",
    ]  # fmt: skip
    found = open_checkpoint(path)
    assert found.step == 12 and found.scores == {"loss": 0.5} and found.facts == {"weft": "x"}
    parts = found.load()
    assert parts["loader"] == {"epoch": 3} and parts["notes"] == (1, {2: "x"})
    assert parts["model"]["weight"].numpy().tolist() == [[1.0] * 3] * 2
    assert load(path).keys() == load(tmp_path).keys() == PARTS.keys()
    with pytest.raises(KeyError, match="no part 'optimizer'. It has model, loader, notes"):
        found.part("optimizer")
    assert json.loads((path / "manifest.json").read_text())["schema"] == 1


def damage_flip(path: Path) -> None:
    data = bytearray((path / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (path / "model.safetensors").write_bytes(bytes(data))


def damage_cut(path: Path) -> None:
    os.truncate(path / "model.safetensors", 20)


def damage_missing(path: Path) -> None:
    (path / "loader.json").unlink()


def damage_manifest(path: Path) -> None:
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text.replace('"step": 3', '"step": 4'))


def damage_no_manifest(path: Path) -> None:
    (path / "manifest.json").unlink()


def damage_empty(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (damage_flip, "model.safetensors has another checksum"),
        (damage_cut, "model.safetensors has 20 bytes instead of"),
        (damage_missing, "loader.json is missing"),
        (damage_manifest, "manifest.json has another checksum"),
        (damage_no_manifest, "manifest.json is missing"),
        (damage_empty, "manifest.json is missing"),
    ],
)
def test_a_damaged_one_is_named_and_the_one_before_is_used(tmp_path: Path, damage: object, words: str) -> None:
    for step in (1, 2, 3):
        write_checkpoint(tmp_path, step, PARTS, scores={"loss": -step})
    damage(tmp_path / "step-00000003")
    with pytest.warns(CheckpointWarning, match=f"step-00000003 is damaged: {words}"):
        found = latest(tmp_path)
    assert found is not None and found.step == 2
    with pytest.raises(CheckpointError, match=words):
        open_checkpoint(tmp_path / "step-00000003")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)
        chosen = best(tmp_path, "loss")
    assert chosen is not None and chosen.step == 2


def test_all_damaged_or_none_there(tmp_path: Path) -> None:
    assert latest(tmp_path) is None and latest(tmp_path / "nowhere") is None and best(tmp_path, "loss") is None
    damage_flip(write_checkpoint(tmp_path, 1, PARTS))
    with pytest.warns(CheckpointWarning):
        assert latest(tmp_path) is None


def test_another_schema_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SCHEMA", 99)
    path = write_checkpoint(tmp_path, 1, PARTS, facts={"weft": "9.9"})
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=r"schema 99; this version of Weft reads 1.*9\.9"):
        open_checkpoint(path)


def test_best_by_score(tmp_path: Path) -> None:
    for step, score in ((1, 0.5), (2, 0.9), (3, 0.9), (4, 0.1)):
        write_checkpoint(tmp_path, step, PARTS, scores={"accuracy": score})
    write_checkpoint(tmp_path, 5, PARTS)
    assert best(tmp_path, "accuracy", "max").step == 2
    assert best(tmp_path, "accuracy", "min").step == 4
    with pytest.raises(ValueError, match="'min' or 'max'"):
        best(tmp_path, "accuracy", "most")


@pytest.mark.parametrize("name", ["", "a/b", "..", "manifest", "x y"])
def test_bad_part_names(tmp_path: Path, name: str) -> None:
    with CheckpointManager(tmp_path) as manager, pytest.raises(ValueError, match="cannot name a part"):
        manager.save(1, {name: 1})


# The manager -------------------------------------------------------------------------------------------------------------


def test_keeps_the_last_and_the_best(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path, keep=2, score="accuracy", mode="max") as manager:
        for step, score in enumerate([0.3, 0.8, 0.5, 0.4, 0.6]):
            manager.save(step, PARTS, {"accuracy": score})
        manager.wait()
        assert steps(tmp_path) == [1, 3, 4]
        assert manager.best().step == 1 and manager.latest().step == 4
    with pytest.raises(RuntimeError, match="closed"):
        manager.save(9, PARTS)


def test_a_snapshot_is_taken_before_save_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    real = checkpoint._write_part

    def slow(*args: object) -> object:
        assert go.wait(30)
        return real(*args)

    monkeypatch.setattr(checkpoint, "_write_part", slow)
    weight = wf.zeros(4)
    with CheckpointManager(tmp_path) as manager:
        manager.save(1, {"model": {"weight": weight}})
        weight += 1
        go.set()
        manager.wait()
        assert manager.latest().part("model")["weight"].tolist() == [0, 0, 0, 0]


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_the_old_one_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = CheckpointManager(tmp_path, keep=1)
    manager.save(1, PARTS)
    manager.wait()
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_packed", full_disk)
        manager.save(2, PARTS)
        words = r"step-00000002 could not be written: the disk is full.*MB free.*step-00000001, is intact"
        with pytest.warns(CheckpointWarning, match=words):
            manager.wait()
        assert manager.failure is not None
        with pytest.raises(CheckpointError, match="is intact"):
            write_checkpoint(tmp_path, 2, PARTS)
    assert steps(tmp_path) == [1] and sorted(os.listdir(tmp_path)) == [".lock", "step-00000001"]
    manager.save(3, PARTS)  # there is room again
    manager.close()
    assert manager.failure is None and steps(tmp_path) == [3]


def test_without_a_thread_errors_are_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "write_packed", full_disk)
    with CheckpointManager(tmp_path, background=False) as manager, pytest.raises(CheckpointError, match="no older one"):
        manager.save(1, PARTS)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    code = "import sys; from weft.io import CheckpointManager; CheckpointManager(sys.argv[1])"
    with CheckpointManager(tmp_path):
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and "another run is writing to" in done.stderr
    CheckpointManager(tmp_path).close()


def test_what_a_dead_process_left_is_cleared_away(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1, PARTS)
    (tmp_path / ".tmp-step-00000002.1-aa").mkdir()
    (tmp_path / ".tmp-step-00000002.1-aa" / "model.safetensors").write_bytes(b"half")
    os.rename(
        tmp_path / "step-00000001", tmp_path / ".old-step-00000001"
    )  # it died between the renames of a replacement
    with CheckpointManager(tmp_path) as manager:
        assert steps(tmp_path) == [1] and manager.latest().step == 1
    assert sorted(os.listdir(tmp_path)) == [".lock", "step-00000001"]


def test_the_same_step_again_replaces_it(tmp_path: Path) -> None:
    damage_flip(write_checkpoint(tmp_path, 1, PARTS))
    with CheckpointManager(tmp_path) as manager:
        manager.save(1, {"model": {"weight": wf.zeros(1)}})
    assert latest(tmp_path).part("model")["weight"].tolist() == [0.0]
    assert sorted(os.listdir(tmp_path)) == [".lock", "step-00000001"]


KILLED = """
import sys, numpy as np, weft as wf
from weft.io import CheckpointManager
manager = CheckpointManager(sys.argv[1], keep=2)
print("ready", flush=True)
step = 0
while True:
    step += 1
    manager.save(step, {"model": {"weight": wf.asarray(np.full(20000, step))}, "step": step})
"""


def test_killed_at_any_moment_there_is_always_a_good_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    last = 0
    for round_ in range(4):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.15 + 0.2 * rng.random())
        finally:
            process.kill()
            process.communicate(timeout=30)
        found = latest(tmp_path)  # a damaged one would warn, and a warning is an error here
        assert found is not None and found.part("step") == found.step, round_
        assert found.part("model")["weight"].numpy().tolist() == [found.step] * 20000
        assert len(list_checkpoints(tmp_path)) <= 3
        last = found.step
        for path in list_checkpoints(tmp_path):
            shutil.rmtree(path)  # the next round counts from one again
    assert last > 1


@pytest.mark.parametrize("settings", [{"keep": 0}, {"keep": True}, {"mode": "best"}])
def test_bad_settings(tmp_path: Path, settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="CheckpointManager: "):
        CheckpointManager(tmp_path, **settings)
