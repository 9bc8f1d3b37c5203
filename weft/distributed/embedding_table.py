"""The rows of a sharded table that one server holds: which there are, their values, and the optimiser's state.

Row r of a table of n servers belongs to server r % n, where it has the number r // n. A row takes memory from its first update
on; before that a look-up computes its initial value (`embedding_init`). Rows that exist have a slot in growing columns: one for
the values and one for every tensor of the optimiser's state. Slots of evicted rows are used again.

Note [Exact rows]. An optimiser with momentum moves rows also in steps that do not look them up. Where it has no form for rows
(`Optimizer.updates_rows`), a row notes the last step that it was brought to, and what it missed is made up, step by step with a
gradient of zeros, when it is read or updated; besides, every update brings a few other rows up to date, so that none is more
than `PERIOD` updates behind. So the values that are read are those of a dense update.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import dtypes
from ..autograd.tape import no_grad
from ..nn.initializers import Initializer
from ..nn.parameter import Parameter
from ..optim.group import update_dtype
from ..optim.optimizer import Optimizer
from ..tensor import wrap
from .embedding_init import first_rows

PERIOD = 128
MIN_ROWS = 256  # for which columns have room at least
BLOCK_BYTES = 16 << 20  # of a checkpoint, in memory at once


class Column:
    """An array of rows that grows at its end without being copied: the kernel moves its pages."""

    def __init__(self, width: tuple[int, ...], dtype: np.dtype, rows: int) -> None:
        self.width, self.dtype = width, dtype
        self._row_bytes = int(np.prod(width, dtype=np.int64)) * dtype.itemsize
        self._memory = mmap.mmap(-1, max(rows * self._row_bytes, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.array = self._view(rows)

    def _view(self, rows: int) -> np.ndarray:
        return np.frombuffer(self._memory, self.dtype, rows * self._row_bytes // self.dtype.itemsize).reshape(
            (rows, *self.width)
        )

    def resize(self, rows: int) -> None:
        """Make room for so many rows; new ones are zeros. No view of `array` may be in use."""
        del self.array
        self._memory.resize(max(rows * self._row_bytes, 1))
        self.array = self._view(rows)

    @property
    def nbytes(self) -> int:
        return len(self._memory)


class TableRows:
    """One server's rows of a table. Thread-safe.

    Args:
        servers, server: how many servers the table has, and which of them this one is.
        num: rows of the whole table.
        dim: elements of a row.
        init: what rows hold before their first update.
        optimizer: of a stand-in parameter with this many elements; its class and settings count.
        max_rows: of this server; the least recently used are evicted beyond it.
    """

    def __init__(
        self, servers: int, server: int, num: int, dim: int, dtype: np.dtype, init: Initializer, optimizer: Optimizer,
        max_rows: int | None,
    ) -> None:  # fmt: skip
        self.servers, self.server, self.num, self.dim, self.dtype = servers, server, num, dim, dtype
        self.init, self.optimizer, self.max_rows = init, optimizer, max_rows
        self.lock = threading.RLock()
        self.step = 0  # updates of the table so far
        self.live = 0  # rows that exist
        self.evicted = 0
        self._fresh = 0  # slots that were ever used
        self._free: list[np.ndarray] = []  # slots that are free again
        self._settled = 0  # where the next rows are brought up to date, see Note [Exact rows]
        self._slots = Column(
            (), np.dtype(np.int32), self._own(num)
        )  # by the row's number here; 0 for none, else slot + 1
        room = MIN_ROWS
        self._owner = Column((), np.dtype(np.int64), room)  # the row of a slot; -1 for none
        self._used = Column((), np.dtype(np.int64), room)  # the update before which it was last used
        self._group = optimizer.param_groups[0]
        self._exact = not optimizer.updates_rows(self._group.settings(update_dtype(dtype)))
        self._columns = {"weight": Column((dim,), dtype, room)}
        for name, array in self._begun(np.zeros((1, dim), dtype)).items():
            self._columns[name] = Column(array.shape[1:], array.dtype, room)
        if self._exact:
            self._check_exact()
            self._columns["last"] = Column((), np.dtype(np.int64), room)
        self.states = [name for name in self._columns if name not in ("weight", "last")]

    def _own(self, num: int) -> int:
        """How many of `num` rows belong to this server."""
        return max(0, (num - self.server + self.servers - 1) // self.servers)

    @property
    def nbytes(self) -> int:
        return sum(c.nbytes for c in (*self._columns.values(), self._slots, self._owner, self._used))

    # The optimiser --------------------------------------------------------------------------------------------------

    def _begun(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """The optimiser's state of rows before their first update."""
        settings = self._group.settings(update_dtype(self.dtype))
        found = {}
        for name, tensor in self.optimizer.init_state(Parameter(wrap(values)), settings).items():
            array = tensor._array("init_state")
            if array.shape[:1] != values.shape[:1]:
                raise TypeError(
                    f"Embedding: {type(self.optimizer).__name__} keeps {name!r} of shape {array.shape} for a table, which is not "
                    "one row for each of its rows. Use an optimiser that updates elements or rows by themselves, such as SGD, "
                    "Adagrad or Adam."
                )
            found[name] = array
        return found

    def _check_exact(self) -> None:
        """Raise unless steps without a gradient leave rows alone that were never updated."""
        name = type(self.optimizer).__name__
        if not self.optimizer.elementwise:
            raise TypeError(
                f"Embedding: {name} has no form for rows, and does not update elements by themselves. Use one such as SGD, "
                "Adagrad, Adam or SparseAdam."
            )
        values = np.linspace(-1.0, 1.0, self.dim).reshape(1, -1).astype(self.dtype)
        before, state = values.copy(), self._begun(values)
        self._update(values, np.zeros_like(values), state, 1)
        if not np.array_equal(values, before):
            raise ValueError(
                f"Embedding: {name} with these settings changes every row of the table in every step, by weight decay for one. "
                "Use weight_decay=0, or an update of the looked-up rows only, such as Adam(lazy=True)."
            )

    def _update(self, values: np.ndarray, gradient: np.ndarray, state: dict[str, np.ndarray], step: int) -> None:
        """One update of rows by themselves, in place."""
        optimizer = self.optimizer
        counter = wrap(np.asarray(step, np.float32)) if optimizer.counts_steps else None
        tensors: dict[str, Any] = {name: wrap(array) for name, array in state.items()}
        if counter is not None:
            tensors["step"] = counter
        settings = self._group.settings(update_dtype(self.dtype))
        parameter = wrap(values)
        with no_grad():
            optimizer.update(parameter, wrap(gradient), tensors, {**settings, **optimizer.prepare(counter, settings)})
        if parameter._data is not values:
            values[...] = parameter._data
        for name, array in state.items():
            if tensors[name]._data is not array:
                array[...] = tensors[name]._data

    def configure(self, settings: dict[str, Any]) -> None:
        """Change settings of the optimiser, such as lr."""
        with self.lock:
            unknown = [k for k in settings if k not in self._group]
            if unknown:
                raise ValueError(
                    f"Embedding: {type(self.optimizer).__name__} has no settings {unknown}. Expected some of "
                    f"{[k for k in self._group if k != 'params']}."
                )
            if self._exact:  # what was missed is made up with the settings of then
                self._settle(self._existing())
            self._group.update({k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()})

    # Rows -----------------------------------------------------------------------------------------------------------

    def _numbers(self, rows: np.ndarray) -> np.ndarray:
        """The numbers that rows have on this server."""
        if rows.ndim != 1 or rows.dtype != np.int64:
            raise ValueError(f"Embedding: expected a vector of int64 rows. Got {rows.dtype.name} {rows.shape}.")
        if len(rows) and not (0 <= int(rows.min()) and int(rows.max()) < self.num):
            raise IndexError(
                f"Embedding: rows must be from 0 to {self.num - 1}. Got {int(rows.min())} to {int(rows.max())}."
            )
        if self.servers == 1:
            return rows
        numbers, rest = np.divmod(rows, self.servers)
        if (rest != self.server).any():
            raise ValueError(f"Embedding: server {self.server} of {self.servers} got rows of another one.")
        return numbers

    def pull(self, rows: np.ndarray, use: bool) -> np.ndarray:
        """The values of rows; with `use` they count as used now."""
        with self.lock:
            slots = self._slots.array[self._numbers(rows)]
            missing = slots == 0
            if not missing.any():
                slots -= 1
                if use:
                    self._used.array[slots] = self.step
                if self._exact:
                    self._settle(slots)
                return np.take(self._columns["weight"].array, slots, axis=0)
            out = np.empty((len(rows), self.dim), self.dtype)
            out[missing] = first_rows(self.init, rows[missing], self.dim, self.dtype)
            have = slots[~missing] - 1
            if use:
                self._used.array[have] = self.step
            if self._exact:
                self._settle(have)
            out[~missing] = self._columns["weight"].array[have]
            return out

    def push(self, rows: np.ndarray, gradient: np.ndarray) -> int:
        """One update: rows, each named once, with their gradients. Returns how many updates there were."""
        if gradient.shape != (len(rows), self.dim) or gradient.dtype != self.dtype:
            raise ValueError(
                f"Embedding: expected gradients of {self.dtype.name} ({len(rows)}, {self.dim}). Got {gradient.dtype.name} "
                f"{gradient.shape}."
            )
        with self.lock:
            numbers = self._numbers(rows)
            if len(rows):
                slots = self._made(rows, numbers)
                if self._exact:
                    self._settle(slots)
                part = {name: np.take(c.array, slots, axis=0) for name, c in self._columns.items() if name != "last"}
                values = part.pop("weight")
                self._update(values, gradient, part, self.step + 1)
                self._columns["weight"].array[slots] = values
                for name, array in part.items():
                    self._columns[name].array[slots] = array
                self._used.array[slots] = self.step + 1
                if self._exact:
                    self._columns["last"].array[slots] = self.step + 1
            self.step += 1
            if self._exact:
                self._settle_some()
            if self.max_rows is not None and self.live > self.max_rows:
                self._evict_down_to(self.max_rows - self.max_rows // 10)
            return self.step

    def _made(self, rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """The slots of rows; those that do not exist are made."""
        slots = self._slots.array[numbers]
        missing = slots == 0
        if missing.any():
            new = rows[missing]
            values = first_rows(self.init, new, self.dim, self.dtype)
            given = self._place(new, numbers[missing], values, self._begun(values))
            slots[missing] = given + 1
        return slots - 1

    def _place(
        self, rows: np.ndarray, numbers: np.ndarray, values: np.ndarray, state: dict[str, np.ndarray]
    ) -> np.ndarray:
        """Give rows that do not exist slots, and put their values there."""
        slots = self._allocate(len(rows))
        self._columns["weight"].array[slots] = values
        for name, array in state.items():
            self._columns[name].array[slots] = array
        if self._exact:
            self._columns["last"].array[slots] = self.step
        self._owner.array[slots] = rows
        self._used.array[slots] = self.step
        self._slots.array[numbers] = slots + 1
        self.live += len(rows)
        return slots

    def _allocate(self, count: int) -> np.ndarray:
        taken: list[np.ndarray] = []
        while count and self._free:
            last = self._free.pop()
            taken.append(last[:count])
            if len(last) > count:
                self._free.append(last[count:])
            count -= len(taken[-1])
        if count:
            room, needed = len(self._owner.array), self._fresh + count
            if needed > room:
                wanted = min(max(needed, room + room // 8), max(self._own(self.num), needed))
                for column in (*self._columns.values(), self._owner, self._used):
                    column.resize(wanted)
            taken.append(np.arange(self._fresh, needed))
            self._fresh = needed
        return np.concatenate(taken) if len(taken) != 1 else taken[0]

    def _existing(self) -> np.ndarray:
        """The slots of all rows."""
        return np.flatnonzero(self._owner.array[: self._fresh] >= 0)

    # Exact updates --------------------------------------------------------------------------------------------------

    def _settle(self, slots: np.ndarray) -> None:
        """Make up for the steps that rows have missed."""
        last = self._columns["last"].array
        behind = slots[last[slots] < self.step]
        if not len(behind):
            return
        order = behind[np.argsort(last[behind], kind="stable")]
        reached = last[order]
        part = {name: c.array[order] for name, c in self._columns.items() if name != "last"}
        for step in range(int(reached[0]) + 1, self.step + 1):
            some = int(np.searchsorted(reached, step))  # those whose last step is before this one
            state = {name: array[:some] for name, array in part.items()}
            values = state.pop("weight")
            self._update(values, np.zeros_like(values), state, step)
        for name, array in part.items():
            self._columns[name].array[order] = array
        last[order] = self.step

    def _settle_some(self) -> None:
        """Bring the next few rows up to date."""
        if not self._fresh:
            return
        count = -(-self._fresh // PERIOD)
        slots = (self._settled + np.arange(count)) % self._fresh
        self._settled = (self._settled + count) % self._fresh
        self._settle(slots[self._owner.array[slots] >= 0])

    # Size -----------------------------------------------------------------------------------------------------------

    def materialize(self) -> None:
        """Make all rows that do not exist yet."""
        size = max(1, BLOCK_BYTES // (self.dim * self.dtype.itemsize))
        with self.lock:
            for start in range(0, self._own(self.num), size):
                numbers = start + np.flatnonzero(self._slots.array[start : start + size] == 0)
                if len(numbers):
                    self._made(numbers * self.servers + self.server, numbers)

    def grow(self, num: int) -> None:
        """Give the table more rows."""
        with self.lock:
            if num < self.num:
                raise ValueError(f"Embedding: the table has {self.num} rows already; it cannot shrink to {num}.")
            self._slots.resize(self._own(num))
            self.num = num

    def evict(self, unused_for: int) -> int:
        """Drop the rows that were not used in the last so many updates; returns how many. They are as they began again."""
        with self.lock:
            slots = self._existing()
            return self._drop(slots[self._used.array[slots] <= self.step - unused_for])

    def _evict_down_to(self, count: int) -> None:
        slots = self._existing()
        order = np.argsort(self._used.array[slots], kind="stable")
        self._drop(slots[order[: self.live - count]])

    def _drop(self, slots: np.ndarray) -> int:
        if len(slots):
            self._slots.array[self._owner.array[slots] // self.servers] = 0
            self._owner.array[slots] = -1
            self._free.append(slots)
            self.live -= len(slots)
            self.evicted += len(slots)
        return len(slots)

    # Checkpoints ----------------------------------------------------------------------------------------------------

    def blocks(self) -> Iterator[dict[str, np.ndarray]]:
        """All rows, in blocks that fit into little memory. The lock must be held."""
        if self._exact:
            self._settle(self._existing())
        size = max(1, BLOCK_BYTES // max(1, sum(c._row_bytes for c in self._columns.values())))
        for start in range(0, self._fresh, size):
            stop = min(start + size, self._fresh)
            owner = self._owner.array[start:stop]
            there = owner >= 0
            if not there.any():
                continue
            pick: Any = slice(start, stop) if there.all() else start + np.flatnonzero(there)
            block = {"rows": owner[there], "used": self._used.array[pick]}
            for name in ("weight", *self.states):
                block[name] = self._columns[name].array[pick]
            yield block

    def clear(self, step: int) -> None:
        """Forget all rows, before those of a checkpoint are put in."""
        with self.lock:
            self._drop(self._existing())
            self._free, self._fresh, self._settled, self.step, self.evicted = [], 0, 0, step, 0

    def put(self, block: dict[str, np.ndarray]) -> None:
        """Put in those rows of a block that belong to this server."""
        rows = block["rows"]
        with self.lock:
            mine = np.flatnonzero(rows % self.servers == self.server)
            if not len(mine):
                return
            rows = rows[mine]
            if int(rows.max()) >= self.num:
                raise ValueError(f"Embedding: the checkpoint has row {int(rows.max())}; the table has {self.num} rows.")
            expected = {"weight", *self.states}
            if expected - set(block):
                raise ValueError(
                    f"Embedding: the checkpoint has no {', '.join(sorted(expected - set(block)))}; it is of another optimiser."
                )
            slots = self._place(
                rows, rows // self.servers, block["weight"][mine], {name: block[name][mine] for name in self.states}
            )
            self._used.array[slots] = block["used"][mine]


def row_dtype(name: str) -> np.dtype:
    """The dtype of a table by its name."""
    found = {"float32": dtypes.float32, "float64": dtypes.float64}.get(name)
    if found is None:
        raise TypeError(f"Embedding: dtype must be float32 or float64. Got {name}.")
    return found
