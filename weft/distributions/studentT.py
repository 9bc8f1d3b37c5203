"""Student's t-distribution."""

from __future__ import annotations

import math
from typing import Any

import weft as wf

from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, spread, standard_gamma, standard_normal


class StudentT(Distribution):
    """Student's t-distribution. Samples have implicit gradients with respect to `df`.

    Args:
        df: the degrees of freedom, above 0.
        loc, scale: what a standard variable is shifted and multiplied by.
        validate_args: check arguments and values.

    >>> from weft.distributions import StudentT
    >>> StudentT(4.0).variance
    tensor(2.)
    """

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        super().__init__(self.df.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """NaN up to one degree of freedom."""
        return wf.where(self.df > 1, self.loc, wf.full((), math.nan, dtype=self.loc.dtype))

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """Infinite from above 1 to 2 degrees of freedom, NaN below."""
        df = wf.where(self.df > 2, self.df, 3.0)
        finite = self.scale**2 * df / (df - 2)
        rest = wf.where(self.df > 1, wf.full((), math.inf, dtype=df.dtype), wf.full((), math.nan, dtype=df.dtype))
        return wf.where(self.df > 2, finite, rest)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        x = standard_normal(shape, self.df)
        # a chi-squared variable over its degrees of freedom, in logarithms
        log_ratio = standard_gamma(spread(self.df * 0.5, shape), log=True) - wf.log(self.df * 0.5)
        return self.loc + self.scale * x * wf.exp(-0.5 * log_ratio)

    def log_prob(self, value: Any) -> Tensor:
        y = (self.checked(value) - self.loc) / self.scale
        half = 0.5 * self.df
        front = wf.lgamma(half + 0.5) - wf.lgamma(half) - 0.5 * wf.log(math.pi * self.df) - wf.log(self.scale)
        return front - (half + 0.5) * wf.log1p(y * y / self.df)

    def entropy(self) -> Tensor:
        half = 0.5 * self.df
        log_beta = wf.lgamma(half) + math.lgamma(0.5) - wf.lgamma(half + 0.5)
        slopes = (half + 0.5) * (wf.digamma(half + 0.5) - wf.digamma(half))
        return wf.log(self.scale) + slopes + 0.5 * wf.log(self.df) + log_beta
