"""LRU eviction for the kernel cache: least recently used entries are removed when it exceeds `WEFT_CACHE_SIZE`.

An entry's modification time is its last use: a read renews it, at most once an hour. Any number of processes may prune,
read and write one directory concurrently. No lock is needed: removing a file is atomic, a process that has it open can
finish reading it, and one that finds it gone recompiles.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from ...runtime import limits

TEMPORARY = ".new-"
"""Prefix of unfinished entries."""
STAMP = ".pruned"
"""A file whose modification time is that of the last scan of the directory."""
RENEW_SECONDS = 3600.0
SCAN_SECONDS = 600.0
"""Seconds between two scans of the directory, unless this process alone writes `SCAN_SHARE` of the limit in between."""
SCAN_SHARE = 1 / 64
ABANDONED_SECONDS = 3600.0
"""Age from which an unfinished entry is attributed to a dead process."""
PRUNED_SHARE = 0.9
"""Fraction of the limit to prune to, so that the next entry does not trigger pruning again."""

_written = 0  # bytes written since this process last scanned


def used(handle: int, info: os.stat_result) -> None:
    """Note that the entry with that open file was read."""
    if time.time() - info.st_mtime > RENEW_SECONDS:
        with contextlib.suppress(OSError):  # a read-only file system: it is not pruned either
            os.utime(handle)


def wrote(folder: Path, size: int, is_owned: Callable[[os.stat_result], bool]) -> None:
    """Note that an entry was written, and prune if it is time."""
    global _written
    _written += _blocks(size)
    limit = limits.cache_bytes()
    if limit == limits.UNLIMITED:
        return
    stamp = folder / STAMP
    try:
        recent = 0 <= time.time() - stamp.stat().st_mtime < SCAN_SECONDS
    except FileNotFoundError:
        recent = False
    if not recent or _written >= limit * SCAN_SHARE:
        stamp.touch(mode=0o600)
        _written = 0
        prune(folder, limit, is_owned)


def prune(folder: Path, limit: int, is_owned: Callable[[os.stat_result], bool]) -> int:
    """Remove entries until the rest takes at most `PRUNED_SHARE` of `limit`; returns the number removed."""
    now = time.time()
    entries: list[tuple[float, int, str]] = []
    removed = 0
    with os.scandir(folder) as found:
        for entry in found:
            try:
                info = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # another process pruned it
            if not entry.is_file(follow_symlinks=False) or not is_owned(info) or entry.name == STAMP:
                continue
            if entry.name.startswith(TEMPORARY):
                removed += now - info.st_mtime > ABANDONED_SECONDS and _remove(entry.path)
            else:
                entries.append((info.st_mtime, _blocks(info.st_size), entry.path))
    total = sum(size for _, size, _ in entries)
    if total <= limit:
        return removed
    for _, size, path in sorted(entries):
        if total <= limit * PRUNED_SHARE:
            break
        removed += _remove(path)
        total -= size
    return removed


def contents(folder: Path) -> tuple[int, int]:
    """The number of entries and their total bytes."""
    count = total = 0
    with os.scandir(folder) as found:
        for entry in found:
            with contextlib.suppress(OSError):  # another process removed it during the scan
                if entry.name != STAMP and entry.is_file(follow_symlinks=False):
                    count, total = count + 1, total + _blocks(entry.stat(follow_symlinks=False).st_size)
    return count, total


def _remove(path: str) -> bool:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def _blocks(size: int) -> int:
    """The disk space of a file of `size` bytes, in whole blocks."""
    return -(-size // 4096) * 4096
