"""The generalised Pareto distribution."""

from __future__ import annotations

import math
from typing import Any

import weft as wf

from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, standard_uniform


class GeneralizedPareto(Distribution):
    """The generalised Pareto distribution, of excesses over a high threshold.

    Args:
        loc: the smallest value.
        scale: above 0.
        concentration: the shape parameter; 0 is the exponential distribution, below 0 values are bounded above.
        validate_args: check arguments and values.

    >>> from weft.distributions import GeneralizedPareto
    >>> GeneralizedPareto(1.0, 2.0, 0.0).mean
    tensor(3.)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        c = self.concentration
        end = self.loc - self.scale / wf.where(c < 0, c, -1.0)
        return constraints.interval(self.loc, wf.where(c < 0, end, wf.full((), math.inf, dtype=end.dtype)))

    def _cases(self) -> tuple[Tensor, Tensor]:
        """Where the concentration is (nearly) 0, and the concentration with 1 in its place."""
        zero = wf.abs(self.concentration) <= 1e-8
        return zero, wf.where(zero, wf.ones((), dtype=self.concentration.dtype), self.concentration)

    @property
    def mean(self) -> Tensor:
        """NaN from a concentration of 1."""
        finite = self.concentration < 1
        value = self.loc + self.scale / (1 - wf.where(finite, self.concentration, 0.5))
        return wf.where(finite, value, wf.full((), math.nan, dtype=value.dtype))

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """NaN from a concentration of 1/2."""
        finite = self.concentration < 0.5
        c = wf.where(finite, self.concentration, 0.25)
        value = self.scale**2 / ((1 - c) ** 2 * (1 - 2 * c))
        return wf.where(finite, value, wf.full((), math.nan, dtype=value.dtype))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(standard_uniform(self._extended_shape(sample_shape), self.loc))

    def log_prob(self, value: Any) -> Tensor:
        z = (self.checked(value) - self.loc) / self.scale
        zero, c = self._cases()
        return -wf.log(self.scale) - wf.where(zero, z, wf.special.xlog1py(1 / c + 1, c * z))

    def log_survival_function(self, value: Any) -> Tensor:
        """The logarithm of the probability of larger values."""
        z = (self.checked(value) - self.loc) / self.scale
        zero, c = self._cases()
        return -wf.where(zero, z, wf.log1p(c * z) / c)

    def log_cdf(self, value: Any) -> Tensor:
        """The logarithm of `cdf`."""
        return wf.log(-wf.expm1(self.log_survival_function(value)))

    def cdf(self, value: Any) -> Tensor:
        return -wf.expm1(self.log_survival_function(value))

    def icdf(self, value: Any) -> Tensor:
        zero, c = self._cases()
        log_left = wf.log1p(-value)
        return self.loc + self.scale * wf.where(zero, -log_left, wf.expm1(-c * log_left) / c)

    def entropy(self) -> Tensor:
        return wf.log(self.scale) + self.concentration + 1
