"""Transforms of place: resizing, cropping, padding, flipping, rotating, erasing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._tensor import is_tensor
from ..seeds import transform_rng
from . import functional as TF
from .base import Maybe, Transform
from .images import array_of, size_of
from .resampling import InterpolationMode, interpolation_mode


class Resize(Transform):
    """Resizes an image: to (height, width), or its shorter side to one number, keeping the aspect ratio.

    Args:
        size: as above.
        interpolation: an `InterpolationMode`, or its word.
        max_size: with one number, the largest length of the longer side.
        antialias: average over the pixels that shrink into one.

    Example:
        >>> data.transforms.Resize(4)(np.zeros((3, 8, 16), np.float32)).shape
        (3, 4, 8)
    """

    def __init__(
        self, size: int | Sequence[int], interpolation: Any = InterpolationMode.BILINEAR, max_size: int | None = None,
        antialias: bool = True,
    ) -> None:  # fmt: skip
        TF.pair("Resize", size)
        self.size: Any = size if isinstance(size, int) else tuple(size)
        self.interpolation = interpolation_mode("Resize", interpolation)
        self.max_size, self.antialias = max_size, antialias

    def __call__(self, image: Any) -> Any:
        return TF.resize(image, self.size, self.interpolation, self.max_size, self.antialias)


class Pad(Transform):
    """Adds `padding` pixels of `fill` on each side; `functional.pad` says what else the arguments may be."""

    def __init__(
        self, padding: int | Sequence[int], fill: Any = 0, padding_mode: str = "constant", *, value: Any = None
    ) -> None:
        sides = [padding] if isinstance(padding, (int, np.integer)) else list(padding)
        if len(sides) not in (1, 2, 4) or min(sides) < 0:
            raise ValueError(f"Pad: padding must be 1, 2 or 4 numbers and must not be negative. Got {padding!r}.")
        self.padding, self.fill, self.padding_mode = padding, fill if value is None else value, padding_mode

    def __call__(self, image: Any) -> Any:
        return TF.pad(image, self.padding, self.fill, self.padding_mode)


class CenterCrop(Transform):
    """Crops the central window of `size`."""

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = TF.pair("CenterCrop", size)

    def __call__(self, image: Any) -> Any:
        return TF.center_crop(image, self.size)


class RandomCrop(Transform):
    """Crops a window of `size` at a random position, after padding.

    Args:
        size: one number, or (height, width).
        padding, fill, padding_mode: as of `Pad`; by default nothing is added.
        pad_if_needed: pad an image that is smaller than the window.

    Example:
        >>> data.transforms.RandomCrop(8, padding=1)(np.zeros((3, 8, 8), np.float32)).shape
        (3, 8, 8)
    """

    def __init__(
        self, size: int | Sequence[int], padding: int | Sequence[int] | None = None, pad_if_needed: bool = False, fill: Any = 0,
        padding_mode: str = "constant",
    ) -> None:  # fmt: skip
        self.size, self.padding, self.pad_if_needed = TF.pair("RandomCrop", size), padding, pad_if_needed
        self.fill, self.padding_mode = fill, padding_mode
        self._pad = Pad(padding, fill, padding_mode) if padding else None

    def __call__(self, image: Any) -> Any:
        if self._pad is not None:
            image = self._pad(image)
        if self.pad_if_needed:
            height, width = size_of("RandomCrop", image)
            missing = (max(0, self.size[1] - width), max(0, self.size[0] - height))
            if any(missing):
                image = TF.pad(image, missing, self.fill, self.padding_mode)
        height, width = TF.fits("RandomCrop", image, self.size)
        rng = transform_rng()
        top, left = (int(rng.integers(n - s + 1)) for n, s in ((height, self.size[0]), (width, self.size[1])))
        return TF.crop(image, top, left, *self.size)


class RandomResizedCrop(Transform):
    """Crops a window of random area and aspect ratio and resizes it: the usual augmentation for ImageNet.

    Args:
        size: of the result.
        scale: bounds of the window's share of the image's area.
        ratio: bounds of width / height.

    Example:
        >>> data.transforms.RandomResizedCrop(4)(np.zeros((3, 8, 16), np.float32)).shape
        (3, 4, 4)
    """

    def __init__(
        self, size: int | Sequence[int], scale: Sequence[float] = (0.08, 1.0), ratio: Sequence[float] = (3 / 4, 4 / 3),
        interpolation: Any = InterpolationMode.BILINEAR, antialias: bool = True,
    ) -> None:  # fmt: skip
        for name, bounds in (("scale", scale), ("ratio", ratio)):
            if len(bounds) != 2 or not 0 < bounds[0] <= bounds[1]:
                raise ValueError(f"RandomResizedCrop: {name} must be two positive numbers in order. Got {bounds!r}.")
        self.size, self.scale, self.ratio = TF.pair("RandomResizedCrop", size), tuple(scale), tuple(ratio)
        self.interpolation, self.antialias = interpolation_mode("RandomResizedCrop", interpolation), antialias

    def window(self, height: int, width: int) -> tuple[int, int, int, int]:
        """A random window (top, left, height, width) of an image; the largest one in the middle if ten attempts fail."""
        rng = transform_rng()
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        for _ in range(10):
            area = rng.uniform(self.scale[0], self.scale[1]) * height * width
            aspect = math.exp(rng.uniform(low, high))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                return int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1)), h, w
        w, h = width, height
        if width / height < self.ratio[0]:
            h = round(width / self.ratio[0])
        elif width / height > self.ratio[1]:
            w = round(height * self.ratio[1])
        return (height - h) // 2, (width - w) // 2, h, w

    def __call__(self, image: Any) -> Any:
        place = self.window(*size_of("RandomResizedCrop", image))
        return TF.resized_crop(image, *place, self.size, self.interpolation, self.antialias)


class RandomHorizontalFlip(Maybe):
    """Flips the image left to right with probability `p`.

    Example:
        >>> data.transforms.RandomHorizontalFlip(p=1.0)(np.array([[[1, 2, 3]]])).tolist()
        [[[3, 2, 1]]]
    """

    def __call__(self, image: Any) -> Any:
        array_of("RandomHorizontalFlip", image)  # a wrong argument raises whether or not it would be flipped
        return super().__call__(image)

    def change(self, image: Any) -> Any:
        return TF.hflip(image)


class RandomVerticalFlip(Maybe):
    """Flips the image top to bottom with probability `p`."""

    def __call__(self, image: Any) -> Any:
        array_of("RandomVerticalFlip", image)
        return super().__call__(image)

    def change(self, image: Any) -> Any:
        return TF.vflip(image)


class RandomRotation(Transform):
    """Turns the image by a random angle.

    Args:
        degrees: bounds of the angle; one number stands for (-degrees, degrees).
        interpolation, expand, center, fill: as of `functional.rotate`.

    Example:
        >>> data.transforms.RandomRotation(10)(np.zeros((3, 8, 8), np.float32)).shape
        (3, 8, 8)
    """

    def __init__(
        self, degrees: float | Sequence[float], interpolation: Any = InterpolationMode.NEAREST, expand: bool = False,
        center: Sequence[float] | None = None, fill: Any = 0,
    ) -> None:  # fmt: skip
        bounds = (-degrees, degrees) if isinstance(degrees, (int, float)) else tuple(degrees)
        if len(bounds) != 2 or not bounds[0] <= bounds[1]:
            raise ValueError(f"RandomRotation: degrees must be a positive number or two in order. Got {degrees!r}.")
        self.degrees = bounds
        self.interpolation = interpolation_mode("RandomRotation", interpolation)
        self.expand, self.center, self.fill = expand, center, fill

    def __call__(self, image: Any) -> Any:
        angle = float(transform_rng().uniform(*self.degrees))
        return TF.rotate(image, angle, self.interpolation, self.expand, self.center, self.fill)


class RandomErasing(Maybe):
    """Erases a random rectangle with probability `p`.

    Args:
        scale: bounds of the rectangle's share of the image's area.
        ratio: bounds of its height / width.
        value: what it is filled with: a number, one per channel, or "random" for normal noise.
    """

    def __init__(
        self, p: float = 0.5, scale: Sequence[float] = (0.02, 0.33), ratio: Sequence[float] = (0.3, 3.3), value: Any = 0,
        inplace: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(p)
        if len(scale) != 2 or not 0 < scale[0] <= scale[1] <= 1:
            raise ValueError(f"RandomErasing: scale must be two fractions of the area in order. Got {scale!r}.")
        if not isinstance(ratio, Sequence) or len(ratio) != 2 or not 0 < ratio[0] <= ratio[1]:
            raise ValueError(f"RandomErasing: ratio must be two positive numbers in order. Got {ratio!r}.")
        self.scale, self.ratio, self.value, self.inplace = tuple(scale), tuple(ratio), value, inplace

    def change(self, image: Any) -> Any:
        rng = transform_rng()
        array, back = array_of("RandomErasing", image)
        height, width = array.shape[-2:]
        area = rng.uniform(self.scale[0], self.scale[1]) * height * width
        ratio = math.exp(rng.uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
        h = min(height, max(1, round(math.sqrt(area * ratio))))
        w = min(width, max(1, round(math.sqrt(area / ratio))))
        top, left = int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1))
        if self.value == "random":
            value: Any = rng.standard_normal((*array.shape[:-2], h, w)).astype(np.float32).astype(array.dtype)
        else:
            value = self.value
        erased = TF.erase(array, top, left, h, w, value)
        if self.inplace and not is_tensor(image) and isinstance(image, np.ndarray):
            image[...] = erased
            return image
        return back(erased)
