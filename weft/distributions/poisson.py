"""The Poisson distribution."""

from __future__ import annotations

from typing import Any

import weft as wf

from ..tensor import Tensor
from . import constraints
from .exp_family import ExponentialFamily
from .utils import broadcast_all, poisson, spread


class Poisson(ExponentialFamily):
    """The number of events that occur independently at a constant rate.

    Args:
        rate: the expected number, not negative.
        validate_args: check arguments and values.

    >>> from weft.distributions import Poisson
    >>> Poisson(wf.tensor([0.0, 5.0])).sample()[0]
    tensor(0.)
    """

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return wf.floor(self.rate)

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return poisson(spread(self.rate, self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Tensor:
        value = self.checked(value)
        return wf.xlogy(value, self.rate) - self.rate - wf.lgamma(value + 1)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (wf.log(self.rate),)

    def _log_normalizer(self, *natural_params: Any) -> Tensor:
        return wf.exp(natural_params[0])
