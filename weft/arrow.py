"""Export of tensors to Arrow (`pa.array(t)`, `pl.Series(t)`) by the Arrow C data interface, without pyarrow.

A tensor with several axes becomes nested fixed-size lists. Memory is shared with the tensor, except for booleans, which Arrow
packs into bits, and for tensors that are not contiguous.

Note [Ownership of Arrow structures]. A consumer takes a structure by copying it and setting the `release` of ours to NULL; later
it calls `release` with its copy. So the arrays and buffers behind a structure are held by the number in its `private_data`,
not by its address; the memory of our own structure lives as long as its capsule.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from typing import Any

import numpy as np

from .errors import format_shape

FORMATS = {
    "bool": b"b", "int8": b"c", "uint8": b"C", "int16": b"s", "uint16": b"S", "int32": b"i", "uint32": b"I", "int64": b"l",
    "uint64": b"L", "float16": b"e", "float32": b"f", "float64": b"g",
}  # fmt: skip


class ArrowSchema(ctypes.Structure):
    """`struct ArrowSchema`: the type."""

    _fields_ = [
        ("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_char_p), ("flags", ctypes.c_int64),
        ("n_children", ctypes.c_int64), ("children", ctypes.c_void_p), ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p), ("private_data", ctypes.c_void_p),
    ]  # fmt: skip


class ArrowArray(ctypes.Structure):
    """`struct ArrowArray`: the data."""

    _fields_ = [
        ("length", ctypes.c_int64), ("null_count", ctypes.c_int64), ("offset", ctypes.c_int64),
        ("n_buffers", ctypes.c_int64), ("n_children", ctypes.c_int64), ("buffers", ctypes.c_void_p),
        ("children", ctypes.c_void_p), ("dictionary", ctypes.c_void_p), ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    ]  # fmt: skip


_numbers = itertools.count(1)
_held: dict[int, Any] = {}  # what a structure refers to, by its `private_data`
_structures: dict[int, Any] = {}  # the structure in a capsule, by its address

_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _release(cls: Any) -> Any:
    """The `release` of the structures `cls`: first that of children that the consumer did not take, then what is held."""

    def release(address: int) -> None:
        structure = cls.from_address(address)
        for i in range(structure.n_children):
            child = ctypes.c_void_p.from_address(structure.children + i * ctypes.sizeof(ctypes.c_void_p)).value
            if child and cls.from_address(child).release:
                release(child)
        _held.pop(structure.private_data, None)
        structure.release = None

    return _Callback(release)


def _immortal(callback: Any) -> Any:
    """`callback`, which must outlive its module: a consumer may call it while the interpreter ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(callback))
    return callback


_RELEASE = {cls: _immortal(_release(cls)) for cls in (ArrowSchema, ArrowArray)}


def _own(structure: Any, *held: Any) -> Any:
    number = next(_numbers)
    _held[number] = held
    structure.private_data = number
    structure.release = ctypes.cast(_RELEASE[type(structure)], ctypes.c_void_p).value
    return structure


def _pointers(addresses: list[int | None]) -> Any:
    return (ctypes.c_void_p * max(len(addresses), 1))(*addresses)


def _schema(format: bytes, shape: tuple[int, ...]) -> ArrowSchema:
    """The type of one element: `shape` are the sizes of the axes inside of it."""
    made = ArrowSchema(name=b"", format=format)
    if not shape:
        return _own(made)
    child = _schema(format, shape[1:])
    child.name = b"item"
    children = _pointers([ctypes.addressof(child)])
    made.format, made.n_children, made.children = b"+w:%d" % shape[0], 1, ctypes.addressof(children)
    return _own(made, child, children)


def _array(values: np.ndarray, shape: tuple[int, ...]) -> ArrowArray:
    made = ArrowArray(length=shape[0])
    if len(shape) == 1:
        address = values.ctypes.data if values.size else None
        buffers = _pointers([None, address])  # no validity bits: there are no nulls
        made.n_buffers, made.buffers = 2, ctypes.addressof(buffers)
        return _own(made, values, buffers)
    child = _array(values, (shape[0] * shape[1], *shape[2:]))
    children, buffers = _pointers([ctypes.addressof(child)]), _pointers([None])
    made.n_buffers, made.buffers = 1, ctypes.addressof(buffers)
    made.n_children, made.children = 1, ctypes.addressof(children)
    return _own(made, child, children, buffers)


_api = ctypes.pythonapi
_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _Destructor)(
    ("PyCapsule_New", _api)
)
# by address: a reference taken while the capsule dies would bring it back
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_NAMES = {ArrowSchema: b"arrow_schema", ArrowArray: b"arrow_array"}


def _destructor(cls: Any) -> Any:
    def destroy(capsule: int) -> None:
        address = _pointer_of(capsule, _NAMES[cls])
        if cls.from_address(address).release:  # nobody took it
            _RELEASE[cls](address)
        _structures.pop(address, None)

    return _Destructor(destroy)


_DESTROY = {cls: _immortal(_destructor(cls)) for cls in (ArrowSchema, ArrowArray)}


def _capsule(structure: Any) -> Any:
    address = ctypes.addressof(structure)
    _structures[address] = structure
    return _new_capsule(address, _NAMES[type(structure)], _DESTROY[type(structure)])


def export(array: np.ndarray) -> tuple[Any, Any]:
    """The capsules of `__arrow_c_array__` for an array of at least one axis."""
    format = FORMATS.get(array.dtype.name)
    if format is None:
        fix = "`x.astype(wf.float32)`" if array.dtype.kind != "c" else "`x.real` and `x.imag`, two columns,"
        raise TypeError(f"__arrow_c_array__: Arrow has no type for {array.dtype.name}. Convert it first; {fix} is one.")
    if array.ndim == 0:
        raise ValueError(
            "__arrow_c_array__: a tensor without axes is no Arrow array. Write `x.reshape(1)`, or `x.item()`."
        )
    if array.ndim > 1 and 0 in array.shape[1:]:
        raise ValueError(
            f"__arrow_c_array__: lists of size 0 cannot be exported. Got shape {format_shape(array.shape)}."
        )
    shape = array.shape
    values = np.ascontiguousarray(array)
    if values.dtype == np.bool_:
        values = np.packbits(values.reshape(math.prod(shape)), bitorder="little")
    return _capsule(_schema(format, shape[1:])), _capsule(_array(values, shape))
