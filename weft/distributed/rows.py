"""Row-sparse gradients in a slot: the rows that a shard, or a partial sum of shards, touches, each once and in rising order.

The gradient of a table with R rows has two fields: ``rows`` holds their number and then their indices, ``values`` the rows
themselves, packed. There is room for R rows, but memory that is never written is never allocated. Sums are formed row by row,
along the same tree as dense ones: a row that a shard does not touch counts as zero there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

MAX_ROUNDS = 4  # rows that occur more often are added up one by one

Rows = tuple[np.ndarray, np.ndarray]
"""(indices, values): indices rise, and values[k] is the gradient of row indices[k]"""


def coalesce(indices: np.ndarray, values: np.ndarray) -> Rows:
    """Add up the values of rows that occur several times, in the order in which they occur."""
    order = np.argsort(indices, kind="stable")
    ordered = indices[order]
    if len(ordered) < 2:
        return ordered, values[order]
    first = np.empty(len(ordered), bool)
    first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    if len(starts) == len(ordered):
        return ordered, values[order]
    times = np.diff(starts, append=len(ordered))
    most = int(times.max())
    if most > MAX_ROUNDS:
        return ordered[starts], np.add.reduceat(values[order], starts, axis=0)
    found = values[order[starts]]
    for k in range(1, most):  # the second occurrence of each row, the third …
        more = np.flatnonzero(times > k)
        found[more] += values[order[starts[more] + k]]
    return ordered[starts], found


def merge(a: Rows, b: Rows) -> Rows:
    """The sum of two."""
    if not len(a[0]) or not len(b[0]):
        return b if not len(a[0]) else a
    both = np.concatenate([a[0], b[0]])
    order = np.argsort(both, kind="stable")
    ordered = both[order]
    first = np.empty(len(ordered), bool)
    first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    place = np.empty(len(both), np.int64)
    place[order] = np.cumsum(first) - 1
    values = np.zeros((int(place.max()) + 1, *a[1].shape[1:]), a[1].dtype)
    count = len(a[0])
    values[place[:count]] = a[1]
    values[place[count:]] += b[1]  # a row occurs once in each
    return ordered[first], values


class RowField:
    """Where the row-sparse gradient of one table is in a slot.

    Args:
        number: of the table's family.
        rows: of the table.
        width: elements per row.
    """

    def __init__(self, number: int, rows: int, width: int) -> None:
        self.values, self.indices = (number, ""), ("rows", number)
        self.rows, self.width = rows, width

    @property
    def length(self) -> int:
        """Elements of the field of indices."""
        return 1 + self.rows

    def read(self, slot: dict[Any, np.ndarray], start: int = 0, stop: int | None = None) -> Rows:
        """The rows with indices from `start` to `stop`; views of the slot."""
        count = int(slot[self.indices][0])
        indices = slot[self.indices][1 : 1 + count]
        values = slot[self.values][: count * self.width].reshape(count, self.width)
        if start == 0 and (stop is None or stop >= self.rows):
            return indices, values
        first, last = np.searchsorted(indices, [start, self.rows if stop is None else stop])
        return indices[first:last], values[first:last]

    def write(self, slot: dict[Any, np.ndarray], found: Rows) -> None:
        indices, values = found
        count = len(indices)
        slot[self.indices][1 : 1 + count] = indices
        slot[self.values][: count * self.width] = values.reshape(-1)
        slot[self.indices][0] = count

    def add(self, into: dict[Any, np.ndarray], other: dict[Any, np.ndarray]) -> None:
        """Add one partial sum to another."""
        self.write(into, merge(self.read(into), self.read(other)))
