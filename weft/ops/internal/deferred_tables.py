"""Embedding tables whose rows are updated lazily: a row replays its missed Adam steps when it is read.

Note [Deferred rows]. Adam changes every row of an embedding at every step: without a gradient the running means decay
and the row still moves along them. For rows that are not read this update can be deferred. A deferred table stores the
step of each row's last update (`last`) and the coefficients of each step (`history`, a ring buffer: rates of the two
means, step size, scale, eps). Reading a row first replays the steps it has missed with the optimiser's formulas, so the
result is bitwise equal to that of the dense update.

All reads go through this. In a captured function the table is found in `tables` by the identity of its array: a lookup
becomes `caught_up` of its rows, and any other op gets `caught_up` of all rows. Outside, the parameter's `_data` is a
property that first updates all rows. An array or tensor taken from the parameter earlier aliases its memory and shows
rows as of their last update.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import dtypes
from ...autograd.tape import no_grad
from ...tensor import Tensor, wrap
from ..array.creation import arange
from ..array.elementwise import astype, where
from ..array.gathering import checked_indices
from ..array.row_sparse import RowSparse
from ..array.shaping import broadcast_to, expand_dims, reshape
from ..core.define import primitive
from ..core.registry import NOT_DIFFERENTIABLE, Op, joint
from ..core.samples import Sample
from ..core.spec import Spec
from .table_rows import row_numbers

_memory: Any = Tensor._data  # the slot descriptor; reading through it does not replay steps

COLUMNS = 5
"""coefficients of a step: rate of the mean, rate of the mean square, step size, scale of the root, eps"""

tables: dict[int, Table] = {}
"""id of an array -> the deferred table it stores"""


class _Direct(threading.local):
    """Whether this thread accesses table memory directly, without replaying missed steps; re-entrant."""

    on = 0

    def __enter__(self) -> None:
        self.on += 1

    def __exit__(self, *_: Any) -> None:
        self.on -= 1


direct = _Direct()


class Table:
    """A deferred table.

    Args:
        array: the table's memory.
        parts: returns the current (mean, mean square, last, step, history).
        flush: compiled function that updates all rows.
    """

    def __init__(self, array: np.ndarray, parts: Callable[[], tuple[Tensor, ...]], flush: Callable[[], None]) -> None:
        self.memory = wrap(array)
        self._parts, self._flush = parts, flush
        self.current = 0
        """a step that all rows include"""

    def rows(self, index: Tensor, weight: Tensor | None = None, back: Any = None) -> tuple[Tensor, Tensor, Tensor]:
        """Up-to-date rows of the table and its means (as of `back` steps ago); `weight` receives the gradient."""
        mean, square, last, step, history = self._parts()
        until = step if back is None else step - back
        with direct:
            return caught_up(index, self.memory if weight is None else weight, mean, square, last, until, history)

    def everything(self, weight: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """All rows of the table and its means, up to date."""
        return self.rows(row_numbers(arange(self.memory.shape[0], dtype=dtypes.int64), self.memory.shape[0]), weight)

    def settle(self, memory: bool = True) -> None:
        """Update all rows in place: the means, `last` and, if `memory`, the table itself."""
        mean, square, last, step, _ = self._parts()
        new = self.everything()
        with no_grad(), direct:
            if memory:
                self.memory.copy_(new[0])
            mean.copy_(new[1])
            square.copy_(new[2])
            last.copy_(broadcast_to(astype(step, dtypes.int64), last.shape))

    def settled(self) -> None:
        """Mark all rows as up to date, after (or right before) they have been overwritten."""
        _, _, last, step, _ = self._parts()
        self.current = int(step._data)
        last._data[...] = self.current

    def flush(self) -> None:
        """Update all rows in memory, if any step is missing."""
        now = int(self._parts()[3]._data)
        if now != self.current:
            self.current = now
            self._flush()


def table_of(tensor: Any) -> Table | None:
    """The deferred table that `tensor` stores or was detached from, or None."""
    return tables.get(id(_memory.__get__(tensor))) if tables and isinstance(tensor, Tensor) else None


def catch_up(op: Op, tensors: list[Any], attrs: tuple[Any, ...]) -> tuple[list[Any], Any]:
    """Update the deferred tables among an op's operands (in capture); returns the operands, or the op's result."""
    if op.name == "embedding_lookup" and (table := table_of(tensors[1])) is not None:
        indices, weight = tensors
        size, padding = weight.shape[0], attrs[0]
        flat = checked_indices(reshape(indices, (-1,)), 0, size, None, "embedding: index")
        rows = reshape(table.rows(row_numbers(flat, size), weight)[0], (*indices.shape, *weight.shape[1:]))
        if padding is not None:
            rows = where(expand_dims(indices != padding, -1), rows, rows.detach())
        return tensors, rows
    found = [table_of(t) for t in tensors]
    return [t if table is None else table.everything(t)[0] for t, table in zip(tensors, found, strict=True)], None


def _infer(index: Any, table: Any, mean: Any, square: Any, last: Any, step: Any, history: Any) -> tuple[Spec, ...]:
    spec = Spec((*index.shape, *table.shape[1:]), table.dtype)
    return spec, Spec(spec.shape, mean.dtype), Spec(spec.shape, square.dtype)


def _rule(g: Any, index: Tensor, like_table: Any, needs: Any) -> list[Any]:
    grad = None if g[0] is None else RowSparse(index, g[0], tuple(like_table.shape), keep=True, checked=True)
    return [None, grad, None, None, None, None, None]


def _replay(index: Any, table: Any, mean: Any, square: Any, last: Any, step: Any, history: Any) -> tuple[Any, ...]:
    p, m, v, at = table[index], mean[index], square[index], last[index]
    for now in range(int(at.min(initial=int(step))) + 1, int(step) + 1):
        rate1, rate2, size, scale, eps = history[now % len(history)]
        behind = at < now
        m[behind] += (0 - m[behind]) * rate1
        v[behind] += (0 - v[behind]) * rate2
        p[behind] -= m[behind] * size / (np.sqrt(v[behind]) * scale + eps)
    return p, m, v


def _sample(m: Any) -> Sample:
    history = m.positive(8, COLUMNS)
    return Sample(
        np.array([3, 0, 3]),
        m.normal(4, 2),
        m.normal(4, 2),
        m.positive(4, 2),
        np.array([5, 9, 9, 2]),
        m.normal() * 0 + 9,
        history,
    )


@primitive(
    namespace="internal",
    outputs=3,
    cost="update",
    infer=_infer,
    vjp=joint(_rule, fill=False),
    reference=_replay,
    samples=lambda m: [_sample(m)],
    test={"no_gradient": True},  # its gradient is that of a lookup: earlier optimiser steps are not differentiated
)
def caught_up(
    index: Tensor, table: Tensor, mean: Tensor, square: Tensor, last: Tensor, step: Tensor, history: Tensor
) -> Any:
    """Rows `index` of a table and of its two means after `step` steps, see Note [Deferred rows]."""
    return _replay(index, table, mean, square, last, step, history)


def _infer_adam(
    index: Any, place: Any, times: Any, following: Any, values: Any, table: Any, mean: Any, square: Any,
    last: Any, step: Any, history: Any, known: Any, numbers: Any,
) -> tuple[Spec, ...]:  # fmt: skip
    return Spec(table.shape, table.dtype), Spec(mean.shape, mean.dtype), Spec(square.shape, square.dtype)


def _adam(
    index: Any, place: Any, times: Any, following: Any, values: Any, table: Any, mean: Any, square: Any,
    last: Any, step: Any, history: Any, known: Any, numbers: Any,
) -> tuple[Any, ...]:  # fmt: skip
    first = place == np.arange(len(place))
    sums = np.zeros((len(place), *values.shape[1:]), values.dtype)
    np.add.at(sums, place[: len(values)], values)
    rows, g = index[first], sums[first]
    if last is None:
        p, m, v = table[rows], mean[rows], square[rows]
    else:
        p, m, v = _replay(rows, table, mean, square, last, step - 1, history)
    rate1, rate2, size, scale, eps = numbers
    m = m + (g - m) * rate1
    v = v + (g * g - v) * rate2
    p = p - m * size / (np.sqrt(v) * scale + eps)
    outs = [np.array(x) for x in (table, mean, square)]
    for out, new in zip(outs, (p, m, v), strict=True):
        out[rows] = new
    return tuple(outs)


def _adam_samples(m: Any) -> list[Sample]:
    """With missed steps, with missed steps and rows given as `known`, and without; the last row has no gradient."""

    def sample(replay: bool, known: bool) -> Sample:
        index, table, mean, square = np.array([3, 0, 3, 1]), m.normal(4, 2), m.normal(4, 2), m.positive(4, 2)
        missed: tuple[Any, ...] = (None, None, None)
        caught = None
        if replay:
            missed = (np.array([5, 9, 9, 2]), m.normal() * 0 + 10, m.positive(8, COLUMNS) * 0.2)  # rates below one
            if known:
                caught = _replay(index[:3], table, mean, square, missed[0], missed[1] - 1, missed[2])[0]
        return Sample(
            index, np.array([0, 1, 0, 3]), np.array([2, 1, 0]), np.array([2, 3, 3]), m.normal(3, 2), table, mean, square,
            *missed, caught, m.positive(COLUMNS),
        )  # fmt: skip

    return [sample(True, False), sample(True, True), sample(False, False)]


@primitive(
    namespace="internal",
    outputs=3,
    cost="update",
    infer=_infer_adam,
    vjp=NOT_DIFFERENTIABLE,
    reference=_adam,
    samples=_adam_samples,
)
def adam_rows(
    index: Tensor,
    place: Tensor,
    times: Tensor,
    following: Tensor,
    values: Tensor,
    table: Tensor,
    mean: Tensor,
    square: Tensor,
    last: Tensor | None,
    step: Tensor | None,
    history: Tensor | None,
    known: Tensor | None,
    numbers: Tensor,
) -> Any:
    """A table and its means after Adam's step on rows `index`. One pass over the rows; compiled programs work in place.

    Args:
        place: the first position of each row, from `row_places`.
        times, following: `row_chain` of the positions with a gradient, the first len(values) ones.
        values: gradients; those of one row are added up in order.
        last, step, history: of a deferred table; the rows first catch up with the steps before `step`.
        known: the table's rows at the first len(values) positions, if they are already up to date.
        numbers: coefficients of this step, as in a row of `history`.
    """
    return _adam(index, place, times, following, values, table, mean, square, last, step, history, known, numbers)
