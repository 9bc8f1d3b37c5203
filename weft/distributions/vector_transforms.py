"""Transforms of vectors to the simplex and to triangular and positive definite matrices."""

from __future__ import annotations

import math
from typing import Any

import weft as wf

from ..errors import format_shape
from ..nn import functional as F
from ..tensor import Tensor
from . import constraints
from .scalar_transforms import clipped_sigmoid
from .transform import Transform
from .utils import Shape, tril_matrix_to_vec, vec_to_tril_matrix


def _vector(name: str, shape: Any) -> Shape:
    if len(shape) < 1:
        raise ValueError(f"{name}: expected vectors. Got the shape {format_shape(shape)}.")
    return tuple(shape)


def _after_one(x: Tensor) -> Tensor:
    """`x` along its last axis behind a 1, without its last element."""
    return wf.concat([wf.ones((*x.shape[:-1], 1), dtype=x.dtype), x[..., :-1]], axis=-1)


class SoftmaxTransform(Transform):
    """Normalised exponentials along the last axis; not bijective, as a constant may be added to the arguments.

    >>> from weft.distributions.transforms import SoftmaxTransform
    >>> SoftmaxTransform()(wf.zeros(2))
    tensor([0.5, 0.5])
    """

    domain = constraints.real_vector
    codomain = constraints.simplex

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SoftmaxTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Any) -> Any:
        return F.softmax(x, -1)

    def _inverse(self, y: Any) -> Any:
        return wf.log(y)

    def forward_shape(self, shape: Any) -> Shape:
        return _vector("SoftmaxTransform", shape)

    def inverse_shape(self, shape: Any) -> Shape:
        return _vector("SoftmaxTransform", shape)


class StickBreakingTransform(Transform):
    """From n numbers to n + 1 probabilities, bijective: each takes a share (a sigmoid) of what the ones before left.

    >>> from weft.distributions.transforms import StickBreakingTransform
    >>> StickBreakingTransform()(wf.zeros(1))
    tensor([0.5, 0.5])
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StickBreakingTransform)

    __hash__ = Transform.__hash__

    @staticmethod
    def _shifted(x: Tensor) -> Tensor:
        """`x` shifted such that zeros give equal probabilities."""
        n = x.shape[-1]
        return x - wf.log(wf.arange(n, 0, -1, dtype=x.dtype))

    def _call(self, x: Any) -> Any:
        share = clipped_sigmoid(self._shifted(x))
        left = wf.cumprod(1 - share, axis=-1)
        one = wf.ones((*x.shape[:-1], 1), dtype=x.dtype)
        return wf.concat([share, one], axis=-1) * wf.concat([one, left], axis=-1)

    def _inverse(self, y: Any) -> Any:
        first = y[..., :-1]
        n = first.shape[-1]
        left = wf.clip(1 - wf.cumsum(first, axis=-1), float(wf.finfo(y.dtype).smallest_normal), None)
        return wf.log(first) - wf.log(left) + wf.log(wf.arange(n, 0, -1, dtype=y.dtype))

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        z = self._shifted(x)
        return wf.sum(-z + F.logsigmoid(z) + wf.log(y[..., :-1]), axis=-1)

    def forward_shape(self, shape: Any) -> Shape:
        shape = _vector("StickBreakingTransform", shape)
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Any) -> Shape:
        shape = _vector("StickBreakingTransform", shape)
        return (*shape[:-1], shape[-1] - 1)


class CorrCholeskyTransform(Transform):
    """From n (n - 1) / 2 numbers to the Cholesky factor of an n × n correlation matrix, bijective.

    The numbers fill the lower triangle row by row; tanh makes them partial correlations, and each element of a row takes that
    share of what the ones before left of the row's length 1.

    >>> from weft.distributions.transforms import CorrCholeskyTransform
    >>> CorrCholeskyTransform()(wf.zeros(1)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CorrCholeskyTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Any) -> Any:
        eps = float(wf.finfo(x.dtype).eps)
        partial = vec_to_tril_matrix(wf.clip(wf.tanh(x), -1 + eps, 1 - eps), diag=-1)
        left = wf.cumprod(wf.sqrt(1 - partial * partial), axis=-1)
        return (partial + wf.eye(partial.shape[-1], dtype=x.dtype)) * _after_one(left)

    def _inverse(self, y: Any) -> Any:
        left = _after_one(1 - wf.cumsum(y * y, axis=-1))
        partial = tril_matrix_to_vec(y, diag=-1) / wf.sqrt(tril_matrix_to_vec(left, diag=-1))
        return wf.atanh(partial)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        left = tril_matrix_to_vec(1 - wf.cumsum(y * y, axis=-1), diag=-2)
        lengths = 0.5 * wf.sum(wf.log(left), axis=-1)
        tanh = -2 * wf.sum(x - F.logsigmoid(2 * x) - math.log(2.0), axis=-1)
        return lengths + tanh

    def forward_shape(self, shape: Any) -> Shape:
        shape = _vector("CorrCholeskyTransform", shape)
        n = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != shape[-1]:
            raise ValueError(
                f"CorrCholeskyTransform: {shape[-1]} elements are not those below the diagonal of a square matrix."
            )
        return (*shape[:-1], n, n)

    def inverse_shape(self, shape: Any) -> Shape:
        if len(shape) < 2 or shape[-2] != shape[-1]:
            raise ValueError(f"CorrCholeskyTransform: expected square matrices. Got shape {format_shape(shape)}.")
        n = shape[-1]
        return (*shape[:-2], n * (n - 1) // 2)


class LowerCholeskyTransform(Transform):
    """From square matrices to lower triangular ones with a positive diagonal: exp of the diagonal, what is above it dropped.

    >>> from weft.distributions.transforms import LowerCholeskyTransform
    >>> LowerCholeskyTransform()(wf.tensor([[0.0, 5.0], [2.0, 0.0]])).tolist()
    [[1.0, 0.0], [2.0, 1.0]]
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LowerCholeskyTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Any) -> Any:
        return wf.tril(x, k=-1) + wf.diag_embed(wf.exp(wf.linalg.diagonal(x)))

    def _inverse(self, y: Any) -> Any:
        return wf.tril(y, k=-1) + wf.diag_embed(wf.log(wf.linalg.diagonal(y)))


class PositiveDefiniteTransform(Transform):
    """From square matrices to positive definite ones: L Lᵀ with L of `LowerCholeskyTransform`.

    >>> from weft.distributions.transforms import PositiveDefiniteTransform
    >>> PositiveDefiniteTransform()(wf.zeros(2, 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PositiveDefiniteTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Any) -> Any:
        lower = LowerCholeskyTransform()(x)
        return lower @ lower.mT

    def _inverse(self, y: Any) -> Any:
        return LowerCholeskyTransform().inv(wf.linalg.cholesky(y))
