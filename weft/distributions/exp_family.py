"""Exponential families: densities h(x) exp(<t(x), η> - A(η)) with natural parameters η and log normaliser A."""

from __future__ import annotations

from typing import Any

import weft as wf

from ..tensor import Tensor
from .distribution import Distribution
from .utils import sum_rightmost


class ExponentialFamily(Distribution):
    """Base class of exponential families.

    A subclass that defines `_natural_params`, `_log_normalizer(*natural_params)` and `_mean_carrier_measure` (the expected
    value of log h) gets its entropy and the divergence from another member by differentiating the log normaliser.
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError(f"{type(self).__name__} does not define its natural parameters.")

    def _log_normalizer(self, *natural_params: Any) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} does not define its log normaliser.")

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define the mean of its carrier measure.")

    def entropy(self) -> Tensor:
        params = self._natural_params
        result = self._log_normalizer(*params) - self._mean_carrier_measure
        for eta, slope in zip(params, self._log_normalizer_gradients(), strict=True):
            result = result - sum_rightmost(eta * slope, len(self.event_shape))
        return result

    def _log_normalizer_gradients(self) -> tuple[Tensor, ...]:
        """∂A/∂η: the expected values of the sufficient statistics."""
        params = self._natural_params
        gradient = wf.grad_fn(lambda *p: wf.sum(self._log_normalizer(*p)), argnums=tuple(range(len(params))))
        return gradient(*params)
