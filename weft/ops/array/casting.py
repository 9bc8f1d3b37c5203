"""`wf.astype` as defined by the array API: copies unless `copy=False`.

Methods and internal callers use `elementwise.astype`, which avoids the copy.
"""

from __future__ import annotations

from ... import dtypes
from ...tensor import Tensor
from ...typing import DeviceLike, DTypeLike
from .creation import check_device as _check_device
from .elementwise import cast

# Functions for users that are not ops; ops are public by their records.
__all__ = ["astype"]


def astype(x: Tensor, dtype: DTypeLike, /, *, copy: bool = True, device: DeviceLike | None = None) -> Tensor:
    """`x` converted to `dtype`: a new tensor, or `x` itself if nothing changes and `copy` is False.

    A float becomes an integer without its fraction; NaN becomes 0, and a value outside the range of `dtype` becomes its
    nearest end, in every mode and on every machine (NumPy and PyTorch leave both to the processor).

    >>> wf.astype(wf.tensor([-1.7, float("nan"), 1e30]), wf.uint8).tolist()
    [0, 0, 255]
    """
    _check_device("astype", device)
    dtype = dtypes.as_dtype(dtype)
    return x if x.dtype == dtype and not copy else cast(x, dtype)
