"""The exponential distribution."""

from __future__ import annotations

from typing import Any

import weft as wf

from ..tensor import Tensor
from . import constraints
from .exp_family import ExponentialFamily
from .utils import broadcast_all, standard_uniform


class Exponential(ExponentialFamily):
    """The waiting time between events that occur at a constant rate.

    Args:
        rate: 1 over the mean, above 0.
        validate_args: check arguments and values.

    >>> from weft.distributions import Exponential
    >>> Exponential(2.0).mean
    tensor(0.5)
    """

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.rate

    @property
    def mode(self) -> Tensor:
        return wf.zeros_like(self.rate)

    @property
    def stddev(self) -> Tensor:
        return 1.0 / self.rate

    @property
    def variance(self) -> Tensor:
        return self.rate**-2.0

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(standard_uniform(self._extended_shape(sample_shape), self.rate))

    def log_prob(self, value: Any) -> Tensor:
        return wf.log(self.rate) - self.rate * self.checked(value)

    def cdf(self, value: Any) -> Tensor:
        return -wf.expm1(-self.rate * self.checked(value))

    def icdf(self, value: Any) -> Tensor:
        return -wf.log1p(-value) / self.rate

    def entropy(self) -> Tensor:
        return 1.0 - wf.log(self.rate)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (-self.rate,)

    def _log_normalizer(self, *natural_params: Any) -> Tensor:
        return -wf.log(-natural_params[0])
