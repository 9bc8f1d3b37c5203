"""The Weibull distribution."""

from __future__ import annotations

from typing import Any

import weft as wf

from ..tensor import Tensor
from . import constraints
from .exponential import Exponential
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, PowerTransform
from .utils import EULER, broadcast_all


class Weibull(TransformedDistribution):
    """The Weibull distribution: a power of an exponential variable.

    Args:
        scale: above 0.
        concentration: the shape parameter, above 0.
        validate_args: check arguments and values.

    >>> from weft.distributions import Weibull
    >>> Weibull(2.0, 1.0).mean
    tensor(2.)
    """

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        base = Exponential(wf.ones_like(self.scale.detach()), validate_args=False)
        transforms = [PowerTransform(1 / self.concentration), AffineTransform(0, self.scale)]
        super().__init__(base, transforms, validate_args=validate_args)

    @property
    def concentration_reciprocal(self) -> Tensor:
        """1 over the concentration."""
        return 1 / self.concentration

    @property
    def mean(self) -> Tensor:
        return self.scale * wf.exp(wf.lgamma(1 + self.concentration_reciprocal))

    @property
    def mode(self) -> Tensor:
        """0 up to a concentration of 1."""
        above = wf.clip(self.concentration - 1, 0.0, None) / self.concentration
        return self.scale * above**self.concentration_reciprocal

    @property
    def variance(self) -> Tensor:
        k = self.concentration_reciprocal
        return self.scale**2 * (wf.exp(wf.lgamma(1 + 2 * k)) - wf.exp(2 * wf.lgamma(1 + k)))

    def entropy(self) -> Tensor:
        k = self.concentration_reciprocal
        return EULER * (1 - k) + wf.log(self.scale * k) + 1
