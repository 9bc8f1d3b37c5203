"""Fourier transforms: the array API's `fft` extension, with gradients.

Real input is accepted where the standard requires complex input; float32 is transformed as complex64.

>>> wf.fft.rfft(wf.tensor([1.0, 0.0, 0.0, 0.0])).shape
(3,)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import dtypes as _dtypes
from .ops.array.creation import check_device as _check_device
from .ops.array.elementwise import astype as _astype
from .ops.array.elementwise import conj as _conj
from .ops.array.fft_ops import _SWAPPED
from .ops.array.fft_ops import check_norm as _check_norm
from .ops.array.fft_ops import fft_back_to_real as _back_to_real
from .ops.array.fft_ops import fft_complex as _complex
from .ops.array.fft_ops import fft_real as _real
from .ops.array.fft_ops import resize as _resize
from .ops.array.repeating import roll as _roll
from .ops.core.define import constant as _constant
from .ops.core.error_names import public as _public
from .ops.core.slow_path import check_memory as _check_memory
from .ops.core.spec import check_size as _check_size
from .ops.core.spec import normalize_axes as _normalize_axes
from .ops.core.spec import normalize_axis as _normalize_axis
from .tensor import Tensor
from .typing import DeviceLike, DTypeLike

Axes = Sequence[int] | None
Sizes = Sequence[int] | None


def _as_complex(x: Tensor) -> Tensor:
    dtype = _dtypes.float_for(x.dtype)
    return _astype(x, dtype if _dtypes.is_complex(dtype) else _dtypes.complex_dtype(dtype))


def _as_real(name: str, x: Tensor) -> Tensor:
    if _dtypes.is_complex(x.dtype):
        raise TypeError(f"{name}: expected a real tensor. Got {x.dtype.name}; use `wf.fft.fft` for complex ones.")
    return _astype(x, _dtypes.float_for(x.dtype))


def _size(name: str, n: Any, default: int) -> int:
    return _check_size(name, default if n is None else n, "n", 1)


def _shape_and_axes(name: str, x: Tensor, s: Sizes, axes: Axes) -> tuple[list[int], tuple[int, ...]]:
    """The sizes to transform to and the axes to transform: the last ones if only sizes are given."""
    if isinstance(axes, int) or isinstance(s, int):
        raise TypeError(f"{name}: s and axes must be sequences of integers. Got s={s!r} and axes={axes!r}.")
    if axes is None:
        axes = tuple(range(x.ndim)) if s is None else tuple(range(x.ndim - len(s), x.ndim))
    places = _normalize_axes(name, tuple(axes), x.ndim, "axes")
    if s is None:
        s = [x.shape[a] for a in places]
    if len(s) != len(places):
        raise ValueError(f"{name}: s and axes must be equally many. Got {len(s)} sizes for {len(places)} axes.")
    sizes = [x.shape[a] if n == -1 else n for n, a in zip(s, places, strict=True)]  # -1 keeps a size
    return [_check_size(name, n, "s", 1) for n in sizes], places


def _one(name: str, x: Tensor, n: Any, axis: int, norm: str, inverse: bool) -> Tensor:
    _check_norm(name, norm)
    axis = _normalize_axis(name, axis, x.ndim)
    return _complex(_resize(_as_complex(x), axis, _size(name, n, x.shape[axis])), (axis,), inverse, norm)


def _many(name: str, x: Tensor, s: Sizes, axes: Axes, norm: str, inverse: bool) -> Tensor:
    _check_norm(name, norm)
    sizes, places = _shape_and_axes(name, x, s, axes)
    x = _as_complex(x)
    for n, a in zip(sizes, places, strict=True):
        x = _resize(x, a, n)
    return _complex(x, places, inverse, norm)


def fft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """Discrete Fourier transform along `axis`.

    Args:
        x: any shape; real input is converted to complex.
        n: the length to which `axis` is truncated or zero-padded first.
        axis: the axis to transform.
        norm: which direction is divided by n: "backward" (the inverse), "forward", or "ortho" (both by √n).

    >>> wf.fft.fft(wf.ones(4)).abs()
    tensor([4., 0., 0., 0.])
    """
    return _one("fft", x, n, axis, norm, False)


def ifft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """Inverse of `fft`.

    >>> wf.fft.ifft(wf.fft.fft(wf.ones(3))).real
    tensor([1., 1., 1.])
    """
    return _one("ifft", x, n, axis, norm, True)


def fftn(x: Tensor, /, *, s: Sizes = None, axes: Axes = None, norm: str = "backward") -> Tensor:
    """Discrete Fourier transform over several axes.

    Args:
        x: any shape; real input is converted to complex.
        s: the sizes to which `axes` are truncated or zero-padded first.
        axes: the axes to transform; all by default.
        norm: see `fft`.

    >>> wf.fft.fftn(wf.ones(2, 2)).abs()
    tensor([[4., 0.],
            [0., 0.]])
    """
    return _many("fftn", x, s, axes, norm, False)


def ifftn(x: Tensor, /, *, s: Sizes = None, axes: Axes = None, norm: str = "backward") -> Tensor:
    """Inverse of `fftn`."""
    return _many("ifftn", x, s, axes, norm, True)


def rfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """Fourier transform of a real tensor along `axis`: the n // 2 + 1 non-redundant frequencies.

    >>> wf.fft.rfft(wf.ones(4)).abs()
    tensor([4., 0., 0.])
    """
    _check_norm("rfft", norm)
    x = _as_real("rfft", x)
    axis = _normalize_axis("rfft", axis, x.ndim)
    return _real(_resize(x, axis, _size("rfft", n, x.shape[axis])), axis, norm)


def irfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """Inverse of `rfft`: `n` real values (2 (m - 1) for m frequencies by default).

    >>> wf.fft.irfft(wf.fft.rfft(wf.ones(4)))
    tensor([1., 1., 1., 1.])
    """
    return _irfft("irfft", _as_complex(x), n, axis, _check_norm("irfft", norm))


def _irfft(name: str, x: Tensor, n: Any, axis: int, norm: str) -> Tensor:
    axis = _normalize_axis(name, axis, x.ndim)
    n = _size(name, n, 2 * (x.shape[axis] - 1))
    return _back_to_real(_resize(x, axis, n // 2 + 1), n, axis, norm)


def rfftn(x: Tensor, /, *, s: Sizes = None, axes: Axes = None, norm: str = "backward") -> Tensor:
    """Fourier transform of a real tensor over several `axes`; the last keeps n // 2 + 1 frequencies."""
    _check_norm("rfftn", norm)
    x = _as_real("rfftn", x)
    sizes, places = _shape_and_axes("rfftn", x, s, axes)
    if not places:
        raise ValueError("rfftn: at least one axis must be transformed. Got axes=().")
    for n, a in zip(sizes, places, strict=True):
        x = _resize(x, a, n)
    half = _real(x, places[-1], norm)
    return _complex(half, places[:-1], False, norm) if len(places) > 1 else half


