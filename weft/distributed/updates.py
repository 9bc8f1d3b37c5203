"""Updates: the second program of a step, from the sums of the gradients of a slice to its new weights and optimiser state.

A slice reads the old buffer and the published partial sums, and writes the new buffer; it may be repeated by another member as
long as the step is not committed. Parameters that no shard has a gradient for are not updated: neither weight decay nor momentum
changes them, as `optimizer.step()` does it.

Note [Tables]. Of a table with row-sparse gradients only the rows of the gradient are updated. The new buffer still holds the
version before the last one, so the rows that the last update changed are copied to it, too; the state has their list, and the
number of the update that each slice of a buffer is from. If that is not the one before the last, because the state came
from another host, the whole slice is copied.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import dtypes
from ..autograd.tape import no_grad
from ..graph.capture.bound import MISSED, Bound, bound
from ..graph.capture.function import CapturedFunction, function
from ..optim.group import update_dtype
from ..tensor import Tensor, wrap
from . import rows as row_sparse
from .failpoints import reach
from .rows import Rows
from .shelf import AVERAGE, PRESENT, Family, Shelf, Slice

MAX_BOUND = 256  # updates that are ready to run
MAX_SHAPES = 6  # of plans that get programs of their own; others are summed first, which takes one more pass
MIN_BUCKET = 64  # rows: programs are made for powers of two

Slots = dict[tuple[int, int], dict[Any, np.ndarray]]
"""the published partial sums: node of the tree -> the arrays of its slot"""


class Updates:
    """The updates of a shelf's slices.

    Args:
        shelf: the state, attached to its memory.
        optimizer: of its parameters.
        ema: an `optim.EMA`, or None.
    """

    def __init__(self, shelf: Shelf, optimizer: Any, ema: Any) -> None:
        self.shelf, self.optimizer, self.ema = shelf, optimizer, ema
        self.order = [len(shelf.slices) - 1, *range(len(shelf.slices) - 1)]
        """the slice of each unit of work: counters and buffers first, since unit 0 also writes the log"""
        self._programs: dict[Any, CapturedFunction[..., Any]] = {}
        self._shapes: set[Any] = set()
        self._scratch: dict[tuple[int, int], tuple[list[Tensor], Tensor]] = {}  # rows while they are updated, by bucket
        self._places: Slots = {}  # of the latest step, and what follows from them:
        self._nodes: list[tuple[int, int]] = []
        self._slots: tuple[Any, ...] = ()  # which memory they are
        self._has = np.zeros(0, bool)  # whether each parameter has a gradient
        self._uniform = False  # whether all have one, and were updated equally often
        self._bound_rows: dict[tuple[int, int], Bound | None] = {}
        self._bound: dict[Any, _BoundUpdate] = {}  # (unit, new buffer, slots) -> the update, ready to run

    def norm(self, index: int, places: Slots, plan: Any, scale: float) -> float:
        """The sum of the squares of a slice's gradient."""
        part = self.shelf.slices[self.order[index]]
        if part.family < 0:
            return 0.0
        family = self.shelf.families[part.family]
        if family.rows is not None:
            _, values = self._rows(family, part, places, plan)
            return float(np.sum(np.square(values * values.dtype.type(scale)), dtype=np.float64))
        shape, roots = self._roots(
            plan, {node: slot[part.family, ""][part.start : part.stop] for node, slot in places.items()}
        )
        program = self._programs.get(("norm", shape))
        if program is None:

            def norm(factor: Tensor, *roots: Tensor) -> Tensor:
                gradient = summed(shape, iter(roots)) * factor
                return (gradient * gradient).sum()

            program = self._programs["norm", shape] = function(norm, fullgraph=True)
        return float(program(wrap(np.array(scale, roots[0].dtype)), *map(wrap, roots)))

    def update(
        self, index: int, places: Slots, plan: Any, scale: float | None, weight: float, old: int, new: int
    ) -> None:
        """Compute a slice of the new state.

        Args:
            index: the unit of work.
            places: the published partial sums.
            plan: how they are added, see `tree.plan`.
            scale: the factor of their sum; None if the step is void: the new state is the old one.
            weight: of all shards, for the means of buffers.
            old, new: the buffers.
        """
        reach("update begun")
        if places is not self._places:
            self._look_at(places, plan, self.shelf.memory[old])
        if self._uniform and scale is not None:
            known = self._bound.get((index, new, self._slots))
            if known is not None and known(scale):
                return
        part = self.shelf.slices[self.order[index]]
        before, after = self.shelf.memory[old], self.shelf.memory[new]
        if part.family < 0:
            self._rest(places, plan, scale is None, weight, before, after)
        elif self.shelf.families[part.family].rows is not None:
            self._update_table(part, places, plan, scale, before, after)
        elif scale is None:
            self._keep(part.family, slice(part.start, part.stop), before, after)
        else:
            found = self._update_range(part, places, plan, scale, before, after)
            if self._uniform and found is not None:
                if len(self._bound) >= MAX_BOUND:
                    self._bound.clear()
                self._bound[index, new, self._slots] = found

    def _look_at(self, places: Slots, plan: Any, before: dict[Any, Any]) -> None:
        """Find out once per step what is the same for all its slices."""
        self._places, self._nodes = places, nodes_of(plan)
        self._slots = (skeleton(plan), *[id(places[node]) for node in self._nodes])
        self._has = places[self._nodes[0]][PRESENT] > 0
        if not self._has.all() and len(self._nodes) > 1:
            self._has = self._summed_presence(plan)
        self._uniform = bool(self._has.all())
        if self._uniform and self.shelf.counted:
            counters = before["counters"][:-1]
            self._uniform = bool((counters == counters[0]).all())

    def write(self, index: int, values: dict[Any, np.ndarray], new: int) -> None:
        """Make `values`, arrays as those of a buffer, the new state; a slice of them."""
        part, after = self.shelf.slices[self.order[index]], self.shelf.memory[new]
        if part.family < 0:
            for name in after:
                if name == "counters" or isinstance(name, tuple) and name[0] in ("buffers", "averages"):
                    np.copyto(after[name], values[name])
            after["updates"][0] = values["updates"][0] + 1
            return
        family = self.shelf.families[part.family]
        for key in ("", *family.keys):
            after[part.family, key][part.start : part.stop] = values[part.family, key][part.start : part.stop]
        if family.rows is not None:
            start, stop = part.start // family.rows.width, part.stop // family.rows.width
            log = after["changed", part.family][start + 2 * part.number : stop + 2 * part.number + 2]
            log[0], log[1], log[2:] = stop - start, values["updates"][0] + 1, np.arange(start, stop)

    # Dense gradients ------------------------------------------------------------------------------------------------

    def _update_range(
        self, part: Slice, places: Slots, plan: Any, scale: float, before: dict[Any, Any], after: dict[Any, Any]
    ) -> _BoundUpdate | None:
        """Update a slice of dense parameters; returns how to do it again, if one program does it."""
        number, family = part.family, self.shelf.families[part.family]
        factor = wrap(np.array(scale, update_dtype(family.params[0].dtype)))
        found = None
        for cut, present, first in self._runs(family, part, self._present(places, plan), before):
            if not present:
                self._keep(number, cut, before, after)
                self._average_kept(number, cut, before, after)
                continue
            shape, roots = self._roots(plan, {node: slot[number, ""][cut] for node, slot in places.items()})
            key = (number, shape, cut.stop - cut.start)
            program = self._programs.get(key)
            if program is None:
                program = self._programs[key] = function(self._updater(number, shape), fullgraph=True)

            def at(array: np.ndarray, whole: bool = family.whole, p: Tensor = family.params[0]) -> Tensor:
                return wrap(array[: p.size].reshape(p.shape) if whole else array)

            counts = self._counts(family, first, before)
            keys = ("", *family.keys)
            olds = [at(before[number, key][cut]) for key in keys] if self.shelf.copies == 2 else []
            news = [at(after[number, key][cut]) for key in keys]
            tensors = [factor, *counts, *olds, *news, *map(at, roots)]
            program(*tensors)
            made = bound(program) if shape == skeleton(plan) else None
            found = None if made is None or cut != slice(part.start, part.stop) else _BoundUpdate(made, tensors)
        return found

    def _counts(self, family: Family, first: int, before: dict[Any, Any]) -> list[Tensor]:
        """The counters that an update depends on: of the parameter with the number `first`, and of the moving averages."""
        counters = before["counters"]
        found = [wrap(counters[first : first + 1].reshape(()))] if self.shelf.counted else []
        return [*found, wrap(counters[-1:].reshape(()))] if AVERAGE in family.keys else found

    def _present(self, places: Slots, plan: Any) -> np.ndarray:
        """Whether each parameter has a gradient in some shard."""
        if places is not self._places:
            self._look_at(places, plan, self.shelf.memory[0])
        return self._has

    def _summed_presence(self, plan: Any) -> np.ndarray:
        roots = [self._places[node][PRESENT] for node in self._nodes]
        return np.asarray(summed(skeleton(plan), iter(roots)) > 0)

    def _runs(
        self, family: Family, part: Slice, present: np.ndarray, before: dict[Any, Any]
    ) -> Iterator[tuple[slice, bool, int]]:
        """The parts of a slice that are updated alike: (range, whether there is a gradient, number of the first parameter)."""
        low = bisect_right(family.starts, part.start) - 1
        high = bisect_left(family.starts, part.stop)
        numbers = range(family.first + low, family.first + high)
        has, counters = present[numbers.start : numbers.stop], before["counters"][numbers.start : numbers.stop]
        if not self.shelf.counted:
            counters = np.zeros(len(numbers))
        if has.all() and (counters == counters[0]).all():
            yield slice(part.start, part.stop), True, numbers.start
            return
        begin = 0
        for i in range(1, len(numbers) + 1):
            if i == len(numbers) or has[i] != has[begin] or counters[i] != counters[begin]:
                start = max(part.start, family.starts[low + begin])
                stop = part.stop if i == len(numbers) else family.starts[low + i]
                yield slice(start, stop), bool(has[begin]), numbers.start + begin
                begin = i

    def _keep(self, number: int, cut: slice, before: dict[Any, Any], after: dict[Any, Any]) -> None:
        if self.shelf.copies == 2:
            for key in ("", *self.shelf.families[number].keys):
                np.copyto(after[number, key][cut], before[number, key][cut])

    def _average_kept(self, number: int, cut: slice, before: dict[Any, Any], after: dict[Any, Any]) -> None:
        """The moving average of weights that are not updated goes on."""
        if AVERAGE in self.shelf.families[number].keys:
            old, value = before[number, AVERAGE][cut], after[number, ""][cut]
            after[number, AVERAGE][cut] = old + (value - old) * old.dtype.type(self._rate(before))

    def _rate(self, before: dict[Any, Any]) -> float:
        """The weight of the new value in the moving averages of this step."""
        return float(self.ema.rate(wrap(before["counters"][-1:].reshape(()) + np.float32(1))))

    def _updater(self, number: int, shape: Any) -> Callable[..., None]:
        """The update of any range of a family, from the old buffer to the new one, or in place."""
        family, optimizer, ema = self.shelf.families[number], self.optimizer, self.ema
        group = optimizer.param_groups[family.group]
        count, counted, in_place = 1 + len(family.keys), self.shelf.counted, self.shelf.copies == 1
        dtype = update_dtype(family.params[0].dtype)

        def update(scale: Tensor, *tensors: Tensor) -> None:
            with no_grad():
                rest = list(tensors)
                step = rest.pop(0) + 1.0 if counted else None
                averaged = rest.pop(0) + 1.0 if AVERAGE in family.keys else None
                if not in_place:
                    olds, rest = rest[:count], rest[count:]
                    for a, b in zip(olds, rest[:count], strict=True):
                        b.copy_(a)
                news, roots = rest[:count], rest[count:]
                gradient = summed(shape, iter(roots)) * scale
                base = group.settings(dtype)
                settings = {**base, **optimizer.prepare(step, base)}
                state: dict[str, Any] = dict(zip(family.keys, news[1:], strict=True))
                if step is not None:
                    state["step"] = step
                average = state.pop(AVERAGE, None)
                optimizer.update(news[0], gradient, state, settings)
                if average is not None:
                    average += (news[0] - average) * ema.rate(averaged)

        update.__name__ = f"update_{number}"
        return update

    def _roots(self, plan: Any, arrays: dict[tuple[int, int], np.ndarray]) -> tuple[Any, list[np.ndarray]]:
        """The partial sums of a plan, and its shape. A plan of an unusual shape, as after a death, is carried out here."""
        shape, roots = skeleton(plan), [arrays[node] for node in nodes_of(plan)]
        if shape not in self._shapes:
            if len(self._shapes) >= MAX_SHAPES:
                return None, [summed(shape, iter(roots))]
            self._shapes.add(shape)
        return shape, roots

    # Tables ---------------------------------------------------------------------------------------------------------

    def _rows(self, family: Family, part: Slice, places: Slots, plan: Any) -> Rows:
        """The sum of a row-sparse gradient, within a slice."""
        field = family.rows
        assert field is not None
        start, stop = part.start // field.width, part.stop // field.width

        def visit(node: Any) -> Rows:
            if isinstance(node[0], int):
                return field.read(places[node], start, stop)
            return row_sparse.merge(visit(node[0]), visit(node[1]))

        return visit(plan)

    def _update_table(
        self, part: Slice, places: Slots, plan: Any, scale: float | None, before: dict[Any, Any], after: dict[Any, Any]
    ) -> None:
        """See Note [Tables]."""
        number, family = part.family, self.shelf.families[part.family]
        field = family.rows
        assert field is not None
        start, stop = part.start // field.width, part.stop // field.width
        tables = {
            key: tuple(
                m[number, key][: field.rows * field.width].reshape(field.rows, field.width) for m in (before, after)
            )
            for key in ("", *family.keys)
        }
        updates = int(before["updates"][0])
        log_before, log_after = (
            m["changed", number][start + 2 * part.number : stop + 2 * part.number + 2] for m in (before, after)
        )
        if self.shelf.copies == 2:
            if int(log_after[1]) in (updates - 1, updates + 1):
                again = log_before[2 : 2 + int(log_before[0])]
                for old, new in tables.values():
                    new[again] = np.take(old, again, axis=0)
            else:
                for old, new in tables.values():
                    new[start:stop] = old[start:stop]
        found = np.zeros(0, np.int64)
        if scale is not None and self._present(places, plan)[family.first]:
            found, values = self._rows(family, part, places, plan)
            self._update_rows(number, family, found, values, scale, tables, before)
        if scale is not None and AVERAGE in family.keys:
            old, new = tables[AVERAGE]
            weights = tables[""][1][start:stop]
            new[start:stop] = old[start:stop] + (weights - old[start:stop]) * old.dtype.type(self._rate(before))
            found = np.arange(start, stop)  # all rows of the average, so also of the weights
        log_after[2 : 2 + len(found)] = found
        log_after[0] = len(found)
        log_after[1] = updates + 1

    def _update_rows(
        self, number: int, family: Family, indices: np.ndarray, values: np.ndarray, scale: float,
        tables: dict[str, tuple[np.ndarray, ...]], before: dict[Any, Any],
    ) -> None:  # fmt: skip
        """Gather rows, update them and put them into the new tables. There are programs for powers of two."""
        count = len(indices)
        if not count:
            return
        bucket = max(MIN_BUCKET, 1 << (count - 1).bit_length())
        keys = [key for key in ("", *family.keys) if key != AVERAGE]
        width = values.shape[1]
        known = self._scratch.get((number, bucket))
        if known is None:
            made = [wrap(np.zeros((bucket, width), tables[key][0].dtype)) for key in keys]
            known = made, wrap(np.zeros((bucket, width), values.dtype))
            self._scratch[number, bucket] = known
            self._programs[number, "rows", bucket] = function(self._row_updater(number, keys), fullgraph=True)
        parts, gradient = known
        for key, part in zip(keys, parts, strict=True):
            np.take(tables[key][0], indices, axis=0, out=part._data[:count], mode="clip")
        gradient._data[:count] = values
        factor = wrap(np.array(scale, values.dtype))
        counts = self._counts(family, family.first, before)[: int(self.shelf.counted)]
        tensors = [factor, *counts, *parts, gradient]
        ready = self._bound_rows.get((number, bucket))
        if ready is None or ready(tensors) is MISSED:
            program = self._programs[number, "rows", bucket]
            program(*tensors)
            self._bound_rows[number, bucket] = bound(program)
        for key, part in zip(keys, parts, strict=True):
            tables[key][1][indices] = part._data[:count]

    def _row_updater(self, number: int, keys: list[str]) -> Callable[..., None]:
        family, optimizer, counted = self.shelf.families[number], self.optimizer, self.shelf.counted
        group = optimizer.param_groups[family.group]
        dtype = update_dtype(family.params[0].dtype)

        def update(scale: Tensor, *tensors: Tensor) -> None:
            with no_grad():
                rest = list(tensors)
                step = rest.pop(0) + 1.0 if counted else None
                *parts, gradient = rest
                base = group.settings(dtype)
                settings = {**base, **optimizer.prepare(step, base)}
                state: dict[str, Any] = dict(zip(keys[1:], parts[1:], strict=True))
                if step is not None:
                    state["step"] = step
                optimizer.update(parts[0], gradient * scale, state, settings)

        update.__name__ = f"update_rows_{number}"
        return update

    # Counters and buffers -------------------------------------------------------------------------------------------

    def _rest(
        self, places: Slots, plan: Any, void: bool, weight: float, before: dict[Any, Any], after: dict[Any, Any]
    ) -> None:
        """Counters, and what becomes of the model's buffers."""
        buffers = self.shelf.buffers
        if not void:
            counters = before["counters"] + np.float32(1)
            counters[:-1] -= ~self._present(places, plan)
            for field in buffers.scratch:
                value = self._reduced(field, places, plan)
                new = buffers.finish(field, value, weight, before)
                average = self._averaged(("averages", field), new, before, after)
                np.copyto(after["buffers", field], new)
                if average is not None:
                    np.copyto(after["averages", field], average)
            np.copyto(after["counters"], counters)
        else:
            for name in after:
                if name == "counters" or isinstance(name, tuple) and name[0] in ("buffers", "averages"):
                    np.copyto(after[name], before[name])
        after["updates"][0] = before["updates"][0] + 1

    def _reduced(self, field: str, places: Slots, plan: Any) -> np.ndarray:
        buffers = self.shelf.buffers

        def visit(node: Any) -> np.ndarray:
            if isinstance(node[0], int):
                return np.asarray(places[node]["buffers", field])
            a, b = visit(node[0]), visit(node[1])
            return buffers.reduce(field, a, b, np.empty_like(a))

        return visit(plan)

    def _averaged(
        self, name: Any, value: np.ndarray, before: dict[Any, Any], after: dict[Any, Any]
    ) -> np.ndarray | None:
        """The moving average of buffers, as `EMA.update` does it."""
        if name not in after:
            return None
        if not dtypes.is_floating(value.dtype):
            return value
        old = before[name]
        return np.asarray(old + (value - old) * old.dtype.type(self._rate(before)))


class _BoundUpdate:
    """The update of a slice of one buffer from certain slots: the same program on the same memory, with another factor."""

    def __init__(self, program: Bound, tensors: list[Tensor]) -> None:
        self._program, self._tensors, self._factor = program, tensors, tensors[0]._data

    def __call__(self, scale: float) -> bool:
        """Whether the update was made."""
        self._factor[...] = scale
        return self._program(self._tensors) is not MISSED


# Plans ------------------------------------------------------------------------------------------------------------------


def nodes_of(plan: Any) -> list[tuple[int, int]]:
    """The partial sums of a plan, from left to right."""
    if isinstance(plan[0], int):
        return [plan]
    return [node for part in plan for node in nodes_of(part)]


def skeleton(plan: Any) -> Any:
    """The shape of a plan: None for a partial sum, else a pair.

    >>> skeleton(((1, 0), ((0, 2), (0, 3))))
    (None, (None, None))
    """
    return None if isinstance(plan[0], int) else (skeleton(plan[0]), skeleton(plan[1]))


def summed(shape: Any, values: Iterator[Any]) -> Any:
    """The sum of `values`, taken from left to right, along a shape."""
    if shape is None:
        return next(values)
    left = summed(shape[0], values)
    return left + summed(shape[1], values)
