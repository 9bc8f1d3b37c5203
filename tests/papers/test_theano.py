"""Theano's ideas as programs: define, optimise, evaluate; shared variables with updates; scan."""

from __future__ import annotations

import numpy as np

import weft as wf


def test_define_optimise_evaluate() -> None:
    with wf.Graph().as_default():
        x, y = wf.placeholder(wf.float64, ()), wf.placeholder(wf.float64, ())  # T.dscalar
        z = x + y  # define
        f = wf.function([x, y], z)  # optimise
    assert f(2.0, 3.0).item() == 5.0  # evaluate


def test_the_optimiser_rewrites_the_graph_visibly() -> None:
    """One subexpression written twice: six nodes become four, and these one kernel."""

    @wf.function
    def f(x: wf.Tensor) -> wf.Tensor:
        return wf.exp(x - 1) * 2 + wf.exp(x - 1)

    x = wf.linspace(0.0, 1.0, 4096)
    np.testing.assert_allclose(f(x), 3 * np.exp(x.numpy() - 1), rtol=1e-5)
    before, after = str(f.graph), f.explain()
    assert before.count("exp(") == 2, before
    assert "6 captured, 4 after the passes" in after and "subtract+exp+multiply+add" in after, after


def test_shared_variables_have_updates_and_givens() -> None:
    data = np.random.default_rng(0).normal(size=(100, 5)).astype(np.float32)
    labels = (data @ np.arange(5) > 0).astype(np.float32)
    with wf.Graph().as_default():
        x, y = wf.placeholder(wf.float32, (None, 5)), wf.placeholder(wf.float32, (None,))
        w, b = wf.Variable(np.zeros(5, np.float32)), wf.Variable(np.float32(0))  # theano.shared
        p = wf.sigmoid(x @ w + b)
        cost = -wf.mean(y * wf.log(p) + (1 - y) * wf.log(1 - p))
        gw, gb = wf.gradients(cost, [w, b])
        train = wf.function([x, y], cost, updates=[(w, w - 0.5 * gw), (b, b - 0.5 * gb)])
        predict = wf.function([x], p > 0.5)
        check = wf.function([], cost, givens={x: data, y: labels})
    first = check().item()
    for _ in range(60):
        train(data, labels)
    assert check().item() < 0.4 * first
    assert (predict(data).numpy() == labels).mean() > 0.95


def test_scan_has_gradients() -> None:
    """Powers of A, as in Theano's tutorial."""
    with wf.Graph().as_default():
        a = wf.placeholder(wf.float32, (3,))
        _, powers = wf.scan(lambda prior, _: (prior * a, prior * a), wf.ones(3), wf.arange(4.0))
        slope = wf.gradients(wf.sum(powers[3]), a)
        f = wf.function([a], [powers, slope])
    values = np.array([1.0, 2.0, 3.0], np.float32)
    got, gradient = f(values)
    np.testing.assert_allclose(got, [values**k for k in (1, 2, 3, 4)])
    np.testing.assert_allclose(gradient, 4 * values**3)


def test_a_function_of_symbols_is_differentiated_symbolically() -> None:
    with wf.Graph().as_default() as graph:
        x = wf.placeholder(wf.float64, ())
        slope = wf.gradients(x**2, x)
        f = wf.function([x], slope)
        again = wf.function([x], wf.gradients(slope, x))
    assert (f(4.0).item(), again(4.0).item()) == (8.0, 2.0)
    assert len(str(graph).splitlines()) > 2, "the gradient is nodes of the graph"
