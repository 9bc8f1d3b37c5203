"""`wf.astype` as the array API defines it: a copy unless `copy=False`. The package itself and methods avoid the copy."""

from __future__ import annotations

from .. import dtypes
from ..tensor import Tensor
from ..typing import DeviceLike, DTypeLike
from .creation import check_device as _check_device
from .elementwise import cast


def astype(x: Tensor, dtype: DTypeLike, /, *, copy: bool = True, device: DeviceLike | None = None) -> Tensor:
    """`x` converted to `dtype`: a new tensor, or `x` itself if nothing changes and `copy` is False."""
    _check_device("astype", device)
    dtype = dtypes.as_dtype(dtype)
    return x if x.dtype == dtype and not copy else cast(x, dtype)
