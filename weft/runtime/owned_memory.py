"""Memory that belongs to something else than the tensors that show it, such as the state of a distributed run.

Tensors see it through read-only arrays. A write to one is an error, and this module knows what to tell the user then.
"""

from __future__ import annotations

import numpy as np

_owned: dict[int, tuple[int, str]] = {}  # first address -> (address after the last byte, what to do instead of writing)


def claim(array: np.ndarray, advice: str) -> None:
    """Say that the memory of `array`, which is contiguous, has an owner; `advice` completes an error message."""
    start = array.__array_interface__["data"][0]
    _owned[start] = (start + array.nbytes, advice)


def release(array: np.ndarray) -> None:
    """Forget what `claim` said."""
    _owned.pop(array.__array_interface__["data"][0], None)


def advice(array: object) -> str | None:
    """What to do instead of writing to `array`; None if its memory has no owner."""
    if not _owned or type(array) is not np.ndarray:
        return None
    at = array.__array_interface__["data"][0]
    return next((text for start, (stop, text) in _owned.items() if start <= at < stop), None)
