"""Conversions between dtypes, and between complex numbers and their parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from .... import dtypes
from ....tensor import Tensor
from ....typing import DeviceLike, DTypeLike
from ...core import scalar as s
from ...core.define import composite, primitive
from ...core.samples import Bad, Sample
from ...core.spec import Spec
from .transcendental import atan2

# Functions for users that are not ops; ops are public by their records.
__all__ = ["astype"]

# Casting ---------------------------------------------------------------------------------------------------------------


def _cast_array(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if dtypes.is_complex(x.dtype) and not dtypes.is_complex(dtype) and not dtypes.is_bool(dtype):
        raise TypeError(
            f"astype: a complex tensor cannot become {dtype.name}. Use `wf.real(x)`, `wf.imag(x)` or `wf.abs(x)`."
        )
    return dtypes.convert(x, dtype)


def _infer_cast(x: Any, dtype: np.dtype) -> Spec:
    if dtypes.is_complex(x.dtype) and not dtypes.is_complex(dtype) and not dtypes.is_bool(dtype):
        raise TypeError(
            f"astype: a complex tensor cannot become {dtype.name}. Use `wf.real(x)`, `wf.imag(x)` or `wf.abs(x)`."
        )
    return Spec(x.shape, dtype)


@primitive(
    accumulate="exact",
    namespace="internal",
    title="astype",
    checks_once=True,
    cost="each",
    infer=_infer_cast,
    element=lambda x, dtype: s.cast(x, dtype),
    identity="same spec",
    vjp=lambda g, like_x: _back_cast(g, like_x),
    batch="elementwise",
    reference=lambda x, dtype: x.astype(dtype),
    samples=lambda m: [
        Sample(m.normal(2, 3), dtypes.float64),
        Sample(m.ints(4), dtypes.float32),
        Sample(m.normal(3), dtypes.int64),
        Sample(m.normal(3), dtypes.bool_),
        Sample(m.normal(3), dtypes.complex128),
    ],
    errors=lambda m: [Bad(TypeError, "astype: a complex tensor", np.ones(2, "complex64"), dtypes.float32)],
    test={"dtypes": ("float64",)},
)
def cast(x: Tensor, dtype: np.dtype) -> Any:
    """Convert `x` to `dtype` (a Weft dtype object), always copying: the primitive behind `astype`."""
    return _cast_array(x, dtype)  # type: ignore[arg-type]


def _back_cast(g: Tensor, like: Any) -> Tensor:
    if dtypes.is_complex(g.dtype) and not dtypes.is_complex(like.dtype):
        g = real(g)
    return astype(g, like.dtype)


def astype(x: Tensor, dtype: DTypeLike, /, *, copy: bool = False, device: DeviceLike | None = None) -> Tensor:
    """Convert `x` to `dtype`; returns `x` itself if nothing changes and `copy` is false."""
    dtype = dtypes.as_dtype(dtype)
    if x.dtype == dtype and not copy:
        return x
    return cast(x, dtype)


# Complex numbers -------------------------------------------------------------------------------------------------------


def _infer_part(x: Any) -> Spec:
    return Spec(x.shape, dtypes.real_dtype(x.dtype))


def _to_complex(re: Any, im: Any) -> Any:
    return make_complex(re, im)


_complex_samples = [Sample(np.array([1 + 2j, -3 + 0.5j, 0.25 - 1j])), Sample(np.array([[1 + 1j], [2 - 1j]]))]


@primitive(
    accumulate="exact",
    checks_once=True,
    cost="each",
    infer=lambda x: Spec(x.shape, x.dtype), vjp=lambda g: conj(g), batch="elementwise", reference=np.conj,
    samples=lambda m: _complex_samples, test={"complex_only": True},
)  # fmt: skip
def conj(x: Tensor) -> Any:
    """Complex conjugate; real values are unchanged."""
    return np.conj(x) if x.dtype.kind == "c" else np.array(x)  # NumPy converts bools to int8


@primitive(
    accumulate="exact",
    checks_once=True,
    cost="each",
    infer=_infer_part, vjp=lambda g, like_x: _to_complex(g, g * 0) if dtypes.is_complex(like_x.dtype) else g,
    batch="elementwise", reference=np.real, samples=lambda m: _complex_samples, test={"complex_only": True},
)  # fmt: skip
def real(x: Tensor) -> Any:
    """Real part."""
    return np.array(np.real(x))


@primitive(
    accumulate="exact",
    checks_once=True,
    cost="each",
    infer=_infer_part, vjp=lambda g, like_x: _to_complex(g * 0, -g) if dtypes.is_complex(like_x.dtype) else g * 0,
    batch="elementwise", reference=np.imag, samples=lambda m: _complex_samples, test={"complex_only": True},
)  # fmt: skip
def imag(x: Tensor) -> Any:
    """Imaginary part; zeros for a real tensor."""
    return np.array(np.imag(x))


def _infer_complex(real: Any, imag: Any) -> Spec:
    from ...core.spec import broadcast_shapes

    if not dtypes.is_floating(real.dtype):
        raise TypeError(f"make_complex: expected real floating tensors. Got {real.dtype.name}.")
    return Spec(broadcast_shapes("make_complex", real.shape, imag.shape), dtypes.complex_dtype(real.dtype))


@primitive(
    accumulate="exact",
    cost="each",
    infer=_infer_complex, promote="real float", broadcasts=True, batch="elementwise",
    vjp=(lambda g: g.real_part(), lambda g: -g.imag_part()),
    reference=lambda re, im: re + 1j * im,
    samples=lambda m: [Sample(m.normal(3), m.normal(3)), Sample(m.normal(2, 1), m.normal(2))],
)  # fmt: skip
def make_complex(real: Tensor, imag: Tensor) -> Any:
    """Complex tensor with the given real and imaginary parts."""
    return np.asarray(real + 1j * imag, dtypes.complex_dtype(real.dtype))


@composite(reference=np.angle, samples=lambda m: _complex_samples, test={"complex_only": True})
def angle(x: Tensor) -> Tensor:
    """Phase of complex numbers, in [-π, π]."""
    return atan2(imag(x), real(x))
