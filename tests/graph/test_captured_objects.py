"""What `wf.function` returns stands for the original: attributes, text, copies and pickles."""

from __future__ import annotations

import copy
import pickle

import cloudpickle
import numpy as np

import weft as wf
from weft import nn


@wf.function
def doubled(x):
    return x * 2


def plain(x):
    return x + 1


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.scale = 2.0

    def forward(self, x):
        return self.layer(x) * self.scale

    @wf.function
    def halved(self, x):
        return self.layer(x) / 2


def test_a_captured_model_forwards_reads_and_writes_of_attributes():
    model = Scaled()
    captured = wf.function(model)
    x = wf.ones(1, 3)
    before = captured(x)
    assert [id(p) for p in captured.parameters()] == [id(p) for p in model.parameters()]
    assert captured.layer is model.layer and list(captured.state_dict()) == list(model.state_dict())
    captured.eval()
    assert not model.training and not captured.training
    captured.train()
    assert captured.training
    captured.scale = 4.0
    assert model.scale == 4.0
    np.testing.assert_allclose(captured(x).detach().numpy(), 2 * before.detach().numpy(), rtol=1e-6)
    captured.layer = nn.Linear(3, 5)
    assert captured(x).shape == (1, 5) and len(list(captured.parameters())) == 2
    captured.bindings = 3  # its own attributes stay its own
    assert captured.bindings == 3 and not hasattr(model, "bindings")
    try:
        captured.wheels
    except AttributeError as error:
        assert "wheels" in str(error)
    else:
        raise AssertionError("a missing attribute was found")
    assert "parameters" in dir(captured) and "explain" in dir(captured)


def test_the_text_names_the_original_and_its_signatures():
    f = wf.function(plain)
    assert repr(f) == "captured(plain, not called yet)"
    f(wf.ones(3))
    assert repr(f) == "captured(plain, 1 signature: (float32 (3,)))"
    assert "Linear" in repr(wf.function(nn.Sequential(nn.Linear(2, 2))))


def test_captured_functions_are_pickled_and_copied():
    x = wf.ones(1, 3)
    assert pickle.loads(pickle.dumps(doubled)) is doubled  # by name
    again = pickle.loads(pickle.dumps(wf.function(plain, keep_grads=True, max_programs=4)))
    assert again.keep_grads and again.max_programs == 4 and again(x).tolist() == [[2, 2, 2]]
    factor = 3
    closure = cloudpickle.loads(cloudpickle.dumps(wf.function(lambda x: x * factor)))
    assert closure(x).tolist() == [[3, 3, 3]]
    captured = wf.function(Scaled())
    expected = captured(x)
    for made in (
        pickle.loads(pickle.dumps(captured)),
        cloudpickle.loads(cloudpickle.dumps(captured)),
        copy.deepcopy(captured),
    ):
        assert made.fn is not captured.fn
        np.testing.assert_array_equal(made(x).detach().numpy(), expected.detach().numpy())
    model = Scaled()
    half = model.halved(x)
    for made in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(made.halved(x).detach().numpy(), half.detach().numpy())
    bound = pickle.loads(pickle.dumps(model.halved))
    np.testing.assert_array_equal(bound(x).detach().numpy(), half.detach().numpy())
