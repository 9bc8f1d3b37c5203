"""The public face in seconds: if one of these fails, look here first."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf


def test_tensors_compute():
    x = wf.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert (x @ x + 1).tolist() == [[8, 11], [16, 23]] and x.sum().item() == 10 and x[1, 0].item() == 3


def test_numpy_shares_memory():
    a = np.zeros(3, np.float32)
    t = wf.asarray(a)
    t[1] = 5
    assert a.tolist() == [0, 5, 0]


def test_backward():
    x = wf.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    assert x.grad.tolist() == [2, 4]


def test_grad_and_higher_order():
    x = wf.tensor(3.0, requires_grad=True)
    (g,) = wf.grad(x**3, x, create_graph=True)
    assert g.item() == 27 and wf.grad(g, x)[0].item() == 18


def test_in_place_is_differentiated():
    x = wf.ones(3, requires_grad=True)
    y = x * 2
    y[0] *= 5
    y.sum().backward()
    assert x.grad.tolist() == [10, 2, 2]


def test_transforms():
    f = lambda v: (v**2).sum()
    v = wf.tensor([1.0, 2.0])
    assert wf.grad_fn(f)(v).tolist() == [2, 4]
    assert wf.vmap(f)(wf.ones(4, 2)).tolist() == [2, 2, 2, 2]
    assert wf.hessian(f, v).tolist() == [[2, 0], [0, 2]]


def test_function_and_checkpoint():
    class Twice(wf.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = wf.ones(2, requires_grad=True)
    wf.checkpoint(lambda v: Twice.apply(v).exp(), x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp(2), rtol=1e-6)


def test_a_model_learns_xor():
    wf.manual_seed(0)
    x = wf.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = wf.tensor([[0.0], [1.0], [1.0], [0.0]])
    w1, b1, w2 = wf.randn(2, 8, requires_grad=True), wf.zeros(8, requires_grad=True), wf.randn(8, 1, requires_grad=True)
    for _ in range(400):
        loss = ((wf.sigmoid(wf.tanh(x @ w1 + b1) @ w2) - y) ** 2).mean()
        loss.backward()
        with wf.no_grad():
            for p in (w1, b1, w2):
                p -= 2.0 * p.grad
                p.grad = None
    assert loss.item() < 0.02


def test_errors_say_what_to_do():
    try:
        wf.ones(2, 3) @ wf.ones(2, 3)
    except ValueError as error:
        assert str(error).startswith("matmul: inner dimensions differ") and "x1 @ x2.mT" in str(error)
    else:
        raise AssertionError("expected an error")


def test_functions_of_models_are_looked_for_in_the_right_place():
    with pytest.raises(AttributeError, match=r"`F\.gelu`"):
        wf.gelu
    with pytest.raises(AttributeError, match="Did you mean 'arange'"):
        wf.arrange
