"""The Cauchy distribution."""

from __future__ import annotations

import math
from typing import Any

import weft as wf

from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, open_uniform


class Cauchy(Distribution):
    """The Cauchy (Lorentz) distribution: the ratio of two normal variables.

    Args:
        loc: the median.
        scale: the half width at half maximum, above 0.
        validate_args: check arguments and values.

    >>> from weft.distributions import Cauchy
    >>> Cauchy(0.0, 1.0).cdf(wf.tensor(1.0))
    tensor(0.75)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """NaN: it does not exist."""
        return wf.full_like(self.loc.detach(), math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """Infinite."""
        return wf.full_like(self.loc.detach(), math.inf)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(open_uniform(self._extended_shape(sample_shape), self.loc))

    def log_prob(self, value: Any) -> Tensor:
        z = (self.checked(value) - self.loc) / self.scale
        return -math.log(math.pi) - wf.log(self.scale) - wf.log1p(z * z)

    def cdf(self, value: Any) -> Tensor:
        return wf.atan((self.checked(value) - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, value: Any) -> Tensor:
        return wf.tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + wf.log(self.scale)
