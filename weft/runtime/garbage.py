"""Pausing Python's cyclic garbage collector while many objects are made that all live on.

A compilation makes a hundred thousand small objects and drops none of them in cycles; the collector would look through
all of them again and again, a fifth of the compile time. Reference counting goes on as always.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_pauses = 0
_was_enabled = False


@contextmanager
def paused() -> Iterator[None]:
    """No cyclic collection inside; nests, and several threads may be inside at once."""
    global _pauses, _was_enabled
    with _lock:
        if _pauses == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if _pauses == 0 and _was_enabled:
                gc.enable()
