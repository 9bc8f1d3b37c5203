"""Mixtures of distributions of one family."""

from __future__ import annotations

from typing import Any

import weft as wf

from ..autograd.tape import no_grad
from ..errors import format_shape
from ..nn import functional as F
from ..tensor import Tensor
from . import constraints
from .categorical import Categorical
from .constraints import MixtureSameFamilyConstraint
from .distribution import Distribution
from .utils import Shape, spread


class MixtureSameFamily(Distribution):
    """A mixture whose components are the last batch axis of a distribution.

    Args:
        mixture_distribution: a Categorical over the components.
        component_distribution: a distribution whose last batch axis has as many elements.
        validate_args: check values.

    >>> from weft.distributions import Categorical, MixtureSameFamily, Normal
    >>> d = MixtureSameFamily(Categorical(wf.ones(2)), Normal(wf.tensor([-1.0, 3.0]), wf.ones(2)))
    >>> d.mean
    tensor(1.)
    """

    def __init__(
        self, mixture_distribution: Categorical, component_distribution: Distribution, validate_args: bool | None = None
    ) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise TypeError(
                f"MixtureSameFamily: mixture_distribution must be a Categorical. Got {type(mixture_distribution).__name__}."
            )
        if not isinstance(component_distribution, Distribution) or not component_distribution.batch_shape:
            raise TypeError(
                "MixtureSameFamily: component_distribution must be a distribution with a batch axis for the components. "
                f"Got {component_distribution!r}."
            )
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        weights, parts = mixture_distribution.param_shape, component_distribution.batch_shape
        if weights[-1] != parts[-1]:
            raise ValueError(
                f"MixtureSameFamily: the mixture has {weights[-1]} components and the component distribution "
                f"{parts[-1]}, the size of its last batch axis."
            )
        for i, j in zip(reversed(weights[:-1]), reversed(parts[:-1])):
            if i != 1 and j != 1 and i != j:
                raise ValueError(
                    "MixtureSameFamily: the batch shapes do not broadcast. Got "
                    f"{format_shape(weights[:-1])} and {format_shape(parts[:-1])}."
                )
        self._num_component = parts[-1]
        self._event_ndims = len(component_distribution.event_shape)
        super().__init__(parts[:-1], component_distribution.event_shape, validate_args)

    def _expand_parameters(self, batch_shape: Shape) -> None:
        self._component_distribution = self._component_distribution.expand((*batch_shape, self._num_component))
        self._mixture_distribution = self._mixture_distribution.expand(batch_shape)

    @constraints.dependent_property
    def support(self) -> Any:
        return MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Categorical:
        """The distribution of the component."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Any:
        """The components, along the last batch axis."""
        return self._component_distribution

    @property
    def _axis(self) -> int:
        """The axis of the components before the event axes."""
        return -1 - self._event_ndims

    def _weights(self) -> Tensor:
        probs = self.mixture_distribution.probs
        return probs.reshape((*probs.shape, *(1,) * self._event_ndims))

    @property
    def mean(self) -> Tensor:
        return wf.sum(self._weights() * self.component_distribution.mean, axis=self._axis)

    @property
    def variance(self) -> Tensor:
        weights, parts = self._weights(), self.component_distribution
        within = wf.sum(weights * parts.variance, axis=self._axis)
        between = wf.sum(weights * (parts.mean - wf.expand_dims(self.mean, self._axis)) ** 2, axis=self._axis)
        return within + between

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            chosen = self.mixture_distribution.expand(self.batch_shape).sample(sample_shape)
            values = self.component_distribution.sample(sample_shape)
            index = chosen.reshape((*chosen.shape, *(1,) * (1 + self._event_ndims)))
            index = spread(index, (*chosen.shape, 1, *self.event_shape))
            return wf.squeeze(wf.take_along_axis(values, index, axis=self._axis), axis=self._axis)

    def log_prob(self, value: Any) -> Tensor:
        value = self.checked(value)
        parts = self.component_distribution.log_prob(wf.expand_dims(value, self._axis))
        return wf.logsumexp(parts + F.log_softmax(self.mixture_distribution.logits, -1), axis=-1)

    def cdf(self, value: Any) -> Tensor:
        parts = self.component_distribution.cdf(wf.expand_dims(wf.asarray(value), self._axis))
        return wf.sum(parts * self.mixture_distribution.probs, axis=-1)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
