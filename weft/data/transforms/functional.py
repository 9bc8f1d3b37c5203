"""Image transforms as functions, without randomness: `functional.resize(image, 224)`.

Every function takes an array or tensor of shape (…, channels, height, width), or a PIL image, and returns the same kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._tensor import is_tensor
from .images import array_of, is_pil, pil_pixels, pillow, size_of, tensor_of, to_pil
from .resampling import InterpolationMode as InterpolationMode
from .resampling import interpolation_mode, resized, rotated


def pair(what: str, size: int | Sequence[int]) -> tuple[int, int]:
    """A size as (height, width)."""
    if isinstance(size, (int, np.integer)):
        size = (int(size), int(size))
    elif len(size) == 1:
        size = (size[0], size[0])
    if len(size) != 2 or min(size) < 1:
        raise ValueError(f"{what}: size must be positive, one number or (height, width). Got {size!r}.")
    return int(size[0]), int(size[1])


# Kinds and dtypes ---------------------------------------------------------------------------------------------------------


def to_tensor(image: Any) -> Any:
    """A PIL image or an array (height, width, channels) as a float tensor (channels, height, width).

    Bytes 0 … 255 become float32 in [0, 1]; other dtypes keep their values. An array whose last axis cannot be channels (more than
    4) while its first can is taken as (channels, height, width).

    >>> from weft.data.transforms import functional as TF
    >>> TF.to_tensor(np.full((2, 2, 3), 255, np.uint8)).shape
    (3, 2, 2)
    """
    if is_pil(image):
        array = pil_pixels(image)
    elif isinstance(image, np.ndarray):
        array = _channels_first(image)
    elif is_tensor(image):
        array = image.numpy()
    else:
        raise TypeError(f"to_tensor: expected a PIL image, an array or a tensor. Got {type(image).__name__}.")
    if array.dtype == np.uint8:
        array = array.astype(np.float32) / np.float32(255)
    elif array.dtype == np.bool_:
        array = array.astype(np.float32)
    return tensor_of(array)


def _channels_first(array: np.ndarray) -> np.ndarray:
    if array.ndim == 2:
        return array[None]
    if array.ndim != 3:
        raise ValueError(f"to_tensor: expected an array of 2 or 3 axes. Got shape {array.shape}.")
    last, first = array.shape[-1] <= 4, array.shape[0] <= 4
    return array if first and not last else np.moveaxis(array, -1, 0)


def pil_to_tensor(image: Any) -> Any:
    """A PIL image as a tensor (channels, height, width) of its own dtype, without scaling."""
    if not is_pil(image):
        raise TypeError(f"pil_to_tensor: expected a PIL image. Got {type(image).__name__}.")
    return tensor_of(np.array(pil_pixels(image)))


def to_pil_image(image: Any, mode: str | None = None) -> Any:
    """A tensor (channels, height, width), or an array (height, width, channels), as a PIL image. Needs Pillow.

    Floats are in [0, 1]. An array is read as `to_tensor` reads it.
    """
    if is_pil(image):
        return image if mode is None else image.convert(mode)
    if not isinstance(image, np.ndarray) and not is_tensor(image):
        raise TypeError(f"to_pil_image: expected an array or a tensor. Got {type(image).__name__}.")
    array = _channels_first(image) if isinstance(image, np.ndarray) else image.numpy()
    return to_pil("to_pil_image", array[None] if array.ndim == 2 else array, mode)


def convert_image_dtype(image: Any, dtype: Any = np.float32) -> Any:
    """An array or tensor in another dtype, scaled to its range: integers use their whole range, floats [0, 1].

    >>> from weft.data.transforms import functional as TF
    >>> TF.convert_image_dtype(np.array([[[0, 255]]], np.uint8), np.float32).tolist()
    [[[0.0, 1.0]]]
    """
    if is_pil(image):
        raise TypeError(
            "convert_image_dtype: a PIL image has no dtype to choose. Apply ToTensor() or PILToTensor() first."
        )
    array, back = array_of("convert_image_dtype", image)
    old, new = array.dtype, np.dtype(dtype)
    if old == new:
        return image
    if old.kind == "f" or old.kind == new.kind == "f":
        if new.kind == "f":
            return back(array.astype(new))
        return back((array * (np.iinfo(new).max + 1.0 - 1e-3)).astype(new))
    top = int(np.iinfo(old).max) if old.kind in "iu" else 1
    if new.kind == "f" or new.kind not in "iu":
        return back(array.astype(new) / np.asarray(top, new) if new.kind == "f" else array.astype(new))
    most = int(np.iinfo(new).max)
    scaled = array // ((top + 1) // (most + 1)) if top > most else array.astype(new) * ((most + 1) // (top + 1))
    return back(scaled.astype(new))


def normalize(tensor: Any, mean: Any, std: Any, inplace: bool = False) -> Any:
    """``(image - mean) / std`` per channel; a float array or tensor. `inplace` is accepted, and a new image returned."""
    from .color import Normalize

    return Normalize(mean, std)(tensor)


# Geometry -----------------------------------------------------------------------------------------------------------------


def get_image_size(image: Any) -> list[int]:
    """[width, height] of an image."""
    height, width = size_of("get_image_size", image)
    return [width, height]


def get_dimensions(image: Any) -> list[int]:
    """[channels, height, width] of an image."""
    array, _ = array_of("get_dimensions", image)
    return list(array.shape[-3:])


def resize(
    image: Any, size: int | Sequence[int], interpolation: Any = InterpolationMode.BILINEAR, max_size: int | None = None,
    antialias: bool = True,
) -> Any:  # fmt: skip
    """An image of another size: (height, width), or one number for the shorter side, which keeps the aspect ratio.

    Args:
        interpolation: an `InterpolationMode`, or its word.
        max_size: with one number, the largest length of the longer side.
        antialias: average over the pixels that shrink into one, as Pillow always does.

    >>> from weft.data.transforms import functional as TF
    >>> TF.resize(np.zeros((3, 8, 16), np.float32), 4).shape
    (3, 4, 8)
    """
    mode = interpolation_mode("resize", interpolation)
    height, width = size_of("resize", image)
    target = _target("resize", (height, width), size, max_size)
    if target == (height, width):
        return image
    if is_pil(image):
        word = "NEAREST" if mode is InterpolationMode.NEAREST_EXACT else mode.name
        return image.resize(target[::-1], getattr(pillow("resize").Resampling, word))
    array, back = array_of("resize", image)
    return back(resized(array, target, mode, antialias))


def _target(what: str, old: tuple[int, int], size: Any, max_size: int | None) -> tuple[int, int]:
    one = isinstance(size, (int, np.integer)) or len(size) == 1
    if not one:
        if max_size is not None:
            raise ValueError(f"{what}: max_size goes with one number, the shorter side. Got size {size!r}.")
        return pair(what, size)
    short_new, _ = pair(what, size)
    short, long = min(old), max(old)
    long_new = int(short_new * long / short)
    if max_size is not None:
        if max_size <= short_new:
            raise ValueError(f"{what}: max_size must be larger than size. Got {max_size} and {short_new}.")
        if long_new > max_size:
            short_new, long_new = int(max_size * short_new / long_new), max_size
    return (short_new, long_new) if old[0] <= old[1] else (long_new, short_new)


def crop(image: Any, top: int, left: int, height: int, width: int) -> Any:
    """The window of an image at (top, left); what lies outside of the image is 0."""
    array, back = array_of("crop", image)
    full_height, full_width = array.shape[-2:]
    before = (max(0, -top), max(0, -left))
    after = (max(0, top + height - full_height), max(0, left + width - full_width))
    if any(before) or any(after):
        array = np.pad(array, [(0, 0)] * (array.ndim - 2) + [(before[0], after[0]), (before[1], after[1])])
        top, left = top + before[0], left + before[1]
    return back(array[..., top : top + height, left : left + width])


def center_crop(image: Any, output_size: int | Sequence[int]) -> Any:
    """The window of `output_size` in the middle of an image, which must be as large."""
    size = pair("center_crop", output_size)
    height, width = fits("center_crop", image, size)
    return crop(image, (height - size[0]) // 2, (width - size[1]) // 2, *size)


def fits(what: str, image: Any, size: tuple[int, int]) -> tuple[int, int]:
    """Height and width of an image; raises if a window of `size` does not fit into it."""
    height, width = size_of(what, image)
    if size[0] > height or size[1] > width:
        raise ValueError(
            f"{what}: the image is smaller than the window. Got {height}x{width}; expected {size} or more. `Pad` or `Resize` "
            "it first."
        )
    return height, width


def resized_crop(
    image: Any, top: int, left: int, height: int, width: int, size: int | Sequence[int],
    interpolation: Any = InterpolationMode.BILINEAR, antialias: bool = True,
) -> Any:  # fmt: skip
    """A window of an image, resized to `size`."""
    return resize(crop(image, top, left, height, width), pair("resized_crop", size), interpolation, antialias=antialias)


def pad(image: Any, padding: int | Sequence[int], fill: Any = 0, padding_mode: str = "constant") -> Any:
    """An image with pixels added on its sides.

    Args:
        padding: one number; (left and right, top and bottom); or (left, top, right, bottom).
        fill: the value of new pixels, one number or one per channel.
        padding_mode: "constant", "edge", "reflect" or "symmetric".
    """
    sides = [padding] if isinstance(padding, (int, np.integer)) else list(padding)
    if len(sides) not in (1, 2, 4) or min(sides) < 0:
        raise ValueError(f"Pad: padding must be 1, 2 or 4 numbers and must not be negative. Got {padding!r}.")
    left, top, right, bottom = sides * (4 // len(sides))
    array, back = array_of("Pad", image)
    widths = [(0, 0)] * (array.ndim - 2) + [(top, bottom), (left, right)]
    if padding_mode != "constant":
        if padding_mode not in ("edge", "reflect", "symmetric"):
            raise ValueError(f"Pad: padding_mode must be constant, edge, reflect or symmetric. Got {padding_mode!r}.")
        return back(np.pad(array, widths, mode=padding_mode))  # type: ignore[call-overload]
    height, width = array.shape[-2:]
    value = np.asarray(fill, array.dtype)
    padded = np.empty((*array.shape[:-2], height + top + bottom, width + left + right), array.dtype)
    padded[...] = value.reshape(-1, 1, 1) if value.ndim else value
    padded[..., top : top + height, left : left + width] = array
    return back(padded)


def hflip(image: Any) -> Any:
    """An image mirrored left to right."""
    array, back = array_of("RandomHorizontalFlip", image)
    return back(array[..., ::-1])


def vflip(image: Any) -> Any:
    """An image mirrored top to bottom."""
    array, back = array_of("RandomVerticalFlip", image)
    return back(array[..., ::-1, :])


def rotate(
    image: Any, angle: float, interpolation: Any = InterpolationMode.NEAREST, expand: bool = False,
    center: Sequence[float] | None = None, fill: Any = 0,
) -> Any:  # fmt: skip
    """An image turned by `angle` degrees against the clock.

    Args:
        interpolation: nearest or bilinear (and bicubic for PIL images).
        expand: make the image large enough to hold all of the turned one.
        center: what to turn around, (x, y) in pixels; the middle by default.
        fill: the value outside of the image, one number or one per channel.
    """
    mode = interpolation_mode("rotate", interpolation)
    middle = None if center is None else (float(center[0]), float(center[1]))
    if is_pil(image):
        colour = tuple(fill) if isinstance(fill, (list, tuple)) else (fill,) * len(image.getbands())
        filter_ = getattr(pillow("rotate").Resampling, mode.name)
        return image.rotate(angle, filter_, expand, middle, fillcolor=colour if len(colour) > 1 else colour[0])
    array, back = array_of("rotate", image)
    return back(rotated(array, float(angle), mode, expand, middle, fill))


def erase(image: Any, i: int, j: int, h: int, w: int, v: Any, inplace: bool = False) -> Any:
    """An image with the value `v` in the window of (h, w) pixels at row `i` and column `j`."""
    array, back = array_of("erase", image)
    erased = array.copy()
    value = v.numpy() if is_tensor(v) else np.asarray(v)
    erased[..., i : i + h, j : j + w] = value.reshape(-1, 1, 1) if value.ndim == 1 else value
    return back(erased)


# Colours ------------------------------------------------------------------------------------------------------------------

_GREY = np.array([0.2989, 0.587, 0.114], np.float32).reshape(3, 1, 1)  # the weights of red, green and blue


def _grey(what: str, array: np.ndarray) -> np.ndarray:
    """The brightness of an image, (…, 1, height, width) as float32; integers are rounded down, as in PyTorch."""
    channels = array.shape[-3]
    if channels == 1:
        return array.astype(np.float32)
    if channels not in (3, 4):
        raise ValueError(f"{what}: expected an image of 1 or 3 channels. Got {channels}.")
    grey = (array[..., :3, :, :] * _GREY).sum(axis=-3, keepdims=True, dtype=np.float32)
    return np.floor(grey) if array.dtype.kind in "iu" else grey


def rgb_to_grayscale(image: Any, num_output_channels: int = 1) -> Any:
    """The brightness of an image, in 1 or 3 equal channels."""
    if num_output_channels not in (1, 3):
        raise ValueError(f"rgb_to_grayscale: num_output_channels must be 1 or 3. Got {num_output_channels!r}.")
    if is_pil(image):
        grey = image.convert("L")
        return grey if num_output_channels == 1 else pillow("rgb_to_grayscale").merge("RGB", (grey, grey, grey))
    array, back = array_of("rgb_to_grayscale", image)
    grey = _grey("rgb_to_grayscale", array).astype(array.dtype)
    return back(np.repeat(grey, num_output_channels, axis=-3))


def to_grayscale(image: Any, num_output_channels: int = 1) -> Any:
    """`rgb_to_grayscale` under its other name."""
    return rgb_to_grayscale(image, num_output_channels)


def invert(image: Any) -> Any:
    """An image with every value subtracted from the largest: 255 for bytes, 1 for floats."""
    array, back = array_of("invert", image)
    return back((_top(array) - array).astype(array.dtype))


def _top(array: np.ndarray) -> Any:
    """The value of white."""
    if array.dtype.kind in "iu":
        return np.iinfo(array.dtype).max
    return np.float32(1)


def _blend(array: np.ndarray, other: Any, ratio: float) -> np.ndarray:
    """`ratio` of an image and the rest of another, within the range of colours; integers are rounded down, as in PyTorch."""
    if array.dtype.kind not in "iuf":
        raise TypeError(f"colours: expected an image of bytes or floats. Got {array.dtype}.")
    mixed = np.float32(ratio) * array + np.float32(1 - ratio) * other
    return np.clip(mixed, 0, _top(array)).astype(array.dtype, copy=False)


def _check_factor(what: str, factor: float) -> None:
    if not factor >= 0:
        raise ValueError(f"{what}: the factor must not be negative. Got {factor!r}.")


def _enhanced(name: str, image: Any, factor: float) -> Any:
    """A PIL image with one of Pillow's own adjustments."""
    from PIL import ImageEnhance

    return getattr(ImageEnhance, name)(image).enhance(factor)


