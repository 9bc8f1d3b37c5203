"""The negative binomial distribution."""

from __future__ import annotations

from typing import Any

import weft as wf

from ..autograd.tape import no_grad
from ..nn import functional as F
from ..tensor import Tensor
from . import constraints
from .binary_logits import BinaryLogits
from .distribution import Distribution
from .utils import poisson, spread, standard_gamma


class NegativeBinomial(BinaryLogits, Distribution):
    """The number of successes before `total_count` failures.

    Args:
        total_count: the number of failures, above 0, not necessarily an integer.
        probs: the probability of success, below 1.
        logits: its log odds, instead of `probs`.
        validate_args: check arguments and values.

    >>> from weft.distributions import NegativeBinomial
    >>> NegativeBinomial(3.0, 0.5).mean
    tensor(3.)
    """

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        (self.total_count,) = self._take(probs, logits, total_count)
        super().__init__(self._param.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * wf.exp(self.logits)

    @property
    def mode(self) -> Tensor:
        return wf.clip(wf.floor((self.total_count - 1) * wf.exp(self.logits)), 0.0, None)

    @property
    def variance(self) -> Tensor:
        return self.mean / wf.sigmoid(-self.logits)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            count = spread(self.total_count, shape)
            rate = standard_gamma(wf.where(count > 0, count, 1.0)) * wf.exp(self.logits)
            return poisson(wf.where(count > 0, rate, 0.0))

    def log_prob(self, value: Any) -> Tensor:
        value = self.checked(value)
        n = self.total_count
        kernel = n * F.logsigmoid(-self.logits) + value * F.logsigmoid(self.logits)
        # log of Γ(n + value) / (Γ(1 + value) Γ(n)), which is 1 for no failures and no successes
        ways = wf.lgamma(n + value) - wf.lgamma(1.0 + value) - wf.lgamma(n)
        return kernel + wf.where(n + value == 0.0, wf.zeros((), dtype=kernel.dtype), ways)
