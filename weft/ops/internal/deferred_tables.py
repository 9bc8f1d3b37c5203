"""Tables whose rows catch up when they are read.

Note [Deferred rows]. Adam changes every row of an embedding at every step: without a gradient the running means shrink and
the row still moves along them. For a row that nobody looks at this can wait. A deferred table notes at which step each
row was brought up to date (`last`), and the numbers of each step (`history`, a ring of rows: rates of the two means, step
size, scale, eps); whoever reads a row replays the steps it has missed, with the formulas of the optimiser, so that it
sees the bits it would have seen.

Every read is such a read. In a captured function the table is an entry of `tables`, by the identity of its array: a
look-up becomes `caught_up` of its rows, and any other op gets `caught_up` of all of them. Outside, the parameter's
`_data` is a property that brings all rows up to date first. An array or a tensor that was taken from the parameter
earlier shares its memory, and shows what the memory holds: rows as of their last update.
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

_memory: Any = Tensor._data  # the slot itself, which brings nothing up to date

COLUMNS = 5
"""numbers of a step: rate of the mean, rate of the mean square, step size, scale of the root, eps"""

tables: dict[int, Table] = {}
"""identity of an array -> the table it is the memory of"""


class _Direct(threading.local):
    """Whether this thread is working on the memory of tables itself, so that reads are not to be caught up."""

    on = 0

    def __enter__(self) -> None:
        self.on += 1

    def __exit__(self, *_: Any) -> None:
        self.on -= 1


direct = _Direct()


class Table:
    """A deferred table.

    Args:
        array: its memory.
        parts: returns (mean, mean square, last, step, history), as they are now.
        flush: brings all rows up to date, by a program.
    """

    def __init__(self, array: np.ndarray, parts: Callable[[], tuple[Tensor, ...]], flush: Callable[[], None]) -> None:
        self.memory = wrap(array)
        self._parts, self._flush = parts, flush
        self.current = 0
        """the step all rows are known to have seen"""

    def rows(self, index: Tensor, weight: Tensor | None = None, back: Any = None) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of the table and of its means, up to date (`back` steps before now); `weight` receives the gradient."""
        mean, square, last, step, history = self._parts()
        until = step if back is None else step - back
        with direct:
            return caught_up(index, self.memory if weight is None else weight, mean, square, last, until, history)

    def everything(self, weight: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """All rows of the table and of its means."""
        return self.rows(row_numbers(arange(self.memory.shape[0], dtype=dtypes.int64), self.memory.shape[0]), weight)

    def settle(self, memory: bool = True) -> None:
        """Bring all rows up to date, in place: the means, `last` and, unless it is about to be replaced, the memory."""
        mean, square, last, step, _ = self._parts()
        new = self.everything()
        with no_grad(), direct:
            if memory:
                self.memory.copy_(new[0])
            mean.copy_(new[1])
            square.copy_(new[2])
            last.copy_(broadcast_to(astype(step, dtypes.int64), last.shape))

    def settled(self) -> None:
        """Note that all rows have seen all steps: they were just written, or counted on to be."""
        _, _, last, step, _ = self._parts()
        self.current = int(step._data)
        last._data[...] = self.current

    def flush(self) -> None:
        """Bring all rows up to date, in memory."""
        now = int(self._parts()[3]._data)
        if now != self.current:
            self.current = now
            self._flush()


def table_of(tensor: Any) -> Table | None:
    """The deferred table that `tensor` is, or was detached from."""
    return tables.get(id(_memory.__get__(tensor))) if tables and isinstance(tensor, Tensor) else None


def catch_up(op: Op, tensors: list[Any], attrs: tuple[Any, ...]) -> tuple[list[Any], Any]:
    """Operands of an op of a captured function, deferred tables among them brought up to date; or its result."""
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
    test={"no_gradient": True},  # it is that of a look-up: what the optimiser did before is no part of it
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
    """With steps to catch up, with them and rows that have caught up, and without; the last row has no gradient."""

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
    """A table and its means after Adam's step on rows `index`. One pass over the rows, in place where a program may.

    Args:
        place: the first place of each row, as `row_places` returns it.
        times, following: what `row_chain` says of the positions that have a gradient, the first len(values) ones.
        values: gradients; those of one row are added up in order.
        last, step, history: of a deferred table; the rows first catch up with the steps before `step`.
        known: the rows of the table at the first len(values) positions, if somebody has let them catch up already.
        numbers: those of this step, as in a row of `history`.
    """
    return _adam(index, place, times, following, values, table, mean, square, last, step, history, known, numbers)
