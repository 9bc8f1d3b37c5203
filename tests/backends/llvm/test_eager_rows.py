"""Softmax, cross entropy and normalisation against float64 formulas, along any axis and in any layout."""

import numpy as np
import pytest
import scipy.special

from weft.backends.llvm import eager
from weft.compiler.loop_ir.kernels import rows
from weft.ops.core import scalar as s

TOLERANCE = {"float32": 4e-6, "float64": 1e-13, "float16": 4e-3}
CASES = [((3, 7), 1), ((3, 7), 0), ((20, 33, 50), 1), ((40, 33), 1), ((2, 5, 100), 0), ((1000, 3), 1), ((9,), 0)]


def arrays(dtype, shape, count):
    rng = np.random.default_rng(0)
    return [(2 * rng.standard_normal(shape)).astype(dtype) for _ in range(count)]


def close(got, want, dtype, factor=1.0):
    assert got.dtype == dtype
    tolerance = TOLERANCE[dtype] * factor
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize(("shape", "axis"), CASES, ids=str)
def test_softmax_family(dtype, shape, axis):
    x, g = arrays(dtype, shape, 2)
    for v, u in ((x, g), (x[..., ::-1], g[..., ::-1]), (x.T.copy().T, g)):
        wide, slope = v.astype(np.float64), u.astype(np.float64)
        y = eager.softmax(v, axis)
        close(y, scipy.special.softmax(wide, axis), dtype)
        p = y.astype(np.float64)
        close(eager.softmax_backward(u, y, axis), p * (slope - (slope * p).sum(axis, keepdims=True)), dtype, 3)
        logs = eager.log_softmax(v, axis)
        close(logs, scipy.special.log_softmax(wide, axis), dtype)
        want = slope - np.exp(logs.astype(np.float64)) * slope.sum(axis, keepdims=True)
        close(eager.log_softmax_backward(u, logs, axis), want, dtype, 4)
        close(eager.logsumexp(v, (axis,)), scipy.special.logsumexp(wide, axis), dtype)


def test_logsumexp_over_several_axes_and_of_infinities():
    x = np.random.default_rng(0).standard_normal((4, 5, 6))
    np.testing.assert_allclose(eager.logsumexp(x, (0, 2)), scipy.special.logsumexp(x, (0, 2)), rtol=1e-13)
    edges = np.array([[-np.inf, -np.inf], [np.inf, 0], [-np.inf, 3]])
    np.testing.assert_array_equal(eager.logsumexp(edges, (1,)), [-np.inf, np.inf, 3])


def test_softmax_does_not_overflow():
    x = np.float32([[1e4, 1e4 - 1, -1e4], [-1e30, 0, 1e30]])
    np.testing.assert_allclose(eager.softmax(x, 1), scipy.special.softmax(x.astype(np.float64), 1), rtol=1e-6)


@pytest.mark.parametrize(("shape", "axis"), CASES, ids=str)
def test_cross_entropy(shape, axis):
    (x,) = arrays("float32", shape, 1)
    rng = np.random.default_rng(1)
    rows = tuple(n for a, n in enumerate(shape) if a != axis)
    labels = rng.integers(0, shape[axis], rows)
    loss, lse = eager.cross_entropy(x, labels, axis)
    wide = scipy.special.log_softmax(x.astype(np.float64), axis)
    picked = np.take_along_axis(wide, np.expand_dims(labels, axis), axis).squeeze(axis)
    close(loss, -picked, "float32", 2)
    g = rng.standard_normal(rows).astype(np.float32)
    hot = np.zeros(shape)
    np.put_along_axis(hot, np.expand_dims(labels, axis), 1, axis)
    want = (np.exp(wide) - hot) * np.expand_dims(g.astype(np.float64), axis)
    close(eager.cross_entropy_backward(x, labels, lse, g, axis), want, "float32", 2)


def test_a_label_out_of_range_reads_nothing_outside():
    x = np.zeros((2, 3), np.float32)
    loss, _ = eager.cross_entropy(x, np.array([10**12, -(10**12)]), 1)
    np.testing.assert_allclose(loss, np.log(3), rtol=1e-6)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize(
    ("shape", "axes"), [((5, 7), 1), ((100, 64), 1), ((6, 10, 20), 2), ((300, 768), 1), ((30,), 1)]
)
def test_layer_norm(dtype, shape, axes):
    x, g = arrays(dtype, shape, 2)
    w, b = arrays(dtype, shape[len(shape) - axes :], 2)
    b = b[..., ::-1].copy()
    wide, slope, weight, shift = (a.astype(np.float64) for a in (x, g, w, b))
    over = tuple(range(-axes, 0))
    lead = tuple(range(len(shape) - axes))
    mean, rstd = wide.mean(over, keepdims=True), 1 / np.sqrt(wide.var(over, keepdims=True) + 1e-5)
    h = (wide - mean) * rstd
    y, m, r = eager.layer_norm(x, w, b, axes, 1e-5)
    close(y, h * weight + shift, dtype, 3)
    assert m.shape == shape[: len(shape) - axes]
    np.testing.assert_allclose(r, rstd.reshape(r.shape), rtol=1e-5)
    plain, _, _ = eager.layer_norm(x, None, None, axes, 1e-5)
    close(plain, h, dtype, 3)
    q = slope * weight
    dx, dw, db = eager.layer_norm_backward(g, x, w, m, r, axes, True)
    close(dx, rstd * (q - q.mean(over, keepdims=True) - h * (q * h).mean(over, keepdims=True)), dtype, 8)
    rows = max(1, int(np.prod(shape[: len(shape) - axes])))
    close(dw, (slope * h).sum(lead), dtype, 4 * np.sqrt(rows))
    close(db, slope.sum(lead), dtype, 4 * np.sqrt(rows))
    dx, dw, db = eager.layer_norm_backward(g, x, None, m, r, axes, False)
    assert dw is None
    assert db is None
    close(dx, rstd * (slope - slope.mean(over, keepdims=True) - h * (slope * h).mean(over, keepdims=True)), dtype, 8)


