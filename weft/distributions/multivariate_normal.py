"""The multivariate normal distribution."""

from __future__ import annotations

import math
from typing import Any

import weft as wf

from ..errors import format_shape
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .utils import (
    batch_mv,
    broadcast_all,
    common_shape,
    half_log_det,
    inverse_tril,
    lazy_property,
    one_of,
    spread,
    standard_normal,
)


def precision_to_scale_tril(precision: Tensor) -> Tensor:
    """The Cholesky factor of the inverse of positive definite matrices."""
    # with rows and columns reversed, the factor of the precision is the inverse of that of the covariance, transposed
    reversed_factor = wf.linalg.cholesky(wf.flip(precision, axis=(-2, -1)))
    return inverse_tril(wf.flip(reversed_factor, axis=(-2, -1)).mT)


def given_matrix(owner: str, covariance: Any, precision: Any, scale_tril: Any) -> tuple[str, Tensor]:
    """The name of the one that is given, and its value."""
    name = one_of(owner, covariance_matrix=covariance, precision_matrix=precision, scale_tril=scale_tril)
    given = next(v for v in (covariance, precision, scale_tril) if v is not None)
    (matrix,) = broadcast_all(given)
    if matrix.ndim < 2 or matrix.shape[-2] != matrix.shape[-1]:
        raise ValueError(f"{owner}: {name} must be square matrices. Got shape {format_shape(matrix.shape)}.")
    return name, matrix


def factor_of(name: str, matrix: Tensor) -> Tensor:
    """The Cholesky factor of the covariance, of a matrix given under this name."""
    if name == "scale_tril":
        return matrix
    return wf.linalg.cholesky(matrix) if name == "covariance_matrix" else precision_to_scale_tril(matrix)


class MultivariateNormal(Distribution):
    """The normal distribution of vectors.

    Args:
        loc: the mean, of shape (…, n).
        covariance_matrix: positive definite matrices (…, n, n); or instead
        precision_matrix: their inverses, or
        scale_tril: their lower Cholesky factors, which saves a decomposition.
        validate_args: check arguments and values.

    >>> from weft.distributions import MultivariateNormal
    >>> d = MultivariateNormal(wf.zeros(2), wf.eye(2))
    >>> d.log_prob(wf.zeros(2))
    tensor(-1.8378...)
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        name, matrix = given_matrix("MultivariateNormal", covariance_matrix, precision_matrix, scale_tril)
        (loc,) = broadcast_all(loc)
        n = matrix.shape[-1]
        if loc.ndim < 1 or loc.shape[-1] not in (1, n):
            raise ValueError(
                f"MultivariateNormal: loc must be vectors of {n} elements, the size of {name}. "
                f"Got shape {format_shape(loc.shape)}."
            )
        batch = common_shape(matrix.shape[:-2], loc.shape[:-1])
        self.loc = spread(loc, (*batch, n))
        setattr(self, name, spread(matrix, (*batch, n, n)))
        super().__init__(batch, (n,), validate_args=validate_args)
        self._factor = factor_of(name, matrix)  # not broadcast: one decomposition for the whole batch

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the covariance."""
        return spread(self._factor, self.batch_shape + self.event_shape * 2)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        return spread(self._factor @ self._factor.mT, self.batch_shape + self.event_shape * 2)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        inverse = self._inverse_factor
        return spread(inverse.mT @ inverse, self.batch_shape + self.event_shape * 2)

    @lazy_property
    def _inverse_factor(self) -> Tensor:
        return inverse_tril(self._factor)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The variance of each element: the diagonal of the covariance."""
        return spread(wf.sum(self._factor**2, axis=-1), self.batch_shape + self.event_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        noise = standard_normal(self._extended_shape(sample_shape), self.loc)
        return self.loc + batch_mv(self._factor, noise)

    def squared_distance(self, difference: Tensor) -> Tensor:
        """Mahalanobis distances, squared, of differences from the mean."""
        return wf.sum(batch_mv(self._inverse_factor, difference) ** 2, axis=-1)

    def log_prob(self, value: Any) -> Tensor:
        distance = self.squared_distance(self.checked(value) - self.loc)
        return -0.5 * (self.event_shape[0] * math.log(2 * math.pi) + distance) - half_log_det(self._factor)

    def entropy(self) -> Tensor:
        entropy = 0.5 * self.event_shape[0] * (1.0 + math.log(2 * math.pi)) + half_log_det(self._factor)
        return spread(entropy, self.batch_shape)
