"""Weight and bias gradients of a convolution: a matmul for 1x1 kernels, oneDNN's primitive for the rest."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.ops.nn.window import Window
from weft.runtime import memory, threads

from .. import shares
from ..addresses import address
from ..capi import Arg
from ..descriptors import MemoryDesc, contiguous_strides
from .checks import check_conv, expect_shape, same_dtype
from .matmul import matmul
from .primitive_call import PrimitiveCall, cache, reject_reference, sum_parts
from .staging import channels_last_desc, grouped_shape, pixels, stage_input, stage_output

_Ints = tuple[int, ...]
_FLOAT32 = np.dtype(np.float32)


def conv_backward_weights(
    x: np.ndarray, g: np.ndarray, w_shape: _Ints, window: Window, groups: int, with_bias: bool = False
) -> tuple[np.ndarray, np.ndarray | None]:
    """Gradients of `conv_forward` in `w` (row-major, of `w_shape`) and, on request, in the bias."""
    key = (
        "conv_backward_weights", x.shape, x.strides, x.dtype, g.shape, g.strides, g.dtype, w_shape, window, groups,
        with_bias, threads.get_num_threads(),
    )  # fmt: skip
    call = cache.lookup(key)
    if call is None:
        call = cache.make(key, lambda: _prepare_backward_weights(x, g, w_shape, window, groups, with_bias))
    result: tuple[np.ndarray, np.ndarray | None] = call(x, g)
    return result


def _prepare_backward_weights(
    x: np.ndarray, g: np.ndarray, w_shape: _Ints, window: Window, groups: int, with_bias: bool
) -> Any:
    op = "conv_backward_weights"
    check_conv(op, x.shape, w_shape, window, groups)
    same_dtype(op, x, g)
    expect_shape(op, "g", g, (x.shape[0], w_shape[0], *window.out_sizes(op, x.shape[2:])))
    if groups == 1 and not with_bias and window.positions == 1 and not window.padded:
        return _PointwiseBackwardWeights(x, g, w_shape, window.stride)
    return _BackwardWeights(x, g, w_shape, window, groups, with_bias)


class _BackwardWeights:
    """Partial gradients by oneDNN, in float32, and their sum in order."""

    __slots__ = ("_bias_nbytes", "_dtype", "_g", "_kernel", "_nbytes", "_partial", "_shape", "_w", "_x")

    def __init__(
        self, x: np.ndarray, g: np.ndarray, w_shape: _Ints, window: Window, groups: int, with_bias: bool
    ) -> None:
        self._dtype = x.dtype
        shape = grouped_shape(w_shape, groups)
        work = reject_reference(
            shares.conv_backward_weights(
                x.shape, MemoryDesc.any(shape, _FLOAT32), MemoryDesc.strided(w_shape[:1], _FLOAT32) if with_bias else None,
                g.shape, self._dtype, window,
            )
        )  # fmt: skip
        self._kernel = PrimitiveCall(work)
        self._partial = work.partial
        self._x = stage_input(x, channels_last_desc(x.shape, self._dtype))
        self._g = stage_input(g, channels_last_desc(g.shape, self._dtype))
        produced = work.desc(Arg.DIFF_WEIGHTS)
        self._w = stage_output(produced, contiguous_strides(shape))
        self._shape, self._nbytes = tuple(w_shape), produced.nbytes
        self._bias_nbytes = work.desc(Arg.DIFF_BIAS).nbytes if with_bias else 0

    def __call__(self, x: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        if self._x is not None:
            x = self._x(x)
        if self._g is not None:
            g = self._g(g)
        parts = memory.empty((self._partial, self._nbytes // 4), _FLOAT32)
        if self._bias_nbytes:
            biases = memory.empty((self._partial, self._bias_nbytes // 4), _FLOAT32)
            self._kernel(address(x), address(g), address(parts), address(biases))
            db = sum_parts(biases).astype(self._dtype, copy=False)
        else:
            self._kernel(address(x), address(g), address(parts))
            db = None
        total = sum_parts(parts)
        if self._w is None:
            dw = total.reshape(self._shape)
        else:
            dw = memory.empty(self._shape, _FLOAT32)
            self._w.deliver(total, dw)
        return dw.astype(self._dtype, copy=False), db


class _PointwiseBackwardWeights:
    """A 1x1 convolution's weight gradient is one matrix product, gᵀ x over all pixels.

    1 to 45 % faster than oneDNN's convolution gradient in ResNet-50's shapes, and it leaves the gradient in the plain
    layout. With a stride, the pixels that were used are gathered first.
    """

    __slots__ = ("_dtype", "_g", "_shape", "_used", "_x")

    def __init__(self, x: np.ndarray, g: np.ndarray, w_shape: _Ints, stride: _Ints) -> None:
        self._shape, self._dtype = tuple(w_shape), x.dtype
        self._used: Any = None if all(s == 1 for s in stride) else (..., *(slice(None, None, s) for s in stride))
        used = x if self._used is None else x[self._used]
        self._x = stage_input(used, channels_last_desc(used.shape, x.dtype))
        self._g = stage_input(g, channels_last_desc(g.shape, g.dtype))

    def __call__(self, x: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, None]:
        if self._used is not None:
            x = x[self._used]
        left = pixels(g) if self._g is None else self._g(g).view(self._dtype).reshape(-1, self._shape[0])
        right = pixels(x) if self._x is None else self._x(x).view(self._dtype).reshape(-1, self._shape[1])
        return matmul(left.T, right).reshape(self._shape), None
