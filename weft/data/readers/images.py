"""Pictures in folders, one folder for each class."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import FileError
from ..dataset import Dataset
from ._files import PathLike, _listing

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")


class ImageFolder(Dataset):
    """Pictures under ``root/class/…``: a sample is (image, number of the class).

    Classes are numbered in the order of their names. Pictures are read when they are asked for, as bytes of shape
    (channels, height, width). Needs Pillow.

    Args:
        root: the folder that has a folder for each class.
        transform: applied to each image.
        size: resize to this (height, width), or a square; needed for batches if pictures differ in size.
        mode: "RGB", "L" (grey) or "RGBA".
        extensions: which files are pictures.
    """

    def __init__(
        self,
        root: PathLike,
        transform: Callable[[np.ndarray], Any] | None = None,
        size: int | tuple[int, int] | None = None,
        mode: str = "RGB",
        extensions: tuple[str, ...] = EXTENSIONS,
    ) -> None:
        _pillow()
        self.root, self.transform, self.mode = Path(root), transform, mode
        self.size = (size, size) if isinstance(size, int) else size
        if mode not in ("RGB", "L", "RGBA"):
            raise ValueError(f"ImageFolder: unknown mode. Got {mode!r}; expected 'RGB', 'L' or 'RGBA'.")
        if not self.root.is_dir():
            raise FileNotFoundError(f"ImageFolder: no such folder: {self.root}.")
        self.classes = sorted(entry.name for entry in self.root.iterdir() if entry.is_dir())
        if not self.classes:
            raise FileNotFoundError(
                f"ImageFolder: {self.root} has no folders. Expected one for each class; found {_listing(self.root)}."
            )
        self.samples: list[tuple[Path, int]] = []
        for label, name in enumerate(self.classes):
            files = sorted(p for p in (self.root / name).rglob("*") if p.suffix.lower() in extensions and p.is_file())
            if not files:
                raise FileNotFoundError(
                    f"ImageFolder: the folder {self.root / name} has no pictures. Expected files ending in "
                    f"{', '.join(extensions)}."
                )
            self.samples.extend((path, label) for path in files)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, label = self.samples[index]
        image: Any = self._read(path)
        return (image if self.transform is None else self.transform(image)), label

    def _read(self, path: Path) -> np.ndarray:
        pixels = read_picture("ImageFolder", path, self.mode, self.size, _pillow().Resampling.BILINEAR)
        return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def read_picture(what: str, path: Path, mode: str, size: tuple[int, int] | None, resampling: Any) -> np.ndarray:
    """A picture as bytes of shape (height, width) or (height, width, channels).

    Only formats that Pillow decodes itself are read (`FORMATS`): for others, such as EPS, it starts a program. The size is
    looked at before the picture is decoded; more pixels than Pillow's `Image.MAX_IMAGE_PIXELS` are refused.

    Args:
        size: resize to (height, width), by `resampling`.

    Raises:
        FileError: the file is no picture of these formats, is damaged, or has too many pixels.
    """
    pillow = _pillow()
    try:
        with pillow.open(path, formats=FORMATS) as picture:
            limit = pillow.MAX_IMAGE_PIXELS
            if limit is not None and picture.width * picture.height > limit:
                size_of = f"{picture.width} x {picture.height}"
                raise ValueError(f"it has {size_of} pixels; PIL.Image.MAX_IMAGE_PIXELS allows {limit:,}")
            converted = picture.convert(mode)
            if size is not None:
                converted = converted.resize((size[1], size[0]), resampling)
            return np.array(converted, np.uint8)
    except FileNotFoundError:
        raise FileNotFoundError(f"{what}: no such file any more: {path}.") from None
    except MemoryError:
        raise
    except Exception as error:  # decoders fail on damaged files in many ways; a bomb is one of them
        reason = f"cannot be read as a picture ({path.stat().st_size:,} bytes): {error}."
        raise FileError(what, path, reason) from None


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise ImportError(
            "ImageFolder: reading pictures needs Pillow. Install it with `pip install weft[data]` or "
            "`pip install pillow`."
        ) from None
    return Image
