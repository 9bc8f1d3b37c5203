"""Packs convolution weights into oneDNN's blocked layouts, and unpacks gradients from them.

    (2048, 1024, 1, 1) as "Acdb48a": 43 blocks, each 1024 rows of 48 elements; the last block is padded with zeros

For 1 x 1 kernels oneDNN's reorder gathers the elements of a block one by one; Weft's transposing copy (see
`kernels/copy.py`) is five times as fast. For larger kernels oneDNN's reorder is faster.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ....compiler.lowering.rules.labels import REORDER_GRADIENT, REORDER_WEIGHTS
from ....compiler.program.layout import Layout
from ....graph.graph import Node
from ..capi import Arg
from ..primitives.reorder import reorder
from .primitives import add_primitive, desc

if TYPE_CHECKING:
    from ....compiler.lowering.lower import Lowering


def into_blocks(lowering: Lowering, node: Node, weight: Layout, wanted: Any) -> Layout:
    """The weights in the layout `wanted`, a memory descriptor."""
    source = desc(weight)
    if source == wanted:
        return weight
    packed: Layout = lowering.temporary((wanted.nbytes // 4,), np.dtype(np.float32))
    parts = _parts(weight, wanted, packed)
    if parts is None:
        _by_library(lowering, node, (weight, source), (packed, wanted), REORDER_WEIGHTS)
        return packed
    if sum(math.prod(blocked.shape) for _, blocked in parts) < packed.shape[0]:  # the last block is not full
        at = parts[-1][1].offset
        rest = packed.shape[0] - (at - packed.offset)
        lowering.fill(Layout(packed.storage, packed.dtype, (rest,), (1,), at), 0, node, REORDER_WEIGHTS)
    for plain, blocked in parts:
        lowering.copy(plain, node, blocked, REORDER_WEIGHTS)
    return packed


def out_of_blocks(lowering: Lowering, node: Node, packed: Layout, has: Any, target: Layout) -> None:
    """Steps that copy weights from the layout `has` in `packed` to `target`."""
    parts = _parts(target, has, packed)
    if parts is None:
        _by_library(lowering, node, (packed, has), (target, desc(target)), REORDER_GRADIENT)
        return
    for plain, blocked in parts:
        lowering.copy(blocked, node, plain, REORDER_GRADIENT)


def _by_library(
    lowering: Lowering, node: Node, source: tuple[Layout, Any], target: tuple[Layout, Any], label: str
) -> None:
    arguments = {int(Arg.SRC): source[0], int(Arg.DST): target[0]}
    add_primitive(lowering, node, reorder(source[1], target[1]), arguments, label)


def _parts(plain: Layout, described: Any, packed: Layout) -> list[tuple[Layout, Layout]] | None:
    """The whole blocks and then the remainder, each as layouts of `plain` and `packed`; None if oneDNN should reorder.

    At most one axis has a remainder, and its blocks are consecutive in memory: padding is then at the end.
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
    whole = _part(plain, packed, outer, inner, sizes)
    if not cut:
        return [whole]
    rest = _part(plain, packed, outer, inner, sizes, cut[0])
    return [whole, rest] if plain.shape[cut[0]] >= sizes[cut[0]] else [rest]


def _part(
    plain: Layout,
    packed: Layout,
    outer: tuple[int, ...],
    inner: dict[int, int],
    sizes: dict[int, int],
    cut: int | None = None,
) -> tuple[Layout, Layout]:
    """Whole blocks along every axis, or the remainder along the axis `cut`."""
    axes: list[tuple[int, int, int]] = []  # size, stride in `plain`, stride in `packed`
    start, place = plain.offset, packed.offset
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
        Layout(packed.storage, packed.dtype, shape, in_room, place),
    )
