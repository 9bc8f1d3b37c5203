"""Helpers shared by convolution, pooling and unfold: per-axis arguments, output sizes, window views.

Images are (N, C, *spatial) arrays of any strides. The NumPy kernels work on (N, *spatial, C) copies and return arrays
with channels-last strides, so the layout does not depend on which kernel ran.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...errors import format_shape
from ...runtime import memory
from ...tensor import Tensor

Pairs = tuple[tuple[int, int], ...]
MAX_WINDOW_ARGUMENT = 2**31 - 1  # of any stride, padding, dilation or kernel size
CHUNK_BYTES = 1 << 25  # of copied windows per matrix product


# Arguments -----------------------------------------------------------------------------------------------------------


def per_axis(op: str, value: Any, count: int, name: str, least: int) -> tuple[int, ...]:
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
        if bool in map(type, items):
            raise TypeError
        sizes = tuple([operator.index(v) for v in items])
    except TypeError:
        raise TypeError(f"{op}: {name} must be an integer or {count} of them. Got {value!r}.") from None
    if any(v < least for v in sizes):
        raise ValueError(f"{op}: {name} must be at least {least}. Got {value!r}.")
    if any(v > MAX_WINDOW_ARGUMENT for v in sizes):
        raise ValueError(f"{op}: {name} must be at most {MAX_WINDOW_ARGUMENT}. Got {value!r}.")
    return sizes


def same_padding(kernel: tuple[int, ...], dilation: tuple[int, ...]) -> Pairs:
    """Padding under which a stride of 1 keeps the size; an odd total puts the extra one after."""
    total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return tuple([(t // 2, t - t // 2) for t in total])


def pad_pairs(op: str, padding: Any, count: int) -> Pairs:
    """`padding` (a number, one per axis, or (before, after) per axis) as pairs."""
    if isinstance(padding, (tuple, list)) and any(isinstance(p, (tuple, list)) for p in padding):
        if len(padding) != count or any(not isinstance(p, (tuple, list)) or len(p) != 2 for p in padding):
            raise ValueError(
                f"{op}: padding must be {count} pairs (before, after), one per spatial axis. Got {padding!r}."
            )
        return tuple([per_axis(op, p, 2, "padding", 0) for p in padding])  # type: ignore[misc]
    return tuple([(p, p) for p in per_axis(op, padding, count, "padding", 0)])


def batched(op: str, x: Tensor, spatial: int) -> tuple[Tensor, bool]:
    """`x` as (N, C, *spatial), and whether the caller has to take a new first axis away again."""
    if x.ndim == spatial + 1:
        from ..array.shaping import expand_dims

        return expand_dims(x, 0), True
    if x.ndim != spatial + 2:
        axes = ", ".join(["length"] if spatial == 1 else ["depth", "height", "width"][3 - spatial :])
        raise ValueError(
            f"{op}: expected x of shape (batch, channels, {axes}) or (channels, {axes}). Got {format_shape(x.shape)}, "
            f"which has {x.ndim} axes."
        )
    return x, False


# Sizes ---------------------------------------------------------------------------------------------------------------


def out_size(size: Any, pad: tuple[int, int], kernel: int, stride: int, dilation: int, ceil: bool = False) -> Any:
    """How many windows fit along one axis; None if the size is unknown, 0 or less if none fits.

    Every window op calls this before it creates strided views, so out-of-bounds windows are rejected here.
    """
    if not isinstance(size, (int, np.integer)):
        return None
    if kernel < 1 or stride < 1 or dilation < 1 or pad[0] < 0 or pad[1] < 0:
        raise ValueError(
            f"windows: expected a kernel, stride and dilation of at least 1 and padding of at least 0. "
            f"Got kernel {kernel}, stride {stride}, dilation {dilation} and padding {pad}."
        )
    if max(kernel, stride, dilation, *pad) > MAX_WINDOW_ARGUMENT:
        raise ValueError(
            f"windows: expected a kernel, stride, dilation and padding of at most {MAX_WINDOW_ARGUMENT}. "
            f"Got kernel {kernel}, stride {stride}, dilation {dilation} and padding {pad}."
        )
    span = int(size) + pad[0] + pad[1] - dilation * (kernel - 1) - 1
    if span < 0:
        return 0
    if not ceil:
        return span // stride + 1
    count = -(-span // stride) + 1
    if (count - 1) * stride >= size + pad[0]:  # the last window must start in the input or its left padding
        count -= 1
    return count


def out_sizes(
    op: str, x: Any, kernel: Any, stride: Any, padding: Pairs, dilation: Any, ceil: bool = False, hint: str = ""
) -> tuple[Any, ...]:
    """The spatial sizes of the result; an error if no window fits."""
    spatial = x.shape[2:]
    sizes = tuple([out_size(*item, ceil) for item in zip(spatial, padding, kernel, stride, dilation, strict=True)])
    if any(s is not None and s < 1 for s in sizes):
        reach = tuple([d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)])
        padded = tuple([s if s is None else s + lo + hi for s, (lo, hi) in zip(spatial, padding, strict=True)])
        raise ValueError(
            f"{op}: the kernel is larger than the padded input. Got a kernel that reaches over {format_shape(reach)} and "
            f"an input of spatial size {format_shape(spatial)}, {format_shape(padded)} with padding; expected the kernel to fit. "
            f"{hint or 'Use a larger input, more padding or a smaller kernel or dilation.'}"
        )
    return sizes


# Arrays --------------------------------------------------------------------------------------------------------------


def compute_dtype(dtype: np.dtype) -> np.dtype:
    """Half precision is computed in float32."""
    from ... import dtypes

    return np.dtype(np.float32) if dtype.itemsize == 2 and dtypes.is_floating(dtype) else dtype


def padded_last(x: np.ndarray, padding: Pairs, extra: tuple[int, ...] | None = None, fill: Any = 0) -> np.ndarray:
    """(N, C, *spatial) as a contiguous (N, *padded, C) array, at least float32; `extra`: more padding at the end."""
    moved = np.moveaxis(x, 1, -1)
    dtype = compute_dtype(x.dtype)
    if not any(lo or hi for lo, hi in padding) and not (extra and any(extra)):
        return np.ascontiguousarray(moved, dtype)
    after = extra or (0,) * len(padding)
    sizes = [s + lo + hi + e for s, (lo, hi), e in zip(x.shape[2:], padding, after, strict=True)]
    shape = (x.shape[0], *sizes, x.shape[1])
    if fill == 0:
        out = memory.zeros(shape, dtype)
    else:
        out = memory.empty(shape, dtype)
        out.fill(fill)
    inner = tuple([slice(lo, lo + s) for s, (lo, _) in zip(x.shape[2:], padding, strict=True)])
    out[(slice(None), *inner)] = moved
    return out


def windows(xp: np.ndarray, kernel: Any, stride: Any, dilation: Any, out: Any) -> np.ndarray:
    """A read-only view (N, *out, *kernel, C) of the windows of a padded (N, *spatial, C) array."""
    steps = xp.strides[1:-1]
    return np.lib.stride_tricks.as_strided(
        xp,
        (xp.shape[0], *out, *kernel, xp.shape[-1]),
        (
            xp.strides[0],
            *[s * t for s, t in zip(steps, stride, strict=True)],
            *[s * t for s, t in zip(steps, dilation, strict=True)],
            xp.strides[-1],
        ),
        writeable=False,
    )


def offsets(kernel: Any, stride: Any, dilation: Any, out: Any) -> Iterator[tuple[Any, Any]]:
    """For each kernel position: the position, and the slices of the padded spatial axes that it reads."""
    for place in itertools.product(*[range(k) for k in kernel]):
        yield (
            place,
            tuple(
                [
                    slice(p * d, p * d + t * (n - 1) + 1, t)
                    for p, d, t, n in zip(place, dilation, stride, out, strict=True)
                ]
            ),
        )


def unpadded(xp: np.ndarray, padding: Pairs, size: Any, dtype: np.dtype) -> np.ndarray:
    """The inside of a padded (N, *spatial, C) array as (N, C, *size) with channels-last strides."""
    inner = tuple([slice(lo, lo + s) for s, (lo, _) in zip(size, padding, strict=True)])
    part = xp[(slice(None), *inner)]
    if part.dtype == dtype and part.flags.c_contiguous:
        return np.moveaxis(part, -1, 1)
    out = memory.empty(part.shape, dtype)
    np.copyto(out, part, casting="unsafe")
    return np.moveaxis(out, -1, 1)


def images_per_chunk(per_image: int) -> int:
    return max(1, CHUNK_BYTES // max(per_image, 1))
