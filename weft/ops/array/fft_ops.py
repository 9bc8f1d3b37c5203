"""Discrete Fourier transforms: complex, real-to-complex and complex-to-real primitives with gradients.

The DFT matrix is symmetric, so the transpose of a complex transform is the transform itself. A real transform keeps half
of the frequencies: its transpose zero-pads and takes the real part. The inverse real transform uses each kept frequency
twice, except the first and (for even lengths) the last.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ..core.define import constant, primitive
from ..core.samples import Bad, Sample
from ..core.slow_path import check_memory
from ..core.spec import Spec, check_size, normalize_axes, normalize_axis, same_size
from .elementwise import astype, conj, real
from .indexing import Slice, put_into_zeros, slice_axis

NORMS = ("backward", "ortho", "forward")
_SWAPPED = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def check_norm(name: str, norm: Any) -> str:
    if norm not in NORMS:
        raise ValueError(f"{name}: norm must be 'backward', 'ortho' or 'forward'. Got {norm!r}.")
    return norm


def _cost(x: Any, *_: Any) -> int:
    n = 5
    for d in x.shape:
        n *= d
    return n * max(max((int(d).bit_length() for d in x.shape), default=1), 1)


def resize(x: Tensor, axis: int, n: int) -> Tensor:
    """Truncate or zero-pad `x` at the end of `axis` to size `n`."""
    have = x.shape[axis]
    if have == n:
        return x
    if have > n:
        return slice_axis(x, axis, 0, n)
    shape = (*x.shape[:axis], n, *x.shape[axis + 1 :])
    return put_into_zeros(x, shape, (Slice(None, None, None),) * axis + (Slice(0, have, None),))


# Complex to complex --------------------------------------------------------------------------------------------------------


def _infer_complex(x: Any, axes: Any, inverse: bool, norm: str) -> Spec:
    if not dtypes.is_complex(x.dtype):
        raise TypeError(f"fft: expected a complex tensor. Got {x.dtype.name}.")
    for a in normalize_axes("fft", axes, x.ndim, "axes"):
        if x.shape is not None and x.shape[a] == 0:
            raise ValueError(f"fft: cannot transform axis {a} of size 0. Got shape {format_shape(x.shape)}.")
    return Spec(x.shape, x.dtype)


def _complex(x: Any, axes: tuple[int, ...], inverse: bool = False, norm: str = "backward") -> np.ndarray:
    if not axes:
        return np.array(x)
    return (np.fft.ifftn if inverse else np.fft.fftn)(x, axes=axes, norm=norm).astype(x.dtype, copy=False)  # type: ignore[arg-type]


def _complex_samples(m: Any) -> list[Sample]:
    def z(*shape: int) -> np.ndarray:
        return m.normal(*shape) + 1j * m.normal(*shape)

    return [
        Sample(z(5), (0,)),
        Sample(z(2, 4), (-1,), True),
        Sample(z(3, 4), (0, 1), False, "ortho"),
        Sample(z(2, 3, 2), (1,), True, "forward"),
    ]


def _shift(axes: Any, n: int) -> tuple[int, ...]:
    return tuple([a % n + 1 for a in axes])


@primitive(
    autocast="float32",
    infer=_infer_complex,
    title="fft",
    namespace="internal",
    vjp=lambda g, axes, inverse, norm: fft_complex(g, axes, inverse, norm),
    batch=lambda axes, tensors, attrs: fft_complex(tensors[0], _shift(attrs[0], tensors[0].ndim - 1), *attrs[1:]),
    cost=_cost,
    reference=_complex,
    samples=_complex_samples,
    errors=lambda m: [
        Bad(TypeError, "fft: expected a complex tensor", m.normal(3), (0,)),
        Bad(IndexError, "fft: axes 1", np.ones(3, complex), (1,)),
    ],
    tolerance=5,
)
def fft_complex(x: Tensor, axes: tuple[int, ...], inverse: bool = False, norm: str = "backward") -> Any:
    """Discrete Fourier transform (or its inverse) of a complex tensor over `axes`."""
    return _complex(x, axes, inverse, norm)


# Real to half-complex --------------------------------------------------------------------------------------------------------


def _infer_real(x: Any, axis: int, norm: str) -> Spec:
    if not dtypes.is_floating(x.dtype):
        raise TypeError(f"rfft: expected a real floating tensor. Got {x.dtype.name}.")
    if x.shape is None:
        return Spec(None, dtypes.complex_dtype(x.dtype))
    axis = normalize_axis("rfft", axis, x.ndim)
    n = x.shape[axis]
    if n == 0:
        raise ValueError(f"rfft: cannot transform axis {axis} of size 0. Got shape {format_shape(x.shape)}.")
    half = n // 2 + 1 if isinstance(n, int) else None
    return Spec((*x.shape[:axis], half, *x.shape[axis + 1 :]), dtypes.complex_dtype(x.dtype))


def _real(x: Any, axis: int, norm: str = "backward") -> np.ndarray:
    return np.fft.rfft(x, axis=axis, norm=norm).astype(dtypes.complex_dtype(x.dtype), copy=False)  # type: ignore[arg-type]


def _real_rule(g: Tensor, like_x: Any, axis: int, norm: str) -> Tensor:
    axis = axis % len(like_x.shape)
    full = fft_complex(resize(g, axis, like_x.shape[axis]), (axis,), False, norm)
    return astype(real(full), like_x.dtype)


@primitive(
    autocast="float32",
    infer=_infer_real,
    title="rfft",
    namespace="internal",
    vjp=_real_rule,
    batch=lambda axes, tensors, attrs: fft_real(tensors[0], attrs[0] % (tensors[0].ndim - 1) + 1, attrs[1]),
    cost=_cost,
    reference=_real,
    samples=lambda m: [
        Sample(m.normal(5), 0),
        Sample(m.normal(2, 4), -1, "ortho"),
        Sample(m.normal(6, 2), 0, "forward"),
        Sample(m.normal(1), 0),
    ],
    errors=lambda m: [Bad(TypeError, "rfft: expected a real floating tensor", np.ones(3, complex), 0)],
    tolerance=5,
)
def fft_real(x: Tensor, axis: int, norm: str = "backward") -> Any:
    """Fourier transform of a real tensor along `axis`: the n // 2 + 1 non-redundant frequencies."""
    return _real(x, axis, norm)


