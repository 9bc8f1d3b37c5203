"""Helpers shared by the losses: argument checks (no silent broadcasting) and the reduction."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ..array.elementwise import astype, where
from ..array.reduction import mean as mean_
from ..array.reduction import reduce_sum
from ..core.spec import same_size

_REDUCTIONS = ("mean", "sum", "none")


def real_floats(op: str, x: Tensor) -> Tensor:
    """`x` as a real floating tensor: integers become the default float, complex numbers are refused."""
    if dtypes.is_complex(x.dtype):
        raise TypeError(f"{op}: input must be real. Got {x.dtype.name}; use `wf.real(x)` or `wf.abs(x)`.")
    return astype(x, dtypes.float_for(x.dtype))


def check_reduction(op: str, reduction: Any, *more: str) -> None:
    if reduction not in _REDUCTIONS and reduction not in more:
        raise ValueError(f"{op}: reduction must be one of {', '.join((*_REDUCTIONS, *more))}. Got {reduction!r}.")


def check_same(op: str, **operands: Any) -> None:
    """All operands must have one shape."""
    (name, first), *rest = operands.items()
    for other, value in rest:
        if first.shape is None or value.shape is None:
            continue
        if len(first.shape) != len(value.shape) or any(
            not same_size(a, b) for a, b in zip(first.shape, value.shape, strict=True)
        ):
            raise ValueError(
                f"{op}: {name} and {other} must have one shape; a loss does not broadcast. Got "
                f"{format_shape(first.shape)} and {format_shape(value.shape)}. Use `reshape` or `wf.broadcast_to` to say "
                "what is meant."
            )


def reduced(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return mean_(loss)
    return loss if reduction == "none" else reduce_sum(loss, None, False)


def np_reduced(loss: Any, reduction: str) -> Any:
    return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.mean()


SMALL_ELEMENTS = 64  # up to this size a Python list is faster than NumPy's functions


def holds(array: np.ndarray, value: int) -> bool:
    """Whether an array of integers has `value` among its elements."""
    if array.size <= SMALL_ELEMENTS:
        return value in array.reshape(-1).tolist()
    return bool((array == value).any())


def all_below(array: np.ndarray, limit: int) -> bool:
    """Whether all of an array of integers are from 0 to `limit` - 1."""
    if 0 < array.size <= SMALL_ELEMENTS:
        values = array.reshape(-1).tolist()
        return min(values) >= 0 and max(values) < limit
    return not ((array < 0) | (array >= limit)).any()


def hinge(x: Tensor) -> Tensor:
    """max(x, 0), with the gradient 1 at 0 (PyTorch's choice for losses of margins); NaN stays NaN."""
    return where(x < 0, 0.0, x)
