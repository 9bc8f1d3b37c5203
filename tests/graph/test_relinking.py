"""`requires_grad_()`, `requires_grad = …` and `detach_()` in a captured function do to the caller's tensors what they do eagerly.

Each program makes its tensors and returns (function, arguments, tensors that the caller looks at afterwards).
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import weft as wf


def leaf(*v):
    return wf.tensor(list(v), requires_grad=True)


def plain(*v):
    return wf.tensor(list(v))


def inner(*v):
    start = leaf(*v)
    return start, start * 2.0


PROGRAMS = {}


def program(fn):
    PROGRAMS[fn.__name__] = fn
    return fn


@program
def enable_argument():
    x = plain(1.0, 2.0)

    def f(x):
        x.requires_grad_()
        return (x * x).sum()

    return f, (x,), [x]


@program
def enable_argument_backward_inside():
    x = plain(1.0, 2.0)

    def f(x):
        x.requires_grad_()
        y = (x * x).sum()
        y.backward()
        return y.detach()

    return f, (x,), [x]


@program
def setter_argument():
    x = plain(1.0, 2.0)

    def f(x):
        x.requires_grad = True
        return (x * x).sum()

    return f, (x,), [x]


@program
def enable_unused():
    x = plain(1.0, 2.0)

    def f(x, y):
        x.requires_grad_()
        return y * 2

    return f, (x, plain(3.0)), [x]


@program
def enable_after_use():
    x = plain(1.0, 2.0)

    def f(x):
        y = x * 3
        x.requires_grad_()
        return (y * x).sum()

    return f, (x,), [x]


@program
def disable_leaf():
    x = leaf(1.0, 2.0)

    def f(x):
        x.requires_grad_(False)
        return (x * x).sum()

    return f, (x,), [x]


@program
def disable_after_use():
    x = leaf(1.0, 2.0)

    def f(x):
        y = x * 3
        x.requires_grad = False
        return (y * x).sum()

    return f, (x,), [x]


@program
def toggle():
    x = leaf(1.0, 2.0)

    def f(x):
        y = x * 3
        x.requires_grad_(False)
        z = x * 5
        x.requires_grad_(True)
        return (y + z + x * 7).sum()

    return f, (x,), [x]


@program
def detach_leaf():
    x = leaf(1.0, 2.0)

    def f(x):
        x.detach_()
        return (x * x).sum()

    return f, (x,), [x]


@program
def detach_inner():
    start, x = inner(1.0, 2.0)

    def f(x):
        y = x * 3
        x.detach_()
        return (y * x).sum()

    return f, (x,), [x, start]


@program
def detach_inner_then_enable():
    start, x = inner(1.0, 2.0)

    def f(x):
        y = x * 3
        x.detach_().requires_grad_()
        return (y * x).sum()

    return f, (x,), [x, start]


@program
def detach_plain():
    x = plain(1.0, 2.0)

    def f(x):
        x.detach_()
        return x * 2

    return f, (x,), [x]


@program
def closed_over_enable():
    w = plain(1.0, 2.0)

    def f(x):
        w.requires_grad_()
        return (x * w).sum()

    return f, (plain(3.0, 4.0),), [w]


@program
def closed_over_enable_after_use():
    w = plain(1.0, 2.0)

    def f(x):
        y = x * w
        w.requires_grad_()
        return (y * w).sum()

    return f, (plain(3.0, 4.0),), [w]


@program
def closed_over_disable():
    w = leaf(1.0, 2.0)

    def f(x):
        y = x * w
        w.requires_grad_(False)
        return (y * w).sum()

    return f, (leaf(3.0, 4.0),), [w]


@program
def closed_over_detach():
    start, w = inner(1.0, 2.0)

    def f(x):
        y = x * w
        w.detach_()
        return (y * w).sum()

    return f, (plain(3.0, 4.0),), [w, start]


@program
def closed_over_disable_unused():
    w = leaf(1.0, 2.0)

    def f(x):
        w.requires_grad_(False)
        return x * 2

    return f, (plain(3.0, 4.0),), [w]


@program
def container():
    x = plain(1.0, 2.0)

    def f(d):
        d["a"][0].requires_grad_()
        return (d["a"][0] * 2).sum()

    return f, ({"a": [x]},), [x]


@program
def same_twice():
    x = plain(1.0, 2.0)

    def f(a, b):
        a.requires_grad_()
        return (b * 2).sum()

    return f, (x, x), [x]


@program
def argument_is_closed_over():
    x = plain(1.0, 2.0)

    def f(a):
        a.requires_grad_()
        return (x * 2).sum()

    return f, (x,), [x]


@program
def closed_over_is_argument():
    x = plain(1.0, 2.0)

    def f(a):
        x.requires_grad_()
        return (a * 2).sum()

    return f, (x,), [x]


@program
def returned():
    x = plain(1.0, 2.0)

    def f(x):
        x.requires_grad_()
        return x

    return f, (x,), [x]


@program
def returned_view_before():
    x = plain(1.0, 2.0)

    def f(x):
        v = x[:1]
        x.requires_grad_()
        return v

    return f, (x,), [x]


@program
def returned_view_after():
    x = plain(1.0, 2.0)

    def f(x):
        x.requires_grad_()
        return x[:1]

    return f, (x,), [x]


@program
def returned_view_of_detached():
    start, x = inner(1.0, 2.0)

    def f(x):
        v = x[:1]
        x.detach_()
        return v, x[1:]

    return f, (x,), [x, start]


@program
def new_leaf_returned():
    x = plain(1.0, 2.0)

    def f(x):
        p = (x * 2).requires_grad_()
        return p

    return f, (x,), [x]


@program
def new_leaf_returned_with_loss():
    x = plain(1.0, 2.0)

    def f(x):
        p = (x * 2).requires_grad_()
        return p, (p * p).sum()

    return f, (x,), [x]


@program
def new_leaf_hidden():
    x = plain(1.0, 2.0)

    def f(x):
        p = (x * 2).requires_grad_()
        return (p * p).sum()

    return f, (x,), [x]


@program
def result_detached():
    x = leaf(1.0, 2.0)

    def f(x):
        y = x * 2
        y.detach_()
        return y

    return f, (x,), [x]


@program
def write_and_enable():
    x = plain(1.0, 2.0)

    def f(x):
        x.mul_(2.0)
        x.requires_grad_()
        return (x * x).sum()

    return f, (x,), [x]


@program
def enable_and_write_unrecorded():
    x = plain(1.0, 2.0)

    def f(x):
        x.requires_grad_()
        y = (x * x).sum()
        y.backward()
        with wf.no_grad():
            x += x.grad
        return y.detach()

    return f, (x,), [x]


@program
def enable_and_write_recorded():
    x = plain(1.0, 2.0)

    def f(x):
        x.requires_grad_()
        x.mul_(2.0)
        return x.sum()

    return f, (x,), [x]


@program
def detach_and_write_recorded():
    x = leaf(1.0, 2.0)

    def f(x, w):
        x.detach_()
        x.mul_(w)
        return x.sum()

    w = leaf(3.0, 4.0)
    return f, (x, w), [x, w]


@program
def integer():
    x = wf.tensor([1, 2])

    def f(x):
        x.requires_grad_()
        return x * 2

    return f, (x,), [x]


@program
def disable_nonleaf():
    start, x = inner(1.0, 2.0)

    def f(x):
        x.requires_grad_(False)
        return x * 2

    return f, (x,), [x, start]


@program
def in_cond():
    x = plain(1.0, 2.0)

    def f(x, c):
        def yes():
            x.requires_grad_()
            return x.sum()

        return wf.cond(c, yes, lambda: x.sum() * 2)

    return f, (x, wf.tensor(True)), [x]


@program
def in_if():
    w = plain(1.0, 2.0)

    def f(c):
        if c.sum() > 0:
            w.requires_grad_()
        return w.sum()

    return f, (plain(1.0),), [w]


@program
def in_loop():
    w = leaf(1.0, 2.0)

    def f(c):
        def body(i, s):
            w.requires_grad_(False)
            return i + 1, s + w.sum()

        return wf.while_loop(lambda i, s: i < 3, body, (wf.tensor(0), c))[1]

    return f, (wf.tensor(1.0),), [w]


@program
def under_no_grad():
    x = plain(1.0, 2.0)

    def f(x):
        with wf.no_grad():
            x.requires_grad_()
            return (x * 2).sum()

    return f, (x,), [x]


@program
def module_freeze():
    m = wf.nn.Linear(2, 2)
    with wf.no_grad():
        m.weight.fill_(0.5)
        m.bias.fill_(0.1)

    def f(x):
        m.weight.requires_grad_(False)
        return m(x).sum()

    return f, (plain(1.0, 2.0),), [m.weight, m.bias]


@program
def view_argument():
    b = plain(1.0, 2.0, 3.0)
    x = b[:2]

    def f(x):
        x.requires_grad_()
        return (x * x).sum()

    return f, (x,), [b, x]


@program
def grad_of():
    x = plain(1.0, 2.0)

    def f(x):
        x.requires_grad_()
        y = (x**3).sum()
        (g,) = wf.grad(y, [x], create_graph=True)
        return (g * g).sum()

    return f, (x,), [x]


@program
def enable_keep_grad_of_before():
    x = leaf(1.0, 2.0)
    (x * 5).sum().backward()

    def f(x):
        x.requires_grad_(False)
        x.requires_grad_()
        return (x * x).sum()

    return f, (x,), [x]


@program
def returned_view_made_a_leaf():
    def f(x):
        v = x[:1]
        v.requires_grad_()
        return v

    x = plain(1.0, 2.0)
    return f, (x,), [x]


@program
def new_leaf_with_gradient():
    def f(x):
        p = (x * 2).requires_grad_()
        (p * p).sum().backward()
        return p, p

    x = plain(1.0, 2.0)
    return f, (x,), [x]


@program
def enable_in_object():
    class Holder:
        pass

    holder = Holder()
    holder.x = plain(1.0, 2.0)

    def f(y):
        holder.x.requires_grad_()
        return (holder.x * y).sum()

    return f, (plain(3.0, 4.0),), [holder.x]


EAGERLY = {  # one warning, then the function itself
    "same_twice", "argument_is_closed_over", "closed_over_is_argument", "enable_and_write_recorded", "in_cond", "in_if",
    "in_loop", "returned_view_made_a_leaf",
}  # fmt: skip


def _results(out):
    return list(out) if isinstance(out, (tuple, list)) else [out]


def _state(tensors):
    return [
        (t.requires_grad, t.is_leaf, t.detach().tolist(), None if t.grad is None else t.grad.tolist()) for t in tensors
    ]


def _prepared(name, captured):
    fn, args, visible = PROGRAMS[name]()
    return (wf.function(fn) if captured else fn), args, visible


def _three_calls(name, captured):
    """What the caller sees in calls that follow each other, and after backward passes from the results."""
    run, args, visible = _prepared(name, captured)
    seen = []
    for _ in range(3):
        try:
            out = _results(run(*args))
            seen += [_state(out), _state(visible)]
            for o in out:
                if o.requires_grad and not o.is_leaf:
                    o.sum().backward(retain_graph=True)
            seen.append(_state([*visible, *out]))
        except (RuntimeError, TypeError) as error:
            seen.append(type(error).__name__)
    return seen


def _calls_from_the_same_state(name, captured):
    """What the caller sees when it restores `requires_grad` between calls, so that one program runs again."""
    run, args, visible = _prepared(name, captured)
    before = [(t.requires_grad, t.is_leaf) for t in visible]
    seen = []
    for _ in range(3):
        try:
            seen.append(_state([*_results(run(*args)), *visible]))
        except (RuntimeError, TypeError) as error:
            seen.append(type(error).__name__)
        for t, (requires_grad, is_leaf) in zip(visible, before, strict=True):
            if is_leaf:
                t.detach_().requires_grad_(requires_grad)
            elif t.is_leaf:
                return seen  # its history is gone for good
    return seen


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_caller_sees_the_same_as_eagerly(name):
    for calls in (_three_calls, _calls_from_the_same_state):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            captured = calls(name, True)
        assert captured == calls(name, False)
        assert any("runs eagerly" in str(w.message) for w in found) == (name in EAGERLY)


def test_second_derivatives_reach_a_leaf_that_the_function_made():
    def fn(x):
        x.requires_grad_()
        return (x**3).sum()

    x = wf.tensor([1.0, 2.0])
    (g,) = wf.grad(wf.function(fn)(x), [x], create_graph=True)
    g.sum().backward()
    assert x.grad.tolist() == [6.0, 12.0]

    def used_before(x):
        y = x * 2
        x.requires_grad_()
        return (x**3 * y).sum()

    x = wf.tensor([1.0, 2.0])
    with pytest.raises(RuntimeError, match="cannot be differentiated again from outside"):
        wf.grad(wf.function(used_before)(x), [x], create_graph=True)


def test_freezing_parameters_during_a_captured_step():
    """The usual step of a generator: the judge's parameters get no gradient, and are trainable again afterwards."""
    seen = []
    for captured in (False, True):
        wf.random.manual_seed(0)
        generator, judge = wf.nn.Linear(2, 2), wf.nn.Linear(2, 1)

        def step(x, generator=generator, judge=judge):
            judge.requires_grad_(False)
            loss = judge(generator(x)).mean()
            loss.backward()
            judge.requires_grad_(True)
            return loss.detach()

        run = wf.function(step) if captured else step
        for _ in range(2):
            run(wf.ones(3, 2))
        assert all(p.requires_grad and p.grad is None for p in judge.parameters())
        assert not captured or len(run.signatures) <= 2 and all(t.reason is None for t in run.traces)
        seen.append([p.grad.tolist() for p in generator.parameters()])
    for a, b in zip(*seen, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_a_leaf_that_is_a_view_is_not_written():
    """As in PyTorch: its gradient would be meaningless."""
    x = wf.zeros(3)[:2].requires_grad_()
    for write in (lambda: x.add_(1.0), lambda: x[:1].add_(1.0)):
        with pytest.raises(RuntimeError, match="leaf tensor that requires gradients is written in place"):
            write()
    with wf.no_grad():
        x.add_(1.0)
    assert x.detach().tolist() == [1.0, 1.0]


def test_detach_in_place_refuses_views():
    with pytest.raises(RuntimeError, match="detach_: this tensor is a view.*`x = x.detach"):
        (wf.ones(3, requires_grad=True) * 2)[:2].detach_()


def test_a_reshaped_copy_made_under_no_grad_can_be_written():
    w = wf.ones(6, requires_grad=True)
    with wf.no_grad():
        copied = wf.zeros(2, 3).T.reshape(-1)
    copied.add_(w)
    assert copied.requires_grad


def test_a_reshape_that_copies_a_closed_over_tensor_is_not_written_through():
    closed = wf.arange(6.0).reshape(2, 3).T

    def fn(x):
        flat = closed.reshape(-1)
        flat.add_(x)
        made = (closed * 2).reshape(-1)
        made.add_(x)
        return flat, made

    expected = [t.tolist() for t in fn(wf.tensor(1.0))]
    assert [t.tolist() for t in wf.function(fn)(wf.tensor(1.0))] == expected
    assert closed.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]


def test_a_write_through_a_transpose_keeps_the_layout_of_the_memory():
    def fn(c, w):
        c.T[0].mul_(w)
        flat = c.reshape(-1)
        flat.add_(1.0)
        return flat

    seen = []
    for run in (fn, wf.function(fn)):
        c = wf.arange(6.0).reshape(2, 3)
        flat = run(c, wf.tensor(2.0, requires_grad=True))
        seen.append((flat.detach().tolist(), c.detach().tolist()))
    assert seen[0] == seen[1]
