"""Pictures in folders, one folder for each class."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..dataset import Dataset
from ._files import PathLike, _listing

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")


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
            files = sorted(
                p for p in (self.root / name).rglob("*") if p.suffix.lower() in extensions and p.is_file()
            )
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
        pillow = _pillow()
        try:
            with pillow.open(path) as picture:
                picture = picture.convert(self.mode)
                if self.size is not None:
                    picture = picture.resize((self.size[1], self.size[0]), pillow.Resampling.BILINEAR)
                pixels = np.array(picture, np.uint8)
        except FileNotFoundError:
            raise FileNotFoundError(f"ImageFolder: no such file any more: {path}.") from None
        except (OSError, SyntaxError, ValueError) as error:
            size = path.stat().st_size
            raise ValueError(
                f"ImageFolder: cannot read {path} ({size:,} bytes) as a picture: {error}."
            ) from None
        return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise ImportError(
            "ImageFolder: reading pictures needs Pillow. Install it with `pip install weft[data]` or "
            "`pip install pillow`."
        ) from None
    return Image