def irfftn(x: Tensor, /, *, s: Sizes = None, axes: Axes = None, norm: str = "backward") -> Tensor:
    """Inverse of `rfftn`: real values, by default 2 (m - 1) along the last axis for m frequencies."""
    _check_norm("irfftn", norm)
    sizes, places = _shape_and_axes("irfftn", x, s, axes)
    if not places:
        raise ValueError("irfftn: at least one axis must be transformed. Got axes=().")
    last = sizes[-1] if s is not None else _size("irfftn", None, 2 * (sizes[-1] - 1))
    x = _as_complex(x)
    for n, a in zip([*sizes[:-1], last // 2 + 1], places, strict=True):
        x = _resize(x, a, n)
    if len(places) > 1:
        x = _complex(x, places[:-1], True, norm)
    return _back_to_real(x, last, places[-1], norm)


def fft2(x: Tensor, /, *, s: Sizes = None, axes: Axes = (-2, -1), norm: str = "backward") -> Tensor:
    """Discrete Fourier transform over two axes, the last by default. Takes the arguments of `fftn`.

    >>> wf.fft.fft2(wf.ones(2, 2)).real.tolist()
    [[4.0, 0.0], [0.0, 0.0]]
    """
    return fftn(x, s=s, axes=axes, norm=norm)


def ifft2(x: Tensor, /, *, s: Sizes = None, axes: Axes = (-2, -1), norm: str = "backward") -> Tensor:
    """Inverse of `fft2`.

    >>> wf.fft.ifft2(wf.fft.fft2(wf.ones(2, 2))).real.tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return ifftn(x, s=s, axes=axes, norm=norm)


def rfft2(x: Tensor, /, *, s: Sizes = None, axes: Axes = (-2, -1), norm: str = "backward") -> Tensor:
    """Transform of real input over two axes; the last one gets half the frequencies.

    >>> wf.fft.rfft2(wf.ones(2, 4)).shape
    (2, 3)
    """
    return rfftn(x, s=s, axes=axes, norm=norm)


def irfft2(x: Tensor, /, *, s: Sizes = None, axes: Axes = (-2, -1), norm: str = "backward") -> Tensor:
    """Inverse of `rfft2`.

    >>> wf.fft.irfft2(wf.fft.rfft2(wf.ones(2, 4))).tolist()
    [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]
    """
    return irfftn(x, s=s, axes=axes, norm=norm)


def hfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """Fourier transform of a Hermitian-symmetric signal given by its first half; the result is real."""
    return _irfft("hfft", _conj(_as_complex(x)), n, axis, _SWAPPED[_check_norm("hfft", norm)])


def ihfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """Inverse of `hfft`: the first half of a Hermitian-symmetric signal, from real values."""
    _check_norm("ihfft", norm)
    x = _as_real("ihfft", x)
    axis = _normalize_axis("ihfft", axis, x.ndim)
    return _conj(_real(_resize(x, axis, _size("ihfft", n, x.shape[axis])), axis, _SWAPPED[norm]))


def _frequencies(name: str, n: Any, d: Any, dtype: Any, device: Any, function: Any) -> Tensor:
    _check_device(name, device)
    n = _check_size(name, n, "n", 1)
    if isinstance(d, bool) or not isinstance(d, (int, float)) or d == 0:
        raise ValueError(f"{name}: d must be a number other than 0. Got {d!r}.")
    resolved = _dtypes.get_default_dtype() if dtype is None else _dtypes.as_dtype(dtype)
    if not _dtypes.is_floating(resolved):
        raise TypeError(f"{name}: dtype must be a real floating dtype. Got {resolved.name}.")
    _check_memory(name, (n,), resolved, 2 * 8 * n)
    return _constant(function(n, d).astype(resolved))


def fftfreq(n: int, /, *, d: float = 1.0, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """Frequencies of `fft` for `n` samples with spacing `d`, in cycles per unit of `d`.

    >>> wf.fft.fftfreq(4)
    tensor([ 0.  ,  0.25, -0.5 , -0.25])
    """
    return _frequencies("fftfreq", n, d, dtype, device, np.fft.fftfreq)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """Frequencies of `rfft` for `n` samples with spacing `d`, in cycles per unit of `d`.

    >>> wf.fft.rfftfreq(4)
    tensor([0.  , 0.25, 0.5 ])
    """
    return _frequencies("rfftfreq", n, d, dtype, device, np.fft.rfftfreq)


def _shift(name: str, x: Tensor, axes: Any, back: bool) -> Tensor:
    if x.ndim is None:
        raise ValueError(f"{name}: the number of axes must be known. Got a tensor of unknown rank.")
    places = _normalize_axes(name, axes if axes is None or isinstance(axes, int) else tuple(axes), x.ndim, "axes")
    if not places:
        return x
    return _roll(x, tuple([-(x.shape[a] // 2) if back else x.shape[a] // 2 for a in places]), axis=places)


def fftshift(x: Tensor, /, *, axes: int | Axes = None) -> Tensor:
    """Shift the zero frequency to the centre of `axes` (all by default).

    >>> wf.fft.fftshift(wf.arange(4))
    tensor([2, 3, 0, 1])
    """
    return _shift("fftshift", x, axes, False)


def ifftshift(x: Tensor, /, *, axes: int | Axes = None) -> Tensor:
    """Inverse of `fftshift`."""
    return _shift("ifftshift", x, axes, True)


__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "irfft", "irfft2",
    "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

globals().update({name: _public(globals()[name]) for name in __all__ if name[0].islower()})  # see Note [Named errors]
