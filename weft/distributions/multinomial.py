"""The multinomial distribution."""

from __future__ import annotations

from typing import Any

import weft as wf

from ..nn import functional as F
from ..ops.core.spec import as_integer
from ..tensor import Tensor
from . import constraints
from .binomial import Binomial
from .categorical import Categorical
from .distribution import Distribution
from .utils import Shape, binomial, spread


class Multinomial(Distribution):
    """How often each of K categories occurs in `total_count` draws.

    Args:
        total_count: the number of draws, an integer.
        probs: weights of shape (…, K), not negative; they are normalised.
        logits: unnormalised logarithms of the probabilities, instead of `probs`.
        validate_args: check arguments and values.

    >>> from weft.distributions import Multinomial
    >>> Multinomial(100, wf.ones(4)).sample().sum()
    tensor(100.)
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(
        self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        try:
            self.total_count = as_integer(total_count)
        except TypeError:
            raise NotImplementedError(
                f"Multinomial: total_count must be one integer for the whole batch. Got {total_count!r}."
            ) from None
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args)

    def _expand_parameters(self, batch_shape: Shape) -> None:
        self._categorical = self._categorical.expand(batch_shape)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

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
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape, n = self._extended_shape(sample_shape), self.total_count
        if n <= shape[-1]:
            draws = self._categorical.sample((n, *shape[: len(shape) - 1 - len(self.batch_shape)]))
            return wf.sum(wf.astype(F.one_hot(draws, shape[-1]), self._param.dtype), axis=0)
        return self._by_binomials(shape)

    def _by_binomials(self, shape: Shape) -> Tensor:
        """Category by category, of the draws that are left; of the last category, all of them."""
        probs = spread(self.probs.detach(), shape)
        left = wf.full(shape[:-1], float(self.total_count), dtype=probs.dtype)
        # the sum of the probabilities from a category on
        tails = wf.flip(wf.cumsum(wf.flip(probs, axis=-1), axis=-1), axis=-1)
        counts = []
        for k in range(shape[-1] - 1):
            tail = tails[..., k]
            share = wf.where(tail > 0, wf.clip(probs[..., k] / wf.where(tail > 0, tail, 1.0), 0.0, 1.0), 0.0)
            counts.append(binomial(left, share))
            left = left - counts[-1]
        return wf.stack([*counts, left], axis=-1)

    def log_prob(self, value: Any) -> Tensor:
        value = self.checked(value)
        ways = wf.lgamma(wf.sum(value, axis=-1) + 1) - wf.sum(wf.lgamma(value + 1), axis=-1)
        logits = wf.where((value == 0) & (self.logits == -wf.inf), wf.zeros((), dtype=self.logits.dtype), self.logits)
        return ways + wf.sum(logits * value, axis=-1)

    def entropy(self) -> Tensor:
        n = self.total_count
        # the counts of each category are binomial
        values = Binomial(n, self.probs, validate_args=False).enumerate_support(False)[1:]
        probs = wf.exp(Binomial(n, self.probs, validate_args=False).log_prob(values))
        repeats = wf.sum(probs * wf.lgamma(values + 1), axis=(0, -1))
        ways = wf.lgamma(wf.full((), n + 1.0, dtype=self.probs.dtype))
        return n * self._categorical.entropy() - ways + repeats
