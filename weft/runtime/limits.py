"""Cache limits from the environment, and a thread-safe LRU table.

`WEFT_MAX_PROGRAMS` bounds the compiled programs of one captured function, of one region of a declared graph and of the
steps of a session; `WEFT_PROGRAM_MEMORY` bounds the bytes that programs keep for their temporaries between calls, all
together; `WEFT_CACHE_SIZE` bounds the bytes of the kernel cache on disk. They are read on first use; "none" is no limit.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from .. import settings
from ..settings import UNLIMITED as UNLIMITED
from . import _host, forks

K = TypeVar("K")
V = TypeVar("V")


@functools.cache
def max_programs() -> int:
    """The number of compiled programs kept per function: `WEFT_MAX_PROGRAMS`."""
    return settings.MAX_PROGRAMS()


@functools.cache
def cache_bytes() -> int:
    """The size limit of the kernel cache on disk, in bytes: `WEFT_CACHE_SIZE`."""
    return settings.CACHE_SIZE()


@functools.cache
def program_bytes() -> int:
    """The limit on temporaries that idle programs keep, in bytes: `WEFT_PROGRAM_MEMORY`."""
    asked, total = settings.PROGRAM_MEMORY(), _host.memory_total()
    if asked is not None:
        return asked
    return UNLIMITED if total is None else total // 2


class LeastRecentlyUsed(Generic[K, V]):
    """A mapping of at most `limit()` values that evicts the least recently used one.

    All methods are thread-safe. An evicted value stays alive while it is referenced.
    """

    __slots__ = ("_limit", "_entries", "_clock", "_lock", "dropped", "__weakref__")

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._entries: dict[K, list] = {}  # [value, time of last use], in insertion order
        self._clock = itertools.count()
        self._lock = threading.Lock()
        forks.renewed_in_child(self)
        self.dropped = 0
        """number of evicted values"""

    def get(self, key: K) -> V | None:
        """The value of `key`, marked as used, or None."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry[1] = next(self._clock)
        value: V = entry[0]
        return value

    def put(self, key: K, value: V) -> None:
        """Store `value`, evicting others beyond the limit."""
        limit = self._limit()
        with self._lock:
            self._entries[key] = [value, next(self._clock)]
            while len(self._entries) > limit:
                oldest = min(self._entries.items(), key=lambda item: item[1][1])[0]
                del self._entries[oldest]
                self.dropped += 1

    def values(self) -> list[V]:
        """All values in insertion order."""
        return [entry[0] for entry in list(self._entries.values())]

    def drop(self, value: V) -> None:
        """Remove the value that is this object."""
        with self._lock:
            for key in [k for k, entry in self._entries.items() if entry[0] is value]:
                del self._entries[key]

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)
