"""The LKJ distribution of Cholesky factors of correlation matrices."""

from __future__ import annotations

import math
from typing import Any

import weft as wf

from ..autograd.tape import no_grad
from ..tensor import Tensor
from . import constraints
from .beta import Beta
from .distribution import Distribution
from .utils import broadcast_all, standard_normal


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices M, with the density of M proportional to det(M)^(concentration - 1).

    Lewandowski, Kurowicka and Joe, "Generating random correlation matrices based on vines and extended onion method" (2009).

    Args:
        dim: the size of the matrices, 2 or more.
        concentration: above 0; 1 is uniform, larger values favour the identity.
        validate_args: check arguments and values.

    >>> from weft.distributions import LKJCholesky
    >>> factor = LKJCholesky(3, 0.5).sample()
    >>> wf.linalg.diagonal(factor @ factor.mT).round()
    tensor([1., 1., 1.])
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"LKJCholesky: dim must be 2 or more. Got {dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """The onion method: each row is a random direction, of a length whose square is a beta variable."""
        shape = self._extended_shape(sample_shape)
        dtype = self.concentration.dtype
        with no_grad():
            rows = wf.arange(self.dim, dtype=dtype)
            offset = wf.clip(rows - 1, 0.0, None)
            marginal = self.concentration[..., None] + 0.5 * (self.dim - 2)
            square = Beta(0.5 * offset + 0.5, marginal - 0.5 * offset, validate_args=False).sample(sample_shape)
            normal = wf.tril(standard_normal(shape, self.concentration), k=-1)
            length = wf.linalg.vector_norm(normal, axis=-1, keepdims=True)
            direction = normal / wf.where(length > 0, length, 1.0)
            below = wf.sqrt(square)[..., None] * direction  # the first row of `direction` is zero
            smallest = float(wf.finfo(dtype).smallest_normal)
            diagonal = wf.sqrt(wf.clip(1 - wf.sum(below**2, axis=-1), smallest, None))
            return below + wf.diag_embed(diagonal)

    def log_prob(self, value: Any) -> Tensor:
        value, n = self.checked(value), self.dim
        diagonal = wf.linalg.diagonal(value)[..., 1:]
        order = 2 * (self.concentration - 1)[..., None] + n - wf.arange(2, n + 1, dtype=self.concentration.dtype)
        unnormalised = wf.sum(order * wf.log(diagonal), axis=-1)
        top = self.concentration + 0.5 * (n - 1)
        normaliser = wf.special.multigammaln(top - 0.5, n - 1) - (n - 1) * wf.lgamma(top)
        return unnormalised - normaliser - 0.5 * (n - 1) * math.log(math.pi)
