"""How ops that are one kernel eagerly are written with smaller ops for the compiler, which fuses them again."""

from __future__ import annotations

from typing import Any

from ... import dtypes
from ...ops import elementwise as e
from ...ops import indexing, reduction, shaping
from .decompose import decomposition

_LOW = (dtypes.float16, dtypes.bfloat16)


@decomposition("softmax")
def softmax(x: Any, axis: Any = -1) -> Any:
    shifted = e.exp(x - reduction.max_(x, axis=axis, keepdims=True))
    return shifted / reduction.reduce_sum(shifted, axis, True)


@decomposition("log_softmax")
def log_softmax(x: Any, axis: Any = -1) -> Any:
    shifted = x - reduction.max_(x, axis=axis, keepdims=True)
    return shifted - e.log(reduction.reduce_sum(e.exp(shifted), axis, True))


@decomposition("sum_as")
def sum_as(x: Any, like: Any) -> Any:
    return shaping.sum_to(x, tuple(like.shape))


@decomposition("broadcast_as")
def broadcast_as(x: Any, like: Any) -> Any:
    return shaping.broadcast_to(x, tuple(like.shape))


@decomposition("reshape_as")
def reshape_as(x: Any, like: Any) -> Any:
    return shaping.reshape(x, tuple(like.shape))


@decomposition("put_into_zeros_like")
def put_into_zeros_like(x: Any, like: Any, index: Any) -> Any:
    return indexing.put_into_zeros(x, tuple(like.shape), index)
