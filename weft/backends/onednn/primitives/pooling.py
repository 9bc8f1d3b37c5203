"""Max and average pooling, forward and backward, 1-d to 3-d."""

from __future__ import annotations

from .. import library
from ..capi import Alg, Arg, Prop, window_dims
from ..descriptors import MemoryDesc
from .base import Primitive, PrimitiveDesc
from .convolution import Window


def _forward_desc(
    alg: Alg, x: MemoryDesc, y: MemoryDesc, kernel: tuple[int, ...], window: Window, prop: Prop
) -> PrimitiveDesc:
    stride, dilation, before, after = window.native()
    return PrimitiveDesc(
        "pooling_forward_primitive_desc_create", library.require().engine, prop, alg, x, y,
        stride, window_dims(kernel), dilation, before, after, what=f"{alg.name}, x {x}, y {y}, kernel {kernel}, {window}",
        exact=alg == Alg.POOLING_MAX,
    )  # fmt: skip


def pooling_forward(
    alg: Alg, x: MemoryDesc, y: MemoryDesc, kernel: tuple[int, ...], window: Window, training: bool = True
) -> Primitive:
    """SRC like `x` -> DST like `y`; max pooling for training also writes WORKSPACE, which its backward reads."""
    prop = Prop.FORWARD_TRAINING if training else Prop.FORWARD_INFERENCE
    desc = _forward_desc(alg, x, y, kernel, window, prop)
    return Primitive("pooling", desc, (Arg.SRC,), (Arg.DST, Arg.WORKSPACE))


def pooling_backward(alg: Alg, x: MemoryDesc, y: MemoryDesc, kernel: tuple[int, ...], window: Window) -> Primitive:
    """DIFF_DST like `y` (and, for max, the forward's WORKSPACE) -> DIFF_SRC like `x`."""
    hint = _forward_desc(alg, x, y, kernel, window, Prop.FORWARD_TRAINING)
    stride, dilation, before, after = window.native()
    desc = PrimitiveDesc(
        "pooling_backward_primitive_desc_create", library.require().engine, alg, x, y,
        stride, window_dims(kernel), dilation, before, after, hint, what=f"{alg.name}, x {x}, y {y}, kernel {kernel}, {window}",
    )  # fmt: skip
    return Primitive("pooling_backward", desc, (Arg.DIFF_DST, Arg.WORKSPACE), (Arg.DIFF_SRC,))
