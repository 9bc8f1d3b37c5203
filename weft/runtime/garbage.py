"""Pauses Python's cyclic garbage collector during compilation.

A compilation allocates a hundred thousand small objects and no cyclic garbage; the collector would traverse them
repeatedly, a fifth of the compile time. Reference counting is not affected.
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
    """A context without cyclic collections; re-entrant and thread-safe."""
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