# Half-complex to real ----------------------------------------------------------------------------------------------------------


def _infer_back(x: Any, n: int, axis: int, norm: str) -> Spec:
    if not dtypes.is_complex(x.dtype):
        raise TypeError(f"irfft: expected a complex tensor. Got {x.dtype.name}.")
    dtype = dtypes.real_dtype(x.dtype)
    n = check_size("irfft", n, "n", 1)
    if x.shape is None:
        return Spec(None, dtype)
    axis = normalize_axis("irfft", axis, x.ndim)
    if not same_size(x.shape[axis], n // 2 + 1):
        raise ValueError(f"irfft: {n} values need {n // 2 + 1} frequencies. Got {x.shape[axis]} along axis {axis}.")
    return Spec((*x.shape[:axis], n, *x.shape[axis + 1 :]), dtype)


def _back(x: Any, n: int, axis: int, norm: str = "backward") -> np.ndarray:
    return np.fft.irfft(x, n, axis, norm).astype(dtypes.real_dtype(x.dtype), copy=False)  # type: ignore[arg-type]


def _back_rule(g: Tensor, like_x: Any, n: int, axis: int, norm: str) -> Tensor:
    axis = axis % len(like_x.shape)
    check_memory("irfft", (n // 2 + 1,), like_x.dtype)
    weights = np.full(n // 2 + 1, 2.0, dtypes.real_dtype(like_x.dtype))
    weights[0] = 1
    if n % 2 == 0:
        weights[-1] = 1
    shape = [1] * len(like_x.shape)
    shape[axis] = n // 2 + 1
    return conj(fft_real(g, axis, _SWAPPED[norm])) * constant(weights.reshape(shape))


@primitive(
    autocast="float32",
    infer=_infer_back,
    title="irfft",
    namespace="internal",
    vjp=_back_rule,
    batch=lambda axes, tensors, attrs: fft_back_to_real(
        tensors[0], attrs[0], attrs[1] % (tensors[0].ndim - 1) + 1, attrs[2]
    ),
    cost=_cost,
    reference=_back,
    samples=lambda m: [
        Sample(m.normal(3) + 1j * m.normal(3), 5, 0),
        Sample(m.normal(3) + 1j * m.normal(3), 4, 0, "ortho"),
        Sample(m.normal(2, 4) + 1j * m.normal(2, 4), 6, -1, "forward"),
        Sample(m.normal(1) + 1j * m.normal(1), 1, 0),
    ],
    errors=lambda m: [Bad(ValueError, "irfft: 5 values need 3 frequencies", np.ones(4, complex), 5, 0)],
    tolerance=5,
)
def fft_back_to_real(x: Tensor, n: int, axis: int, norm: str = "backward") -> Any:
    """Inverse of `fft_real`: `n` real values from n // 2 + 1 frequencies along `axis`."""
    return _back(x, n, axis, norm)
