"""Gradients that a captured function leaves: there for what it does not update, withheld for what it updates itself."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import weft as wf
from weft import nn, optim

X = np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(4, 3)


def _model():
    wf.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def _loss(model, x):
    return (model(x) ** 2).mean()


def _weights(model):
    return [p.detach().numpy().copy() for p in model.parameters()]


def _same(first, second):
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def _trained(make, captured_gradients, captured_update, steps=4):
    """A step split in two programs, as data-parallel training does it."""
    model = _model()
    optimizer = make(model.parameters())

    def gradients(x):
        optimizer.zero_grad()
        loss = _loss(model, x)
        loss.backward()
        return loss

    def update():
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()

    first = wf.function(gradients) if captured_gradients else gradients
    second = wf.function(update) if captured_update else update
    for i in range(steps):
        first(wf.asarray(X * (i + 1)))
        assert all(p.grad is not None for p in model.parameters())
        second()
    return _weights(model)


@pytest.mark.parametrize("captured", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("make", [lambda ps: optim.SGD(ps, lr=0.1, momentum=0.9), lambda ps: optim.Adam(ps, lr=0.05)])
def test_gradients_and_update_may_be_functions_of_their_own(captured, make):
    _same(_trained(make, *captured), _trained(make, False, False))


def test_micro_steps_accumulate():
    seen = []
    for captured in (False, True):
        model = _model()
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        micro = lambda x, model=model: _loss(model, x).backward()
        run = wf.function(micro) if captured else micro
        for i in range(6):
            run(wf.asarray(X * (i + 1)))
            if i % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()
        run(wf.asarray(X))
        seen.append([*_weights(model), *[p.grad.numpy() for p in model.parameters()]])
    _same(*seen)


def test_gradients_of_arguments_accumulate():
    x = wf.ones(2, requires_grad=True)
    run = wf.function(lambda x: (x * 3.0).sum().backward())
    run(x)
    run(x)
    assert x.grad.tolist() == [6.0, 6.0]


def test_a_backward_pass_inside_reaches_what_an_argument_was_computed_from():
    w = wf.ones(2, requires_grad=True)
    wf.function(lambda y: (y * 3.0).sum().backward())(w * 2.0)
    assert w.grad.tolist() == [6.0, 6.0]


def test_gradients_of_outside_tensors_used_detached_first():
    w = wf.ones(2, requires_grad=True)
    wf.function(lambda x: w.detach().sum() + (w * x).sum())(wf.tensor([3.0, 4.0])).backward()
    assert w.grad.tolist() == [3.0, 4.0]


def test_gradients_reach_what_an_outside_tensor_was_computed_from():
    w = wf.ones(2, requires_grad=True)
    y = w * 2.0
    wf.function(lambda x: (y * x).sum())(wf.tensor([3.0, 4.0])).backward()
    assert w.grad.tolist() == [6.0, 8.0]


def test_a_gradient_that_is_written_in_place_is_written_where_it_is():
    w = wf.ones(2, requires_grad=True)
    scale = wf.function(lambda: w.grad.mul_(0.5))
    for _ in range(2):
        w.grad = wf.tensor([2.0, 4.0])
        held = w.grad
        scale()
        assert held.tolist() == [1.0, 2.0] and w.grad is held


def test_an_outside_tensor_that_begins_to_require_gradients_is_noticed():
    w = wf.ones(2)
    run = wf.function(lambda x: (w * x).sum())
    assert not run(wf.ones(2)).requires_grad
    w.requires_grad_()
    run(wf.ones(2)).backward()
    assert w.grad.tolist() == [1.0, 1.0]
    w.requires_grad_(False)
    assert not run(wf.ones(2)).requires_grad


def _whole_step(keep_grads):
    model = _model()
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        _loss(model, x).backward()
        optimizer.step()

    captured = wf.function(step, keep_grads=keep_grads)
    captured(wf.asarray(X))
    return model, optimizer, captured


def test_an_eager_step_or_clip_that_finds_withheld_gradients_says_keep_grads():
    model, optimizer, step = _whole_step(keep_grads=False)
    assert all(p.grad is None for p in model.parameters())
    for action in (
        optimizer.step,
        lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0),
        lambda: nn.utils.clip_grad_value_(model.parameters(), 1.0),
    ):
        with pytest.raises(RuntimeError, match=r"captured function step updates .* keep_grads=True"):
            action()
    _loss(model, wf.asarray(X)).backward()  # eager gradients are gradients
    optimizer.step()
    del step
    gc.collect()
    optimizer.zero_grad()
    optimizer.step()  # the function is gone: a step without gradients does nothing, as ever


def test_keep_grads_leaves_the_gradients_of_updated_parameters():
    model, optimizer, _step = _whole_step(keep_grads=True)
    assert all(p.grad is not None for p in model.parameters())
    optimizer.step()
