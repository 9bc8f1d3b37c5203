"""`wf.save` and `wf.load`, and the safetensors files they write."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import weft as wf
from weft import dtypes
from weft.io import load, save
from weft.io.tensor_file import read_arrays, read_header


def same(a: object, b: object) -> bool:
    """Equal in type, structure, dtype and bits."""
    if isinstance(a, wf.Tensor) or isinstance(b, wf.Tensor):
        return type(a) is type(b) and same(a.numpy(), b.numpy())
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(type(k) is type(m) for k, m in zip(a, b)) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or (isinstance(a, (float, complex)) and repr(a) == repr(b))  # NaN, also in a complex number


def test_a_tree_comes_back_as_it_was(tmp_path: Path) -> None:
    tree = {
        "w": wf.asarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        "state": {0: {"step": wf.asarray(3.0), "on": True}, 1: {}},
        "betas": (0.9, 0.999),
        "list": [1, None, "text", -2.5, float("inf"), float("nan"), 1 + 2j],
        "array": np.array([1, 2], np.int16),
        "$odd": {"$tensor": "not a tensor"},
        "a.b": wf.ones(1),
        "a": {"b": wf.zeros(1)},
        "empty": wf.zeros((0, 3)),
        "": [],
    }
    save(tree, tmp_path / "x.safetensors")
    assert same(load(tmp_path / "x.safetensors"), tree)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_dtype(dtype: np.dtype, tmp_path: Path) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    tree = {"plain": wf.asarray(array), "scalar": wf.asarray(array[0, 1]), "strided": wf.asarray(array.T)}
    save(tree, tmp_path / "x")
    back = load(tmp_path / "x")
    for name, value in tree.items():
        assert back[name].dtype == value.dtype and np.array_equal(back[name].numpy(), value.numpy())


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.complex_numbers()
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.just("$tensor"), inner)
    ),
    max_leaves=20,
)


@settings(deadline=None, max_examples=60)
@given(trees)
def test_any_tree_comes_back(tmp_path_factory: pytest.TempPathFactory, tree: object) -> None:
    path = tmp_path_factory.mktemp("tree") / "x"
    save(tree, path)
    assert same(load(path), tree)


def test_files_are_exchanged_with_the_safetensors_library(tmp_path: Path) -> None:
    state = {"layer.weight": np.arange(4, dtype=np.float32).reshape(2, 2), "layer.bias": np.ones(2, np.float64)}
    save({name: wf.asarray(array) for name, array in state.items()}, tmp_path / "ours.safetensors")
    theirs = load_file(tmp_path / "ours.safetensors")
    assert same({k: theirs[k] for k in state}, state) and set(theirs) == set(state)
    save_file(state, tmp_path / "theirs.safetensors")
    back = load(tmp_path / "theirs.safetensors")
    assert {k: v.numpy().tolist() for k, v in back.items()} == {k: v.tolist() for k, v in state.items()}
    assert read_header(tmp_path / "theirs.safetensors")[0]["layer.weight"] == (np.dtype("float32"), (2, 2))


def test_what_cannot_be_saved_is_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"save: 'a\.1' is a set"):
        save({"a": [0, {1}]}, tmp_path / "x")
    with pytest.raises(TypeError, match="Expected strings or integers"):
        save({1.5: 0}, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save({"x": 1}, tmp_path / "x")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        save({"x": 2}, tmp_path / "x")
    assert load(tmp_path / "x") == {"x": 1} and len(list(tmp_path.iterdir())) == 1


def test_a_damaged_file_is_an_error_at_every_length(tmp_path: Path) -> None:
    path = tmp_path / "x"
    save({"weight": wf.ones(3), "n": 1}, path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="damaged or is no safetensors file"):
            load(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(ValueError, match="promises"):
        load(path)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_a_flipped_header_never_crashes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("flip") / "x"
    save({"weight": wf.ones(3), "bias": wf.zeros((2, 2)), "n": (1, 2)}, path)
    content = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", content[:8])
    content[data.draw(st.integers(0, 7 + length))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content))
    try:
        load(path)
    except ValueError as error:
        assert "damaged" in str(error)


def test_missing_file_and_a_wrong_kind_of_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing")
    (tmp_path / "page.html").write_text("<html>" * 100)
    with pytest.raises(ValueError, match="no safetensors file"):
        read_arrays(tmp_path / "page.html")
    with pytest.raises(FileNotFoundError, match="holds none"):
        load(tmp_path)
