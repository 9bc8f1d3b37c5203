"""The geometric distribution."""

from __future__ import annotations

from typing import Any

import weft as wf

from ..tensor import Tensor
from . import constraints
from .binary_logits import BinaryLogits, binary_entropy
from .distribution import Distribution
from .utils import ensure, open_uniform


class Geometric(BinaryLogits, Distribution):
    """The number of failures before the first success.

    Args:
        probs: the probability of success, above 0.
        logits: its log odds, instead of `probs`.
        validate_args: check arguments and values.

    >>> from weft.distributions import Geometric
    >>> Geometric(0.25).mean
    tensor(3.)
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._take(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)
        if self._validate_args and probs is not None:
            ensure(self.probs, self.probs > 0, lambda: "Geometric: probs must be greater than 0. Got a 0.")

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        return wf.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Any = ()) -> Tensor:
        probs = self.probs.detach()
        u = open_uniform(self._extended_shape(sample_shape), probs)
        return wf.floor(wf.log(u) / wf.log1p(-probs))

    def log_prob(self, value: Any) -> Tensor:
        value = self.checked(value)
        return wf.special.xlog1py(value, -self.probs) + wf.log(self.probs)

    def entropy(self) -> Tensor:
        return binary_entropy(self.logits, self.probs) / self.probs
