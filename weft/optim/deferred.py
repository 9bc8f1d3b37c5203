"""Adam for large embedding tables without a full pass over the table per step. See Note [Deferred rows].

A captured step updates the rows it looked up and, round-robin, a few others, so that no row is ever more than
`PERIOD` / 2 steps behind and a short history suffices. An eager step updates the whole table. Results are bitwise equal
to plain Adam's.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from .. import dtypes
from ..graph.capture.function import function
from ..graph.capture.tracing import outside
from ..nn.parameter import Parameter
from ..ops.array.creation import arange
from ..ops.array.elementwise import astype, remainder
from ..ops.array.row_sparse import RowSparse
from ..ops.array.shaping import broadcast_to, reshape, stack
from ..ops.core import inplace
from ..ops.internal.deferred_tables import COLUMNS, Table, adam_rows, direct, table_of, tables
from ..ops.internal.table_rows import put_rows, row_numbers, row_places
from ..runtime import epoch
from ..tensor import Tensor, wrap
from .group import update_dtype
from .rows import chained

PERIOD = 512
"""number of steps kept in the history"""

_slot: Any = Tensor._data  # the slot descriptor


class DeferredParameter(Parameter):
    """A parameter whose memory is brought up to date on every access."""

    @property
    def _data(self) -> Any:
        array = _slot.__get__(self)
        table = tables.get(id(array))
        if table is not None and not direct.on:
            with outside():
                table.flush()
        return array

    @_data.setter
    def _data(self, array: Any) -> None:  # new memory (`to`, `share_memory`): becomes an ordinary parameter
        try:
            old = _slot.__get__(self)
        except AttributeError:  # a copy under construction
            old = None
        if tables.pop(id(old), None) is not None:
            self.__class__ = Parameter  # type: ignore[assignment]
            epoch.bump()
        _slot.__set__(self, array)


def defer(p: Tensor, state: dict[str, Any]) -> Table:
    """Make `p` a deferred table with optimiser state `state`, replacing an earlier optimiser's."""
    if isinstance(p, DeferredParameter):
        tables.pop(id(p._data), None)  # reading `_data` has updated it
        p.__class__ = Parameter  # type: ignore[assignment]
    if type(p) is not Parameter or p.ndim < 2 or p.dtype not in (dtypes.float32, dtypes.float64):
        raise TypeError(
            "Adam: deferred is for parameters of float32 or float64 with rows, such as the weight of an embedding. "
            f"Got {type(p).__name__} of {p.dtype.name} {tuple(p.shape)}."
        )
    array = p._data
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise ValueError("Adam: a deferred table must be contiguous and writeable. Use `p.clone()`.")
    state["last"] = wrap(np.zeros(p.shape[0], np.int64))
    state["history"] = wrap(np.zeros((PERIOD, COLUMNS), update_dtype(p.dtype)))

    def parts() -> tuple[Tensor, ...]:
        return state["exp_avg"], state["exp_avg_sq"], state["last"], state["step"], state["history"]

    table = Table(array, parts, lambda: settle())
    settle = function(table.settle)
    table.settled()
    tables[id(array)] = table
    weakref.finalize(p, tables.pop, id(array), None)
    p.__class__ = DeferredParameter
    epoch.bump()
    return table


def update_deferred(p: Tensor, g: Any, state: dict[str, Any], settings: dict[str, Any]) -> None:
    """One captured step: update the gradient's rows and the next few others."""
    table, rows = table_of(p), p.shape[0]
    assert table is not None
    step = astype(state["step"], dtypes.int64)
    turn = None
    if isinstance(g, RowSparse):
        few = -(-rows // (PERIOD // 2))
        turn = remainder(arange(few, dtype=dtypes.int64) + (step - 1) * few, rows)
    else:
        g = RowSparse(arange(rows, dtype=dtypes.int64), g, tuple(p.shape), checked=True)
    missed = (state["last"], state["step"], state["history"])
    with direct:
        index, place, numbers = update_rows_in_place(table.memory, g, state, settings, turn, missed)
        _put(state["last"], index, broadcast_to(step, index.shape), place)
        slot = row_numbers(reshape(remainder(step, PERIOD), (1,)), PERIOD)
        _put(state["history"], slot, reshape(numbers, (1, COLUMNS)), row_places(slot, PERIOD))


def update_rows_in_place(
    p: Tensor, g: RowSparse, state: dict[str, Any], settings: dict[str, Any], more: Tensor | None = None,
    missed: tuple[Any, Any, Any] = (None, None, None),
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Adam's captured step on a gradient's rows: gather, update and scatter in one pass, in place.

    Args:
        more: further rows to update.
        missed: last, step and history of a deferred table, whose rows first replay missed steps.

    Returns:
        The row indices, the first position of each, and the coefficients of this step.
    """
    index, place, times, following = chained(g, more)
    mean, square = state["exp_avg"], state["exp_avg_sq"]
    numbers = stack([astype(settings[k], mean.dtype) for k in ("rate1", "rate2", "step_size", "scale", "eps")])
    values = -g.values if settings["maximize"] else g.values
    new = adam_rows(index, place, times, following, values, p.detach(), mean, square, *missed, None, numbers)
    for x, value in zip((p, mean, square), new, strict=True):
        writer = inplace.writer_of(x)
        assert writer is not None  # a captured step
        inplace.replace(x, value, writer)
    return index, place, numbers


def _put(x: Tensor, index: Tensor, source: Tensor, place: Tensor) -> None:
    inplace.apply_inplace(put_rows.op, x, (x, index, source, place))  # type: ignore[attr-defined]
