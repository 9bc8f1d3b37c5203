"""The exponential of matrices, by scaling and squaring."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...tensor import Tensor
from ..core.define import primitive
from ..core.samples import Bad, Sample
from ..core.spec import Spec
from .creation import zeros_like
from .indexing import slice_axis
from .linalg_solve import narrow, square_shape
from .shaping import concat, matrix_transpose

ndarray = np.ndarray
_TERMS = 18  # of the Taylor series; for a norm of at most 1/2 the rest is below the precision of float64


def exponential(x: Any) -> ndarray:
    """exp(x) of (batches of) matrices: the series of x / 2**s, which has a norm of at most 1/2, squared s times.

    Each matrix has an s of its own, so the result for one does not depend on the others.
    """
    unit = np.broadcast_to(np.eye(x.shape[-1], dtype=x.dtype), x.shape)
    if not x.size:
        return unit.copy()
    with np.errstate(all="ignore"):  # what is too large becomes infinite or NaN, as in `exp`
        norm = np.abs(x).sum(-2).max(-1)
        _, exponent = np.frexp(np.where(np.isfinite(norm), norm, 0))
        squarings = np.maximum(exponent + 1, 0)[..., None, None]
        scaled = (x * np.ldexp(1.0, -squarings)).astype(x.dtype, copy=False)
        total = unit + scaled / _TERMS
        for k in range(_TERMS - 1, 0, -1):
            total = unit + (scaled / k) @ total
        for i in range(int(squarings.max())):
            total = np.where(i < squarings, total @ total, total)
    return total


def _infer(x: Any) -> Spec:
    square_shape("matrix_exp", x)
    return Spec(x.shape, x.dtype)


def _rule(g: Any, x: Any) -> Any:
    """The exponential of [[a, g], [0, a]] has the derivative of exp at a in the direction g in its upper right corner."""
    a, n = matrix_transpose(x), x.shape[-1]
    upper, lower = concat((a, g), axis=-1), concat((zeros_like(a), a), axis=-1)
    block = matrix_exp(concat((upper, lower), axis=-2))
    return slice_axis(slice_axis(block, -2, 0, n), -1, n, 2 * n)


def _cost(x: Any) -> int:
    """Approximate FLOPs, with a few squarings."""
    n = 2 * (_TERMS + 6)
    for d in x.shape:
        n *= d
    return n * (x.shape[-1] if x.shape else 1)


@primitive(
    autocast="float32",
    infer=_infer,
    promote="float",
    vjp=_rule,
    batch="elementwise",
    cost=_cost,
    reference=exponential,
    samples=lambda m: [
        Sample(m.normal(3, 3)),
        Sample(m.normal(2, 3, 3) * np.array([0.01, 4.0])[:, None, None]),
        Sample(m.normal(2, 2) + 1j * m.normal(2, 2)),
        Sample(m.normal(0, 0)),
        Sample(m.normal(0, 2, 2)),
    ],
    errors=lambda m: [
        Bad(ValueError, "matrix_exp: expected square matrices", m.normal(2, 3)),
        Bad(ValueError, "matrix_exp: expected a matrix", m.normal(3)),
    ],
    namespace="linalg",
    tolerance=20,
    test={"gradient_tolerance": 1e-4},
)
def matrix_exp(x: Tensor, /) -> Any:
    """The exponential of (a batch of) square matrices: the sum of x**k / k!.

    Args:
        x: shape (…, n, n).

    >>> wf.linalg.matrix_exp(wf.zeros(2, 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    double = np.complex128 if x.dtype.kind == "c" else np.float64  # squaring doubles the error each time
    return narrow(exponential(x.astype(double)), x.dtype)
