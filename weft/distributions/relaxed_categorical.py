"""Relaxed categorical distributions: differentiable approximations on the simplex (Jang et al., Maddison et al., 2017)."""

from __future__ import annotations

import math
from typing import Any

import weft as wf

from ..tensor import Tensor
from . import constraints
from .categorical import Categorical
from .distribution import Distribution
from .transformed_distribution import TransformedDistribution
from .transforms import ExpTransform
from .utils import Shape, broadcast_all, clamp_probs, standard_uniform


class ExpRelaxedCategorical(Distribution):
    """The logarithms of a `RelaxedOneHotCategorical`.

    Args:
        temperature: how far from one-hot vectors samples are; above 0.
        probs: weights of shape (…, K), not negative; they are normalised.
        logits: unnormalised logarithms of the probabilities, instead of `probs`.
        validate_args: check arguments and values.
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.real_vector  # samples are in a part of it, where the exponentials sum to 1
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._categorical = Categorical(probs, logits, validate_args)
        (self.temperature,) = broadcast_all(temperature)
        if self.temperature.ndim and self.temperature.shape[-1] == 1:  # given for the axis of categories
            self.temperature = self.temperature[..., 0]
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args)

    def _expand_parameters(self, batch_shape: Shape) -> None:
        self._categorical = self._categorical.expand(batch_shape)

    @property
    def param_shape(self) -> Shape:
        """The shape of the parameter."""
        return self._categorical.param_shape

    @property
    def probs(self) -> Tensor:
        """The probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """Logarithms of the probabilities."""
        return self._categorical.logits

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = clamp_probs(standard_uniform(self._extended_shape(sample_shape), self.logits))
        scores = (self.logits - wf.log(-wf.log(u))) / self.temperature[..., None]
        return scores - wf.logsumexp(scores, axis=-1, keepdims=True)

    def log_prob(self, value: Any) -> Tensor:
        value, n = self.checked(value), self.event_shape[-1]
        scores = self.logits - value * self.temperature[..., None]
        scores = scores - wf.logsumexp(scores, axis=-1, keepdims=True)
        return wf.sum(scores, axis=-1) + math.lgamma(n) + (n - 1) * wf.log(self.temperature)


class RelaxedOneHotCategorical(TransformedDistribution):
    """Probabilities that become one-hot vectors as the temperature falls to 0, with gradients (Gumbel-softmax).

    Args:
        temperature: how far from one-hot vectors samples are; above 0.
        probs: weights of shape (…, K), not negative; they are normalised.
        logits: unnormalised logarithms of the probabilities, instead of `probs`.
        validate_args: check arguments and values.

    >>> from weft.distributions import RelaxedOneHotCategorical
    >>> RelaxedOneHotCategorical(0.5, logits=wf.zeros(2, 4)).rsample().sum(axis=-1).round()
    tensor([1., 1.])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Tensor:
        """The temperature."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """Logarithms of the probabilities."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities."""
        return self.base_dist.probs
