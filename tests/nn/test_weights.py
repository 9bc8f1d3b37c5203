"""Weights on disk: whole or not at all."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import weft as wf
from weft import nn
from weft.errors import FileError


def test_round_trip_of_all_dtypes(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    names = ("bool", "int8", "uint8", "int64", "float16", "bfloat16", "float32", "float64")
    state = {name: wf.ones(2, 3, dtype=name) for name in names}
    state["scalar"] = wf.tensor(7)
    state["strided"] = wf.arange(6.0).reshape(2, 3).T
    nn.save_weights(state, path, {"note": "hello"})
    loaded = nn.load_weights(path)
    assert set(loaded) == set(state)
    for name, tensor in state.items():
        assert loaded[name].dtype == tensor.dtype
        assert loaded[name].shape == tensor.shape
        np.testing.assert_array_equal(loaded[name].astype(wf.float64).numpy(), tensor.astype(wf.float64).numpy())
    loaded["float32"] += 1  # what was loaded can be written to


def test_files_of_others_load_and_ours_are_plain_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "linear.safetensors"
    save_file({"weight": np.ones((3, 2), np.float32), "bias": np.zeros(3, np.float32)}, path)
    layer = nn.Linear(2, 3)
    layer.load_state_dict(nn.load_weights(path))
    assert layer(wf.ones(1, 2)).tolist() == [[2.0, 2.0, 2.0]]
    nn.save_weights(layer, path)
    assert load_file(path)["weight"].tolist() == np.ones((3, 2)).tolist()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights.safetensors"
    nn.save_weights({"x": wf.zeros(2)}, path)

    def full_disk(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        nn.save_weights({"x": wf.ones(2)}, path)
    monkeypatch.undo()
    assert nn.load_weights(path)["x"].tolist() == [0.0, 0.0]
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("start", [b"PK\x03\x04" + b"\0" * 60, b"\x80\x02\x8a\nl\xfc\x9cF"], ids=["zip", "bare"])
def test_a_file_of_torch_save_says_how_to_save_it_instead(tmp_path: Path, start: bytes) -> None:
    (tmp_path / "model.pt").write_bytes(start)
    with pytest.raises(ValueError, match=r"model.pt: is a file of torch.save, a pickle.*safetensors.torch.save_file"):
        nn.load_weights(tmp_path / "model.pt")


def test_a_header_as_long_as_a_pickle_starts_is_no_pickle(tmp_path: Path) -> None:
    for length in range(60, 130):  # one of the headers is 0x80 bytes long
        nn.save_weights({"x" * length: wf.ones(1)}, tmp_path / "weights.safetensors")
        assert nn.load_weights(tmp_path / "weights.safetensors")["x" * length].tolist() == [1.0]


def test_damaged_files_and_bad_names_are_named(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    nn.save_weights({"x": wf.zeros(100)}, path)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ValueError, match="weights.safetensors: is damaged"):
        nn.load_weights(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="it has only 0 bytes"):
        nn.load_weights(path)
    with pytest.raises(FileNotFoundError):
        nn.load_weights(tmp_path / "none")
    with pytest.raises(TypeError, match="names must be strings. Got 3"):
        nn.save_weights({3: wf.ones(1)}, path)


def test_eight_bit_floats_are_read_as_float32(tmp_path: Path) -> None:
    kinds = {"F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2, "F8_E8M0": ml_dtypes.float8_e8m0fnu}
    codes = np.arange(256, dtype=np.uint8).reshape(16, 16)
    header = {n: {"dtype": n, "shape": [16, 16], "data_offsets": [256 * i, 256 * i + 256]} for i, n in enumerate(kinds)}
    text = json.dumps(header).encode()
    path = tmp_path / "quantised.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + codes.tobytes() * len(kinds))
    for loaded in (nn.load_weights(path), wf.load(path)):
        for name, kind in kinds.items():
            assert loaded[name].dtype == wf.float32
            np.testing.assert_array_equal(loaded[name].numpy(), codes.view(kind).astype(np.float32))


def test_a_model_in_several_files_is_read_by_its_index(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    state = model.state_dict()
    first = {name: tensor for name, tensor in state.items() if name.startswith("0.")}
    nn.save_weights(first, tmp_path / "model-1.safetensors")
    nn.save_weights({n: t for n, t in state.items() if n not in first}, tmp_path / "model-2.safetensors")
    places = {name: f"model-{1 if name in first else 2}.safetensors" for name in state}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
    other = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    for loaded in (nn.load_weights(index), nn.load_weights(tmp_path), wf.load(index)):
        assert list(loaded) == list(state)
        other.load_state_dict(loaded)
        np.testing.assert_array_equal(other(wf.ones(1, 2)).tolist(), model(wf.ones(1, 2)).tolist())
    for change, words in (
        ({"0.weight": "../model-1.safetensors"}, "must lie beside it"),
        ({"0.weight": "none.safetensors"}, "'none.safetensors' is missing"),
        ({"extra": "model-2.safetensors"}, "does not hold 'extra'"),
    ):
        index.write_text(json.dumps({"weight_map": {**places, **change}}))
        with pytest.raises(FileError, match=words):
            nn.load_weights(index)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match="holds no safetensors file"):
        nn.load_weights(tmp_path / "empty")
