"""The binomial distribution."""

from __future__ import annotations

from typing import Any

import weft as wf

from ..nn import functional as F
from ..tensor import Tensor
from . import constraints
from .binary_logits import BinaryLogits
from .distribution import Distribution
from .utils import binomial, spread


class Binomial(BinaryLogits, Distribution):
    """The number of successes in `total_count` independent trials.

    Args:
        total_count: the number of trials, a number or a tensor.
        probs: the probability of success.
        logits: its log odds, instead of `probs`.
        validate_args: check arguments and values.

    >>> from weft.distributions import Binomial
    >>> Binomial(10, wf.tensor([0.0, 1.0])).sample()
    tensor([ 0., 10.])
    """

    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        (self.total_count,) = self._take(probs, logits, total_count)
        super().__init__(self._param.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return wf.minimum(wf.floor((self.total_count + 1) * self.probs), self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return binomial(spread(self.total_count, shape), spread(self.probs, shape))

    def log_prob(self, value: Any) -> Tensor:
        value = self.checked(value)
        n = self.total_count
        ways = wf.lgamma(n + 1) - wf.lgamma(value + 1) - wf.lgamma(n - value + 1)
        return ways + value * F.logsigmoid(self.logits) + (n - value) * F.logsigmoid(-self.logits)

    def entropy(self) -> Tensor:
        values = self.enumerate_support(False)
        log_probs = self.log_prob(values)
        return -wf.sum(wf.exp(log_probs) * log_probs, axis=0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        counts = self.total_count
        total = int(wf.max(counts).item())
        if not bool(wf.all(counts == total)):
            raise NotImplementedError(
                "Binomial: the values of distributions with different total_count cannot be enumerated together."
            )
        values = wf.arange(1 + total, dtype=self._param.dtype).reshape((-1, *(1,) * len(self.batch_shape)))
        return spread(values, (1 + total, *self.batch_shape)) if expand else values
