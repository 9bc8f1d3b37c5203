"""Modules, captured functions, optimisers and eager tensors as parts of a declared graph."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft import nn, optim
from weft.nn import functional as F

WAIT = 30


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def mlp():
    wf.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))


def eager_losses(model, optimizer, x, y, steps):
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = ((model(wf.tensor(x)) - wf.tensor(y)) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def same_state(first, second):
    for (name, p), q in zip(first.state_dict().items(), second.state_dict().values(), strict=True):
        np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("make", [lambda p: optim.SGD(p, lr=0.1, momentum=0.9), lambda p: optim.Adam(p, lr=0.01)])
def test_a_model_of_layers_trained_through_a_session_equals_eager_training(session, make):
    model, twin = mlp(), mlp()
    a, b = data(16, 4), data(16, 2, seed=1)
    graph = wf.Graph("training")
    with graph.as_default():
        x, y = wf.placeholder(wf.float32, (None, 4)), wf.placeholder(wf.float32, (None, 2))
        loss = wf.mean((model(x) - y) ** 2)
        train = wf.minimize(make(model.parameters()), loss)
    wf.manual_seed(7)
    with session(graph) as sess:
        got = [sess.run([loss, train], {x: a, y: b}, timeout=WAIT)[0].item() for _ in range(6)]
    wf.manual_seed(7)
    expected = eager_losses(twin, make(twin.parameters()), a, b, 6)
    np.testing.assert_allclose(got, expected, rtol=1e-4)
    same_state(model, twin)
    assert model[1].num_batches_tracked.item() == 6


def test_an_update_declared_by_hand_with_assigns_on_the_parameters(session):
    wf.manual_seed(0)
    layer = nn.Linear(3, 2)
    start = layer.weight.detach().numpy().copy()
    x = wf.placeholder(wf.float32, (None, 3))  # in the default graph: no `as_default` is needed for layers
    loss = wf.sum(layer(x) ** 2)
    grads = wf.gradients(loss, list(layer.parameters()))
    assert all(g is not None for g in grads)
    train = wf.group(*[wf.Variable(p).assign_sub(0.1 * g) for p, g in zip(layer.parameters(), grads, strict=True)])
    a = data(5, 3)
    twin = nn.Linear(3, 2)
    twin.load_state_dict(layer.state_dict())
    (twin(wf.tensor(a)) ** 2).sum().backward()
    with session(wf.get_default_graph()) as sess:
        sess.run(train, {x: a}, timeout=WAIT)
    np.testing.assert_allclose(
        layer.weight.detach().numpy(), start - 0.1 * twin.weight.grad.numpy(), rtol=1e-4, atol=1e-5
    )


def test_eager_code_and_steps_take_turns_on_one_optimiser(session):
    model, twin = mlp(), mlp()
    for m in (model, twin):
        m[3].p = 0.0
    a, b = data(16, 4), data(16, 2, seed=1)
    mine, other = optim.Adam(model.parameters(), lr=0.01), optim.Adam(twin.parameters(), lr=0.01)
    graph = wf.Graph("turns")
    with graph.as_default():
        x, y = wf.placeholder(wf.float32, (None, 4)), wf.placeholder(wf.float32, (None, 2))
        loss = wf.mean((model(x) - y) ** 2)
        train = wf.minimize(mine, loss)
    with session(graph) as sess:
        for _ in range(2):
            sess.run(train, {x: a, y: b}, timeout=WAIT)
            eager_losses(model, mine, a, b, 1)
        for group in (mine.param_groups[0], other.param_groups[0]):
            group["lr"] = 0.005 if group is mine.param_groups[0] else 0.01
        sess.run(train, {x: a, y: b}, timeout=WAIT)
    eager_losses(twin, other, a, b, 4)
    other.param_groups[0]["lr"] = 0.005
    eager_losses(twin, other, a, b, 1)
    same_state(model, twin)


def test_every_step_draws_new_numbers(session):
    graph = wf.Graph("draws")
    with graph.as_default():
        x = wf.placeholder(wf.float32, (200,))
        dropped = F.dropout(x, 0.5)
        noise = x + wf.rand(200)
        mask = x * (wf.rand(200) > 0.5).astype(wf.float32)
        layer = nn.Dropout(0.5)(x)
    ones = np.ones(200, np.float32)
    with session(graph) as sess:
        for y in (dropped, noise, mask, layer):
            first, second = sess.run(y, {x: ones}, timeout=WAIT).numpy(), sess.run(y, {x: ones}, timeout=WAIT).numpy()
            assert (first != second).any()
        a, b = sess.run(
            [dropped, dropped * 1.0], {x: ones}, timeout=WAIT
        )  # one draw per step, however often it is used
        np.testing.assert_array_equal(a, b)


def test_a_seed_repeats_the_steps(session):
    graph = wf.Graph("seed")
    with graph.as_default():
        x = wf.placeholder(wf.float32, (50,))
        y = nn.Dropout(0.3)(x)
    got = []
    with session(graph) as sess:
        for _ in range(2):
            wf.manual_seed(11)
            got.append([sess.run(y, {x: np.ones(50, np.float32)}, timeout=WAIT).numpy() for _ in range(3)])
    np.testing.assert_array_equal(got[0], got[1])
    wf.manual_seed(11)
    np.testing.assert_array_equal(got[0][0], F.dropout(wf.ones(50), 0.3).numpy())


def test_what_is_computed_from_a_parameter_is_part_of_the_graph(session):
    w = wf.tensor([0.5, -1.0], requires_grad=True)
    graph = wf.Graph("derived")
    with graph.as_default():
        x = wf.placeholder(wf.float32, (2,))
        scale = wf.exp(w) + 1.0  # eager ops on eager tensors: their value is known ...
        assert scale.shape == (2,) and np.isfinite(scale.detach().numpy()).all()
        y = wf.sum(x * scale)  # ... and the graph computes them again in every step
        gradient = wf.gradients(y, w)
    with session(graph) as sess:
        for value in ([0.5, -1.0], [2.0, 0.0]):
            with wf.no_grad():
                w.copy_(wf.tensor(value))
            got, g = sess.run([y, gradient], {x: [1.0, 2.0]}, timeout=WAIT)
            e = np.exp(np.array(value, np.float32))
            np.testing.assert_allclose(got, (np.array([1.0, 2.0]) * (e + 1)).sum(), rtol=1e-5)
            np.testing.assert_allclose(g, np.array([1.0, 2.0]) * e, rtol=1e-5)


def test_a_view_of_a_parameter_passes_gradients_on(session):
    w = wf.tensor(data(3, 2), requires_grad=True)
    x = wf.placeholder(wf.float32, (4, 2), name="views")
    gradient = wf.gradients(wf.sum(x @ w.T[:, :2]) + wf.sum(x * w[0]), w)
    a = data(4, 2, seed=2)
    expected = np.zeros((3, 2), np.float32)
    expected[:2] = a.sum(0)
    expected[0] += a.sum(0)
    with session(wf.get_default_graph()) as sess:
        np.testing.assert_allclose(sess.run(gradient, {x: a}, timeout=WAIT), expected, rtol=1e-5)


def test_a_history_that_the_graph_cannot_see_is_refused():
    w = wf.tensor([1.0, 2.0], requires_grad=True)
    hidden = w * 2.0
    x = wf.placeholder(wf.float32, (2,), name="hidden")
    with pytest.raises(RuntimeError, match=r"computed from parameters.*as_default.*detach"):
        x * hidden
    assert wf.gradients(wf.sum(x * hidden.detach()), w) is None


def test_what_was_written_since_is_read_as_it_is(session):
    w = wf.tensor([1.0, 2.0], requires_grad=True)
    graph = wf.Graph("written")
    with graph.as_default():
        x = wf.placeholder(wf.float32, (2,))
        noise = wf.rand(2)
        noise[:] = 5.0
        y = x * noise
        with wf.no_grad():
            doubled = w * 2.0
            doubled += 1.0
        z = x * doubled
    with session(graph) as sess:
        got, other = sess.run([y, z], {x: [1.0, 1.0]}, timeout=WAIT)
    assert got.tolist() == [5.0, 5.0] and other.tolist() == [3.0, 5.0]


def test_running_statistics_move_only_when_the_layer_runs(session):
    norm = nn.BatchNorm1d(3)
    graph = wf.Graph("statistics")
    with graph.as_default():
        x, other = wf.placeholder(wf.float32, (None, 3)), wf.placeholder(wf.float32, ())
        y = norm(x)
        norm.eval()
        z = norm(x)
        norm.train()
        unrelated = other * 2.0
    a = data(8, 3) + 2.0
    with session(graph) as sess:
        sess.run(unrelated, {other: 1.0}, timeout=WAIT)
        sess.run(z, {x: a}, timeout=WAIT)
        assert norm.num_batches_tracked.item() == 0 and norm.running_mean.numpy().max() == 0
        sess.run(y, {x: a}, timeout=WAIT)
        assert norm.num_batches_tracked.item() == 1
        np.testing.assert_allclose(norm.running_mean.numpy(), 0.1 * a.mean(0), rtol=1e-4)
        expected = (a - norm.running_mean.numpy()) / np.sqrt(norm.running_var.numpy() + 1e-5)
        np.testing.assert_allclose(sess.run(z, {x: a}, timeout=WAIT), expected, rtol=1e-3, atol=1e-4)


def test_a_captured_function_with_state_and_branches_becomes_part_of_a_graph(session):
    count = wf.zeros(())

    @wf.function
    def step(x):
        count.add_(1.0)
        if wf.sum(x) > 0:
            return x * 2.0
        return -x

    graph = wf.Graph("function")
    with graph.as_default():
        x = wf.placeholder(wf.float32, (2,))
        y = step(x) + 1.0
    with session(graph) as sess:
        assert sess.run(y, {x: [1.0, 2.0]}, timeout=WAIT).tolist() == [3.0, 5.0]
        assert sess.run(y, {x: [-1.0, -2.0]}, timeout=WAIT).tolist() == [2.0, 3.0]
    assert count.item() == 2.0


def test_a_training_step_written_eagerly_becomes_part_of_a_graph(session):
    model, twin = mlp(), mlp()
    for m in (model, twin):
        m[3].p = 0.0
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @wf.function
    def step(x, y):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    graph = wf.Graph("whole")
    with graph.as_default():
        x, y = wf.placeholder(wf.float32, (None, 4)), wf.placeholder(wf.float32, (None, 2))
        loss = step(x, y)
    a, b = data(16, 4), data(16, 2, seed=1)
    with session(graph) as sess:
        got = [sess.run(loss, {x: a, y: b}, timeout=WAIT).item() for _ in range(4)]
    expected = eager_losses(twin, optim.SGD(twin.parameters(), lr=0.1), a, b, 4)
    np.testing.assert_allclose(got, expected, rtol=1e-4)
    same_state(model, twin)


def test_models_are_built_inside_a_graph_as_outside():
    with wf.Graph().as_default():
        wf.manual_seed(5)
        inside = nn.Linear(3, 3)
        value = wf.Variable(wf.randn(2, 2) * 0.1)
    wf.manual_seed(5)
    outside = nn.Linear(3, 3)
    np.testing.assert_array_equal(inside.weight.detach().numpy(), outside.weight.detach().numpy())
    np.testing.assert_array_equal(value.numpy(), (wf.randn(2, 2) * 0.1).numpy())


def test_minimize_refuses_what_it_cannot_do():
    layer = nn.Linear(2, 1)
    x = wf.placeholder(wf.float32, (None, 2), name="refused")
    with pytest.raises(TypeError, match="must be a symbolic tensor"):
        wf.minimize(optim.SGD(layer.parameters(), lr=0.1), wf.tensor(1.0))
    with pytest.raises(ValueError, match="depends on none of the optimiser's parameters"):
        wf.minimize(optim.SGD(layer.parameters(), lr=0.1), wf.sum(x))
