"""Sorting inside a program: the order of the eager ops, without a host call."""

import numpy as np
import pytest

import weft as wf
from weft.compiler.program.steps import HostCall


def host_calls(f):
    return [step.label for step in f.traces[-1].compiled.program.steps if isinstance(step, HostCall)]


def numbers(shape, dtype, rng):
    if dtype.startswith("float"):
        x = rng.normal(0, 50, shape).astype(dtype)
        for every, value in ((7, np.nan), (5, 0.0), (11, -0.0), (13, np.inf), (17, -np.inf)):
            x.flat[::every] = value
        return x
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    info = np.iinfo(dtype)
    x = rng.integers(max(info.min, -40), min(info.max, 40), shape).astype(dtype)
    x.flat[0], x.flat[-1] = info.max, info.min
    return x


SHAPES = [((1,), 0), ((96,), 0), ((97,), -1), ((3, 130), 0), ((4, 5, 130), 1), ((2, 9000), 1)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "int8", "uint8", "bool", "float16"])
@pytest.mark.parametrize("descending", [False, True])
def test_sort_and_argsort_give_the_eager_order(dtype, descending):
    rng = np.random.default_rng(0)
    for shape, axis in SHAPES if dtype in ("float32", "int64") else SHAPES[2:4]:
        x = wf.tensor(numbers(shape, dtype, rng))

        def both(t, axis=axis):
            options = {"axis": axis, "descending": descending}
            return wf.argsort(t, **options), wf.sort(t, **options)

        f = wf.function(both)
        order, ordered = f(x)
        eager_order, eager_ordered = both(x)
        np.testing.assert_array_equal(order.numpy(), eager_order.numpy())
        np.testing.assert_array_equal(ordered.numpy(), eager_ordered.numpy())
        assert host_calls(f) == []


def test_one_long_row_is_sorted_in_parts():
    rng = np.random.default_rng(1)
    x = wf.tensor(numbers((2, 70_000), "float32", rng))
    f = wf.function(lambda t: wf.argsort(t, axis=1))
    np.testing.assert_array_equal(f(x).numpy(), wf.argsort(x, axis=1).numpy())
    assert [s.label for s in f.traces[0].compiled.program.steps] == ["radix sort", "radix sort"]


@pytest.mark.parametrize(("shape", "axis", "k"), [((5,), 0, 5), ((3, 300), 1, 4), ((300, 3), 0, 40), ((7,), 0, 1)])
@pytest.mark.parametrize("dtype", ["float32", "int64", "int32"])
@pytest.mark.parametrize("largest", [True, False])
def test_topk_picks_the_first_of_the_stable_order(shape, axis, k, dtype, largest):
    x = wf.tensor(numbers(shape, dtype, np.random.default_rng(2)))
    f = wf.function(lambda t: wf.topk(t, k, axis, largest=largest))
    values, places = f(x)
    order = wf.argsort(x, axis=axis, descending=largest).numpy().take(range(k), axis)
    np.testing.assert_array_equal(places.numpy(), order)
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x.numpy(), order, axis))
    assert host_calls(f) == []


def test_strided_operands_are_sorted_as_they_lie():
    x = wf.tensor(np.random.default_rng(3).normal(size=(6, 8, 10)).astype("float32"))
    f = wf.function(lambda t: wf.sort(wf.permute_dims(t, (2, 0, 1))[::-1, ::2], axis=0))
    np.testing.assert_array_equal(f(x).numpy(), np.sort(x.numpy().transpose(2, 0, 1)[::-1, ::2], 0))
    assert host_calls(f) == []


def test_gradients_of_sort_and_topk_stay_native():
    x = wf.tensor(np.random.default_rng(4).permutation(40).reshape(4, 10).astype("float32"), requires_grad=True)
    weight = wf.arange(10, dtype=wf.float32)

    def gradient(t):
        return wf.grad((wf.sort(t) * weight).sum() + (wf.topk(t, 3).values * 2.0).sum(), [t])[0]

    f = wf.function(gradient)
    np.testing.assert_allclose(f(x).numpy(), gradient(x).numpy())
    assert host_calls(f) == []
