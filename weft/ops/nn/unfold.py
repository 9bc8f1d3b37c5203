"""Unfold and fold (im2col and col2im), and pixel shuffle."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...errors import format_shape
from ...runtime import memory
from ...tensor import Tensor
from ...typing import ShapeLike
from ..array.shaping import permute_dims, reshape, squeeze
from ..core.define import composite, primitive
from ..core.samples import Bad, Sample
from ..core.spec import Spec, check_size, same_size
from .pool.primitives import fold_batch
from .window import Sizes, Window, check_window, per_axis, unfold_window
from .window_arrays import batched, offsets, padded_last, sized_gradient, spatial_size, unpadded, windows


def _check(window: Any, axes: int | None) -> None:
    check_window("unfold", window, axes)
    if window.ceil_mode:
        raise ValueError(f"unfold: there is no ceil mode. Got {window}.")


def _upgrade(attrs: tuple[Any, ...]) -> Window:
    """From (kernel, dilation, padding, stride), the attributes before version 2."""
    kernel, dilation, padding, stride = attrs
    return Window(kernel, stride, padding, dilation)


def _infer_columns(x: Any, window: Any) -> Spec:
    _check(window, None if x.shape is None else max(len(x.shape) - 2, 0))
    if x.shape is None:
        return Spec((None, None, None), x.dtype)
    sizes = window.out_sizes("unfold", x.shape[2:])
    channels = x.shape[1]
    return Spec(
        (
            x.shape[0],
            channels * window.positions if isinstance(channels, int) else None,
            None if None in sizes else prod(sizes),
        ),
        x.dtype,
    )


def _columns_reference(x: Any, window: Window) -> np.ndarray:
    xp = np.pad(x, ((0, 0), (0, 0), *window.padding))
    starts = [range(0, n - r + 1, t) for n, r, t in zip(xp.shape[2:], window.reach, window.stride, strict=True)]
    columns = []
    for start in np.stack(np.meshgrid(*starts, indexing="ij"), -1).reshape(-1, window.axes):
        cut = tuple(slice(s, s + r, d) for s, r, d in zip(start, window.reach, window.dilation, strict=True))
        columns.append(xp[(slice(None), slice(None), *cut)].reshape(x.shape[0], -1))
    return np.stack(columns, -1)


_CASES = [
    ((2, 3, 5, 6), Window((2, 3), (2, 1), ((0, 0), (1, 1)), (1, 1))),
    ((1, 2, 6, 6), Window((2, 2), (1, 2), ((1, 1), (0, 0)), (2, 1))),
    ((2, 2, 7), Window((3,), (2,), ((1, 1),), (1,))),
]


@primitive(
    version=2,
    upgrade=lambda version, inputs, attrs: (_upgrade(attrs),),
    accumulate="exact",
    checks_once=True,
    cost="move",
    infer=_infer_columns,
    vjp=lambda g, like_x, window: sized_gradient(unfold_backward, (g,), like_x, (window,)),
    batch=fold_batch(lambda: unfold_windows),
    namespace="internal",
    reference=_columns_reference,
    samples=lambda m: [Sample(m.normal(*shape), window) for shape, window in _CASES],
)
def unfold_windows(x: Tensor, window: Window) -> Any:
    """(N, C, *spatial) as (N, C·K, L): the L windows as columns. The primitive behind `unfold`."""
    sizes = window.out_sizes("unfold", x.shape[2:])
    view = windows(padded_last(x, window, sizes), window, sizes)
    n = window.axes
    columns = view.transpose(0, 2 * n + 1, *range(n + 1, 2 * n + 1), *range(1, n + 1))
    return columns.astype(x.dtype, order="C").reshape(x.shape[0], x.shape[1] * window.positions, prod(sizes))


def _infer_image(g: Any, like: Any, size: Any, window: Any) -> Spec:
    spatial = spatial_size(like, size)
    _check(window, len(spatial))
    places = window.positions
    if g.shape is None:
        return Spec((None, None, *spatial), g.dtype)
    # Checked here and not in `fold`: a declared graph may only know these sizes at run time, and kernels rely on them.
    sizes = window.out_sizes("fold", spatial)
    if len(g.shape) != 3 or isinstance(g.shape[1], int) and g.shape[1] % places:
        raise ValueError(
            f"fold: x does not fit the kernel. Got x of shape {format_shape(g.shape)}; the channels must be a multiple of "
            f"{places}."
        )
    if None not in sizes and not same_size(g.shape[2], prod(sizes)):
        raise ValueError(
            f"fold: x does not fit the output size. Got {g.shape[2]} columns in x of shape {format_shape(g.shape)}; "
            f"expected {prod(sizes)} columns for output_size={spatial}."
        )
    channels = g.shape[1] // places if isinstance(g.shape[1], int) else None
    return Spec((g.shape[0], channels, *spatial), g.dtype)


def _image_reference(g: Any, like: Any, size: Any, window: Window) -> np.ndarray:
    size = spatial_size(like, size)
    channels = g.shape[1] // window.positions
    shape = (1, channels, *size)
    places = np.arange(1, int(np.prod(shape)) + 1).reshape(shape)  # 0 is the padding
    columns = _columns_reference(places, window)[0]
    out = np.zeros((g.shape[0], int(np.prod(shape)) + 1))
    for i in range(g.shape[0]):
        np.add.at(out[i], columns, g[i])
    return out[:, 1:].reshape(g.shape[0], channels, *size)


def _columns_shape(shape: Any, window: Any) -> Any:
    return _infer_columns(Spec(shape, np.dtype(np.float64)), window).shape


@primitive(
    version=2,
    upgrade=lambda version, inputs, attrs: (attrs[0], _upgrade(attrs[1:])),
    checks_once=True,
    cost="reduce",
    infer=_infer_image,
    vjp=(lambda g, window: unfold_windows(g, window), None),
    batch=fold_batch(lambda: unfold_backward),
    namespace="internal",
    reference=_image_reference,
    samples=lambda m: [Sample(m.normal(*_columns_shape(s, w)), None, s[2:], w) for s, w in _CASES],
    test={"differentiable_inputs": (0,)},
)
def unfold_backward(g: Tensor, like: Tensor | None, size: Sizes | None, window: Window) -> Any:
    """(N, C·K, L) back to (N, C, *size): columns added up where they came from. The primitive behind `fold`."""
    spatial = spatial_size(like, size)
    channels, sizes = g.shape[1] // window.positions, window.counts(spatial)
    columns = g.reshape(g.shape[0], channels, *window.kernel, *sizes)
    xp = memory.zeros((g.shape[0], *window.padded_sizes(spatial, sizes), channels), g.dtype)
    for place, slices in offsets(window, sizes):
        xp[(slice(None), *slices)] += np.moveaxis(columns[(slice(None), slice(None), *place)], 1, -1)  # type: ignore[type-var]
    return unpadded(xp, window, spatial, g.dtype)


def _many(value: Any, n: int) -> tuple[int, ...]:
    return (value,) * n if isinstance(value, int) else tuple(value)


def _reference_window(kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Window:
    kernel, dilations, pads, strides = (_many(v, 2) for v in (kernel_size, dilation, padding, stride))
    return Window(kernel, strides, tuple((p, p) for p in pads), dilations)


def _unfold_reference(x: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> np.ndarray:
    window = _reference_window(kernel_size, dilation, padding, stride)
    y = _columns_reference(x if x.ndim == 4 else x[None], window)
    return y if x.ndim == 4 else y[0]


@composite(
    namespace="nn",
    reference=_unfold_reference,
    samples=lambda m: [
        Sample(m.normal(2, 3, 5, 4), (2, 3)),
        Sample(m.normal(3, 6, 6), 3, padding=1, stride=2, dilation=2),
    ],
    errors=lambda m: [
        Bad(ValueError, "unfold: the kernel is larger", m.normal(2, 3, 5, 4), 6),
        Bad(ValueError, "unfold: expected x of shape", m.normal(2, 3), 1),
        Bad(ValueError, "unfold: kernel_size must be at least 1", m.normal(2, 3, 5, 4), 0),
    ],
)
def unfold(
    x: Tensor, kernel_size: ShapeLike, dilation: ShapeLike = 1, padding: ShapeLike = 0, stride: ShapeLike = 1
) -> Tensor:
    """The windows of an image as columns: (N, C, H, W) as (N, C·KH·KW, L), one column per window.

    >>> F.unfold(wf.ones(1, 2, 5, 5), 3).shape
    (1, 18, 9)
    """
    x, single = batched("unfold", x, 2)
    y = unfold_windows(x, unfold_window("unfold", kernel_size, stride, padding, dilation))
    return squeeze(y, 0) if single else y


def _fold_reference(
    x: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> np.ndarray:
    window = _reference_window(kernel_size, dilation, padding, stride)
    y = _image_reference(x if x.ndim == 3 else x[None], None, _many(output_size, 2), window)
    return y if x.ndim == 3 else y[0]


@composite(
    namespace="nn",
    reference=_fold_reference,
    samples=lambda m: [
        Sample(m.normal(2, 12, 12), (4, 5), (2, 2)),
        Sample(m.normal(8, 9), 6, 2, stride=2),
        Sample(m.normal(1, 8, 16), 6, 2, padding=1, stride=2),
    ],
    errors=lambda m: [
        Bad(ValueError, "fold: .*channels must be a multiple of 4", m.normal(2, 10, 12), (4, 5), 2),
        Bad(ValueError, "fold: .*expected 12 columns", m.normal(2, 8, 11), (4, 5), 2),
        Bad(ValueError, "fold: expected x of shape", m.normal(2, 8, 11, 2), (4, 5), 2),
    ],
)
def fold(
    x: Tensor,
    output_size: ShapeLike,
    kernel_size: ShapeLike,
    dilation: ShapeLike = 1,
    padding: ShapeLike = 0,
    stride: ShapeLike = 1,
) -> Tensor:
    """The transpose of `unfold`: (N, C·KH·KW, L) to (N, C, *output_size), overlapping windows added up.

    >>> F.fold(wf.ones(1, 18, 9), (5, 5), 3).shape
    (1, 2, 5, 5)
    """
    if x.ndim not in (2, 3):
        raise ValueError(f"fold: expected x of shape (batch, channels · kernel, windows). Got {format_shape(x.shape)}.")
    single = x.ndim == 2
    if single:
        x = reshape(x, (1, *x.shape))
    size = per_axis("fold", output_size, 2, "output_size", 1)
    window = unfold_window("fold", kernel_size, stride, padding, dilation)
    y = unfold_backward(x, None, size, window)
    return squeeze(y, 0) if single else y


# Pixel shuffle -------------------------------------------------------------------------------------------------------


def _shuffle_reference(x: Any, upscale_factor: int) -> np.ndarray:
    r = upscale_factor
    out = np.empty((*x.shape[:-3], x.shape[-3] // r**2, x.shape[-2] * r, x.shape[-1] * r))
    for i in range(r):
        for j in range(r):
            out[..., i::r, j::r] = x[..., i * r + j :: r * r, :, :]
    return out


@composite(
    namespace="nn",
    reference=_shuffle_reference,
    samples=lambda m: [
        Sample(m.normal(2, 8, 2, 3), 2),
        Sample(m.normal(9, 2, 2), 3),
        Sample(m.normal(2, 1, 4, 2, 2), 2),
    ],
    errors=lambda m: [
        Bad(ValueError, "pixel_shuffle: the channels must be a multiple of 4", m.normal(2, 6, 2, 2), 2),
        Bad(ValueError, "pixel_shuffle: expected at least 3 axes", m.normal(6, 2), 2),
    ],
)
def pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    """Channels into space: (…, C·r², H, W) as (…, C, H·r, W·r).

    >>> F.pixel_shuffle(wf.ones(1, 12, 4, 4), 2).shape
    (1, 3, 8, 8)
    """
    r = check_size("pixel_shuffle", upscale_factor, "upscale_factor", 1)
    if x.ndim < 3:
        raise ValueError(
            f"pixel_shuffle: expected at least 3 axes, (…, channels, height, width). Got {format_shape(x.shape)}."
        )
    *lead, c, h, w = x.shape
    if c % (r * r):
        raise ValueError(
            f"pixel_shuffle: the channels must be a multiple of {r * r}. Got {c} in shape {format_shape(x.shape)}."
        )
    n = len(lead)
    y = reshape(x, (*lead, c // (r * r), r, r, h, w))
    y = permute_dims(y, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return reshape(y, (*lead, c // (r * r), h * r, w * r))


def _unshuffle_reference(x: Any, downscale_factor: int) -> np.ndarray:
    r = downscale_factor
    parts = [x[..., c : c + 1, i::r, j::r] for c in range(x.shape[-3]) for i in range(r) for j in range(r)]
    return np.concatenate(parts, -3)


@composite(
    namespace="nn",
    reference=_unshuffle_reference,
    samples=lambda m: [Sample(m.normal(2, 2, 4, 6), 2), Sample(m.normal(1, 6, 3), 3)],
    errors=lambda m: [
        Bad(ValueError, "pixel_unshuffle: height and width must be multiples of 2", m.normal(2, 2, 3, 4), 2)
    ],
)
def pixel_unshuffle(x: Tensor, downscale_factor: int) -> Tensor:
    """Space into channels, the inverse of `pixel_shuffle`: (…, C, H·r, W·r) as (…, C·r², H, W)."""
    r = check_size("pixel_unshuffle", downscale_factor, "downscale_factor", 1)
    if x.ndim < 3:
        raise ValueError(
            f"pixel_unshuffle: expected at least 3 axes, (…, channels, height, width). Got {format_shape(x.shape)}."
        )
    *lead, c, h, w = x.shape
    if h % r or w % r:
        raise ValueError(
            f"pixel_unshuffle: height and width must be multiples of {r}. Got shape {format_shape(x.shape)}."
        )
    n = len(lead)
    y = reshape(x, (*lead, c, h // r, r, w // r, r))
    y = permute_dims(y, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return reshape(y, (*lead, c * r * r, h // r, w // r))
