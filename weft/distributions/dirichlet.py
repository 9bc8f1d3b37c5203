"""The Dirichlet distribution."""

from __future__ import annotations

from typing import Any

import weft as wf

from ..errors import format_shape
from ..nn import functional as F
from ..tensor import Tensor
from . import constraints
from .exp_family import ExponentialFamily
from .utils import broadcast_all, spread, standard_gamma


class Dirichlet(ExponentialFamily):
    """A distribution of probabilities of K categories. Samples have implicit gradients.

    Args:
        concentration: positive numbers of shape (…, K).
        validate_args: check arguments and values.

    >>> from weft.distributions import Dirichlet
    >>> Dirichlet(wf.tensor([1.0, 3.0])).mean
    tensor([0.25, 0.75])
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Any, validate_args: bool | None = None) -> None:
        (self.concentration,) = broadcast_all(concentration)
        shape = self.concentration.shape
        if len(shape) < 1:
            raise ValueError(
                f"Dirichlet: concentration must have an axis of categories. Got shape {format_shape(shape)}."
            )
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / wf.sum(self.concentration, axis=-1, keepdims=True)

    @property
    def mode(self) -> Tensor:
        """The maximum of the density; where no concentration is above 1, the corner of the largest."""
        above = wf.clip(self.concentration - 1, 0.0, None)
        total = wf.sum(above, axis=-1, keepdims=True)
        corner = F.one_hot(wf.argmax(self.concentration, axis=-1), self.event_shape[-1])
        return wf.where(total > 0, above / wf.where(total > 0, total, 1.0), wf.astype(corner, above.dtype))

    @property
    def variance(self) -> Tensor:
        total = wf.sum(self.concentration, axis=-1, keepdims=True)
        return self.concentration * (total - self.concentration) / (total**2 * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        # gamma variables, normalised; from their logarithms, which do not underflow
        return F.softmax(standard_gamma(spread(self.concentration, shape), log=True), -1)

    def log_prob(self, value: Any) -> Tensor:
        value = self.checked(value)
        return wf.sum(wf.xlogy(self.concentration - 1.0, value), axis=-1) - self._log_beta(self.concentration)

    @staticmethod
    def _log_beta(concentration: Tensor) -> Tensor:
        return wf.sum(wf.lgamma(concentration), axis=-1) - wf.lgamma(wf.sum(concentration, axis=-1))

    def entropy(self) -> Tensor:
        a = self.concentration
        total, k = wf.sum(a, axis=-1), self.event_shape[-1]
        slopes = (k - total) * wf.digamma(total) + wf.sum((a - 1.0) * wf.digamma(a), axis=-1)
        return self._log_beta(a) - slopes

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.concentration,)

    def _log_normalizer(self, *natural_params: Any) -> Tensor:
        return self._log_beta(natural_params[0])
