"""The half-Cauchy distribution."""

from __future__ import annotations

import math
from typing import Any

import weft as wf

from ..tensor import Tensor
from . import constraints
from .cauchy import Cauchy
from .transformed_distribution import TransformedDistribution
from .transforms import AbsTransform
from .utils import infinite_where


class HalfCauchy(TransformedDistribution):
    """The absolute value of a Cauchy variable of median 0.

    Args:
        scale: the scale of the Cauchy variable, above 0.
        validate_args: check arguments and values.

    >>> from weft.distributions import HalfCauchy
    >>> HalfCauchy(1.0).cdf(wf.tensor(1.0))
    tensor(0.5)
    """

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0, scale, validate_args), AbsTransform(), validate_args=validate_args)

    @property
    def scale(self) -> Tensor:
        """The scale of the Cauchy variable."""
        return self.base_dist.scale

    @property
    def mean(self) -> Tensor:
        """Infinite."""
        return wf.full_like(self.scale.detach(), math.inf)

    @property
    def mode(self) -> Tensor:
        return wf.zeros_like(self.scale)

    @property
    def variance(self) -> Tensor:
        """Infinite."""
        return self.base_dist.variance

    def log_prob(self, value: Any) -> Tensor:
        value = self.checked(value)
        return -infinite_where(value < 0, -(self.base_dist.log_prob(value) + math.log(2)))

    def cdf(self, value: Any) -> Tensor:
        return 2 * self.base_dist.cdf(self.checked(value)) - 1

    def icdf(self, value: Any) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)
