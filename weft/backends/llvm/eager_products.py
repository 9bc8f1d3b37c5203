"""Matrix-vector products on NumPy arrays, as reductions that run at memory bandwidth.

Why not NumPy: from about 9,000 elements OpenBLAS uses its own thread pool, whose threads keep spinning for milliseconds on
the cores that the next op needs. A network on one image took three times as long because of its last layer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops.core import scalar as s
from .eager_reduce import map_reduce


def _product(matrix: Any, vector: Any) -> Any:
    return matrix * vector


def _wide_product(matrix: Any, vector: Any) -> Any:
    """Half precision is accumulated in float32 and rounded once."""
    return s.cast(matrix, s.FLOAT32) * s.cast(vector, s.FLOAT32)


def vector_product(x1: np.ndarray, x2: np.ndarray) -> np.ndarray | None:
    """`x1 @ x2` where x1 has one row or x2 one column, or either is a vector; batches broadcast. None for other operands."""
    left = x1[None] if x1.ndim == 1 else x1
    right = x2[:, None] if x2.ndim == 1 else x2
    expression = _product if x1.dtype.itemsize > 2 else _wide_product
    # The matrix comes first: the order of loops follows its memory.
    if right.shape[-1] == 1:
        arrays, axis = (left, right.swapaxes(-1, -2)), -1
    elif left.shape[-2] == 1:
        arrays, axis = (right, left.swapaxes(-1, -2)), -2
    else:
        return None
    shape = np.broadcast_shapes(arrays[0].shape, arrays[1].shape)
    sums = map_reduce("sum", expression, arrays, shape, (len(shape) + axis,), x1.dtype)
    if sums is None:
        return None
    rows = () if x1.ndim == 1 else (left.shape[-2],)
    columns = () if x2.ndim == 1 else (right.shape[-1],)
    return sums.reshape((*shape[:-2], *rows, *columns))
