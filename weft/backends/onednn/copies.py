"""Equal files of oneDNN beside the one that is loaded.

A wheel cannot hold links, so pip stores the library once per name, `libdnnl.so`, `libdnnl.so.3` and `libdnnl.so.3.2`: three times
the same bytes. `weft info` says so, and `weft info --dedupe` replaces the copies by hard links, under the same names.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
from pathlib import Path

from . import library


def copies() -> list[Path]:
    """Files beside the loaded library with other names, the same bytes, and disk space of their own."""
    loaded = library.path()
    return [] if loaded is None or not os.path.isfile(loaded) else copies_of(Path(loaded))


def copies_of(path: Path) -> list[Path]:
    """The copies of one library file in its folder; links are none."""
    own = path.stat()
    found = []
    for other in sorted(path.parent.glob("libdnnl*")):
        facts = other.lstat()
        same = facts.st_size == own.st_size and (facts.st_ino, facts.st_dev) != (own.st_ino, own.st_dev)
        if same and other.is_file() and not other.is_symlink() and filecmp.cmp(path, other, shallow=False):
            found.append(other)
    return found


def link_copies(path: Path | None = None) -> tuple[list[Path], int]:
    """Replace the copies by hard links to one file; returns their paths and the bytes that are free now.

    Each is replaced in one step, so a program that starts meanwhile finds the old file or the new one.

    Raises:
        OSError: the folder cannot be written, or its file system has no hard links. What was done before stays valid.
    """
    if path is None:
        loaded = library.path()
        if loaded is None or not os.path.isfile(loaded):
            return [], 0
        path = Path(loaded)
    path = path.resolve()
    found = copies_of(path)
    freed = 0
    for other in found:
        size = other.stat().st_size
        fresh = other.with_name(f".{other.name}.{os.getpid()}")
        try:
            os.link(path, fresh)
            os.replace(fresh, other)
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                fresh.unlink()
            raise
        freed += size
    return found, freed
