"""The beta distribution."""

from __future__ import annotations

from typing import Any

import weft as wf

from ..tensor import Tensor
from . import constraints
from .exp_family import ExponentialFamily
from .utils import broadcast_all, spread, standard_gamma


class Beta(ExponentialFamily):
    """The beta distribution on [0, 1]. Samples have implicit gradients.

    Args:
        concentration1: the first parameter (alpha), above 0.
        concentration0: the second parameter (beta), above 0.
        validate_args: check arguments and values.

    >>> from weft.distributions import Beta
    >>> Beta(1.0, 3.0).mean
    tensor(0.25)
    """

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        """The maximum of the density; where no concentration is above 1, the end of the larger."""
        a, b = wf.clip(self.concentration1 - 1, 0.0, None), wf.clip(self.concentration0 - 1, 0.0, None)
        inside = a + b > 0
        end = wf.astype(self.concentration1 >= self.concentration0, a.dtype)
        return wf.where(inside, a / wf.where(inside, a + b, 1.0), end)

    @property
    def variance(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        total = a + b
        return a * b / (total**2 * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        # x / (x + y) of two gamma variables, from their logarithms, which do not underflow
        x = standard_gamma(spread(self.concentration1, shape), log=True)
        y = standard_gamma(spread(self.concentration0, shape), log=True)
        return wf.sigmoid(x - y)

    def log_prob(self, value: Any) -> Tensor:
        value = self.checked(value)
        a, b = self.concentration1, self.concentration0
        return wf.xlogy(a - 1, value) + wf.special.xlog1py(b - 1, -value) - self._log_beta(a, b)

    @staticmethod
    def _log_beta(a: Tensor, b: Tensor) -> Tensor:
        return wf.lgamma(a) + wf.lgamma(b) - wf.lgamma(a + b)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        slopes = (a - 1) * wf.digamma(a) + (b - 1) * wf.digamma(b) - (a + b - 2) * wf.digamma(a + b)
        return self._log_beta(a, b) - slopes

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration1, self.concentration0

    def _log_normalizer(self, *natural_params: Any) -> Tensor:
        return self._log_beta(*natural_params)
