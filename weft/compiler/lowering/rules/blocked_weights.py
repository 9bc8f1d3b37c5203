"""Packs convolution weights into oneDNN's blocked layouts, and unpacks gradients from them.

    (2048, 1024, 1, 1) as "Acdb48a": 43 blocks, each 1024 rows of 48 elements; the last block is padded with zeros

For 1 x 1 kernels oneDNN gathers the elements of a block one by one, at a fifth of the speed of a copy; ours is a
transposing copy (see `kernels/copy.py`). For larger kernels oneDNN's reorder is faster.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ....graph.graph import Node
from ...layout import Layout
from ..primitives import add_primitive, desc

if TYPE_CHECKING:
    from ..lower import Lowering

INTO, OUT_OF = "reorder weights", "reorder grad weight"
"""Labels of the steps."""


def into_blocks(lowering: Lowering, node: Node, weight: Layout, wanted: Any) -> Layout:
    """The weights in the layout `wanted`, a memory descriptor."""
    source = desc(weight)
    if source == wanted:
        return weight
    room: Layout = lowering.temporary((wanted.nbytes // 4,), np.dtype(np.float32))
    parts = _parts(weight, wanted, room)
    if parts is None:
        _by_library(lowering, node, (weight, source), (room, wanted), INTO)
        return room
    if sum(math.prod(blocked.shape) for _, blocked in parts) < room.shape[0]:  # the last block is not full
        at = parts[-1][1].offset
        rest = room.shape[0] - (at - room.offset)
        lowering.fill(Layout(room.storage, room.dtype, (rest,), (1,), at), 0, node, INTO)
    for plain, blocked in parts:
        lowering.copy(plain, node, blocked, INTO)
    return room


def out_of_blocks(lowering: Lowering, node: Node, room: Layout, has: Any, target: Layout) -> None:
    """Steps that bring weights from the layout `has` in `room` to `target`."""
    parts = _parts(target, has, room)
    if parts is None:
        _by_library(lowering, node, (room, has), (target, desc(target)), OUT_OF)
        return
    for plain, blocked in parts:
        lowering.copy(blocked, node, plain, OUT_OF)


def _by_library(
    lowering: Lowering, node: Node, source: tuple[Layout, Any], target: tuple[Layout, Any], label: str
) -> None:
    from ....backends.onednn.capi import Arg
    from ....backends.onednn.primitives.reorder import reorder

    arguments = {int(Arg.SRC): source[0], int(Arg.DST): target[0]}
    add_primitive(lowering, node, reorder(source[1], target[1]), arguments, label)


def _parts(plain: Layout, described: Any, room: Layout) -> list[tuple[Layout, Layout]] | None:
    """The whole blocks and then what is left, each as it lies in `plain` and in `room`; None if that is the library's to do.

    At most one axis has a rest, and its blocks follow each other in memory: padding is then at the end.
    """
    if described.blocked is None or any(d > 1 for d in plain.shape[-2:]):
        return None
    outer, blocks = described.blocked
    sizes = dict(blocks)
    cut = [a for a, size in blocks if plain.shape[a] % size]
    if len(sizes) != len(blocks) or len(cut) > 1 or any(outer[a] != max(outer) for a in cut):
        return None
    inner, step = {}, 1
    for axis, size in reversed(blocks):
        inner[axis], step = step, step * size
    whole = _part(plain, room, outer, inner, sizes)
    if not cut:
        return [whole]
    rest = _part(plain, room, outer, inner, sizes, cut[0])
    return [whole, rest] if plain.shape[cut[0]] >= sizes[cut[0]] else [rest]


def _part(
    plain: Layout,
    room: Layout,
    outer: tuple[int, ...],
    inner: dict[int, int],
    sizes: dict[int, int],
    cut: int | None = None,
) -> tuple[Layout, Layout]:
    """Whole blocks along every axis, or what is left along the axis `cut`."""
    axes: list[tuple[int, int, int]] = []  # size, stride in `plain`, stride in `room`
    start, place = plain.offset, room.offset
    for a, (d, stride) in enumerate(zip(plain.shape, plain.strides, strict=True)):
        size = sizes.get(a, 1)
        if a == cut:
            start, place = start + d // size * size * stride, place + d // size * outer[a]
            axes.append((d % size, stride, inner[a]))
            continue
        axes.append((d // size, stride * size, outer[a]))
        if size > 1:
            axes.append((size, stride, inner[a]))
    shape, strides, in_room = zip(*axes, strict=True)
    return (
        Layout(plain.storage, plain.dtype, shape, strides, start),
        Layout(room.storage, room.dtype, shape, in_room, place),
    )
