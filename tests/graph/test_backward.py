"""Differentiating the results of captured functions from outside."""

import numpy as np
import pytest

import weft as wf
from weft import nn
from weft.nn import functional as F


def test_gradients_of_any_order():
    x = wf.tensor(np.linspace(-1, 1, 6), requires_grad=True)
    w = wf.tensor(np.linspace(1, 2, 6), requires_grad=True)

    def plain(x):
        return (wf.sin(x) * w**3).sum()

    def derivatives(f):
        gx, gw = wf.grad(f(x), [x, w], create_graph=True)
        second = wf.grad((gx * gx).sum() + (gw * x).sum(), [x, w], create_graph=True)
        third = wf.grad(second[0].sum() + second[1].sum(), [x, w])
        return [t.detach().numpy() for t in (gx, gw, *second, *third)]

    for got, expected in zip(derivatives(wf.function(plain)), derivatives(plain), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9)


@pytest.mark.parametrize("layer", [nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)), nn.GRU(3, 4)])
def test_gradient_penalty_of_a_captured_model(layer):
    x = wf.tensor(np.random.default_rng(0).normal(size=(5, 2, 3)).astype("float32"), requires_grad=True)

    def forward(x):
        y = layer(x)
        return y[0] if isinstance(y, tuple) else y

    def penalty(f):
        (slope,) = wf.grad(f(x).square().sum(), [x], create_graph=True)
        return wf.grad(
            (slope.square().sum(axis=-1) - 1.0).square().mean(), list(layer.parameters()), allow_unused=True
        )

    for got, expected in zip(penalty(wf.function(forward)), penalty(forward), strict=True):
        assert (got is None) == (expected is None)
        if got is not None:
            np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-3, atol=1e-5)


def test_control_flow_can_be_differentiated_once_from_outside():
    x = wf.tensor([1.0, 2.0], requires_grad=True)
    f = wf.function(lambda x: wf.cond(x.sum() > 0, lambda: x * x, lambda: x * 3.0).sum())
    assert wf.grad(f(x), [x])[0].tolist() == [2.0, 4.0]
    with pytest.raises(
        RuntimeError, match=r"cannot be differentiated twice from outside \(cond, made at .*test_backward"
    ):
        wf.grad(f(x), [x], create_graph=True)


def test_dropout_has_one_mask_for_the_value_and_the_gradient():
    w = wf.ones(100, requires_grad=True)
    f = wf.function(lambda x: F.dropout(x * w, 0.5))
    seen = []
    for _ in range(2):
        y = f(wf.ones(100))
        w.grad = None
        y.sum().backward()
        np.testing.assert_array_equal(y.detach().numpy(), w.grad.numpy())
        seen.append(w.grad.numpy())
    assert not np.array_equal(*seen)


@pytest.mark.parametrize("which", ["argument", "outside"])
def test_what_the_gradient_reads_must_not_be_overwritten(which):
    x, w = wf.ones(3, requires_grad=True), wf.ones(3, requires_grad=True)
    y = wf.function(lambda x: (x * w * w).sum())(x)
    with wf.no_grad():
        (x if which == "argument" else w).add_(1.0)
    with pytest.raises(RuntimeError, match=r"overwritten in place by add.*test_backward"):
        y.backward()


def test_a_result_of_a_captured_function_can_be_printed():
    x = wf.ones(2, requires_grad=True)
    assert "tensor" in repr(wf.function(lambda x: x * 2.0)(x))
