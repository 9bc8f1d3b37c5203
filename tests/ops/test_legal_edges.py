"""Legal calls at the edges of shapes: numbers with an axis, empty batches, output padding, values that broadcast."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft.nn import functional as F


def _both(fn):
    return (fn, wf.function(fn))


NUMBER = np.float32(2.5)
ALONG = {  # what a number gives along its one thought axis, as PyTorch
    "sum": (lambda x, a: wf.sum(x, axis=a), 2.5),
    "mean": (lambda x, a: wf.mean(x, axis=a), 2.5),
    "prod": (lambda x, a: wf.prod(x, axis=a), 2.5),
    "max": (lambda x, a: wf.max(x, axis=a), 2.5),
    "any": (lambda x, a: wf.any(x, axis=a), True),
    "var": (lambda x, a: wf.var(x, axis=a, correction=0), 0.0),
    "logsumexp": (lambda x, a: wf.logsumexp(x, axis=a), 2.5),
    "norm": (lambda x, a: wf.linalg.vector_norm(x, axis=a), 2.5),
    "median": (lambda x, a: wf.median(x, axis=a), 2.5),
    "count_nonzero": (lambda x, a: wf.count_nonzero(x, axis=a), 1),
    "argmax": (lambda x, a: wf.argmax(x, axis=a), 0),
    "argmin": (lambda x, a: wf.argmin(x, axis=a, keepdims=True), 0),
    "sort": (lambda x, a: wf.sort(x, axis=a), 2.5),
    "argsort": (lambda x, a: wf.argsort(x, axis=a), 0),
    "topk": (lambda x, a: wf.topk(x, 1, axis=a).values, 2.5),
    "kthvalue": (lambda x, a: wf.kthvalue(x, 1, axis=a).values, 2.5),
    "cumsum": (lambda x, a: wf.cumsum(x, a), 2.5),
    "cumprod": (lambda x, a: wf.cumprod(x, a), 2.5),
    "cummax": (lambda x, a: wf.cummax(x, a).values, 2.5),
    "logcumsumexp": (lambda x, a: wf.logcumsumexp(x, a), 2.5),
    "flip": (lambda x, a: wf.flip(x, axis=a), 2.5),
    "roll": (lambda x, a: wf.roll(x, 1, axis=a), 2.5),
    "softmax": (lambda x, a: F.softmax(x, a), 1.0),
    "log_softmax": (lambda x, a: F.log_softmax(x, a), 0.0),
    "softmin": (lambda x, a: F.softmin(x, a), 1.0),
    "normalize": (lambda x, a: F.normalize(x, axis=a), 1.0),
    "cosine_similarity": (lambda x, a: F.cosine_similarity(x, x, a), 1.0),
    "take_along_axis": (lambda x, a: wf.take_along_axis(x, wf.asarray(0), axis=a), 2.5),
    "scatter_add": (lambda x, a: wf.scatter_add(x, wf.asarray(0), x, a), 5.0),
    "squeeze": (lambda x, a: wf.squeeze(x, axis=a), 2.5),
    "swapaxes": (lambda x, a: wf.swapaxes(x, a, 0), 2.5),
    "moveaxis": (lambda x, a: wf.moveaxis(x, a, -1), 2.5),
}


@pytest.mark.parametrize("name", ALONG)
def test_a_number_has_one_axis_when_asked_for_it(name):
    fn, expected = ALONG[name]
    for axis in (0, -1):
        for way in _both(lambda x, a=axis: fn(x, a)):
            out = way(wf.asarray(NUMBER))
            assert out.shape == () and out.item() == pytest.approx(expected, abs=1e-6)
    for axis in (1, -2):
        with pytest.raises((IndexError, ValueError)):
            fn(wf.asarray(NUMBER), axis)


@pytest.mark.parametrize("name", ["sum", "max", "cumsum", "softmax", "sort", "flip", "scatter_add"])
def test_gradients_along_the_axis_of_a_number(name):
    fn, _ = ALONG[name]
    gradient = wf.grad_fn(lambda x: fn(x, 0))
    values = [way(wf.asarray(NUMBER)).item() for way in _both(gradient)]
    expected = {"softmax": 0.0, "scatter_add": 2.0}.get(name, 1.0)
    assert values == pytest.approx([expected, expected])


def test_vmap_over_numbers_along_their_axis():
    x = wf.asarray(np.array([1.0, 2.0, 3.0], np.float32))
    assert wf.vmap(lambda v: wf.cumsum(v, 0) + wf.sum(v, axis=0))(x).tolist() == [2.0, 4.0, 6.0]


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "extra"), [(1, 0, 3, 2), (2, 1, 3, 2), (1, 2, 4, 3), (2, 3, 5, 4)]
)
def test_output_padding_may_reach_the_dilation(stride, padding, dilation, extra):
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 2, 5)), rng.standard_normal((2, 3, 3))
    whole = np.zeros((1, 3, 4 * stride + 2 * dilation + 1 + extra))
    for k in range(3):
        whole[:, :, k * dilation : k * dilation + 4 * stride + 1 : stride] += np.einsum("nct,co->not", x, w[:, :, k])
    expected = whole[:, :, padding : whole.shape[2] - padding]

    def run(x, w):
        return F.conv_transpose1d(x, w, stride=stride, padding=padding, dilation=dilation, output_padding=extra)

    for way in _both(run):
        np.testing.assert_allclose(way(wf.asarray(x), wf.asarray(w)).numpy(), expected, atol=1e-10)
    with pytest.raises(ValueError, match="output_padding must be smaller"):
        F.conv_transpose1d(wf.asarray(x), wf.asarray(w), stride=stride, dilation=dilation, output_padding=dilation)


EMPTY = {
    "group_norm": (lambda x: F.group_norm(x, 2), (0, 4, 3)),
    "group_norm of no pixels": (lambda x: F.group_norm(x, 2), (2, 4, 0)),
    "group_norm of no channels": (lambda x: F.group_norm(x, 1), (2, 0, 3)),
    "instance_norm": (F.instance_norm, (0, 3, 4)),
    "batch_norm": (lambda x: F.batch_norm(x, wf.zeros(3), wf.ones(3), wf.ones(3), wf.zeros(3)), (0, 3)),
    "batch_norm of images": (lambda x: F.batch_norm(x, wf.zeros(3), wf.ones(3)), (0, 3, 2, 2)),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x), (0, 3, 4)),
    "max_unpool": (lambda x: F.max_unpool1d(x, wf.zeros(0, 1, 3, dtype=wf.int64), 2), (0, 1, 3)),
    "adaptive_max_pool": (lambda x: F.adaptive_max_pool1d(x, 2), (0, 2, 5)),
    "depth 0": (lambda x: x @ wf.ones(0, 5), (5, 5, 0)),
    "rms_norm of no features": (lambda x: F.rms_norm(x, (0,)), (2, 0)),
    "linear": (lambda x: F.linear(x, wf.ones(2, 0)), (4, 3, 0)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_nothing_is_computed_of_nothing(name):
    fn, shape = EMPTY[name]
    for way in _both(lambda x: (fn(x), wf.grad_fn(lambda y: fn(y).sum())(x))):
        out, gradient = way(wf.zeros(*shape))
        assert gradient.shape == shape and not np.any(out.numpy())


def test_gradients_of_both_operands_of_a_product_of_depth_0():
    for way in _both(wf.grad_fn(lambda x, w: (x @ w).sum(), argnums=(0, 1))):
        gx, gw = way(wf.zeros(5, 5, 0), wf.zeros(0, 5))
        assert gx.shape == (5, 5, 0) and gw.shape == (0, 5)


def test_empty_batches_train_nothing_through_batch_norm_in_eval_mode():
    layer = wf.nn.BatchNorm2d(3)
    layer.eval()
    out = layer(wf.zeros(0, 3, 2, 2))
    out.sum().backward()
    assert out.shape == (0, 3, 2, 2) and layer.weight.grad.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(("value", "expected"), [(True, [True, True]), (0, [False, True]), (1.0, [True, True])])
def test_masked_fill_of_bools(value, expected):
    def fill(x, mask):
        return x.clone().masked_fill_(mask, value)

    x, mask = wf.asarray(np.array([False, True])), wf.asarray(np.array([True, False]))
    for way in (*_both(fill), *_both(lambda x, m: x.masked_fill(m, value))):
        out = way(x, mask)
        assert out.dtype == wf.bool and out.tolist() == expected


def test_gaussian_nll_broadcasts_sizes_of_one_only():
    rng = np.random.default_rng(0)
    x, target, var = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 1, 4)), rng.uniform(1, 2, (1, 3, 1))
    expected = 0.5 * (np.log(var) + (x - target) ** 2 / var)
    for way in _both(lambda x, t, v: F.gaussian_nll_loss(x, t, v, reduction="none")):
        np.testing.assert_allclose(
            way(wf.asarray(x), wf.asarray(target), wf.asarray(var)).numpy(), expected, atol=1e-12
        )
    with pytest.raises(ValueError, match="input and target must have one shape"):
        F.gaussian_nll_loss(wf.asarray(x), wf.zeros(4), wf.asarray(var))
    with pytest.raises(ValueError, match=r"var has shape \(4,\)"):
        F.gaussian_nll_loss(wf.asarray(x), wf.asarray(x), wf.ones(4))


def test_squeeze_refuses_an_axis_that_is_not_1():
    for way in _both(lambda x: wf.squeeze(x, axis=0)):
        with pytest.raises(ValueError, match="squeeze: axis 0 has size 3, expected 1"):
            way(wf.ones(3, 1))


def test_gradient_of_taking_rows_without_elements():
    for way in _both(wf.grad_fn(lambda x: wf.take(x, wf.asarray([[0, 1]]), axis=1).sum())):
        assert way(wf.zeros(3, 2, 0)).shape == (3, 2, 0)


@pytest.mark.parametrize("name", ["scatter", "scatter_add", "index_add", "take_along_axis"])
def test_an_index_into_an_axis_of_size_0_is_refused_alike(name):
    x, index, source = wf.zeros(0, 3), wf.asarray(np.zeros((2, 3), np.int64)), wf.zeros(2, 3)
    calls = {
        "scatter": lambda x: wf.scatter(x, index, source, 0),
        "scatter_add": lambda x: wf.scatter_add(x, index, source, 0),
        "index_add": lambda x: wf.index_add(x, wf.asarray([0, 1]), source, 0),
        "take_along_axis": lambda x: wf.take_along_axis(x, index, axis=0),
    }
    for way in _both(calls[name]):
        with pytest.raises(IndexError, match=f"{name}: ind.* points into an axis of size 0"):
            way(x)
