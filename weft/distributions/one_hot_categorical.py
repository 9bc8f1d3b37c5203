"""The categorical distribution over one-hot vectors, and its straight-through estimator."""

from __future__ import annotations

from typing import Any

import weft as wf

from ..nn import functional as F
from ..tensor import Tensor
from . import constraints
from .categorical import Categorical
from .distribution import Distribution
from .utils import Shape, spread


class OneHotCategorical(Distribution):
    """A one-hot vector of length K.

    Args:
        probs: weights of shape (…, K), not negative; they are normalised.
        logits: unnormalised logarithms of the probabilities, instead of `probs`.
        validate_args: check arguments and values.

    >>> from weft.distributions import OneHotCategorical
    >>> OneHotCategorical(wf.tensor([0.0, 1.0])).sample()
    tensor([0., 1.])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args)

    def _expand_parameters(self, batch_shape: Shape) -> None:
        self._categorical = self._categorical.expand(batch_shape)

    @property
    def _param(self) -> Tensor:
        return self._categorical._param

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

    @property
    def mean(self) -> Tensor:
        return self._categorical.probs

    @property
    def mode(self) -> Tensor:
        return self._one_hot(self._categorical.mode)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def _one_hot(self, index: Tensor) -> Tensor:
        return wf.astype(F.one_hot(index, self.event_shape[-1]), self._param.dtype)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self._one_hot(self._categorical.sample(sample_shape))

    def log_prob(self, value: Any) -> Tensor:
        return self._categorical.log_prob(wf.argmax(self.checked(value), axis=-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self.event_shape[0]
        values = wf.eye(n, dtype=self._param.dtype).reshape((n, *(1,) * len(self.batch_shape), n))
        return spread(values, (n, *self.batch_shape, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """`OneHotCategorical` whose samples have the gradients of the probabilities (the straight-through estimator).

    Arguments as for `OneHotCategorical`.

    >>> from weft.distributions import OneHotCategoricalStraightThrough
    >>> logits = wf.zeros(3, requires_grad=True)
    >>> OneHotCategoricalStraightThrough(logits=logits).rsample().sum().requires_grad
    True
    """

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        probs = self._categorical.probs
        return self.sample(sample_shape) + (probs - probs.detach())
