"""Containers behave as the lists and dicts they resemble, and own what they hold."""

from __future__ import annotations

import copy
import pickle

import pytest

import weft as wf
from weft import nn


def test_sequential_runs_slices_and_changes() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    x = wf.ones(4, 2)
    assert model(x).shape == (4, 1)
    assert model[:2](x).shape == (4, 3)
    assert isinstance(model[-1], nn.Linear)
    model[1] = nn.Tanh()
    assert isinstance(list(model)[1], nn.Tanh)
    model.append(nn.Linear(1, 5)).extend([nn.ReLU()])
    assert len(model) == 5
    assert model(x).shape == (4, 5)
    del model[3:]
    assert model(x).shape == (4, 1)
    del model[1]
    model.append(nn.Identity())
    assert model(x).shape == (4, 1)
    assert len(list(model.named_children())) == 3
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other(x).tolist() == model(x).tolist()
        assert other[0] is not model[0]
        assert next(iter(other)) is other[0]


def test_sequential_refuses_what_is_no_module() -> None:
    with pytest.raises(TypeError, match="item 1 must be a Module. Got function"):
        nn.Sequential(nn.ReLU(), nn.functional.relu)
    with pytest.raises(TypeError, match="expected a Module"):
        nn.Sequential().append(1)  # type: ignore[arg-type]
    with pytest.raises(IndexError, match="index 3 is out of range for 1 modules"):
        nn.Sequential(nn.ReLU())[3]
    with pytest.raises(TypeError, match="index must be an integer or a slice"):
        nn.Sequential(nn.ReLU())["0"]


def test_module_list_is_a_list() -> None:
    layers = nn.ModuleList([nn.Linear(1, 1) for _ in range(3)])
    last = layers[2]
    layers.insert(0, nn.Identity())
    assert layers[3] is last
    assert [n for n, _ in layers.named_children()] == ["0", "1", "2", "3"]
    assert layers.pop() is last
    layers[0] = nn.ReLU()
    layers += [nn.Tanh()]
    del layers[1]
    assert [type(m).__name__ for m in layers] == ["ReLU", "Linear", "Tanh"]
    assert len(layers[1:]) == 2
    with pytest.raises(TypeError, match="ModuleList: expected a Module. Got int"):
        layers.append(1)
    with pytest.raises(IndexError, match="index 7 is out of range for 3 items"):
        layers[7]


def test_module_dict_is_a_dict() -> None:
    parts = nn.ModuleDict({"a": nn.Linear(1, 2), "b": nn.ReLU()})
    parts["c"] = nn.Tanh()
    assert list(parts) == ["a", "b", "c"]
    assert "b" in parts and "z" not in parts
    assert isinstance(parts.pop("b"), nn.ReLU)
    parts.update([("a", nn.Linear(1, 3))])
    assert [k for k, _ in parts.items()] == ["a", "c"]
    assert len(parts.values()) == len(parts) == 2
    assert next(parts.parameters()).shape == (3, 1)
    with pytest.raises(KeyError, match="there is no 'z'. There are a, c"):
        parts["z"]
    with pytest.raises(KeyError, match="taken by an attribute"):
        parts["forward"] = nn.ReLU()
    with pytest.raises(ValueError, match="without '.'"):
        parts["a.b"] = nn.ReLU()
    with pytest.raises(TypeError, match="ModuleDict: expected a Module"):
        parts["d"] = 1
    parts.clear()
    assert len(parts) == 0


def test_parameter_containers_wrap_tensors() -> None:
    weights = nn.ParameterList([wf.ones(2), nn.Parameter(wf.zeros(3))])
    assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in weights)
    assert list(weights.state_dict()) == ["0", "1"]
    assert "(1): Parameter of shape (3,)" in repr(weights)
    named = nn.ParameterDict({"left": wf.ones(2)})
    named["right"] = wf.ones(1)
    assert [n for n, _ in named.named_parameters()] == ["left", "right"]
    assert "(left): Parameter of shape (2,)" in repr(named)


def test_sequential_renumbers_modules_after_removal_and_insertion() -> None:
    a, b, c = nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)
    model = nn.Sequential(a, b, c)
    del model[1]
    assert list(model.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    model.insert(1, b)
    assert list(model) == [a, b, c] and list(model.state_dict())[2] == "2.weight"
    assert model.pop() is c and list(model) == [a, b]
    assert model(wf.ones(1, 2)).shape == (1, 3)
    named = nn.Sequential({"first": a, "act": b, "last": c})
    del named[1]
    assert list(named.state_dict())[0] == "first.weight" and list(named) == [a, c]
