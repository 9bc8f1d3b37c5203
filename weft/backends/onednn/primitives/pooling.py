"""Max and average pooling, forward and backward, 1-d to 3-d."""

from __future__ import annotations

from ....ops.nn.window import Window
from .. import library
from ..capi import Alg, Arg, Prop, window_dims
from ..descriptors import MemoryDesc
from .base import Primitive, PrimitiveDesc
from .convolution import native_window


def _forward_desc(alg: Alg, x: MemoryDesc, y: MemoryDesc, window: Window, prop: Prop) -> PrimitiveDesc:
    stride, dilation, before, after = native_window(window)
    return PrimitiveDesc(
        "pooling_forward_primitive_desc_create", library.require().engine, prop, alg, x, y,
        stride, window_dims(window.kernel), dilation, before, after, what=f"{alg.name}, x {x}, y {y}, {window}",
        exact=alg == Alg.POOLING_MAX,
    )  # fmt: skip


def pooling_forward(alg: Alg, x: MemoryDesc, y: MemoryDesc, window: Window, training: bool = True) -> Primitive:
    """SRC like `x` -> DST like `y`; max pooling for training also writes WORKSPACE, which its backward reads."""
    prop = Prop.FORWARD_TRAINING if training else Prop.FORWARD_INFERENCE
    desc = _forward_desc(alg, x, y, window, prop)
    return Primitive("pooling", desc, (Arg.SRC,), (Arg.DST, Arg.WORKSPACE))


def pooling_backward(alg: Alg, x: MemoryDesc, y: MemoryDesc, window: Window) -> Primitive:
    """DIFF_DST like `y` (and, for max, the forward's WORKSPACE) -> DIFF_SRC like `x`."""
    hint = _forward_desc(alg, x, y, window, Prop.FORWARD_TRAINING)
    stride, dilation, before, after = native_window(window)
    desc = PrimitiveDesc(
        "pooling_backward_primitive_desc_create", library.require().engine, alg, x, y,
        stride, window_dims(window.kernel), dilation, before, after, hint, what=f"{alg.name}, x {x}, y {y}, {window}",
    )  # fmt: skip
    return Primitive("pooling_backward", desc, (Arg.DIFF_DST, Arg.WORKSPACE), (Arg.DIFF_SRC,))
