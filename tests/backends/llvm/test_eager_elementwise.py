"""Elementwise loops on arrays of any shape, stride and overlap."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from weft.backends.llvm import eager, eager_elementwise
from weft.ops.core import scalar as s

SETTINGS = settings(max_examples=60, deadline=None)


def affine(x, y):
    return x * 2 + y


@st.composite
def views(draw, shape):
    """An array of this shape: contiguous, transposed, strided, reversed, or broadcast."""
    kept = [n if draw(st.integers(0, 4)) else 1 for n in shape]
    order = draw(st.permutations(range(len(kept))))
    base_shape = [kept[a] for a in order]
    steps = [draw(st.sampled_from([1, 1, 1, 2, -1, -2])) for _ in base_shape]
    whole_shape = [n * abs(k) for n, k in zip(base_shape, steps, strict=True)]
    whole = np.arange(np.prod(whole_shape, dtype=int), dtype=np.float32).reshape(whole_shape)
    view = whole[tuple(slice(None, None, k) for k in steps)]
    return np.asarray(view.transpose(np.argsort(order)) if order else view)


@SETTINGS
@given(st.data())
def test_any_strides_and_broadcasts(data):
    shape = tuple(data.draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=9)))
    x, y = data.draw(views(shape)), data.draw(views(shape))
    got = eager.elementwise("affine", affine, [x, y], shape)
    want = np.broadcast_to(x * 2 + y, shape)
    assert got.shape == want.shape
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (1, 1), (5,), (70000,), (3, 40000), (2, 3, 4, 5, 6)])
def test_shapes(shape):
    x = np.asarray(np.random.default_rng(0).standard_normal(shape), np.float32)
    got = eager.elementwise("affine", affine, [x, x], shape)
    assert got.shape == shape
    np.testing.assert_array_equal(got, x * 2 + x)


def test_layout_passes_through():
    x = np.zeros((2, 5, 3, 4), np.float32).transpose(0, 3, 1, 2)  # channels last
    y = np.zeros(4, np.float32).reshape(4, 1, 1)
    assert eager.elementwise("affine", affine, [x, y], x.shape).strides == x.strides
    assert eager.elementwise("affine", affine, [y, x], x.shape).strides == x.strides
    assert eager.elementwise("affine", affine, [x[:, ::2], x[:, ::2]], (2, 2, 5, 3)).strides == (120, 4, 24, 8)


def test_results_in_place():
    x = np.arange(100, dtype=np.float32)
    y = np.ones(100, np.float32)
    out = eager.elementwise("affine", affine, [x, y], x.shape, x)
    assert out is x
    np.testing.assert_array_equal(x, np.arange(100) * 2 + 1)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.float16])
def test_out_of_another_dtype_is_cast_to(dtype):
    x = np.float32([1.5, 2.5, -3.5])
    out = np.zeros(3, dtype)
    eager.elementwise("affine", affine, [x, x], (3,), out)
    np.testing.assert_array_equal(out, (x * 3).astype(dtype))


def test_partial_overlap_reads_old_values():
    a = np.arange(50, dtype=np.float32)
    want = a[:-1] * 2 + a[1:]
    eager.elementwise("affine", affine, [a[:-1], a[1:]], (49,), a[1:])
    np.testing.assert_array_equal(a[1:], want)
    b = np.arange(36, dtype=np.float32).reshape(6, 6)
    want = b.T * 2 + b
    eager.elementwise("affine", affine, [b.T, b], (6, 6), b)
    np.testing.assert_array_equal(b, want)
    c = np.arange(9, dtype=np.float32)
    want = c[::-1] * 2 + c
    eager.elementwise("affine", affine, [c[::-1], c], (9,), c)
    np.testing.assert_array_equal(c, want)


def test_many_outputs_read_inputs_once():
    """An optimiser step: parameter and momentum are updated in place, both from the old values."""
    rng = np.random.default_rng(0)
    p, m, g = (rng.standard_normal((40, 30)).astype(np.float32) for _ in range(3))
    want_m = 0.9 * m + g
    want_p = p - np.float32(0.1) * want_m

    def step(p, m, g):
        m = 0.9 * m + g
        return p - 0.1 * m, m

    outs = eager.elementwise_many("sgd", step, [p, m, g], p.shape, [p, m])
    assert outs[0] is p
    np.testing.assert_allclose(m, want_m, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(p, want_p, rtol=1e-5, atol=1e-6)


def test_what_native_code_does_not_serve():
    z = np.zeros(3, np.complex64)
    assert eager.elementwise("affine", affine, [z, z], (3,)) is None
    swapped = np.zeros(3, ">f4")
    assert eager.elementwise("affine", affine, [swapped, swapped], (3,)) is None
    records = np.zeros(4, [("a", "u1"), ("b", "f4")])["b"]  # stride of 5 bytes
    assert eager.elementwise("affine", affine, [records, records], (4,)) is None


def test_unaligned_memory_is_read_correctly():
    raw = np.zeros(4 * 50 + 1, np.uint8)
    x = raw[1:].view(np.float32)
    assert not x.flags.aligned
    x[:] = np.arange(50)
    np.testing.assert_array_equal(eager.elementwise("affine", affine, [x, x], (50,)), np.arange(50) * 3)


def test_errors_name_the_problem():
    x = np.zeros(3, np.float32)
    with pytest.raises(ValueError, match=r"affine: out has the wrong shape. Got \(4,\); expected \(3,\)"):
        eager.elementwise("affine", affine, [x, x], (3,), np.zeros(4, np.float32))
    frozen = np.zeros(3, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        eager.elementwise("affine", affine, [x, x], (3,), frozen)
    with pytest.raises(ValueError, match="do not broadcast"):
        eager.elementwise("affine", affine, [x, x], (4,))


def test_prepared_calls_are_bounded(monkeypatch):
    monkeypatch.setattr(eager_elementwise, "MAX_PREPARED_CALLS", 4)
    eager_elementwise._prepared.clear()
    for n in range(1, 12):
        x = np.zeros(n, np.float32)
        eager.elementwise("affine", affine, [x, x], (n,))
        assert len(eager_elementwise._prepared) <= 4


def test_large_results_stream_past_the_caches_unchanged():
    n = (eager_elementwise.MIN_STREAMING_BYTES // 4) + 77
    x = np.arange(n, dtype=np.float32)
    np.testing.assert_array_equal(eager.elementwise("affine", affine, [x, x], (n,)), x * 2 + x)
    out = np.empty(n + 3, np.float32)[3:]  # not aligned to a vector
    np.testing.assert_array_equal(eager.elementwise("affine", affine, [x, x], (n,), out), x * 2 + x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.float16, np.bool_])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((100, 130), (1, 0)), ((5, 70, 90), (0, 2, 1)), ((20, 33, 50), (2, 1, 0)), ((3, 40, 50, 20), (0, 2, 3, 1))],
)
def test_operands_that_run_in_different_directions(dtype, shape, axes):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, shape).astype(dtype).transpose(axes)
    out = np.zeros(x.shape, dtype)
    eager.elementwise("copy", lambda v: v, [x], x.shape, out)
    np.testing.assert_array_equal(out, x)
    y = rng.integers(0, 2, x.shape).astype(dtype)
    eager.elementwise("both", s.maximum, [x, y], x.shape, out)
    np.testing.assert_array_equal(out, np.maximum(x, y))
    eager.elementwise("both", s.maximum, [y[..., :1], x], x.shape, out)
    np.testing.assert_array_equal(out, np.maximum(y[..., :1], x))
