"""Lowers 1 x 1 convolutions of few channels to the kernel of `weft.compiler.loop_ir.kernels.pointwise_conv`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from ....graph.graph import Node
from ....ops.internal.epilogue import IDENTITY, Epilogue
from ...loop_ir.kernels import pointwise_conv as p
from ...program.layout import Layout
from ...target import Target
from .depthwise import add_kernel, long_vectors
from .labels import REORDER_WEIGHTS

if TYPE_CHECKING:
    from ..lower import Lowering

MIN_PIXELS = 2048
"""Minimum pixels to skip the trial: with fewer, load balance matters more than the kernel."""


def suits(depth: int, columns: int, target: Target) -> bool:
    """Whether the kernel supports a matrix of this shape."""
    small = depth * columns <= p.max_matrix_elements(target)
    return min(depth, columns) >= 8 and small and p.tile_of(columns, target)[0] > 0


def leads(images: Sequence[int], target: Target) -> bool:
    """Whether the kernel is certainly the fastest way for images of this shape."""
    return images[0] * prod(images[2:]) >= MIN_PIXELS and long_vectors(target)


def multiply(
    lowering: Lowering, node: Node, x: Layout, matrix: Layout, y: Layout, epilogue: Epilogue = IDENTITY,
    operands: Sequence[Layout] = (), label: str = "convolution",
) -> None:  # fmt: skip
    """Steps for y = x times matrix, pixel by pixel, then `epilogue` with `operands`; see `p.pointwise_conv`.

    Args:
        x, y: channels-last and contiguous.
        matrix: (channels of x, channels of y) with any strides.
    """
    depth, columns = matrix.shape
    wide = p.tile_of(columns, lowering.target)[1]
    down, along = matrix.strides
    panels = Layout(
        matrix.storage, matrix.dtype, (columns // wide, depth, wide), (wide * along, down, along), matrix.offset
    )
    w = panels if panels.contiguous else lowering.copy(panels, node, label=REORDER_WEIGHTS)
    rows = x.shape[0] * prod(x.shape[2:])
    params = [
        rows,
        *p.split(rows, columns, lowering.target),
        x.offset,
        w.offset,
        y.offset,
        *[z.offset for z in operands],
    ]
    kernel = p.pointwise_conv(depth, columns, lowering.target, epilogue)
    add_kernel(lowering, node, label, kernel, [x, w, *operands], [y], params)
