"""The inverse gamma distribution."""

from __future__ import annotations

from typing import Any

import weft as wf

from ..tensor import Tensor
from . import constraints
from .gamma import Gamma
from .transformed_distribution import TransformedDistribution
from .transforms import PowerTransform
from .utils import infinite_where


class InverseGamma(TransformedDistribution):
    """1 over a gamma variable.

    Args:
        concentration, rate: those of the gamma variable, above 0.
        validate_args: check arguments and values.

    >>> from weft.distributions import InverseGamma
    >>> InverseGamma(3.0, 4.0).mean
    tensor(2.)
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, validate_args)
        minus_one = wf.full((), -1.0, dtype=base.rate.dtype)
        super().__init__(base, PowerTransform(minus_one), validate_args=validate_args)

    @property
    def concentration(self) -> Tensor:
        """The concentration of the gamma variable."""
        return self.base_dist.concentration

    @property
    def rate(self) -> Tensor:
        """The rate of the gamma variable."""
        return self.base_dist.rate

    @property
    def mean(self) -> Tensor:
        """Infinite up to a concentration of 1."""
        a = self.concentration
        return infinite_where(a <= 1, self.rate / wf.where(a > 1, a - 1, 1.0))

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        """Infinite up to a concentration of 2."""
        a = wf.where(self.concentration > 2, self.concentration, 3.0)
        return infinite_where(self.concentration <= 2, self.rate**2 / ((a - 1) ** 2 * (a - 2)))

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + wf.log(self.rate) + wf.lgamma(a) - (1 + a) * wf.digamma(a)
