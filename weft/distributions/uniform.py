"""The uniform distribution."""

from __future__ import annotations

import math
from typing import Any

import weft as wf

from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, ensure, standard_uniform


class Uniform(Distribution):
    """The uniform distribution on [low, high).

    Args:
        low, high: the bounds; low < high.
        validate_args: check arguments and values.

    >>> from weft.distributions import Uniform
    >>> Uniform(2.0, 4.0).mean
    tensor(3.)
    """

    has_rsample = True
    arg_constraints = {
        "low": constraints.dependent(is_discrete=False, event_dim=0),
        "high": constraints.dependent(is_discrete=False, event_dim=0),
    }

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        if self._validate_args:
            message = "Uniform: low must be less than high. To skip this check, pass `validate_args=False`."
            self.low = ensure(self.low, self.low < self.high, lambda: message)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        """NaN: all values are equally likely."""
        return wf.full_like(self.low.detach(), math.nan)

    @property
    def stddev(self) -> Tensor:
        return (self.high - self.low) / math.sqrt(12)

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low) ** 2 / 12

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = standard_uniform(self._extended_shape(sample_shape), self.low)
        return self.low + u * (self.high - self.low)

    def log_prob(self, value: Any) -> Tensor:
        value = self.checked(value)
        inside = (value >= self.low) & (value < self.high)
        width = wf.log(self.high - self.low)
        return wf.where(inside, -width, wf.full((), -math.inf, dtype=width.dtype))

    def cdf(self, value: Any) -> Tensor:
        return wf.clip((self.checked(value) - self.low) / (self.high - self.low), 0.0, 1.0)

    def icdf(self, value: Any) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return wf.log(self.high - self.low)
