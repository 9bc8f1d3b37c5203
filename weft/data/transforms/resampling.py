"""Resizing and rotating arrays (…, height, width), with the filters and the coordinates of PyTorch and Pillow.

A filter is separable: each axis is a weighted sum over a few taps per output pixel, found once per pair of sizes.
"""

from __future__ import annotations

import enum
import functools
import math
from typing import Any

import numpy as np


class InterpolationMode(enum.Enum):
    """How pixels between pixels are computed; strings such as "bilinear" serve as well."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


_PIL_NUMBERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")


def interpolation_mode(what: str, mode: Any) -> InterpolationMode:
    """The mode of a word, of Pillow's number, or of a mode."""
    try:
        if isinstance(mode, int) and not isinstance(mode, bool):
            return InterpolationMode(_PIL_NUMBERS[mode])
        return mode if isinstance(mode, InterpolationMode) else InterpolationMode(str(mode).lower())
    except (ValueError, IndexError):
        words = ", ".join(m.value for m in InterpolationMode)
        raise ValueError(f"{what}: interpolation must be one of {words}. Got {mode!r}.") from None


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(0.0, 1.0 - np.abs(x))


def _cubic(a: float, x: np.ndarray) -> np.ndarray:
    x = np.abs(x)
    inner = ((a + 2) * x - (a + 3)) * x * x + 1
    return np.where(x < 1, inner, np.where(x < 2, a * (((x - 5) * x + 8) * x - 4), 0.0))


def _box(x: np.ndarray) -> np.ndarray:
    return ((x > -0.5) & (x <= 0.5)).astype(np.float64)


def _hamming(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < 1, np.sinc(x) * (0.54 + 0.46 * np.cos(np.pi * x)), 0.0)


def _lanczos(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)


_FILTERS: dict[InterpolationMode, tuple[Any, float]] = {
    InterpolationMode.BILINEAR: (_triangle, 1.0),
    InterpolationMode.BICUBIC: (functools.partial(_cubic, -0.5), 2.0),
    InterpolationMode.BOX: (_box, 0.5),
    InterpolationMode.HAMMING: (_hamming, 1.0),
    InterpolationMode.LANCZOS: (_lanczos, 3.0),
}


@functools.lru_cache(maxsize=256)
def _taps(old: int, new: int, mode: InterpolationMode, antialias: bool) -> tuple[np.ndarray, np.ndarray]:
    """For each of `new` pixels the source pixels and their weights, both (new, taps)."""
    scale = old / new
    if mode is InterpolationMode.NEAREST:
        places = np.minimum(np.floor(np.arange(new) * scale), old - 1)
        return places.astype(np.int64)[:, None], np.ones((new, 1), np.float32)
    if mode is InterpolationMode.NEAREST_EXACT:
        places = np.minimum(np.floor((np.arange(new) + 0.5) * scale), old - 1)
        return places.astype(np.int64)[:, None], np.ones((new, 1), np.float32)
    function, support = _FILTERS[mode]
    if not antialias and mode is InterpolationMode.BICUBIC:
        function = functools.partial(
            _cubic, -0.75
        )  # the constant of PyTorch's bicubic interpolation without antialiasing
    stretch = max(scale, 1.0) if antialias else 1.0
    centre = (np.arange(new) + 0.5) * scale
    first = np.floor(centre - support * stretch).astype(np.int64)
    count = math.ceil(2 * support * stretch) + 2
    places = first[:, None] + np.arange(count)
    weights = function((places - centre[:, None] + 0.5) / stretch)
    if antialias:
        weights = np.where((places >= 0) & (places < old), weights, 0.0)
        weights /= weights.sum(axis=1, keepdims=True)
    used = (weights != 0).any(axis=0)
    return np.clip(places[:, used], 0, old - 1), weights[:, used].astype(np.float32)


def _along(array: np.ndarray, axis: int, new: int, mode: InterpolationMode, antialias: bool) -> np.ndarray:
    old = array.shape[axis]
    if old == new:
        return array
    places, weights = _taps(old, new, mode, antialias)
    shape = (-1, 1) if axis == -2 else (-1,)
    if places.shape[1] == 1:
        return np.take(array, places[:, 0], axis)
    total = np.take(array, places[:, 0], axis) * weights[:, 0].reshape(shape)
    for tap in range(1, places.shape[1]):
        total += np.take(array, places[:, tap], axis) * weights[:, tap].reshape(shape)
    return total


