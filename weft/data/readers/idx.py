"""The idx format of MNIST and its relatives (Fashion-MNIST, EMNIST, KMNIST).

A header of two zero bytes, a code for the dtype, the number of axes, and the sizes as big-endian 32-bit integers;
then the values.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from ...errors import FileError
from ...io.limits import Bounded, too_large
from ...io.tensor_file import MAX_AXES
from ..dataset import TensorDataset
from ._files import PathLike, find_first, unpacked

_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: PathLike, max_bytes: int | None = None) -> np.ndarray:
    """The array in an idx file, gzipped or not.

    Args:
        max_bytes: how much a gzipped file may unpack to; by default 64 MiB, or a hundred times its size.

    Raises:
        FileNotFoundError: there is no such file.
        FileError: it is not an idx file, is truncated, or unpacks to more than is allowed; the message has the sizes.
    """
    path = Path(path)
    with unpacked("read_idx", path, max_bytes) as (stream, size):
        return _read(path, stream, size)


def _read(path: Path, stream: Bounded, size: int | None) -> np.ndarray:
    first = stream.read(4)
    if len(first) < 4 or first[:2] != b"\0\0" or first[2] not in _DTYPES or not 0 < first[3] <= MAX_AXES:
        raise FileError(
            "read_idx",
            path,
            f"is not an idx file. Got first bytes {first.hex(' ') or 'none'}; expected "
            f"00 00, a dtype code ({', '.join(f'{code:02x}' for code in _DTYPES)}) and the number of axes.",
        )
    dtype, axes = np.dtype(_DTYPES[first[2]]), first[3]
    sizes = stream.read(4 * axes)
    if len(sizes) < 4 * axes:
        got, wanted = 4 + len(sizes), 4 + 4 * axes
        reason = f"is truncated. Got {got} bytes; expected a header of {wanted} for {axes} axes."
        raise FileError("read_idx", path, reason, "header")
    shape = tuple([int.from_bytes(sizes[4 * i : 4 * i + 4], "big") for i in range(axes)])
    expected = math.prod(shape) * dtype.itemsize
    room = stream.left if size is None else size - 4 - 4 * axes
    if size is None and expected > room:
        raise FileError("read_idx", path, too_large(expected, room), "header")
    if size is not None and expected != room:
        raise _length(path, room, expected, shape, dtype)
    values = np.empty(expected, np.uint8)  # no more than the file has, or is allowed to unpack to
    got = stream.readinto(values.data)
    if got != expected or stream.read(1):
        raise _length(path, got + (got == expected), expected, shape, dtype)
    return values.view(dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def _length(path: Path, got: int, expected: int, shape: tuple[int, ...], dtype: np.dtype) -> FileError:
    kind = "is truncated" if got < expected else "is too long"
    reason = (
        f"{kind}. Got {got:,} bytes of values; expected {expected:,} for shape {shape} of {dtype.newbyteorder('=')}."
    )
    return FileError("read_idx", path, reason, "values")


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
        find_first("mnist", root, [f"{prefix}-{part}{dot}idx{n}-ubyte{end}" for dot in "-." for end in ("", ".gz")])
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