def _from_unit(values: np.ndarray, dtype: Any) -> np.ndarray:
    """Values in [0, 1] on the scale of a dtype; integers are rounded down, as in PyTorch."""
    return (values * (np.iinfo(dtype).max + 1.0 - 1e-3) if dtype.kind in "iu" else values).astype(dtype, copy=False)


def adjust_brightness(image: Any, brightness_factor: float) -> Any:
    """An image that is `brightness_factor` times as bright: 0 is black, 1 the same."""
    _check_factor("adjust_brightness", brightness_factor)
    if is_pil(image):
        return _enhanced("Brightness", image, brightness_factor)
    array, back = array_of("adjust_brightness", image)
    return back(_blend(array, np.float32(0), brightness_factor))


def adjust_contrast(image: Any, contrast_factor: float) -> Any:
    """An image with another contrast: 0 is plain grey, 1 the same."""
    _check_factor("adjust_contrast", contrast_factor)
    if is_pil(image):
        return _enhanced("Contrast", image, contrast_factor)
    array, back = array_of("adjust_contrast", image)
    mean = _grey("adjust_contrast", array).mean(axis=(-3, -2, -1), keepdims=True, dtype=np.float32)
    return back(_blend(array, mean, contrast_factor))


def adjust_saturation(image: Any, saturation_factor: float) -> Any:
    """An image with another strength of colours: 0 is grey, 1 the same."""
    _check_factor("adjust_saturation", saturation_factor)
    if is_pil(image):
        return _enhanced("Color", image, saturation_factor)
    array, back = array_of("adjust_saturation", image)
    if array.shape[-3] == 1:
        return image
    return back(_blend(array, _grey("adjust_saturation", array), saturation_factor))


