"""The von Mises distribution."""

from __future__ import annotations

import math
from typing import Any

import weft as wf

from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, spread, von_mises


class VonMises(Distribution):
    """The von Mises distribution of angles, the circular analogue of the normal distribution.

    Args:
        loc: the mean angle in radians.
        concentration: about 1 over the variance, above 0.
        validate_args: check arguments and values.

    >>> from weft.distributions import VonMises
    >>> bool((VonMises(0.0, 4.0).sample((100,)).abs() <= wf.pi).all())
    True
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """The mean angle."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The circular variance: 1 minus the length of the mean direction."""
        return 1 - wf.special.i1e(self.concentration) / wf.special.i0e(self.concentration)

    def _log_i0(self) -> Tensor:
        return wf.log(wf.special.i0e(self.concentration)) + self.concentration

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        angle = von_mises(spread(self.concentration, shape)) + self.loc.detach()
        return (angle + math.pi) % (2 * math.pi) - math.pi

    def log_prob(self, value: Any) -> Tensor:
        value = self.checked(value)
        return self.concentration * wf.cos(value - self.loc) - math.log(2 * math.pi) - self._log_i0()

    def entropy(self) -> Tensor:
        return math.log(2 * math.pi) + self._log_i0() - self.concentration * (1 - self.variance)
