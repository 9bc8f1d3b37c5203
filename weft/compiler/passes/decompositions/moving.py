"""Decompositions of ops that move elements into views, gathers at constant indices and comparisons of indices.

Views are free and comparisons fuse with their readers, so most of these need no kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .... import dtypes
from ....ops.array import cumulative, gathering, indexing, reduction, searching, shaping, sorting
from ....ops.array import elementwise as e
from ....ops.array.creation import filled
from ....ops.array.indexing import Slice
from ....ops.array.linalg_structure import offset_of
from ....ops.array.padding import _widths
from ....ops.core.slow_path import check_memory
from ....ops.core.spec import check_shape, normalize_axes, normalize_axis
from ....ops.nn.interpolate import _out_size, _taps
from ....tensor import wrap
from ..decompose import counting, decomposition

_ALL = Slice(None, None, None)


def constant(like: Any, array: np.ndarray) -> Any:
    """An array as a value of the graph that `like` belongs to."""
    return wrap(like._data.node.graph.constant(array))


def zero(like: Any) -> Any:
    return constant(like, np.zeros((), like.dtype))


def positions(x: Any, axis: int) -> Any:
    """0, 1, … along one axis of `x`, of size 1 along the others."""
    shape = [1] * len(x.shape)
    shape[axis] = x.shape[axis]
    return constant(x, counting("captured function", x.shape[axis]).reshape(shape))


# Order and repetition ---------------------------------------------------------------------------------------------------


@decomposition("flip")
def flip(x: Any, *, axis: Any = None) -> Any:
    axes = normalize_axes("flip", axis, len(x.shape))
    return indexing.getitem(x, tuple([Slice(None, None, -1) if a in axes else _ALL for a in range(len(x.shape))]))


@decomposition("roll")
def roll(x: Any, shift: Any, *, axis: Any = None) -> Any:
    if axis is None:
        flat = shaping.reshape(x, (-1,))
        return shaping.reshape(_rolled(flat, sum(shift) if isinstance(shift, tuple) else shift, 0), tuple(x.shape))
    axes = axis if isinstance(axis, tuple) else (axis,)
    shifts = shift if isinstance(shift, tuple) else (shift,) * len(axes)
    for n, a in zip(shifts, axes, strict=True):
        x = _rolled(x, n, normalize_axis("roll", a, len(x.shape)))
    return x


def _rolled(x: Any, shift: int, axis: int) -> Any:
    size = x.shape[axis]
    cut = (size - shift) % size
    if cut == 0:
        return x
    parts = (indexing.slice_axis(x, axis, cut, size), indexing.slice_axis(x, axis, 0, cut))
    return shaping.concat_axis(parts, axis)


@decomposition("tile")
def tile(x: Any, repetitions: Any) -> Any:
    repetitions = check_shape("tile", repetitions, "repetitions")  # an int is accepted for a tuple
    rank = max(len(repetitions), len(x.shape))
    shape = (1,) * (rank - len(x.shape)) + tuple(x.shape)
    counts = (1,) * (rank - len(repetitions)) + repetitions
    apart = tuple([n for d in shape for n in (1, d)])
    spread = tuple([n for r, d in zip(counts, shape, strict=True) for n in (r, d)])
    whole = tuple([r * d for r, d in zip(counts, shape, strict=True)])
    return shaping.reshape(shaping.broadcast_to(shaping.reshape(x, apart), spread), whole)


@decomposition("repeat_static")
def repeat_static(x: Any, repeats: Any, axis: Any = None) -> Any:
    if axis is None:
        x, axis = shaping.reshape(x, (-1,)), 0
    axis = normalize_axis("repeat", axis, len(x.shape))
    if isinstance(repeats, tuple):
        check_memory("repeat", (sum(repeats),), np.dtype(np.int64))
        return gathering.take_axis(x, constant(x, np.repeat(np.arange(len(repeats)), repeats)), axis)
    shape = tuple(x.shape)
    spread = (*shape[: axis + 1], repeats, *shape[axis + 1 :])
    whole = (*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :])
    return shaping.reshape(shaping.broadcast_to(shaping.expand_dims(x, axis + 1), spread), whole)


# Triangles and diagonals ------------------------------------------------------------------------------------------------


@decomposition("tril")
def tril(x: Any, *, k: int = 0) -> Any:
    rank = len(x.shape)
    return e.where(positions(x, rank - 1) <= positions(x, rank - 2) + offset_of("tril", k), x, zero(x))


@decomposition("triu")
def triu(x: Any, *, k: int = 0) -> Any:
    rank = len(x.shape)
    return e.where(positions(x, rank - 1) >= positions(x, rank - 2) + offset_of("triu", k), x, zero(x))


def _diagonal_slice(rows: int, columns: int, offset: int) -> Slice:
    """The flat (row-major) indices of a diagonal."""
    start = offset if offset >= 0 else -offset * columns
    length = min(rows + min(offset, 0), columns - max(offset, 0))
    return Slice(start, start + (length - 1) * (columns + 1) + 1, columns + 1)


@decomposition("diagonal")
def diagonal(x: Any, *, offset: int = 0) -> Any:
    rows, columns = x.shape[-2:]
    flat = shaping.reshape(x, (*x.shape[:-2], rows * columns))
    return indexing.getitem(flat, (Ellipsis, _diagonal_slice(rows, columns, offset)))


@decomposition("diagonal_matrix")
def diagonal_matrix(x: Any, rows: int, cols: int, offset: int = 0) -> Any:
    lead = tuple(x.shape[:-1])
    index = (_ALL,) * len(lead) + (_diagonal_slice(rows, cols, offset),)
    return shaping.reshape(indexing.put_into_zeros(x, (*lead, rows * cols), index), (*lead, rows, cols))


@decomposition("diagonal_matrix_as")
def diagonal_matrix_as(x: Any, like: Any, offset: int = 0) -> Any:
    return diagonal_matrix(x, like.shape[-2], like.shape[-1], offset)


# Padding ----------------------------------------------------------------------------------------------------------------


@decomposition("pad")
def pad(x: Any, pad_width: Any, mode: str = "constant", value: float = 0) -> Any:
    pairs = _widths(pad_width, len(x.shape))
    if not pairs:
        return x
    if mode != "constant":
        for axis, (low, high) in enumerate(pairs):
            if low or high:
                x = gathering.take_axis(x, constant(x, _padded_places(x.shape[axis], low, high, mode)), axis)
        return x
    shape = tuple([d + low + high for d, (low, high) in zip(x.shape, pairs, strict=True)])
    inside = indexing.getitem(
        x, tuple([Slice(max(-low, 0), d - max(-high, 0), None) for d, (low, high) in zip(x.shape, pairs, strict=True)])
    )
    place = tuple([Slice(max(low, 0), d - max(high, 0), None) for d, (low, high) in zip(shape, pairs, strict=True)])
    if 0 in inside.shape:
        return filled(shape, value, x.dtype)
    if value == 0:
        return indexing.put_into_zeros(inside, shape, place)
    return indexing.setitem(filled(shape, value, x.dtype), inside, place)


def _padded_places(size: int, low: int, high: int, mode: str) -> np.ndarray:
    numpy_mode: Any = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    check_memory("pad", (size + low + high,), np.dtype(np.int64))
    return np.pad(np.arange(size), (low, high), mode=numpy_mode)


@decomposition("pad_backward")
def pad_backward(g: Any, pad_width: Any, mode: str) -> Any:
    for axis in reversed(range(len(g.shape))):
        low, high = pad_width[axis]
        if low or high:
            size = g.shape[axis] - low - high
            places = constant(g, _padded_places(size, low, high, mode))
            shape = (*g.shape[:axis], size, *g.shape[axis + 1 :])
            g = gathering.index_add(filled(shape, 0, g.dtype), places, g, axis)
    return g


# Resizing ---------------------------------------------------------------------------------------------------------------


def _weights(x: Any, weight: np.ndarray, axis: int) -> Any:
    shape = [1] * len(x.shape)
    shape[axis] = len(weight)
    return constant(x, weight.astype(x.dtype).reshape(shape))


@decomposition("resample")
def resample(x: Any, axis: int, size: Any, kind: str, align: bool, scale: Any) -> Any:
    """A weighted sum of gathers at constant indices."""
    index, weight = _taps(x.shape[axis], _out_size(x.shape[axis], size, scale), kind, align, scale)
    if x.dtype.kind == "c" or len(index) > 32:
        return NotImplemented
    total = None
    for places, factors in zip(index, weight, strict=True):
        part = gathering.take_axis(x, constant(x, np.ascontiguousarray(places)), axis)
        if len(index) > 1:
            part = part * _weights(x, factors, axis)
        total = part if total is None else total + part
    return total


@decomposition("resample_backward")
def resample_backward(g: Any, like: Any, in_size: Any, axis: int, size: Any, kind: str, align: bool, scale: Any) -> Any:
    n = like.shape[axis] if in_size is None else in_size
    index, weight = _taps(n, g.shape[axis], kind, align, scale)
    if g.dtype.kind == "c" or len(index) > 32:
        return NotImplemented
    total = filled((*g.shape[:axis], n, *g.shape[axis + 1 :]), 0, g.dtype)
    for places, factors in zip(index, weight, strict=True):
        part = g * _weights(g, factors, axis) if len(index) > 1 else g
        total = gathering.index_add(total, constant(g, np.ascontiguousarray(places)), part, axis)
    return total


# Indices ----------------------------------------------------------------------------------------------------------------


@decomposition("one_hot_encode")
def one_hot_encode(x: Any, num_classes: int) -> Any:
    checked = gathering.checked_indices(x, 0, num_classes, None, "one_hot: class")
    shape = (1,) * len(x.shape) + (num_classes,)
    numbers = constant(x, counting("one_hot", num_classes).reshape(shape))
    return e.astype(e.equal(shaping.expand_dims(checked, -1), numbers), np.dtype(np.int64))


@decomposition("bag_numbers")
def bag_numbers(offsets: Any, count: int) -> Any:
    """Offsets are rebuilt from their differences, so that the checked values are the ones used."""
    bags = offsets.shape[0]
    starts = e.astype(offsets, np.dtype(np.int64))
    if bags > 1:
        first = indexing.slice_axis(starts, 0, 0, 1)
        rises = indexing.slice_axis(starts, 0, 1, bags) - indexing.slice_axis(starts, 0, 0, bags - 1)
        checked = gathering.checked_indices(rises, 0, count + 1, None, "embedding_bag: rise from an offset to the next")
        starts = shaping.concat_axis((first, first + cumulative.accumulate_sum(checked, 0)), 0)
    starts = gathering.checked_indices(starts, 0, count + 1, None, "embedding_bag: offset")
    numbers = searching.search_places(starts, constant(offsets, counting("embedding_bag", count)), None, "right") - 1
    return gathering.checked_indices(numbers, 0, bags, None, "embedding_bag: bag (the first offset must be 0)")


@decomposition("isin")
def isin(x1: Any, x2: Any, *, invert: bool = False) -> Any:
    among = shaping.reshape(x2, (-1,))
    if among.shape[0] <= 64:
        found = reduction.any_(e.equal(shaping.expand_dims(x1, -1), among), axis=-1)
    else:
        ordered = sorting.sort(among)
        place = e.minimum(searching.search_places(ordered, x1, None, "left"), among.shape[0] - 1)
        found = e.equal(gathering.take_axis(ordered, place, 0), x1)
    return e.logical_not(found) if invert else found


class _Parts:
    """An advanced index taken apart: `x` with its basic part applied, and its index tensors."""

    def __init__(self, x: Any, spec: tuple[Any, ...], tensors: list[Any]) -> None:
        rest = iter(tensors)
        items = list(spec) if Ellipsis in spec else [*spec, Ellipsis]
        taken = sum(1 for i in items if i is not None and i is not Ellipsis)
        gap = len(x.shape) - taken
        basic: list[Any] = []
        self.axes: list[int] = []  # of the sliced x
        self.indices: list[Any] = []
        axis = 0
        for item in items:
            if item is Ellipsis:
                basic += [_ALL] * gap
                axis += gap
            elif item is None:
                basic.append(None)
                axis += 1
            elif item.__class__ is Slice:
                basic.append(item)
                axis += 1
            else:  # integers beside index tensors act as index tensors
                index = next(rest) if item.__class__ is str else constant(x, np.asarray(item, np.int64))
                self.indices.append(index)
                self.axes.append(axis)
                basic.append(_ALL)
                axis += 1
        self.basic = tuple(basic)
        self.plain = all(i.__class__ is Slice and i == _ALL for i in basic)
        self.adjacent = self._adjacent(items)

    @staticmethod
    def _adjacent(items: list[Any]) -> bool:
        """Whether the index tensors are adjacent; then the result has their axes there, else in front."""
        places = [k for k, i in enumerate(items) if i.__class__ is str or i.__class__ is int]
        return places == list(range(places[0], places[-1] + 1))

    def flat(self, x: Any) -> Any:
        """The flat (row-major) index into the indexed axes of `x`."""
        total = None
        step = 1
        for axis, index in zip(reversed(self.axes), reversed(self.indices), strict=True):
            size = x.shape[axis]
            index = e.astype(gathering.checked_indices(index, -size, size, None, "index"), np.dtype(np.int64))
            part = e.where(index < 0, index + size, index) * step
            total = part if total is None else total + part
            step *= size
        return total


def _neighbours(axes: list[int]) -> bool:
    return axes == list(range(axes[0], axes[-1] + 1))


def _usable(x: Any, tensors: list[Any]) -> bool:
    return all(t.dtype.kind in "iu" for t in tensors)


@decomposition("advanced_index")
def advanced_index(arrays: Any, spec: tuple[Any, ...]) -> Any:
    """A gather of rows: the indexed axes in front, as one."""
    x, *tensors = arrays
    if not _usable(x, tensors):
        return NotImplemented
    parts = _Parts(x, spec, tensors)
    x = x if parts.plain else indexing.getitem(x, parts.basic)
    if len(parts.indices) == 1:
        axis = parts.axes[0]
        return gathering.take_axis(x, parts.indices[0], axis)
    rest = [a for a in range(len(x.shape)) if a not in parts.axes]
    places = parts.flat(x)
    size = int(np.prod([x.shape[a] for a in parts.axes]))
    transposed = shaping.permute_dims(x, (*parts.axes, *rest))
    rows = shaping.reshape(transposed, (size, *[x.shape[a] for a in rest]))
    taken = gathering.take_axis(rows, places, 0)
    k = len(places.shape)
    lead = parts.axes[0] if parts.adjacent else 0
    order = [*range(k, k + lead), *range(k), *range(k + lead, k + len(rest))]
    return shaping.permute_dims(taken, tuple(order))


@decomposition("advanced_put")
def advanced_put(arrays: Any, spec: tuple[Any, ...], accumulate: bool = False) -> Any:
    """Rows written to, or added to, rows: the indexed axes in front, as one."""
    x, value, *tensors = arrays
    if not _usable(x, tensors):
        return NotImplemented
    parts = _Parts(x, spec, tensors)
    if not parts.plain:  # the basic slice is read, updated and written back
        inside = indexing.getitem(x, parts.basic)
        inner = tuple(["tensor" if a in parts.axes else _ALL for a in range(len(inside.shape))])
        front = inner if parts.adjacent or not _neighbours(parts.axes) else None
        if front is None:
            return NotImplemented
        changed = advanced_put((inside, value, *parts.indices), front, accumulate)
        return indexing.setitem(x, changed, parts.basic)
    rest = [a for a in range(len(x.shape)) if a not in parts.axes]
    places = parts.flat(x)
    k = len(places.shape)
    sizes = [x.shape[a] for a in parts.axes]
    order = (*parts.axes, *rest)
    rows = shaping.reshape(shaping.permute_dims(x, order), (int(np.prod(sizes)), *[x.shape[a] for a in rest]))
    lead = parts.axes[0] if parts.adjacent else 0
    around = [x.shape[a] for a in rest]
    full = (*around[:lead], *places.shape, *around[lead:])
    new = shaping.broadcast_to(e.astype(value, x.dtype), full)
    front = (*range(lead, lead + k), *range(lead), *range(lead + k, len(full)))
    new = shaping.reshape(shaping.permute_dims(new, front), (-1, *around))
    flat = shaping.reshape(places, (-1,))
    if accumulate:
        done = gathering.index_add(rows, flat, new, 0)
    else:
        across = shaping.reshape(flat, (-1, *(1,) * len(around)))
        done = gathering.scatter(rows, shaping.broadcast_to(across, tuple(new.shape)), new, 0)
    back = shaping.reshape(done, (*sizes, *around))
    return shaping.permute_dims(back, tuple([int(a) for a in np.argsort(order)]))


@decomposition("take_along_axis")
def take_along_axis(x: Any, indices: Any, *, axis: int = -1) -> Any:
    """Picking one element per row of a computed value (the log-probability of a class) fuses with the computation."""
    axis = axis % len(x.shape)
    n = x.shape[axis]
    rest_equal = all(a == b for i, (a, b) in enumerate(zip(x.shape, indices.shape, strict=True)) if i != axis)
    computed = x._data.node.op.expression is not None
    if not computed or indices.shape[axis] != 1 or not rest_equal or x.dtype not in (dtypes.float32, dtypes.float64):
        return NotImplemented
    checked = gathering.checked_indices(indices, -n, n, None, "take_along_axis: index")
    place = e.where(checked < 0, checked + n, checked)
    return reduction.reduce_sum(e.where(e.equal(positions(x, axis), place), x, zero(x)), (axis,), True)
