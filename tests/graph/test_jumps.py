"""`break` and `continue` in loops on tensors: the captured function does what the eager one does."""

import ast
import textwrap

import numpy as np
import pytest

import weft as wf
from weft.graph.capture.break_continue import Jumps


def rewritten(source: str) -> str:
    tree = Jumps(lambda flag: ast.Call(ast.Name("is_set", ast.Load()), [ast.Name(flag, ast.Load())], []))
    return ast.unparse(tree.visit(ast.parse(textwrap.dedent(source))))


def test_what_follows_a_break_happens_only_without_it():
    made = rewritten(
        """
        while test:
            a()
            if hit:
                break
            b()
        """
    )
    expected = """
        _weft_break1 = False
        while not _weft_break1 and test:
            a()
            if hit:
                _weft_break1 = True
            if not _weft_break1:
                b()
        """
    assert made == ast.unparse(ast.parse(textwrap.dedent(expected)))


@pytest.mark.parametrize(
    "source",
    [
        "while test:\n    if hit:\n        return 1\n    break",
        "for x in xs:\n    if x:\n        break\nelse:\n    a()",
        "while test:\n    with lock:\n        break",
        "while test:\n    try:\n        break\n    finally:\n        a()",
        "while test:\n    for x in xs:\n        a()",
    ],
)
def test_loops_that_cannot_or_need_not_be_rewritten_stay(source):
    assert rewritten(source) == ast.unparse(ast.parse(source))


def until(x, n):
    i, s = wf.asarray(0), x
    while i < n:
        s = s + x
        i = i + 1
        if s.sum() > 20:
            break
    return s


def for_ever(x):
    n = 0
    while True:
        x = x * 2
        n = n + 1
        if x.sum() > 50:
            break
    return x + n


def odd_ones(x):
    i, s = wf.asarray(0), x * 0
    while i < 10:
        i = i + 1
        if i % 2 == 0:
            continue
        s = s + i * x
    return s


def unrolled(x):
    s = x * 0
    for i in range(10):
        if s.sum() > 12:
            break
        y = i * x
        if y.sum() == 6:
            continue
        s = s + y
    return s


def nested(x):
    t, i = x * 0, wf.asarray(0)
    while i < 5:
        i, j = i + 1, wf.asarray(0)
        while True:
            j = j + 1
            if j >= i:
                break
            t = t + x
        if t.sum() > 12:
            break
    return t


def both_at_once(x):
    s, i = x * 0, 0
    while i < 20:
        i = i + 1
        if x.sum() * i < 6:
            continue
        s = s + x
        if s.sum() > 9:
            break
        s = s * 1.5
    return s


def bounds_of_an_index(x):
    """Neither `and` nor the condition of a loop that was left may look at an element that is not there."""
    i, s = wf.asarray(0), x[0] * 0
    while i < 5 and x[i] < 100:
        s = s + x[i]
        i = i + 1
    while x[i - 5] >= 0:
        i = i + 1
        if i > 9:
            break
    return s + i


@pytest.mark.parametrize("scale", [1.0, 0.1, 30.0])
@pytest.mark.parametrize("fn", [for_ever, odd_ones, unrolled, nested, both_at_once])
def test_captured_loops_with_jumps_are_the_eager_ones(fn, scale):
    x = wf.ones(3) * scale
    np.testing.assert_allclose(wf.function(fn)(x).numpy(), fn(x).numpy(), rtol=1e-6)


def test_one_capture_serves_loops_that_end_and_loops_that_are_left():
    f = wf.function(until)
    for n in (0, 3, 50):
        np.testing.assert_allclose(f(wf.ones(3), wf.asarray(n)).numpy(), until(wf.ones(3), wf.asarray(n)).numpy())
    assert len(f.signatures) == 1


def test_indices_are_looked_up_only_where_python_would():
    x = wf.arange(5, dtype=wf.float32)
    np.testing.assert_allclose(wf.function(bounds_of_an_index)(x).numpy(), bounds_of_an_index(x).numpy())


def test_loops_that_are_left_have_gradients():
    w = wf.tensor(1.5, requires_grad=True)

    def f(x):
        y = x
        while True:
            y = y * w
            if y.sum() > 20:
                break
        return wf.grad(y.sum(), w)[0]

    np.testing.assert_allclose(wf.function(f)(wf.ones(3)).numpy(), f(wf.ones(3)).numpy(), rtol=1e-6)
