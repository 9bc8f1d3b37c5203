"""Small coloured pictures of shapes and textures, drawn by formula: the size of CIFAR-10, with no download.

An image has two random colours, a pattern that chooses between them, uneven light and noise. The pattern is the class;
place, size, angle and colours are random and tell nothing about it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .. import seeds
from ..dataset import TensorDataset

CLASSES = (
    "disk",
    "ring",
    "square",
    "triangle",
    "cross",
    "horizontal stripes",
    "vertical stripes",
    "checkerboard",
    "dots",
    "ripples",
)


def _square(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.maximum(np.abs(u), np.abs(v))


# One formula a class, of rotated coordinates u and v, the distance r from the middle and a frequency w: positive inside
# the pattern, negative outside.
_FORMULAS: tuple[Callable[..., np.ndarray], ...] = (
    lambda u, v, r, w: 0.85 - r,
    lambda u, v, r, w: 0.22 - np.abs(r - 0.7),
    lambda u, v, r, w: 0.75 - _square(u, v),
    lambda u, v, r, w: np.minimum(v + 0.5, 0.5 - 0.5 * v - 0.866 * np.abs(u)),
    lambda u, v, r, w: np.minimum(0.28 - np.minimum(np.abs(u), np.abs(v)), 0.95 - _square(u, v)),
    lambda u, v, r, w: 0.2 * np.sin(w * v),
    lambda u, v, r, w: 0.2 * np.sin(w * u),
    lambda u, v, r, w: 0.3 * np.sin(w * u) * np.sin(w * v),
    lambda u, v, r, w: np.cos(w * u) + np.cos(w * v) - 1.0,
    lambda u, v, r, w: 0.2 * np.sin(1.4 * w * r),
)

_CHUNK = 256  # images that share a random stream; so image i does not depend on how many are asked for
_SPLITS = {"train": (0, 5000), "test": (1, 1000)}  # number of the stream, default count
_PARAMETERS = 16


def synthetic_images(
    split: str = "train", n: int | None = None, size: int = 32, seed: int = 0, *, as_uint8: bool = False
) -> TensorDataset:
    """Coloured shapes and textures in ten classes (`SYNTHETIC_CLASSES`), equally frequent.

    Args:
        split: "train" (5,000 images unless `n` is given) or "test" (1,000).
        n: the number of images; the first ones are the same for every n.
        size: height and width.
        seed: another seed makes another set of the same kind.
        as_uint8: pixels as bytes instead of float32 in [0, 1].

    Returns:
        A dataset of (image, label): shape (3, size, size), and int64.

    Example:
        >>> images = data.synthetic_images("test", n=20)
        >>> images[3][0].shape, int(images[3][1])
        ((3, 32, 32), 3)
    """
    if split not in _SPLITS:
        raise ValueError(f"synthetic_images: unknown split. Got {split!r}; expected 'train' or 'test'.")
    stream, default = _SPLITS[split]
    n = default if n is None else n
    if n < 1 or size < 8:
        raise ValueError(f"synthetic_images: need n >= 1 and size >= 8. Got n={n}, size={size}.")
    labels = np.arange(n, dtype=np.int64) % len(CLASSES)
    pixels = np.empty((n, 3, size, size), np.uint8)
    for chunk in range(-(-n // _CHUNK)):
        drawn = _draw(chunk, stream, size, seed)
        part = pixels[chunk * _CHUNK : (chunk + 1) * _CHUNK]
        part[...] = drawn[: len(part)]
    if as_uint8:
        return TensorDataset(pixels, labels)
    return TensorDataset(pixels.astype(np.float32) * np.float32(1 / 255), labels)


def _draw(chunk: int, stream: int, size: int, seed: int) -> np.ndarray:
    """The pictures of one chunk as bytes (_CHUNK, 3, size, size)."""
    words = seeds.stream(seed, stream, chunk, seeds.DRAW).random_raw(_CHUNK * (_PARAMETERS + 3 * size * size))
    uniform = (words >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
    p = uniform[: _CHUNK * _PARAMETERS].reshape(_CHUNK, _PARAMETERS, 1, 1)
    noise = uniform[_CHUNK * _PARAMETERS :].reshape(_CHUNK, 3, size, size)
    pattern = _patterns(p, size, (np.arange(_CHUNK) + chunk * _CHUNK) % len(CLASSES))

    back = p[:, 6:9].reshape(_CHUNK, 3, 1, 1)
    front = p[:, 9:12].reshape(_CHUNK, 3, 1, 1)
    # Colours too close to tell apart are pushed to opposite sides.
    close = np.abs(front - back).max(axis=1, keepdims=True) < 0.35
    front = np.where(close, (back + 0.5) % 1.0, front)

    image = back + pattern[:, None] * (front - back)
    axis = np.linspace(-1, 1, size, dtype=np.float32)
    light = 1 + 0.3 * (p[:, 12] - 0.5) * axis[:, None] + 0.3 * (p[:, 13] - 0.5) * axis[None, :]
    image = image * light[:, None] + (noise - 0.5) * (0.1 + 0.2 * p[:, 14:15])
    return np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)


def _patterns(p: np.ndarray, size: int, labels: np.ndarray) -> np.ndarray:
    """For each picture, how far each pixel belongs to the front: (n, size, size) in [0, 1]."""
    axis = np.linspace(-1, 1, size, dtype=np.float32)
    y, x = np.meshgrid(axis, axis, indexing="ij")
    texture = (labels >= 5)[:, None, None]
    # Shapes turn freely; stripes only a little, or they would be each other.
    angle = np.where(texture, (p[:, 2] - 0.5) * 0.5, (p[:, 2] - 0.5) * (2 * np.pi))
    scale = np.where(texture, 1.0, 0.45 + 0.35 * p[:, 3])
    reach = np.where(texture, 1.0, 0.4)
    u0, v0 = x - (p[:, 0] - 0.5) * 2 * reach, y - (p[:, 1] - 0.5) * 2 * reach
    u = (u0 * np.cos(angle) + v0 * np.sin(angle)) / scale
    v = (v0 * np.cos(angle) - u0 * np.sin(angle)) / scale
    r = np.sqrt(u * u + v * v)
    frequency = 8 + 6 * p[:, 4]
    inside = np.empty_like(r)
    for label, formula in enumerate(_FORMULAS):
        mine = labels == label
        inside[mine] = formula(u[mine], v[mine], r[mine], frequency[mine])
    return np.clip(0.5 + inside * (size / 4), 0, 1).astype(np.float32)  # an edge is two pixels soft
