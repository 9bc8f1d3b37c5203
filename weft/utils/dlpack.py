"""Exchange of tensors with other libraries through DLPack, under the names of `torch.utils.dlpack`."""

from __future__ import annotations

from typing import Any

import weft as wf

from ..tensor import Tensor

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule that shares the memory of `tensor`; it can be consumed once.

    >>> type(wf.utils.dlpack.to_dlpack(wf.ones(2))).__name__
    'PyCapsule'
    """
    return tensor.__dlpack__()


def from_dlpack(ext_tensor: Any) -> Tensor:
    """A tensor that shares the memory of another library's.

    Args:
        ext_tensor: an object with `__dlpack__`.

    >>> wf.utils.dlpack.from_dlpack(np.arange(3))
    tensor([0, 1, 2])
    """
    return wf.from_dlpack(ext_tensor)
