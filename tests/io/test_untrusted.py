"""Checkpoints and tensor files that are not to be trusted, with checksums that agree."""

from __future__ import annotations

import hashlib
import json
import os
import struct

import numpy as np
import pytest

import weft as wf
from weft.errors import FileError
from weft.io import CheckpointError, list_checkpoints, open_checkpoint, write_checkpoint
from weft.io.checked import MAX_DEPTH
from weft.io.tree_file import MAX_LEVELS


@pytest.fixture
def written(tmp_path):
    """A checkpoint, and a function that replaces its manifest by a changed one with the right checksum."""
    path = write_checkpoint(tmp_path / "run", 3, {"model": {"w": wf.ones(2)}, "notes": {"a": 1}}, scores={"loss": 1.0})

    def change(edit):
        manifest = json.loads((path / "manifest.json").read_bytes())
        made = edit(manifest)
        text = made if isinstance(made, bytes) else json.dumps(manifest).encode()
        (path / "manifest.json").write_bytes(text)
        (path / "manifest.sha256").write_text(hashlib.sha256(text).hexdigest())
        return path

    return change


def entry_for(file):
    content = file.read_bytes()
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


@pytest.mark.parametrize(
    "name", ["../secret.json", "../../secret.json", "/etc/passwd", "sub/a.json", "a.exe", "manifest.json", ".json", ""]
)
def test_a_manifest_names_only_files_in_its_directory(written, tmp_path, name):
    (tmp_path / "secret.json").write_text('{"key": "secret"}')
    entry = entry_for(tmp_path / "secret.json")
    path = written(lambda m: m["files"].update({name: entry}))
    with pytest.raises(CheckpointError, match=r"manifest.json, files\..*: this cannot be a file of a checkpoint"):
        open_checkpoint(path)


def test_a_part_that_is_a_link_is_refused(written, tmp_path):
    (tmp_path / "secret.json").write_text('{"key": "secret"}')
    entry = entry_for(tmp_path / "secret.json")
    path = written(lambda m: m["files"].update({"stolen.json": entry}))
    (path / "stolen.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(CheckpointError, match=r"stolen.json is not a plain file"):
        open_checkpoint(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_a_pipe_in_place_of_a_file_is_not_waited_for(written, tmp_path):
    os.mkfifo(tmp_path / "g.json")
    os.mkfifo(tmp_path / "g.safetensors")
    for read in (wf.load, wf.nn.load_weights):
        with pytest.raises(FileError, match="is not a plain file"):
            read(tmp_path / "g.safetensors")
    with pytest.raises(FileError, match="is not a plain file"):
        wf.Graph.load(tmp_path / "g")
    path = written(lambda m: None)
    for name in ("manifest.sha256", "manifest.json", "notes.json"):
        kept = (path / name).read_bytes()
        (path / name).unlink()
        os.mkfifo(path / name)
        with pytest.raises(CheckpointError, match=f"{name} is not a plain file"):
            open_checkpoint(path)
        (path / name).unlink()
        (path / name).write_bytes(kept)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda m: b"{", "manifest.json, line 1, column 2: is not JSON"),
        (lambda m: b"[" * 5000, "is nested deeper than"),
        (lambda m: b"[]", "expected an object. Got a list of 0 entries"),
        (lambda m: b"\xff", "byte 0: is not UTF-8 text"),
        (lambda m: m.pop("files") and None, "there is no 'files'"),
        (lambda m: m.update(step="3"), "step: expected an integer"),
        (lambda m: m.update(step=-1), "step: expected an integer"),
        (lambda m: m.update(scores=[]), "scores: expected an object"),
        (lambda m: m["scores"].update(loss="x"), "scores.loss: expected a number"),
        (lambda m: m.update(facts=3), "facts: expected an object"),
        (lambda m: m["files"].update({"notes.json": 3}), r"files.notes.json: expected an object"),
        (lambda m: m["files"]["notes.json"].update(sha256="x"), "expected 64 hexadecimal digits"),
        (lambda m: m["files"].update({"notes.safetensors": m["files"]["notes.json"]}), "part 'notes' has two files"),
    ],
)  # fmt: skip
def test_a_manifest_of_another_form_is_a_damaged_checkpoint(written, edit, reason):
    path = written(edit)
    with pytest.raises(CheckpointError, match=reason):
        open_checkpoint(path)
    assert list_checkpoints(path.parent) == [path]


