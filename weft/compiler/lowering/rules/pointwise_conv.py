"""Lowers 1 x 1 convolutions of few channels to the kernel of `weft.compiler.loop_ir.kernels.pointwise_conv`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from ....graph.graph import Node
from ...layout import Layout
from ...loop_ir.kernels import pointwise_conv as p
from .blocked_weights import INTO
from .depthwise import add_kernel, long_vectors

if TYPE_CHECKING:
    from ..lower import Lowering

MIN_PIXELS = 2048
"""Minimum pixels to skip the trial: with fewer, load balance matters more than the kernel."""


def suits(depth: int, columns: int) -> bool:
    """Whether the kernel supports a matrix of this shape."""
    return min(depth, columns) >= 8 and depth * columns <= p.MAX_MATRIX_ELEMENTS and p.tile_of(columns)[0] > 0


def leads(images: Sequence[int]) -> bool:
    """Whether the kernel is certainly the fastest way for images of this shape."""
    return images[0] * prod(images[2:]) >= MIN_PIXELS and long_vectors()


def multiply(
    lowering: Lowering, node: Node, x: Layout, matrix: Layout, y: Layout, epilogue: tuple[str, ...] = (),
    operands: Sequence[Layout] = (), label: str = "convolution",
) -> None:  # fmt: skip
    """Steps for y = x times matrix, pixel by pixel, then `epilogue` with `operands`; see `p.pointwise_conv`.

    Args:
        x, y: channels-last and contiguous.
        matrix: (channels of x, channels of y) with any strides.
    """
    depth, columns = matrix.shape
    wide = p.tile_of(columns)[1]
    down, along = matrix.strides
    panels = Layout(
        matrix.storage, matrix.dtype, (columns // wide, depth, wide), (wide * along, down, along), matrix.offset
    )
    w = panels if panels.contiguous else lowering.copy(panels, node, label=INTO)
    rows = x.shape[0] * prod(x.shape[2:])
    params = [rows, *p.split(rows, columns), x.offset, w.offset, y.offset, *[z.offset for z in operands]]
    add_kernel(lowering, node, label, p.pointwise_conv(depth, columns, epilogue), [x, w, *operands], [y], params)
