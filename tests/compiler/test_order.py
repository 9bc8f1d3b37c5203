"""Updates run as soon as they may: less memory, the same numbers, and variables whole after a failure."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf

RNG = np.random.default_rng(0)


def step_of(weights, extra=lambda loss: loss):
    def step(x):
        for w in weights:
            x = wf.tanh(x @ w)
        loss = (x * x).mean()
        for w in weights:
            w.grad = None
        loss.backward()
        with wf.no_grad():
            for w in weights:
                w.sub_(0.1 * w.grad)
        return extra(loss)

    return step


def made():
    return [wf.tensor((RNG.standard_normal((128, 128)) / 11).astype(np.float32), requires_grad=True) for _ in range(8)]


def test_gradients_do_not_wait_for_the_end():
    fn = wf.function(step_of(made()))
    fn(wf.ones(16, 128))
    (trace,) = fn._traces.values()
    assert trace.compiled.program.arena < 5 * 128 * 128 * 4  # eight gradients would need more


def test_the_numbers_are_those_of_the_eager_step():
    weights = made()
    copies = [wf.tensor(w.detach().numpy().copy(), requires_grad=True) for w in weights]
    x = wf.tensor(RNG.standard_normal((16, 128)).astype(np.float32))
    fn, eager = wf.function(step_of(weights)), step_of(copies)
    for _ in range(3):
        np.testing.assert_allclose(fn(x).item(), eager(x).item(), rtol=1e-5)
    for a, b in zip(weights, copies, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_two_updates_that_read_each_others_old_value():
    a, b = wf.tensor(np.arange(64.0)), wf.tensor(np.ones(64))

    @wf.function
    def swap_mix():
        old = a.clone()
        a.copy_(b * 2)
        b.copy_(old * 3)

    swap_mix()
    np.testing.assert_array_equal(a.numpy(), np.full(64, 2.0))
    np.testing.assert_array_equal(b.numpy(), np.arange(64.0) * 3)


def test_an_update_waits_for_a_late_check():
    weights = made()
    before = [w.detach().numpy().copy() for w in weights]
    table = wf.tensor(np.arange(4.0))

    def late(loss):
        return table[(loss * 0 + 7).astype(wf.int64)] + loss  # fails after the backward pass

    fn = wf.function(step_of(weights, late))
    with pytest.raises(Exception, match="range"):
        fn(wf.ones(16, 128))
    for w, old in zip(weights, before, strict=True):
        np.testing.assert_array_equal(w.detach().numpy(), old)
