"""Pooling that oneDNN has no kernel for runs as loop nests."""

import numpy as np
import pytest

import weft as wf
from weft.compiler.program.steps import HostCall
from weft.nn import functional as F

RNG = np.random.default_rng(0)


def host_calls(f):
    return [step.label for step in f.traces[-1].compiled.program.steps if isinstance(step, HostCall)]


POOLS = {
    "dilated": lambda x: F.max_pool2d(x, 2, stride=1, dilation=2),
    "own divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=3),
    "padded": lambda x: F.max_pool2d(x, 3, stride=2, padding=1, dilation=2),
}


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pools_and_their_gradients(name, dtype):
    pool = POOLS[name]
    x = wf.tensor(RNG.permutation(2 * 3 * 9 * 8).reshape(2, 3, 9, 8).astype(dtype), requires_grad=True)

    def both(x):
        y = pool(x)
        return y, wf.grad((y * y).sum(), [x])[0]

    f = wf.function(both)
    for got, expected in zip(f(x), both(x), strict=True):
        np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), rtol=1e-5)
    if dtype == "float64" or name != "own divisor":
        assert host_calls(f) == []


def test_integers_and_nan_are_pooled():
    x = wf.tensor(RNG.integers(-50, 50, (1, 2, 6, 6)))
    f = wf.function(lambda x: F.max_pool2d(x, 2))
    np.testing.assert_array_equal(f(x).numpy(), F.max_pool2d(x, 2).numpy())
    assert host_calls(f) == []
    y = wf.tensor(RNG.normal(size=(1, 1, 5, 5)))
    y[0, 0, 2, 2] = np.nan
    g = wf.function(lambda x: F.max_pool2d(x, 2, 1, return_indices=True))
    for got, expected in zip(g(y), F.max_pool2d(y, 2, 1, return_indices=True), strict=True):
        np.testing.assert_array_equal(got.numpy(), expected.numpy())
    assert host_calls(g) == []
