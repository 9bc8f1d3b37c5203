"""`weft.backends.mps`: there is no Metal device; programs that ask get the answer they expect."""

from __future__ import annotations


def is_available() -> bool:
    """Whether tensors can be on a Metal device: no."""
    return False


def is_built() -> bool:
    """Whether Weft was built for Metal: no."""
    return False
