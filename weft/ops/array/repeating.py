"""Ops that rearrange or repeat elements: flip, roll, tile, repeat."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...tensor import Tensor, wrap
from ..core import vmap_rules
from ..core.define import primitive
from ..core.samples import Bad, Sample
from ..core.slow_path import check_memory
from ..core.spec import Spec, check_integer, check_shape, check_size, normalize_axes, normalize_axis, num_elements
from .shaping import reshape

# Functions for users that are not ops; ops are public by their records.
__all__ = ["repeat"]


def _infer_flip(x: Any, axis: Any) -> Spec:
    normalize_axes("flip", axis, x.ndim)
    return Spec(x.shape, x.dtype)


@primitive(
    accumulate="exact",
    along=True,
    checks_once=True,
    cost="move",
    infer=_infer_flip,
    vjp=lambda g, axis: flip(g, axis=axis),
    batch=lambda axes, tensors, attrs: flip(
        tensors[0], axis=tuple([a + 1 for a in normalize_axes("flip", attrs[0], tensors[0].ndim - 1)])
    ),
    reference=lambda x, axis=None: np.flip(x, axis),
    samples=lambda m: [
        Sample(m.normal(2, 3)),
        Sample(m.normal(2, 3), axis=1),
        Sample(m.normal(2, 3, 2), axis=(0, -1)),
        Sample(m.normal()),
    ],
    errors=lambda m: [Bad(IndexError, "flip: axis 2", m.normal(2, 3), axis=2)],
)
def flip(x: Tensor, /, *, axis: int | tuple[int, ...] | None = None) -> Any:
    """Reverse the order of elements along `axis` (all axes by default); a copy.

    >>> wf.flip(wf.arange(3))
    tensor([2, 1, 0])
    """
    return np.flip(x, axis).copy()


def _roll_axes(shift: Any, axis: Any) -> tuple[tuple[int, ...], Any]:
    shifts = tuple(shift) if isinstance(shift, tuple) else (shift,)
    return tuple([-n for n in shifts]), axis


def _infer_roll(x: Any, shift: Any, axis: Any) -> Spec:
    axes = normalize_axes("roll", axis, x.ndim) if axis is not None else ()
    for n in shift if isinstance(shift, tuple) else (shift,):
        if not isinstance(n, (int, np.integer)):
            raise TypeError(f"roll: shift must be an integer or integers. Got {shift!r}.")
    if axis is not None and isinstance(shift, tuple) and len(shift) != len(axes):
        raise ValueError(f"roll: shift and axis must be equally many. Got {shift!r} and {axis!r}.")
    return Spec(x.shape, x.dtype)


@primitive(
    accumulate="exact",
    along=True,
    checks_once=True,
    cost="move",
    infer=_infer_roll,
    vjp=lambda g, shift, axis: roll(g, _roll_axes(shift, axis)[0] if isinstance(shift, tuple) else -shift, axis=axis),
    batch=vmap_rules.roll,
    reference=lambda x, shift, axis=None: np.roll(x, shift, axis),
    samples=lambda m: [
        Sample(m.normal(2, 3), 1),
        Sample(m.normal(2, 3), -4, axis=1),
        Sample(m.normal(2, 3), (1, 2), axis=(0, 1)),
    ],
    errors=lambda m: [Bad(TypeError, "roll: shift must be", m.normal(2, 3), 1.5)],
)
def roll(x: Tensor, /, shift: int | tuple[int, ...], *, axis: int | tuple[int, ...] | None = None) -> Any:
    """Shift elements along `axis` cyclically (the flattened tensor by default).

    >>> wf.roll(wf.arange(4), 1)
    tensor([3, 0, 1, 2])
    """
    return np.roll(x, shift, axis)


def _times(size: Any, count: int) -> Any:
    """A size times a repetition count; a symbolic size is kept only for a count of 1."""
    return size * count if isinstance(size, (int, np.integer)) else size if count == 1 else None


def _infer_tile(x: Any, repetitions: Any) -> Spec:
    repetitions = check_shape("tile", repetitions, "repetitions")
    if x.shape is None:
        return Spec(None, x.dtype)
    n = max(len(repetitions), len(x.shape))
    shape = (1,) * (n - len(x.shape)) + tuple(x.shape)
    counts = (1,) * (n - len(repetitions)) + repetitions
    return Spec(tuple([_times(d, r) for d, r in zip(shape, counts, strict=True)]), x.dtype)


def _tile_rule(g: Tensor, like_x: Any, repetitions: Any) -> Tensor:
    from .reduction import sum as sum_

    counts = check_shape("tile", repetitions)
    n = max(len(counts), len(like_x.shape))
    shape = (1,) * (n - len(like_x.shape)) + tuple(like_x.shape)
    counts = (1,) * (n - len(counts)) + counts
    split_shape = [v for pair in zip(counts, shape, strict=True) for v in pair]
    return reshape(sum_(reshape(g, tuple(split_shape)), axis=tuple(range(0, 2 * n, 2))), tuple(like_x.shape))


@primitive(
    accumulate="exact",
    checks_once=True,
    cost="move",
    infer=_infer_tile,
    vjp=_tile_rule,
    batch=vmap_rules.tile,
    reference=np.tile,
    samples=lambda m: [Sample(m.normal(2, 3), (2, 1)), Sample(m.normal(3), (2, 2)), Sample(m.normal(2, 3), (2,))],
    errors=lambda m: [Bad(ValueError, "negative", m.normal(2), (-1,))],
)
def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Any:
    """Repeat the whole tensor `repetitions` times along each axis.

    >>> wf.tile(wf.tensor([1, 2]), (2,))
    tensor([1, 2, 1, 2])
    """
    return np.tile(x, repetitions)


def _infer_repeat(x: Any, repeats: Any, axis: Any) -> Spec:
    counts = repeats if isinstance(repeats, tuple) else (repeats,)
    for count in counts:
        check_size("repeat", count, "repeats")
    if x.shape is None:
        return Spec(None, x.dtype)
    if axis is None:
        total = num_elements(x.shape)
        if isinstance(repeats, tuple):
            return Spec((sum(repeats),), x.dtype)
        return Spec((None if total is None else total * repeats,), x.dtype)
    axis = normalize_axis("repeat", axis, x.ndim)
    size = x.shape[axis]
    new = sum(repeats) if isinstance(repeats, tuple) else _times(size, repeats)
    return Spec((*x.shape[:axis], new, *x.shape[axis + 1 :]), x.dtype)


def _repeat_rule(g: Tensor, like_x: Any, repeats: Any, axis: Any) -> Tensor:
    from .gathering import index_add

    shape = tuple(like_x.shape)
    if axis is None:
        flat = _repeat_rule(g, Spec((num_elements(shape),), g.dtype), repeats, 0)
        return reshape(flat, shape)
    axis = axis % len(shape)
    if not isinstance(repeats, tuple):  # copies are adjacent: sum over an axis of copies
        from .reduction import sum as sum_

        return sum_(reshape(g, (*shape[: axis + 1], repeats, *shape[axis + 1 :])), axis=axis + 1)
    check_memory("repeat", (sum(repeats),), np.dtype(np.int64))
    owners = np.repeat(np.arange(shape[axis]), repeats)
    from .creation import zeros

    return index_add(zeros(shape, dtype=g.dtype), wrap(owners), g, axis)


@primitive(
    accumulate="exact",
    namespace="internal",
    title="repeat",
    name="repeat_static",
    checks_once=True,
    cost="move",
    infer=_infer_repeat,
    vjp=_repeat_rule,
    batch=vmap_rules.repeat_static,
    reference=lambda x, repeats, axis=None: np.repeat(x, repeats, axis),
    samples=lambda m: [
        Sample(m.normal(2, 3), 2, None),
        Sample(m.normal(2, 3), (1, 3), 0),
        Sample(m.normal(2, 3), 2, -1),
    ],
)
def repeat_static(x: Tensor, repeats: int | tuple[int, ...], axis: int | None = None) -> Any:
    """Each element repeated `repeats` (static) times along `axis`."""
    return np.repeat(x, repeats, axis)


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Repeat each element along `axis` (of the flattened tensor by default).

    Args:
        x: any shape.
        repeats: how often to repeat, one integer or one per element along `axis`.
        axis: the axis to repeat along.

    >>> wf.repeat(wf.tensor([1, 2]), 2)
    tensor([1, 1, 2, 2])
    """
    if isinstance(repeats, Tensor):
        repeats = repeats.tolist()
    if isinstance(repeats, (list, tuple)):
        repeats = tuple([check_integer("repeat", r, "repeats") for r in repeats])
        size = x.size if axis is None else x.shape[normalize_axis("repeat", axis, x.ndim)]
        if len(repeats) == 1:
            repeats = repeats[0]
        elif len(repeats) != size:
            raise ValueError(f"repeat: expected 1 or {size} repeats. Got {len(repeats)}.")
    if (min(repeats, default=0) if isinstance(repeats, tuple) else check_integer("repeat", repeats, "repeats")) < 0:
        raise ValueError(f"repeat: repeats must not be negative. Got {repeats}.")
    return repeat_static(x, repeats, axis)
