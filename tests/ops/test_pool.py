"""Pooling beyond the op table: with and without oneDNN, NaN and infinities, layout, second order, batching."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft.backends.onednn import kernels, library
from weft.ops.nn.pool.functions import (
    adaptive_avg_pool2d,
    adaptive_max_pool2d,
    avg_pool2d,
    avg_pool3d,
    lp_pool2d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    max_unpool2d,
)
from weft.ops.nn.pool.primitives import avg_pool, avg_pool_backward, max_pool, max_pool_backward, max_pool_select
from weft.ops.nn.window import Window


@pytest.fixture(params=["onednn", "plain"])
def backend(request):
    """Runs a test with oneDNN's kernels and without them."""
    if request.param == "plain":
        with kernels.disabled():
            yield "plain"
        return
    if not library.available():
        pytest.skip("oneDNN is not installed")
    kernels.register()
    yield "onednn"


def is_channels_last(a):
    return a.transpose((0, *range(2, a.ndim), 1)).flags.c_contiguous


# (shape, kernel, stride, padding, dilation, ceil_mode), large enough for oneDNN
MAX_CASES = [
    ((4, 8, 2000), 3, 2, 1, 1, False),
    ((4, 16, 32, 33), 3, 2, 1, 1, False),
    ((4, 16, 32, 33), 2, 2, 0, 1, True),
    ((2, 16, 40, 40), 3, 1, 1, 2, False),
    ((2, 16, 33, 33), 3, 2, 1, 1, True),
    ((2, 16, 40, 40), 16, 5, 8, 1, False),
    ((2, 16, 40, 40), 20, 5, 8, 1, False),
    ((2, 8, 16, 17, 18), 2, 2, 0, 1, False),
]


@pytest.mark.parametrize("case", MAX_CASES, ids=str)
def test_max_pool_and_its_gradient_equal_the_plain_kernel(case):
    if not library.available():
        pytest.skip("oneDNN is not installed")
    kernels.register()
    shape, kernel, stride, padding, dilation, ceil_mode = case
    rng = np.random.default_rng(0)
    data = rng.integers(-50, 50, shape).astype(np.float32)  # many ties: the first of them wins in both
    pool = {3: max_pool1d, 4: max_pool2d, 5: max_pool3d}[len(shape)]
    results = []
    for off in (False, True):
        x = wf.asarray(data.copy()).requires_grad_()
        if off:
            with kernels.disabled():
                y, indices = pool(x, kernel, stride, padding, dilation, ceil_mode, return_indices=True)
                g = wf.asarray(np.random.default_rng(1).standard_normal(y.shape).astype(np.float32))
                y.backward(g)
        else:
            y, indices = pool(x, kernel, stride, padding, dilation, ceil_mode, return_indices=True)
            g = wf.asarray(np.random.default_rng(1).standard_normal(y.shape).astype(np.float32))
            y.backward(g)
        assert is_channels_last(y.detach().numpy()) and is_channels_last(x.grad.numpy())
        flat = data.reshape(*shape[:2], -1)
        chosen = np.take_along_axis(flat, indices.numpy().reshape(*shape[:2], -1), -1)
        np.testing.assert_array_equal(chosen.reshape(y.shape), y.detach().numpy())
        results.append((y.detach().numpy(), indices.numpy(), x.grad.numpy()))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinities_come_through_max_pooling(backend, value):
    data = np.random.default_rng(0).standard_normal((2, 4, 64, 66)).astype(np.float32)
    data[1, 2, 5, 7] = value
    data[0, 1] = -np.inf  # windows of nothing but -inf, also beside the padding
    x = wf.asarray(data).requires_grad_()
    y, indices = max_pool2d(x, 3, 2, 1, return_indices=True)
    out = y.detach().numpy()
    expected = np.full((2, 4, 32, 33), -np.inf, np.float32)
    padded = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    for i in range(3):
        for j in range(3):
            expected = np.maximum(expected, padded[:, :, i : i + 64 : 2, j : j + 66 : 2])
    np.testing.assert_array_equal(out, expected)
    if np.isnan(value):
        assert np.isnan(out[1, 2]).sum() > 0
    assert indices.numpy().min() >= 0 and indices.numpy().max() < 64 * 66
    y.backward(wf.ones_like(y))
    assert x.grad.numpy().sum() == out.size  # every window gives its gradient to an element of the image


