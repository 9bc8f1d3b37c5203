"""Rewrites large matrix-vector products as multiply and sum: they are bound by memory bandwidth, and sums fuse.

%y = matmul(%x: (20000, 512), %w: (512, 1))                                before
%p = multiply(%x, %w.T); %y = reduce_sum(%p, axis=1, keepdims=True)        after
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...graph.graph import Node, Value
from ...ops.core.registry import Op, get
from ...ops.core.spec import Spec
from ..flow import Flow, rebuild
from ..target import Target

_MATMUL, _MULTIPLY, _RESHAPE, _SUM = map(get, ("matmul", "multiply", "reshape", "reduce_sum"))
MIN_ROW_ELEMENTS, MIN_ROWS = 64, 2048
"""Minimum row length, and minimum rows."""


def thin_products(flow: Flow, target: Target) -> Flow:
    """Rewrite products of a large matrix and a single column, or of a single row and a large matrix that is tall."""

    def rule(new: Flow, node: Node, args: tuple[Any, ...]) -> Any:
        if node.op is not _MATMUL or not all(map(_plain, args)):
            return None
        (rows, depth), columns = args[0].shape, args[1].shape[1]
        if columns == 1 and rows >= MIN_ROWS and _large(rows, depth, target):
            return _column(new, *args)
        if rows == 1 and depth >= MIN_ROWS and _large(depth, columns, target):
            return _row(new, *args)
        return None

    return rebuild(flow, rule)


def _plain(x: Value) -> bool:
    return len(x.shape) == 2 and None not in x.shape and x.dtype in (np.float32, np.float64)


def _large(rows: int, length: int, target: Target) -> bool:
    return length >= MIN_ROW_ELEMENTS and 4 * rows * length >= target.l2_bytes  # smaller ones stay in cache


def _column(new: Flow, x: Value, w: Value) -> tuple[Value, ...]:
    """x @ w with one column, in the shape of x before it was reshaped to a matrix, where it fuses."""
    depth = x.shape[1]
    if x.node.op is _RESHAPE and x.node.inputs[0].shape[-1:] == (depth,):
        x = x.node.inputs[0]
    shape = tuple(x.shape)
    row = _add(new, _RESHAPE, (w,), ((depth,), None), (depth,), w.dtype)
    products = _add(new, _MULTIPLY, (x, row), (), shape, x.dtype)
    sums = _add(new, _SUM, (products,), ((len(shape) - 1,), True), (*shape[:-1], 1), x.dtype)
    out = (prod(shape[:-1]), 1)
    return (sums if len(shape) == 2 else _add(new, _RESHAPE, (sums,), (out, None), out, x.dtype),)


def _row(new: Flow, g: Value, x: Value) -> tuple[Value, ...]:
    """g @ x with one row."""
    depth, columns = x.shape
    column = _add(new, _RESHAPE, (g,), ((depth, 1), None), (depth, 1), g.dtype)
    products = _add(new, _MULTIPLY, (column, x), (), (depth, columns), x.dtype)
    return (_add(new, _SUM, (products,), ((0,), True), (1, columns), x.dtype),)


def _add(
    new: Flow, op: Op, inputs: tuple[Value, ...], attrs: tuple[Any, ...], shape: tuple[int, ...], dtype: Any
) -> Value:
    return new.add(op, inputs, attrs, (Spec(shape, dtype),)).outputs[0]
