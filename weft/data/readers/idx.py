"""The idx format of MNIST and its relatives (Fashion-MNIST, EMNIST, KMNIST).

A header of two zero bytes, a code for the dtype, the number of axes, and the sizes as big-endian 32-bit integers;
then the values.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..dataset import TensorDataset
from ._files import PathLike, find_first, read_bytes

_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: PathLike) -> np.ndarray:
    """The array in an idx file, gzipped or not.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not an idx file, or is truncated; the message has the sizes.
    """
    path = Path(path)
    data = read_bytes("read_idx", path)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _DTYPES or data[3] == 0:
        raise ValueError(
            f"read_idx: {path} is not an idx file. Got first bytes {data[:4].hex(' ') or 'none'}; expected "
            f"00 00, a dtype code ({', '.join(f'{code:02x}' for code in _DTYPES)}) and the number of axes."
        )
    dtype, axes = np.dtype(_DTYPES[data[2]]), data[3]
    start = 4 + 4 * axes
    if len(data) < start:
        raise ValueError(
            f"read_idx: {path} is truncated. Got {len(data)} bytes; expected a header of {start} for {axes} axes."
        )
    shape = tuple(int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(axes))
    expected = dtype.itemsize
    for size in shape:
        expected *= size
    if len(data) - start != expected:
        kind = "is truncated" if len(data) - start < expected else "is too long"
        raise ValueError(
            f"read_idx: {path} {kind}. Got {len(data) - start:,} bytes of values; expected {expected:,} for shape "
            f"{shape} of {dtype.newbyteorder('=')}."
        )
    return np.frombuffer(data, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def mnist(root: PathLike, split: str = "train") -> TensorDataset:
    """MNIST, or any set in the same files, from a folder that holds them.

    Args:
        root: a folder with ``train-images-idx3-ubyte`` and so on, gzipped (``.gz``) or not.
        split: "train" or "test".

    Returns:
        A dataset of (image, label): float32 of shape (1, height, width) in [0, 1], and int64.
    """
    if split not in ("train", "test"):
        raise ValueError(f"mnist: unknown split. Got {split!r}; expected 'train' or 'test'.")
    prefix = "train" if split == "train" else "t10k"
    images_path, labels_path = (
        find_first(
            "mnist", root, [f"{prefix}-{part}{dot}idx{n}-ubyte{end}" for dot in "-." for end in ("", ".gz")]
        )
        for part, n in (("images", 3), ("labels", 1))
    )
    images, labels = read_idx(images_path), read_idx(labels_path)
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
        raise ValueError(
            f"mnist: the files do not belong together. Got {images_path} of shape {images.shape} and {labels_path} of "
            f"shape {labels.shape}; expected (n, height, width) and (n,)."
        )
    pixels = images[:, None].astype(np.float32) * np.float32(1 / 255)
    return TensorDataset(pixels, labels.astype(np.int64))
