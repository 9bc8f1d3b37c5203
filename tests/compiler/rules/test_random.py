"""Random draws inside a program: the eager numbers, drawn natively."""

import numpy as np
import pytest

import weft as wf
from weft.compiler.program.steps import HostCall
from weft.nn import functional as F
from weft.ops.array import random_ops as r


def host_calls(f):
    return [step.label for step in f.traces[-1].compiled.program.steps if isinstance(step, HostCall)]


STATE = wf.tensor(np.array([7, 3]))
DRAWS = [
    lambda s: r.random_uniform(s, (33, 5), wf.float32),
    lambda s: r.random_uniform(s, (7,), wf.float64),
    lambda s: r.random_bits(s, (9,), wf.uint64),
    lambda s: r.random_integers(s, -3, 2**40, (5, 6), wf.int64),
    lambda s: r.random_permutation(s, 300),
]


@pytest.mark.parametrize("draw", DRAWS)
def test_draws_have_the_eager_bits(draw):
    f = wf.function(lambda s: draw(s))
    np.testing.assert_array_equal(f(STATE).numpy(), draw(STATE).numpy())
    assert host_calls(f) == []


def test_normal_numbers():
    f = wf.function(lambda s: r.random_normal(s, (1000,), wf.float32))
    np.testing.assert_allclose(f(STATE).numpy(), r.random_normal(STATE, (1000,), wf.float32).numpy(), atol=1e-6)
    assert host_calls(f) == []


@pytest.mark.parametrize("p", [0.3, 1.0])
def test_dropout_draws_one_mask_for_value_and_gradient(p):
    x = wf.tensor(np.ones((8, 50), "float32").T, requires_grad=True)

    @wf.function
    def step(t, s):
        y = r.random_dropout(t, s, p)
        return y, wf.grad(y.sum(), [t])[0]

    y, g = step(x, STATE)
    np.testing.assert_array_equal(y.detach().numpy(), r.random_dropout(x, STATE, p).detach().numpy())
    np.testing.assert_array_equal(g.numpy(), y.detach().numpy())
    assert host_calls(step) == []


def test_a_captured_step_draws_what_eager_code_draws():
    def noisy(x):
        return F.dropout(x + wf.randn(4, 6), 0.5)

    x = wf.ones(4, 6)
    wf.manual_seed(5)
    expected = [noisy(x).numpy() for _ in range(3)]
    wf.manual_seed(5)
    f = wf.function(noisy)
    for e in expected:
        np.testing.assert_allclose(f(x).numpy(), e, atol=1e-6)
    assert host_calls(f) == []
