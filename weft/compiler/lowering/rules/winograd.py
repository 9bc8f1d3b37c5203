"""Lowers 3 x 3 convolutions to Winograd: transforms from `weft.compiler.loop_ir.kernels.winograd`, matmuls from a library.

The tiles of a batch are processed in blocks of whole rows of tiles, so that a block's transformed values are still in
cache when they are multiplied and transformed back. The number of tiles in a block follows from the shapes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....graph.graph import Node
from ....ops.internal.epilogue import IDENTITY, Epilogue
from ....ops.nn.window import Window
from ...loop_ir.kernels import winograd as w
from ...program.layout import Layout
from ...program.steps import KernelCall
from ...target import Target
from ..library import library

if TYPE_CHECKING:
    from ..lower import Lowering

MIN_TILES = 400
"""Tiles of a block: with fewer, the library packs the weights for its kernels too often."""
FLOAT = np.dtype(np.float32)


def suits(window: Window, groups: int) -> bool:
    """Whether a convolution is supported by the Winograd transforms."""
    return window.kernel == (3, 3) and window.stride == (1, 1) and window.dilation == (1, 1) and groups == 1


def preferred(
    channels: int, out: int, images: int, height: int, width: int, target: Target, frozen: bool = False
) -> str:
    """The way to take without a measurement: an estimate in seconds, with the speeds of AVX-512 for products.

    `frozen`: the weights are transformed once, not in every call."""
    tiles = images * -(-height // 4) * -(-width // 4)
    both = channels * out
    speed = target.lanes * target.fma_ports / 32  # relative to AVX-512; transforms are bound by memory
    direct = 18 * both * images * height * width / (125e9 * speed)
    products = 72 * both * tiles / (115e9 * speed) * (1 + 25 / min(channels, out))
    transforms = 144 * (channels + out) * tiles / 8e9 + (0 if frozen else 144 * both / 5e9)
    return "winograd_f4" if products + transforms < 0.9 * direct else "direct"


def block_bytes(target: Target) -> int:
    """Transformed values of a block, together: they stay in the last-level cache until they are used."""
    return target.l3_bytes // 2


class Tiling:
    """The tiles of a batch of results, in blocks of equal numbers of tile rows."""

    def __init__(self, m: int, shape: tuple[int, ...], channels: int, target: Target) -> None:
        n, _, height, width = shape
        self.m = m
        self.positions = (m + 2) ** 2
        self.down, self.across = -(-height // m), -(-width // m)
        rows = n * self.down
        most = max(block_bytes(target) // (4 * self.positions * channels), MIN_TILES) // self.across
        per_block = max(r for r in range(1, rows + 1) if rows % r == 0 and r <= max(most, 1))
        self.blocks = rows // per_block
        self.tiles = per_block * self.across  # of one block
        self.padding = target.line_elements  # between matrices: equal positions do not share a cache set

    def stride(self, channels: int) -> int:
        """The stride between the matrices of two positions, in elements."""
        return self.tiles * channels + self.padding

    def buffer(self, lowering: Lowering, channels: int) -> Layout:
        """A buffer for the transformed values of a block."""
        return lowering.temporary((self.positions * self.stride(channels),), FLOAT)

    def grid(self, block: int, pad: tuple[int, int] = (0, 0)) -> list[int]:
        return [block * self.tiles, self.across, self.down, *pad]


def _image(x: Layout) -> list[int]:
    """The kernel parameters of a channels-last image."""
    sn, _, sh, sw = x.strides
    return [x.offset, sn, sh, sw, x.shape[2], x.shape[3]]


def _add(
    lowering: Lowering, node: Node, label: str, kernel: Any, reads: list[Layout], write: Layout, params: list[int]
) -> None:
    """A step that runs a kernel on buffers `reads` and then `write`."""
    storages = [x.storage for x in (*reads, write)]
    lowering.steps.append(KernelCall(label, [node], storages[:-1], storages[-1:], kernel, storages, params))


def convolve(
    lowering: Lowering, node: Node, m: int, x: Layout, weight: Layout, y: Layout, padding: tuple[int, int],
    epilogue: Epilogue = IDENTITY, operands: Sequence[Layout] = (), backward: bool = False,
) -> None:  # fmt: skip
    """Steps for y = x convolved with weight, then `epilogue` (see `output_transform`) with `operands`.

    `backward`: with the filters rotated and their channels exchanged.

    Args:
        x, y: channels-last, (N, C, H, W) and (N, K, H', W').
        weight: (K, C, 3, 3) with any strides, or (C, K, 3, 3) when `backward`.
        padding: rows above and columns to the left of x; those below and right follow from the size of y.
    """
    channels, out = x.shape[1], y.shape[1]
    tiling = Tiling(m, y.shape, channels + out, lowering.target)
    p, t = tiling.positions, tiling.tiles
    apart = channels * out + tiling.padding
    u = lowering.temporary((p * apart,), FLOAT)
    label = f"winograd {m}x{m}"
    s0, s1, sh, sw = weight.strides
    # filters as (in, out, y, x); backward, the axes already have this order and the filters are rotated
    if backward:
        taps = [weight.offset + 2 * sh + 2 * sw, s0, s1, -sh, -sw]
    else:
        taps = [weight.offset, s1, s0, sh, sw]
    params = [channels, out, apart, *taps]
    _add(lowering, node, f"{label} weight", w.weight_transform(m), [weight], u, params)
    product = library().product(
        ((p, t, channels), (tiling.stride(channels), channels, 1)),
        ((p, channels, out), (apart, out, 1)),
        ((p, t, out), (tiling.stride(out), out, 1)),
    )
    for block in range(tiling.blocks):
        v, z = tiling.buffer(lowering, channels), tiling.buffer(lowering, out)
        params = [t, channels, tiling.stride(channels), *tiling.grid(block, padding), *_image(x)]
        _add(lowering, node, f"{label} input", w.input_transform(m), [x], v, params)
        product(lowering, node, v, u, z, f"{label} product")
        params = [t, out, tiling.stride(out), *tiling.grid(block), *_image(y)]
        params += [x.offset for x in operands]
        _add(lowering, node, f"{label} output", w.output_transform(m, epilogue), [z, *operands], y, params)


def weight_gradient(
    lowering: Lowering, node: Node, m: int, x: Layout, g: Layout, dw: Layout, padding: tuple[int, int]
) -> None:
    """Steps for the gradient of the weight, (K, C, 3, 3) with any strides, from channels-last x and g."""
    channels, out = x.shape[1], g.shape[1]
    tiling = Tiling(m, g.shape, channels + out, lowering.target)
    p, t = tiling.positions, tiling.tiles
    apart = channels * out + tiling.padding
    u = lowering.temporary((p * apart,), FLOAT)
    label = f"winograd {m}x{m}"
    for block in range(tiling.blocks):
        v, z = tiling.buffer(lowering, channels), tiling.buffer(lowering, out)
        if block < 2:
            product = library().product(
                ((p, out, t), (tiling.stride(out), 1, out)),
                ((p, t, channels), (tiling.stride(channels), channels, 1)),
                ((p, out, channels), (apart, channels, 1)),
                accumulate=block > 0,
            )
        params = [t, channels, tiling.stride(channels), *tiling.grid(block, padding), *_image(x)]
        _add(lowering, node, f"{label} input", w.input_transform(m), [x], v, params)
        params = [t, out, tiling.stride(out), *tiling.grid(block), *_image(g)]
        _add(lowering, node, f"{label} gradient", w.gradient_transform(m), [g], z, params)
        product(lowering, node, z, v, u, f"{label} product")
    sk, sc, sh, sw = dw.strides
    params = [out, channels, apart, dw.offset, sk, sc, sh, sw]
    _add(lowering, node, f"{label} weight gradient", w.weight_gradient_transform(m), [u], dw, params)
