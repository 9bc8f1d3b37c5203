"""Lowers convolution and its gradients on channels-last activations: to a library, or to native kernels where those are faster.

`weft.compiler.tuning` chooses between the ways to compute a convolution.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....graph.graph import Node, Value
from ....ops.nn.window import Window
from ...loop_ir.kernels import deep_matmul
from ...loop_ir.kernels.epilogue import convolutions_support
from ...program.layout import Layout, row_major
from ...tuning import Sample, lower_tuned
from ..library import library
from ..registry import lowers
from . import depthwise, pointwise_conv, winograd
from .channels_last import applies, channels_last_layout, channels_last_result
from .epilogue import fused_epilogue, image_epilogue
from .labels import FIXED, label_with
from .product import leads, multiply_deep, suits_deep

if TYPE_CHECKING:
    from ..lower import Lowering


def convolution_label(name: str, node: Node) -> str:
    """The label of a `convolution` or `convolution_epilogue`; a bias is part of the former."""
    epilogue = fused_epilogue(node)
    return name if epilogue is None else label_with(name, epilogue)


# Winograd ------------------------------------------------------------------------------------------------------------

TILES = {"winograd_f2": 2, "winograd_f4": 4}
"""Rows and columns of a tile, by the name of the way."""


def _winograd(m: int, lowering: Lowering, node: Node) -> bool:
    x_value, w_value = node.inputs[:2]
    x = channels_last_layout(lowering, lowering.layout_of(x_value), node)
    epilogue, operands = image_epilogue(lowering, node)
    w = lowering.layout_of(w_value)
    with channels_last_result(lowering, node) as y:
        winograd.convolve(lowering, node, m, x, w, y, node.attrs[-2].before, epilogue, operands)
    return True


def _winograd_input(m: int, lowering: Lowering, node: Node) -> bool:
    g_value, w_value = node.inputs[:2]
    top, left = node.attrs[1].before
    g = channels_last_layout(lowering, lowering.layout_of(g_value), node)
    with channels_last_result(lowering, node) as x:
        w = lowering.layout_of(w_value)
        winograd.convolve(lowering, node, m, g, w, x, (2 - top, 2 - left), backward=True)
    return True


def _winograd_weight(m: int, lowering: Lowering, node: Node) -> bool:
    x_value, g_value = node.inputs
    x = channels_last_layout(lowering, lowering.layout_of(x_value), node)
    g = channels_last_layout(lowering, lowering.layout_of(g_value), node)
    target = lowering.place(node, 0, row_major(tuple(node.outputs[0].shape)), node, None)
    winograd.weight_gradient(lowering, node, m, x, g, target, node.attrs[0].before)
    return True


# Depthwise -----------------------------------------------------------------------------------------------------------


def _depthwise(lowering: Lowering, node: Node) -> bool:
    x_value, w_value = node.inputs[:2]
    shape = depthwise.shape_of(x_value.shape, node.outputs[0].shape, node.attrs[-2])
    x = channels_last_layout(lowering, lowering.layout_of(x_value), node)
    epilogue, operands = image_epilogue(lowering, node)
    w = lowering.layout_of(w_value)
    with channels_last_result(lowering, node) as y:
        label = convolution_label("depthwise convolution", node)
        depthwise.convolve(lowering, node, shape, x, w, y, False, epilogue, operands, label)
    return True


def _depthwise_input(lowering: Lowering, node: Node) -> bool:
    g_value, w_value = node.inputs[:2]
    shape = depthwise.shape_of(node.outputs[0].shape, g_value.shape, node.attrs[1])
    g = channels_last_layout(lowering, lowering.layout_of(g_value), node)
    with channels_last_result(lowering, node) as x:
        label = "depthwise convolution grad input"
        depthwise.convolve(lowering, node, shape, g, lowering.layout_of(w_value), x, True, label=label)
    return True


def _depthwise_weight(lowering: Lowering, node: Node) -> bool:
    x_value, g_value = node.inputs
    w_shape = tuple(node.outputs[0].shape)
    shape = depthwise.shape_of(x_value.shape, g_value.shape, node.attrs[0])
    x = channels_last_layout(lowering, lowering.layout_of(x_value), node)
    g = channels_last_layout(lowering, lowering.layout_of(g_value), node)
    target = lowering.place(node, 0, row_major(w_shape), node, None)
    depthwise.weight_gradient(lowering, node, shape, x, g, target)
    return True


# 1 x 1 ---------------------------------------------------------------------------------------------------------------


def _matmul_weight(lowering: Lowering, node: Node) -> bool:
    """The gradient of a 1 x 1 weight as the product of two matrices whose rows are pixels."""
    x_value, g_value = node.inputs
    x = channels_last_layout(lowering, lowering.layout_of(x_value), node)
    g = channels_last_layout(lowering, lowering.layout_of(g_value), node)
    target = lowering.place(node, 0, row_major(tuple(node.outputs[0].shape)), node, None)
    c, k = x.shape[1], g.shape[1]
    pixels = x.shape[0] * x.shape[2] * x.shape[3]
    grads = Layout(g.storage, g.dtype, (k, pixels), (1, k), g.offset)
    images = Layout(x.storage, x.dtype, (pixels, c), (c, 1), x.offset)
    if suits_deep(grads, images, lowering.target) and leads(lowering.target):
        flat = Layout(target.storage, target.dtype, (k, c), target.strides[:2], target.offset)
        multiply_deep(lowering, node, grads, images, flat, "convolution grad weight")
        return True
    # The longer side should be the columns of the matmul: compute its transpose if that is the other one.
    transposed = k > c
    left, right, rows, columns = (x, g, c, k) if transposed else (g, x, k, c)
    straight = not transposed and target.strides[:2] == (c, 1)
    made = target if straight else lowering.temporary((rows, columns), x.dtype)
    multiply = library().product(
        ((rows, pixels), (1, rows)), ((pixels, columns), (columns, 1)), ((rows, columns), (columns, 1))
    )
    multiply(lowering, node, left, right, made, "convolution grad weight")
    if not straight:
        strides = (1, k, 1, 1) if transposed else (c, 1, 1, 1)
        lowering.copy(Layout(made.storage, made.dtype, (k, c, 1, 1), strides, made.offset), node, target)
    return True


def _weight_matrix(lowering: Lowering, node: Node, backward: bool = False) -> Layout:
    """The weight of a 1 x 1 convolution as (input channels, output channels), or the other way round if `backward`."""
    w: Layout = lowering.layout_of(node.inputs[1])
    axes = (0, 1) if backward else (1, 0)
    return Layout(w.storage, w.dtype, tuple([w.shape[a] for a in axes]), tuple([w.strides[a] for a in axes]), w.offset)


def _pointwise(lowering: Lowering, node: Node) -> bool:
    x = channels_last_layout(lowering, lowering.layout_of(node.inputs[0]), node)
    epilogue, operands = image_epilogue(lowering, node)
    matrix, label = _weight_matrix(lowering, node), convolution_label("convolution", node)
    with channels_last_result(lowering, node) as y:
        pointwise_conv.multiply(lowering, node, x, matrix, y, epilogue, operands, label)
    return True


def _pointwise_input(lowering: Lowering, node: Node) -> bool:
    g = channels_last_layout(lowering, lowering.layout_of(node.inputs[0]), node)
    with channels_last_result(lowering, node) as x:
        pointwise_conv.multiply(
            lowering, node, g, _weight_matrix(lowering, node, True), x, label="convolution grad input"
        )
    return True


# The choice ----------------------------------------------------------------------------------------------------------

MIN_TRIAL_MULTIPLY_ADDS = 20e6
"""Minimum multiply-adds worth a trial."""
FEW_CHANNELS = 32
"""Channels up to which half-length vectors may be faster in a 1 x 1 convolution: fewer idle lanes."""
SAMPLE_MULTIPLY_ADDS, DEPTHWISE_SAMPLE_MULTIPLY_ADDS = 0.3e9, 0.05e9
"""Multiply-adds of a sample: some milliseconds. Depthwise samples exceed every cache."""


def _lower_image(
    lowering: Lowering, node: Node, images: Images, direct: Any, tiled: Any, by_channel: Any, pointwise: Any
) -> bool:
    """Lower a convolution or one of its gradients in the fastest way: a library (`direct`), Winograd (`tiled`, by tile size), or
    the native kernels for depthwise (`by_channel`) and 1 x 1 convolutions (`pointwise`)."""
    ways = {"direct": direct}
    min_work = MIN_TRIAL_MULTIPLY_ADDS
    certain = False  # the preferred way is known to be the fastest: a trial would only cost compile time
    computes_weight, computes_input = images.results(node)
    frozen = not computes_weight and node.inputs[1] in lowering.constant_values
    window, groups = node.attrs[-2:]
    kernel = window.kernel
    (_, c, _, _), (n, k, height, width) = (images.x.shape, images.y.shape) if len(kernel) == 2 else ((0,) * 4,) * 2
    if winograd.suits(window, groups):
        ways |= {name: partial(tiled, m) for name, m in TILES.items()}
        preferred = winograd.preferred(c, k, n, height, width, lowering.target, frozen)
        tried = ["direct", "winograd_f4"]  # the smaller tile is more accurate, but never the fastest
    elif depthwise.suits(images.x.shape, images.y.shape, window, groups):
        ways["depthwise"] = by_channel
        preferred, tried, min_work = depthwise.preferred(c), ["direct", "depthwise"], MIN_TRIAL_MULTIPLY_ADDS / 10
        certain = depthwise.leads(images.x.shape, lowering.target)
    elif _is_pointwise(window, groups) and computes_weight:
        ways["matmul"] = pointwise
        certain = (
            min(c, k) >= FEW_CHANNELS
            and deep_matmul.suits(k, c, n * height * width, lowering.target)
            and leads(lowering.target)
        )
        preferred = "matmul" if certain or min(c, k) >= 128 else "direct"
        tried = ["direct", "matmul"]
    elif _is_pointwise(window, groups) and pointwise_conv.suits(
        *((k, c) if computes_input else (c, k)), lowering.target
    ):
        ways["pointwise"] = pointwise
        certain = not frozen and pointwise_conv.leads(images.y.shape, lowering.target)
        preferred, tried = "pointwise" if certain else "direct", ["direct", "pointwise"]
        min_work = MIN_TRIAL_MULTIPLY_ADDS / 10
        if frozen and min(c, k) <= FEW_CHANNELS:
            ways["narrow"] = partial(direct, isa="avx2")
            tried.append("narrow")
    elif frozen and kernel == (1, 1) and groups == 1 and min(c, k) <= FEW_CHANNELS:
        ways["narrow"] = partial(direct, isa="avx2")
        preferred, tried, min_work = "direct", ["direct", "narrow"], MIN_TRIAL_MULTIPLY_ADDS / 10
    else:
        return direct(lowering, node)
    title = f"{images.title} {kernel[0]}x{kernel[1]} {c}->{k} @{height}x{width} batch {n}"
    sample = None if certain else partial(_sample, node, images, frozen, min_work)
    return lower_tuned(lowering, node, ways, preferred, title, sample, tried, "frozen" if frozen else "")


def _is_pointwise(window: Window, groups: int) -> bool:
    """Whether a convolution is pointwise: every pixel times one matrix."""
    return (window.kernel, window.stride, groups) == ((1, 1), (1, 1), 1) and not window.padded


class Images(NamedTuple):
    """The input and output images of a convolution, whether the node reads or writes them."""

    title: str
    x: Any
    y: Any
    inputs: tuple[int, ...]  # which inputs of the node are images

    def results(self, node: Node) -> tuple[bool, bool]:
        """Whether the node computes the gradient of the weight, and whether that of the input."""
        result = node.outputs[0]
        return result is not self.x and result is not self.y, result is self.x


def _sample(
    node: Node, images: Images, frozen: bool = False, min_work: float = MIN_TRIAL_MULTIPLY_ADDS
) -> Sample | None:
    """The convolution on fewer images, with fewer rows if one image is still too large."""
    (n, c, _, _), (_, k, height, width) = images.x.shape, images.y.shape
    window, groups = node.attrs[-2:]
    work = window.positions * c * k // groups * n * height * width
    if work < min_work or min(c, k) < 16:
        return None
    size = SAMPLE_MULTIPLY_ADDS if groups == 1 else DEPTHWISE_SAMPLE_MULTIPLY_ADDS
    count, cut = min(n, max(1, round(n * size / work))), 0
    if count == 1 and height > 32 and groups == 1:
        cut = max(0, height - max(16, 4 * round(height * SAMPLE_MULTIPLY_ADDS * n / work / 4)))

    def smaller(shape: Any) -> tuple[int, ...]:
        return count, shape[1], shape[2] - cut, shape[3]

    inputs = [
        (smaller(v.shape) if i in images.inputs else tuple(v.shape)) if isinstance(v, Value) else None
        for i, v in enumerate(node.inputs)
    ]
    shape = tuple(node.outputs[0].shape)
    attrs = node.attrs
    computes_weight, computes_input = images.results(node)
    if not computes_weight:
        shape = smaller(shape)
    if computes_input and attrs[0] is not None:
        attrs = (shape[2:], *attrs[1:])
    scale = n * height / (count * (height - cut))
    return Sample(tuple(inputs), (shape,), attrs, scale, FIXED.__contains__, frozen)


@lowers("convolution")
def lower_convolution(lowering: Lowering, node: Node) -> bool:
    if not applies(*node.inputs):
        return False
    images = Images("conv", node.inputs[0], node.outputs[0], (0,))
    return _lower_image(lowering, node, images, library().convolution, _winograd, _depthwise, _pointwise)


@lowers("convolution_epilogue")
def lower_convolution_epilogue(lowering: Lowering, node: Node) -> bool:
    if not library().available() or any(v.dtype != np.float32 for v in node.inputs):
        return False
    if not convolutions_support(node.attrs[0]):
        return library().convolution(lowering, node)
    operands = node.attrs[0].operands
    full = [1 + operand.index for operand in operands if not operand.per_channel]
    images = Images(convolution_label("conv", node), node.inputs[0], node.outputs[0], (0, *full))
    return _lower_image(lowering, node, images, library().convolution, _winograd, _depthwise, _pointwise)


@lowers("convolution_backward_input")
def lower_backward_input(lowering: Lowering, node: Node) -> bool:
    if not applies(*node.inputs[:2]):
        return False
    images = Images("conv grad input", node.outputs[0], node.inputs[0], (0, 2))
    direct = library().convolution_backward_input
    return _lower_image(lowering, node, images, direct, _winograd_input, _depthwise_input, _pointwise_input)


@lowers("convolution_backward_weight")
def lower_backward_weight(lowering: Lowering, node: Node) -> bool:
    if not applies(*node.inputs):
        return False
    images = Images("conv grad weight", node.inputs[0], node.inputs[1], (0, 1))
    direct = library().convolution_backward_weight
    return _lower_image(lowering, node, images, direct, _winograd_weight, _depthwise_weight, _matmul_weight)