def resized(array: np.ndarray, size: tuple[int, int], mode: InterpolationMode, antialias: bool) -> np.ndarray:
    """An array (…, height, width) with another height and width, in the dtype of the array."""
    if mode in (InterpolationMode.NEAREST, InterpolationMode.NEAREST_EXACT):
        return _along(_along(array, -2, size[0], mode, False), -1, size[1], mode, False)
    wide = array.astype(np.float64 if array.dtype == np.float64 else np.float32, copy=False)
    found = _along(_along(wide, -1, size[1], mode, antialias), -2, size[0], mode, antialias)
    return in_dtype(found, array.dtype)


def in_dtype(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Computed pixels in the dtype of an image; integers are rounded and keep to their range."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = np.clip(np.rint(values), limits.min, limits.max)
    return values.astype(dtype, copy=False)


def rotated(
    array: np.ndarray,
    angle: float,
    mode: InterpolationMode,
    expand: bool,
    centre: tuple[float, float] | None,
    fill: Any,
) -> np.ndarray:
    """An array (…, channels, height, width) turned by `angle` degrees against the clock around `centre` (x, y)."""
    height, width = array.shape[-2:]
    turn = math.radians(angle % 360)
    cos, sin = math.cos(turn), math.sin(turn)
    x0, y0 = ((width - 1) / 2, (height - 1) / 2) if centre is None else (centre[0] - 0.5, centre[1] - 0.5)
    new_height, new_width, shift_x, shift_y = height, width, 0.0, 0.0
    if expand:
        corners = [(x - x0, y - y0) for x in (-0.5, width - 0.5) for y in (-0.5, height - 0.5)]
        across = [cos * x + sin * y for x, y in corners]
        down = [-sin * x + cos * y for x, y in corners]
        new_width, new_height = _extent(across, width / 2), _extent(down, height / 2)
        shift_x = (max(across) + min(across)) / 2 + x0 - (new_width - 1) / 2
        shift_y = (max(down) + min(down)) / 2 + y0 - (new_height - 1) / 2
    x = np.arange(new_width) + shift_x - x0
    y = (np.arange(new_height) + shift_y - y0)[:, None]
    return _sampled(array, cos * x - sin * y + x0, sin * x + cos * y + y0, mode, fill)


def _extent(places: list[float], shift: float) -> int:
    """The number of pixels that places cover, counted from the image's own edge as Pillow does.

    They are rounded first: a quarter turn must not gain a pixel from the last bit of a cosine.
    """
    return math.ceil(round(max(places) + shift, 4)) - math.floor(round(min(places) + shift, 4))


def _sampled(array: np.ndarray, x: np.ndarray, y: np.ndarray, mode: InterpolationMode, fill: Any) -> np.ndarray:
    """The pixels of an array at fractional places; `fill` outside."""
    height, width = array.shape[-2:]
    fill = np.asarray(fill, array.dtype)
    fill = fill.reshape(-1, 1, 1) if fill.ndim else fill
    if mode is InterpolationMode.NEAREST:
        column, row = np.rint(np.round(x, 6)).astype(np.int64), np.rint(np.round(y, 6)).astype(np.int64)
        inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
        found = array[..., np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)]
        return np.where(inside, found, fill).astype(array.dtype, copy=False)
    if mode is not InterpolationMode.BILINEAR:
        raise ValueError(f"rotate: interpolation must be nearest or bilinear for arrays. Got {mode.value}.")
    left, top = np.floor(x), np.floor(y)
    total: Any = 0.0
    for row, part_y in ((top, 1 - (y - top)), (top + 1, y - top)):
        for column, part_x in ((left, 1 - (x - left)), (left + 1, x - left)):
            inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
            rows, columns = np.clip(row, 0, height - 1).astype(np.int64), np.clip(column, 0, width - 1).astype(np.int64)
            pixels = np.where(inside, array[..., rows, columns], fill)
            total = total + pixels * (part_y * part_x).astype(np.float32)
    return in_dtype(total, array.dtype)
