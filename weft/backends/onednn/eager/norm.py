"""Batch normalisation of NumPy arrays, with ReLU fused in if wanted."""

from __future__ import annotations

import numpy as np

from weft.runtime import memory, threads

from ..addresses import address
from ..capi import NormFlags
from ..primitives.normalization import batch_norm_backward as backward_primitive
from ..primitives.normalization import batch_norm_forward as forward_primitive
from .checks import expect_shape, not_empty, same_dtype
from .kernel import Kernel, cache, reject_reference
from .staging import block, channels_last_desc, stage_input

_FLOAT32 = np.dtype(np.float32)
_AFFINE = NormFlags.USE_SCALE | NormFlags.USE_SHIFT


def batch_norm_training(
    x: np.ndarray, scale: np.ndarray, shift: np.ndarray, epsilon: float, relu: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Normalises each channel by its own statistics: `scale * (x - mean) / sqrt(variance + epsilon) + shift`.

    Args:
        x: (N, C, spatial...), 0 to 3 spatial axes.
        scale, shift: (C,) float32.
        relu: whether negative results become 0.

    Returns:
        The result (channels-last), mean and biased variance of each channel (float32), and the workspace for the
        backward if `relu`.
    """
    key = ("batch_norm_training", x.shape, x.strides, x.dtype, epsilon, relu, threads.get_num_threads())
    call = cache.lookup(key)
    if call is None:
        call = cache.make(key, lambda: _Training(x, epsilon, relu))
    result: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None] = call(x, scale, shift)
    return result


def batch_norm_inference(
    x: np.ndarray, scale: np.ndarray, shift: np.ndarray, mean: np.ndarray, variance: np.ndarray, epsilon: float,
    relu: bool = False,
) -> np.ndarray:  # fmt: skip
    """The same with given statistics, all (C,) float32."""
    key = ("batch_norm_inference", x.shape, x.strides, x.dtype, epsilon, relu, threads.get_num_threads())
    call = cache.lookup(key)
    if call is None:
        call = cache.make(key, lambda: _Inference(x, epsilon, relu))
    result: np.ndarray = call(x, scale, shift, mean, variance)
    return result


def batch_norm_backward(
    g: np.ndarray, x: np.ndarray, scale: np.ndarray, mean: np.ndarray, variance: np.ndarray, epsilon: float,
    workspace: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Gradients of `batch_norm_training` in `x` (channels-last), scale and shift.

    `mean`, `variance` and, after a fused ReLU, `workspace` are what the forward returned.
    """
    relu = workspace is not None
    key = ("batch_norm_backward", g.shape, g.strides, g.dtype, x.shape, x.strides, x.dtype, epsilon, relu,
           threads.get_num_threads())  # fmt: skip
    call = cache.lookup(key)
    if call is None:
        call = cache.make(key, lambda: _Backward(g, x, epsilon, relu))
    result: tuple[np.ndarray, np.ndarray, np.ndarray] = call(g, x, scale, mean, variance, workspace)
    return result


def _check(x: np.ndarray) -> None:
    if not 2 <= x.ndim <= 5:
        raise ValueError(
            f"batch_norm: bad rank. Got x of shape {x.shape}; expected (N, C) and up to 3 spatial axes."
        )
    not_empty("batch_norm", x.shape)
    same_dtype("batch_norm", x)


def _per_channel(name: str, values: np.ndarray, channels: int) -> np.ndarray:
    """Checked on every call, since these arrays are not part of the key."""
    if values.dtype != _FLOAT32:
        raise TypeError(f"batch_norm: {name} must be float32. Got {values.dtype}.")
    expect_shape("batch_norm", name, values, (channels,))
    return np.ascontiguousarray(values)


def _flags(relu: bool) -> NormFlags:
    return _AFFINE | NormFlags.FUSE_RELU if relu else _AFFINE


class _Training:
    __slots__ = ("_channels", "_dtype", "_kernel", "_order", "_shape", "_workspace", "_x")

    def __init__(self, x: np.ndarray, epsilon: float, relu: bool) -> None:
        _check(x)
        primitive = reject_reference(
            forward_primitive(channels_last_desc(x.shape, x.dtype), epsilon, _flags(relu))
        )
        self._kernel = Kernel(primitive)
        self._x = stage_input(x, primitive.arguments[0].desc)
        self._workspace = primitive.workspace_nbytes
        self._shape, self._dtype, self._channels = x.shape, x.dtype, (x.shape[1],)
        self._order = memory.channels_last_order(x.ndim)

    def __call__(
        self, x: np.ndarray, scale: np.ndarray, shift: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        scale = _per_channel("scale", scale, self._channels[0])
        shift = _per_channel("shift", shift, self._channels[0])
        if self._x is not None:
            x = self._x(x)
        y = memory.empty(self._shape, self._dtype, self._order)
        mean, variance = np.empty(self._channels, _FLOAT32), np.empty(self._channels, _FLOAT32)
        pointers = (address(x), address(scale), address(shift), address(y), address(mean), address(variance))
        if not self._workspace:
            self._kernel(*pointers)
            return y, mean, variance, None
        workspace = block(self._workspace)
        self._kernel(*pointers, address(workspace))
        return y, mean, variance, workspace


class _Inference:
    __slots__ = ("_dtype", "_kernel", "_order", "_shape", "_x")

    def __init__(self, x: np.ndarray, epsilon: float, relu: bool) -> None:
        _check(x)
        flags = _flags(relu) | NormFlags.USE_GLOBAL_STATS
        primitive = reject_reference(
            forward_primitive(channels_last_desc(x.shape, x.dtype), epsilon, flags, training=False)
        )
        self._kernel = Kernel(primitive)
        self._x = stage_input(x, primitive.arguments[0].desc)
        self._shape, self._dtype = x.shape, x.dtype
        self._order = memory.channels_last_order(x.ndim)

    def __call__(
        self, x: np.ndarray, scale: np.ndarray, shift: np.ndarray, mean: np.ndarray, variance: np.ndarray
    ) -> np.ndarray:
        channels = self._shape[1]
        scale, shift = _per_channel("scale", scale, channels), _per_channel("shift", shift, channels)
        mean, variance = _per_channel("mean", mean, channels), _per_channel("variance", variance, channels)
        if self._x is not None:
            x = self._x(x)
        y = memory.empty(self._shape, self._dtype, self._order)
        self._kernel(address(x), address(scale), address(shift), address(mean), address(variance), address(y))
        return y


class _Backward:
    __slots__ = ("_dtype", "_g", "_kernel", "_order", "_shape", "_workspace", "_x")

    def __init__(self, g: np.ndarray, x: np.ndarray, epsilon: float, relu: bool) -> None:
        _check(x)
        same_dtype("batch_norm", x, g)
        expect_shape("batch_norm", "g", g, x.shape)
        primitive = reject_reference(
            backward_primitive(channels_last_desc(x.shape, x.dtype), epsilon, _flags(relu))
        )
        self._kernel = Kernel(primitive)
        image = primitive.arguments[0].desc
        self._g, self._x = stage_input(g, image), stage_input(x, image)
        self._workspace = primitive.workspace_nbytes
        self._shape, self._dtype = x.shape, x.dtype
        self._order = memory.channels_last_order(x.ndim)

    def __call__(
        self, g: np.ndarray, x: np.ndarray, scale: np.ndarray, mean: np.ndarray, variance: np.ndarray,
        workspace: np.ndarray | None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
        channels = self._shape[1]
        scale, mean = _per_channel("scale", scale, channels), _per_channel("mean", mean, channels)
        variance = _per_channel("variance", variance, channels)
        if self._x is not None:
            x = self._x(x)
        if self._g is not None:
            g = self._g(g)
        dx = memory.empty(self._shape, self._dtype, self._order)
        dscale, dshift = np.empty(channels, _FLOAT32), np.empty(channels, _FLOAT32)
        inputs = (address(x), address(mean), address(variance), address(g), address(scale))
        outputs = (address(dx), address(dscale), address(dshift))
        if self._workspace:
            if workspace is None or workspace.nbytes != self._workspace or not workspace.flags.c_contiguous:
                raise ValueError(
                    f"batch_norm_backward: not this forward's workspace. Expected {self._workspace} bytes."
                )
            self._kernel(*inputs, address(workspace), *outputs)
        else:
            self._kernel(*inputs, *outputs)
        return dx, dscale, dshift
