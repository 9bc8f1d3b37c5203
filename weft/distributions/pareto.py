"""The Pareto distribution."""

from __future__ import annotations

from typing import Any

import weft as wf

from ..tensor import Tensor
from . import constraints
from .exponential import Exponential
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, ExpTransform
from .utils import broadcast_all, infinite_where


class Pareto(TransformedDistribution):
    """The Pareto distribution (type 1).

    Args:
        scale: the smallest value, above 0.
        alpha: the shape parameter, above 0.
        validate_args: check arguments and values.

    >>> from weft.distributions import Pareto
    >>> Pareto(1.0, 3.0).mean
    tensor(1.5)
    """

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args=False)
        super().__init__(base, [ExpTransform(), AffineTransform(0, self.scale)], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        """Infinite up to alpha = 1."""
        a = wf.where(self.alpha > 1, self.alpha, 2.0)
        return infinite_where(self.alpha <= 1, a * self.scale / (a - 1))

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        """Infinite up to alpha = 2."""
        a = wf.where(self.alpha > 2, self.alpha, 3.0)
        return infinite_where(self.alpha <= 2, self.scale**2 * a / ((a - 1) ** 2 * (a - 2)))

    def entropy(self) -> Tensor:
        return wf.log(self.scale / self.alpha) + (1 + 1 / self.alpha)
