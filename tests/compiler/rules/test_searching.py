"""argmax, argmin and searchsorted inside a program."""

import numpy as np
import pytest

import weft as wf
from weft.compiler.program.steps import HostCall


def host_calls(f):
    return [step.label for step in f.traces[-1].compiled.program.steps if isinstance(step, HostCall)]


@pytest.mark.parametrize("op", [wf.argmax, wf.argmin])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_first_extreme_along_an_axis(op, dtype, axis):
    x = wf.tensor(np.random.default_rng(0).integers(0, 3, (5, 40, 6)).astype(dtype))
    f = wf.function(lambda t: (op(t, axis=axis), op(t, axis=axis, keepdims=True)))
    plain, kept = f(x)
    np.testing.assert_array_equal(plain.numpy(), op(x, axis=axis).numpy())
    np.testing.assert_array_equal(kept.numpy(), op(x, axis=axis, keepdims=True).numpy())
    assert host_calls(f) == []


@pytest.mark.parametrize("size", [1, 70_001])
def test_the_first_nan_is_the_extreme(size):
    x = np.random.default_rng(1).normal(size=size).astype("float32")
    f = wf.function(lambda t: wf.argmax(t))
    assert f(wf.tensor(x)).item() == x.argmax()
    x[size // 2], x[size - 1] = np.nan, np.nan
    assert f(wf.tensor(x)).item() == size // 2
    assert host_calls(f) == []


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("n", [1, 2, 7, 64, 1000])
def test_searchsorted(side, n):
    rng = np.random.default_rng(2)
    among = np.sort(rng.integers(0, n, n)).astype("float32")
    among[-1] = np.nan
    wanted = np.append(rng.integers(-1, n + 1, 50).astype("float32"), [np.nan, np.inf, -np.inf])
    f = wf.function(lambda a, x: wf.searchsorted(a, x, side=side))
    np.testing.assert_array_equal(f(wf.tensor(among), wf.tensor(wanted)).numpy(), np.searchsorted(among, wanted, side))
    assert host_calls(f) == []


def test_searchsorted_with_a_sorter_checks_it():
    values = wf.tensor([3, 1, 2])
    f = wf.function(lambda x, order: wf.searchsorted(values, x, sorter=order))
    assert f(wf.tensor([2, 0, 9]), wf.tensor([1, 2, 0])).tolist() == [1, 0, 3]
    with pytest.raises(IndexError, match="size 3"):
        f(wf.tensor([2, 0, 9]), wf.tensor([1, 2, 3]))
