"""The convolution's gradient in weights and bias: a matrix product for 1x1 kernels, oneDNN's own for the rest."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.runtime import memory, threads

from ..addresses import address
from ..descriptors import MemoryDesc, contiguous_strides
from ..primitives.convolution import Window, convolution_backward_weights
from .checks import Padding, check_conv, expect_shape, same_dtype, sliding_sizes
from .kernel import Kernel, cache, reject_reference
from .matmul import matmul
from .staging import channels_last_desc, grouped_shape, pixels, stage_input, stage_output

_Ints = tuple[int, ...]


def conv_backward_weights(
    x: np.ndarray, g: np.ndarray, w_shape: _Ints, stride: _Ints, padding: Padding, dilation: _Ints, groups: int,
    with_bias: bool = False,
) -> tuple[np.ndarray, np.ndarray | None]:  # fmt: skip
    """Gradients of `conv_forward` in `w` (row-major, of `w_shape`) and, if asked for, in the bias."""
    key = (
        "conv_backward_weights", x.shape, x.strides, x.dtype, g.shape, g.strides, g.dtype, w_shape, stride, padding,
        dilation, groups, with_bias, threads.get_num_threads(),
    )  # fmt: skip
    call = cache.lookup(key)
    if call is None:
        prepare = _prepare_backward_weights
        call = cache.make(key, lambda: prepare(x, g, w_shape, stride, padding, dilation, groups, with_bias))
    result: tuple[np.ndarray, np.ndarray | None] = call(x, g)
    return result


def _prepare_backward_weights(
    x: np.ndarray, g: np.ndarray, w_shape: _Ints, stride: _Ints, padding: Padding, dilation: _Ints, groups: int,
    with_bias: bool,
) -> Any:  # fmt: skip
    op = "conv_backward_weights"
    window = check_conv(op, x.shape, w_shape, stride, padding, dilation, groups)
    same_dtype(op, x, g)
    expect_shape(op, "g", g, (x.shape[0], w_shape[0], *sliding_sizes(op, x.shape[2:], w_shape[2:], window)))
    pointwise = all(k == 1 for k in w_shape[2:]) and not any(n for pair in padding for n in pair)
    if groups == 1 and not with_bias and pointwise:
        return _PointwiseBackwardWeights(x, g, w_shape, stride)
    return _BackwardWeights(x, g, w_shape, window, groups, with_bias)


class _BackwardWeights:
    __slots__ = ("_bias_shape", "_dtype", "_g", "_kernel", "_shape", "_w", "_x")

    def __init__(
        self,
        x: np.ndarray,
        g: np.ndarray,
        w_shape: _Ints,
        window: Window,
        groups: int,
        with_bias: bool,
    ) -> None:
        self._dtype = x.dtype
        self._bias_shape = w_shape[:1] if with_bias else None
        shape = grouped_shape(w_shape, groups)
        primitive = reject_reference(
            convolution_backward_weights(
                channels_last_desc(x.shape, self._dtype),
                MemoryDesc.any(shape, self._dtype),
                MemoryDesc.strided(w_shape[:1], self._dtype) if with_bias else None,
                channels_last_desc(g.shape, self._dtype),
                window,
            )
        )
        self._kernel = Kernel(primitive)
        self._x = stage_input(x, primitive.arguments[0].desc)
        self._g = stage_input(g, primitive.arguments[1].desc)
        self._w = stage_output(primitive.arguments[2].desc, contiguous_strides(shape))
        self._shape = tuple(w_shape)

    def __call__(self, x: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        if self._x is not None:
            x = self._x(x)
        if self._g is not None:
            g = self._g(g)
        dw = memory.empty(self._shape, self._dtype)
        target = dw if self._w is None else self._w.allocate()
        db = None if self._bias_shape is None else memory.empty(self._bias_shape, self._dtype)
        if db is None:
            self._kernel(address(x), address(g), address(target))
        else:
            self._kernel(address(x), address(g), address(target), address(db))
        if self._w is not None:
            self._w.deliver(target, dw)
        return dw, db


class _PointwiseBackwardWeights:
    """A 1x1 convolution's weight gradient is one matrix product, gᵀ x over all pixels.

    1 to 45 % faster than oneDNN's convolution gradient in ResNet-50's shapes, and it leaves the gradient in the plain
    layout. With a stride, the pixels that were used are gathered first.
    """

    __slots__ = ("_dtype", "_g", "_shape", "_used", "_x")

    def __init__(self, x: np.ndarray, g: np.ndarray, w_shape: _Ints, stride: _Ints) -> None:
        self._shape, self._dtype = tuple(w_shape), x.dtype
        self._used: Any = (
            None if all(s == 1 for s in stride) else (..., *(slice(None, None, s) for s in stride))
        )
        used = x if self._used is None else x[self._used]
        self._x = stage_input(used, channels_last_desc(used.shape, x.dtype))
        self._g = stage_input(g, channels_last_desc(g.shape, g.dtype))

    def __call__(self, x: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, None]:
        if self._used is not None:
            x = x[self._used]
        left = pixels(g) if self._g is None else self._g(g).view(self._dtype).reshape(-1, self._shape[0])
        right = pixels(x) if self._x is None else self._x(x).view(self._dtype).reshape(-1, self._shape[1])
        return matmul(left.T, right).reshape(self._shape), None
