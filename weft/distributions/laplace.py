"""The Laplace distribution."""

from __future__ import annotations

import math
from typing import Any

import weft as wf

from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, open_uniform


class Laplace(Distribution):
    """The Laplace (double exponential) distribution.

    Args:
        loc: the mean.
        scale: the mean absolute deviation, above 0.
        validate_args: check arguments and values.

    >>> from weft.distributions import Laplace
    >>> Laplace(0.0, 1.0).variance
    tensor(2.)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale**2

    @property
    def stddev(self) -> Tensor:
        return math.sqrt(2) * self.scale

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(open_uniform(self._extended_shape(sample_shape), self.loc))

    def log_prob(self, value: Any) -> Tensor:
        return -wf.log(2 * self.scale) - wf.abs(self.checked(value) - self.loc) / self.scale

    def cdf(self, value: Any) -> Tensor:
        z = (self.checked(value) - self.loc) / self.scale
        return 0.5 - 0.5 * wf.sign(z) * wf.expm1(-wf.abs(z))

    def icdf(self, value: Any) -> Tensor:
        centred = value - 0.5
        return self.loc - self.scale * wf.sign(centred) * wf.log1p(-2 * wf.abs(centred))

    def entropy(self) -> Tensor:
        return 1 + wf.log(2 * self.scale)
