"""Shape and dtype rules shared by the image functions (convolution, pooling)."""

from __future__ import annotations

import numpy as np

from ....ops.nn.window import Window
from ..capi import Unsupported

_Ints = tuple[int, ...]


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


def check_conv(op: str, x_shape: _Ints, w_shape: _Ints, window: Window, groups: int) -> None:
    """Raise unless (N, C, spatial...) can be convolved with (O, C/groups, kernel...)."""
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
    if window.kernel != w_shape[2:]:
        raise ValueError(f"{op}: bad kernel. Got {window} and w of shape {w_shape}; expected the kernel of w.")
