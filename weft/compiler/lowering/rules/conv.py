"""Lowers convolution and its gradients on channels-last activations, to oneDNN or to native kernels where those are faster.

Weights are plain arrays outside; oneDNN is fastest with its blocked layouts, so they are reordered on the way in and their
gradient on the way out (a few per cent of the convolution's time). `weft.compiler.tuning` chooses between the ways to
compute a convolution.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ....graph.graph import Node, Value
from ...layout import Layout, row_major
from ...loop_ir.kernels import deep_matmul
from ...tuning import Sample, lower_tuned
from ..primitives import add_primitive, desc, lowers
from . import depthwise, pointwise_conv, winograd
from .blocked_weights import INTO, OUT_OF, into_blocks, out_of_blocks
from .channels_last import applies, channels_last_layout, channels_last_result, primitive_or_none, window_of
from .matmul import library_product
from .product import leads, multiply_deep, suits_deep

if TYPE_CHECKING:
    from ..lower import Lowering


def _grouped(shape: tuple[int, ...], groups: int) -> tuple[int, ...]:
    return shape if groups == 1 else (groups, shape[0] // groups, *shape[1:])


def _grouped_layout(w: Layout, groups: int) -> Layout:
    if groups == 1:
        return w
    step = w.shape[0] // groups
    return Layout(w.storage, w.dtype, _grouped(w.shape, groups), (w.strides[0] * step, *w.strides), w.offset)


def _bias(lowering: Lowering, node: Node, value: Value | None) -> Layout | None:
    """The bias as a contiguous vector."""
    if value is None:
        return None
    layout: Layout = lowering.layout_of(value)
    return layout if layout.contiguous else lowering.copy(layout, node)


def _direct(lowering: Lowering, node: Node, isa: str = "") -> bool:
    """`convolution` by oneDNN."""
    return convolve(lowering, node, node.attrs, _bias(lowering, node, node.inputs[2]), isa=isa)


def convolve(
    lowering: Lowering, node: Node, attrs: Any, bias: Layout | None = None, post: Any = (),
    operands: dict[int, Layout] | None = None, label: str = "convolution", isa: str = "",
) -> bool:  # fmt: skip
    """The convolution of a node's first two inputs by oneDNN, with post-ops and their operands by argument number.

    `isa`: see `convolution_forward`."""
    from ....backends.onednn.capi import Arg
    from ....backends.onednn.descriptors import MemoryDesc
    from ....backends.onednn.shares import conv_forward

    x_value, w_value = node.inputs[:2]
    stride, padding, dilation, groups = attrs
    window = window_of(stride, padding, dilation)
    x_shape, y_shape = tuple(x_value.shape), tuple(node.outputs[0].shape)
    w = _grouped_layout(lowering.layout_of(w_value), groups)
    dtype = x_value.dtype
    primitive = primitive_or_none(lambda: conv_forward(
        x_shape, MemoryDesc.any(w.shape, dtype), None if bias is None else desc(bias), y_shape, dtype, window, post, isa,
    ))  # fmt: skip
    if primitive is None:
        return False
    x = channels_last_layout(lowering, lowering.layout_of(x_value), node)
    w = into_blocks(lowering, node, w, primitive.desc(Arg.WEIGHTS))
    with channels_last_result(lowering, node) as y:
        arguments = {**(operands or {}), int(Arg.SRC): x, int(Arg.WEIGHTS): w, int(Arg.DST): y}
        if bias is not None:
            arguments[int(Arg.BIAS)] = bias
        add_primitive(lowering, node, primitive, arguments, label)
    return True


def _direct_input(lowering: Lowering, node: Node) -> bool:
    """`convolution_backward_input` by oneDNN."""
    from ....backends.onednn.capi import Arg
    from ....backends.onednn.descriptors import MemoryDesc
    from ....backends.onednn.shares import conv_backward_data

    g_value, w_value = node.inputs[:2]
    _, stride, padding, dilation, groups = node.attrs
    x_shape, g_shape = tuple(node.outputs[0].shape), tuple(g_value.shape)
    dtype = g_value.dtype
    w = _grouped_layout(lowering.layout_of(w_value), groups)
    primitive = primitive_or_none(lambda: conv_backward_data(
        x_shape, MemoryDesc.any(w.shape, dtype), g_shape, dtype, window_of(stride, padding, dilation),
    ))  # fmt: skip
    if primitive is None:
        return False
    g = channels_last_layout(lowering, lowering.layout_of(g_value), node)
    w = into_blocks(lowering, node, w, primitive.desc(Arg.WEIGHTS))
    with channels_last_result(lowering, node) as x:
        add_primitive(
            lowering,
            node,
            primitive,
            {int(Arg.DIFF_DST): g, int(Arg.WEIGHTS): w, int(Arg.DIFF_SRC): x},
            "convolution grad input",
        )
    return True


PARTS = "convolution grad weight sum"
"""Label of the step that adds up partial gradients."""


def _direct_weight(lowering: Lowering, node: Node) -> bool:
    """`convolution_backward_weight` by oneDNN."""
    from ....backends.onednn.capi import Arg
    from ....backends.onednn.descriptors import MemoryDesc
    from ....backends.onednn.shares import conv_backward_weights

    x_value, g_value = node.inputs
    _, stride, padding, dilation, groups = node.attrs
    x_shape, g_shape, w_shape = tuple(x_value.shape), tuple(g_value.shape), tuple(node.outputs[0].shape)
    dtype = g_value.dtype
    primitive = primitive_or_none(lambda: conv_backward_weights(
        x_shape, MemoryDesc.any(_grouped(w_shape, groups), dtype), None, g_shape, dtype, window_of(stride, padding, dilation),
    ))  # fmt: skip
    if primitive is None:
        return False
    x = channels_last_layout(lowering, lowering.layout_of(x_value), node)
    g = channels_last_layout(lowering, lowering.layout_of(g_value), node)
    target = lowering.place(node, 0, row_major(w_shape), node, None)
    plain = _grouped_layout(target, groups)
    wanted = primitive.desc(Arg.DIFF_WEIGHTS)
    direct = wanted == desc(plain)
    size = wanted.nbytes // dtype.itemsize
    w = plain if direct else lowering.temporary((size,), dtype)
    parts = w if primitive.partial == 1 else lowering.temporary((primitive.partial, size), dtype)
    arguments = {int(Arg.SRC): x, int(Arg.DIFF_DST): g, int(Arg.DIFF_WEIGHTS): parts}
    add_primitive(lowering, node, primitive, arguments, "convolution grad weight")
    if parts is not w:
        lowering.add_up(parts, w, node, PARTS)
    if not direct:
        out_of_blocks(lowering, node, w, wanted, plain)
    return True


# Winograd ------------------------------------------------------------------------------------------------------------

TILES = {"winograd_f2": 2, "winograd_f4": 4}
"""Rows and columns of a tile, by the name of the way."""


def _before(padding: Any) -> tuple[int, int]:
    return padding[0][0], padding[1][0]


def _winograd(m: int, lowering: Lowering, node: Node) -> bool:
    x_value, w_value, b_value = node.inputs
    x = channels_last_layout(lowering, lowering.layout_of(x_value), node)
    bias = _bias(lowering, node, b_value)
    with channels_last_result(lowering, node) as y:
        epilogue, operands = ((), ()) if bias is None else (("bias",), (bias,))
        winograd.convolve(
            lowering, node, m, x, lowering.layout_of(w_value), y, _before(node.attrs[1]), epilogue, operands
        )
    return True


def _winograd_input(m: int, lowering: Lowering, node: Node) -> bool:
    g_value, w_value = node.inputs[:2]
    top, left = _before(node.attrs[2])
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
    winograd.weight_gradient(lowering, node, m, x, g, target, _before(node.attrs[2]))
    return True


# Depthwise -----------------------------------------------------------------------------------------------------------


def _depthwise(lowering: Lowering, node: Node) -> bool:
    x_value, w_value, b_value = node.inputs
    shape = depthwise.shape_of(x_value.shape, node.outputs[0].shape, w_value.shape[2:], node.attrs)
    x = channels_last_layout(lowering, lowering.layout_of(x_value), node)
    bias = _bias(lowering, node, b_value)
    with channels_last_result(lowering, node) as y:
        epilogue, operands = ((), ()) if bias is None else (("bias",), (bias,))
        depthwise.convolve(lowering, node, shape, x, lowering.layout_of(w_value), y, False, epilogue, operands)
    return True


def _depthwise_input(lowering: Lowering, node: Node) -> bool:
    g_value, w_value = node.inputs[:2]
    shape = depthwise.shape_of(node.outputs[0].shape, g_value.shape, w_value.shape[2:], node.attrs[1:])
    g = channels_last_layout(lowering, lowering.layout_of(g_value), node)
    with channels_last_result(lowering, node) as x:
        label = "depthwise convolution grad input"
        depthwise.convolve(lowering, node, shape, g, lowering.layout_of(w_value), x, True, label=label)
    return True


def _depthwise_weight(lowering: Lowering, node: Node) -> bool:
    x_value, g_value = node.inputs
    w_shape = tuple(node.outputs[0].shape)
    shape = depthwise.shape_of(x_value.shape, g_value.shape, w_shape[2:], node.attrs[1:])
    x = channels_last_layout(lowering, lowering.layout_of(x_value), node)
    g = channels_last_layout(lowering, lowering.layout_of(g_value), node)
    target = lowering.place(node, 0, row_major(w_shape), node, None)
    depthwise.weight_gradient(lowering, node, shape, x, g, target)
    return True


# 1 x 1 ---------------------------------------------------------------------------------------------------------------


def _matmul_weight(lowering: Lowering, node: Node) -> bool:
    """The gradient of a 1 x 1 weight as the product of two matrices whose rows are pixels."""
    from ....backends.onednn.capi import Arg
    from ....backends.onednn.descriptors import MemoryDesc
    from ....backends.onednn.shares import matmul

    x_value, g_value = node.inputs
    x = channels_last_layout(lowering, lowering.layout_of(x_value), node)
    g = channels_last_layout(lowering, lowering.layout_of(g_value), node)
    target = lowering.place(node, 0, row_major(tuple(node.outputs[0].shape)), node, None)
    c, k = x.shape[1], g.shape[1]
    pixels = x.shape[0] * x.shape[2] * x.shape[3]
    grads = Layout(g.storage, g.dtype, (k, pixels), (1, k), g.offset)
    images = Layout(x.storage, x.dtype, (pixels, c), (c, 1), x.offset)
    if suits_deep(grads, images) and leads(library_product):
        flat = Layout(target.storage, target.dtype, (k, c), target.strides[:2], target.offset)
        multiply_deep(lowering, node, grads, images, flat, "convolution grad weight")
        return True
    # The longer side should be the columns of the matmul: compute its transpose if that is the other one.
    turned = k > c
    left, right, rows, columns = (x, g, c, k) if turned else (g, x, k, c)
    straight = not turned and target.strides[:2] == (c, 1)
    made = target if straight else lowering.temporary((rows, columns), x.dtype)
    primitive = matmul(
        MemoryDesc.strided((rows, pixels), x.dtype, (1, rows)),
        MemoryDesc.strided((pixels, columns), x.dtype, (columns, 1)),
        MemoryDesc.strided((rows, columns), x.dtype, (columns, 1)),
    )
    arguments = {int(Arg.SRC): left, int(Arg.WEIGHTS): right, int(Arg.DST): made}
    add_primitive(lowering, node, primitive, arguments, "convolution grad weight")
    if not straight:
        strides = (1, k, 1, 1) if turned else (c, 1, 1, 1)
        lowering.copy(Layout(made.storage, made.dtype, (k, c, 1, 1), strides, made.offset), node, target)
    return True


def weight_matrix(lowering: Lowering, node: Node, backward: bool = False) -> Layout:
    """The weight of a 1 x 1 convolution as (input channels, output channels), or the other way round if `backward`."""
    w: Layout = lowering.layout_of(node.inputs[1])
    axes = (0, 1) if backward else (1, 0)
    return Layout(w.storage, w.dtype, tuple([w.shape[a] for a in axes]), tuple([w.strides[a] for a in axes]), w.offset)


def _pixels(lowering: Lowering, node: Node) -> bool:
    x = channels_last_layout(lowering, lowering.layout_of(node.inputs[0]), node)
    bias = _bias(lowering, node, node.inputs[2])
    with channels_last_result(lowering, node) as y:
        epilogue, operands = ((), ()) if bias is None else (("bias",), (bias,))
        pointwise_conv.multiply(lowering, node, x, weight_matrix(lowering, node), y, epilogue, operands)
    return True


def _pixels_input(lowering: Lowering, node: Node) -> bool:
    g = channels_last_layout(lowering, lowering.layout_of(node.inputs[0]), node)
    with channels_last_result(lowering, node) as x:
        pointwise_conv.multiply(
            lowering, node, g, weight_matrix(lowering, node, True), x, label="convolution grad input"
        )
    return True


# The choice ----------------------------------------------------------------------------------------------------------

MIN_TRIAL_MULTIPLY_ADDS = 20e6
"""Minimum multiply-adds worth a trial."""
FEW_CHANNELS = 32
"""Channels up to which half-length vectors may be faster in a 1 x 1 convolution: fewer idle lanes."""
SAMPLE, DEPTHWISE_SAMPLE = 0.3e9, 0.05e9
"""Multiply-adds of a sample: some milliseconds. Depthwise samples exceed every cache."""


def lower_image(
    lowering: Lowering, node: Node, images: Images, kernel: tuple[int, ...], direct: Any, tiled: Any, by_channel: Any,
    by_pixel: Any,
) -> bool:  # fmt: skip
    """Lower a convolution or one of its gradients in the fastest way: oneDNN (`direct`), Winograd (`tiled`, by tile size), or the
    native kernels for depthwise (`by_channel`) and 1 x 1 convolutions (`by_pixel`)."""
    ways = {"direct": direct}
    least = MIN_TRIAL_MULTIPLY_ADDS
    certain = False  # the preferred way is known to be the fastest: a trial would only cost compile time
    frozen = node.inputs[1] in lowering.constant_values and not node.op.name.startswith("convolution_backward_w")
    stride, padding, dilation, groups = node.attrs[-4:]
    (_, c, _, _), (n, k, height, width) = (images.x.shape, images.y.shape) if len(kernel) == 2 else ((0,) * 4,) * 2
    if winograd.suits(stride, dilation, groups, kernel):
        ways |= {name: partial(tiled, m) for name, m in TILES.items()}
        preferred = winograd.preferred(c, k, n, height, width, frozen)
        tried = ["direct", "winograd_f4"]  # the smaller tile is more accurate, but never the fastest
    elif depthwise.suits(images.x.shape, images.y.shape, kernel, node.attrs[-4:]):
        ways["depthwise"] = by_channel
        preferred, tried, least = depthwise.preferred(c), ["direct", "depthwise"], MIN_TRIAL_MULTIPLY_ADDS / 10
        certain = depthwise.leads(images.x.shape)
    elif _is_product(node, kernel) and node.op.name == "convolution_backward_weight":
        ways["matmul"] = by_pixel
        certain = min(c, k) >= FEW_CHANNELS and deep_matmul.suits(k, c, n * height * width) and leads(library_product)
        preferred = "matmul" if certain or min(c, k) >= 128 else "direct"
        tried = ["direct", "matmul"]
    elif _is_product(node, kernel) and pointwise_conv.suits(
        *((k, c) if node.op.name == "convolution_backward_input" else (c, k))
    ):
        ways["pixels"] = by_pixel
        certain = not frozen and pointwise_conv.leads(images.y.shape)
        preferred, tried, least = "pixels" if certain else "direct", ["direct", "pixels"], MIN_TRIAL_MULTIPLY_ADDS / 10
        if frozen and min(c, k) <= FEW_CHANNELS:
            ways["narrow"] = partial(direct, isa="avx2")
            tried.append("narrow")
    elif frozen and kernel == (1, 1) and groups == 1 and min(c, k) <= FEW_CHANNELS:
        ways["narrow"] = partial(direct, isa="avx2")
        preferred, tried, least = "direct", ["direct", "narrow"], MIN_TRIAL_MULTIPLY_ADDS / 10
    else:
        return direct(lowering, node)
    title = f"{images.title} {kernel[0]}x{kernel[1]} {c}->{k} @{height}x{width} batch {n}"
    sample = None if certain else partial(_sample, node, images, kernel, groups, frozen, least)
    return lower_tuned(lowering, node, ways, preferred, title, sample, tried, "frozen" if frozen else "")


def _is_product(node: Node, kernel: tuple[int, ...]) -> bool:
    """Whether a convolution is pointwise: every pixel times one matrix."""
    stride, padding, _, groups = node.attrs[-4:]
    return (kernel, tuple(stride), groups) == ((1, 1), (1, 1), 1) and not any(map(any, padding))


class Images(NamedTuple):
    """The input and output images of a convolution, whether the node reads or writes them."""

    title: str
    x: Any
    y: Any
    inputs: tuple[int, ...]  # which inputs of the node are images


def _sample(
    node: Node, images: Images, kernel: tuple[int, ...], groups: int = 1, frozen: bool = False,
    least: float = MIN_TRIAL_MULTIPLY_ADDS,
) -> Sample | None:  # fmt: skip
    """The convolution on fewer images, with fewer rows if one image is still too large."""
    (n, c, _, _), (_, k, height, width) = images.x.shape, images.y.shape
    work = kernel[0] * kernel[1] * c * k // groups * n * height * width
    if work < least or min(c, k) < 16:
        return None
    size = SAMPLE if groups == 1 else DEPTHWISE_SAMPLE
    count, cut = min(n, max(1, round(n * size / work))), 0
    if count == 1 and height > 32 and groups == 1:
        cut = max(0, height - max(16, 4 * round(height * SAMPLE * n / work / 4)))

    def smaller(shape: Any) -> tuple[int, ...]:
        return count, shape[1], shape[2] - cut, shape[3]

    inputs = [
        (smaller(v.shape) if i in images.inputs else tuple(v.shape)) if isinstance(v, Value) else None
        for i, v in enumerate(node.inputs)
    ]
    shape = tuple(node.outputs[0].shape)
    attrs = node.attrs
    if node.op.name != "convolution_backward_weight":
        shape = smaller(shape)
    if node.op.name == "convolution_backward_input" and attrs[0] is not None:
        attrs = (shape[2:], *attrs[1:])
    scale = n * height / (count * (height - cut))
    return Sample(tuple(inputs), (shape,), attrs, scale, FIXED.__contains__, frozen)


FIXED = frozenset(
    [INTO, OUT_OF, PARTS, "depthwise convolution grad weight sum"]
    + [f"winograd {m}x{m} weight{g}" for m in (2, 4) for g in ("", " gradient")]
)
"""Steps whose time does not depend on the number of images."""


@lowers("convolution")
def lower_convolution(lowering: Lowering, node: Node) -> bool:
    if not applies(*node.inputs):
        return False
    images = Images("conv", node.inputs[0], node.outputs[0], (0,))
    kernel = tuple(node.inputs[1].shape[2:])
    return lower_image(lowering, node, images, kernel, _direct, _winograd, _depthwise, _pixels)


@lowers("convolution_backward_input")
def lower_backward_input(lowering: Lowering, node: Node) -> bool:
    if not applies(*node.inputs[:2]):
        return False
    images = Images("conv grad input", node.outputs[0], node.inputs[0], (0, 2))
    kernel = tuple(node.inputs[1].shape[2:])
    return lower_image(lowering, node, images, kernel, _direct_input, _winograd_input, _depthwise_input, _pixels_input)


@lowers("convolution_backward_weight")
def lower_backward_weight(lowering: Lowering, node: Node) -> bool:
    if not applies(*node.inputs):
        return False
    images = Images("conv grad weight", node.inputs[0], node.inputs[1], (0, 1))
    kernel = tuple(node.outputs[0].shape[2:])
    return lower_image(
        lowering, node, images, kernel, _direct_weight, _winograd_weight, _depthwise_weight, _matmul_weight
    )
