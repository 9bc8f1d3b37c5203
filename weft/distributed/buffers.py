"""Buffers of the model in a distributed step: what the shards' values become.

Every shard begins with the committed values and may change them. `register_buffer(reduce=…)` says how the values of the shards
make the new one; it is computed in the order of the shards, by the fixed tree:

* "mean": the mean, weighted by samples. The default for floating-point and complex buffers.
* "same": all shards must agree. The default for integers and bools.
* "sum": what the shards added to the old value is added up.
* "max", "min": of the values of all shards.
* "first": the value of the first shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..nn.module import BUFFER_REDUCTIONS, Module
from ..tensor import Tensor
from .flat import Flat, round_up


class Buffer(NamedTuple):
    """A buffer, its name in the model and how its values are reduced over the shards."""

    name: str
    tensor: Tensor
    reduce: str


def named_buffers(modules: Iterable[Module]) -> list[Buffer]:
    """The buffers of some modules, each once."""
    found: dict[int, Buffer] = {}
    for number, top in enumerate(modules):
        for path, module in top.named_modules(f"{number}"):
            for name, tensor in module.named_buffers(recurse=False):
                if tensor.size:
                    reduce = module.buffer_reduction(name) or ("mean" if tensor.dtype.kind in "fcV" else "same")
                    found.setdefault(id(tensor), Buffer(f"{path}.{name}", tensor, reduce))
    return list(found.values())


class Buffers:
    """The buffers of a shelf, as flat arrays: one *field* for all of a dtype that are reduced alike."""

    def __init__(self, buffers: Iterable[Buffer]) -> None:
        self._members: dict[str, list[tuple[Buffer, int]]] = {}  # field -> buffers, and where they begin
        self._lengths: dict[str, int] = {}
        for buffer in buffers:
            field = f"{buffer.tensor.dtype.name} {buffer.reduce}"
            start = self._lengths.get(field, 0)
            self._members.setdefault(field, []).append((buffer, start))
            self._lengths[field] = start + round_up(buffer.tensor.size, buffer.tensor.dtype.itemsize)
        self.scratch: dict[str, np.ndarray] = {}
        """where the model reads and writes its buffers"""
        self.views: list[tuple[Tensor, np.ndarray]] = []
        """(buffer, its place in `scratch`)"""
        self._newer: list[tuple[np.ndarray, np.ndarray]] = []
        self._locked: list[np.ndarray] = []  # the views, read-only: what the model has between steps
        self.shown: list[tuple[np.ndarray, np.ndarray]] = []
        """(view, value) of buffers that have another value for a while: moving averages, in an evaluation"""

    def lay_out(self, state: Flat, slot: Flat, averages: dict[int, Tensor]) -> None:
        """Add fields to the layout of the state and of a slot; `averages` are the moving averages by id of the buffer."""
        for field, members in self._members.items():
            dtype, length = members[0][0].tensor.dtype, self._lengths[field]
            state.add(("buffers", field), dtype, length)
            slot.add(("buffers", field), dtype, length)
            if all(id(b.tensor) in averages for b, _ in members):
                state.add(("averages", field), averages[id(members[0][0].tensor)].dtype, length)

    def attach(self) -> None:
        """Make the memory that the model works on, in this process."""
        self.scratch = {f: np.zeros(n, self._members[f][0][0].tensor.dtype) for f, n in self._lengths.items()}
        self.views = [
            (b.tensor, self.scratch[field][start : start + b.tensor.size].reshape(b.tensor.shape))
            for field, members in self._members.items()
            for b, start in members
        ]
        self._locked = []
        for _, view in self.views:
            self._locked.append(view.view())
            self._locked[-1].flags.writeable = False

    def averaged(
        self, averages: dict[int, Tensor], memory: dict[Any, np.ndarray]
    ) -> Iterator[tuple[Tensor, np.ndarray]]:
        """Every moving average of a buffer, with its place in a buffer of the state."""
        for field, members in self._members.items():
            for b, start in members if ("averages", field) in memory else ():
                place = memory["averages", field][start : start + b.tensor.size].reshape(b.tensor.shape)
                yield averages[id(b.tensor)], place

    # Values -------------------------------------------------------------------------------------------------------------

    def show(self, values: dict[Any, np.ndarray]) -> None:
        """Let the model's buffers be those of `values`, which may be written."""
        for field, members in self._members.items():
            for b, start in members:
                b.tensor._data = values["buffers", field][start : start + b.tensor.size].reshape(b.tensor.shape)

    def take(self) -> None:
        """Before a step: make the model's buffers those of this shelf.

        A buffer that the step of another optimiser changed since keeps the value that was committed there: each member
        calls the steps in the same order, so all begin with the same value.
        """
        for (tensor, view), locked in zip(self.views, self._locked, strict=True):
            if tensor._data is not view:
                if tensor._data is not locked:
                    self._newer.append((view, tensor._data.copy()))
                tensor._data = view

    def bind(self, committed: dict[Any, np.ndarray]) -> None:
        """Show the committed values in the model, which must not write to them."""
        self._newer = []
        self.load(committed)
        for (tensor, _), locked in zip(self.views, self._locked, strict=True):
            tensor._data = locked

    def load(self, committed: dict[Any, np.ndarray]) -> None:
        """Copy the committed values to where the model reads and writes them."""
        for field, scratch in self.scratch.items():
            np.copyto(scratch, committed["buffers", field])
        for view, value in (*self._newer, *self.shown):
            np.copyto(view, value)

    def take_values(self) -> list[np.ndarray]:
        """A copy of what the model works on."""
        return [value.copy() for value in self.scratch.values()]

    def put_values(self, taken: list[np.ndarray]) -> None:
        """Restore what `take_values` returned."""
        for value, old in zip(self.scratch.values(), taken, strict=True):
            np.copyto(value, old)

    def write(self, memory: dict[Any, np.ndarray]) -> None:
        """Write the model's values into a buffer of the state."""
        for (tensor, view), field in zip(self.views, self._fields_of_views(), strict=True):
            view[...] = tensor._data
            memory["buffers", field][...] = self.scratch[field]

    def _fields_of_views(self) -> list[str]:
        return [field for field, members in self._members.items() for _ in members]

    # Reduction ----------------------------------------------------------------------------------------------------------

    def store(self, slot: dict[Any, np.ndarray], weight: float, committed: dict[Any, np.ndarray]) -> None:
        """Put the values of this shard, which has `weight`, into its slot."""
        for field, value in self.scratch.items():
            target, rule = slot["buffers", field], _rule(field)
            if rule == "mean":
                np.multiply(value, value.dtype.type(weight), out=target)
            elif rule == "sum":
                np.subtract(value, self._before(field, committed), out=target)
            else:
                np.copyto(target, value)

    def _before(self, field: str, committed: dict[Any, np.ndarray]) -> np.ndarray:
        """The values that a shard begins with."""
        if not self._newer:
            return committed["buffers", field]
        before = committed["buffers", field].copy()
        at = self.scratch[field].__array_interface__["data"][0]
        for view, value in self._newer:
            start = (view.__array_interface__["data"][0] - at) // before.itemsize
            if view.dtype == before.dtype and 0 <= start < before.size:
                before[start : start + value.size] = value.reshape(-1)
        return before

    def add(self, into: dict[Any, np.ndarray], other: dict[Any, np.ndarray]) -> None:
        """Reduce two partial results into the first, whose shards come before those of the other."""
        for field in self.scratch:
            self.reduce(field, into["buffers", field], other["buffers", field], into["buffers", field])

    def reduce(self, field: str, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Reduce two partial results of a field."""
        rule = _rule(field)
        if rule in ("mean", "sum"):
            return np.add(a, b, out=out)
        if rule in ("max", "min"):
            return (np.maximum if rule == "max" else np.minimum)(a, b, out=out)
        if rule == "same" and not np.array_equal(a, b):
            raise self._disagreement(field, a, b)
        if out is not a:
            np.copyto(out, a)
        return out

    def finish(self, field: str, value: np.ndarray, weight: float, committed: dict[Any, np.ndarray]) -> np.ndarray:
        """The new values, from the reduction of all shards, whose weights add up to `weight`."""
        rule = _rule(field)
        if rule == "mean":
            return value * value.dtype.type(1.0 / weight)
        return value + self._before(field, committed) if rule == "sum" else value

    def _disagreement(self, field: str, a: np.ndarray, b: np.ndarray) -> RuntimeError:
        place = int(np.flatnonzero(a != b)[0])
        buffer = next(m for m, start in reversed(self._members[field]) if start <= place)
        return RuntimeError(
            f"distributed: the shards of a batch left different values in the buffer {buffer.name.partition('.')[2]!r} "
            f"({buffer.tensor.dtype.name}): {a[place]} and {b[place]}. Say what becomes of them: register_buffer(name, tensor, "
            "reduce='sum'), or 'max', 'min', 'first'."
        )


def _rule(field: str) -> str:
    return field.rpartition(" ")[2]


__all__ = ["BUFFER_REDUCTIONS", "Buffer", "Buffers", "named_buffers"]
