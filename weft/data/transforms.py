"""Image transforms on NumPy arrays, to be used with ``dataset.map(transform, element=0)``.

Images are (channels, height, width). Random transforms draw from `sample_rng()`, so augmentation does not depend on the
number of workers. Every transform is a small picklable class with its settings as attributes and in its `repr`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .seeds import sample_rng


class Transform:
    """Base class of transforms: implement `__call__(image)`."""

    def __call__(self, image: np.ndarray) -> np.ndarray:
        raise NotImplementedError(f"{type(self).__name__}: implement __call__(image).")

    def __repr__(self) -> str:
        settings = ", ".join(f"{k}={v!r}" for k, v in vars(self).items() if not k.startswith("_"))
        return f"{type(self).__name__}({settings})"


def _check(what: str, image: Any) -> np.ndarray:
    if not isinstance(image, np.ndarray) or image.ndim != 3:
        got = f"shape {image.shape}" if isinstance(image, np.ndarray) else type(image).__name__
        raise ValueError(f"{what}: expected an image array of shape (channels, height, width). Got {got}.")
    return image


def _pair(what: str, size: int | Sequence[int]) -> tuple[int, int]:
    height, width = (size, size) if isinstance(size, int) else size
    if height < 1 or width < 1:
        raise ValueError(f"{what}: size must be positive. Got {size!r}.")
    return int(height), int(width)


class Compose(Transform):
    """Applies transforms in order.

    Example:
        >>> transform = data.transforms.Compose(data.transforms.ToFloat(), data.transforms.CenterCrop(4))
        >>> transform(np.zeros((3, 8, 8), np.uint8)).shape
        (3, 4, 4)
    """

    def __init__(self, *transforms: Callable[[Any], Any]) -> None:
        self.transforms = transforms

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image


class ToFloat(Transform):
    """Scales integers from the full range of their dtype (0 … 255 for bytes) to float32 in [0, 1]; casts floats to float32.

    Example:
        >>> data.transforms.ToFloat()(np.array([[[0, 255]]], np.uint8)).tolist()
        [[[0.0, 1.0]]]
    """

    def __call__(self, image: np.ndarray) -> np.ndarray:
        if image.dtype.kind in "iu":
            return image.astype(np.float32) * np.float32(1.0 / np.iinfo(image.dtype).max)
        return image.astype(np.float32, copy=False)


class Normalize(Transform):
    """``(image - mean) / std`` per channel, in float32.

    Args:
        mean, std: one number, or one per channel.

    Example:
        >>> data.transforms.Normalize(mean=0.5, std=0.25)(np.ones((1, 1, 2), np.float32)).tolist()
        [[[2.0, 2.0]]]
    """

    def __init__(self, mean: float | Sequence[float], std: float | Sequence[float]) -> None:
        self.mean, self.std = mean, std
        self._mean = np.asarray(mean, np.float32).reshape(-1, 1, 1)
        self._scale = np.float32(1) / self._checked_std(std)

    @staticmethod
    def _checked_std(std: Any) -> np.ndarray:
        values = np.asarray(std, np.float32).reshape(-1, 1, 1)
        if not (values > 0).all():
            raise ValueError(f"Normalize: std must be positive. Got {std!r}.")
        return values

    def __call__(self, image: np.ndarray) -> np.ndarray:
        channels = _check("Normalize", image).shape[0]
        if len(self._mean) not in (1, channels) or len(self._scale) not in (1, channels):
            raise ValueError(
                f"Normalize: mean and std must have one value or one per channel. Got {self.mean!r} and {self.std!r} "
                f"for {channels} channels."
            )
        return (image.astype(np.float32, copy=False) - self._mean) * self._scale


class Pad(Transform):
    """Adds `padding` pixels of `value` on each side."""

    def __init__(self, padding: int, value: float = 0) -> None:
        if padding < 0:
            raise ValueError(f"Pad: padding must not be negative. Got {padding}.")
        self.padding, self.value = padding, value

    def __call__(self, image: np.ndarray) -> np.ndarray:
        channels, height, width = _check("Pad", image).shape
        p = self.padding
        padded = np.full((channels, height + 2 * p, width + 2 * p), self.value, image.dtype)
        padded[:, p : p + height, p : p + width] = image
        return padded


class RandomCrop(Transform):
    """Crops a window of `size` at a random position, after padding with zeros.

    Example:
        >>> data.transforms.RandomCrop(8, padding=1)(np.zeros((3, 8, 8), np.float32)).shape
        (3, 8, 8)
    """

    def __init__(self, size: int | Sequence[int], padding: int = 0) -> None:
        self.size, self.padding = _pair("RandomCrop", size), padding
        self._pad = Pad(padding)

    def __call__(self, image: np.ndarray) -> np.ndarray:
        if self.padding:
            image = self._pad(image)
        return _crop("RandomCrop", image, self.size, lambda free: int(sample_rng().integers(free + 1)))


class CenterCrop(Transform):
    """Crops the central window of `size`."""

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = _pair("CenterCrop", size)

    def __call__(self, image: np.ndarray) -> np.ndarray:
        return _crop("CenterCrop", image, self.size, lambda free: free // 2)


def _crop(what: str, image: np.ndarray, size: tuple[int, int], place: Callable[[int], int]) -> np.ndarray:
    _, height, width = _check(what, image).shape
    if size[0] > height or size[1] > width:
        raise ValueError(
            f"{what}: the image is smaller than the window. Got {height}x{width}; expected {size} or more."
        )
    top, left = place(height - size[0]), place(width - size[1])
    return image[:, top : top + size[0], left : left + size[1]]


class _Maybe(Transform):
    """Base of transforms that are applied with probability `p`."""

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise ValueError(f"{type(self).__name__}: p must be between 0 and 1. Got {p!r}.")
        self.p = p

    def __call__(self, image: np.ndarray) -> np.ndarray:
        _check(type(self).__name__, image)
        return self.change(image) if sample_rng().random() < self.p else image

    def change(self, image: np.ndarray) -> np.ndarray:
        raise NotImplementedError


class RandomHorizontalFlip(_Maybe):
    """Flips the image left to right with probability `p`.

    Example:
        >>> data.transforms.RandomHorizontalFlip(p=1.0)(np.array([[[1, 2, 3]]])).tolist()
        [[[3, 2, 1]]]
    """

    def change(self, image: np.ndarray) -> np.ndarray:
        return image[:, :, ::-1]


class RandomVerticalFlip(_Maybe):
    """Flips the image top to bottom with probability `p`."""

    def change(self, image: np.ndarray) -> np.ndarray:
        return image[:, ::-1]


class RandomErasing(_Maybe):
    """Erases a random rectangle with probability `p`; `scale` bounds its share of the image's area."""

    def __init__(self, p: float = 0.5, scale: tuple[float, float] = (0.02, 0.33), value: float = 0) -> None:
        super().__init__(p)
        if not 0 < scale[0] <= scale[1] <= 1:
            raise ValueError(f"RandomErasing: scale must be two fractions of the area in order. Got {scale!r}.")
        self.scale, self.value = scale, value

    def change(self, image: np.ndarray) -> np.ndarray:
        rng = sample_rng()
        _, height, width = image.shape
        area = rng.uniform(*self.scale) * height * width
        ratio = np.exp(rng.uniform(-1.2, 1.2))  # aspect ratio, height / width, from 0.3 to 3.3
        h = min(height, max(1, round(float(np.sqrt(area * ratio)))))
        w = min(width, max(1, round(float(np.sqrt(area / ratio)))))
        top, left = rng.integers(height - h + 1), rng.integers(width - w + 1)
        erased = image.copy()
        erased[:, top : top + h, left : left + w] = self.value
        return erased


class ColorJitter(Transform):
    """Random brightness, contrast and saturation of a float image in [0, 1].

    Args:
        brightness, contrast, saturation: each factor is drawn from [1 - x, 1 + x].
    """

    def __init__(self, brightness: float = 0.0, contrast: float = 0.0, saturation: float = 0.0) -> None:
        for name, value in (("brightness", brightness), ("contrast", contrast), ("saturation", saturation)):
            if not 0 <= value <= 1:
                raise ValueError(f"ColorJitter: {name} must be between 0 and 1. Got {value!r}.")
        self.brightness, self.contrast, self.saturation = brightness, contrast, saturation

    def __call__(self, image: np.ndarray) -> np.ndarray:
        if _check("ColorJitter", image).dtype.kind != "f":
            raise TypeError(f"ColorJitter: expected a float image in [0, 1]. Got {image.dtype}; apply ToFloat() first.")
        rng = sample_rng()
        b, c, s = (np.float32(rng.uniform(1 - x, 1 + x)) for x in (self.brightness, self.contrast, self.saturation))
        image = image * b
        image = (image - image.mean()) * c + image.mean()
        grey = image.mean(axis=0, keepdims=True)
        return np.clip((image - grey) * s + grey, 0, 1).astype(np.float32, copy=False)
