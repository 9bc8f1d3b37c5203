"""The Gumbel distribution."""

from __future__ import annotations

import math
from typing import Any

import weft as wf

from ..tensor import Tensor
from . import constraints
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, ExpTransform
from .uniform import Uniform
from .utils import EULER, broadcast_all


class Gumbel(TransformedDistribution):
    """The Gumbel distribution, of the largest of many variables.

    Args:
        loc: the mode.
        scale: above 0.
        validate_args: check arguments and values.

    >>> from weft.distributions import Gumbel
    >>> Gumbel(0.0, 1.0).mean
    tensor(0.5772...)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        info = wf.finfo(self.loc.dtype)
        one = wf.ones_like(self.loc.detach())
        base = Uniform(one * float(info.smallest_normal), one * (1.0 - float(info.eps)), validate_args=False)
        log = ExpTransform().inv
        super().__init__(
            base,
            [log, AffineTransform(0, -one), log, AffineTransform(self.loc, -self.scale)],
            validate_args=validate_args,
        )

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * EULER

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev**2

    def log_prob(self, value: Any) -> Tensor:
        z = (self.loc - self.checked(value)) / self.scale
        return z - wf.exp(z) - wf.log(self.scale)

    def cdf(self, value: Any) -> Tensor:
        return wf.exp(-wf.exp((self.loc - self.checked(value)) / self.scale))

    def icdf(self, value: Any) -> Tensor:
        return self.loc - self.scale * wf.log(-wf.log(value))

    def entropy(self) -> Tensor:
        return wf.log(self.scale) + (1 + EULER)
