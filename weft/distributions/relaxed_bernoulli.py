"""Relaxed Bernoulli distributions: differentiable approximations on the open unit interval (Maddison et al., 2017)."""

from __future__ import annotations

from typing import Any

import weft as wf

from ..nn import functional as F
from ..tensor import Tensor
from . import constraints
from .binary_logits import BinaryLogits
from .distribution import Distribution
from .transformed_distribution import TransformedDistribution
from .transforms import SigmoidTransform
from .utils import broadcast_all, clamp_probs, standard_uniform


class LogitRelaxedBernoulli(BinaryLogits, Distribution):
    """The log odds of a `RelaxedBernoulli`.

    Args:
        temperature: how far from 0 and 1 samples are; above 0.
        probs: the probability of 1.
        logits: its log odds, instead of `probs`.
        validate_args: check arguments and values.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._take(probs, logits)
        (self.temperature,) = broadcast_all(temperature)
        super().__init__(self._param.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = clamp_probs(standard_uniform(self._extended_shape(sample_shape), self._param))
        return (wf.log(u) - wf.log1p(-u) + self.logits) / self.temperature

    def log_prob(self, value: Any) -> Tensor:
        difference = self.logits - self.checked(value) * self.temperature
        return wf.log(self.temperature) + difference + 2 * F.logsigmoid(-difference)


class RelaxedBernoulli(TransformedDistribution):
    """A number in (0, 1) that becomes a Bernoulli variable as the temperature falls to 0, with gradients.

    Args:
        temperature: how far from 0 and 1 samples are; above 0.
        probs: the probability of 1.
        logits: its log odds, instead of `probs`.
        validate_args: check arguments and values.

    >>> from weft.distributions import RelaxedBernoulli
    >>> logits = wf.zeros(3, requires_grad=True)
    >>> RelaxedBernoulli(0.5, logits=logits).rsample().requires_grad
    True
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits, validate_args)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Tensor:
        """The temperature."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """Log odds."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """Probabilities."""
        return self.base_dist.probs
