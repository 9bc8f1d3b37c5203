"""The Wishart distribution."""

from __future__ import annotations

import math
from typing import Any

import weft as wf

from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .multivariate_normal import factor_of, given_matrix
from .utils import (
    broadcast_all,
    common_shape,
    half_log_det,
    inverse_tril,
    lazy_property,
    spread,
    standard_gamma,
    standard_normal,
)


class Wishart(Distribution):
    """The distribution of the scatter matrix of `df` normal vectors of mean 0.

    Args:
        df: the degrees of freedom, above n - 1.
        covariance_matrix: that of the vectors, positive definite matrices (…, n, n); or instead
        precision_matrix: their inverses, or
        scale_tril: their lower Cholesky factors.
        validate_args: check arguments and values.

    >>> from weft.distributions import Wishart
    >>> Wishart(5.0, wf.eye(2)).mean.tolist()
    [[5.0, 0.0], [0.0, 5.0]]
    """

    support = constraints.positive_definite
    has_rsample = True

    @property
    def arg_constraints(self) -> Any:
        """The constraints of the parameters."""
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self.event_shape[-1] - 1),
        }

    def __init__(
        self,
        df: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        name, matrix = given_matrix("Wishart", covariance_matrix, precision_matrix, scale_tril)
        df = wf.full((), df, dtype=matrix.dtype) if isinstance(df, (int, float)) else broadcast_all(df)[0]
        n = matrix.shape[-1]
        batch = common_shape(matrix.shape[:-2], df.shape)
        self.df = spread(df, batch)
        setattr(self, name, spread(matrix, (*batch, n, n)))
        super().__init__(batch, (n, n), validate_args=validate_args)
        self._factor = factor_of(name, matrix)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the covariance."""
        return spread(self._factor, self.batch_shape + self.event_shape)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance of the vectors."""
        return spread(self._factor @ self._factor.mT, self.batch_shape + self.event_shape)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        inverse = self._inverse_factor
        return spread(inverse.mT @ inverse, self.batch_shape + self.event_shape)

    @lazy_property
    def _inverse_factor(self) -> Tensor:
        return inverse_tril(self._factor)

    @property
    def mean(self) -> Tensor:
        return self.df[..., None, None] * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        """NaN up to df = n + 1."""
        factor = self.df - self.event_shape[-1] - 1
        factor = wf.where(factor > 0, factor, wf.full((), math.nan, dtype=factor.dtype))
        return factor[..., None, None] * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        diagonal = wf.linalg.diagonal(v)
        return self.df[..., None, None] * (v**2 + diagonal[..., :, None] * diagonal[..., None, :])

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Bartlett's decomposition: a triangular matrix of normal variables with chi variables on the diagonal."""
        shape = self._extended_shape(sample_shape)
        n = shape[-1]
        half_df = (self.df[..., None] - wf.arange(n, dtype=self.df.dtype)) * 0.5
        # square roots of chi-squared variables, from the logarithms of gamma variables
        chi = wf.exp(0.5 * (standard_gamma(spread(half_df, shape[:-1]), log=True) + math.log(2.0)))
        chi = wf.clip(chi, float(wf.finfo(chi.dtype).eps), None)
        noise = wf.tril(standard_normal(shape, self.df), k=-1) + wf.diag_embed(chi)
        root = self._factor @ noise
        return root @ root.mT

    def log_prob(self, value: Any) -> Tensor:
        value, df, n = self.checked(value), self.df, self.event_shape[-1]
        whitened = self._inverse_factor @ value @ self._inverse_factor.mT
        front = -df * (n * math.log(2) / 2 + half_log_det(self._factor)) - wf.special.multigammaln(df / 2, n)
        log_det = wf.linalg.slogdet(value)[1]
        return front + (df - n - 1) / 2 * log_det - wf.sum(wf.linalg.diagonal(whitened), axis=-1) / 2

    def entropy(self) -> Tensor:
        df, n = self.df, self.event_shape[-1]
        spread = (n + 1) * (n * math.log(2) / 2 + half_log_det(self._factor))
        slopes = (df - n - 1) / 2 * multidigamma(df / 2, n)
        return spread + wf.special.multigammaln(df / 2, n) - slopes + df * n / 2


def multidigamma(x: Tensor, n: int) -> Tensor:
    """The derivative of `multigammaln`."""
    total = wf.digamma(x)
    for j in range(1, n):
        total = total + wf.digamma(x - j / 2)
    return total
