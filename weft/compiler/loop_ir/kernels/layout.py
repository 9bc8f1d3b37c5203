"""Shapes and strides to loops: drop, order and merge dimensions before any code is generated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ....ops.core import scalar as s
from ....ops.core.scalar import Expr
from ..ir import Let


class Dims(NamedTuple):
    """Dimensions from outermost to innermost: sizes, a label each, and per operand one stride per dimension."""

    sizes: tuple[int, ...]
    labels: tuple[str, ...]
    strides: tuple[tuple[int, ...], ...]


def collapse(
    shape: Sequence[int], strides: Sequence[Sequence[int]], labels: Sequence[str] | None = None, first: int = 0
) -> Dims:
    """The fewest dimensions that visit the same elements.

    Dimensions of size 1 are dropped; the others are sorted by descending stride, that of operand `first` before the rest;
    neighbours that are contiguous in every operand (and have the same label) are merged.
    """
    labels = labels or ["" for _ in shape]
    order = [strides[first], *strides[:first], *strides[first + 1 :]]
    axes = [a for a, n in enumerate(shape) if n != 1]
    axes.sort(key=lambda a: tuple(-abs(st[a]) for st in order))
    sizes: list[int] = []
    names: list[str] = []
    steps: list[list[int]] = [[] for _ in strides]
    for a in axes:
        merges = bool(sizes) and names[-1] == labels[a]
        if merges and all(step[-1] == st[a] * shape[a] for step, st in zip(steps, strides, strict=True)):
            sizes[-1] *= shape[a]
            for step, st in zip(steps, strides, strict=True):
                step[-1] = st[a]
        else:
            sizes.append(shape[a])
            names.append(labels[a])
            for step, st in zip(steps, strides, strict=True):
                step.append(st[a])
    return Dims(tuple(sizes), tuple(names), tuple(map(tuple, steps)))


def stride_class(stride: int) -> int:
    """The stride that code is specialised for: 0, 1, or 2 for any other stride."""
    return stride if stride in (0, 1) else 2


def unflatten(flat: Expr, sizes: Sequence[Expr], prefix: str) -> tuple[list[Let], list[Expr]]:
    """Split a row-major flat index into one index per dimension: (definitions, indices)."""
    lets: list[Let] = []
    indices: list[Expr] = []
    rest = flat
    for number, size in reversed(list(enumerate(sizes))):
        if number == 0:
            indices.append(rest)
            break
        lets.append(Let(f"{prefix}{number}", s.remainder(rest, size)))
        indices.append(lets[-1].var)
        lets.append(Let(f"{prefix}{number}_rest", s.floor_divide(rest, size)))
        rest = lets[-1].var
    return lets, indices[::-1]
