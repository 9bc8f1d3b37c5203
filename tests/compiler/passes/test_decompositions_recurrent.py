"""Recurrent layers are loops over time inside a program, with and without padded steps."""

import numpy as np
import pytest

import weft as wf
from weft import nn
from weft.compiler.program.steps import HostCall


def host_calls(f):
    return [step.label for step in f.traces[-1].compiled.program.steps if isinstance(step, HostCall)]


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_layers_and_their_gradients_have_no_host_call(layer):
    wf.manual_seed(0)
    model = layer(5, 6, num_layers=2, bidirectional=True)
    x = wf.randn(7, 3, 5)

    def gradients(x):
        y = model(x)[0]
        return wf.grad(y.square().sum(), list(model.parameters()))

    f = wf.function(gradients)
    for got, expected in zip(f(x), gradients(x), strict=True):
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=2e-4, atol=2e-4)
    assert host_calls(f) == []
    assert "scan" in f.explain()
