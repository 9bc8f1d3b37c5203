"""Convolution beyond the op table: with and without oneDNN, memory layout, half precision, batching, empty batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft as wf
from weft.backends.onednn import kernels, library
from weft.ops.nn.conv.convolution import convolution, convolution_backward_input, convolution_backward_weight
from weft.ops.nn.conv.functions import conv1d, conv2d, conv3d
from weft.ops.nn.conv.reference import reference
from weft.ops.nn.conv.transposed import conv_transpose2d
from weft.ops.nn.window import Window
from weft.runtime import memory


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
    order = (0, *range(2, a.ndim), 1)
    return a.transpose(order).flags.c_contiguous


def channels_last(a):
    out = memory.empty_channels_last(a.shape, a.dtype)
    out[...] = a
    return out


# (x, weight, stride, padding, dilation, groups), large enough for oneDNN
CASES = [
    ((2, 16, 40), (24, 16, 3), 1, 1, 1, 1),
    ((4, 8, 20, 22), (16, 8, 3, 3), 1, "same", 1, 1),
    ((2, 16, 17, 19), (32, 16, 3, 3), 2, 1, 1, 1),
    ((2, 32, 14, 14), (64, 32, 1, 1), 1, 0, 1, 1),
    ((2, 32, 15, 15), (64, 32, 1, 1), 2, 0, 1, 1),
    ((2, 3, 33, 33), (16, 3, 7, 7), 2, 3, 1, 1),
    ((2, 16, 20, 20), (16, 8, 3, 3), 1, ((0, 2), (1, 1)), (2, 1), 2),
    ((2, 64, 20, 20), (64, 1, 3, 3), 1, 1, 1, 64),
    ((1, 8, 9, 10, 11), (12, 8, 3, 3, 3), (1, 2, 1), 1, 1, 1),
    ((2, 8, 18, 18), (16, 8, 4, 4), 1, "same", 1, 1),
]


def _run(case, layout=lambda a: a, dtype=np.float32):
    shape, w_shape, stride, padding, dilation, groups = case
    rng = np.random.default_rng(sum(shape) + sum(w_shape))
    x = wf.asarray(layout(rng.standard_normal(shape).astype(dtype))).requires_grad_()
    w = wf.asarray((rng.standard_normal(w_shape) * 0.2).astype(dtype)).requires_grad_()
    b = wf.asarray(rng.standard_normal(w_shape[0]).astype(dtype)).requires_grad_()
    conv = {3: conv1d, 4: conv2d, 5: conv3d}[len(shape)]
    y = conv(x, w, b, stride, padding, dilation, groups)
    g = wf.asarray(rng.standard_normal(y.shape).astype(dtype))
    y.backward(g)
    return [t.numpy() for t in (y.detach(), x.grad, w.grad, b.grad)]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("layout", [lambda a: a, channels_last], ids=["row-major", "channels-last"])
def test_float32_equals_the_plain_kernel_in_float64(backend, case, layout):
    results = _run(case, layout)
    with kernels.disabled():
        expected = _run(case, dtype=np.float64)
    for got, want in zip(results, expected, strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4 * np.abs(want).max())
    for image in results[:2]:
        assert is_channels_last(image)


def test_onednn_serves_what_the_table_says_it_serves():
    if not library.available():
        pytest.skip("oneDNN is not installed")
    kernels.register()
    served = {op.name for op in map(wf_op, ("matmul", "convolution", "max_pool", "avg_pool")) if op.kernels}
    assert served == {"matmul", "convolution", "max_pool", "avg_pool"}
    x, w = np.ones((2, 16, 20, 20), np.float32), np.ones((16, 16, 3, 3), np.float32)
    window = Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1))
    assert kernels._conv_pays(x, w, None, window, 1)
    with kernels.disabled():
        assert not kernels._conv_pays(x, w, None, window, 1)
    assert not kernels._conv_pays(x.astype(np.float64), w, None, window, 1)


def wf_op(name):
    from weft.ops.core import registry

    return registry.get(name)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32(backend, dtype):
    rng = np.random.default_rng(0)
    x32, w32 = rng.standard_normal((2, 8, 12, 12)), rng.standard_normal((8, 8, 3, 3)) * 0.2
    x, w = (wf.asarray(a.astype(np.float32)).astype(getattr(wf, dtype)).requires_grad_() for a in (x32, w32))
    y = conv2d(x, w, padding=1)
    assert y.dtype == getattr(wf, dtype)
    y.sum().backward()
    assert x.grad.dtype == w.grad.dtype == y.dtype
    exact = conv2d(x.detach().astype(wf.float64), w.detach().astype(wf.float64), padding=1)
    tolerance = {"float16": 2e-3, "bfloat16": 2e-2}[dtype]
    np.testing.assert_allclose(y.detach().numpy().astype(np.float64), exact.numpy(), rtol=tolerance, atol=tolerance)


def test_integers_are_exact():
    x, w = wf.arange(2 * 3 * 5 * 5).reshape(2, 3, 5, 5), wf.arange(2 * 3 * 3 * 3).reshape(2, 3, 3, 3)
    y = conv2d(x, w, padding=1)
    assert y.dtype == wf.int64
    assert y[0, 0, 0, 0].item() == int((x.numpy()[0, :, :2, :2] * w.numpy()[0, :, 1:, 1:]).sum())


def test_complex_gradients_follow_the_real_parts():
    rng = np.random.default_rng(1)
    parts = [rng.standard_normal((1, 2, 5)) for _ in range(2)]
    x = wf.asarray(parts[0] + 1j * parts[1]).requires_grad_()
    w = wf.asarray(rng.standard_normal((3, 2, 2)) + 0j)
    y = conv1d(x, w)
    wf.real(y).sum().backward()
    real = wf.asarray(parts[0]).requires_grad_()
    conv1d(real, wf.real(w)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy().real, real.grad.numpy(), atol=1e-12)


def test_layout_survives_a_chain_of_ops(backend):
    """Activations stay channels-last from convolution through elementwise ops to convolution; flatten copies right."""
    x = wf.asarray(np.random.default_rng(0).standard_normal((2, 8, 16, 16)).astype(np.float32)).requires_grad_()
    w = wf.asarray(np.random.default_rng(1).standard_normal((16, 8, 3, 3)).astype(np.float32))
    y = conv2d(x, w, padding=1)
    z = wf.maximum(y * 2.0 + 1.0, 0.0) + y
    assert is_channels_last(y.detach().numpy()) and is_channels_last(z.detach().numpy())
    flat = z.flatten(1)
    np.testing.assert_array_equal(flat.detach().numpy(), np.ascontiguousarray(z.detach().numpy()).reshape(2, -1))
    flat.sum().backward()
    assert x.grad.shape == x.shape


def test_an_empty_batch_gives_empty_results(backend):
    x, w = wf.zeros(0, 3, 8, 8, requires_grad=True), wf.ones(4, 3, 3, 3).requires_grad_()
    y = conv2d(x, w, padding=1)
    assert y.shape == (0, 4, 8, 8)
    y.sum().backward()
    assert x.grad.shape == (0, 3, 8, 8)
    np.testing.assert_array_equal(w.grad.numpy(), np.zeros((4, 3, 3, 3)))


def test_inputs_of_the_wrong_kind_are_refused():
    x, w = wf.ones(1, 3, 8, 8), wf.ones(4, 3, 3, 3)
    with pytest.raises(TypeError, match="conv2d: the tensors must have one dtype. Got x float32, weight float64"):
        conv2d(x, w.astype(wf.float64))
    with pytest.raises(TypeError, match="expected numbers. Got bool"):
        conv2d(x.astype(wf.bool), w.astype(wf.bool))
    with pytest.raises(ValueError, match=r"x of shape \(1, 3, 8, 8\) with 3 channels, weight of shape \(4, 2, 3, 3\)"):
        conv2d(x, wf.ones(4, 2, 3, 3))
    with pytest.raises((TypeError, AttributeError, ValueError)):
        conv2d([[1.0]], w)


def test_huge_padding_raises_memory_error_instead_of_crashing():
    with pytest.raises((MemoryError, ValueError)):
        conv2d(wf.ones(1, 1, 2, 2), wf.ones(1, 1, 2, 2), padding=2**40)


def test_transposed_convolution_is_the_adjoint(backend):
    rng = np.random.default_rng(0)
    x = wf.asarray(rng.standard_normal((2, 16, 9, 9)).astype(np.float32))
    w = wf.asarray(rng.standard_normal((32, 16, 3, 3)).astype(np.float32))
    y = conv2d(x, w, stride=2, padding=1)
    v = wf.asarray(rng.standard_normal(y.shape).astype(np.float32))
    back = conv_transpose2d(v, w, stride=2, padding=1)
    assert back.shape == x.shape
    np.testing.assert_allclose((back * x).sum().item(), (y * v).sum().item(), rtol=1e-3)
    assert is_channels_last(back.numpy())


# Batching rules: the rule on stacked inputs equals the op on each of them ---------------------------------------------


@pytest.mark.parametrize("axes", [(0, None, None), (None, 0, None), (0, 0, None), (0, 0, 0), (None, None, 0)])
@pytest.mark.parametrize("groups", [1, 2])
def test_batching_rule_of_convolution(axes, groups):
    rng = np.random.default_rng(0)
    shapes = [(2, 4, 5, 5), (6, 4 // groups, 3, 3), (6,)]
    full = [rng.standard_normal((3, *s) if a == 0 else s) for s, a in zip(shapes, axes, strict=True)]
    attrs = (Window((3, 3), (2, 1), ((1, 1), (0, 1)), (1, 1)), groups)
    got = convolution.op.batch(axes, [wf.asarray(a) for a in full], attrs)
    each = [
        convolution(*[wf.asarray(t[i] if a == 0 else t) for t, a in zip(full, axes, strict=True)], *attrs)
        for i in range(3)
    ]
    np.testing.assert_allclose(got.numpy(), np.stack([e.numpy() for e in each]), atol=1e-10)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
def test_batching_rules_of_the_gradients(axes):
    rng = np.random.default_rng(0)
    attrs = (Window((3, 3), (2, 1), ((1, 1), (0, 1)), (1, 1)), 2)
    g_shape = convolution(wf.zeros(2, 4, 5, 5), wf.zeros(6, 2, 3, 3), None, *attrs).shape

    def check(op, shapes, tail, attrs):
        full = [rng.standard_normal((3, *s) if a == 0 else s) for s, a in zip(shapes, axes, strict=True)]
        got = op.op.batch((*axes, *[None] * len(tail)), [*map(wf.asarray, full), *tail], attrs)
        each = [
            op(*[wf.asarray(t[i] if a == 0 else t) for t, a in zip(full, axes, strict=True)], *tail, *attrs)
            for i in range(3)
        ]
        np.testing.assert_allclose(got.numpy(), np.stack([e.numpy() for e in each]), atol=1e-10)

    check(convolution_backward_input, [g_shape, (6, 2, 3, 3)], [None], ((5, 5), *attrs))
    check(convolution_backward_weight, [(2, 4, 5, 5), g_shape], [], attrs)


def test_cost_counts_multiplications_and_additions():
    x, w = wf.zeros(2, 3, 8, 8)._data, wf.zeros(4, 3, 3, 3)._data
    window = Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1))
    assert convolution.op.cost(x, w, None, window, 1) == 2 * 2 * 4 * 8 * 8 * 3 * 9


# Any arguments: an answer that equals the definition, or an error that says what is wrong -------------------------------


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_arguments_give_the_right_answer_or_a_readable_error(backend, data):
    small = st.integers(-1, 5)
    n, c, o, size, k, k2 = (data.draw(st.integers(0, 4)) for _ in range(6))
    stride, padding, dilation, groups = data.draw(small), data.draw(small), data.draw(small), data.draw(small)
    x = np.random.default_rng(0).standard_normal((n, c, size + 1, size + 2)).astype(np.float32)
    w = np.random.default_rng(1).standard_normal((o, data.draw(st.integers(0, 4)), k, k2)).astype(np.float32)
    x_t, w_t = wf.asarray(x).requires_grad_(), wf.asarray(w).requires_grad_()
    try:
        y = conv2d(x_t, w_t, None, stride, padding, dilation, groups)
    except (ValueError, TypeError) as error:
        assert str(error).startswith("conv2d: ")
        return
    window = Window(w.shape[2:], (stride,) * 2, ((padding, padding),) * 2, (dilation,) * 2)
    expected = reference(x, w, None, window, groups)
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-4, atol=1e-4)
    y.sum().backward()
    assert x_t.grad.shape == x.shape and w_t.grad.shape == w.shape


def test_large_arguments_never_reach_native_code(backend):
    x, w = wf.ones(1, 64, 16, 16), wf.ones(64, 64, 3, 3)
    for options in ({"stride": 2**70}, {"padding": 2**70}, {"dilation": 2**40}, {"groups": 2**40}, {"padding": 2**31}):
        with pytest.raises((ValueError, MemoryError, OverflowError)):
            conv2d(x, w, **options)
