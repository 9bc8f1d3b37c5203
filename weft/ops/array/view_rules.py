"""The view rules of reshaping, transposing, broadcasting and slicing, see `weft.ops.core.views`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.spec import normalize_axes
from ..core.views import Axes, Placed, Sizes, View, row_major


def _permuted(old: Sizes, strides: Sizes, new: Sizes, axes: Any) -> Placed:
    return tuple([strides[a % len(new)] for a in axes]), 0


def _broadcast(old: Sizes, strides: Sizes, new: Sizes, *_: Any) -> Placed:
    extra = len(new) - len(old)
    kept = [0 if d == 1 and new[i + extra] != 1 else st for i, (d, st) in enumerate(zip(old, strides, strict=True))]
    return (*(0,) * extra, *kept), 0


def _broadcast_axes(old: Sizes, axes: Axes, new: Sizes, *_: Any) -> Axes:
    return (*(None,) * (len(new) - len(old)), *axes)


def _expanded(old: Sizes, strides: Sizes, new: Sizes, axis: Any) -> Placed:
    made = list(strides)
    for a in sorted(normalize_axes("expand_dims", axis, len(new))):
        made.insert(a, 1)
    return tuple(made), 0


def _expanded_axes(old: Sizes, axes: Axes, new: Sizes, axis: Any) -> Axes:
    places = normalize_axes("expand_dims", axis, len(new))
    rest = iter(axes)
    return tuple([None if i in places else next(rest) for i in range(len(new))])


def _without(axis: Any, rank: int, items: tuple[Any, ...]) -> tuple[Any, ...]:
    gone = normalize_axes("squeeze", axis, rank)
    return tuple([x for i, x in enumerate(items) if i not in gone])


def _sliced(old: Sizes, strides: Sizes, new: Sizes, index: Any) -> Placed:
    """The layout of a basic index, computed by NumPy on addresses instead of data."""
    from .indexing import thaw

    if 0 in old or 0 in new:
        return row_major(new), 0
    probe = np.lib.stride_tricks.as_strided(np.empty(1, np.int8), old, strides, writeable=False)
    items = thaw(index)
    view = probe[items if Ellipsis in items else (*items, Ellipsis)]  # never a scalar, which would be a copy
    start = view.__array_interface__["data"][0] - probe.__array_interface__["data"][0]
    return tuple(view.strides), start


def _reshaped(old: Sizes, strides: Sizes, new: Sizes, *_: Any) -> Placed | None:
    """The strides of a reshape that needs no copy, or None."""
    dims = [(d, st) for d, st in zip(old, strides, strict=True) if d != 1]
    if 0 in old or 0 in new:
        return row_major(new), 0
    result = [1] * len(new)
    position = 0
    i = 0
    while i < len(new):
        if new[i] == 1:
            i += 1
            continue
        if position >= len(dims):
            return None
        # gather a group of old axes and of new axes with equal products
        size_old, group_old = dims[position][0], [dims[position]]
        size_new, group_new = new[i], [i]
        position += 1
        i += 1
        while size_old != size_new:
            if size_old < size_new:
                if position >= len(dims):
                    return None
                size_old *= dims[position][0]
                group_old.append(dims[position])
                position += 1
            else:
                if i >= len(new):
                    return None
                size_new *= new[i]
                if new[i] != 1:
                    group_new.append(i)
                i += 1
        for (_d1, s1), (d2, s2) in zip(group_old, group_old[1:], strict=False):
            if s1 != d2 * s2:
                return None
        step = group_old[-1][1]
        for axis in reversed(group_new):
            result[axis] = step
            step *= new[axis]
    return tuple(result), 0


def _reshaped_axes(old: Sizes, axes: Axes, new: Sizes, *_: Any) -> Axes | None:
    """Where a reshape only adds and removes axes of size 1."""
    if [d for d in old if d != 1] != [d for d in new if d != 1]:
        return None
    kept = iter([a for a, d in zip(axes, old, strict=True) if d != 1])
    return tuple([next(kept) if d != 1 else None for d in new])


PERMUTED = View(_permuted)
BROADCAST = View(_broadcast, _broadcast_axes)
EXPANDED = View(_expanded, _expanded_axes)
SQUEEZED = View(
    lambda old, strides, new, axis: (_without(axis, len(old), strides), 0),
    lambda old, axes, new, axis: _without(axis, len(old), axes),
)
SLICED = View(_sliced)
RESHAPED = View(_reshaped, _reshaped_axes)
