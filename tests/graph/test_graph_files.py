"""A saved graph is the old one or the new one, whole, whatever write, sync or rename fails or is the last."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from tests.faults import Faults, crashes, full_disk
from weft.graph.declared import graph_files
from weft.io import durable

pytestmark = pytest.mark.usefixtures("fresh_graph")
MODULES = (durable, graph_files)
FAULTS = 40  # more than a save has writes, syncs and renames; the tests check that


def make(factor: float) -> Any:
    """A graph whose program and weights both say `factor`."""
    graph = wf.Graph(f"times{factor}")
    with graph.as_default():
        weight = wf.Variable(np.full((50,), factor, np.float32), name="weight")
        wf.placeholder(wf.float32, (), name="x") * factor + weight[0]
    return graph


def content(path: Path) -> tuple[str, float]:
    """What a loaded graph's program says and what its weights say."""
    graph = wf.Graph.load(path)
    return graph.name, float(graph.variables()["weight"].numpy()[7])


OLD, NEW = ("times2.0", 2.0), ("times3.0", 3.0)


@pytest.mark.parametrize("first", [False, True], ids=["over-an-older-one", "first"])
def test_an_error_at_any_operation_leaves_a_whole_graph(tmp_path: Path, first: bool) -> None:
    old, new = make(2.0), make(3.0)
    for at in range(1, FAULTS):
        path = tmp_path / str(at) / "g"
        path.parent.mkdir()
        if not first:
            old.save(path)
        faults = Faults(at, full_disk, MODULES)
        failed = None
        with faults.active():
            try:
                new.save(path)
            except OSError as error:
                failed = error
        if failed is None:
            assert content(path) == NEW
        elif "intact" in str(failed):
            assert content(path) == OLD and "the disk is full" in str(failed)
        elif "none before" in str(failed):
            assert os.listdir(path.parent) == []
        else:
            assert "new graph is in place" in str(failed) and content(path) == NEW
        new.save(path)  # there is room again
        assert content(path) == NEW and sorted(os.listdir(path.parent)) == ["g.json", "g.safetensors"]
        if faults.count < at:
            break
    assert 10 < at < FAULTS - 1, "the faults must reach every operation of a save"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="simulates a crash in a forked process")
def test_a_crash_at_any_operation_leaves_a_whole_graph(tmp_path: Path) -> None:
    old, new = make(2.0), make(3.0)
    seen = []
    for at in range(1, FAULTS):
        path = tmp_path / str(at) / "g"
        path.parent.mkdir()
        old.save(path)
        crashed = crashes(at, MODULES, lambda path=path: new.save(path))
        seen.append(content(path))
        new.save(path)
        assert content(path) == NEW and sorted(os.listdir(path.parent)) == ["g.json", "g.safetensors"]
        if not crashed:
            break
    assert 10 < at < FAULTS - 1 and set(seen) == {OLD, NEW}
    assert seen == sorted(seen), "from one operation on it is the new graph"


def test_a_program_is_never_paired_with_other_weights(tmp_path: Path) -> None:
    make(2.0).save(tmp_path / "a")
    make(3.0).save(tmp_path / "b")
    (tmp_path / "b.safetensors").replace(tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match=r"a\.safetensors: is damaged or does not belong to a\.json"):
        wf.Graph.load(tmp_path / "a")
    (tmp_path / "a.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"a\.safetensors"):
        wf.Graph.load(tmp_path / "a")


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_a_flipped_bit_in_either_file_is_found(tmp_path: Path, suffix: str) -> None:
    make(2.0).save(tmp_path / "g")
    file = (tmp_path / "g").with_suffix(suffix)
    text = file.read_bytes()
    changed = text.replace(b'"times2.0"', b'"times4.0"') if suffix == ".json" else text[:-1] + bytes([text[-1] ^ 1])
    assert changed != text
    file.write_bytes(changed)
    with pytest.raises(ValueError, match=rf"g{suffix}.*: is damaged"):
        wf.Graph.load(tmp_path / "g")


def test_files_of_0_1_load_and_are_replaced(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    make(2.0).save(tmp_path / "g")
    data = json.loads((tmp_path / "g.json").read_text())
    del data["weights"], data["checksum"]
    (tmp_path / "g.json").write_text(json.dumps(data, indent=1))
    save_file(load_file(tmp_path / "g.safetensors"), tmp_path / "g.safetensors")
    assert content(tmp_path / "g") == OLD
    make(3.0).save(tmp_path / "g")
    assert content(tmp_path / "g") == NEW


def test_loading_beside_saving_gives_one_of_both(tmp_path: Path) -> None:
    graphs = [make(2.0), make(3.0)]
    graphs[0].save(tmp_path / "g")
    errors: list[BaseException] = []

    def save(graph: Any) -> None:
        try:
            for _ in range(15):
                graph.save(tmp_path / "g")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=save, args=(g,)) for g in graphs]
    for thread in threads:
        thread.start()
    try:
        while any(t.is_alive() for t in threads) and not errors:
            assert content(tmp_path / "g") in (OLD, NEW)
    finally:
        for thread in threads:
            thread.join(60)
    assert not errors and content(tmp_path / "g") in (OLD, NEW)
    assert sorted(os.listdir(tmp_path)) == ["g.json", "g.safetensors"]


def test_a_failed_save_of_variables_leaves_the_older_file(tmp_path: Path) -> None:
    weight = wf.Variable(np.full((50,), 2.0, np.float32), name="weight")
    path = tmp_path / "state.safetensors"
    save, bump = wf.save_variables([weight], path), weight.assign_add(1.0)
    with wf.Session() as session:
        session.run(save, timeout=20)
        before = path.read_bytes()
        session.run(bump, timeout=20)
        for at in range(1, FAULTS):
            faults = Faults(at, full_disk, MODULES)
            with faults.active():
                try:
                    session.run(save, timeout=20)
                except OSError:
                    assert os.listdir(tmp_path) == ["state.safetensors"]
                    if faults.count == at and at < 5:
                        assert path.read_bytes() == before
            if faults.count < at:
                break
        assert 4 < at < FAULTS - 1 and path.read_bytes() != before
