"""Batch normalisation against NumPy in float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from weft.backends.onednn import eager
from weft.backends.onednn.capi import Unsupported
from weft.backends.onednn.eager.staging import is_channels_last

EPSILON = 1e-3


def random(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def check(actual: np.ndarray, expected: np.ndarray, tolerance: float = 2e-5) -> None:
    assert actual.shape == expected.shape
    np.testing.assert_allclose(
        actual, expected, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(expected).max()))
    )


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    "shape", [(8, 5), (4, 16, 9), (3, 16, 7, 5), (2, 7, 5, 4), (2, 3, 4, 5, 3), (1, 64, 8, 8)]
)
def test_training_inference_and_gradients(
    rng: np.random.Generator, shape: tuple[int, ...], last: bool, relu: bool
) -> None:
    x, g, scale, shift = (
        random(rng, *shape) + 1,
        random(rng, *shape),
        random(rng, shape[1]),
        random(rng, shape[1]),
    )
    if last:
        x, g = (np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1) for array in (x, g))
    axes, column = (0, *range(2, len(shape))), (slice(None), *(None,) * (len(shape) - 2))
    mean, variance = x.astype(np.float64).mean(axes), x.astype(np.float64).var(axes)
    deviation = np.sqrt(variance + EPSILON)[column]
    normal = (x - mean[column]) / deviation
    linear = normal * scale[column] + shift[column]
    expected = np.maximum(linear, 0) if relu else linear

    y, found_mean, found_variance, workspace = eager.batch_norm_training(x, scale, shift, EPSILON, relu)
    check(y, expected)
    assert is_channels_last(y)
    check(found_mean, mean)
    check(found_variance, variance)
    assert (workspace is not None) == relu
    check(eager.batch_norm_inference(x, scale, shift, found_mean, found_variance, EPSILON, relu), expected)

    dx, dscale, dshift = eager.batch_norm_backward(
        g, x, scale, found_mean, found_variance, EPSILON, workspace
    )
    kept = np.where(linear > 0, g, 0.0) if relu else g.astype(np.float64)
    check(dshift, kept.sum(axes), 1e-4)
    check(dscale, (kept * normal).sum(axes), 1e-4)
    inner = kept - kept.mean(axes)[column] - normal * (kept * normal).mean(axes)[column]
    check(dx, scale[column] / deviation * inner, 1e-4)


def test_bfloat16_keeps_float32_statistics(rng: np.random.Generator) -> None:
    x = random(rng, 4, 16, 5, 5).astype(ml_dtypes.bfloat16)
    y, mean, variance, _ = eager.batch_norm_training(
        x, np.ones(16, np.float32), np.zeros(16, np.float32), EPSILON
    )
    assert y.dtype == x.dtype and mean.dtype == variance.dtype == np.float32
    check(mean, x.astype(np.float64).mean((0, 2, 3)), 1e-5)


def test_bad_arguments(rng: np.random.Generator) -> None:
    x, ones = random(rng, 2, 3, 4, 4), np.ones(3, np.float32)
    with pytest.raises(ValueError, match=r"scale has the wrong shape. Got \(4,\); expected \(3,\)"):
        eager.batch_norm_training(x, np.ones(4, np.float32), ones, EPSILON)
    with pytest.raises(TypeError, match="shift must be float32"):
        eager.batch_norm_training(x, ones, ones.astype(np.float64), EPSILON)
    with pytest.raises(ValueError, match="bad rank"):
        eager.batch_norm_training(x[0, 0, 0], ones, ones, EPSILON)
    with pytest.raises(ValueError, match="g has the wrong shape"):
        eager.batch_norm_backward(x[:1], x, ones, ones, ones, EPSILON)
    with pytest.raises(ValueError, match="not this forward's workspace"):
        eager.batch_norm_backward(x, x, ones, ones, ones, EPSILON, np.zeros(1, np.uint8))
    with pytest.raises(Unsupported):
        eager.batch_norm_training(x[:0], ones, ones, EPSILON)
    with pytest.raises(Unsupported):
        eager.batch_norm_inference(x.astype(np.float64), ones, ones, ones, ones, EPSILON)
