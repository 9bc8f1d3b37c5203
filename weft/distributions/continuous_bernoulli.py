"""The continuous Bernoulli distribution (Loaiza-Ganem and Cunningham, 2019)."""

from __future__ import annotations

import math
from typing import Any

import weft as wf

from ..tensor import Tensor
from . import constraints
from .binary_logits import BinaryLogits, bernoulli_log_prob
from .exp_family import ExponentialFamily
from .utils import clamp_probs, lazy_property, logits_to_probs, one_of, standard_uniform


class ContinuousBernoulli(BinaryLogits, ExponentialFamily):
    """The distribution on [0, 1] with density proportional to probs^x (1 - probs)^(1 - x).

    Args:
        probs: the parameter, from 0 to 1.
        logits: its log odds, instead of `probs`.
        lims: between these values of `probs`, around 1/2, power series replace formulas that would divide by 0.
        validate_args: check arguments and values.

    >>> from weft.distributions import ContinuousBernoulli
    >>> ContinuousBernoulli(0.5).mean
    tensor(0.5)
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._lims = lims
        self._take(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)
        if one_of("ContinuousBernoulli", probs=probs, logits=logits) == "probs":
            self.probs = clamp_probs(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        """The parameter, inside (0, 1)."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _outside(self) -> Tensor:
        """Where the formulas hold, and not their power series."""
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut_probs(self) -> Tensor:
        """`probs`, replaced where the power series hold by a value that the formulas can take."""
        return wf.where(self._outside(), self.probs, wf.full((), self._lims[0], dtype=self.probs.dtype))

    def _cont_bern_log_norm(self) -> Tensor:
        """The logarithm of the constant that normalises the density."""
        p = self._cut_probs()
        exact = wf.log(wf.abs(wf.log1p(-p) - wf.log(p))) - wf.log(wf.abs(1.0 - 2.0 * p))
        x = (self.probs - 0.5) ** 2
        series = math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x
        return wf.where(self._outside(), exact, series)

    @property
    def mean(self) -> Tensor:
        p = self._cut_probs()
        exact = p / (2.0 * p - 1.0) + 1.0 / (wf.log1p(-p) - wf.log(p))
        x = self.probs - 0.5
        return wf.where(self._outside(), exact, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x * x) * x)

    @property
    def variance(self) -> Tensor:
        p = self._cut_probs()
        exact = p * (p - 1.0) / (1.0 - 2.0 * p) ** 2 + 1.0 / (wf.log1p(-p) - wf.log(p)) ** 2
        x = (self.probs - 0.5) ** 2
        return wf.where(self._outside(), exact, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(standard_uniform(self._extended_shape(sample_shape), self.probs))

    def log_prob(self, value: Any) -> Tensor:
        return bernoulli_log_prob(self.logits, self.checked(value)) + self._cont_bern_log_norm()

    def cdf(self, value: Any) -> Tensor:
        value = self.checked(value)
        p = self._cut_probs()
        exact = (p**value * (1.0 - p) ** (1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        return wf.clip(wf.where(self._outside(), exact, value), 0.0, 1.0)

    def icdf(self, value: Any) -> Tensor:
        p = self._cut_probs()
        exact = (wf.log1p(-p + value * (2.0 * p - 1.0)) - wf.log1p(-p)) / (wf.log(p) - wf.log1p(-p))
        return wf.where(self._outside(), exact, value)

    def entropy(self) -> Tensor:
        log0, log1 = wf.log1p(-self.probs), wf.log(self.probs)
        return self.mean * (log0 - log1) - self._cont_bern_log_norm() - log0

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, *natural_params: Any) -> Tensor:
        x = natural_params[0]
        outside = (x <= self._lims[0] - 0.5) | (x > self._lims[1] - 0.5)
        safe = wf.where(outside, x, wf.full((), self._lims[0] - 0.5, dtype=x.dtype))
        exact = wf.log(wf.abs(wf.expm1(safe))) - wf.log(wf.abs(safe))
        return wf.where(outside, exact, 0.5 * x + x**2 / 24.0 - x**4 / 2880.0)
