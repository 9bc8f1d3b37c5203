"""Atomic, durable writes: a crash at any moment leaves either the old or the new content.

Files and directories are written in the same way: write under a temporary name beside the destination, fsync, rename
into place, fsync the parent directory.
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
    """Fsync `directory`, where the system can open directories."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A context manager with a file that replaces `path` if the block succeeds and is removed otherwise."""
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
    """Replace the content of `path` atomically."""
    with replace_file(path) as file:
        file.write(data)


def write_directory(path: Path, fill: Callable[[Path], None], keep_as: Path | None = None) -> None:
    """Create the directory `path` atomically with the files that `fill(temporary)` writes.

    `fill` must fsync its files. An existing directory is replaced: it is moved aside between two renames and then
    removed, or kept as `keep_as` if given.
    """
    temporary = beside(path)
    temporary.mkdir()
    try:
        fill(temporary)
        sync_directory(temporary)
        if path.exists():
            aside = keep_as or path.with_name(f"{ASIDE}{path.name}")
            os.rename(path, aside)  # `recover` repairs a crash between these two
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
    """Remove a directory such that a partly removed one never has its name."""
    aside = beside(path)
    os.rename(path, aside)
    shutil.rmtree(aside, ignore_errors=True)


def recover(directory: Path) -> None:
    """Remove unfinished files of a process that died. The caller must be the only writer to `directory`."""
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
    """Describe a failed write below `directory`, with the free disk space."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        with contextlib.suppress(OSError):
            free = shutil.disk_usage(directory).free
            what = "the disk is full" if error.errno == errno.ENOSPC else "the disk quota is used up"
            return f"{what} ({free / 1e6:.1f} MB free in {directory})"
    return f"{error.strerror or error} ({error.filename or directory})"


def beside(path: Path) -> Path:
    """A unique temporary name in the same directory. (`tempfile` would restrict the file mode to its owner.)"""
    return path.parent / f"{TEMPORARY}{path.name}.{os.getpid()}-{secrets.token_hex(4)}"
