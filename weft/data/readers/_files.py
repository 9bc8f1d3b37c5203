"""Helpers that locate and open files, with clear errors for missing ones."""

from __future__ import annotations

import contextlib
import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...errors import FileError
from ...io.checked import require_plain
from ...io.limits import Bounded, unpacked_limit

PathLike = str | os.PathLike[str]


def existing(what: str, path: PathLike) -> Path:
    """The path, if there is such a file."""
    path = Path(path)
    if not path.exists():
        folder = path.parent
        around = f"the folder {folder} has {_listing(folder)}" if folder.is_dir() else f"there is no folder {folder}"
        raise FileNotFoundError(f"{what}: no such file: {path}; {around}.")
    if path.is_dir():
        raise IsADirectoryError(f"{what}: expected a file. Got the folder {path}, which has {_listing(path)}.")
    require_plain(what, path)
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


@contextlib.contextmanager
def unpacked(what: str, path: Path, max_bytes: int | None = None) -> Iterator[tuple[Bounded, int | None]]:
    """A file to read from, unpacked if it is gzipped (by its content, not by its name), and its size if that is known.

    Args:
        max_bytes: how much a gzipped file may unpack to; by default 64 MiB, or a hundred times its size.

    Raises:
        FileError: a gzipped file is damaged, or unpacks to more than is allowed.
    """
    size = existing(what, path).stat().st_size
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if not packed:
            yield Bounded(file, size), size
            return
        try:
            with gzip.GzipFile(fileobj=file) as stream:
                yield Bounded(stream, unpacked_limit(size, max_bytes)), None  # type: ignore[arg-type]
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            reason = f"is a damaged or truncated gzip file of {size:,} bytes ({error}). Fetch it again."
            raise FileError(what, path, reason) from None
        except OverflowError as error:
            raise FileError(what, path, str(error)) from None


def _listing(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir())
    if not names:
        return "nothing in it"
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
