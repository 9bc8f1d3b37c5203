"""Gradient hooks mean the same in captured functions as eagerly: on tensors made inside, on those of the caller, in bodies."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import weft as wf
from tests.each import each


def _values(made):
    return [None if m is None else np.asarray(m.detach().numpy() if isinstance(m, wf.Tensor) else m) for m in made]


def _compare(program):
    """`program(decorator)` returns tensors and numbers, the same for both decorators."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*runs eagerly")
        captured = _values(program(wf.function))
    for a, b in zip(_values(program(lambda fn: fn)), captured, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(b, a)


def _weight():
    return wf.tensor([1.0, 2.0], requires_grad=True)


def _tenfold(t):
    return t.register_hook(lambda g: g * 10)


def _twice(f, *args):
    """Gradients of two calls, one after the other."""
    w = _weight()
    found = []
    for _ in range(2):
        f(w, *args).sum().backward()
        found.append(w.grad.clone())
    return found


# In bodies ----------------------------------------------------------------------------------------------------------------


def while_value(f):
    def fn(w):
        def body(i, s):
            t = s * w
            _tenfold(t)
            return i + 1, t

        return wf.while_loop(lambda i, s: i < 3 + 0 * w.sum(), body, (wf.tensor(0), w))[1]

    return _twice(f(fn))


def while_state(f):
    def fn(w):
        def body(i, s):
            _tenfold(s)
            return i + 1, s * w

        return wf.while_loop(lambda i, s: i < 3 + 0 * w.sum(), body, (wf.tensor(0), w * 1))[1]

    return _twice(f(fn))


def while_statement(f):
    def fn(w):
        s, i = w, wf.tensor(0)
        while i < 3 + 0 * w.sum():
            s = s * w
            _tenfold(s)
            i = i + 1
        return s

    return _twice(f(fn))


def scan_value(f):
    def fn(w):
        def body(c, k):
            t = c * w
            _tenfold(t)
            return t, t.sum()

        last, sums = wf.scan(body, w, wf.arange(3))
        return last + sums.sum()

    return _twice(f(fn))


def scan_carry(f):
    def fn(w):
        def body(c, k):
            _tenfold(c)
            return c * w, c.sum()

        last, sums = wf.scan(body, w * 1, wf.arange(3))
        return last + sums.sum()

    return _twice(f(fn))


def branch_value(f):
    def fn(w):
        def yes():
            t = w * w
            _tenfold(t)
            return t * 2

        return wf.cond(w.sum() > 0, yes, lambda: w)

    return _twice(f(fn))


def outer_in_branch(f):
    def fn(w):
        t = w * 3

        def yes():
            _tenfold(t)
            return t * 2

        return wf.cond(w.sum() > 0, yes, lambda: t)

    return _twice(f(fn))


def outer_in_other_branch(f):
    def fn(w):
        t = w * 3

        def no():
            _tenfold(t)
            return t * 2

        return wf.cond(w.sum() > 0, lambda: t, no)

    return _twice(f(fn))


def argument_in_branch(f):
    def fn(w):
        def yes():
            _tenfold(w)
            return w * 2

        return wf.cond(w.sum() > 0, yes, lambda: w)

    return _twice(f(fn))


# On tensors of the caller ---------------------------------------------------------------------------------------------------


def argument(f):
    def fn(w):
        _tenfold(w)
        return w * 2

    return _twice(f(fn))


def computed_argument(f):
    w = _weight()
    v = w * 2

    @f
    def fn(v):
        _tenfold(v)
        return (v * v).sum()

    (fn(v) + v.sum()).backward()
    return [w.grad]


def closed_over(f):
    w = _weight()

    @f
    def fn():
        _tenfold(w)
        return (w * w).sum()

    found = []
    for _ in range(2):
        fn().backward()
        found.append(w.grad.clone())
    return found


def registered_before(f):
    """The pullback ends where the caller's tape begins: the hook runs once."""
    w = _weight()
    v = w * 3
    _tenfold(w)
    _tenfold(v)
    f(lambda: (w * w * v).sum())().backward()
    return [w.grad]


def registered_before_and_differentiated_twice(f):
    w = _weight()
    _tenfold(w)
    (g,) = wf.grad(f(lambda: (w * w * w).sum())(), [w], create_graph=True)
    return [g, *wf.grad(g.sum(), [w])]


def changed_between_calls(f):
    w = _weight()

    @f
    def fn(x):
        (w * x).sum().backward()

    found, handles = [], []
    for step in range(5):
        if step == 1:
            handles.append(_tenfold(w))
        if step == 2:
            handles.append(w.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(3)))
        if step >= 3:
            handles.pop().remove()
        fn(wf.ones(2))
        found.append(w.grad.clone())
        w.grad = None
    return found


def of_an_argument_differentiated_inside(f):
    @f
    def fn(w, x):
        (w * x).sum().backward()

    found = []
    for hook in (None, "register_hook", "register_post_accumulate_grad_hook", None):
        w = _weight()
        if hook == "register_hook":
            _tenfold(w)
        elif hook is not None:
            w.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(3))
        fn(w, wf.ones(2))
        found.append(w.grad)
    return found


def retained_result(f):
    w = _weight()

    @f
    def fn():
        t = w * w
        t.retain_grad()
        return t

    t = fn()
    (t * 3).sum().backward()
    return [w.grad, t.grad]


def retained_argument(f):
    w = _weight()
    v = w * 1

    @f
    def fn(v):
        v.retain_grad()
        return v * v

    fn(v).sum().backward()
    return [w.grad, v.grad]


def returned_leaf(f):
    @f
    def fn(x):
        leaf = (x * 2).detach().requires_grad_()
        _tenfold(leaf)
        return leaf

    leaf = fn(wf.ones(2))
    (leaf * 3).sum().backward()
    return [leaf.grad]


def test_hooks_do_as_eagerly():
    cases = [
        while_value, while_state, while_statement, scan_value, scan_carry, branch_value, outer_in_branch,
        outer_in_other_branch, argument_in_branch, argument, computed_argument, closed_over, registered_before,
        registered_before_and_differentiated_twice, changed_between_calls, of_an_argument_differentiated_inside,
        retained_result, retained_argument, returned_leaf,
    ]  # fmt: skip
    each(_compare, {case.__name__: (case,) for case in cases})


def test_what_cannot_run_as_one_program_names_its_line():
    def fn(w):
        def body(i, s):
            _tenfold(s)
            return i + 1, s * w

        return wf.while_loop(lambda i, s: i < 3, body, (wf.tensor(0), w))[1]

    with pytest.warns(UserWarning, match=r"calls `register_hook` on its state.* at .*test_hooks.py:\d+ in _tenfold"):
        wf.function(fn)(_weight())
    graph = wf.Graph()
    with graph.as_default(), pytest.raises(wf.CaptureError, match="register_hook: .*declared graph"):
        fn(wf.placeholder(wf.float32, (2,), name="w"))


def test_hooks_in_bodies_are_not_differentiated_again_from_outside():
    w = wf.tensor(2.0, requires_grad=True)

    @wf.function
    def fn(w):
        def yes():
            t = w * w
            _tenfold(t)
            return t * w

        return wf.cond(w > 0, yes, lambda: w)

    with pytest.raises(RuntimeError, match="with hooks cannot be differentiated again"):
        wf.grad(fn(w), [w], create_graph=True)
