"""Helpers of the lowerings: oneDNN's descriptions of layouts, and steps that execute its primitives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ....compiler.program.layout import Layout
from ....compiler.program.steps import LibraryCall
from ....graph.graph import Node
from ..capi import Arg, Unsupported
from ..descriptors import MemoryDesc
from ..eager.primitive_call import is_reference
from ..primitives.base import Primitive
from ..shares import Shares, whole

if TYPE_CHECKING:
    from ....compiler.lowering.lower import Lowering


def desc(layout: Layout) -> MemoryDesc:
    """oneDNN's description of a layout."""
    return MemoryDesc.strided(layout.shape, layout.dtype, layout.strides)


def primitive_or_none(build: Callable[[], Any]) -> Any:
    """A primitive, or None where oneDNN has none or only its reference loops."""
    try:
        primitive = build()
    except Unsupported:
        return None
    return None if is_reference(primitive) else primitive


def add_primitive(
    lowering: Lowering,
    node: Node,
    primitive: Primitive | Shares,
    arguments: dict[int, Layout],
    label: str,
    accumulates: bool = False,
) -> None:
    """A step that executes a primitive or shares of one; scratch memory is planned like any other temporary.

    With `accumulates` the step adds to its results."""
    shares = primitive if isinstance(primitive, Shares) else whole(primitive)
    arguments = dict(arguments)
    if shares.takes(Arg.SCRATCHPAD) and shares.scratchpad_nbytes:
        arguments[int(Arg.SCRATCHPAD)] = lowering.temporary((shares.scratchpad_nbytes,), np.dtype(np.uint8))
    written = {a.index for a in shares.arguments if a.output}
    reads = [x.storage for i, x in arguments.items() if i not in written or i == int(Arg.SCRATCHPAD)]
    writes = [x.storage for i, x in arguments.items() if i in written]
    if accumulates:
        reads += [x for x in writes if x not in reads]
    lowering.steps.append(LibraryCall(label, [node], reads, writes, shares, arguments))


def usable(*layouts: Layout) -> bool:
    """Whether oneDNN can read these layouts without a copy: float32, no overlap, no empty axis."""
    return all(
        x.dtype == np.float32
        and 0 not in x.shape
        and all(st > 0 or d == 1 for st, d in zip(x.strides, x.shape, strict=True))
        for x in layouts
    )


def dense(lowering: Lowering, layout: Layout, node: Node) -> Layout:
    """The layout itself if oneDNN can read it, else a copy."""
    return layout if usable(layout) else lowering.copy(layout, node)
