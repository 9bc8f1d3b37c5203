"""Rows of a sharded table that a client keeps for a few updates, so that the hot ones are not fetched for every look-up."""

from __future__ import annotations

import numpy as np


class RowCache:
    """Rows by number, each with the clock at which it was fetched.

    A row is found while the clock is at most `staleness` past that. When there is no room, the row that was fetched first goes.
    """

    def __init__(self, rows: int, staleness: int, dim: int, dtype: np.dtype) -> None:
        self.staleness = staleness
        self.hits = self.misses = 0
        self._values = np.empty((rows, dim), dtype)
        self._fetched = np.zeros(rows, np.int64)
        self._owner = np.full(rows, -1, np.int64)
        self._places: dict[int, int] = {}
        self._next = 0

    def find(self, rows: np.ndarray, clock: int) -> tuple[np.ndarray, np.ndarray]:
        """(which of the rows are here and recent enough, their values)."""
        get = self._places.get
        places = np.array([get(row, -1) for row in rows.tolist()], np.int64)
        known = places >= 0
        known &= clock - self._fetched[places] <= self.staleness
        count = int(known.sum())
        self.hits += count
        self.misses += len(rows) - count
        return known, self._values[places[known]]

    def keep(self, rows: np.ndarray, values: np.ndarray, clock: int) -> None:
        """Keep rows that have just been fetched."""
        room = len(self._owner)
        for row, value in zip(rows[-room:].tolist(), values[-room:], strict=True):
            place = self._places.get(row)
            if place is None:
                place = self._next
                self._next = (place + 1) % room
                self._places.pop(int(self._owner[place]), None)
                self._owner[place] = row
                self._places[row] = place
            self._values[place] = value
            self._fetched[place] = clock

    def clear(self) -> None:
        self._places.clear()
        self._owner[:] = -1
        self._next = 0
