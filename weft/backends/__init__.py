"""Backends that execute kernels: generated code (LLVM) and oneDNN. Each folder is the only importer of its library.

`cuda`, `cudnn`, `mps` and `mkldnn` are the flags that PyTorch programs read and set (`wf.backends.cudnn.benchmark = True`).
"""

from __future__ import annotations

import functools
import importlib.util
import os
import warnings
from typing import Any

from .. import settings
from . import cuda as cuda
from . import cudnn as cudnn
from . import mkldnn as mkldnn
from . import mps as mps

__all__: list[str] = []  # for users there are only the flags above


@functools.cache
def native_available() -> bool:
    """Whether native kernels can be generated: llvmlite is installed (one warning if not) and `WEFT_LLVM` is not 0.

    Does not load LLVM.
    """
    if not settings.LLVM():
        return False
    if importlib.util.find_spec("llvmlite") is None:
        warnings.warn(
            "backends: llvmlite is not installed, Weft computes with NumPy alone. Install it with "
            "`pip install llvmlite`, or silence this with WEFT_LLVM=0.",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


@functools.cache
def native_kernels() -> Any:
    """The module of native kernels on NumPy arrays (`weft.backends.llvm.eager`), or False where there is none."""
    if not native_available():
        return False
    from .llvm import eager

    return eager


def register_kernels() -> None:
    """Give the op table every backend's kernels, those of oneDNN before those of LLVM where both serve an op.

    LLVM is loaded by the first kernel that runs; oneDNN is searched for here.
    """
    from .llvm import kernels as llvm_kernels
    from .onednn import kernels as onednn_kernels

    llvm_kernels.register()
    onednn_kernels.register()


@functools.cache
def register_lowerings() -> None:
    """Let the compiler use every backend's primitives (`weft.compiler.lowering.library`). Loads no library."""
    from .onednn import lowerings

    lowerings.register()
