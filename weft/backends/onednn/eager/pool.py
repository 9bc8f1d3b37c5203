"""Max and average pooling of NumPy arrays."""

from __future__ import annotations

import numpy as np

from weft.ops.nn.window import Window
from weft.runtime import memory, threads

from .. import shares
from ..addresses import address
from ..capi import Alg, Unsupported
from .checks import expect_shape, not_empty, same_dtype
from .primitive_call import PrimitiveCall, cache, reject_reference
from .staging import block, channels_last_desc, stage_input

_Ints = tuple[int, ...]


def max_pool_forward(x: np.ndarray, window: Window) -> tuple[np.ndarray, np.ndarray]:
    """The largest element of each window, and the workspace that `max_pool_backward` needs.

    Args:
        x: (N, C, spatial...), 1 to 3 spatial axes. NaN is not propagated.
        window: every window must meet the image; padding never wins. Dilation is `Unsupported`.

    Returns:
        (N, C, spatial...) channels-last, and opaque bytes.
    """
    key = ("max_pool", x.shape, x.strides, x.dtype, window, threads.get_num_threads())
    call = cache.lookup(key)
    if call is None:
        call = cache.make(key, lambda: _Forward(Alg.POOLING_MAX, x, window))
    y, workspace = call(x)
    assert workspace is not None  # max pooling for training always has one
    return y, workspace


def max_pool_backward(g: np.ndarray, workspace: np.ndarray, x_shape: _Ints, window: Window) -> np.ndarray:
    """Gradient of `max_pool_forward` in `x`, channels-last; of equal elements the first one gets it.

    `workspace` is what the forward returned, for the same settings and thread width or any other.
    """
    key = ("max_pool_backward", g.shape, g.strides, g.dtype, x_shape, window, threads.get_num_threads())
    call = cache.lookup(key)
    if call is None:
        call = cache.make(key, lambda: _Backward(Alg.POOLING_MAX, g, x_shape, window))
    result: np.ndarray = call(g, workspace)
    return result


def avg_pool_forward(x: np.ndarray, window: Window, include_padding: bool) -> np.ndarray:
    """The mean of each window; with `include_padding` the zeros of the padding count."""
    key = ("avg_pool", x.shape, x.strides, x.dtype, window, include_padding, threads.get_num_threads())
    call = cache.lookup(key)
    if call is None:
        call = cache.make(key, lambda: _Forward(_average(include_padding), x, window))
    result: np.ndarray = call(x)[0]
    return result


def avg_pool_backward(g: np.ndarray, x_shape: _Ints, window: Window, include_padding: bool) -> np.ndarray:
    """Gradient of `avg_pool_forward` in `x`, channels-last."""
    key = (
        "avg_pool_backward",
        g.shape,
        g.strides,
        g.dtype,
        x_shape,
        window,
        include_padding,
        threads.get_num_threads(),
    )
    call = cache.lookup(key)
    if call is None:
        call = cache.make(key, lambda: _Backward(_average(include_padding), g, x_shape, window))
    result: np.ndarray = call(g, None)
    return result


def _average(include_padding: bool) -> Alg:
    return Alg.POOLING_AVG_INCLUDE_PADDING if include_padding else Alg.POOLING_AVG_EXCLUDE_PADDING


def _result_shape(x_shape: _Ints, window: Window) -> _Ints:
    """The shape of the result; raises for what oneDNN cannot pool."""
    op = "pool"
    if len(x_shape) != window.axes + 2:
        raise ValueError(
            f"{op}: bad kernel. Got {window} for x of shape {x_shape}; expected one size per spatial axis."
        )
    not_empty(op, x_shape)
    if window.dilated:
        raise Unsupported(f"{op}: oneDNN has only slow reference loops for dilation. Got {window.dilation}.")
    shape = (*x_shape[:2], *window.out_sizes(op, x_shape[2:]))
    sizes = (window.before, window.kernel, x_shape[2:], window.stride, shape[2:])
    for before, k, n, s, out in zip(*sizes, strict=True):
        # A window that sees nothing but padding has no largest element and no mean.
        if before >= k or (out - 1) * s - before >= n:
            raise Unsupported(f"{op}: a window lies wholly in the padding. Got {window}.")
    return shape


class _Forward:
    __slots__ = ("_dtype", "_kernel", "_order", "_shape", "_workspace", "_x")

    def __init__(self, alg: Alg, x: np.ndarray, window: Window) -> None:
        self._dtype = same_dtype("pool", x)
        self._shape = _result_shape(x.shape, window)
        work = reject_reference(shares.pool_forward(alg, x.shape, self._shape, self._dtype, window))
        self._kernel = PrimitiveCall(work)
        self._x = stage_input(x, channels_last_desc(x.shape, self._dtype))
        self._workspace = work.workspace_nbytes
        self._order = memory.channels_last_order(x.ndim)

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        if self._x is not None:
            x = self._x(x)
        y = memory.empty(self._shape, self._dtype, self._order)
        if not self._workspace:
            self._kernel(address(x), address(y))
            return y, None
        workspace = block(self._workspace)
        self._kernel(address(x), address(y), address(workspace))
        return y, workspace


class _Backward:
    __slots__ = ("_dtype", "_g", "_kernel", "_order", "_shape", "_workspace")

    def __init__(self, alg: Alg, g: np.ndarray, x_shape: _Ints, window: Window) -> None:
        self._dtype = same_dtype("pool", g)
        shape = _result_shape(x_shape, window)
        expect_shape("pool", "g", g, shape)
        work = reject_reference(shares.pool_backward(alg, tuple(x_shape), shape, self._dtype, window))
        self._kernel = PrimitiveCall(work)
        self._g = stage_input(g, channels_last_desc(shape, self._dtype))
        self._workspace = work.workspace_nbytes
        self._shape, self._order = tuple(x_shape), memory.channels_last_order(len(x_shape))

    def __call__(self, g: np.ndarray, workspace: np.ndarray | None) -> np.ndarray:
        if self._g is not None:
            g = self._g(g)
        dx = memory.empty(self._shape, self._dtype, self._order)
        if not self._workspace:
            self._kernel(address(g), address(dx))
            return dx
        if workspace is None or workspace.nbytes != self._workspace or not workspace.flags.c_contiguous:
            raise ValueError(f"max_pool_backward: not a workspace of this pooling. Expected {self._workspace} bytes.")
        self._kernel(address(g), address(workspace), address(dx))
        return dx
