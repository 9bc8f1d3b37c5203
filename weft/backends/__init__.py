"""Libraries that run kernels; each folder is the only importer of its library."""

from __future__ import annotations

import functools
import importlib.util
import os
import warnings
from typing import Any


@functools.cache
def native_kernels() -> Any:
    """The module of native kernels on NumPy arrays (`weft.backends.llvm.eager`), or False.

    False without llvmlite, with one warning, and under `WEFT_LLVM=0`: everything then runs in NumPy.
    """
    if os.environ.get("WEFT_LLVM", "").strip().lower() in ("0", "off", "no", "false"):
        return False
    if importlib.util.find_spec("llvmlite") is None:
        warnings.warn(
            "backends: llvmlite is not installed, Weft computes with NumPy alone. Install it with "
            "`pip install llvmlite`, or silence this with WEFT_LLVM=0.",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    from .llvm import eager

    return eager
