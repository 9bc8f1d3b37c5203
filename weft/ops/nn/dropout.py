"""Dropout functions. Masks are regenerated from the generator's state, never stored; see `random_dropout`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ..array.creation import ones_like
from ..array.elementwise import where
from ..array.random_ops import random_dropout

if TYPE_CHECKING:
    from ...random import Generator

# Functions for users that are not ops; ops are public by their records.
__all__ = ["alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]

# selu's negative saturation value: dropped units are set to it so that mean and variance can be restored.
_ALPHA = -1.7580993408473766


def _check(op: str, x: Tensor, p: float, training: bool) -> bool:
    """Check the arguments; returns whether any element can be dropped."""
    if not isinstance(p, (int, float)) or isinstance(p, bool) or not 0 <= p <= 1:
        raise ValueError(f"{op}: p must be between 0 and 1. Got {p!r}.")
    if not dtypes.is_inexact(x.dtype):
        raise TypeError(f"{op}: expected a floating tensor. Got {x.dtype.name}.")
    return bool(training) and p > 0


def _state(op: str, generator: Any) -> Tensor:
    from ...random import _next

    return _next(op, generator)


def dropout(x: Tensor, p: float = 0.5, training: bool = True, *, generator: Generator | None = None) -> Tensor:
    """Zero elements with probability `p` and scale the others by 1 / (1 - p), while `training`.

    Args:
        x: a floating tensor.
        p: probability of zeroing an element.
        training: if False, return `x` itself.
        generator: source of randomness; the default generator if None.

    >>> F.dropout(wf.ones(3), 0.5, training=False).tolist()
    [1.0, 1.0, 1.0]
    """
    if not _check("dropout", x, p, training):
        return x
    return random_dropout(x, _state("dropout", generator), float(p))


def _channels(op: str, x: Tensor, p: float, training: bool, generator: Any, spatial: int) -> Tensor:
    if x.ndim not in (spatial + 1, spatial + 2):
        raise ValueError(
            f"{op}: expected shape (N, C{', ...' if spatial else ''}) with {spatial} spatial axes. Got {format_shape(x.shape)}."
        )
    if not _check(op, x, p, training):
        return x
    corner = x.detach()[(Ellipsis, *[slice(0, 1)] * spatial)] if spatial else x.detach()
    return x * random_dropout(ones_like(corner), _state(op, generator), float(p))


def dropout1d(x: Tensor, p: float = 0.5, training: bool = True, *, generator: Generator | None = None) -> Tensor:
    """`dropout` of whole channels of `x` (N, C, L) or (C, L)."""
    return _channels("dropout1d", x, p, training, generator, 1)


def dropout2d(x: Tensor, p: float = 0.5, training: bool = True, *, generator: Generator | None = None) -> Tensor:
    """`dropout` of whole channels of `x` (N, C, H, W) or (C, H, W)."""
    return _channels("dropout2d", x, p, training, generator, 2)


def dropout3d(x: Tensor, p: float = 0.5, training: bool = True, *, generator: Generator | None = None) -> Tensor:
    """`dropout` of whole channels of `x` (N, C, D, H, W) or (C, D, H, W)."""
    return _channels("dropout3d", x, p, training, generator, 3)


def _alpha(x: Tensor, like: Tensor, p: float, state: Tensor) -> Tensor:
    keep = random_dropout(ones_like(like), state, p) != 0
    a = 1 / math.sqrt((1 - p) * (1 + p * _ALPHA * _ALPHA))
    return where(keep, x, _ALPHA) * a + (-a * _ALPHA * p)


def alpha_dropout(x: Tensor, p: float = 0.5, training: bool = True, *, generator: Generator | None = None) -> Tensor:
    """Dropout for `selu` networks: mean and variance are preserved by setting elements to selu's negative saturation."""
    if not _check("alpha_dropout", x, p, training):
        return x
    if p == 1:
        return x * 0.0
    return _alpha(x, x.detach(), float(p), _state("alpha_dropout", generator))


def feature_alpha_dropout(
    x: Tensor, p: float = 0.5, training: bool = True, *, generator: Generator | None = None
) -> Tensor:
    """`alpha_dropout` of whole channels of `x` (N, C, ...)."""
    if x.ndim < 2:
        raise ValueError(f"feature_alpha_dropout: expected shape (N, C, ...). Got {format_shape(x.shape)}.")
    if not _check("feature_alpha_dropout", x, p, training):
        return x
    if p == 1:
        return x * 0.0
    corner = x.detach()[(slice(None), slice(None), *[slice(0, 1)] * (x.ndim - 2))]
    return _alpha(x, corner, float(p), _state("feature_alpha_dropout", generator))
