"""Writing so that a crash, at any moment, leaves either the old or the new, whole.

The recipe is the same for a file and for a directory: write beside the destination under a name that nobody reads, force
it to the disk, rename it into place, force the rename to the disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

TEMPORARY = ".tmp-"  # what the names of unfinished files and directories start with
ASIDE = ".old-"  # … and of a directory that is being replaced


def sync_directory(directory: str | os.PathLike[str]) -> None:
    """Force the names in `directory` to the disk, where the system lets a directory be opened."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to that becomes `path` when the block ends well, and vanishes when it does not."""
    target = Path(path)
    temporary = beside(target)
    file = open(temporary, "xb")
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(target.parent)


def write_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace the content of `path`, all or nothing."""
    with replace_file(path) as file:
        file.write(data)


def write_directory(path: Path, fill: Callable[[Path], None], keep_as: Path | None = None) -> None:
    """Make the directory `path` with what `fill(temporary)` puts into it, all or nothing.

    `fill` must have forced its files to the disk. A directory that is there already is replaced: it moves aside for the
    moment between two renames, or for good if `keep_as` names where to.
    """
    temporary = beside(path)
    temporary.mkdir()
    try:
        fill(temporary)
        sync_directory(temporary)
        if path.exists():
            aside = keep_as or path.with_name(f"{ASIDE}{path.name}")
            os.rename(path, aside)  # a crash between these two is mended by `recover`
            try:
                os.rename(temporary, path)
            except BaseException:
                os.rename(aside, path)
                raise
            if keep_as is None:
                shutil.rmtree(aside, ignore_errors=True)
        else:
            os.rename(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_directory(path.parent)


def remove_directory(path: Path) -> None:
    """Remove a directory so that a half-removed one is never found under its name."""
    aside = beside(path)
    os.rename(path, aside)
    shutil.rmtree(aside, ignore_errors=True)


def recover(directory: Path) -> None:
    """Clear away what a process that died left unfinished. Only for who alone writes to `directory`."""
    for entry in directory.glob(f"{ASIDE}*"):
        original = entry.with_name(entry.name.removeprefix(ASIDE))
        if original.exists():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            os.rename(entry, original)
    for entry in directory.glob(f"{TEMPORARY}*"):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def explain_os_error(error: OSError, directory: Path) -> str:
    """What went wrong while writing below `directory`, and how much room there is, in a sentence."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        with contextlib.suppress(OSError):
            free = shutil.disk_usage(directory).free
            what = "the disk is full" if error.errno == errno.ENOSPC else "the disk quota is used up"
            return f"{what} ({free / 1e6:.1f} MB free in {directory})"
    return f"{error.strerror or error} ({error.filename or directory})"


def beside(path: Path) -> Path:
    """A name in the same directory that nobody else uses. (`tempfile` would make it readable by its owner only.)"""
    return path.parent / f"{TEMPORARY}{path.name}.{os.getpid()}-{secrets.token_hex(4)}"
