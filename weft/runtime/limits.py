"""How much Weft keeps: limits from the environment, and a table that forgets what was used least recently.

`WEFT_MAX_PROGRAMS` bounds the compiled programs of one captured function, of one region of a declared graph and of the
steps of a session; `WEFT_PROGRAM_MEMORY` bounds the bytes that programs keep for their temporaries between calls, all
together; `WEFT_CACHE_SIZE` bounds the bytes of the kernel cache on disk. They are read when they are first needed; "none" is
no limit.
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
    """How many compiled programs of one function are kept: `WEFT_MAX_PROGRAMS`."""
    return settings.MAX_PROGRAMS()


@functools.cache
def cache_bytes() -> int:
    """How many bytes the kernel cache may take up on disk: `WEFT_CACHE_SIZE`."""
    return settings.CACHE_SIZE()


@functools.cache
def program_bytes() -> int:
    """How many bytes programs may keep for temporaries while they do not run: `WEFT_PROGRAM_MEMORY`."""
    asked, total = settings.PROGRAM_MEMORY(), _host.memory_total()
    if asked is not None:
        return asked
    return UNLIMITED if total is None else total // 2


class LeastRecentlyUsed(Generic[K, V]):
    """Values by key, at most `limit()` of them: a new one takes the place of the one that was asked for longest ago.

    Any thread may call any method. A value that is dropped lives on with whoever still uses it.
    """

    __slots__ = ("_limit", "_entries", "_clock", "_lock", "dropped", "__weakref__")

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._entries: dict[K, list] = {}  # [value, when it was last asked for]; the order is that of making
        self._clock = itertools.count()
        self._lock = threading.Lock()
        forks.renewed_in_child(self)
        self.dropped = 0
        """how many values have had to go"""

    def get(self, key: K) -> V | None:
        """The value of `key`, which counts as used now; None if there is none."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry[1] = next(self._clock)
        value: V = entry[0]
        return value

    def put(self, key: K, value: V) -> None:
        """Keep `value`, and drop what is too much."""
        limit = self._limit()
        with self._lock:
            self._entries[key] = [value, next(self._clock)]
            while len(self._entries) > limit:
                oldest = min(self._entries.items(), key=lambda item: item[1][1])[0]
                del self._entries[oldest]
                self.dropped += 1

    def values(self) -> list[V]:
        """All values in the order in which they were put."""
        return [entry[0] for entry in list(self._entries.values())]

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)
