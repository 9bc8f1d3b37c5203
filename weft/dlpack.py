"""DLPack import and export: zero-copy exchange with NumPy, torch, jax and others.

NumPy implements DLPack for every dtype but bfloat16, which DLPack has and NumPy lacks; it is exchanged as uint16 with the
type code patched in the capsule.
"""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np

from . import dtypes

_BFLOAT = 4  # DLDataTypeCode kDLBfloat
_UINT = 1


class _DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", _DLDataType),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


_api = ctypes.pythonapi
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_VERSIONED_HEADER = 32  # version (8), manager_ctx (8), deleter (8), flags (8) before the DLTensor


def _tensor_in(capsule: Any) -> _DLTensor:
    """The DLTensor inside a capsule, old or versioned."""
    if _is_valid(capsule, b"dltensor_versioned"):
        return _DLTensor.from_address(_get_pointer(capsule, b"dltensor_versioned") + _VERSIONED_HEADER)
    return _DLTensor.from_address(_get_pointer(capsule, b"dltensor"))


def export(array: np.ndarray, **options: Any) -> Any:
    """A DLPack capsule that shares the memory of `array`."""
    if array.dtype != dtypes.bfloat16:
        if not array.flags.writeable and options.get("max_version") is None:
            array = array.copy()  # the old protocol has no read-only flag
        return array.__dlpack__(**options)
    capsule = array.view(np.uint16).__dlpack__(**options)
    _tensor_in(capsule).dtype.code = _BFLOAT
    return capsule


class _Retyped:
    """Presents a bfloat16 producer's memory to NumPy as uint16."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def __dlpack__(self, **options: Any) -> Any:
        options = {k: v for k, v in options.items() if v is not None}
        capsule = self._producer.__dlpack__(**options) if options else self._producer.__dlpack__()
        _tensor_in(capsule).dtype.code = _UINT
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._producer.__dlpack_device__()


def import_array(x: Any) -> np.ndarray:
    """A NumPy array that shares the memory of a DLPack producer."""
    device = tuple(x.__dlpack_device__())
    if device[0] != 1:
        raise BufferError(
            f"from_dlpack: expected data on the CPU. Got DLPack device {device}; move it to the CPU first."
        )
    if "bfloat16" in str(getattr(x, "dtype", "")):
        return np.from_dlpack(_Retyped(x)).view(ml_dtypes.bfloat16)
    return np.from_dlpack(x)
