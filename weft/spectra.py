"""Short-time Fourier transforms under PyTorch's names, and the windows for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import dtypes, fft
from .errors import format_shape
from .ops.array import creation, gathering, shaping
from .ops.array.check_values import require
from .ops.array.elementwise import astype
from .ops.core import registry
from .tensor import Tensor
from .typing import DTypeLike

__all__ = ["bartlett_window", "blackman_window", "hamming_window", "hann_window", "istft", "stft"]


def _window(function: Any, n: int, periodic: bool, dtype: Any) -> Tensor:
    values = function(n + 1)[:-1] if periodic and n > 1 else function(n)
    return Tensor(values.astype(dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)))


def hann_window(window_length: int, periodic: bool = True, *, dtype: DTypeLike | None = None) -> Tensor:
    """The Hann window.

    >>> wf.hann_window(4)
    tensor([0. , 0.5, 1. , 0.5])
    """
    return _window(np.hanning, window_length, periodic, dtype)


def hamming_window(window_length: int, periodic: bool = True, *, dtype: DTypeLike | None = None) -> Tensor:
    """The Hamming window.

    >>> wf.hamming_window(2).shape
    (2,)
    """
    return _window(np.hamming, window_length, periodic, dtype)


def blackman_window(window_length: int, periodic: bool = True, *, dtype: DTypeLike | None = None) -> Tensor:
    """The Blackman window.

    >>> wf.blackman_window(3).shape
    (3,)
    """
    return _window(np.blackman, window_length, periodic, dtype)


def bartlett_window(window_length: int, periodic: bool = True, *, dtype: DTypeLike | None = None) -> Tensor:
    """The Bartlett (triangular) window.

    >>> wf.bartlett_window(4)
    tensor([0. , 0.5, 1. , 0.5])
    """
    return _window(np.bartlett, window_length, periodic, dtype)


def _centred_window(name: str, window: Tensor | None, win_length: int, n_fft: int, dtype: np.dtype) -> Tensor:
    """The window in the middle of a frame."""
    if not 0 < win_length <= n_fft:
        raise ValueError(f"{name}: win_length must be between 1 and n_fft = {n_fft}. Got {win_length}.")
    used = creation.ones(win_length, dtype=dtype) if window is None else window
    if used.shape != (win_length,):
        raise ValueError(f"{name}: the window must have the shape ({win_length},). Got {format_shape(used.shape)}.")
    left = (n_fft - win_length) // 2
    pad = registry.get("pad").call
    return pad(astype(used, dtype), ((left, n_fft - win_length - left),))


def stft(
    x: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool = True,
    return_complex: bool = True,
) -> Tensor:
    """The short-time Fourier transform of real signals.

    Args:
        x: (samples,) or (batch, samples).
        n_fft: samples in a frame.
        hop_length: samples between frames; a quarter of `n_fft` by default.
        win_length: samples under the window; `n_fft` by default.
        window: multiplied with every frame; ones by default.
        center: pad the signal so that frame t is centred at sample t * hop_length.
        pad_mode: how, "reflect" or "constant".
        normalized: divide by the root of `n_fft`.
        onesided: only the frequencies that are not mirrored.
        return_complex: False gives pairs (real, imaginary) in a last axis.

    Returns:
        (…, frequencies, frames).

    >>> wf.stft(wf.ones(16), n_fft=8).shape
    (5, 9)
    """
    hop = n_fft // 4 if hop_length is None else hop_length
    if x.ndim not in (1, 2) or dtypes.is_complex(x.dtype):
        raise ValueError(
            f"stft: expected real signals of shape (samples,) or (batch, samples). Got {format_shape(x.shape)}."
        )
    if hop < 1 or n_fft < 1:
        raise ValueError(f"stft: n_fft and hop_length must be positive. Got {n_fft} and {hop}.")
    used = _centred_window("stft", window, n_fft if win_length is None else win_length, n_fft, x.dtype)
    rows = shaping.reshape(x, (1, -1)) if x.ndim == 1 else x
    if center:
        rows = registry.get("pad").call(rows, ((0, 0), (n_fft // 2, n_fft // 2)), pad_mode)
    if rows.shape[1] < n_fft:
        raise ValueError(f"stft: the signal has {rows.shape[1]} samples, fewer than a frame of {n_fft}.")
    starts = np.arange(0, rows.shape[1] - n_fft + 1, hop)
    places = (starts[:, None] + np.arange(n_fft)).reshape(-1)
    frames = shaping.reshape(gathering.take(rows, Tensor(places), axis=1), (rows.shape[0], len(starts), n_fft)) * used
    found = fft.rfft(frames) if onesided else fft.fft(frames)
    if normalized:
        found = found / float(np.sqrt(n_fft))
    found = shaping.matrix_transpose(found)
    found = found[0] if x.ndim == 1 else found
    return found if return_complex else shaping.stack([found.real, found.imag], axis=-1)


def istft(
    x: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool = True,
    length: int | None = None,
) -> Tensor:
    """The real signals whose short-time Fourier transform is `x`: the inverse of `stft` with the same arguments.

    Args:
        x: complex, (frequencies, frames) or (batch, frequencies, frames).
        length: how many samples to return.

    >>> signal = wf.arange(16.0)
    >>> bool(wf.allclose(wf.istft(wf.stft(signal, 8), 8), signal, atol=1e-4))
    True
    """
    hop = n_fft // 4 if hop_length is None else hop_length
    batch = shaping.expand_dims(x, 0) if x.ndim == 2 else x
    spectra = shaping.matrix_transpose(batch)
    frames = fft.irfft(spectra, n=n_fft) if onesided else fft.ifft(spectra).real
    if normalized:
        frames = frames * float(np.sqrt(n_fft))
    used = _centred_window("istft", window, n_fft if win_length is None else win_length, n_fft, frames.dtype)
    count = frames.shape[1]
    total = n_fft + hop * (count - 1)
    places = Tensor((np.arange(count)[:, None] * hop + np.arange(n_fft)).reshape(-1))

    def overlap(values: Tensor, rows: int) -> Tensor:
        flat = shaping.reshape(values, (rows, count * n_fft))
        return gathering.index_add(creation.zeros((rows, total), dtype=frames.dtype), places, flat, 1)

    weights = overlap(shaping.broadcast_to(used * used, (1, count, n_fft)), 1)
    signal = overlap(frames * used, batch.shape[0])
    start = n_fft // 2 if center else 0
    stop = total - start if length is None else min(start + length, total)
    weights, signal = weights[:, start:stop], signal[:, start:stop]
    weights = require(
        weights,
        lambda w: w >= 1e-11,
        "istft: the windows leave samples uncovered. Use a smaller hop_length or another window.",
    )
    signal = signal / weights
    if length is not None and signal.shape[1] < length:
        signal = registry.get("pad").call(signal, ((0, 0), (0, length - signal.shape[1])))
    return signal[0] if x.ndim == 2 else signal
