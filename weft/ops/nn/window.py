"""The sliding window of convolution, pooling and unfold as one value: its sizes, its padding in ceil mode, its checks.

`Window` is what internal ops, rules and kernels take. `convolution_window`, `pooling_window` and `unfold_window` make one
from the arguments of public functions and name the function in their errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ...errors import format_shape
from ..core.attributes import attribute_value
from ..core.spec import as_integer, only_integers

Sizes = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]
MAX_WINDOW_ARGUMENT = 2**31 - 1  # of any stride, padding, dilation or kernel size
MAX_AXES = 3


@attribute_value("window")
@dataclass(frozen=True, slots=True)
class Window:
    """A sliding window over one to three spatial axes.

    Every instance is valid: kernels may build strided views from it without further checks.

    Args:
        kernel: its size, per axis.
        stride: the distance between two windows, per axis.
        padding: (before, after) per axis.
        dilation: the distance between two elements of a window, per axis.
        ceil_mode: whether a last window may reach beyond the padded input; it starts in the input or its left padding.

    Raises:
        TypeError: a field is not a tuple of integers (of pairs for `padding`).
        ValueError: the fields have different lengths, or a number is out of range.
    """

    kernel: Sizes
    stride: Sizes
    padding: Pairs
    dilation: Sizes
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        n = len(self.kernel) if self.kernel.__class__ is tuple else 0
        if not 1 <= n <= MAX_AXES:
            raise ValueError(f"window: the kernel must be a tuple of 1 to {MAX_AXES} sizes. Got {self.kernel!r}.")
        for name, least in (("kernel", 1), ("stride", 1), ("dilation", 1)):
            _check_numbers(name, getattr(self, name), n, least)
        if self.padding.__class__ is not tuple or len(self.padding) != n:
            raise ValueError(f"window: padding must be {n} pairs (before, after). Got {self.padding!r}.")
        for pair in self.padding:
            _check_numbers("padding", pair, 2, 0)
        if self.ceil_mode.__class__ is not bool:
            raise TypeError(f"window: ceil_mode must be a bool. Got {self.ceil_mode!r}.")

    @property
    def axes(self) -> int:
        """The number of spatial axes."""
        return len(self.kernel)

    @property
    def positions(self) -> int:
        """The number of elements of one window."""
        return prod(self.kernel)

    @property
    def reach(self) -> Sizes:
        """From the first to the last element of one window, per axis."""
        return tuple([d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True)])

    @property
    def before(self) -> Sizes:
        """The padding in front, per axis."""
        return tuple([low for low, _ in self.padding])

    @property
    def padded(self) -> bool:
        return any(low or high for low, high in self.padding)

    @property
    def dilated(self) -> bool:
        return any(d != 1 for d in self.dilation)

    def counts(self, spatial: Sequence[Any]) -> tuple[Any, ...]:
        """How many windows fit along each axis; None if a size is unknown, 0 if none fits."""
        found: list[Any] = []
        for size, reach, stride, (low, high) in zip(spatial, self.reach, self.stride, self.padding, strict=True):
            if not isinstance(size, (int, np.integer)):
                found.append(None)
                continue
            span = int(size) + low + high - reach
            if span < 0:
                found.append(0)
            elif not self.ceil_mode:
                found.append(span // stride + 1)
            else:
                count = -(-span // stride) + 1
                found.append(count - (bool((count - 1) * stride >= size + low)))
        return tuple(found)

    def out_sizes(self, op: str, spatial: Sequence[Any]) -> tuple[Any, ...]:
        """`counts`; raises ValueError in the name of `op` if the kernel does not fit even once."""
        sizes = self.counts(spatial)
        if any(s is not None and s < 1 for s in sizes):
            padded = tuple([s if s is None else s + lo + hi for s, (lo, hi) in zip(spatial, self.padding, strict=True)])
            raise ValueError(
                f"{op}: the kernel is larger than the padded input. Got a kernel that reaches over "
                f"{format_shape(self.reach)} and an input of spatial size {format_shape(tuple(spatial))}, "
                f"{format_shape(padded)} with padding; expected the kernel to fit. "
                f"Use a larger input, more padding or a smaller kernel or dilation."
            )
        return sizes

    def overhang(self, spatial: Sequence[int], out: Sequence[int]) -> Sizes:
        """How far the last of `out` windows reaches beyond the padded input, per axis: more than 0 in ceil mode only."""
        return tuple(
            [
                max(0, (n - 1) * stride + reach - (size + low + high))
                for size, n, reach, stride, (low, high) in zip(
                    spatial, out, self.reach, self.stride, self.padding, strict=True
                )
            ]
        )

    def padded_sizes(self, spatial: Sequence[int], out: Sequence[int]) -> Sizes:
        """The input's sizes with its padding and the overhang of `out` windows."""
        extra = self.overhang(spatial, out)
        return tuple([s + low + high + e for s, (low, high), e in zip(spatial, self.padding, extra, strict=True)])

    def covering(self, spatial: Sequence[int], out: Sequence[int] | None = None) -> Window:
        """The same windows without ceil mode: the overhang of the last ones becomes padding."""
        if not self.ceil_mode:
            return self
        extra = self.overhang(spatial, self.counts(spatial) if out is None else out)
        pads = tuple([(low, high + e) for (low, high), e in zip(self.padding, extra, strict=True)])
        return replace(self, padding=pads, ceil_mode=False)

    def transposed_sizes(self, spatial: Sequence[int], output_padding: Sequence[int]) -> Sizes:
        """The sizes that a transposed convolution makes of `spatial`: those that these windows reduce to `spatial`."""
        return tuple(
            [
                (n - 1) * stride - low - high + reach + extra
                for n, reach, stride, (low, high), extra in zip(
                    spatial, self.reach, self.stride, self.padding, output_padding, strict=True
                )
            ]
        )


