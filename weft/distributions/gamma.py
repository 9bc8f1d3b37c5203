"""The gamma distribution."""

from __future__ import annotations

from typing import Any

import weft as wf

from ..tensor import Tensor
from . import constraints
from .exp_family import ExponentialFamily
from .utils import broadcast_all, spread, standard_gamma


class Gamma(ExponentialFamily):
    """The gamma distribution. Samples have implicit gradients with respect to the concentration.

    Args:
        concentration: the shape parameter, above 0.
        rate: 1 over the scale, above 0.
        validate_args: check arguments and values.

    >>> from weft.distributions import Gamma
    >>> Gamma(2.0, 4.0).mean
    tensor(0.5)
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return wf.clip((self.concentration - 1) / self.rate, 0.0, None)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate**2

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        value = standard_gamma(spread(self.concentration, shape)) / self.rate
        smallest = float(wf.finfo(value.dtype).smallest_normal)
        return wf.where(value < smallest, wf.full((), smallest, dtype=value.dtype), value)  # its logarithm is finite

    def log_prob(self, value: Any) -> Tensor:
        value = self.checked(value)
        a, b = self.concentration, self.rate
        return wf.xlogy(a, b) + wf.xlogy(a - 1, value) - b * value - wf.lgamma(a)

    def cdf(self, value: Any) -> Tensor:
        return wf.special.gammainc(self.concentration, self.rate * self.checked(value))

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - wf.log(self.rate) + wf.lgamma(a) + (1.0 - a) * wf.digamma(a)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, *natural_params: Any) -> Tensor:
        x, y = natural_params
        return wf.lgamma(x + 1) - (x + 1) * wf.log(-y)
