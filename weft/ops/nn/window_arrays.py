"""Helpers of the NumPy kernels of convolution, pooling and unfold: padded copies, views of windows, gradient rules.

Images are (N, C, *spatial) arrays of any strides. The NumPy kernels work on (N, *spatial, C) copies and return arrays
with channels-last strides, so the layout does not depend on which kernel ran.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...errors import format_shape
from ...runtime import memory
from ...tensor import Tensor
from ..core.spec import is_known
from .window import Window

CHUNK_BYTES = 1 << 25  # of copied windows per matrix product


# Tensors -------------------------------------------------------------------------------------------------------------


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


def sized_gradient(op: Any, given: tuple[Any, ...], like: Any, attrs: tuple[Any, ...]) -> Tensor:
    """Call a backward op with the spatial sizes of `like` if they are known, else with `like` itself."""
    if is_known(like.shape[2:]):
        return op(*given, None, tuple(like.shape[2:]), *attrs)
    from ..array.shaping import as_tensor

    return op(*given, as_tensor(like), None, *attrs)


def spatial_size(like: Any, size: Any) -> tuple[Any, ...]:
    """The spatial sizes that a backward op is to produce: `size`, or those of `like`."""
    return tuple(like.shape[2:] if size is None else size)


# Arrays --------------------------------------------------------------------------------------------------------------


def compute_dtype(dtype: np.dtype) -> np.dtype:
    """Half precision is computed in float32."""
    from ... import dtypes

    return np.dtype(np.float32) if dtype.itemsize == 2 and dtypes.is_floating(dtype) else dtype


def channels_last(x: Any) -> np.ndarray:
    """(N, C, *spatial) as a contiguous (N, *spatial, C) array, at least float32."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1), compute_dtype(x.dtype))


def padded_last(x: Any, window: Window, out: Sequence[int], fill: Any = 0) -> np.ndarray:
    """`channels_last` with the padding that `out` windows need."""
    size = x.shape[2:]
    padded = window.padded_sizes(size, out)
    if padded == size:
        return channels_last(x)
    shape, dtype = (x.shape[0], *padded, x.shape[1]), compute_dtype(x.dtype)
    if fill == 0:
        made = memory.zeros(shape, dtype)
    else:
        made = memory.empty(shape, dtype)
        made.fill(fill)
    made[_inside(window, size)] = np.moveaxis(x, 1, -1)
    return made


def _inside(window: Window, size: Sequence[int]) -> tuple[slice, ...]:
    """Where the image is in a padded (N, *spatial, C) array."""
    return (slice(None), *[slice(low, low + s) for s, low in zip(size, window.before, strict=True)])


def unpadded(xp: np.ndarray, window: Window, size: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """The inside of a padded (N, *spatial, C) array as (N, C, *size) with channels-last strides."""
    part = xp[_inside(window, size)]
    if part.dtype == dtype and part.flags.c_contiguous:
        return np.moveaxis(part, -1, 1)
    out = memory.empty(part.shape, dtype)
    np.copyto(out, part, casting="unsafe")
    return np.moveaxis(out, -1, 1)


def windows(xp: np.ndarray, window: Window, out: Sequence[int]) -> np.ndarray:
    """A read-only view (N, *out, *kernel, C) of the windows of a padded (N, *spatial, C) array."""
    steps = xp.strides[1:-1]
    return np.lib.stride_tricks.as_strided(
        xp,
        (xp.shape[0], *out, *window.kernel, xp.shape[-1]),
        (
            xp.strides[0],
            *[s * t for s, t in zip(steps, window.stride, strict=True)],
            *[s * t for s, t in zip(steps, window.dilation, strict=True)],
            xp.strides[-1],
        ),
        writeable=False,
    )


def offsets(window: Window, out: Sequence[int]) -> Iterator[tuple[Any, Any]]:
    """For each kernel position: the position, and the slices of the padded spatial axes that it reads."""
    for place in itertools.product(*[range(k) for k in window.kernel]):
        yield (
            place,
            tuple(
                [
                    slice(p * d, p * d + t * (n - 1) + 1, t)
                    for p, d, t, n in zip(place, window.dilation, window.stride, out, strict=True)
                ]
            ),
        )


def images_per_chunk(per_image: int) -> int:
    return max(1, CHUNK_BYTES // max(per_image, 1))
