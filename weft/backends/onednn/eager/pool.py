"""Max and average pooling of NumPy arrays."""

from __future__ import annotations

import numpy as np

from weft.runtime import memory, threads

from .. import shares
from ..addresses import address
from ..capi import Alg, Unsupported
from ..primitives.convolution import Window
from .checks import Padding, expect_shape, not_empty, same_dtype, sliding_sizes, window_of
from .kernel import Kernel, cache, reject_reference
from .staging import block, channels_last_desc, stage_input

_Ints = tuple[int, ...]


def max_pool_forward(
    x: np.ndarray, kernel: _Ints, stride: _Ints, padding: Padding, dilation: _Ints
) -> tuple[np.ndarray, np.ndarray]:
    """The largest element of each window, and the workspace that `max_pool_backward` needs.

    Args:
        x: (N, C, spatial...), 1 to 3 spatial axes. NaN is not propagated.
        kernel, stride: one integer per spatial axis, at least 1.
        padding: one pair (before, after) per spatial axis; every window must meet the image. Padding never wins.
        dilation: one integer per spatial axis; anything but 1 is `Unsupported`.

    Returns:
        (N, C, spatial...) channels-last, and opaque bytes.
    """
    key = ("max_pool", x.shape, x.strides, x.dtype, kernel, stride, padding, dilation, threads.get_num_threads())
    call = cache.lookup(key)
    if call is None:
        call = cache.make(key, lambda: _Forward(Alg.POOLING_MAX, x, kernel, stride, padding, dilation))
    y, workspace = call(x)
    assert workspace is not None  # max pooling for training always has one
    return y, workspace


def max_pool_backward(
    g: np.ndarray,
    workspace: np.ndarray,
    x_shape: _Ints,
    kernel: _Ints,
    stride: _Ints,
    padding: Padding,
    dilation: _Ints,
) -> np.ndarray:
    """Gradient of `max_pool_forward` in `x`, channels-last; of equal elements the first one gets it.

    `workspace` is what the forward returned, for the same settings and thread width or any other.
    """
    key = ("max_pool_backward", g.shape, g.strides, g.dtype, x_shape, kernel, stride, padding, dilation,
           threads.get_num_threads())  # fmt: skip
    call = cache.lookup(key)
    if call is None:
        call = cache.make(key, lambda: _Backward(Alg.POOLING_MAX, g, x_shape, kernel, stride, padding, dilation))
    result: np.ndarray = call(g, workspace)
    return result


def avg_pool_forward(
    x: np.ndarray, kernel: _Ints, stride: _Ints, padding: Padding, include_padding: bool
) -> np.ndarray:
    """The mean of each window; with `include_padding` the zeros of the padding count."""
    key = ("avg_pool", x.shape, x.strides, x.dtype, kernel, stride, padding, include_padding, threads.get_num_threads())
    call = cache.lookup(key)
    if call is None:
        call = cache.make(
            key, lambda: _Forward(_average(include_padding), x, kernel, stride, padding, (1,) * len(kernel))
        )
    result: np.ndarray = call(x)[0]
    return result


def avg_pool_backward(
    g: np.ndarray, x_shape: _Ints, kernel: _Ints, stride: _Ints, padding: Padding, include_padding: bool
) -> np.ndarray:
    """Gradient of `avg_pool_forward` in `x`, channels-last."""
    key = ("avg_pool_backward", g.shape, g.strides, g.dtype, x_shape, kernel, stride, padding, include_padding,
           threads.get_num_threads())  # fmt: skip
    call = cache.lookup(key)
    if call is None:
        dilation = (1,) * len(kernel)
        alg = _average(include_padding)
        call = cache.make(key, lambda: _Backward(alg, g, x_shape, kernel, stride, padding, dilation))
    result: np.ndarray = call(g, None)
    return result


def _average(include_padding: bool) -> Alg:
    return Alg.POOLING_AVG_INCLUDE_PADDING if include_padding else Alg.POOLING_AVG_EXCLUDE_PADDING


def _check(x_shape: _Ints, kernel: _Ints, stride: _Ints, padding: Padding, dilation: _Ints) -> tuple[Window, _Ints]:
    """The window and the shape of the result."""
    op = "pool"
    if len(x_shape) < 3 or len(kernel) != len(x_shape) - 2 or any(k < 1 for k in kernel):
        raise ValueError(
            f"{op}: bad kernel. Got {kernel} for x of shape {x_shape}; expected one positive integer per spatial axis."
        )
    not_empty(op, x_shape)
    window = window_of(op, len(kernel), stride, padding, dilation)
    if any(d > 1 for d in dilation):
        raise Unsupported(f"{op}: oneDNN has only slow reference loops for dilation. Got {dilation}.")
    shape = (*x_shape[:2], *sliding_sizes(op, x_shape[2:], kernel, window))
    for (before, _), k, n, s, out in zip(padding, kernel, x_shape[2:], stride, shape[2:], strict=True):
        # A window that sees nothing but padding has no largest element and no mean.
        if before >= k or (out - 1) * s - before >= n:
            raise Unsupported(f"{op}: a window lies wholly in the padding. Got kernel {kernel}, padding {padding}.")
    return window, shape


class _Forward:
    __slots__ = ("_dtype", "_kernel", "_order", "_shape", "_workspace", "_x")

    def __init__(
        self, alg: Alg, x: np.ndarray, kernel: _Ints, stride: _Ints, padding: Padding, dilation: _Ints
    ) -> None:
        self._dtype = same_dtype("pool", x)
        window, self._shape = _check(x.shape, kernel, stride, padding, dilation)
        work = reject_reference(shares.pool_forward(alg, x.shape, self._shape, self._dtype, kernel, window))
        self._kernel = Kernel(work)
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

    def __init__(
        self, alg: Alg, g: np.ndarray, x_shape: _Ints, kernel: _Ints, stride: _Ints, padding: Padding, dilation: _Ints
    ) -> None:
        self._dtype = same_dtype("pool", g)
        window, shape = _check(x_shape, kernel, stride, padding, dilation)
        expect_shape("pool", "g", g, shape)
        work = reject_reference(shares.pool_backward(alg, tuple(x_shape), shape, self._dtype, kernel, window))
        self._kernel = Kernel(work)
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
