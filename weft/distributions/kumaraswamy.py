"""The Kumaraswamy distribution."""

from __future__ import annotations

from typing import Any

import weft as wf

from ..tensor import Tensor
from . import constraints
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, PowerTransform
from .uniform import Uniform
from .utils import EULER, broadcast_all


class Kumaraswamy(TransformedDistribution):
    """A distribution on [0, 1] similar to the beta distribution, with a simple distribution function.

    Args:
        concentration1, concentration0: the parameters (a, b), above 0.
        validate_args: check arguments and values.

    >>> from weft.distributions import Kumaraswamy
    >>> Kumaraswamy(1.0, 1.0).mean
    tensor(0.5)
    """

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        one = wf.ones_like(self.concentration0.detach())
        base = Uniform(one * 0, one, validate_args=False)
        transforms = [
            PowerTransform(1 / self.concentration0),
            AffineTransform(1.0, -1.0),
            PowerTransform(1 / self.concentration1),
        ]
        super().__init__(base, transforms, validate_args=validate_args)

    def _moment(self, n: int) -> Tensor:
        """The expected value of the n-th power."""
        a, b = 1 + n / self.concentration1, self.concentration0
        return b * wf.exp(wf.lgamma(a) + wf.lgamma(b) - wf.lgamma(a + b))

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        """The maximum of the density where it has one inside, else NaN."""
        a, b = self.concentration1, self.concentration0
        inside = (a >= 1) & (b >= 1) & ((a > 1) | (b > 1))
        ratio = wf.where(inside, (a - 1) / wf.where(inside, a * b - 1, 1.0), 0.5)
        return wf.where(inside, ratio ** (1 / a), wf.full((), wf.nan, dtype=a.dtype))

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self.mean**2

    def entropy(self) -> Tensor:
        a, b = 1 / self.concentration1, 1 / self.concentration0
        harmonic = wf.digamma(self.concentration0 + 1) + EULER
        return (1 - b) + (1 - a) * harmonic - wf.log(self.concentration1) - wf.log(self.concentration0)
