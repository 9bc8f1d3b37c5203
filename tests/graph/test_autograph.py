"""Python control flow on tensors inside captured functions."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf


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
