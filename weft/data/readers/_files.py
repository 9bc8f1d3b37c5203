"""Finding files, and saying clearly when they are not there."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

PathLike = str | os.PathLike[str]


def existing(what: str, path: PathLike) -> Path:
    """The path, if there is such a file."""
    path = Path(path)
    if not path.exists():
        folder = path.parent
        around = (
            f"the folder {folder} has {_listing(folder)}"
            if folder.is_dir()
            else f"there is no folder {folder}"
        )
        raise FileNotFoundError(f"{what}: no such file: {path}; {around}.")
    if path.is_dir():
        raise IsADirectoryError(
            f"{what}: expected a file. Got the folder {path}, which has {_listing(path)}."
        )
    return path


def find_first(what: str, root: PathLike, names: Sequence[str]) -> Path:
    """The first of some file names that exists in a folder."""
    root = Path(root)
    if not root.is_dir():
        raise FileNotFoundError(f"{what}: no such folder: {root}. Expected one with {' or '.join(names)}.")
    for name in names:
        if (root / name).exists():
            return root / name
    raise FileNotFoundError(f"{what}: {root} has none of {', '.join(names)}. Found {_listing(root)}.")


def read_bytes(what: str, path: Path) -> bytes:
    """The contents of a file, unpacked if it is gzipped (by its content, not by its name)."""
    raw = existing(what, path).read_bytes()
    if raw[:2] != b"\x1f\x8b":
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(
            f"{what}: {path} is a damaged or truncated gzip file of {len(raw):,} bytes ({error}). Fetch it again."
        ) from None


def _listing(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir())
    if not names:
        return "nothing in it"
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
