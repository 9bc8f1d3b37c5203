"""The Bernoulli distribution."""

from __future__ import annotations

import math
from typing import Any

import weft as wf

from ..tensor import Tensor
from . import constraints
from .binary_logits import BinaryLogits, bernoulli_log_prob, binary_entropy, draw_bernoulli
from .exp_family import ExponentialFamily
from .utils import spread


class Bernoulli(BinaryLogits, ExponentialFamily):
    """1 with probability `probs`, else 0.

    Args:
        probs: the probability of 1.
        logits: its log odds, instead of `probs`.
        validate_args: check arguments and values.

    >>> from weft.distributions import Bernoulli
    >>> Bernoulli(wf.tensor([0.0, 1.0])).sample()
    tensor([0., 1.])
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._take(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        """The more likely value; NaN where both are equally likely."""
        half = wf.full((), math.nan, dtype=self.probs.dtype)
        return wf.where(self.probs == 0.5, half, wf.astype(self.probs > 0.5, self.probs.dtype))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return draw_bernoulli(self.probs, self._extended_shape(sample_shape))

    def log_prob(self, value: Any) -> Tensor:
        return bernoulli_log_prob(self.logits, self.checked(value))

    def entropy(self) -> Tensor:
        return binary_entropy(self.logits, self.probs)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = wf.arange(2, dtype=self._param.dtype).reshape((2, *(1,) * len(self.batch_shape)))
        return spread(values, (2, *self.batch_shape)) if expand else values

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, *natural_params: Any) -> Tensor:
        return wf.log1p(wf.exp(natural_params[0]))
