"""The fact `view` of an op record: how the result is laid out in the memory of its operand.

A view costs nothing in a compiled program: it is another shape with other strides over the same memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Sizes = tuple[int, ...]
Axes = tuple[int | None, ...]
Placed = tuple[Sizes, int]


def _moves_elements(old: Sizes, axes: Axes, new: Sizes, *attrs: object) -> None:
    return None


@dataclass(frozen=True)
class View:
    """How a view op maps the memory and the axes of its operand. Strides and offsets count elements.

    Args:
        strides: `strides(old_shape, old_strides, new_shape, *attrs)` returns the strides of the result and the offset of
            its first element, or None if its elements must be copied first.
        axes: `axes(old_shape, old_axes, new_shape, *attrs)` maps labels of the operand's axes to the axes of the result,
            None for a new axis; or it returns None if the view moves elements. Loops fuse through views that keep them.
    """

    strides: Callable[..., Placed | None]
    axes: Callable[..., Axes | None] = _moves_elements


def row_major(shape: Sizes) -> Sizes:
    """The strides of a contiguous array."""
    strides, step = [], 1
    for d in reversed(shape):
        strides.append(step)
        step *= max(d, 1)
    return tuple(reversed(strides))
