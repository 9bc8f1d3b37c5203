"""Rows added to rows: the gradient of an embedding, as native loops.

Columns are shared out among threads, so that several additions to one row never meet and their order is always the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph.graph import Node
from ...ops import scalar as s
from .. import loops
from ..layout import row_major
from ..loops import Buffer, Kernel
from ..lower import Step
from ..nests import grain
from ..primitives import lowers


@lowers("index_add")
def lower_index_add(lowering: Any, node: Node) -> bool:
    x_value, index_value, source_value = node.inputs
    axis = node.attrs[0] % max(len(x_value.shape), 1)
    if axis != 0 or x_value.dtype not in s.DTYPES or 0 in source_value.shape or 0 in x_value.shape:
        return False
    rows = x_value.shape[0]
    count = index_value.shape[0]
    width = 1
    for d in x_value.shape[1:]:
        width *= d
    index = lowering.layout_of(index_value)
    lowering.check_indices(index, -rows, rows, node)
    source = lowering.layout_of(source_value)
    if not source.contiguous:
        source = lowering.copy(source, node)
    out = lowering.place(node, 0, row_major(tuple(x_value.shape)), node, None)
    target = out if out.contiguous else lowering.temporary(tuple(x_value.shape), out.dtype)
    if x_value.node.op.name == "filled":
        lowering.fill(target, x_value.node.attrs[1], node)
    else:
        lowering.copy(lowering.layout_of(x_value), node, target)
    buffers = tuple([Buffer.of(f"b{i}", x.dtype, (1 << 40,)) for i, x in enumerate((index, source, target))])
    k, j = s.index("k"), s.index("j")
    i = s.cast(buffers[0][k * index.strides[0] + index.offset], np.int64)
    if s.kind(index.dtype) == "i":
        i = s.where(s.lt(i, 0), i + rows, i)
    i = s.minimum(s.maximum(i, 0), rows - 1)
    tile = next((t for t in (512, 256, 128, 64, 32, 16) if width % t == 0 and width // t >= 2), width)
    column = s.index("t") * tile + j if tile != width else j
    row = loops.Let("row", i * width)
    place = buffers[2][row.var + column + target.offset]
    add = loops.store(place, place + buffers[1][k * width + column + source.offset])
    body: list[Any] = [loops.loop("k", count, [row, loops.loop("j", tile, [add], "vector")])]
    if tile != width:
        body = [loops.loop("t", width // tile, body, parallel=True, grain=grain(count * tile))]
    kernel = Kernel("index_add", buffers, (), tuple(body))
    storages = [index.storage, source.storage, target.storage]
    lowering.steps.append(Step("kernel", "index add", [node], storages, [target.storage], kernel, storages))
    if target is not out:
        lowering.copy(target, node, out)
    return True
