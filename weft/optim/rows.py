"""Optimiser updates with row-sparse gradients, touching only the rows in the gradient.

Note [Rows in a captured step]. Shapes are fixed before indices are known, so a row that occurs k times stays k entries.
Each position gets the first position of its row (`row_places`); sums are accumulated there, and the result of the first
position is written for all of them (`put_rows`), in place. Other rows are not touched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ops.array.creation import zeros
from ..ops.array.gathering import checked_indices, index_add, take
from ..ops.array.row_sparse import RowSparse
from ..ops.array.shaping import concat
from ..ops.core import inplace
from ..ops.internal.table_rows import put_rows, row_chain, row_numbers, row_places
from ..tensor import Tensor


def update_rows(
    p: Tensor, g: RowSparse, state: dict[str, Any], update: Callable[[Tensor, Tensor, dict[str, Any]], None]
) -> None:
    """Gather the gradient's rows and their state, run `update(p, g, state)` on them, and scatter the results."""
    own = [k for k, v in state.items() if isinstance(v, Tensor) and v.shape == p.shape]
    rows, values, place = merged(g)
    part = {**state, **{k: take(state[k], rows, axis=0) for k in own}}
    p_rows = take(p.detach(), rows, axis=0)
    update(p_rows, values, part)
    _put(p, rows, p_rows, place)
    for k in own:
        _put(state[k], rows, part[k], place)


def _put(x: Tensor, rows: Tensor, values: Tensor, place: Tensor | None) -> None:
    if place is None:
        x[rows] = values
    else:
        inplace.apply_inplace(put_rows.op, x, (x, rows, values, place))  # type: ignore[attr-defined]


def merged(g: RowSparse) -> tuple[Tensor, Tensor, Tensor | None]:
    """Row indices, the summed gradients of these rows, and the first position of each row.

    Eagerly each row appears once, and the positions are None. In capture a repeated row has the same sum at each of its
    positions, see Note [Rows in a captured step].
    """
    if _is_known(g):
        g = g.coalesce()
        return g.indices, g.values, None
    rows, place, sums = gathered(g)
    return rows, take(sums, place, axis=0), place


def distinct(g: RowSparse) -> Tensor:
    """The summed gradients of the rows, zero at repetitions, as needed for a norm."""
    return g.coalesce().values if _is_known(g) else gathered(g)[2]


def _is_known(g: RowSparse) -> bool:
    return type(g.indices._data) is np.ndarray and type(g.values._data) is np.ndarray


def gathered(g: RowSparse) -> tuple[Tensor, Tensor, Tensor]:
    """In a captured step: row numbers, the first position of each, and the sums at these positions (zeros at the others)."""
    rows, place = _placed(g, None)
    sums = zeros((rows.shape[0], *g.shape[1:]), dtype=g.dtype)
    return rows, place, index_add(sums, place, g.values, 0)


def chained(g: RowSparse, more: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """In a captured step: row numbers, the first position of each, and how to walk through the values of a row in order
    (`row_chain`). `more` are indices of further rows, with zero gradient unless `g` contains them."""
    rows, place = _placed(g, more)
    times, following = row_chain(place if more is None else place[: g.indices.shape[0]])
    return rows, place, times, following


def _placed(g: RowSparse, more: Tensor | None) -> tuple[Tensor, Tensor]:
    indices = g.indices if g.checked else checked_indices(g.indices, -g.shape[0], g.shape[0], None, "RowSparse: row")
    rows = row_numbers(indices if more is None else concat([indices, more]), g.shape[0])
    return rows, row_places(rows, g.shape[0])
