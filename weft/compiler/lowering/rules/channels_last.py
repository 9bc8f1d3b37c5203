"""Helpers shared by the image rules: channels-last layouts, for libraries and for native kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ....graph.graph import Node, Value
from ...program.layout import Layout, channels_last, same_strides
from ..library import library

if TYPE_CHECKING:
    from ..lower import Lowering


def applies(*values: Any) -> bool:
    """Whether operands are float32 and not empty, and a library is available."""
    return library().available() and all(
        v is None or v.dtype == np.float32 and 0 not in v.shape for v in values if isinstance(v, Value) or v is None
    )


def channels_last_layout(lowering: Lowering, layout: Layout, node: Node) -> Layout:
    """The layout itself if its channels are contiguous, else a channels-last copy."""
    wanted = channels_last(layout.shape)
    if same_strides(layout.strides, wanted, layout.shape):
        return Layout(layout.storage, layout.dtype, layout.shape, wanted, layout.offset)
    return lowering.copy(layout, node, lowering.temporary(layout.shape, layout.dtype, wanted))


@contextmanager
def channels_last_result(lowering: Lowering, node: Node, index: int = 0) -> Iterator[Layout]:
    """Channels-last memory for a result. If the result needs another layout, it is copied after the block."""
    shape = tuple(node.outputs[index].shape)
    wanted = channels_last(shape)
    target = lowering.place(node, index, wanted, node, None)
    if same_strides(target.strides, wanted, shape):
        yield Layout(target.storage, target.dtype, shape, wanted, target.offset)
        return
    made = lowering.temporary(shape, target.dtype, wanted)
    yield made
    lowering.copy(made, node, target)
