"""Approximate and whole-tensor comparison, NaN replacement and linear interpolation."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...tensor import Tensor
from ...typing import Operand
from ..core.define import composite, constant
from ..core.samples import Bad, Sample
from ..core.spec import number, require_sizes
from .creation import asarray
from .elementwise import abs_, equal, isfinite, isnan, logical_not, make_complex, where
from .elementwise import imag as imag_part
from .elementwise import real as real_part
from .reduction import all_


def _close_samples(m: Any) -> list[Sample]:
    x = m.normal(2, 3)
    return [
        Sample(x, x + 1e-7),
        Sample(x, x + 1e-7, rtol=0.0, atol=1e-9),
        Sample(np.array([1.0, np.nan, np.inf, -np.inf]), np.array([1.0, np.nan, np.inf, np.inf])),
        Sample(np.array([1.0, np.nan]), np.array([1.0, np.nan]), equal_nan=True),
        Sample(np.array([1, 2]), np.array([1, 3])),
        Sample(m.normal(0), m.normal(0)),
    ]


def _operands(x1: Any, x2: Any) -> tuple[Tensor, Tensor]:
    a = x1 if isinstance(x1, Tensor) else asarray(x1)
    return a, x2 if isinstance(x2, Tensor) else asarray(x2)


@composite(
    accumulate="float32",
    reference=np.isclose,
    samples=_close_samples,
    errors=lambda m: [Bad(ValueError, "isclose: shapes do not broadcast", m.normal(2), m.normal(3))],
    test={"no_gradient": True, "dtypes": ("float64",)},
)
def isclose(x1: Tensor, x2: Tensor, /, rtol: float = 1e-5, atol: float = 1e-8, *, equal_nan: bool = False) -> Tensor:
    """Whether elements differ by at most `atol + rtol * abs(x2)`.

    Equal infinities are close; NaNs are close to each other only with `equal_nan`.

    >>> wf.isclose(wf.tensor([1.0, 2.0]), wf.tensor([1.0000001, 2.1]))
    tensor([ True, False])
    """
    number("isclose", "rtol", rtol, least=0)
    number("isclose", "atol", atol, least=0)
    a, b = _operands(x1, x2)
    if not dtypes.is_inexact(dtypes.promote(a.dtype, b.dtype)):
        a, b = a.astype(dtypes.float64), b.astype(dtypes.float64)
    finite = isfinite(b)
    near = abs_(where(finite, a, 0.0) - where(finite, b, 0.0)) <= abs_(where(finite, b, 0.0)) * rtol + atol
    close = where(finite & isfinite(a), near, equal(a, b))
    return close | (isnan(a) & isnan(b)) if equal_nan else close


@composite(
    accumulate="float32",
    reference=lambda *args, **kwargs: np.asarray(np.allclose(*args, **kwargs)),
    samples=_close_samples,
    test={"no_gradient": True, "dtypes": ("float64",)},
)
def allclose(x1: Tensor, x2: Tensor, /, rtol: float = 1e-5, atol: float = 1e-8, *, equal_nan: bool = False) -> Tensor:
    """Whether all elements are close (see `isclose`), as a 0-d bool tensor.

    >>> wf.allclose(wf.ones(2), wf.ones(2) + 1e-9)
    tensor(True)
    """
    return all_(isclose(x1, x2, rtol, atol, equal_nan=equal_nan))


@composite(
    reference=lambda x1, x2, equal_nan=False: np.asarray(np.array_equal(x1, x2, equal_nan)),
    samples=lambda m: [
        Sample(np.array([1, 2]), np.array([1, 2])),
        Sample(np.array([1, 2]), np.array([1, 3])),
        Sample(m.normal(2), m.normal(3)),
        Sample(np.array([np.nan]), np.array([np.nan])),
        Sample(np.array([np.nan]), np.array([np.nan]), equal_nan=True),
    ],
    test={"no_gradient": True},
)
def array_equal(x1: Tensor, x2: Tensor, /, *, equal_nan: bool = False) -> Tensor:
    """Whether two tensors have the same shape and equal elements, as a 0-d bool tensor.

    >>> wf.array_equal(wf.zeros(2), wf.zeros(3))
    tensor(False)
    """
    a, b = _operands(x1, x2)
    require_sizes("array_equal", a, b)
    if tuple(a.shape) != tuple(b.shape):
        return constant(np.zeros((), np.bool_))
    same = equal(a, b)
    return all_(same | (isnan(a) & isnan(b)) if equal_nan else same)


def _limits(dtype: np.dtype, posinf: Any, neginf: Any) -> tuple[Any, Any]:
    info = dtypes.finfo(dtype)
    return float(info.max) if posinf is None else posinf, float(info.min) if neginf is None else neginf


@composite(
    reference=np.nan_to_num,
    samples=lambda m: [
        Sample(np.array([1.0, np.nan, -2.0])),
        Sample(np.array([np.inf, -np.inf, np.nan]), nan=1.0, posinf=2.0, neginf=3.0),
        Sample(m.ints(3)),
        Sample(np.array([np.nan + 1j, 2.0])),
    ],
)
def nan_to_num(x: Tensor, /, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """Replace NaN and infinities by finite numbers: 0 and the largest and smallest finite ones by default.

    >>> wf.nan_to_num(wf.tensor([float("nan"), 1.0]))
    tensor([0., 1.])
    """
    if not dtypes.is_inexact(x.dtype):
        return x
    if dtypes.is_complex(x.dtype):
        return make_complex(
            nan_to_num(real_part(x), nan, posinf, neginf), nan_to_num(imag_part(x), nan, posinf, neginf)
        )
    high, low = _limits(x.dtype, posinf, neginf)
    bad = isnan(x)
    infinite = logical_not(isfinite(x)) & logical_not(bad)
    x = where(bad, nan, x)
    return where(infinite & (x > 0), high, where(infinite & (x < 0), low, x))


@composite(
    accumulate="float32",
    reference=lambda start, end, weight: start + weight * (end - start),
    samples=lambda m: [
        Sample(m.normal(3), m.normal(3), 0.25),
        Sample(m.normal(2, 3), m.normal(3), m.uniform(2, 1, low=0)),
    ],
)
def lerp(start: Tensor, end: Tensor, weight: Operand, /) -> Tensor:
    """Linear interpolation `start + weight * (end - start)`.

    >>> wf.lerp(wf.zeros(2), wf.tensor([2.0, 4.0]), 0.5)
    tensor([1., 2.])
    """
    return start + weight * (end - start)