def test_a_part_whose_checksum_is_right_and_whose_content_is_not(written):
    def replace(manifest):
        path = next(iter(paths))
        (path / "notes.json").write_text('{"$tuple": 3}')
        manifest["files"]["notes.json"] = entry_for(path / "notes.json")

    paths = [written(lambda m: None)]
    found = open_checkpoint(written(replace))
    with pytest.raises(CheckpointError, match=r"notes.json, \$tuple: expected a list. Got 3"):
        found.part("notes")


def test_a_model_is_made_by_a_registered_constructor_with_its_arguments(written):
    for facts, reason in (
        ({"name": "os.system", "arguments": {}}, r"facts.model.name: expected one of"),
        ({"name": "mlp", "arguments": []}, "facts.model.arguments: expected an object"),
        ({"name": "mlp", "arguments": {"no_such": 1}}, "its model 'mlp' cannot be made"),
        ({"name": "mlp", "arguments": {"in_features": 2, "hidden": [2], "out_features": 2}}, "cannot be made: load_state_dict"),
        ([], r"facts.model: expected an object"),
    ):  # fmt: skip
        path = written(lambda m, facts=facts: m["facts"].update(model=facts))
        with pytest.raises(CheckpointError, match=reason):
            wf.models.load(path)


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    ("content", "place", "reason"),
    [
        (safetensors(b"["), "line 1, column 2", "is not JSON"),
        (safetensors([]), "", "expected an object"),
        (safetensors({"a": []}), "a", "expected an object. Got a list"),
        (safetensors({"a": {"dtype": "F32", "shape": [1]}}, bytes(4)), "a", "there is no 'data_offsets'"),
        (safetensors({"a": {"dtype": "X", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)), "a.dtype", "expected one of BOOL"),
        (safetensors({"a": {"dtype": "F32", "shape": [0, 2**62], "data_offsets": [0, 0]}}), "a.shape", "no array can have"),
        (safetensors({"a": {"dtype": "F32", "shape": [0] * 99, "data_offsets": [0, 0]}}), "a.shape", "no array can have"),
        (safetensors({"a": {"dtype": "F32", "shape": [2**70], "data_offsets": [0, 0]}}), "a.shape[0]", "expected an integer"),
        (safetensors({"__metadata__": {"x": 1}}), "__metadata__.x", "expected a string"),
        (safetensors({"__metadata__": {"weft.complex128": '["a"]'}}), "__metadata__.weft.complex128", "is not stored as pairs"),
        (safetensors({"__metadata__": {"weft.tree": '{"$tensor": "a"}'}}), "__metadata__.weft.tree.$tensor", "has no array"),
        (safetensors({"__metadata__": {"weft.tree": "[" * 5000}}), "__metadata__.weft.tree", "nested deeper than"),
    ],
)  # fmt: skip
def test_tensor_files_say_where_they_are_damaged(tmp_path, content, place, reason):
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(FileError) as caught:
        wf.load(tmp_path / "a.safetensors")
    assert reason in caught.value.reason
    assert caught.value.place == place
    assert caught.value.path == str(tmp_path / "a.safetensors")


def test_what_is_too_deep_to_load_is_not_saved(tmp_path):
    tree = leaf = []
    for _ in range(MAX_LEVELS - 1):
        leaf.append(inner := [])
        leaf = inner
    wf.save(tree, tmp_path / "a")
    assert wf.load(tmp_path / "a") == tree
    deep = {1: wf.ones(1)}
    for _ in range(MAX_LEVELS - 2):
        deep = {1: deep}  # the form that takes the most levels of JSON
    wf.save(deep, tmp_path / "b")
    assert MAX_LEVELS * 3 < MAX_DEPTH
    wf.load(tmp_path / "b")
    with pytest.raises(ValueError, match=f"nested deeper than {MAX_LEVELS} levels"):
        wf.save([[tree]], tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_restored_variables_are_checked(tmp_path):
    v = wf.Variable(np.ones(3, np.complex64), name="v")
    path = tmp_path / "v.safetensors"
    save, restore = wf.save_variables([v], path), wf.restore_variables([v], path)
    with wf.Session() as session:
        session.run(save)
        v.tensor.fill_(0)
        session.run(restore)
        assert v.numpy().tolist() == [1, 1, 1]
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(FileError, match="restore_variables: .*v.safetensors"):
            session.run(restore)
