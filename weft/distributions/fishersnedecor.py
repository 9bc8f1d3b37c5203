"""The F-distribution."""

from __future__ import annotations

import math
from typing import Any

import weft as wf

from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, spread, standard_gamma


class FisherSnedecor(Distribution):
    """The F-distribution: the ratio of two chi-squared variables over their degrees of freedom.

    Args:
        df1, df2: the degrees of freedom, above 0.
        validate_args: check arguments and values.

    >>> from weft.distributions import FisherSnedecor
    >>> FisherSnedecor(1.0, 4.0).mean
    tensor(2.)
    """

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    def _where(self, condition: Tensor, value: Tensor) -> Tensor:
        return wf.where(condition, value, wf.full((), math.nan, dtype=value.dtype))

    @property
    def mean(self) -> Tensor:
        """NaN up to df2 = 2."""
        df2 = wf.where(self.df2 > 2, self.df2, 3.0)
        return self._where(self.df2 > 2, df2 / (df2 - 2))

    @property
    def mode(self) -> Tensor:
        """NaN up to df1 = 2."""
        return self._where(self.df1 > 2, (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2))

    @property
    def variance(self) -> Tensor:
        """NaN up to df2 = 4."""
        df2 = wf.where(self.df2 > 4, self.df2, 5.0)
        value = 2 * df2**2 * (self.df1 + df2 - 2) / (self.df1 * (df2 - 2) ** 2 * (df2 - 4))
        return self._where(self.df2 > 4, value)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        logs = [standard_gamma(spread(df * 0.5, shape), log=True) - wf.log(df) for df in (self.df1, self.df2)]
        smallest = float(wf.finfo(self.df1.dtype).smallest_normal)
        return wf.clip(wf.exp(logs[0] - logs[1]), smallest, None)

    def log_prob(self, value: Any) -> Tensor:
        value = self.checked(value)
        a, b, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        front = wf.lgamma(a + b) - wf.lgamma(a) - wf.lgamma(b)
        return front + a * wf.log(ratio) + (a - 1) * wf.log(value) - (a + b) * wf.log1p(ratio * value)

    def entropy(self) -> Tensor:
        a, b = self.df1 * 0.5, self.df2 * 0.5
        log_beta = wf.lgamma(a) + wf.lgamma(b) - wf.lgamma(a + b)
        slopes = (1 - a) * wf.digamma(a) - (1 + b) * wf.digamma(b) + (a + b) * wf.digamma(a + b)
        return log_beta + slopes + wf.log(self.df2 / self.df1)
