"""Interpolation, padding and unfolding beyond the op table: layout, dtypes, identities, limits."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft.ops.array.padding import functional_pad, pad
from weft.ops.nn.interpolate import interpolate, resample, resample_backward, upsample
from weft.ops.nn.unfold import fold, pixel_shuffle, pixel_unshuffle, unfold
from weft.runtime import memory


def channels_last(shape):
    a = memory.empty_channels_last(shape)
    a[...] = np.random.default_rng(0).standard_normal(shape)
    return wf.asarray(a)


def is_channels_last(a):
    return a.transpose((0, *range(2, a.ndim), 1)).flags.c_contiguous


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic", "area"])
def test_interpolation_keeps_the_layout(mode):
    x = channels_last((2, 3, 5, 6)).requires_grad_()
    y = interpolate(x, (8, 9), mode=mode)
    assert is_channels_last(y.detach().numpy())
    y.sum().backward()
    assert is_channels_last(x.grad.numpy())
    np.testing.assert_allclose(x.grad.numpy().sum(), y.size, rtol=1e-4)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "area"])
def test_an_unchanged_size_changes_nothing(mode):
    x = channels_last((1, 2, 4, 5))
    np.testing.assert_array_equal(interpolate(x, (4, 5), mode=mode).numpy(), x.numpy())


def test_doubling_repeats_nearest_values():
    x = wf.asarray(np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3))
    np.testing.assert_array_equal(upsample(x, scale_factor=2).numpy()[0, 0], np.kron(x.numpy()[0, 0], np.ones((2, 2))))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "uint8"])
def test_dtypes_come_out_as_they_went_in(dtype):
    x = wf.arange(12).reshape(1, 1, 3, 4).astype(getattr(wf, dtype))
    assert interpolate(x, (6, 8)).dtype == x.dtype
    if dtype != "uint8":
        assert interpolate(x, (6, 8), mode="bilinear").dtype == x.dtype
        g = resample_backward(x, None, 2, 2, 3, "linear", False, None)
        assert g.dtype == x.dtype and g.shape == (1, 1, 2, 4)
    else:
        with pytest.raises(TypeError, match="expected a floating tensor. Got uint8"):
            interpolate(x, (6, 8), mode="bilinear")


def test_corners_align_or_do_not():
    x = wf.tensor([[[0.0, 1.0, 2.0]]])
    np.testing.assert_allclose(interpolate(x, 5, mode="linear", align_corners=True).numpy()[0, 0], [0, 0.5, 1, 1.5, 2])
    np.testing.assert_allclose(interpolate(x, 6, mode="linear").numpy()[0, 0], [0, 0.25, 0.75, 1.25, 1.75, 2])


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_padding_keeps_the_layout(mode):
    x = channels_last((2, 3, 5, 6)).requires_grad_()
    y = functional_pad(x, (1, 2, 2, 1), mode)
    assert y.shape == (2, 3, 8, 9) and is_channels_last(y.detach().numpy())
    (y * y).sum().backward()
    assert x.grad.shape == x.shape


def test_padding_of_integers_and_bools():
    assert pad(wf.arange(3), (1, 1), value=7).tolist() == [7, 0, 1, 2, 7]
    assert pad(wf.tensor([True]), 1).tolist() == [False, True, False]
    assert functional_pad(wf.arange(4), (-1, -1)).tolist() == [1, 2]


def test_huge_padding_is_refused_before_memory_is_gone():
    with pytest.raises(MemoryError):
        pad(wf.ones(2), 2**50)


def test_fold_adds_up_what_unfold_took_apart():
    x = channels_last((2, 3, 6, 6))
    np.testing.assert_allclose(fold(unfold(x, 2, stride=2), (6, 6), 2, stride=2).numpy(), x.numpy())
    counts = fold(unfold(wf.ones_like(x), 3, padding=1), (6, 6), 3, padding=1)
    np.testing.assert_allclose(counts[0, 0, 2, 2].item(), 9.0)


def test_pixel_shuffle_and_back():
    x = channels_last((2, 8, 3, 4))
    y = pixel_shuffle(x, 2)
    assert y.shape == (2, 2, 6, 8)
    np.testing.assert_array_equal(pixel_unshuffle(y, 2).numpy(), x.numpy())


@pytest.mark.parametrize("kind", ["nearest", "linear", "cubic", "area"])
@pytest.mark.parametrize("shape", [(2, 16, 9, 20), (1, 1, 9, 5)], ids=["many slices", "few slices"])
def test_gradients_of_resampling_are_its_transpose(kind, shape):
    rng = np.random.default_rng(0)
    x = wf.asarray(rng.standard_normal(shape))
    for axis, size in ((2, 23), (2, 4), (3, 7)):
        y = resample(x, axis, size, kind, False, None)
        v = wf.asarray(rng.standard_normal(y.shape))
        back = resample_backward(v, None, shape[axis], axis, size, kind, False, None)
        np.testing.assert_allclose((y * v).sum().item(), (x * back).sum().item(), rtol=1e-10)
