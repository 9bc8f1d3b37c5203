"""How ops that are one kernel eagerly are written with smaller ops for the compiler, which fuses them again."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops import elementwise as e
from ...ops import indexing, reduction, shaping
from ...tensor import wrap
from .decompose import decomposition


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


@decomposition("scatter_add")
def scatter_add(x: Any, index: Any, src: Any, axis: int = 0) -> Any:
    """One element per row added to zeros (the gradient of picking a class) is a comparison with the class numbers."""
    axis = axis % len(x.shape)
    zeros = x._data.node.op.name == "filled" and x._data.node.attrs[1] == 0
    rest_equal = all(a == b for i, (a, b) in enumerate(zip(index.shape, x.shape, strict=True)) if i != axis)
    if not zeros or index.shape[axis] != 1 or not rest_equal:
        return NotImplemented
    n = x.shape[axis]
    numbers = _numbers(x, n, axis)
    place = e.where(index < 0, index + n, index)
    return e.where(e.equal(numbers, place), src, 0.0)


def _numbers(x: Any, n: int, axis: int) -> Any:
    """0, 1, … along one axis of the shape of `x`."""
    shape = [1] * len(x.shape)
    shape[axis] = n
    graph = x._data.node.graph
    return wrap(graph.constant(np.arange(n, dtype=np.int64).reshape(shape)))
