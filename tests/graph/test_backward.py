"""Differentiating the results of captured functions from outside."""

import numpy as np
import pytest

import weft as wf
from weft import nn
from weft.nn import functional as F


def test_gradients_of_any_order():
    x = wf.tensor(np.linspace(-1, 1, 6), requires_grad=True)
    w = wf.tensor(np.linspace(1, 2, 6), requires_grad=True)

    def plain(x):
        return (wf.sin(x) * w**3).sum()

    def derivatives(f):
        gx, gw = wf.grad(f(x), [x, w], create_graph=True)
        second = wf.grad((gx * gx).sum() + (gw * x).sum(), [x, w], create_graph=True)
        third = wf.grad(second[0].sum() + second[1].sum(), [x, w])
        return [t.detach().numpy() for t in (gx, gw, *second, *third)]

    for got, expected in zip(derivatives(wf.function(plain)), derivatives(plain), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9)


@pytest.mark.parametrize("layer", [nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)), nn.GRU(3, 4)])
def test_gradient_penalty_of_a_captured_model(layer):
    x = wf.tensor(np.random.default_rng(0).normal(size=(5, 2, 3)).astype("float32"), requires_grad=True)

    def forward(x):
        y = layer(x)
        return y[0] if isinstance(y, tuple) else y

    def penalty(f):
        (slope,) = wf.grad(f(x).square().sum(), [x], create_graph=True)
        return wf.grad((slope.square().sum(axis=-1) - 1.0).square().mean(), list(layer.parameters()), allow_unused=True)

    for got, expected in zip(penalty(wf.function(forward)), penalty(forward), strict=True):
        assert (got is None) == (expected is None)
        if got is not None:
            np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-3, atol=1e-5)


W = wf.tensor([1.1, 0.9], dtype=wf.float64, requires_grad=True)


def branch(x):
    return wf.cond(wf.sum(x) > 0, lambda: wf.sin(x * W), lambda: wf.cos(x) * W).sum()


def loop(x):
    return wf.while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, wf.sin(y * W)), (wf.asarray(0), x))[1].sum()


def scan(x):
    rows = wf.asarray([1.0, 0.5, 2.0], dtype=wf.float64)
    last, seen = wf.scan(lambda c, v: (wf.sin(c * v * W), c * 2), x, rows)
    return (last * last).sum() + seen.sum()


def rewritten(x):
    while x.sum() < 5:
        x = x * 1.5 + W * W
    return (x * x).sum()


@pytest.mark.parametrize("fn", [branch, loop, scan, rewritten])
def test_control_flow_can_be_differentiated_twice_from_outside(fn):
    def second(f):
        x = wf.tensor([0.5, 0.7], dtype=wf.float64, requires_grad=True)
        gx, gw = wf.grad(f(x), [x, W], create_graph=True)
        return wf.grad((gx**2).sum() + (gw**3).sum(), [x, W])

    for got, expected in zip(second(wf.function(fn)), second(fn), strict=True):
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-10)


class Through(wf.Function):
    @staticmethod
    def forward(ctx, x):
        return wf.round(x)

    @staticmethod
    def backward(ctx, g):
        return g


def with_a_function(x):
    return (Through.apply(x) * x).sum()


def without_gradients(x):
    with wf.no_grad():
        scale = x * x
    return (scale * x).sum() + (x**3).sum()


def detached(x):
    return (x.detach() * x * W.detach().sum()).sum() + (W * x**3).sum()


def with_a_hook(x):
    y = x * x
    y.register_hook(lambda g: g * 5)
    return y.sum()


def with_a_hook_on_one_of_several(x):
    first, _ = wf.topk(x * x, 2)
    first.register_hook(lambda g: g * 5)
    return (first**2).sum()


@pytest.mark.parametrize(
    "fn", [with_a_function, without_gradients, detached, with_a_hook, with_a_hook_on_one_of_several]
)
def test_gradients_that_the_nodes_do_not_tell_are_not_differentiated_again_from_outside(fn):
    x = wf.tensor([1.2, 2.7], dtype=wf.float64, requires_grad=True)
    f = wf.function(fn)
    np.testing.assert_allclose(wf.grad(f(x), [x])[0].numpy(), wf.grad(fn(x), [x])[0].numpy())
    with pytest.raises(RuntimeError, match="cannot be differentiated again from outside"):
        wf.grad(f(x), [x], create_graph=True)
    inside = wf.function(lambda x: wf.grad(wf.grad(fn(x), [x], create_graph=True)[0].sum(), [x], allow_unused=True)[0])
    expected = wf.grad(wf.grad(fn(x), [x], create_graph=True)[0].sum(), [x], allow_unused=True)[0]
    np.testing.assert_allclose(inside(x).numpy(), expected.numpy())


def test_dropout_has_one_mask_for_the_value_and_the_gradient():
    w = wf.ones(100, requires_grad=True)
    f = wf.function(lambda x: F.dropout(x * w, 0.5))
    seen = []
    for _ in range(2):
        y = f(wf.ones(100))
        w.grad = None
        y.sum().backward()
        np.testing.assert_array_equal(y.detach().numpy(), w.grad.numpy())
        seen.append(w.grad.numpy())
    assert not np.array_equal(*seen)


@pytest.mark.parametrize("which", ["argument", "outside"])
def test_what_the_gradient_reads_must_not_be_overwritten(which):
    x, w = wf.ones(3, requires_grad=True), wf.ones(3, requires_grad=True)
    y = wf.function(lambda x: (x * w * w).sum())(x)
    with wf.no_grad():
        (x if which == "argument" else w).add_(1.0)
    with pytest.raises(RuntimeError, match=r"overwritten in place by add.*test_backward"):
        y.backward()


def test_a_result_of_a_captured_function_can_be_printed():
    x = wf.ones(2, requires_grad=True)
    assert "tensor" in repr(wf.function(lambda x: x * 2.0)(x))


def test_repeated_captured_writes_are_noticed_by_gradients_recorded_between_them():
    w, other = wf.ones(4).requires_grad_(), wf.ones(4)

    @wf.function
    def double():
        with wf.no_grad():
            w.mul_(2.0)

    for interrupted in (False, True, False):
        for _ in range(3):
            double()
            if interrupted:
                other.add_(1.0)  # writes of others come between ours
        loss = (w * w).sum()
        double()
        with pytest.raises(RuntimeError, match="overwritten in place by double"):
            loss.backward()


def test_memory_that_a_captured_function_no_longer_writes_is_not_taken_for_written():
    v, w = wf.ones(4), wf.ones(4)

    @wf.function
    def double():
        v.mul_(2.0)
        w.mul_(2.0)

    double()
    double()
    kept, x = w.detach(), wf.ones(4).requires_grad_()
    w._data = w._data.copy()
    loss = (x * kept).sum()
    for _ in range(2):
        double()
    loss.backward()
    assert x.grad.tolist() == [4.0] * 4
    loss = (x * w).sum()
    double()
    with pytest.raises(RuntimeError, match="overwritten in place by double"):
        loss.backward()


def test_values_are_observed_once_in_the_pass_that_computes_them(capsys):
    @wf.function
    def fn(x):
        y = x * x
        wf.debug.print("forward {}", y)
        y.register_hook(lambda g: wf.debug.print("backward {}", g))
        return y.sum()

    x = wf.ones(1, requires_grad=True)
    fn(x).backward()
    assert capsys.readouterr().out.split() == ["forward", "tensor([1.])", "backward", "tensor([1.])"]
    fn(x)
    assert capsys.readouterr().out.split() == ["forward", "tensor([1.])"]
