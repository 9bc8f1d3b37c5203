"""cond, case, while_loop, scan and map: the same values and gradients captured as eagerly."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf


def _listed(value):
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _same(fn, *args):
    for got, expected in zip(_listed(wf.function(fn)(*args)), _listed(fn(*args)), strict=True):
        np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)


def _same_gradients(fn, *args):
    def gradients(*xs):
        return wf.grad_fn(lambda *ys: _listed(fn(*ys))[0].sum(), argnums=tuple(range(len(args))))(*xs)

    _same(gradients, *args)


X, Y = [1.0, 2.0, 3.0], [4.0, 5.0, 6.0]
CASES = {
    "cond true": lambda x, y: wf.cond(x.sum() > 5, lambda: x * y, lambda: x - y),
    "cond false with operands": lambda x, y: wf.cond(x.sum() > 50, lambda a: a * y * y, lambda a: a - y * a, x),
    "nested cond": lambda x, y: wf.cond(
        x.sum() > 5, lambda: wf.cond(y.sum() > 100, lambda: x, lambda: x * y * 2), lambda: y
    ),
    "bounded while": lambda x, y: wf.while_loop(lambda v: v.sum() < 100, lambda v: v * 2 + y, x, max_iterations=10),
    "scan ys": lambda x, y: wf.scan(lambda c, t: (c * 0.5 + t * y, c * t), wf.zeros(3), wf.stack([x, x * 2, y]))[1],
    "scan carry reversed": lambda x, y: wf.scan(
        lambda c, t: (c * 0.5 + t * y, c * t), x, wf.stack([x, x * 2, y]), reverse=True
    )[0],
    "scan of a cond": lambda x, y: wf.scan(
        lambda c, t: (wf.cond(t.sum() > 8, lambda: c + t, lambda: c - t * y), c), x, wf.stack([x, y, x])
    )[0],
    "map": lambda x, y: wf.map(lambda v: v * v + y, wf.stack([x, x + 1])),
}


@pytest.mark.parametrize("name", CASES)
def test_captured_control_flow_equals_eager(name):
    x, y = wf.tensor(X), wf.tensor(Y)
    _same(CASES[name], x, y)
    _same_gradients(CASES[name], x, y)


def test_while_loop_with_several_states_counts_iterations():
    def fn(x):
        return wf.while_loop(lambda i, v: v.sum() < 100, lambda i, v: (i + 1, v * 2), (wf.tensor(0), x))

    x = wf.tensor(X)
    _same(fn, x)
    assert wf.function(fn)(x)[0].item() == 5


def test_while_loop_gradient_needs_no_bound():
    def fn(x):
        return wf.grad_fn(lambda v: wf.while_loop(lambda u: u.sum() < 100, lambda u: u * 2, v).sum())(x)

    np.testing.assert_allclose(fn(wf.tensor(X)).numpy(), [32.0] * 3)
    np.testing.assert_allclose(wf.function(fn)(wf.tensor(X)).numpy(), [32.0] * 3)


def test_case_takes_the_branch_with_the_index():
    branches = [lambda: wf.tensor(1.0), lambda: wf.tensor(2.0), lambda: wf.tensor(3.0)]
    captured = wf.function(lambda i: wf.case(i, branches))
    assert [captured(wf.tensor(i)).item() for i in (0, 1, 2, 7)] == [1.0, 2.0, 3.0, 3.0]


def test_only_the_branch_taken_runs():
    x = wf.tensor(X)
    fn = wf.function(lambda x, i: wf.cond(i < 3, lambda: wf.take(x, i), lambda: x[0]))
    assert fn(x, wf.tensor(2)).item() == 3.0
    assert fn(x, wf.tensor(9)).item() == 1.0


def test_branches_of_different_shapes_are_refused():
    with pytest.raises(wf.CaptureError, match="both branches must return the same"):
        wf.function(lambda x: wf.cond(x.sum() > 0, lambda: x, lambda: x[:2]))(wf.tensor(X))


def test_writing_outside_tensors_in_a_branch_happens_if_the_branch_is_taken():
    total = wf.zeros(3)

    def fn(x):
        def add():
            total.add_(x)
            return x * 1.0

        return wf.cond(x.sum() > 0, add, lambda: x * 2.0)

    captured = wf.function(fn)
    captured(wf.tensor(X))
    captured(-wf.tensor(X))
    assert total.tolist() == X and len(captured.traces) == 1 and captured.traces[0].reason is None


def test_the_gradient_of_a_branch_uses_the_names_of_its_time():
    def fn(x, a, b):
        y = x
        for w in (a, b):
            if y.sum() > 0:
                y = y * w
        return y.sum()

    _same_gradients(fn, *[wf.tensor([v, v]) for v in (2.0, 3.0, 5.0)])


def test_the_gradient_of_a_branch_uses_the_values_of_its_time():
    def fn(x, w):
        y = w * 1.0
        loss = wf.cond(x.sum() > 0, lambda: (y * x).sum(), lambda: x.sum())
        y.mul_(100.0)
        return loss

    x = wf.tensor([2.0, 3.0]).requires_grad_()
    w = wf.tensor([5.0, 7.0])
    (g,) = wf.grad(wf.function(fn)(x, w), [x])
    assert g.tolist() == [5.0, 7.0]


def test_recurrent_network_by_scan():
    rng = np.random.default_rng(0)
    w = wf.tensor(rng.standard_normal((3, 3)).astype("f") * 0.5)
    xs = wf.tensor(rng.standard_normal((7, 2, 3)).astype("f"))

    def fn(xs, w):
        return wf.scan(lambda h, x: (wf.tanh(h @ w + x),) * 2, wf.zeros(2, 3), xs)[1]

    _same(fn, xs, w)
    _same_gradients(fn, xs, w)


def test_scan_lengths_must_agree():
    with pytest.raises(ValueError, match="equally long"):
        wf.scan(lambda c, x: (c, c), wf.zeros(()), (wf.zeros(3), wf.zeros(4)))


def test_second_derivatives_of_captured_control_flow():
    def f(x):
        carry, ys = wf.scan(lambda c, k: (c * x + k, c * c), x * 1.0, wf.tensor([1.0, 2.0]))
        return wf.cond(wf.sum(x) > 0, lambda: x * x * x, lambda: -x) + carry + wf.sum(ys)

    def second(x):
        return wf.grad_fn(lambda y: wf.grad_fn(f)(y))(x)

    _same(second, wf.tensor(2.0))
    _same(second, wf.tensor(-2.0))
