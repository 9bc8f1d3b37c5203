"""Multivariate normal distributions whose covariance is a diagonal plus a matrix of low rank."""

from __future__ import annotations

import math
from typing import Any

import weft as wf

from ..errors import format_shape
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .utils import (
    add_identity,
    batch_mv,
    broadcast_all,
    common_shape,
    half_log_det,
    inverse_tril,
    lazy_property,
    spread,
    standard_normal,
)


class LowRankMultivariateNormal(Distribution):
    """The normal distribution of vectors with the covariance W Wᵀ + diag(d), with W of shape (n, m) and small m.

    Sampling, log_prob and entropy cost O(n m²) instead of O(n³).

    Args:
        loc: the mean, of shape (…, n).
        cov_factor: W, of shape (…, n, m).
        cov_diag: d, of shape (…, n), above 0.
        validate_args: check arguments and values.

    >>> from weft.distributions import LowRankMultivariateNormal
    >>> d = LowRankMultivariateNormal(wf.zeros(3), wf.zeros(3, 1), wf.ones(3))
    >>> d.variance
    tensor([1., 1., 1.])
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Any, cov_factor: Any, cov_diag: Any, validate_args: bool | None = None) -> None:
        (loc,), (factor,), (diag,) = broadcast_all(loc), broadcast_all(cov_factor), broadcast_all(cov_diag)
        if loc.ndim < 1 or factor.ndim < 2 or factor.shape[-2] != loc.shape[-1] or diag.shape[-1:] != loc.shape[-1:]:
            raise ValueError(
                "LowRankMultivariateNormal: expected loc (…, n), cov_factor (…, n, m) and cov_diag (…, n). Got "
                f"{format_shape(loc.shape)}, {format_shape(factor.shape)} and {format_shape(diag.shape)}."
            )
        batch = common_shape(loc.shape[:-1], factor.shape[:-2], diag.shape[:-1])
        n = loc.shape[-1]
        self.loc, self.cov_diag = spread(loc, (*batch, n)), spread(diag, (*batch, n))
        self.cov_factor = spread(factor, (*batch, *factor.shape[-2:]))
        super().__init__(batch, (n,), validate_args=validate_args)
        self._factor, self._diag = factor, diag  # as given, not broadcast

    @lazy_property
    def _capacitance_tril(self) -> Tensor:
        """The Cholesky factor of I + Wᵀ diag(d)⁻¹ W."""
        return wf.linalg.cholesky(add_identity((self._factor.mT / self._diag[..., None, :]) @ self._factor))

    @lazy_property
    def _reduction(self) -> Tensor:
        """A with AᵀA = diag(d)⁻¹ - (covariance)⁻¹, of shape (…, m, n)."""
        return inverse_tril(self._capacitance_tril) @ (self._factor.mT / self._diag[..., None, :])

    def log_det(self) -> Tensor:
        """The logarithm of the determinant of the covariance."""
        return 2 * half_log_det(self._capacitance_tril) + wf.sum(wf.log(self._diag), axis=-1)

    def squared_distance(self, difference: Tensor) -> Tensor:
        """Mahalanobis distances, squared, of differences from the mean."""
        reduced = batch_mv(self._reduction, difference)
        return wf.sum(difference**2 / self._diag, axis=-1) - wf.sum(reduced**2, axis=-1)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:
        """The variance of each element: the diagonal of the covariance."""
        return spread(wf.sum(self._factor**2, axis=-1) + self._diag, self.batch_shape + self.event_shape)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the covariance."""
        root = wf.sqrt(self._diag)[..., None]
        inner = self._factor / root
        tril = root * wf.linalg.cholesky(add_identity(inner @ inner.mT))
        return spread(tril, self.batch_shape + self.event_shape * 2)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        matrix = self._factor @ self._factor.mT + wf.diag_embed(self._diag)
        return spread(matrix, self.batch_shape + self.event_shape * 2)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        matrix = wf.diag_embed(1 / self._diag) - self._reduction.mT @ self._reduction
        return spread(matrix, self.batch_shape + self.event_shape * 2)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        common = standard_normal((*shape[:-1], self._factor.shape[-1]), self.loc)
        own = standard_normal(shape, self.loc)
        return self.loc + batch_mv(self._factor, common) + wf.sqrt(self._diag) * own

    def log_prob(self, value: Any) -> Tensor:
        distance = self.squared_distance(self.checked(value) - self.loc)
        return -0.5 * (self.event_shape[0] * math.log(2 * math.pi) + self.log_det() + distance)

    def entropy(self) -> Tensor:
        entropy = 0.5 * (self.event_shape[0] * (1.0 + math.log(2 * math.pi)) + self.log_det())
        return spread(entropy, self.batch_shape)
