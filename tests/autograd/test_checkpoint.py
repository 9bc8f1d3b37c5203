"""Gradient checkpointing: the same gradients, less memory, the same random numbers."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import weft as wf


def _leaf(shape=(3, 4), seed=0):
    return wf.asarray(np.random.default_rng(seed).uniform(0.2, 1.5, shape)).requires_grad_()


def _gradients(fn, *leaves):
    for t in leaves:
        t.grad = None
    fn(*leaves).sum().backward()
    return [None if t.grad is None else t.grad.numpy().copy() for t in leaves]


def _same(a, b):
    for p, q in zip(a, b, strict=True):
        assert (p is None) == (q is None)
        if p is not None:
            np.testing.assert_allclose(p, q, rtol=1e-13)  # sums may be added up in another order


W = _leaf((4, 4), 9)


def block(x):
    return ((x @ W).sin() * x).exp() / (1 + x * x)


def mutating(x):
    y = x * 2
    y[0] *= 3
    y.exp_()
    return y * x


CASES = {
    "block": (block, lambda x: wf.checkpoint(block, x)),
    "twice": (lambda x: block(block(x)), lambda x: wf.checkpoint(block, wf.checkpoint(block, x))),
    "nested": (lambda x: block(block(x).sin()), lambda x: wf.checkpoint(lambda v: block(wf.checkpoint(block, v).sin()), x)),
    "deep": (
        lambda x: block(block(block(x))),
        lambda x: wf.checkpoint(lambda v: block(wf.checkpoint(lambda u: block(wf.checkpoint(block, u)), v)), x),
    ),
    "in place": (mutating, lambda x: wf.checkpoint(mutating, x)),
    "several outputs": (
        lambda x: block(x) * x.sin(),
        lambda x: (lambda d: d["a"] * d["b"][0])(wf.checkpoint(lambda v: {"a": block(v), "b": [v.sin()]}, x)),
    ),
    "used twice": (lambda x: block(x) + block(x) * 2, lambda x: (lambda y: y + y * 2)(wf.checkpoint(block, x))),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_the_same(name):
    plain, checkpointed = CASES[name]
    x = _leaf()
    expected = _gradients(lambda x, w: plain(x), x, W)
    _same(_gradients(lambda x, w: checkpointed(x), x, W), expected)
    g = wf.grad(checkpointed(x).sum(), [x, W], allow_unused=True)
    _same([None if t is None else t.numpy() for t in g], expected)


@pytest.mark.parametrize("name", CASES)
def test_higher_order(name):
    plain, checkpointed = CASES[name]
    x = _leaf((2, 4), 3)
    second = [
        wf.grad((wf.grad(fn(x).sum(), x, create_graph=True)[0] ** 2).sum(), x)[0].numpy()
        for fn in (plain, checkpointed)
    ]
    np.testing.assert_allclose(second[1], second[0], rtol=1e-12)


def test_intermediate_values_are_freed_and_computed_again():
    made = []

    def watched(x):
        y = (x * 2).exp()
        made.append(weakref.ref(y._data))
        return y.sin() * y

    gc.disable()
    try:
        x = _leaf()
        out = wf.checkpoint(watched, x)
        assert len(made) == 1 and made[0]() is None
        out.sum().backward()
        assert len(made) == 2 and made[1]() is None
    finally:
        gc.enable()


def test_arguments_in_containers_and_keywords():
    x, y = _leaf(seed=1), _leaf(seed=2)

    def fn(pair, *, scale, other=None):
        return (pair["x"] * pair["y"][0]).sin() * scale * other

    _same(
        _gradients(lambda x, y: wf.checkpoint(fn, {"x": x, "y": [y]}, scale=3.0, other=x), x, y),
        _gradients(lambda x, y: fn({"x": x, "y": [y]}, scale=3.0, other=x), x, y),
    )


def test_inputs_without_gradients():
    x = wf.asarray(np.ones((2, 4)))
    _same(_gradients(lambda w: wf.checkpoint(block, x), W), _gradients(lambda w: block(x), W))
    out = wf.checkpoint(lambda v: v * 2, x)
    assert not out.requires_grad
    with wf.no_grad():
        assert not wf.checkpoint(block, _leaf()).requires_grad


def test_random_numbers_are_the_same_and_the_stream_goes_on():
    def noisy(x):
        return x.sin() * wf.rand(3, 4, dtype=wf.float64) * x

    x = _leaf()
    runs = []
    for fn in (noisy, lambda x: wf.checkpoint(noisy, x)):
        wf.manual_seed(5)
        g = _gradients(fn, x)
        runs.append((g, wf.rand(2).tolist()))
    _same(runs[0][0], runs[1][0])
    assert runs[0][1] == runs[1][1]


def test_autocast_holds_in_the_second_run():
    x = wf.ones(4, 4, requires_grad=True)
    w = wf.ones(4, 4, requires_grad=True)
    seen = []

    def fn(v):
        y = v @ w
        seen.append(y.dtype.name)
        return y * y

    with wf.autocast(wf.bfloat16):
        out = wf.checkpoint(fn, x)
    out.sum().backward()
    assert seen == ["bfloat16", "bfloat16"] and w.grad.dtype == wf.float32


def test_hooks_see_the_gradients():
    x = _leaf()
    seen = []

    def fn(v):
        y = v.sin()
        if y.requires_grad:
            y.register_hook(lambda g: seen.append(1))
        return y * y

    wf.checkpoint(fn, x).sum().backward()
    assert seen == [1]


def test_a_changed_input_is_an_error():
    x = _leaf()
    y = x * 1
    out = wf.checkpoint(block, y)
    with wf.no_grad():
        y += 1
    with pytest.raises(RuntimeError, match="checkpoint: an argument of shape .* was overwritten in place by add"):
        out.sum().backward()


def test_a_changed_parameter_is_an_error():
    w = _leaf((4, 4))
    out = wf.checkpoint(lambda v: (v @ w).sin(), _leaf())
    with wf.no_grad():
        w -= 1
    with pytest.raises(RuntimeError, match="checkpoint: a tensor that the function uses .* was overwritten"):
        out.sum().backward()


def test_a_function_that_changes_its_mind_is_an_error():
    calls = []

    def fickle(x):
        calls.append(1)
        return x.sin() if len(calls) == 1 else x.cos() * x

    out = wf.checkpoint(fickle, _leaf())
    with pytest.raises(RuntimeError, match="checkpoint: the function did not do the same .*op 0 was sin, then cos"):
        out.sum().backward()


def test_retain_graph_and_second_backward():
    x = _leaf()
    calls = []

    def fn(v):
        calls.append(1)
        return v.exp() * v

    out = wf.checkpoint(fn, x).sum()
    out.backward(retain_graph=True)
    first = x.grad.numpy().copy()
    out.backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * first)
    assert len(calls) == 2
    with pytest.raises(RuntimeError, match="freed by an earlier backward"):
        out.backward()


def test_errors_in_the_function_pass_through():
    with pytest.raises(ZeroDivisionError):
        wf.checkpoint(lambda v: 1 / 0, _leaf())


def test_custom_function_inside():
    class Cube(wf.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3 * x * x

    fn = lambda v: Cube.apply(v.sin()) * v
    x = _leaf()
    _same(_gradients(lambda x: wf.checkpoint(fn, x), x), _gradients(fn, x))
    assert wf.gradgradcheck(lambda v: wf.checkpoint(fn, v), _leaf((2,), 4))
