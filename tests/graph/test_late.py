"""Deferred nodes: calls and gradient rules that wait for the sizes of a step."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft import nn
from weft.graph.declared.deferred_nodes import DeferredOp
from weft.nn import functional as F

WAIT = 60
X = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)


def _program(x):
    a, b = wf.chunk(F.glu(x), 2, axis=-1)
    z = wf.median(a, axis=0) + wf.sum(b, axis=0)
    return wf.sum(z * z) + wf.sum(wf.abs(wf.fft.rfft(x)) ** 2)


def _expected():
    x = wf.tensor(X, requires_grad=True)
    y = _program(x)
    (first,) = wf.grad(y, [x], create_graph=True)
    (second,) = wf.grad(wf.sum(first * first), [x])
    return [t.detach().numpy() for t in (y, first, second)]


def _declared(x):
    y = _program(x)
    first = wf.gradients(y, x)
    return [y, first, wf.gradients(wf.sum(first * first), x)]


def _check(got):
    for a, b in zip(got, _expected(), strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-3, atol=1e-3)


def _late(graph):
    return [n for n in graph.nodes if isinstance(n.op, DeferredOp)]


def test_value_and_two_gradients_equal_the_eager_ones(control_session, fresh_graph):
    x = wf.placeholder(wf.float32)
    fetches = _declared(x)
    assert _late(fresh_graph)
    with control_session(fresh_graph) as sess:
        _check(sess.run(fetches, {x: X}, timeout=WAIT))


def test_a_loaded_graph_runs_and_can_be_differentiated(fresh_graph, executor, tmp_path):
    x = wf.placeholder(wf.float32, name="x")
    fetches = _declared(x)
    fresh_graph.save(tmp_path / "late")
    loaded = wf.Graph.load(tmp_path / "late")
    with wf.Session(loaded, executor=executor) as sess:
        _check(sess.run([t._data.name for t in fetches], {"x": X}, timeout=WAIT))
    with loaded.as_default():
        y, inner = loaded.tensor(fetches[0]._data.name), loaded.tensor("x")
        first = wf.gradients(y, inner)
        second = wf.gradients(wf.sum(first * first), inner)
    with wf.Session(loaded, executor=executor) as sess:
        _check(sess.run([y, first, second], {"x": X}, timeout=WAIT))


def test_a_reference_device_runs_them_by_numpy_kernels(fresh_graph, monkeypatch):
    x = wf.placeholder(wf.float32)
    fetches = _declared(x)
    wf.configure_devices(cpu=1, ref=1)
    try:
        with wf.Session(fresh_graph, devices=["ref:0"]) as sess:
            _check(sess.run(fetches, {x: X}, timeout=WAIT))
    finally:
        wf.configure_devices(cpu=1)


def test_a_step_is_specialised_for_every_shape_of_its_feeds(session, fresh_graph):
    x = wf.placeholder(wf.float32)
    y = F.glu(x, axis=-1)
    g = wf.gradients(wf.sum(y * y), x)
    with session(fresh_graph) as sess:
        for shape in ((4,), (2, 6), (1, 2, 8)):
            value, gradient = sess.run([y, g], {x: np.ones(shape)}, timeout=WAIT)
            assert value.shape == (*shape[:-1], shape[-1] // 2) and gradient.shape == shape


def test_a_shape_that_does_not_fit_is_refused_when_it_is_fed(session, fresh_graph):
    x = wf.placeholder(wf.float32)
    y = F.glu(x)
    with (
        session(fresh_graph) as sess,
        pytest.raises(ValueError, match=r"glu.*even size.*In node 'glu', made at .*test_late"),
    ):
        sess.run(y, {x: np.ones((2, 3))}, timeout=WAIT)


def test_wrong_arguments_are_refused_when_the_graph_is_declared():
    x = wf.placeholder(wf.float32, (None, None))
    with pytest.raises(IndexError, match="glu: axis 3"):
        F.glu(x, axis=3)
    with pytest.raises(ValueError, match="quantile: method must be one of"):
        wf.quantile(x, 0.5, method="best")
    with pytest.raises(ValueError, match=r"reshape: shape must be known. Got \(None, None, 2\)"):
        x.reshape((*x.shape, 2))


def test_what_follows_from_the_known_sizes_is_declared(fresh_graph):
    sequence = wf.placeholder(wf.float32, (None, None, 8))
    assert F.glu(sequence).ndim == 3
    assert nn.LSTM(8, 5)(sequence)[0].shape[-1] == 5
    assert wf.chunk(wf.placeholder(wf.float32), 3)[0].shape is None


@pytest.mark.parametrize("shape", [(3, 4), (None, None), None], ids=["known", "sizes", "rank"])
def test_a_mask_picks_as_many_rows_as_it_has(session, fresh_graph, shape):
    x = wf.placeholder(wf.float32, shape)
    picked = x[x > 0]
    g = wf.gradients(wf.sum(picked * picked), x)
    a = np.arange(12, dtype=np.float32).reshape(3, 4) - 7
    with session(fresh_graph) as sess:
        value, gradient = sess.run([picked, g], {x: a}, timeout=WAIT)
    np.testing.assert_array_equal(value.numpy(), a[a > 0])
    np.testing.assert_array_equal(gradient.numpy(), np.where(a > 0, 2 * a, 0))


def test_a_deferred_call_draws_new_numbers_in_every_step(session, fresh_graph):
    q = wf.placeholder(wf.float32)
    y = F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
    assert _late(fresh_graph)
    a = np.random.default_rng(0).standard_normal((2, 6, 4)).astype(np.float32)
    with session(fresh_graph) as sess:
        wf.manual_seed(3)
        first, second = (sess.run(y, {q: a}, timeout=WAIT).numpy() for _ in range(2))
        wf.manual_seed(3)
        third = sess.run(y, {q: a}, timeout=WAIT).numpy()
    assert np.abs(first - second).max() > 1e-3
    np.testing.assert_array_equal(first, third)


def test_branches_and_bodies_may_hold_them(control_session, fresh_graph):
    x, n = wf.placeholder(wf.float32), wf.placeholder(wf.int64, ())
    chosen = wf.cond(n > 2, lambda: F.glu(x), lambda: wf.chunk(x, 2, axis=-1)[0])
    _, looped = wf.while_loop(
        lambda i, h: i < n, lambda i, h: (i + 1, wf.median(h * h, axis=0, keepdims=True) + h), (wf.constant(0), x)
    )
    fetches = [chosen, looped, *wf.gradients([wf.sum(chosen * chosen), wf.sum(looped)], [x])]
    for count in (1, 3):
        t = wf.tensor(X, requires_grad=True)
        one = F.glu(t) if count > 2 else wf.chunk(t, 2, axis=-1)[0]
        two = t
        for _ in range(count):
            two = wf.median(two * two, axis=0, keepdims=True) + two
        (g,) = wf.grad(wf.sum(one * one) + wf.sum(two), [t])
        with control_session(fresh_graph) as sess:
            for a, b in zip(sess.run(fetches, {x: X, n: count}, timeout=WAIT), (one, two, g), strict=True):
                np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-3, atol=1e-4)


def test_sizes_may_change_from_iteration_to_iteration(control_session, fresh_graph):
    x, n = wf.placeholder(wf.float32, (None,)), wf.placeholder(wf.int64, ())
    _, grown = wf.while_loop(lambda i, h: i < n, lambda i, h: (i + 1, wf.concat([h, h])), (wf.constant(0), x))
    either = wf.cond(n > 2, lambda: wf.concat([x, x]), lambda: x * 3.0)
    gradient = wf.gradients(wf.sum(grown), x)
    with control_session(fresh_graph) as sess:
        assert sess.run([grown, either], {x: [1.0, 2.0], n: 3}, timeout=WAIT)[0].shape == (16,)
        assert sess.run(either, {x: [1.0, 2.0], n: 1}, timeout=WAIT).tolist() == [3.0, 6.0]
        with pytest.raises(ValueError, match="must have one shape in all iterations"):
            sess.run(gradient, {x: [1.0, 2.0], n: 3}, timeout=WAIT)


def test_layers_take_an_open_batch_and_time(session, fresh_graph):
    a = np.random.default_rng(0).standard_normal((2, 3, 8)).astype(np.float32)
    x = wf.placeholder(wf.float32, (None, None, 8))
    layers = [nn.LSTM(8, 5, num_layers=2), nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)]
    for layer in layers:
        y = layer(x)
        y = y[0] if isinstance(y, tuple) else y
        weights = list(layer.parameters())
        grads = wf.gradients(wf.sum(y * y), weights)
        with session(fresh_graph) as sess:
            value, *got = sess.run([y, *grads], {x: a}, timeout=WAIT)
        eager = layer(wf.tensor(a))
        eager = eager[0] if isinstance(eager, tuple) else eager
        np.testing.assert_allclose(value.numpy(), eager.detach().numpy(), rtol=1e-4, atol=1e-5)
        for g, e in zip(got, wf.grad(wf.sum(eager * eager), weights), strict=True):
            np.testing.assert_allclose(g.numpy(), e.numpy(), rtol=1e-3, atol=1e-4)


def test_under_autocast_they_compute_as_the_eager_call_does(fresh_graph):
    x, w = wf.placeholder(wf.float32), wf.placeholder(wf.float32)
    with wf.autocast(dtype=wf.bfloat16):
        y = F.bilinear(x, x, w)
        expected = F.bilinear(wf.tensor(X), wf.tensor(X), wf.ones((2, 8, 8)))
    with wf.Session(fresh_graph, executor="naive") as sess:
        got = sess.run(y, {x: X, w: np.ones((2, 8, 8))}, timeout=WAIT)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got.numpy(), expected.numpy())
