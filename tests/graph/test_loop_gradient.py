"""Gradients of captured loops of unknown length."""

import numpy as np
import pytest

import weft as wf
from weft.graph.capture import loop_gradient

W = wf.tensor([1.02, 0.9], dtype=wf.float64, requires_grad=True)
B = wf.tensor(0.01, dtype=wf.float64, requires_grad=True)


def run(x, n):
    def body(i, y, z):
        return i + 1, wf.tanh(y * W + B) + 0.1 * wf.sin(z.astype(wf.float64)), z + 1

    return (wf.while_loop(lambda i, y, z: i < n, body, (wf.asarray(0), x, wf.asarray(0)))[1] ** 2).sum()


def gradients(x, n):
    return wf.grad(run(x, n), [x, W, B])


X = wf.tensor([0.5, -0.3], dtype=wf.float64, requires_grad=True)


@pytest.mark.parametrize("slots", [1, 3, 128])
def test_they_are_the_eager_ones_however_long_the_loop(monkeypatch, slots):
    """With three places: stretches of one iteration, divided once, divided twice, and run from their start."""
    monkeypatch.setattr(loop_gradient, "SLOTS", slots)
    monkeypatch.setattr(loop_gradient, "FEWEST_SLOTS", slots)
    f = wf.function(gradients)
    for n in (1, 2, 3, 4, 9, 10, 28, 100):
        for a, b in zip(f(X, wf.asarray(n)), gradients(X, wf.asarray(n)), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10)
    assert len(f.signatures) == 1


def test_a_loop_that_does_not_run_passes_gradients_through():
    gx, gw, gb = wf.function(gradients)(X, wf.asarray(0))
    np.testing.assert_allclose(gx.numpy(), 2 * X.detach().numpy())
    assert not gw.numpy().any() and not gb.numpy().any()


def test_second_derivatives():
    def second(x, n):
        (g,) = wf.grad(run(x, n), [x], create_graph=True)
        return wf.grad((g * g).sum(), [x])[0]

    np.testing.assert_allclose(
        wf.function(second)(X, wf.asarray(5)).numpy(), second(X, wf.asarray(5)).numpy(), rtol=1e-10
    )


def test_large_states_get_fewer_places(monkeypatch):
    monkeypatch.setattr(loop_gradient, "SLOT_BYTES", 1 << 16)
    x = wf.ones((64, 64)).requires_grad_()
    fewer = wf.function(lambda x, n: gradients_of_product(x, n))
    np.testing.assert_allclose(
        fewer(x, wf.asarray(20)).numpy(), gradients_of_product(x, wf.asarray(20)).numpy(), rtol=1e-5
    )
    arena = fewer.traces[0].compiled.program.arena
    monkeypatch.setattr(loop_gradient, "SLOT_BYTES", 1 << 26)
    more = wf.function(lambda x, n: gradients_of_product(x, n))
    more(x, wf.asarray(20))
    assert arena < more.traces[0].compiled.program.arena / 4


def gradients_of_product(x, n):
    y = wf.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, wf.sin(y) * x), (wf.asarray(0), x))[1]
    return wf.grad(y.sum(), [x])[0]