@pytest.mark.parametrize("shape", [(7, 33), (200, 768)])
def test_rms_norm(shape):
    x, g = arrays("float32", shape, 2)
    (w,) = arrays("float32", shape[1:], 1)
    wide, slope, weight = (a.astype(np.float64) for a in (x, g, w))
    rstd = 1 / np.sqrt((wide * wide).mean(1, keepdims=True) + 1e-6)
    y, r = eager.rms_norm(x, w, 1, 1e-6)
    close(y, wide * rstd * weight, "float32", 3)
    q, h = slope * weight, wide * rstd
    dx, dw = eager.rms_norm_backward(g, x, w, r, 1)
    close(dx, rstd * (q - h * (q * h).mean(1, keepdims=True)), "float32", 8)
    close(dw, (slope * h).sum(0), "float32", 4 * np.sqrt(shape[0]))


@pytest.mark.parametrize("shape", [(1, 5), (1000, 64), (8, 14, 14, 48)])
def test_batch_statistics_do_not_cancel(shape):
    x = (np.random.default_rng(0).standard_normal(shape) + 1000).astype(np.float32)
    mean, variance = eager.batch_statistics(x)
    flat = x.astype(np.float64).reshape(-1, shape[-1])
    np.testing.assert_allclose(mean, flat.mean(0), rtol=1e-6)
    np.testing.assert_allclose(variance, flat.var(0), rtol=2e-4, atol=1e-7)


def test_inputs_are_unchanged_and_integers_refused():
    (x,) = arrays("float32", (5, 6), 1)
    before = x.copy()
    eager.softmax(x, 1)
    eager.layer_norm(x, None, None, 1, 1e-5)
    np.testing.assert_array_equal(x, before)
    assert eager.softmax(np.ones((2, 2), np.int64), 1) is None
    assert eager.softmax(np.ones((0, 2), np.float32), 1) is None
    assert s.BFLOAT16 == eager.softmax(x.astype(s.BFLOAT16), 1).dtype


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("n", [rows.MAX_HELD_ELEMENTS - 1, rows.MAX_HELD_ELEMENTS, rows.MAX_HELD_ELEMENTS + 1])
def test_softmax_of_rows_around_the_size_of_the_scratch_memory(dtype, n):
    (x,) = arrays(dtype, ((4 << 20) // (4 * n) + 2, n), 1)  # large enough to be streamed past the caches
    x[0, :2] = -np.inf
    y = eager.softmax(x, 1)
    close(y, scipy.special.softmax(x.astype(np.float64), 1), dtype)


def test_softmax_that_does_not_fit_into_a_cache_computes_each_exponential_once():
    text = str(rows.softmax("rows", np.dtype(np.float32), (1, 1), True, held=True))
    assert text.count("exp(") == 1


def test_a_repeated_call_on_few_numbers_is_prepared_and_stays_right():
    from weft.backends.llvm import eager_rows

    (x, g) = arrays("float32", (5, 7), 2)
    labels, w = np.array([0, 6, 3, 2, 1]), np.linspace(0.5, 2, 7, dtype=np.float32)
    for _ in range(3):
        close(eager.softmax(x, 1), scipy.special.softmax(x.astype(np.float64), 1), "float32")
        loss, lse = eager.cross_entropy(x, labels, 1)
        close(lse, scipy.special.logsumexp(x.astype(np.float64), 1), "float32")
        close(loss, lse.astype(np.float64) - x[np.arange(5), labels], "float32")
        y, mean, _ = eager.layer_norm(x, w, None, 1, 1e-5)
        wide = x.astype(np.float64)
        close(mean, wide.mean(1), "float32")
        close(y, (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * w, "float32")
        y[...] = loss[...] = np.nan  # results are the caller's own
        x, g = g, x
    prepared = len(eager_rows._prepared)
    eager.softmax(x, 1)
    assert len(eager_rows._prepared) == prepared


def test_a_prepared_call_does_not_serve_another_layout():
    (x,) = arrays("float64", (6, 6), 1)
    for v in (x, x.T, x[:, ::-1], x[::2], np.asfortranarray(x), x):
        for axis in (0, 1):
            for _ in range(2):
                close(eager.softmax(v, axis), scipy.special.softmax(v, axis), "float64")
