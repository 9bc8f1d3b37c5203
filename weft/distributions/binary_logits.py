"""Families with a probability that is given as `probs` or, as log odds, as `logits`."""

from __future__ import annotations

from typing import Any

import weft as wf

from ..nn import functional as F
from ..tensor import Tensor
from .utils import Shape, broadcast_all, lazy_property, logits_to_probs, one_of, probs_to_logits


class BinaryLogits:
    """Stores the one that is given and computes the other when it is asked for."""

    def _take(self, probs: Any, logits: Any, *others: Any) -> tuple[Tensor, ...]:
        """Store `probs` or `logits`, broadcast with `others`, which are returned."""
        name = one_of(type(self).__name__, probs=probs, logits=logits)
        value, *rest = broadcast_all(probs if name == "probs" else logits, *others)
        setattr(self, name, value)
        return tuple(rest)

    @lazy_property
    def logits(self) -> Tensor:
        """Log odds."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """Probabilities."""
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def _param(self) -> Tensor:
        return self.__dict__["probs"] if "probs" in self.__dict__ else self.__dict__["logits"]

    @property
    def param_shape(self) -> Shape:
        """The shape of the parameter."""
        return self._param.shape


def bernoulli_log_prob(logits: Tensor, value: Any) -> Tensor:
    """value log p + (1 - value) log(1 - p), accurate for all logits."""
    return value * F.logsigmoid(logits) + (1 - value) * F.logsigmoid(-logits)


def binary_entropy(logits: Tensor, probs: Tensor) -> Tensor:
    """-p log p - (1 - p) log(1 - p)."""
    return -bernoulli_log_prob(logits, probs)


def draw_bernoulli(probs: Tensor, shape: Shape) -> Tensor:
    """Ones with probability `probs`, else zeros."""
    from .utils import standard_uniform

    probs = probs.detach()
    return wf.astype(standard_uniform(shape, probs) < probs, probs.dtype)
