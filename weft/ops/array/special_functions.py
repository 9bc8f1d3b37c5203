"""Special functions composed of others: derivatives of `digamma`, the multivariate gamma function, the logit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import dtypes
from ...tensor import Tensor
from ..core.define import composite
from ..core.samples import Bad, Sample
from ..core.spec import as_integer
from .creation import arange
from .elementwise import clip, log
from .elementwise.special import digamma, lgamma, trigamma, zeta
from .elementwise.transcendental import log1p
from .incomplete_gamma import gammainc, gammaincc
from .reduction import sum as total
from .shaping import expand_dims


def _float(op: str, x: Tensor) -> Tensor:
    """`x` as floating numbers."""
    from .elementwise import astype

    if dtypes.is_complex(x.dtype):
        raise TypeError(f"{op}: expected a real tensor. Got {x.dtype.name}.")
    return x if dtypes.is_floating(x.dtype) else astype(x, dtypes.float_for(x.dtype))


def _reference_polygamma(n: int, x: Any) -> Any:
    k = np.arange(4000.0).reshape((-1,) + (1,) * np.ndim(x))
    y = x + 4000
    if n == 0:
        return np.log(y) - 0.5 / y - 1 / (12 * y**2) - (1 / (x + k)).sum(0)
    rest = y**-n / n + 0.5 * y ** -(n + 1.0) + (n + 1) / 12 * y ** -(n + 2.0)
    return (-1) ** (n + 1) * math.factorial(n) * (((x + k) ** -(n + 1.0)).sum(0) + rest)


@composite(
    accumulate="float32",
    reference=_reference_polygamma,
    samples=lambda m: [Sample(n, m.uniform(3, low=0.5, high=4)) for n in (0, 1, 2, 4)],
    errors=lambda m: [
        Bad(ValueError, "polygamma: n must not be negative", -1, m.positive(2)),
        Bad(TypeError, "polygamma: n must be an integer", 1.5, m.positive(2)),
    ],
    tolerance=10,
)
def polygamma(n: int, x: Tensor) -> Tensor:
    """The n-th derivative of `digamma`.

    Args:
        n: the order, 0 or more.
        x: a real tensor.

    >>> wf.polygamma(1, wf.tensor(1.0)) * 6 / wf.pi**2
    tensor(1.)
    """
    try:
        order = as_integer(n)
    except TypeError:
        raise TypeError(f"polygamma: n must be an integer. Got {n!r}.") from None
    if order < 0:
        raise ValueError(f"polygamma: n must not be negative. Got {order}.")
    x = _float("polygamma", x)
    if order == 0:
        return digamma(x)
    if order == 1:
        return trigamma(x)
    factorial = math.factorial(order) if order <= 170 else math.inf  # of which a float64 has no more
    return zeta(order + 1.0, x) * (factorial if order % 2 else -factorial)


def _reference_mvlgamma(x: Any, p: int) -> Any:
    parts = [np.vectorize(math.lgamma, otypes=[float])(x - j / 2) for j in range(p)]
    return p * (p - 1) / 4 * math.log(math.pi) + np.sum(parts, 0)


@composite(
    accumulate="float32",
    reference=_reference_mvlgamma,
    samples=lambda m: [Sample(m.uniform(2, 2, low=3, high=5), 3), Sample(m.uniform(low=1, high=3), 1)],
    errors=lambda m: [Bad(ValueError, "mvlgamma: p must be at least 1", m.positive(2), 0)],
)
def mvlgamma(x: Tensor, p: int) -> Tensor:
    """Logarithm of the multivariate gamma function of dimension `p`, for x > (p - 1) / 2.

    >>> wf.mvlgamma(wf.tensor(3.0), 1).exp().round().item()
    2.0
    """
    try:
        p = as_integer(p)
    except TypeError:
        raise TypeError(f"mvlgamma: p must be an integer. Got {p!r}.") from None
    if p < 1:
        raise ValueError(f"mvlgamma: p must be at least 1. Got {p}.")
    x = _float("mvlgamma", x)
    steps = arange(p, dtype=x.dtype) / 2  # of one op: a loop in Python over a huge p would not end
    return total(lgamma(expand_dims(x, axis=-1) - steps), axis=-1) + p * (p - 1) / 4 * math.log(math.pi)


@composite(
    accumulate="float32",
    reference=lambda x, eps=None: np.log(x / (1 - x)),
    samples=lambda m: [Sample(m.uniform(2, 3, low=0.1, high=0.9)), Sample(m.uniform(3, low=0.2, high=0.8), 0.1)],
)
def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)): the inverse of `sigmoid`.

    Args:
        x: numbers from 0 to 1; NaN outside.
        eps: clamp `x` to [eps, 1 - eps] first.

    >>> wf.logit(wf.tensor([0.5, 0.0]), eps=0.01)
    tensor([ 0.    , -4.595...])
    """
    x = _float("logit", x)
    if eps is not None:
        x = clip(x, eps, 1 - eps)
    return log(x) - log1p(-x)


def igamma(a: Tensor, x: Tensor) -> Tensor:
    """`weft.special.gammainc`: the regularized lower incomplete gamma function.

    >>> wf.igamma(wf.tensor(1.0), wf.tensor([0.0, 1.0]))
    tensor([0.   , 0.632...])
    """
    return gammainc(a, x)


def igammac(a: Tensor, x: Tensor) -> Tensor:
    """`weft.special.gammaincc`: the regularized upper incomplete gamma function.

    >>> wf.igammac(wf.tensor(1.0), wf.tensor([0.0, 1.0]))
    tensor([1.   , 0.367...])
    """
    return gammaincc(a, x)


__all__ = ["igamma", "igammac"]
