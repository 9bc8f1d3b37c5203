"""The UCI handwritten digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..dataset import TensorDataset

_FILE = Path(__file__).parent / "digits.npz"


def digits(split: str = "train") -> TensorDataset:
    """1,797 handwritten digits of 8 x 8 pixels, from the UCI Machine Learning Repository.

    Args:
        split: "train" (1,438 images), "test" (359 images, one fifth of each class, always the same), or "all".

    Returns:
        A dataset of (image, label): float32 of shape (1, 8, 8) in [0, 1], and int64.

    Example:
        >>> train = data.digits("train")
        >>> len(train), train[0][0].shape
        (1438, (1, 8, 8))
    """
    if split not in ("train", "test", "all"):
        raise ValueError(f"digits: unknown split. Got {split!r}; expected 'train', 'test' or 'all'.")
    with np.load(_FILE, allow_pickle=False) as archive:
        images, labels, test = archive["images"], archive["labels"], archive["test"]
    keep = slice(None) if split == "all" else (test if split == "test" else ~test)
    pixels = images[keep].astype(np.float32)[:, None] / np.float32(16)
    return TensorDataset(pixels, labels[keep].astype(np.int64))
