"""On-disk cache of object code: one file per kernel, in a directory that only its owner can enter.

Directory: `WEFT_CACHE_DIR`, or `$XDG_CACHE_HOME/weft`, or `~/.cache/weft`; `WEFT_CACHE=0` switches the cache off. Where
there is no writable home directory (a container with `--user`, a read-only file system), it is `weft-<user id>` in the
system's directory for temporary files.

Loading code means running it, so an entry is used only if the directory and the file belong to this user, no other user
may write them, and the contents match the stored checksum. Anything else is ignored and rewritten.
No failure here is an error for the caller: an unreadable or unwritable cache only costs time.
The size is bounded, see `weft.backends.llvm.cache_limit`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from pathlib import Path

from ... import settings
from . import cache_limit

MAGIC = b"weft-object-1\n"
_DIGEST = 32


def directory() -> Path | None:
    """The cache directory, created on demand; None when the cache is off or cannot be trusted."""
    if not settings.CACHE():
        return None
    chosen = settings.CACHE_DIR()
    if chosen:
        return _private(Path(chosen) / "kernels")
    return _home_directory() or _temporary_directory()


def _home_directory() -> Path | None:
    """The directory in the user's cache; None without a home directory or without permission to write there."""
    base = os.environ.get("XDG_CACHE_HOME", "").strip()
    try:
        home = Path(base) if base else Path.home() / ".cache"
    except RuntimeError:  # no HOME, and the user id is not in the password database
        return None
    return _private(home / "weft" / "kernels")


def _temporary_directory() -> Path | None:
    """A directory for this user among the temporary files. Another user may have created one of that name: every
    level below the shared one must belong to this user."""
    try:
        parent = Path(tempfile.gettempdir()) / f"weft-{os.getuid() if hasattr(os, 'getuid') else 'cache'}"
    except OSError:  # no temporary directory can be written
        return None
    return None if _private(parent) is None else _private(parent / "kernels")


def _private(path: Path) -> Path | None:
    """`path` as a directory that only this user can enter, created on demand; None if that fails."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = path.lstat()
        if not stat.S_ISDIR(info.st_mode) or not _ours(info):
            return None
        if stat.S_IMODE(info.st_mode) & 0o077:
            path.chmod(0o700)
    except (OSError, ValueError):  # ValueError: a null byte in the name
        return None
    return path


def _ours(info: os.stat_result) -> bool:
    return not hasattr(os, "getuid") or info.st_uid == os.getuid()


def read(key: str) -> bytes | None:
    """Object code stored under `key`; None if there is none that can be trusted."""
    folder = directory()
    if folder is None:
        return None
    try:
        # O_NOFOLLOW: an entry is a regular file, never a link to something else.
        handle = os.open(folder / key, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode) or not _ours(info) or stat.S_IMODE(info.st_mode) & 0o022:
            return None
        try:
            content = file.read()
        except OSError:
            return None
        cache_limit.used(handle, info)
    header = len(MAGIC) + _DIGEST
    code = content[header:]
    if content[: len(MAGIC)] != MAGIC or _checksum(key, code) != content[len(MAGIC) : header]:
        return None
    return code


def write(key: str, code: bytes) -> None:
    """Store object code atomically, also with concurrent writers."""
    folder = directory()
    if folder is None:
        return
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=cache_limit.TEMPORARY)
        with os.fdopen(handle, "wb") as file:
            file.write(MAGIC + _checksum(key, code) + code)
        os.replace(temporary, folder / key)
        temporary = ""
        cache_limit.wrote(folder, len(code), _ours)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _checksum(key: str, code: bytes) -> bytes:
    return hashlib.sha256(key.encode() + code).digest()