@pytest.mark.parametrize(
    ("shape", "kernel", "stride", "padding", "ceil_mode", "include"),
    [
        ((4, 16, 32, 33), 3, 2, 1, False, True),
        ((4, 16, 32, 33), 3, 2, 1, False, False),
        ((4, 16, 32, 33), 3, 2, 1, True, False),
        ((4, 16, 32, 33), 3, 2, 1, True, True),
        ((4, 64, 14, 14), 14, 14, 0, False, True),
        ((2, 8, 16, 17, 18), 2, 2, 0, False, True),
    ],
)
def test_avg_pool_and_its_gradient_equal_the_plain_kernel(shape, kernel, stride, padding, ceil_mode, include):
    if not library.available():
        pytest.skip("oneDNN is not installed")
    kernels.register()
    pool = {4: avg_pool2d, 5: avg_pool3d}[len(shape)]
    data = np.random.default_rng(0).standard_normal(shape)
    x = wf.asarray(data.astype(np.float32)).requires_grad_()
    y = pool(x, kernel, stride, padding, ceil_mode, include)
    y.backward(wf.ones_like(y))
    exact = wf.asarray(data).requires_grad_()
    with kernels.disabled():
        z = pool(exact, kernel, stride, padding, ceil_mode, include)
        z.backward(wf.ones_like(z))
    np.testing.assert_allclose(y.detach().numpy(), z.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(x.grad.numpy(), exact.grad.numpy(), rtol=1e-4, atol=1e-5)
    assert is_channels_last(y.detach().numpy()) and is_channels_last(x.grad.numpy())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_pools(backend, dtype):
    x = wf.asarray(np.random.default_rng(0).standard_normal((2, 8, 64, 64)).astype(np.float32)).astype(
        getattr(wf, dtype)
    )
    y, z = max_pool2d(x, 2), avg_pool2d(x, 2)
    assert y.dtype == z.dtype == x.dtype
    wide = x.numpy().astype(np.float32).reshape(2, 8, 32, 2, 32, 2)
    np.testing.assert_array_equal(y.numpy().astype(np.float32), wide.max((3, 5)))
    np.testing.assert_allclose(z.numpy().astype(np.float32), wide.mean((3, 5)), atol=2e-2)


def test_integers_pool_by_maximum():
    x = wf.arange(16, dtype=wf.uint8).reshape(1, 1, 4, 4)
    y = max_pool2d(x, 3, 1, 1)
    assert y.dtype == wf.uint8
    assert y[0, 0].tolist() == [[5, 6, 7, 7], [9, 10, 11, 11], [13, 14, 15, 15], [13, 14, 15, 15]]


def test_adaptive_pooling_of_overlapping_windows():
    x = wf.arange(5, dtype=wf.float32).reshape(1, 1, 1, 5)
    assert adaptive_avg_pool2d(x, (1, 3))[0, 0, 0].tolist() == [0.5, 2.0, 3.5]
    values, indices = adaptive_max_pool2d(x, (1, 3), return_indices=True)
    assert values[0, 0, 0].tolist() == [1.0, 3.0, 4.0] and indices[0, 0, 0].tolist() == [1, 3, 4]


def test_unpooling_inverts_max_pooling():
    x = wf.asarray(np.random.default_rng(0).standard_normal((2, 3, 6, 6))).requires_grad_()
    y, indices = max_pool2d(x, 2, return_indices=True)
    back = max_unpool2d(y, indices, 2)
    np.testing.assert_array_equal(max_pool2d(wf.abs(back), 2).detach().numpy(), np.abs(y.detach().numpy()))
    back.sum().backward()
    assert x.grad.numpy().sum() == y.size


def test_lp_pool_of_zeros_has_a_zero_gradient():
    x = wf.zeros(1, 1, 4, 4, requires_grad=True)
    lp_pool2d(x, 2, 2).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.zeros((1, 1, 4, 4)))


def test_places_take_one_byte_for_ordinary_kernels():
    x = wf.zeros(1, 2, 20, 20)
    assert max_pool(x, Window((3, 3), (1, 1), ((0, 0), (0, 0)), (1, 1)))[1].dtype == wf.uint8
    assert max_pool(x, Window((16, 16), (1, 1), ((0, 0), (0, 0)), (1, 1)))[1].dtype == wf.int32


def test_batching_rules_fold_the_new_axis_into_the_batch():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 2, 4, 6, 6))
    window = Window((2, 2), (2, 2), ((0, 0), (1, 1)), (1, 1))
    values, places = max_pool.op.batch((0,), [wf.asarray(x)], (window,))
    single = [max_pool(wf.asarray(each), window) for each in x]
    np.testing.assert_array_equal(values.numpy(), np.stack([s[0].numpy() for s in single]))
    np.testing.assert_array_equal(places.numpy(), np.stack([s[1].numpy() for s in single]))
    means = avg_pool.op.batch((0,), [wf.asarray(x)], (window, True, None))
    np.testing.assert_allclose(
        means.numpy(), np.stack([avg_pool(wf.asarray(e), window, True, None).numpy() for e in x])
    )
    g = rng.standard_normal(values.shape)
    attrs = ((6, 6), window)
    back = max_pool_backward.op.batch((0, 0, None), [wf.asarray(g), places, None], attrs)
    each = [max_pool_backward(wf.asarray(a), p[1], None, *attrs).numpy() for a, p in zip(g, single, strict=True)]
    np.testing.assert_array_equal(back.numpy(), np.stack(each))
    picked = max_pool_select.op.batch((None, 0), [wf.asarray(x[0]), places], (window,))
    assert picked.shape == values.shape
    spread = avg_pool_backward.op.batch((0, None), [wf.asarray(g), None], ((6, 6), window, True, None))
    assert spread.shape == x.shape
