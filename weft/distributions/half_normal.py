"""The half-normal distribution."""

from __future__ import annotations

import math
from typing import Any

import weft as wf

from ..tensor import Tensor
from . import constraints
from .normal import Normal
from .transformed_distribution import TransformedDistribution
from .transforms import AbsTransform
from .utils import infinite_where


class HalfNormal(TransformedDistribution):
    """The absolute value of a normal variable of mean 0.

    Args:
        scale: the standard deviation of the normal variable, above 0.
        validate_args: check arguments and values.

    >>> from weft.distributions import HalfNormal
    >>> HalfNormal(1.0).mean
    tensor(0.7978...)
    """

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(0, scale, validate_args), AbsTransform(), validate_args=validate_args)

    @property
    def scale(self) -> Tensor:
        """The standard deviation of the normal variable."""
        return self.base_dist.scale

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self) -> Tensor:
        return wf.zeros_like(self.scale)

    @property
    def variance(self) -> Tensor:
        return self.scale**2 * (1 - 2 / math.pi)

    def log_prob(self, value: Any) -> Tensor:
        value = self.checked(value)
        return -infinite_where(value < 0, -(self.base_dist.log_prob(value) + math.log(2)))

    def cdf(self, value: Any) -> Tensor:
        return 2 * self.base_dist.cdf(self.checked(value)) - 1

    def icdf(self, value: Any) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)
