"""Row-sparse gradients for optimisers: each row once."""

from __future__ import annotations

import numpy as np

from ..ops.creation import zeros
from ..ops.cumulative import cumulative_sum
from ..ops.elementwise import astype, equal, not_equal, where
from ..ops.indexing import index_add, take
from ..ops.row_sparse import RowSparse
from ..ops.shaping import concat
from ..ops.sorting import argsort
from ..tensor import Tensor


def merged(g: RowSparse) -> tuple[Tensor, Tensor]:
    """Row numbers and the gradients of these rows.

    Eagerly each row appears once. In a captured function sizes are fixed before the numbers are known, so a row that was
    named k times still appears k times, each time with the sum: writing all of them back gives the same result.
    """
    if type(g.indices._data) is np.ndarray and type(g.values._data) is np.ndarray:
        g = g.coalesce()
        return g.indices, g.values
    rows, totals, _ = _grouped(g)
    return rows, totals


def distinct(g: RowSparse) -> Tensor:
    """The gradients of the named rows, zero where a row is repeated: what counts in a norm."""
    if type(g.indices._data) is np.ndarray and type(g.values._data) is np.ndarray:
        return g.coalesce().values
    _, totals, first = _grouped(g)
    return where(first.reshape((-1, *(1,) * (totals.ndim - 1))), totals, zeros((), dtype=totals.dtype))


def _grouped(g: RowSparse) -> tuple[Tensor, Tensor, Tensor]:
    """Rows in rising order, the sum for each, and where each row appears for the first time."""
    order = argsort(g.indices)
    rows, values = take(g.indices, order, axis=0), take(g.values, order, axis=0)
    n = rows.shape[0]
    # the first row is new; any other one if it differs from the one before it
    first = concat([equal(zeros((1,)), 0), not_equal(rows[1:], rows[:-1])])
    place = cumulative_sum(astype(first, np.int64)) - 1
    sums = index_add(zeros((n, *values.shape[1:]), dtype=values.dtype), place, values, 0)
    return rows, take(sums, place, axis=0), first