def _check_numbers(name: str, values: Any, count: int, least: int) -> None:
    if values.__class__ is not tuple or any(v.__class__ is not int for v in values):
        raise TypeError(f"window: {name} must be a tuple of integers. Got {values!r}.")
    if len(values) != count:
        raise ValueError(f"window: {name} must be {count} numbers. Got {values!r}.")
    if min(values) < least or max(values) > MAX_WINDOW_ARGUMENT:
        raise ValueError(f"window: {name} must be at least {least} and at most {MAX_WINDOW_ARGUMENT}. Got {values!r}.")


def check_window(op: str, window: Any, axes: int | None = None) -> None:
    """Raise unless `window` is a Window, over this many axes if that is known."""
    if window.__class__ is not Window:
        raise TypeError(f"{op}: expected a Window. Got {window!r}.")
    if axes is not None and window.axes != axes:
        raise ValueError(f"{op}: expected a window over {axes} spatial axes. Got {window}.")


# From the arguments of public functions --------------------------------------------------------------------------------


def per_axis(op: str, value: Any, count: int, name: str, least: int) -> Sizes:
    """`value` (a number, or one per spatial axis) as `count` ints of at least `least`."""
    if isinstance(value, (tuple, list)):
        if len(value) == 1:
            value = tuple(value) * count
        if len(value) != count:
            raise ValueError(f"{op}: {name} must be a number or {count} numbers, one per spatial axis. Got {value!r}.")
        items = tuple(value)
    else:
        items = (value,) * count
    try:
        sizes = tuple([as_integer(v) for v in items])
    except TypeError:
        several = "an integer" if count == 1 else f"an integer or {count} of them"
        raise TypeError(f"{op}: {name} must be {several}. Got {value!r}.") from None
    if any(v < least for v in sizes):
        raise ValueError(f"{op}: {name} must be at least {least}. Got {value!r}.")
    if any(v > MAX_WINDOW_ARGUMENT for v in sizes):
        raise ValueError(f"{op}: {name} must be at most {MAX_WINDOW_ARGUMENT}. Got {value!r}.")
    return sizes


