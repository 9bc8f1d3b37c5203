"""Convolution of NumPy arrays: forward and input gradient (for the weight gradient see `conv_weights`).

Images are (N, C, spatial...), preferably channels-last in memory; weights are plain (O, C/G, kernel...) arrays with any
strides. oneDNN is fastest with channels-last images and weights in a format of its choice (for plain weights it has only
reference loops), so weights are reordered in each call: 1 to 2 % of the time over ResNet-50, more in its last layers,
which have many weights and few pixels.
"""

from __future__ import annotations

import numpy as np

from weft.ops.nn.window import Window
from weft.runtime import memory, threads

from .. import shares
from ..addresses import address
from ..capi import Arg
from ..descriptors import MemoryDesc
from .checks import check_conv, expect_shape, same_dtype
from .primitive_call import PrimitiveCall, cache, reject_reference
from .staging import channels_last_desc, grouped_weights, is_channels_last, stage_input

_Ints = tuple[int, ...]


def conv_forward(
    x: np.ndarray, w: np.ndarray, bias: np.ndarray | None, window: Window, groups: int, out: np.ndarray | None = None
) -> np.ndarray:
    """The convolution of `x` with `w`, as deep learning means it (no flip).

    Args:
        x: (N, C, spatial...), 1 to 3 spatial axes.
        w: (O, C/groups, kernel...).
        bias: (O,) or `None`.
        groups: divides C and O.
        out: where the result goes, or `None`.

    Returns:
        (N, O, spatial...), channels-last unless `out` was given.
    """
    key = (
        "conv_forward", x.shape, x.strides, x.dtype, w.shape, w.strides, w.dtype, window, groups,
        None if bias is None else (bias.shape, bias.strides, bias.dtype),
        None if out is None else (out.shape, out.strides, out.dtype), threads.get_num_threads(),
    )  # fmt: skip
    call = cache.lookup(key)
    if call is None:
        call = cache.make(key, lambda: _Forward(x, w, bias, window, groups, out))
    result: np.ndarray = call(x, w, bias, out)
    return result


def conv_backward_data(g: np.ndarray, w: np.ndarray, x_shape: _Ints, window: Window, groups: int) -> np.ndarray:
    """Gradient of `conv_forward` in `x`: `g` is the gradient of the result, `x_shape` the shape of `x`.

    Returns:
        An array of `x_shape`, channels-last.
    """
    key = (
        "conv_backward_data", g.shape, g.strides, g.dtype, w.shape, w.strides, w.dtype, x_shape, window, groups,
        threads.get_num_threads(),
    )  # fmt: skip
    call = cache.lookup(key)
    if call is None:
        call = cache.make(key, lambda: _BackwardData(g, w, x_shape, window, groups))
    result: np.ndarray = call(g, w)
    return result


# ------------------------------------------------------------------------------------------- prepared calls


class _Forward:
    """Stages `x`, `w` and `out` where their layouts differ from the primitive's, and runs it."""

    __slots__ = ("_dtype", "_kernel", "_order", "_out", "_shape", "_w", "_w_view", "_x")

    def __init__(
        self, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None, window: Window, groups: int, out: np.ndarray | None
    ) -> None:
        op = "conv"
        check_conv(op, x.shape, w.shape, window, groups)
        self._dtype = same_dtype(op, x, w, bias, out)
        self._shape = (x.shape[0], w.shape[0], *window.out_sizes(op, x.shape[2:]))
        expect_shape(op, "bias", bias, w.shape[:1])
        expect_shape(op, "out", out, self._shape)
        view = grouped_weights(w, groups)
        work = reject_reference(
            shares.conv_forward(
                x.shape, MemoryDesc.any(view.shape, self._dtype),
                None if bias is None else MemoryDesc.strided(bias.shape, self._dtype), self._shape, self._dtype, window,
            )
        )  # fmt: skip
        self._kernel = PrimitiveCall(work)
        self._x = stage_input(x, channels_last_desc(x.shape, self._dtype))
        self._w = stage_input(view, work.desc(Arg.WEIGHTS))
        self._w_view = groups if self._w is not None and groups > 1 else 0
        self._order = memory.channels_last_order(x.ndim)
        self._out = out is not None and not is_channels_last(out)

    def __call__(self, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None, out: np.ndarray | None) -> np.ndarray:
        if self._x is not None:
            x = self._x(x)
        if self._w is not None:
            w = self._w(grouped_weights(w, self._w_view) if self._w_view else w)
        target = out if out is not None and not self._out else memory.empty(self._shape, self._dtype, self._order)
        if out is not None and not out.flags.writeable:
            raise ValueError("conv: out is read-only.")
        if bias is None:
            self._kernel(address(x), address(w), address(target))
        else:
            bias = np.ascontiguousarray(bias)
            self._kernel(address(x), address(w), address(bias), address(target))
        if self._out:
            assert out is not None
            np.copyto(out, target)
            return out
        return target


class _BackwardData:
    __slots__ = ("_dtype", "_g", "_kernel", "_order", "_shape", "_w", "_w_view")

    def __init__(self, g: np.ndarray, w: np.ndarray, x_shape: _Ints, window: Window, groups: int) -> None:
        op = "conv_backward_data"
        check_conv(op, x_shape, w.shape, window, groups)
        self._dtype = same_dtype(op, g, w)
        expect_shape(op, "g", g, (x_shape[0], w.shape[0], *window.out_sizes(op, x_shape[2:])))
        view = grouped_weights(w, groups)
        work = reject_reference(
            shares.conv_backward_data(
                tuple(x_shape), MemoryDesc.any(view.shape, self._dtype), g.shape, self._dtype, window
            )
        )
        self._kernel = PrimitiveCall(work)
        self._g = stage_input(g, channels_last_desc(g.shape, self._dtype))
        self._w = stage_input(view, work.desc(Arg.WEIGHTS))
        self._w_view = groups if self._w is not None and groups > 1 else 0
        self._shape, self._order = tuple(x_shape), memory.channels_last_order(len(x_shape))

    def __call__(self, g: np.ndarray, w: np.ndarray) -> np.ndarray:
        if self._g is not None:
            g = self._g(g)
        if self._w is not None:
            w = self._w(grouped_weights(w, self._w_view) if self._w_view else w)
        target = memory.empty(self._shape, self._dtype, self._order)
        self._kernel(address(g), address(w), address(target))
        return target
