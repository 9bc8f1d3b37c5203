"""Lowers depthwise convolutions to the kernels of `weft.compiler.loop_ir.kernels.depthwise`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ....graph.graph import Node
from ....ops.internal.epilogue import IDENTITY, Epilogue
from ....ops.nn.window import Window
from ...loop_ir import ir as loops
from ...loop_ir.kernels import depthwise as d
from ...program.layout import Layout
from ...program.steps import KernelCall
from ...target import Target
from .labels import REORDER_WEIGHTS

if TYPE_CHECKING:
    from ..lower import Lowering

FLOAT = np.dtype(np.float32)
MAX_PIECES = 16
"""Maximum runs of a kernel: tiny images with wide windows would need code for every tile."""
MAX_TAPS = 49
MAX_SUMS = 4
"""Maximum per-channel sums beside the weight gradient's, see `depthwise_backward`."""


def shape_of(x: Sequence[int], y: Sequence[int], window: Window) -> d.Shape:
    """Of a convolution from images of shape `x` to `y`."""
    fields = (window.kernel, window.stride, window.before, window.dilation)
    rows, columns = (d.Axis(*sizes) for sizes in zip(x[2:], y[2:], *fields, strict=True))
    return d.Shape(x[1], rows, columns)


def suits(x: Sequence[int], y: Sequence[int], window: Window, groups: int) -> bool:
    """Whether a convolution is depthwise and supported by these kernels."""
    if window.axes != 2 or not groups == x[1] == y[1] > 1:
        return False
    shape = shape_of(x, y, window)
    return (
        shape.taps <= MAX_TAPS
        and 4 * shape.taps * shape.channels <= loops.MAX_LOCAL_BYTES
        and all(d.Grid(shape, transposed).pieces <= MAX_PIECES for transposed in (False, True))
    )


def suits_blocks(x: Sequence[int], y: Sequence[int], window: Window, groups: int, target: Target) -> bool:
    """Whether these kernels can fuse the convolution with its neighbours."""
    return (
        suits(x, y, window, groups)
        and preferred(x[1]) == "depthwise"
        and 4 * (window.positions + MAX_SUMS) * x[1] <= loops.MAX_LOCAL_BYTES
        and long_vectors(target)
    )


def long_vectors(target: Target) -> bool:
    """Whether vectors are long enough for these kernels to win without a trial."""
    return target.vector_bytes >= 64


def preferred(channels: int) -> str:
    """The way to take without a measurement."""
    return "depthwise" if channels >= 16 else "direct"


def leads(x: Sequence[int], target: Target) -> bool:
    """Whether these kernels certainly win: images that exceed the caches, where a library reaches a third of the bandwidth, and
    long vectors."""
    return 4 * prod(x) >= target.l3_bytes and x[1] >= 16 and long_vectors(target)


def streams(result: Layout, target: Target) -> bool:
    """Whether a result is stored with non-temporal stores: little of it would survive in cache."""
    return 4 * prod(result.shape) >= target.l3_bytes // 4


def add_kernel(
    lowering: Lowering,
    node: Node,
    label: str,
    kernel: Any,
    reads: Sequence[Layout],
    writes: Sequence[Layout],
    params: list[int],
) -> None:
    """A step that runs a kernel on buffers `reads` and then `writes`."""
    read, written = [x.storage for x in reads], [x.storage for x in writes]
    lowering.steps.append(KernelCall(label, [node], read, written, kernel, [*read, *written], params))


def ordered_weights(lowering: Lowering, node: Node, shape: d.Shape, weight: Layout) -> Layout:
    """A step that packs (channels, 1, rows, columns) into the kernels' layout."""
    sc, _, sh, sw = weight.strides
    taps = (shape.rows.taps, shape.columns.taps, shape.channels)
    w: Layout = lowering.copy(
        Layout(weight.storage, weight.dtype, taps, (sh, sw, sc), weight.offset), node, label=REORDER_WEIGHTS
    )
    return w


def convolve(
    lowering: Lowering, node: Node, shape: d.Shape, x: Layout, weight: Layout, y: Layout, transposed: bool = False,
    epilogue: Epilogue = IDENTITY, operands: Sequence[Layout] = (), label: str = "depthwise convolution",
) -> None:  # fmt: skip
    """Steps for y = x convolved with weight, then `epilogue` with `operands`; see `d.convolution`.

    Args:
        x, y: channels-last and contiguous; the gradients of result and image if `transposed`.
        weight: (channels, 1, rows, columns) with any strides.
    """
    w = ordered_weights(lowering, node, shape, weight)
    kernel = d.convolution(shape, transposed, epilogue, streams(y, lowering.target))
    params = [*d.Grid(shape, transposed).split(x.shape[0]), x.offset, w.offset, y.offset, *[z.offset for z in operands]]
    add_kernel(lowering, node, label, kernel, [x, w, *operands], [y], params)


def weight_gradient(lowering: Lowering, node: Node, shape: d.Shape, x: Layout, g: Layout, dw: Layout) -> None:
    """Steps for the gradient of the weight, (channels, 1, rows, columns) with any strides, from channels-last x and g."""
    strips, tasks = d.Grid(shape, False).split(x.shape[0])
    taps = (shape.rows.taps, shape.columns.taps)
    parts = lowering.temporary((tasks, *taps, shape.channels), FLOAT)
    label = "depthwise convolution grad weight"
    add_kernel(lowering, node, label, d.weight_gradient(shape), [x, g], [parts], [strips, tasks, x.offset, g.offset])
    sc, _, sh, sw = dw.strides
    params = [tasks, dw.offset, sc, sh, sw]
    add_kernel(lowering, node, f"{label} sum", d.add_parts(*taps, shape.channels), [parts], [dw], params)
