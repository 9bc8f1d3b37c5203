"""The three kinds of images that transforms take and return: arrays, tensors and PIL images.

Arithmetic is done on arrays of shape (…, channels, height, width); `array_of` takes one from an image, and the function that it
returns turns an array back into an image of the same kind. Pillow is optional: nothing here imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .._tensor import is_tensor

Back = Callable[[np.ndarray], Any]


def is_pil(image: Any) -> bool:
    """Whether `image` is a PIL image; Pillow is not imported for the question."""
    module = sys.modules.get("PIL.Image")  # not imported yet: then no PIL image can exist
    return module is not None and isinstance(image, module.Image)


def pillow(what: str) -> Any:
    """The module `PIL.Image`."""
    try:
        from PIL import Image
    except ImportError:
        raise ImportError(f"{what}: PIL images need Pillow: `pip install pillow`.") from None
    return Image


def array_of(what: str, image: Any) -> tuple[np.ndarray, Back]:
    """The pixels of an image as an array (…, channels, height, width), and what makes such an image of an array."""
    if isinstance(image, np.ndarray) and image.ndim >= 3:
        return image, lambda array: array
    if is_tensor(image) and image.ndim >= 3:
        return image.numpy(), tensor_of
    if is_pil(image):
        return pil_pixels(image), lambda array: to_pil(what, array)
    got = f"shape {tuple(image.shape)}" if isinstance(image, np.ndarray) or is_tensor(image) else type(image).__name__
    raise ValueError(
        f"{what}: expected an image: an array or tensor of shape (channels, height, width), or a PIL image. Got {got}."
    )


def tensor_of(array: np.ndarray) -> Any:
    import weft

    make: Callable[[np.ndarray], Any] = weft.asarray  # names come from the op table
    return make(np.ascontiguousarray(array))


def size_of(what: str, image: Any) -> tuple[int, int]:
    """Height and width of an image of any kind."""
    if is_pil(image):
        return image.height, image.width
    array, _ = array_of(what, image)
    return array.shape[-2], array.shape[-1]


def pil_pixels(image: Any) -> np.ndarray:
    """The pixels of a PIL image, (channels, height, width). Palettes are replaced by their colours."""
    if image.mode == "P":
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)


_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}  # of bytes, by the number of channels


def to_pil(what: str, array: np.ndarray, mode: str | None = None) -> Any:
    """A PIL image of an array (channels, height, width): bytes, or floats in [0, 1], which become bytes."""
    if array.ndim != 3 or array.shape[0] not in _MODES:
        raise ValueError(f"{what}: a PIL image has 1 to 4 channels. Got shape {array.shape}.")
    if array.dtype.kind == "f" and mode != "F":
        array = (np.clip(array, 0, 1) * 255).astype(np.uint8)
    pixels = np.ascontiguousarray(array[0] if array.shape[0] == 1 else np.moveaxis(array, 0, -1))
    if pixels.dtype not in (np.uint8, np.bool_, np.int32, np.uint16, np.float32):
        raise TypeError(f"{what}: a PIL image holds bytes. Got {pixels.dtype}; write `.astype(np.uint8)` first.")
    image = pillow(what).fromarray(pixels)
    return image if mode in (None, image.mode) else image.convert(mode)
