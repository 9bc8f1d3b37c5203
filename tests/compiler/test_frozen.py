"""Frozen functions: values that depend on constant inputs alone are computed once, and again after one changes."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import weft as wf
from weft import nn
from weft.runtime.program import Program


@pytest.fixture
def model() -> nn.Module:
    wf.manual_seed(0)
    made = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 1), nn.ReLU6(), nn.Flatten(), nn.Linear(32 * 8 * 8, 10),
    )  # fmt: skip
    with wf.no_grad():
        norm = made[1]
        norm.running_mean.copy_(wf.randn(16))
        norm.running_var.copy_(wf.rand(16) + 0.5)
        norm.weight.copy_(wf.randn(16))
        norm.bias.copy_(wf.randn(16))
    return made.eval()


@pytest.fixture
def x() -> wf.Tensor:
    return wf.tensor(np.random.default_rng(1).standard_normal((2, 3, 8, 8), np.float32))


def captured(model: nn.Module, **options: object):
    def forward(x):
        with wf.no_grad():
            return model(x)

    return wf.function(forward, **options)


def program(step) -> Program:
    return step.traces[-1].compiled.program


def close(a: wf.Tensor, b: wf.Tensor) -> None:
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5)


def test_the_same_scores_with_fewer_steps_in_a_call(model, x):
    plain, frozen = captured(model), captured(model, freeze=True)
    for _ in range(3):
        close(frozen(x), plain(x))
    assert not program(plain).prologue
    assert program(frozen).prologue
    assert len(program(frozen).steps) < len(program(plain).steps)


def test_it_agrees_with_eager_for_other_inputs(model, x):
    frozen = captured(model, freeze=True)
    for scale in (1.0, -2.0):
        with wf.no_grad():
            close(frozen(x * scale), model(x * scale))


def test_an_in_place_change_of_a_weight_is_seen_by_the_next_call(model, x):
    frozen = captured(model, freeze=True)
    frozen(x)
    with wf.no_grad():
        for p in model.parameters():
            p.mul_(0.5)
            close(frozen(x), model(x))


def test_a_changed_buffer_is_seen_by_the_next_call(model, x):
    frozen = captured(model, freeze=True)
    frozen(x)
    with wf.no_grad():
        model[1].running_var.mul_(4.0)
        close(frozen(x), model(x))


def test_a_captured_training_step_changes_what_the_frozen_function_reads(model, x):
    frozen = captured(model, freeze=True)
    optimizer = wf.optim.SGD(model.parameters(), lr=0.1)

    @wf.function
    def train(x):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    before = frozen(x).numpy().copy()
    for _ in range(3):  # from the second call on, writes are noted in a shorter way
        train(x)
        with wf.no_grad():
            close(frozen(x), model(x))
    assert not np.allclose(before, frozen(x).numpy())


def _optimised(layer):
    optimizer = wf.optim.AdamW(layer.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        layer(wf.ones((2, 64))).square().mean().backward()
        optimizer.step()


def _unrecorded(change):
    def run(layer):
        with wf.no_grad():
            change(layer.weight)

    return run


@pytest.mark.parametrize(
    "change",
    [
        _optimised,
        lambda layer: layer.weight.detach().mul_(1.5),
        lambda layer: nn.init.normal_(layer.weight),
        lambda layer: nn.utils.vector_to_parameters(wf.randn(512 * 64 + 512), layer.parameters()),
        _unrecorded(lambda w: w[0].add_(1.0)),
        _unrecorded(lambda w: w.__setitem__(slice(0, 2), 1.5)),
        _unrecorded(lambda w: w.T.mul_(2.0)),
    ],
    ids=["optimiser", "detached", "initialised", "vector", "row", "setitem", "transposed"],
)
def test_every_way_to_write_in_place_is_seen(change):
    wf.manual_seed(0)
    layer = nn.Linear(64, 512)

    def step(x):
        with wf.no_grad():
            return x + wf.cumsum(layer.weight, axis=1)[:2]

    frozen, x = wf.function(step, freeze=True), wf.ones((2, 64))
    old = frozen(x).numpy().copy()
    assert program(frozen).prologue
    for _ in range(2):
        change(layer)
        close(frozen(x), step(x))
    assert not np.allclose(frozen(x).numpy(), old)


def test_loaded_weights_are_seen_by_the_next_call(model, x):
    frozen = captured(model, freeze=True)
    frozen(x)
    model.load_state_dict({k: v * 1.5 for k, v in model.state_dict().items()})
    with wf.no_grad():
        close(frozen(x), model(x))


def test_a_write_through_an_array_is_seen_after_refresh_and_at_once_by_default():
    weight = wf.tensor(np.arange(64, dtype=np.float32))

    def step(x):
        return x + wf.cumsum(weight, axis=0)

    plain, frozen = wf.function(step), wf.function(step, freeze=True)
    x = wf.ones((64,))
    old = frozen(x).numpy().copy()
    plain(x)
    weight.numpy()[...] = 1.0
    np.testing.assert_array_equal(plain(x).numpy(), np.arange(64) + 2.0)
    np.testing.assert_array_equal(frozen(x).numpy(), old)
    frozen.refresh()
    np.testing.assert_array_equal(frozen(x).numpy(), np.arange(64) + 2.0)


def test_another_array_in_a_tensor_is_seen_by_the_next_call():
    weight = wf.tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    frozen = wf.function(lambda x: x @ (weight * 2.0), freeze=True)
    x = wf.ones((4, 2))
    frozen(x)
    weight._data = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(frozen(x).numpy(), np.full((4, 3), 4.0))


def test_tensors_that_the_function_writes_are_not_frozen():
    state, scale = wf.zeros((8,)), wf.full((8,), 2.0)

    def step(x):
        state.add_(x)
        return state * 3.0 + scale * 2.0

    frozen = wf.function(step, freeze=True)
    for i in range(1, 4):
        assert frozen(wf.ones((8,))).tolist() == [3.0 * i + 4.0] * 8
    assert state.tolist() == [3.0] * 8


def test_what_is_returned_is_fresh_although_it_depends_on_frozen_tensors_alone():
    weight = wf.full((4,), 3.0)
    frozen = wf.function(lambda x: (weight * 2.0, x + 1.0), freeze=True)
    first, _ = frozen(wf.ones((2,)))
    first.add_(1.0)
    second, _ = frozen(wf.ones((2,)))
    assert second.tolist() == [6.0] * 4


def test_random_draws_stay_random():
    scale = wf.full((1000,), 2.0)
    frozen = wf.function(lambda: wf.rand(1000) * (scale * 2.0), freeze=True)
    first, second = frozen().numpy(), frozen().numpy()
    assert first.max() > 2.0 and not np.array_equal(first, second)


def test_control_flow_reads_what_is_kept():
    weight = wf.tensor(np.arange(16, dtype=np.float32))

    def step(n, x):
        doubled = weight * 2.0
        return wf.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y + doubled), (wf.tensor(0), x))[1]

    frozen = wf.function(step, freeze=True)
    for n in (0, 1, 5):
        np.testing.assert_array_equal(frozen(wf.tensor(n), wf.zeros((16,))).numpy(), 2.0 * n * np.arange(16))


def test_several_threads_share_what_is_kept(model, x):
    frozen = captured(model, freeze=True)
    with wf.no_grad():
        expected = model(x)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            for _ in range(10):
                close(frozen(x), expected)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not any(t.is_alive() for t in threads) and not failures
    assert program(frozen).kept is not None and program(frozen).kept.filled


def test_a_method_is_frozen_per_instance():
    class Scaled:
        def __init__(self, factor):
            self.weight = wf.full((3,), factor)

        @wf.function(freeze=True)
        def run(self, x):
            return x * (self.weight * 2.0)

    a, b = Scaled(1.0), Scaled(5.0)
    for _ in range(2):
        assert a.run(wf.ones((3,))).tolist() == [2.0] * 3 and b.run(wf.ones((3,))).tolist() == [10.0] * 3


def test_gradients_of_a_frozen_function_follow_the_weights():
    weight = wf.tensor([2.0, 2.0, 2.0], requires_grad=True)
    frozen = wf.function(lambda x: (x * (weight * weight)).sum(), freeze=True)
    plain = wf.function(lambda x: (x * (weight * weight)).sum())
    for factor in (1.0, 3.0):
        with wf.no_grad():
            weight.fill_(factor)
        grads = []
        for step in (frozen, plain):
            weight.grad = None
            step(wf.ones((3,))).backward()
            grads.append(weight.grad.tolist())
        assert grads[0] == grads[1] == [2.0 * factor] * 3


def test_explain_lists_what_runs_once(model, x):
    frozen = captured(model, freeze=True)
    frozen(x)
    assert "computed once" in frozen.explain()


def test_what_a_session_assigns_is_seen_by_the_next_call():
    weight = wf.tensor(np.arange(64, dtype=np.float32))
    frozen = wf.function(lambda x: x + wf.cumsum(weight, axis=0), freeze=True)
    x = wf.zeros((64,))
    frozen(x)
    graph = wf.Graph("writer")
    with graph.as_default():
        amount = wf.placeholder(wf.float32, ())
        add = wf.Variable(weight).assign_add(amount)
    with wf.Session(graph) as session:
        for _ in range(3):  # from the second run on, writes are noted in a shorter way
            session.run(add, {amount: 1.0})
            np.testing.assert_array_equal(frozen(x).numpy(), np.cumsum(weight.numpy()))


def test_an_instance_that_was_put_back_during_a_refresh_is_not_used_again():
    weight = wf.tensor(np.arange(64, dtype=np.float32))
    frozen = wf.function(lambda x: x + wf.cumsum(weight, axis=0), freeze=True)
    x = wf.zeros((64,))
    frozen(x)
    stale = list(program(frozen)._free)
    assert stale
    weight.fill_(1.0)
    frozen(x)
    program(frozen)._free[:] = stale  # as a thread does that ended while another one refreshed
    np.testing.assert_array_equal(frozen(x).numpy(), np.arange(64) + 1.0)


def test_calls_that_begin_after_a_write_see_it_whatever_other_threads_do():
    weight = wf.tensor(np.ones(4096, np.float32))
    frozen = wf.function(lambda x: x + wf.cumsum(weight, axis=0), freeze=True)
    x = wf.zeros((4096,))
    frozen(x)
    stop = threading.Event()
    failures: list[BaseException] = []

    def others() -> None:
        try:
            while not stop.is_set():
                frozen(x)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=others) for _ in range(2)]
    for t in threads:
        t.start()
    try:
        for i in range(1, 60):
            weight.fill_(float(i))
            assert frozen(x).numpy()[0] == float(i)
    finally:
        stop.set()
        for t in threads:
            t.join(60)
    assert not any(t.is_alive() for t in threads) and not failures