def adjust_gamma(image: Any, gamma: float, gain: float = 1) -> Any:
    """`gain` times the image to the power of `gamma`, on a scale from 0 to 1."""
    _check_factor("adjust_gamma", gamma)
    array, back = array_of("adjust_gamma", image)
    top = _top(array)
    values = np.clip(np.float32(gain) * (array.astype(np.float32) / np.float32(top)) ** np.float32(gamma), 0, 1)
    return back(_from_unit(values, array.dtype))


def adjust_hue(image: Any, hue_factor: float) -> Any:
    """An image with its hues turned by `hue_factor` of the colour circle, from -0.5 to 0.5."""
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"adjust_hue: hue_factor must be between -0.5 and 0.5. Got {hue_factor!r}.")
    if is_pil(image):
        return _pil_hue(image, hue_factor)
    array, back = array_of("adjust_hue", image)
    if array.shape[-3] == 1:
        return image
    if array.shape[-3] != 3:
        raise ValueError(f"adjust_hue: expected an image of 1 or 3 channels. Got {array.shape[-3]}.")
    top = np.float32(_top(array))
    hue, saturation, value = _hsv(array.astype(np.float32) / top)
    turned = _rgb((hue + np.float32(hue_factor)) % np.float32(1), saturation, value)
    return back(_from_unit(turned, array.dtype))


