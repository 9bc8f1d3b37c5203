"""The fft namespace: values against NumPy, sizes and norms, dtypes, and gradients of all transforms."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf

ONE = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
MANY = ["fftn", "ifftn", "rfftn", "irfftn"]
REAL_INPUT = {"rfft", "ihfft", "rfftn"}


def _input(name, *shape):
    rng = np.random.default_rng(len(name))
    x = rng.standard_normal(shape)
    return x if name in REAL_INPUT else x + 1j * rng.standard_normal(shape)


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("options", [{}, {"n": 4}, {"n": 9}, {"axis": 0}])
@pytest.mark.parametrize("name", ONE)
def test_one_axis_equals_numpy(name, options, norm):
    x = _input(name, 5, 6)
    got = getattr(wf.fft, name)(wf.asarray(x), norm=norm, **options)
    np.testing.assert_allclose(got.numpy(), getattr(np.fft, name)(x, norm=norm, **options), atol=1e-12)


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("options", [{}, {"s": (3, 7), "axes": (0, 1)}, {"axes": (1,)}, {"s": (-1, 4), "axes": (1, 2)}])
@pytest.mark.parametrize("name", MANY)
def test_several_axes_equal_numpy(name, options, norm):
    x = _input(name, 3, 4, 5)
    got = getattr(wf.fft, name)(wf.asarray(x), norm=norm, **options)
    np.testing.assert_allclose(got.numpy(), getattr(np.fft, name)(x, norm=norm, **options), atol=1e-12)


@pytest.mark.parametrize("n", [4, 5, None])
@pytest.mark.parametrize("name", ONE)
def test_gradient_of_one_axis(name, n):
    x = wf.asarray(_input(name, 2, 4)).requires_grad_()
    assert wf.gradcheck(lambda x: getattr(wf.fft, name)(x, n=n, norm="ortho"), (x,))


@pytest.mark.parametrize("name", MANY)
def test_gradient_of_several_axes(name):
    x = wf.asarray(_input(name, 2, 3, 4)).requires_grad_()
    assert wf.gradcheck(lambda x: getattr(wf.fft, name)(x, s=(3, 5), axes=(1, 2)), (x,))


def test_single_precision_stays_single():
    x = wf.ones(4)
    assert wf.fft.fft(x).dtype == wf.fft.rfft(x).dtype == wf.complex64
    assert wf.fft.irfft(wf.fft.rfft(x)).dtype == wf.float32
    assert wf.fft.rfft(wf.ones(4, dtype=wf.float64)).dtype == wf.complex128
    assert wf.fft.fft(wf.arange(4)).dtype == wf.complex64
    assert wf.fft.rfft(wf.ones(4, dtype=wf.bfloat16)).dtype == wf.complex64


def test_frequencies_and_shifts():
    assert wf.fft.fftfreq(5, d=0.5).tolist() == pytest.approx(np.fft.fftfreq(5, 0.5).tolist())
    assert wf.fft.rfftfreq(4, dtype=wf.float64).dtype == wf.float64
    x = np.arange(15).reshape(3, 5)
    for options in ({}, {"axes": 1}, {"axes": (0, 1)}):
        np.testing.assert_array_equal(wf.fft.fftshift(wf.asarray(x), **options).numpy(), np.fft.fftshift(x, **options))
        there_and_back = wf.fft.ifftshift(wf.fft.fftshift(wf.asarray(x), **options), **options)
        np.testing.assert_array_equal(there_and_back.numpy(), x)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: wf.fft.fft(x, norm="none"), ValueError, "fft: norm must be 'backward', 'ortho' or 'forward'"),
        (lambda x: wf.fft.fft(x, n=0), ValueError, "fft: n must be at least 1"),
        (lambda x: wf.fft.rfft(x * 1j), TypeError, "rfft: expected a real tensor"),
        (lambda x: wf.fft.fftn(x, s=(2,), axes=(0, 1)), ValueError, "fftn: s and axes must be equally many"),
        (lambda x: wf.fft.ifft(x, axis=2), IndexError, "ifft: axis 2 is out of range"),
        (lambda x: wf.fft.irfft(x[:, :1]), ValueError, "irfft: n must be at least 1"),
        (lambda x: wf.fft.fftfreq(0), ValueError, "fftfreq: n must be at least 1"),
        (lambda x: wf.fft.rfftn(x, axes=()), ValueError, "rfftn: at least one axis"),
        (lambda x: wf.fft.fft("x"), TypeError, "fft: x must be a tensor. Got str"),
    ],
)
def test_bad_arguments(call, error, match):
    with pytest.raises(error, match=match):
        call(wf.ones((2, 3)))
