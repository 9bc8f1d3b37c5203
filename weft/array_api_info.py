"""The inspection API of the array API standard: `wf.__array_namespace_info__()`."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import dtypes as _dtypes
from .runtime.device import CPU, Device, as_device

# The dtypes of the standard, which lacks float16 and bfloat16.
_STANDARD = tuple(d for d in _dtypes.ALL if d not in (_dtypes.float16, _dtypes.bfloat16))


class ArrayNamespaceInfo:
    """Properties of `weft` as an array API namespace."""

    def capabilities(self) -> dict[str, Any]:
        """Capabilities: boolean indexing, data-dependent shapes, and the maximum number of axes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """The device of new tensors."""
        return CPU

    def devices(self) -> tuple[Device, ...]:
        """The devices that creation functions accept."""
        return (CPU,)

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        """The default dtypes, by kind."""
        _check_device("default_dtypes", device)
        real = _dtypes.get_default_dtype()
        return {
            "real floating": real,
            "complex floating": _dtypes.complex_dtype(real),
            "integral": _dtypes.int64,
            "indexing": _dtypes.int64,
        }

    def dtypes(self, *, device: Any = None, kind: str | tuple[str, ...] | None = None) -> dict[str, np.dtype]:
        """The dtypes of the array API by name, all or those of some kinds such as "integral" or "real floating"."""
        _check_device("dtypes", device)
        return {d.name: d for d in _STANDARD if kind is None or _dtypes.isdtype(d, kind)}

    def __repr__(self) -> str:
        return "<array API inspection of weft>"


def _check_device(name: str, device: Any) -> None:
    if device is not None and as_device(device).kind != "cpu":
        raise ValueError(f"{name}: expected the CPU. Got device {device!r}.")


_info = ArrayNamespaceInfo()


def __array_namespace_info__() -> ArrayNamespaceInfo:
    """The array API's inspection functions: `capabilities`, `default_device`, `default_dtypes`, `devices`, `dtypes`."""
    return _info
