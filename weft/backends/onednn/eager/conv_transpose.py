"""Transposed convolution of NumPy arrays, in terms of the convolution that it transposes.

That convolution maps the *result* (O channels) to the input (C channels) with the same weights (C, O/G, kernel...): its
input gradient is our forward pass, and its forward pass is our input gradient.
"""

from __future__ import annotations

import numpy as np

from weft.ops.nn.window import Window
from weft.runtime import memory, threads

from .. import capi
from ..addresses import address
from ..capi import Alg
from ..primitives.elementwise import binary
from .checks import expect_shape, same_dtype
from .conv import conv_backward_data, conv_forward
from .conv_weights import conv_backward_weights
from .matmul import matmul
from .primitive_call import PrimitiveCall, cache
from .staging import channels_last_desc, is_channels_last, pixels

_Ints = tuple[int, ...]


def conv_transpose_forward(
    x: np.ndarray, w: np.ndarray, bias: np.ndarray | None, window: Window, groups: int, output_padding: _Ints
) -> np.ndarray:
    """The transpose of a convolution with these settings, plus a bias.

    Args:
        x: (N, C, spatial...).
        w: (C, O/groups, kernel...).
        bias: (O,) or `None`.
        output_padding: per spatial axis, at least 0 and less than the stride: which of the sizes that the convolution
            would map to `x`'s is meant.

    Returns:
        (N, O, spatial...), channels-last.
    """
    op = "conv_transpose"
    shape = conv_transpose_shape(x.shape, w.shape, window, groups, output_padding)
    y = conv_backward_data(x, w, shape, window, groups)
    if bias is not None:
        same_dtype(op, x, bias)
        expect_shape(op, "bias", bias, shape[1:2])
        _add_bias(y, bias)
    return y


def conv_transpose_shape(x_shape: _Ints, w_shape: _Ints, window: Window, groups: int, output_padding: _Ints) -> _Ints:
    """The shape of the result; raises `ValueError` if the arguments do not fit together."""
    op = "conv_transpose"
    ranks_fit = len(x_shape) == len(w_shape) == window.axes + 2
    if not ranks_fit or groups < 1 or w_shape[0] != x_shape[1] or w_shape[2:] != window.kernel:
        raise ValueError(
            f"{op}: shapes do not fit. Got x of shape {x_shape}, w of shape {w_shape}, {groups} groups and {window}; "
            "expected (N, C, spatial...) and (C, O/groups, kernel...)."
        )
    if len(output_padding) != window.axes or any(
        not 0 <= p < s for p, s in zip(output_padding, window.stride, strict=True)
    ):
        raise capi.Unsupported(f"{op}: output_padding {output_padding} is not below the stride {window.stride}.")
    sizes = window.transposed_sizes(x_shape[2:], output_padding)
    if any(size < 1 for size in sizes):
        raise ValueError(f"{op}: the result would be empty. Got x of shape {x_shape}, w of shape {w_shape}, {window}.")
    return (x_shape[0], w_shape[1] * groups, *sizes)


def conv_transpose_backward_data(g: np.ndarray, w: np.ndarray, window: Window, groups: int) -> np.ndarray:
    """Gradient of `conv_transpose_forward` in `x`."""
    return conv_forward(g, w, None, window, groups)


def conv_transpose_backward_weights(
    x: np.ndarray, g: np.ndarray, w_shape: _Ints, window: Window, groups: int, with_bias: bool = False
) -> tuple[np.ndarray, np.ndarray | None]:
    """Gradients of `conv_transpose_forward` in `w` and, on request, in the bias."""
    dw, _ = conv_backward_weights(g, x, w_shape, window, groups)
    return dw, sum_over_pixels(g) if with_bias else None


def sum_over_pixels(g: np.ndarray) -> np.ndarray:
    """(N, C, spatial...) -> (C,): the gradient of a bias, as a product with a row of ones."""
    if not is_channels_last(g):
        copy = memory.empty(g.shape, g.dtype, memory.channels_last_order(g.ndim))
        np.copyto(copy, g)
        g = copy
    matrix = pixels(g)
    return matmul(np.ones((1, matrix.shape[0]), g.dtype), matrix).reshape(-1)


def _add_bias(y: np.ndarray, bias: np.ndarray) -> None:
    """`y += bias` per channel, in place; `y` is channels-last."""
    key = ("add_bias", y.shape, y.dtype, threads.get_num_threads())
    kernel = cache.lookup(key)
    if kernel is None:
        kernel = cache.make(key, lambda: _bias_kernel(y))
    bias = np.ascontiguousarray(bias)
    target = address(y)
    kernel(target, address(bias), target)


def _bias_kernel(y: np.ndarray) -> PrimitiveCall:
    image = channels_last_desc(y.shape, y.dtype)
    row = channels_last_desc((1, y.shape[1], *(1,) * (y.ndim - 2)), y.dtype)
    return PrimitiveCall(binary(Alg.BINARY_ADD, image, row, image))
