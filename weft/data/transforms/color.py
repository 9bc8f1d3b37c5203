"""Transforms of colours and of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..seeds import transform_rng
from . import functional as TF
from .base import Maybe, Transform
from .images import array_of, is_pil


class Normalize(Transform):
    """``(image - mean) / std`` per channel, in float32.

    Args:
        mean, std: one number, or one per channel.

    Example:
        >>> data.transforms.Normalize(mean=0.5, std=0.25)(np.ones((1, 1, 2), np.float32)).tolist()
        [[[2.0, 2.0]]]
    """

    def __init__(self, mean: float | Sequence[float], std: float | Sequence[float], inplace: bool = False) -> None:
        self.mean, self.std, self.inplace = mean, std, inplace
        self._mean = np.asarray(mean, np.float32).reshape(-1, 1, 1)
        self._scale = np.float32(1) / self._checked_std(std)

    @staticmethod
    def _checked_std(std: Any) -> np.ndarray:
        values = np.asarray(std, np.float32).reshape(-1, 1, 1)
        if not (values > 0).all():
            raise ValueError(f"Normalize: std must be positive. Got {std!r}.")
        return values

    def __call__(self, image: Any) -> Any:
        if is_pil(image):
            raise TypeError("Normalize: a PIL image holds bytes. Apply ToTensor() first.")
        array, back = array_of("Normalize", image)
        channels = array.shape[-3]
        if len(self._mean) not in (1, channels) or len(self._scale) not in (1, channels):
            raise ValueError(
                f"Normalize: mean and std must have one value or one per channel. Got {self.mean!r} and {self.std!r} "
                f"for {channels} channels."
            )
        return back((array.astype(np.float32, copy=False) - self._mean) * self._scale)


class Grayscale(Transform):
    """The brightness of an image, in 1 or 3 equal channels.

    Example:
        >>> data.transforms.Grayscale()(np.ones((3, 2, 2), np.float32)).shape
        (1, 2, 2)
    """

    def __init__(self, num_output_channels: int = 1) -> None:
        if num_output_channels not in (1, 3):
            raise ValueError(f"Grayscale: num_output_channels must be 1 or 3. Got {num_output_channels!r}.")
        self.num_output_channels = num_output_channels

    def __call__(self, image: Any) -> Any:
        return TF.rgb_to_grayscale(image, self.num_output_channels)


class RandomGrayscale(Maybe):
    """Turns an image grey with probability `p`, in as many channels as before."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(p)

    def change(self, image: Any) -> Any:
        array, _ = array_of("RandomGrayscale", image)
        return TF.rgb_to_grayscale(image, 1 if array.shape[-3] == 1 else 3)


class RandomInvert(Maybe):
    """Inverts the colours of an image with probability `p`."""

    def change(self, image: Any) -> Any:
        return TF.invert(image)


_ADJUST = (TF.adjust_brightness, TF.adjust_contrast, TF.adjust_saturation, TF.adjust_hue)


class ColorJitter(Transform):
    """Random brightness, contrast, saturation and hue, applied in a random order.

    Args:
        brightness, contrast, saturation: the factor is drawn from [max(0, 1 - x), 1 + x], or from the two bounds given.
        hue: the shift of the hue is drawn from [-x, x], at most 0.5, or from the two bounds given.

    Example:
        >>> data.transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)(np.zeros((3, 2, 2), np.uint8)).shape
        (3, 2, 2)
    """

    def __init__(self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0) -> None:
        self.brightness, self.contrast, self.saturation, self.hue = brightness, contrast, saturation, hue
        self._bounds = [
            _bounds("brightness", brightness, 1.0, 0.0, float("inf")), _bounds("contrast", contrast, 1.0, 0.0, float("inf")),
            _bounds("saturation", saturation, 1.0, 0.0, float("inf")), _bounds("hue", hue, 0.0, -0.5, 0.5),
        ]  # fmt: skip

    def __call__(self, image: Any) -> Any:
        array_of("ColorJitter", image)
        rng = transform_rng()
        for number in rng.permutation(len(_ADJUST)):
            bounds = self._bounds[number]
            if bounds is not None:
                image = _ADJUST[number](image, float(rng.uniform(*bounds)))
        return image


def _bounds(name: str, value: Any, centre: float, low: float, high: float) -> tuple[float, float] | None:
    """The interval of a factor; None if it is always `centre`."""
    if isinstance(value, (int, float)):
        if value < 0:
            raise ValueError(f"ColorJitter: {name} must not be negative. Got {value!r}.")
        found = (max(low, centre - value) if name != "hue" else centre - value, centre + value)
    else:
        found = (float(value[0]), float(value[1]))
    if not low <= found[0] <= found[1] <= high:
        raise ValueError(f"ColorJitter: {name} must be between {low} and {high}, in order. Got {value!r}.")
    return None if found == (centre, centre) else found