def pad_pairs(op: str, padding: Any, count: int) -> Pairs:
    """`padding` (a number, one per axis, or (before, after) per axis) as pairs."""
    if isinstance(padding, (tuple, list)) and any(isinstance(p, (tuple, list)) for p in padding):
        if len(padding) != count or any(not isinstance(p, (tuple, list)) or len(p) != 2 for p in padding):
            raise ValueError(
                f"{op}: padding must be {count} pairs (before, after), one per spatial axis. Got {padding!r}."
            )
        return tuple([per_axis(op, p, 2, "padding", 0) for p in padding])  # type: ignore[misc]
    return tuple([(p, p) for p in per_axis(op, padding, count, "padding", 0)])


def same_padding(kernel: Sizes, dilation: Sizes) -> Pairs:
    """Padding under which a stride of 1 keeps the size; an odd total puts the extra one after."""
    total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return tuple([(t // 2, t - t // 2) for t in total])


def _remembered(make: Callable[..., Window]) -> Callable[..., Window]:
    """`make` with a cache for arguments of ints, strings and tuples of them.

    Others are parsed in every call: True equals 1 and 1.0 equals 1, but neither is a valid stride.
    """
    cached = lru_cache(1024)(make)

    def parsed(*arguments: Any) -> Window:
        for value in arguments:
            if value.__class__ is not int and value.__class__ is not str and not only_integers(value):
                return make(*arguments)
        return cached(*arguments)

    return parsed


@_remembered
def convolution_window(op: str, kernel: Sizes, stride: Any, padding: Any, dilation: Any) -> Window:
    """The window of a convolution with a weight of this kernel size; `padding` may be "same" or "valid"."""
    n = len(kernel)
    if 0 in kernel:
        raise ValueError(f"{op}: the kernel is empty. Got a weight of kernel size {format_shape(kernel)}.")
    strides = per_axis(op, stride, n, "stride", 1)
    dilations = per_axis(op, dilation, n, "dilation", 1)
    if not isinstance(padding, str):
        pads = pad_pairs(op, padding, n)
    elif padding == "valid":
        pads = ((0, 0),) * n
    elif padding != "same":
        raise ValueError(f"{op}: padding must be a number, numbers, 'same' or 'valid'. Got {padding!r}.")
    elif any(s != 1 for s in strides):
        raise ValueError(
            f"{op}: padding='same' needs a stride of 1. Got stride={stride!r}; pass the padding as numbers."
        )
    else:
        pads = same_padding(kernel, dilations)
    return Window(kernel, strides, pads, dilations)


@_remembered
def pooling_window(
    op: str, n: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, rounding: str
) -> Window:
    """The window of a pooling function over `n` axes; the stride is the kernel size unless given.

    `rounding` is "ceil" for ceil mode, else "floor".
    """
    kernel = per_axis(op, kernel_size, n, "kernel_size", 1)
    strides = kernel if stride is None else per_axis(op, stride, n, "stride", 1)
    dilations = per_axis(op, dilation, n, "dilation", 1)
    pads = per_axis(op, padding, n, "padding", 0)
    window = Window(kernel, strides, tuple([(p, p) for p in pads]), dilations, rounding == "ceil")
    if any(2 * p > r for p, r in zip(pads, window.reach, strict=True)):
        raise ValueError(
            f"{op}: padding must be at most half the kernel, else windows would see nothing but padding. "
            f"Got padding={padding!r} and kernel_size={kernel_size!r}; pad with `F.pad` first."
        )
    return window


@_remembered
def unfold_window(op: str, kernel_size: Any, stride: Any, padding: Any, dilation: Any) -> Window:
    """The window of `unfold` and `fold`, over two axes."""
    return Window(
        per_axis(op, kernel_size, 2, "kernel_size", 1),
        per_axis(op, stride, 2, "stride", 1),
        pad_pairs(op, padding, 2),
        per_axis(op, dilation, 2, "dilation", 1),
    )
