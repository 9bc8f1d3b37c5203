"""Transforms from one kind of image, or from one dtype, to another."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import functional as TF
from .base import Transform
from .images import array_of


class ToTensor(Transform):
    """A PIL image or an array (height, width, channels) as a float tensor (channels, height, width).

    Bytes 0 … 255 become float32 in [0, 1]; other dtypes keep their values. An array whose last axis cannot be channels (more than
    4) while its first can is taken as (channels, height, width).

    Example:
        >>> data.transforms.ToTensor()(np.full((2, 4, 3), 255, np.uint8)).shape
        (3, 2, 4)
    """

    def __call__(self, image: Any) -> Any:
        return TF.to_tensor(image)


class PILToTensor(Transform):
    """A PIL image as a tensor (channels, height, width) of its own dtype, without scaling."""

    def __call__(self, image: Any) -> Any:
        return TF.pil_to_tensor(image)


class ToPILImage(Transform):
    """A tensor (channels, height, width), or an array (height, width, channels), as a PIL image. Needs Pillow."""

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def __call__(self, image: Any) -> Any:
        return TF.to_pil_image(image, self.mode)


class ConvertImageDtype(Transform):
    """An image in another dtype, scaled to its range: integers use their whole range, floats [0, 1]."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)

    def __call__(self, image: Any) -> Any:
        return TF.convert_image_dtype(image, self.dtype)


class ToFloat(Transform):
    """Scales integers from the full range of their dtype (0 … 255 for bytes) to float32 in [0, 1]; casts floats to float32.

    Example:
        >>> data.transforms.ToFloat()(np.array([[[0, 255]]], np.uint8)).tolist()
        [[[0.0, 1.0]]]
    """

    def __call__(self, image: Any) -> Any:
        array, back = (image, _same) if isinstance(image, np.ndarray) else array_of("ToFloat", image)
        if array.dtype.kind in "iu":
            return back(array.astype(np.float32) * np.float32(1.0 / np.iinfo(array.dtype).max))
        return back(array.astype(np.float32, copy=False))


def _same(array: np.ndarray) -> np.ndarray:
    return array
