"""Cumulative sums and other scans inside a program."""

import numpy as np
import pytest

import weft as wf
from weft.compiler.program.steps import HostCall


def host_calls(f):
    return [step.label for step in f.traces[-1].compiled.program.steps if isinstance(step, HostCall)]


OPS = [wf.cumulative_sum, wf.cumulative_prod, wf.logcumsumexp, lambda x, axis: wf.cummax(x, axis).values,
       lambda x, axis: wf.cummin(x, axis).indices]  # fmt: skip


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(("shape", "axis"), [((1,), 0), ((37,), -1), ((3, 4, 5), 1), ((2, 700), 0), ((600, 3), 0)])
def test_scans_give_the_eager_numbers(op, shape, axis):
    x = wf.tensor(np.random.default_rng(0).uniform(0.9, 1.1, shape).astype("float32"))
    f = wf.function(lambda t: op(t, axis=axis))
    np.testing.assert_allclose(f(x).numpy(), op(x, axis=axis).numpy(), rtol=3e-6)
    assert host_calls(f) == []


@pytest.mark.parametrize("op", [wf.cummax, wf.cummin])
def test_running_extremes_keep_the_newest_of_equal_elements_and_nan(op):
    x = wf.tensor([1.0, 3.0, 3.0, 2.0, np.nan, 9.0, np.nan, -np.inf])
    for got, expected in zip(wf.function(lambda t: op(t))(x), op(x), strict=True):
        np.testing.assert_array_equal(got.numpy(), expected.numpy())


@pytest.mark.parametrize("dtype", ["int32", "int64", "float64", "float16"])
def test_scans_of_other_dtypes(dtype):
    x = wf.tensor(np.arange(1, 9).astype(dtype).reshape(2, 4))
    f = wf.function(lambda t: wf.cumulative_sum(t, axis=1))
    got = f(x)
    assert got.dtype == wf.cumulative_sum(x, axis=1).dtype
    np.testing.assert_array_equal(got.numpy(), np.cumsum(x.numpy(), 1))
    assert host_calls(f) == []


@pytest.mark.parametrize("reverse", [False, True])
def test_linear_recurrence_and_its_gradient(reverse):
    rng = np.random.default_rng(1)
    a, b = (wf.tensor(rng.uniform(-1, 1, (5, 6)), requires_grad=True) for _ in range(2))

    def gradients(a, b):
        return wf.grad(wf.linear_recurrence(a, b, 0, reverse).square().sum(), [a, b])

    f = wf.function(gradients)
    for got, expected in zip(f(a, b), gradients(a, b), strict=True):
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-9)
    assert host_calls(f) == []


def test_strided_operands():
    x = wf.tensor(np.random.default_rng(2).normal(size=(6, 8)).astype("float32"))
    f = wf.function(lambda t: wf.cumulative_sum(t.T[::-1, ::2], axis=0))
    np.testing.assert_allclose(f(x).numpy(), np.cumsum(x.numpy().T[::-1, ::2], 0), rtol=1e-6)
