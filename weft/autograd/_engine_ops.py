"""The op functions that the backward engine uses, imported after all ops are defined."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ops.array.creation import ones_like as ones_like
from ..ops.array.creation import zeros_like_spec as zeros_like_spec
from ..ops.array.elementwise import astype as astype
from ..ops.array.elementwise import conj as conj
from ..ops.array.elementwise import real as real
from ..ops.array.shaping import sum_to as sum_to
from ..ops.array.shaping import sum_to_like as sum_to_like
from ..tensor import Tensor, wrap


def own(g: Tensor) -> Tensor:
    """`g` as it may be stored in `.grad`: copied if its memory is shared or read-only."""
    data = g._data
    if not data.flags.writeable or data.base is not None and _shared(data):
        copied = wrap(np.array(data), g._node)
        return copied
    return g


def _shared(data: np.ndarray) -> Any:
    """Whether `data` is a view of part of its memory, or a broadcast."""
    base = data.base
    return 0 in data.strides and data.size > 1 or isinstance(base, np.ndarray)