def _pil_hue(image: Any, hue_factor: float) -> Any:
    if image.mode in ("L", "1", "I", "F"):
        return image
    hue, saturation, value = image.convert("HSV").split()
    turned = (np.asarray(hue).astype(np.int64) + int(hue_factor * 255)) % 256
    turned_hue = pillow("adjust_hue").fromarray(turned.astype(np.uint8))
    return pillow("adjust_hue").merge("HSV", (turned_hue, saturation, value)).convert(image.mode)


def _hsv(rgb: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hue, saturation and value of colours in [0, 1]."""
    red, green, blue = (rgb[..., i, :, :] for i in range(3))
    value, least = rgb.max(axis=-3), rgb.min(axis=-3)
    spread = value - least
    safe = np.where(spread == 0, np.float32(1), spread)
    saturation = spread / np.where(value == 0, np.float32(1), value)
    hue = np.where(
        value == red, (green - blue) / safe, np.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe)
    )
    return (hue / 6) % np.float32(1), saturation, value


def _rgb(hue: np.ndarray, saturation: np.ndarray, value: np.ndarray) -> np.ndarray:
    """The inverse of `_hsv`."""
    parts = []
    for offset in (5, 3, 1):  # red, green, blue
        k = (offset + hue * 6) % 6
        parts.append(value - value * saturation * np.clip(np.minimum(k, 4 - k), 0, 1))
    return np.stack(parts, axis=-3).astype(np.float32, copy=False)
