"""`weft.utils.pytree` under the name that programs for PyTorch import."""

from __future__ import annotations

from .pytree import *  # noqa: F403
