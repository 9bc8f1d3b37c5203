"""Copies operands whose fastest axis differs from the rest of their cluster into the cluster's memory order.

    %z = add(%x.T, %y)        one of the two would be read a cache line per element
    %t = copy(%x.T); %z = add(%t, %y)

A transposing copy (`kernels/copy.py`) plus one more read is several times faster than the strided access.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...graph.graph import CONSTANT, Value
from ..fusion import Cluster, base_of
from ..loop_ir.ir import SQUARE
from ..program.layout import Layout, like_order, row_major
from ..target import Target


def crosswise(cluster: Cluster, layout_of: Callable[[Value], Layout], target: Target) -> dict[Value, tuple[int, ...]]:
    """The operands of a cluster to copy, and the strides of the copies."""
    if sum(d >= SQUARE for d in cluster.space) < 2:
        return {}
    found: dict[Value, Layout] = {}
    for n in cluster.members:
        for v in n.inputs if n.op.gather is None else ():
            if not isinstance(v, Value) or tuple(v.shape) != cluster.space or base_of(v).node.op is CONSTANT:
                continue
            if cluster.member_of(v) is None:
                found[v] = layout_of(v)
    ways = [x.strides for x in found.values()]
    if len(set(ways)) < 2:
        return {}
    plain = row_major(cluster.space)
    main = plain if plain in ways else ways[0]
    if main.count(1) != 1:
        return {}
    fast = main.index(1)
    return {v: like_order(cluster.space, main) for v, x in found.items() if _crosses(x, fast, target)}


def _crosses(x: Layout, fast: int, target: Target) -> bool:
    """Whether the layout is large and contiguous along another axis than `fast`."""
    dense = any(st == 1 and d >= SQUARE for a, (st, d) in enumerate(zip(x.strides, x.shape, strict=True)) if a != fast)
    large = x.shape[fast] >= SQUARE and 4 * math.prod(x.shape) >= 2 * target.l1_bytes  # a smaller one stays in cache
    return dense and large and x.dtype.itemsize == 4 and x.strides[fast] not in (0, 1)
