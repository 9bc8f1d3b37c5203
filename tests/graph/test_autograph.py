"""Python control flow on tensors inside captured functions."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft.compiler.program.steps import HostCall


def absolute(x):
    if x.sum() > 0:
        return x
    return -x


def steps_to_one(n):
    count = wf.tensor(0)
    while n > 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        count = count + 1
    return count


def both(x, flag):
    y = x * 2
    if x.mean() > 1 and flag:
        y = y + 100
        z = y * 2
    else:
        z = x
    return y, z


def one_line(x):
    return x if not x.sum() > 0 else x * 10


def guarded(x):
    assert x.min() > 0, "x must be positive"
    return wf.log(x)


@pytest.mark.parametrize("values", [[1.0, 2.0], [-3.0, 1.0]])
def test_if_on_a_tensor(values):
    x = wf.tensor(values)
    np.testing.assert_allclose(wf.function(absolute)(x).numpy(), absolute(x).numpy())
    np.testing.assert_allclose(wf.function(one_line)(x).numpy(), one_line(x).numpy())


@pytest.mark.parametrize("flag", [True, False])
def test_if_that_assigns_names(flag):
    captured = wf.function(both)
    for values in ([1.0, 5.0], [0.0, 0.5]):
        for a, b in zip(captured(wf.tensor(values), flag), both(wf.tensor(values), flag), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy())


def test_while_on_a_tensor_runs_natively_for_any_count():
    captured = wf.function(steps_to_one)
    assert [captured(wf.tensor(n)).item() for n in (1, 6, 27)] == [0, 8, 111]
    assert len(captured.signatures) == 1


def test_gradient_flows_through_a_rewritten_if():
    x = wf.tensor([-3.0, 1.0])
    g = wf.function(wf.grad_fn(lambda v: wf.cond(v.sum() > 0, lambda: v, lambda: -v).sum()))(x)
    assert g.tolist() == [-1.0, -1.0]


def test_assert_on_a_tensor_fails_when_the_program_runs():
    captured = wf.function(guarded)
    np.testing.assert_allclose(captured(wf.tensor([1.0, 2.0])).numpy(), np.log([1.0, 2.0]), rtol=1e-6)
    with pytest.raises(AssertionError, match="x must be positive"):
        captured(wf.tensor([1.0, -2.0]))


def test_failed_check_leaves_variables_as_they_were():
    total = wf.zeros(2)

    def fn(x):
        total.add_(x)
        wf.debug.check(x > 0, "negative")
        return total * 1

    captured = wf.function(fn)
    captured(wf.ones(2))
    with pytest.raises(AssertionError, match="negative"):
        captured(-wf.ones(2))
    assert total.tolist() == [1.0, 1.0]


def test_debug_print_shows_values_at_every_run(capsys):
    captured = wf.function(lambda x: wf.debug.print("x is {}", x) + 1)
    captured(wf.ones(2))
    captured(wf.zeros(2))
    assert capsys.readouterr().out == "x is tensor([1., 1.])\nx is tensor([0., 0.])\n"


def test_error_inside_a_branch_names_the_users_line():
    def fn(x):
        if x.sum() > 0:
            y = x @ wf.ones(9, 1)
        else:
            y = x
        return y

    with pytest.raises(ValueError, match="inner dimensions differ") as info:
        wf.function(fn)(wf.ones(2))
    assert any("test_autograph.py" in str(entry.path) for entry in info.traceback)


# Functions that are called ------------------------------------------------------------------------------------------------


def host_free(f):
    return all(not isinstance(step, HostCall) for step in f.traces[-1].compiled.program.steps)


SCALE = 10.0


def clipped(x, limit=2.0):
    if x.max() > limit:
        x = x * (limit / x.max())
    return x


def helper_of_helper(x):
    return clipped(x, limit=1.0) * SCALE


@pytest.mark.parametrize("values", [[0.5, 0.25], [4.0, 1.0]])
def test_if_in_functions_that_are_called(values):
    f = wf.function(lambda x: helper_of_helper(x) + 1.0)
    x = wf.tensor(values)
    code = clipped.__code__
    np.testing.assert_allclose(f(x).numpy(), (helper_of_helper(x) + 1.0).numpy())
    assert clipped.__code__ is code, "the user's function is as it was"
    assert "cond" in f.explain() and host_free(f)


def test_rewritten_functions_see_their_globals_and_closures_as_they_are(monkeypatch):
    offset = 1.0

    def inner(x):
        if x.sum() > 0:
            return x + offset
        return x - offset

    f = wf.function(lambda x: inner(helper_of_helper(x)))
    x = wf.tensor([0.5])
    np.testing.assert_allclose(f(x).numpy(), [6.0])
    monkeypatch.setitem(globals(), "SCALE", 20.0)
    offset = 3.0
    f.clear()
    np.testing.assert_allclose(f(x).numpy(), [13.0])


class Gate(wf.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = wf.nn.Linear(3, 3)
        self.__secret = 2.0

    def forward(self, x):
        y = self.linear(x)
        if y.mean() > 0:
            y = y * self.__secret
        elif self.training:
            y = -y
        return super().__getattribute__("finish")(y)

    def finish(self, y):
        return y + 1.0


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_if_in_the_forward_of_a_module_inside_another(sign):
    wf.manual_seed(0)
    model = wf.nn.Sequential(Gate(), wf.nn.ReLU(), Gate())
    x = wf.ones(2, 3) * sign
    f = wf.function(lambda x: model(x))
    np.testing.assert_allclose(f(x).detach().numpy(), model(x).detach().numpy(), rtol=1e-5)
    (g,) = wf.grad(f(x.requires_grad_(True)).sum(), [x])
    (expected,) = wf.grad(model(x).sum(), [x])
    np.testing.assert_allclose(g.numpy(), expected.numpy(), rtol=1e-5)


def test_a_function_made_inside_is_rewritten_with_the_one_that_makes_it():
    def make(k):
        def inner(x):
            if x.sum() > k:
                return x * 2.0
            return x

        return inner

    f = wf.function(lambda x: make(1.0)(x) + make(5.0)(x))
    assert f(wf.tensor([2.0])).tolist() == [6.0]


def test_while_in_a_called_function():
    f = wf.function(lambda n: steps_to_one(n) * 1)
    assert [f(wf.tensor(n)).item() for n in (1, 6, 27)] == [0, 8, 111]


def test_what_cannot_be_rewritten_in_a_called_function_says_what_to_write():
    def first_positive(x):
        for i in range(3):
            if x[i] > 0:
                return x[i]
        return x[0]

    with pytest.raises(wf.CaptureError if hasattr(wf, "CaptureError") else RuntimeError, match=r"wf\.cond"):
        wf.function(lambda x: first_positive(x), fullgraph=True)(wf.ones(3))


def test_recursion_that_a_tensor_would_end_is_explained():
    def halve(x):
        if x > 1:
            return halve(x / 2)
        return x

    with pytest.raises(
        wf.CaptureError, match="a recursion that ends when a tensor says so never ends; write `wf.while_loop`"
    ):
        wf.function(lambda x: halve(x))(wf.tensor(8.0))


def test_importing_inside_a_branch():
    def rooted(x):
        if x.sum() > 0:
            import math

            y = x * math.sqrt(4.0)
        else:
            y = x
        return y

    assert wf.function(lambda x: rooted(x))(wf.ones(2)).tolist() == [2.0, 2.0]


def test_names_of_one_branch_or_of_a_body_are_its_own():
    def branches(x):
        if x.sum() > 0:
            twice = x * 2
            y = twice + 1
        else:
            y = x
        return y

    def loop(x):
        while x.sum() < 10:
            twice = x * 2
            x = x + twice
        return x

    for fn in (branches, loop):
        f = wf.function(fn)
        for x in (wf.ones(3), wf.ones(3) * 7, -wf.ones(3) if fn is branches else wf.ones(3)):
            np.testing.assert_allclose(f(x).numpy(), fn(x).numpy())


def test_a_name_of_a_body_has_no_value_after_it():
    def returned(x):
        while x.sum() < 10:
            last = x
            x = x * 2
        return last

    def used(x):
        if x.sum() < 10:
            last = x
        return last + x

    def asked(x):
        if x.sum() < 10:
            last = x
        return last.sum()

    for fn in (returned, used, asked):
        with pytest.raises(UnboundLocalError, match="'last' has a value only inside a branch or loop"):
            wf.function(fn)(wf.ones(3))


@pytest.mark.filterwarnings("ignore:.*is taken when the function is captured")
def test_the_condition_of_a_known_loop_is_asked_once_per_iteration():
    asked = []

    def going(i):
        asked.append(i)
        return i < 3

    def fn(x):
        i = 0
        while going(i):
            i = i + 1
        if x.sum() > 0:
            x = x + i
        return x

    fn(wf.ones(2))
    eager = list(asked)
    asked.clear()
    assert wf.function(fn)(wf.ones(2)).tolist() == [4, 4]
    assert asked[-len(eager) :] == eager  # the last trace; the first stopped at the `if`
