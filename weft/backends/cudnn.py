"""`weft.backends.cudnn`: the flags of PyTorch programs, which may be set and change nothing, because there is no GPU.

Weft's results do not depend on such flags: they are the same bits in every run with the same number of workers or threads.
"""

from __future__ import annotations

enabled: bool = False
benchmark: bool = False
benchmark_limit: int | None = None
deterministic: bool = True
allow_tf32: bool = False


def is_available() -> bool:
    """Whether cuDNN can be used: no."""
    return False


def version() -> int | None:
    """The version of cuDNN: there is none."""
    return None
