"""Orthogonal polynomials, evaluated by their three-term recurrences.

Each is defined by p₁ and by pₖ₊₁ = (a x + b) pₖ - c pₖ₋₁ with a, b, c depending on k; p₀ = 1, and a negative degree gives 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ..core.define import primitive
from ..core.samples import Bad, Sample
from ..core.spec import Spec, broadcast_shapes, num_elements

MAX_DEGREE = 10_000

Recurrence = Callable[[int], tuple[float, float, float]]


def evaluate(x: np.ndarray, n: np.ndarray, first: tuple[float, float], step: Recurrence) -> np.ndarray:
    """The polynomials of the degrees `n` at `x`; p₁ is first[0] x + first[1]."""
    x, n = np.broadcast_arrays(x, n)
    out = np.where(n == 0, 1.0, np.where(np.isnan(x), np.nan, 0.0))
    old, value = np.ones_like(x), first[0] * x + first[1]
    out = np.where(n == 1, value, out)
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(1, int(n.max(initial=0))):
            a, b, c = step(k)
            old, value = value, (a * x + b) * value - c * old
            out = np.where(n == k + 1, value, out)
    return out


def _infer(name: str) -> Any:
    def infer(x: Any, n: Any) -> Spec:
        if dtypes.is_complex(x.dtype) or dtypes.is_inexact(n.dtype):
            given = f"x of {x.dtype.name} {format_shape(x.shape)} and n of {n.dtype.name} {format_shape(n.shape)}"
            raise TypeError(f"{name}: expected real x and integer n. Got {given}.")
        return Spec(broadcast_shapes(name, x.shape, n.shape), dtypes.float_for(x.dtype))

    return infer


def _refused(name: str) -> Any:
    def rule(g: Any) -> Any:
        raise NotImplementedError(f"{name}: its gradient is not implemented. Detach the argument: `x.detach()`.")

    return rule


def _check_degree(name: str, n: np.ndarray) -> None:
    largest = int(n.max(initial=0))
    if largest > MAX_DEGREE:
        raise ValueError(
            f"{name}: n must be at most {MAX_DEGREE}, as polynomials are evaluated degree by degree. Got {largest}."
        )


def _define(name: str, title: str, first: tuple[float, float], step: Recurrence, example: str) -> Any:
    def kernel(x: Tensor, n: Tensor) -> Any:
        degrees = np.asarray(n)
        _check_degree(name, degrees)
        values = evaluate(np.asarray(x, np.float64), degrees, first, step)
        return values.astype(dtypes.float_for(x.dtype))

    def reference(x: Any, n: Any) -> Any:
        def one(x: float, n: int) -> float:
            if n < 1:
                return float(n == 0)
            if n == 1:
                return first[0] * x + first[1]
            a, b, c = step(n - 1)
            return (a * x + b) * one(x, n - 1) - c * one(x, n - 2)

        return np.vectorize(one, otypes=[float])(x, n)

    kernel.__name__ = kernel.__qualname__ = name
    kernel.__doc__ = f"""{title} of degree `n` at `x`.

    Args:
        x: a real tensor.
        n: integers up to 10000, which broadcast against `x`; the value is 0 for negative ones.

    >>> wf.special.{name}(wf.tensor([0.5, 2.0]), wf.tensor(3)).tolist()
    {example}
    """
    return primitive(
        namespace="special",
        infer=_infer(name),
        vjp=(_refused(name), None),
        batch="elementwise",
        cost=lambda x, n: 50 * max(num_elements(x.shape) or 0, num_elements(n.shape) or 0),
        reference=reference,
        samples=lambda m: [
            Sample(m.uniform(4), m.ints(4, low=-1, high=6)),
            Sample(m.uniform(2, 1, low=-2, high=2), m.ints(3, low=0, high=5)),
            Sample(m.uniform(3), np.array(2)),
        ],
        errors=lambda m: [
            Bad(TypeError, f"{name}: expected real x and integer n", m.uniform(2), m.uniform(2)),
            Bad(ValueError, f"{name}: n must be at most 10000", m.uniform(2), np.array(10**9)),
        ],
        test={"no_gradient": True},
    )(kernel)


_TWICE: Recurrence = lambda k: (2.0, 0.0, 1.0)
_SHIFTED: Recurrence = lambda k: (4.0, -2.0, 1.0)

chebyshev_polynomial_t = _define(
    "chebyshev_polynomial_t", "Chebyshev polynomial of the first kind", (1, 0), _TWICE, "[-1.0, 26.0]"
)
chebyshev_polynomial_u = _define(
    "chebyshev_polynomial_u", "Chebyshev polynomial of the second kind", (2, 0), _TWICE, "[-1.0, 56.0]"
)
chebyshev_polynomial_v = _define(
    "chebyshev_polynomial_v", "Chebyshev polynomial of the third kind", (2, -1), _TWICE, "[-1.0, 41.0]"
)
chebyshev_polynomial_w = _define(
    "chebyshev_polynomial_w", "Chebyshev polynomial of the fourth kind", (2, 1), _TWICE, "[-1.0, 71.0]"
)
shifted_chebyshev_polynomial_t = _define(
    "shifted_chebyshev_polynomial_t", "Shifted Chebyshev polynomial of the first kind, of 2 x - 1,", (2, -1), _SHIFTED,
    "[-0.0, 99.0]",
)  # fmt: skip
shifted_chebyshev_polynomial_u = _define(
    "shifted_chebyshev_polynomial_u", "Shifted Chebyshev polynomial of the second kind, of 2 x - 1,", (4, -2), _SHIFTED,
    "[-0.0, 204.0]",
)  # fmt: skip
shifted_chebyshev_polynomial_v = _define(
    "shifted_chebyshev_polynomial_v", "Shifted Chebyshev polynomial of the third kind, of 2 x - 1,", (4, -3), _SHIFTED,
    "[1.0, 169.0]",
)  # fmt: skip
shifted_chebyshev_polynomial_w = _define(
    "shifted_chebyshev_polynomial_w", "Shifted Chebyshev polynomial of the fourth kind, of 2 x - 1,", (4, -1), _SHIFTED,
    "[-1.0, 239.0]",
)  # fmt: skip
hermite_polynomial_h = _define(
    "hermite_polynomial_h",
    "Hermite polynomial of the physicists",
    (2, 0),
    lambda k: (2.0, 0.0, 2.0 * k),
    "[-5.0, 40.0]",
)
hermite_polynomial_he = _define(
    "hermite_polynomial_he", "Hermite polynomial of probability theory", (1, 0), lambda k: (1.0, 0.0, float(k)),
    "[-1.375, 2.0]",
)  # fmt: skip
laguerre_polynomial_l = _define(
    "laguerre_polynomial_l", "Laguerre polynomial", (-1, 1),
    lambda k: (-1.0 / (k + 1), (2.0 * k + 1.0) / (k + 1), k / (k + 1.0)), "[-0.145..., -0.333...]",
)  # fmt: skip
legendre_polynomial_p = _define(
    "legendre_polynomial_p", "Legendre polynomial", (1, 0),
    lambda k: ((2.0 * k + 1.0) / (k + 1), 0.0, k / (k + 1.0)), "[-0.4375, 17.0]",
)  # fmt: skip
