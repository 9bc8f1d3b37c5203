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
    monkeypatch.setattr(loop_gradient, "MIN_SLOTS", slots)
    f = wf.function(gradients)
    for n in (1, 2, 3, 4, 9, 10, 28, 100):
        for a, b in zip(f(X, wf.asarray(n)), gradients(X, wf.asarray(n)), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10)
    assert len(f.signatures) == 1


def test_a_loop_that_does_not_run_passes_gradients_through():
    gx, gw, gb = wf.function(gradients)(X, wf.asarray(0))
    np.testing.assert_allclose(gx.numpy(), 2 * X.detach().numpy())
    assert not gw.numpy().any() and not gb.numpy().any()


def derivative(run, order):
    """A function that differentiates `order` times with respect to the start of the loop and what its body closes over."""

    def derived(x, n):
        value, wanted = run(x, n), [x, W, B]
        for k in range(1, order + 1):
            found = wf.grad(value, wanted, create_graph=k < order, allow_unused=True)
            value = sum(
                ((g * g * (i + 1)).sum() for i, g in enumerate(found) if g is not None), wf.zeros((), dtype=W.dtype)
            )
        return found

    return derived


def nested(x, n):
    def body(j, y):
        inner = wf.while_loop(lambda i, z: i < j + 1, lambda i, z: (i + 1, wf.sin(z) * W + B), (wf.asarray(0), y))
        return j + 1, inner[1] * x

    return wf.while_loop(lambda j, y: j < n, body, (wf.asarray(0), x))[1].sum()


def overwrites(x, n, in_place=True):
    scale = x * 2.0
    y = wf.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, wf.sin(y) * scale * W + B), (wf.asarray(0), x))[1]
    return (y * (scale.mul_(3.0) if in_place else scale * 3.0)).sum()


ORDERS = {"second": (run, 2), "third": (run, 3), "nested, second": (nested, 2)}


@pytest.mark.parametrize("name", ORDERS)
def test_higher_derivatives_are_the_eager_ones(name):
    fn = derivative(*ORDERS[name])
    captured = wf.function(fn)
    for n in (1, 2, 4):
        for a, b in zip(captured(X, wf.asarray(n)), fn(X, wf.asarray(n)), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10, atol=1e-14)
    assert len(captured.signatures) == 1


def test_higher_derivatives_see_the_values_that_the_loop_saw():
    """What its body closes over is written in place after the loop."""
    captured = wf.function(derivative(overwrites, 2))
    expected = derivative(lambda x, n: overwrites(x, n, in_place=False), 2)
    for a, b in zip(captured(X, wf.asarray(3)), expected(X, wf.asarray(3)), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("slots", [1, 3])
def test_second_derivatives_however_long_the_loop(monkeypatch, slots):
    monkeypatch.setattr(loop_gradient, "SLOTS", slots)
    monkeypatch.setattr(loop_gradient, "MIN_SLOTS", slots)
    fn = derivative(run, 2)
    captured = wf.function(fn)
    for n in (2, 4, 10, 30):
        for a, b in zip(captured(X, wf.asarray(n)), fn(X, wf.asarray(n)), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10)


def depth(graph):
    """How deeply the loops and branches of a graph are nested."""
    return max((1 + depth(sub.graph) for node in graph.nodes for sub in node.op.subs), default=0)


def test_loops_of_higher_derivatives_are_nested_as_those_of_the_first():
    depths = []
    for order in (1, 2, 3):
        captured = wf.function(derivative(product, order))
        captured(X, wf.asarray(2))
        depths.append(depth(captured.graph))
    assert depths[0] == depths[1] == depths[2]


def test_second_derivatives_through_a_gradient_of_the_users_own(monkeypatch):
    """The backward pass of a Function need not be linear: then the loops of the gradient are recorded themselves."""
    monkeypatch.setattr(loop_gradient, "LEVELS", 0)  # fewer of them

    class Reversed(wf.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1.0

        @staticmethod
        def backward(ctx, g):
            return -g

    def fn(x):
        y = wf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, Reversed.apply(y * x)), (wf.asarray(0), x))[1]
        (g,) = wf.grad((y * y).sum(), [x], create_graph=True)
        return wf.grad((g * g).sum(), [x])[0]

    np.testing.assert_allclose(wf.function(fn)(X).numpy(), fn(X).numpy(), rtol=1e-10)


def test_complex_states():
    z = wf.tensor([0.3 + 0.4j, -0.2 + 0.1j], dtype=wf.complex128, requires_grad=True)

    def fn(z):
        y = wf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * z + 1j), (wf.asarray(0), z))[1]
        (g,) = wf.grad((wf.real(y) * wf.imag(y)).sum(), [z], create_graph=True)
        return g, wf.grad((wf.abs(g) ** 2).sum(), [z])[0]

    for a, b in zip(wf.function(fn)(z), fn(z), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-10)


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


def product(x, n):
    return wf.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, wf.sin(y) * x), (wf.asarray(0), x))[1].sum()


def gradients_of_product(x, n):
    return wf.grad(product(x, n), [x])[0]
