"""Shortcut for composite functions on small arrays outside the tape.

On a few elements, a composite function spends nearly all its time in dispatch. If no mode is active, no gradient is
needed and all operands are small arrays of one floating dtype, it may compute directly on the result of `arrays`, by
the formula that its ops would run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...autograd.tape import grad_mode
from ...tensor import Tensor
from . import modes
from .slow_path import NATIVE_MIN_ELEMENTS

F32, F64 = dtypes.float32, dtypes.float64
ndarray = np.ndarray


def arrays(*tensors: Tensor | None) -> list[Any] | None:
    """The arrays of `tensors` (the first is not None) if the shortcut applies, else None."""
    if modes.active:
        return None
    dtype = getattr(tensors[0], "dtype", None)
    if dtype is not F32 and dtype is not F64:
        return None
    recording = grad_mode.enabled
    found: list[Any] = []
    for t in tensors:
        if t is None:
            found.append(None)
            continue
        if t.__class__ is not Tensor and not isinstance(t, Tensor) or recording and t._node is not None:
            return None
        data = t._data
        if data.__class__ is not ndarray or data.dtype is not dtype or data.size >= NATIVE_MIN_ELEMENTS:
            return None
        found.append(data)
    return found
