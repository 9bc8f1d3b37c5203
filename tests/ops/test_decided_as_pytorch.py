"""Results where there was a choice, decided as PyTorch 2 decides: bounds, ties, degenerate statistics, complex norms."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft as wf
from weft.nn import functional as F


def _gradients(function, *values):
    tensors = [wf.tensor(v).requires_grad_() for v in values]
    return [g.tolist() for g in wf.grad(function(*tensors).sum(), tensors)]


MODES = pytest.mark.parametrize("mode", [lambda f: f, wf.function], ids=["eager", "captured"])


@MODES
def test_clip_promotes_tensor_bounds_instead_of_casting_them(mode):
    x = wf.tensor([5, 1, 6], dtype=wf.uint8)
    out = mode(lambda x, low: wf.clip(x, low))(x, wf.tensor([-7, -3, 2], dtype=wf.int32))
    assert out.dtype == wf.int32 and out.tolist() == [5, 1, 6]
    out = mode(lambda x, high: wf.clip(x, None, high))(x, wf.tensor([300], dtype=wf.int16))
    assert out.dtype == wf.int16 and out.tolist() == [5, 1, 6]
    out = mode(lambda x, high: wf.clip(x, 1, high))(wf.tensor([0, 3]), wf.tensor([2.5]))
    assert out.dtype == wf.float32 and out.tolist() == [1.0, 2.5]


def test_clip_ignores_integer_bounds_beyond_the_range_of_the_dtype():
    x = wf.tensor([5, 1, 255], dtype=wf.uint8)
    assert wf.clip(x, -3, 300).tolist() == [5, 1, 255] and wf.clip(x, -3, 300).dtype == wf.uint8
    for bounds in ({"min": 256}, {"max": -1}):
        with pytest.raises(OverflowError, match="is beyond every uint8"):
            wf.clip(x, **bounds)


@MODES
def test_clip_gives_the_gradient_of_a_tie_to_x(mode):
    x, low, high = [0.0, 1.0, 2.0, -1.0, 3.0], [0.0] * 5, [2.0] * 5
    both = mode(lambda x, low, high: wf.clip(x, low, high))
    assert _gradients(both, x, low, high) == [[1, 1, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1]]
    assert _gradients(mode(lambda x: wf.clip(x, 0.0, 2.0)), x) == [[1, 1, 1, 0, 0]]
    assert _gradients(mode(lambda x, low: wf.clip(x, low)), x, low) == [[1, 1, 1, 0, 1], [0, 0, 0, 1, 0]]
    assert _gradients(mode(lambda x, high: wf.clip(x, None, high)), x, high) == [[1, 1, 1, 1, 0], [0, 0, 0, 0, 1]]


def test_clip_with_crossed_or_equal_bounds_differentiates_as_pytorch_does():
    crossed = _gradients(lambda x, low, high: wf.clip(x, low, high), [0.0, 1.5, 3.0], [2.0] * 3, [1.0] * 3)
    assert crossed == [[0, 0, 0], [0, 0, 0], [1, 1, 1]]
    assert _gradients(lambda x, low, high: wf.clip(x, low, high), [1.0], [1.0], [1.0]) == [[1], [0], [0]]
    assert _gradients(lambda x: wf.clip(x, 2.0, 1.0), [0.0, 1.5, 3.0]) == [[0, 0, 0]]


@MODES
def test_cosine_similarity_spreads_the_reduced_axis_before_it_measures(mode):
    cosine = mode(lambda x, y: F.cosine_similarity(x, y))
    np.testing.assert_allclose(cosine(wf.ones(2, 1), wf.ones(2, 2)).numpy(), [1, 1], rtol=1e-6)
    out = cosine(wf.tensor([[1.0], [2.0]]), wf.tensor([[3.0, 4.0], [5.0, 6.0]]))
    np.testing.assert_allclose(out.numpy(), [7 / math.sqrt(50), 11 / math.sqrt(122)], rtol=1e-6)


@MODES
def test_mean_as_integers_is_refused(mode):
    with pytest.raises(TypeError, match="mean: dtype must be floating or complex. Got int64"):
        mode(lambda x: wf.mean(x, dtype=wf.int64))(wf.tensor([1.5, 2.5]))
    with pytest.raises(TypeError, match="mean: dtype must be floating or complex. Got bool"):
        wf.tensor([1, 2]).mean(dtype=wf.bool)


@MODES
def test_std_of_equal_numbers_has_gradient_zero(mode):
    for correction in (0, 1):
        assert _gradients(mode(lambda x, c=correction: wf.std(x, correction=c)), [2.0, 2.0, 2.0]) == [[0, 0, 0]]
    assert _gradients(mode(lambda x: wf.std(x, axis=1)), [[2.0, 2.0], [1.0, 3.0]]) == [[[0, 0], [-0.5, 0.5]]]
    assert np.isnan(_gradients(lambda x: wf.std(x, correction=1), [2.0])).all()


def test_pairwise_distance_of_complex_numbers_is_real():
    x, y = np.array([[3 + 4j, 1j]]), np.array([[1 + 1j, 2j]])
    for p in (1.0, 2.0, 3.0, math.inf):
        out = F.pairwise_distance(wf.asarray(x), wf.asarray(y), p)
        assert out.dtype == wf.float64
        np.testing.assert_allclose(out.numpy(), np.linalg.norm(np.abs(x - y + 1e-6), p, -1), rtol=1e-12)
    a = wf.asarray(x).requires_grad_()
    (g,) = wf.grad(F.pairwise_distance(a, wf.asarray(y), eps=0.0).sum(), [a])
    np.testing.assert_allclose(g.numpy(), (x - y) / np.sqrt(14), rtol=1e-12)  # 14 = |2 + 3j|² + |-1j|²


def test_normalize_of_complex_numbers_divides_by_the_norm_of_the_moduli():
    out = F.normalize(wf.asarray(np.array([[3 + 4j, 12j]])))
    np.testing.assert_allclose(out.numpy(), np.array([[3 + 4j, 12j]]) / 13, rtol=1e-12)


def test_sign_of_complex_numbers_has_the_gradient_of_a_direction():
    z = wf.asarray(np.array([3 + 4j, 0j, 1 + 0j])).requires_grad_()
    s = wf.sign(z)
    np.testing.assert_allclose(s.detach().numpy(), [0.6 + 0.8j, 0, 1], rtol=1e-12)
    (g,) = wf.grad(wf.real(s).sum() + 2 * wf.imag(s).sum(), [z])
    np.testing.assert_allclose(g.numpy(), [-0.064 + 0.048j, 0, 2j], rtol=1e-12, atol=1e-15)  # PyTorch's sgn
