"""Shape and dtype rules shared by the image functions (convolution, pooling)."""

from __future__ import annotations

import numpy as np

from ..capi import Unsupported
from ..primitives.convolution import Window

_Ints = tuple[int, ...]
Padding = tuple[tuple[int, int], ...]


def window_of(op: str, spatial: int, stride: tuple[int, ...], padding: Padding, dilation: tuple[int, ...]) -> Window:
    """The checked `Window`; every tuple has one entry per spatial axis, `padding` pairs (before, after)."""
    if not 1 <= spatial <= 3:
        raise Unsupported(f"{op}: oneDNN has 1 to 3 spatial axes. Got {spatial}.")
    for name, values, least in (("stride", stride, 1), ("dilation", dilation, 1)):
        if len(values) != spatial or any(value < least for value in values):
            raise ValueError(f"{op}: bad {name}. Got {values}; expected {spatial} integers of at least {least}.")
    if len(padding) != spatial or any(len(pair) != 2 for pair in padding):
        raise ValueError(f"{op}: bad padding. Got {padding}; expected {spatial} pairs (before, after).")
    if any(amount < 0 for pair in padding for amount in pair):
        raise Unsupported(f"{op}: negative padding. Got {padding}.")
    before, after = tuple(pair[0] for pair in padding), tuple(pair[1] for pair in padding)
    return Window(tuple(stride), before, after, tuple(dilation))


def sliding_sizes(op: str, sizes: tuple[int, ...], kernel: tuple[int, ...], window: Window) -> tuple[int, ...]:
    """Spatial sizes of what a window of this kernel produces; raises if the kernel does not fit even once."""
    result = tuple(
        (size + before + after - (dilation * (k - 1) + 1)) // stride + 1
        for size, k, stride, before, after, dilation in zip(
            sizes, kernel, window.stride, window.pad_before, window.pad_after, window.dilation, strict=True
        )
    )
    if any(size < 1 for size in result):
        raise ValueError(
            f"{op}: the kernel is larger than the padded input. Got sizes {sizes}, kernel {kernel}, {window}."
        )
    return result


def same_dtype(op: str, *arrays: np.ndarray | None) -> np.dtype:
    """The one dtype of all arrays."""
    dtypes = [array.dtype for array in arrays if array is not None]
    if any(dtype != dtypes[0] for dtype in dtypes):
        raise TypeError(f"{op}: dtypes differ. Got {', '.join(map(str, dtypes))}; expected one dtype.")
    if dtypes[0].kind in "iub":
        raise Unsupported(f"{op}: integers are not oneDNN's. Got {dtypes[0]}.")
    return dtypes[0]


def expect_shape(op: str, name: str, array: np.ndarray | None, shape: tuple[int, ...]) -> None:
    if array is not None and array.shape != shape:
        raise ValueError(f"{op}: {name} has the wrong shape. Got {array.shape}; expected {shape}.")


def not_empty(op: str, *shapes: tuple[int, ...]) -> None:
    if any(0 in shape for shape in shapes):
        raise Unsupported(f"{op}: empty arrays are the caller's. Got shapes {', '.join(map(str, shapes))}.")


def check_conv(
    op: str, x_shape: _Ints, w_shape: _Ints, stride: _Ints, padding: Padding, dilation: _Ints, groups: int
) -> Window:
    """The window of a convolution of (N, C, spatial...) with (O, C/groups, kernel...)."""
    if len(x_shape) < 3 or len(w_shape) != len(x_shape):
        raise ValueError(
            f"{op}: bad ranks. Got x of shape {x_shape}, w of shape {w_shape}; expected (N, C, spatial...) and "
            "(O, C/groups, kernel...)."
        )
    if groups < 1 or x_shape[1] % groups or w_shape[0] % groups or w_shape[1] * groups != x_shape[1]:
        raise ValueError(
            f"{op}: channels do not fit. Got x of shape {x_shape}, w of shape {w_shape}, {groups} groups; expected "
            "w.shape[1] * groups == x.shape[1] and w.shape[0] divisible by groups."
        )
    not_empty(op, x_shape, w_shape)
    return window_of(op, len(x_shape) - 2, stride, padding, dilation)
