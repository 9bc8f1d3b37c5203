"""Convolution and transposed convolution, forward and both gradients, 1-d to 3-d."""

from __future__ import annotations

from collections.abc import Sequence

from ....ops.nn.window import Window
from .. import library
from ..capi import Alg, Arg, Prop, Unsupported, window_dims
from ..descriptors import MemoryDesc
from .base import PostOp, Primitive, PrimitiveDesc

# The jitted 3-d weight gradient of oneDNN 3.2 reads behind the end of its input for some windows with more padding
# than this in front (found with guard pages around every argument); the gemm-based one does not.
_SAFE_PADDING_3D = 2


def native_window(window: Window) -> tuple[object, object, object, object]:
    """Strides, dilations, padding before and after as oneDNN reads them. It counts dilations from 0."""
    dilates = tuple([d - 1 for d in window.dilation])
    after = tuple([high for _, high in window.padding])
    strides, before = window_dims(window.stride), window_dims(window.before)
    return strides, window_dims(dilates), before, window_dims(after)


def _what(x: MemoryDesc, w: MemoryDesc, y: MemoryDesc, window: Window) -> str:
    return f"x {x}, w {w}, y {y}, {window}"


def _names(transposed: bool) -> tuple[str, Alg]:
    if transposed:
        return "deconvolution", Alg.DECONVOLUTION_DIRECT
    return "convolution", Alg.CONVOLUTION_DIRECT


def _forward_desc(
    x: MemoryDesc, w: MemoryDesc, bias: MemoryDesc | None, y: MemoryDesc, window: Window, transposed: bool,
    prop: Prop = Prop.FORWARD_TRAINING, post_ops: Sequence[PostOp] = (),
) -> PrimitiveDesc:  # fmt: skip
    name, alg = _names(transposed)
    return PrimitiveDesc(f"{name}_forward_primitive_desc_create", library.require().engine, prop, alg, x, w, bias, y,
                         *native_window(window), what=lambda: _what(x, w, y, window), post_ops=post_ops)  # fmt: skip


def convolution_forward(
    x: MemoryDesc, w: MemoryDesc, bias: MemoryDesc | None, y: MemoryDesc, window: Window,
    post_ops: Sequence[PostOp] = (), transposed: bool = False, training: bool = True, isa: str = "",
) -> Primitive:  # fmt: skip
    """`DST = conv(SRC, WEIGHTS) + BIAS`, then the post-ops.

    Args:
        x: (N, C, spatial...), argument SRC.
        w: (O, C, kernel...), or (G, O/G, C/G, kernel...) for G groups, argument WEIGHTS. For a transposed
            convolution O is the number of channels of `y` as well. Best given as `MemoryDesc.any`.
        bias: (O,) or `None`, argument BIAS.
        y: (N, O, spatial...), argument DST.
        isa: take oneDNN's first choice whose name ends so ("avx2": vectors of half the length, which suit few channels),
            or its first choice of all if there is none.
    """
    prop = Prop.FORWARD_TRAINING if training else Prop.FORWARD_INFERENCE
    desc = _forward_desc(x, w, bias, y, window, transposed, prop, post_ops)
    try:
        while not desc.implementation.endswith(isa):
            desc.next_implementation()
    except Unsupported:
        desc = _forward_desc(x, w, bias, y, window, transposed, prop, post_ops)
    return Primitive(_names(transposed)[0], desc, (Arg.SRC, Arg.WEIGHTS, Arg.BIAS), (Arg.DST,), post_ops)


def convolution_backward_data(
    x: MemoryDesc, w: MemoryDesc, y: MemoryDesc, window: Window, transposed: bool = False
) -> Primitive:
    """Gradient of the convolution in its input: (DIFF_DST like `y`, WEIGHTS) -> DIFF_SRC like `x`."""
    name, alg = _names(transposed)
    hint = _forward_desc(x, w, None, y, window, transposed)
    desc = PrimitiveDesc(f"{name}_backward_data_primitive_desc_create", library.require().engine, alg, x, w, y,
                         *native_window(window), hint, what=lambda: _what(x, w, y, window))  # fmt: skip
    return Primitive(f"{name}_backward_data", desc, (Arg.DIFF_DST, Arg.WEIGHTS), (Arg.DIFF_SRC,))


def convolution_backward_weights(
    x: MemoryDesc, w: MemoryDesc, bias: MemoryDesc | None, y: MemoryDesc, window: Window, transposed: bool = False
) -> Primitive:
    """Gradient in weights and bias: (SRC, DIFF_DST) -> DIFF_WEIGHTS, and DIFF_BIAS if `bias` is given."""
    name, alg = _names(transposed)
    hint = _forward_desc(x, w, bias, y, window, transposed)
    desc = PrimitiveDesc(f"{name}_backward_weights_primitive_desc_create", library.require().engine, alg, x, w, bias, y,
                         *native_window(window), hint, what=lambda: _what(x, w, y, window))  # fmt: skip
    while window.axes == 3 and max(window.before) > _SAFE_PADDING_3D and "gemm" not in desc.implementation:
        desc.next_implementation()
    return Primitive(f"{name}_backward_weights", desc, (Arg.SRC, Arg.DIFF_DST), (Arg.DIFF_WEIGHTS, Arg.DIFF_BIAS))
