"""Arrays by name in one file, in the safetensors format: a length, a JSON header, the bytes.

Written and read here rather than through the library because a checkpoint wants more than that offers: arrays go to the
file one after another without a copy of the whole, their checksum is taken on the way, and every dtype of Weft has a
name. Files are exchanged with every other reader and writer of the format; complex128, which the format lacks, is
stored as pairs of float64 with a remark in the header.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from math import prod
from typing import Any, BinaryIO, Protocol

import numpy as np

from .. import dtypes

_NAMES = {
    dtypes.bool_: "BOOL", dtypes.int8: "I8", dtypes.int16: "I16", dtypes.int32: "I32", dtypes.int64: "I64",
    dtypes.uint8: "U8", dtypes.uint16: "U16", dtypes.uint32: "U32", dtypes.uint64: "U64", dtypes.float16: "F16",
    dtypes.bfloat16: "BF16", dtypes.float32: "F32", dtypes.float64: "F64", dtypes.complex64: "C64",
}  # fmt: skip
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
_COMPLEX128 = "weft.complex128"  # metadata key: names of arrays stored as pairs of float64
_HEADER_LIMIT = 100_000_000  # the format's own
_CHUNK = 1 << 24


class Hash(Protocol):
    def update(self, data: Any, /) -> None: ...


def write_arrays(
    file: BinaryIO,
    arrays: Mapping[str, np.ndarray],
    metadata: Mapping[str, str] | None = None,
    digest: Hash | None = None,
) -> int:
    """Write `arrays` to an open file; returns the number of bytes.

    Args:
        metadata: text by name for the header.
        digest: a hash object that is given every byte.
    """
    stored = {name: _stored(array) for name, array in arrays.items()}
    notes = dict(metadata or {})
    pairs = [name for name, array in arrays.items() if array.dtype == dtypes.complex128]
    if pairs:
        notes[_COMPLEX128] = json.dumps(pairs)
    header: dict[str, Any] = {"__metadata__": notes} if notes else {}
    offset = 0
    for name, array in stored.items():
        end = offset + array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # so that the arrays start aligned
    written = 0
    for chunk in (struct.pack("<Q", len(text)), text):
        file.write(chunk)
        written += len(chunk)
        if digest is not None:
            digest.update(chunk)
    for array in stored.values():
        data = np.asarray(array, order="C").reshape(-1).view(np.uint8).data
        for start in range(0, len(data), _CHUNK):
            chunk_of_data = data[start : start + _CHUNK]
            file.write(chunk_of_data)
            if digest is not None:
                digest.update(chunk_of_data)
        written += len(data)
    return written


def _stored(array: np.ndarray) -> np.ndarray:
    if array.dtype == dtypes.complex128:
        return np.asarray(array, order="C").reshape(*array.shape, 1).view(np.float64)
    return array


def read_arrays(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays and the metadata of a safetensors file. Every size is checked before anything is allocated.

    Raises:
        ValueError: the file is cut short or is no safetensors file.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        entries, metadata, start = _read_header(file, size, os.fspath(path))
        arrays = {}
        for name, dtype, shape, first, last in entries:
            array = np.empty(shape, dtype)
            if array.size:
                file.seek(start + first)
                if file.readinto(array.reshape(-1).view(np.uint8).data) != last - first:
                    raise _damaged(path, f"{name!r} ends early")
            arrays[name] = array
    for name in json.loads(metadata.pop(_COMPLEX128, "[]")):
        arrays[name] = arrays[name].view(np.complex128)[..., 0]
    return arrays, metadata


def read_header(
    path: str | os.PathLike[str],
) -> tuple[dict[str, tuple[np.dtype, tuple[int, ...]]], dict[str, str]]:
    """Dtype and shape of every array in the file, and its metadata, without reading the arrays."""
    with open(path, "rb") as file:
        entries, metadata, _ = _read_header(file, os.fstat(file.fileno()).st_size, path)
    return {name: (dtype, shape) for name, dtype, shape, _, _ in entries}, metadata


def _read_header(file: BinaryIO, size: int, path: Any) -> tuple[list[tuple[Any, ...]], dict[str, str], int]:
    first = file.read(8)
    if len(first) < 8:
        raise _damaged(path, f"it has only {size} bytes")
    (length,) = struct.unpack("<Q", first)
    if length > min(_HEADER_LIMIT, size - 8):
        raise _damaged(path, f"its header claims {length} bytes of {size}")
    try:
        header = json.loads(file.read(length))
        metadata = header.pop("__metadata__", {})
        entries = [_entry(name, facts) for name, facts in header.items()]
        if not all(isinstance(k, str) and isinstance(v, str) for k, v in metadata.items()):
            raise ValueError("its metadata is not text")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(path, f"its header does not make sense: {error}") from None
    room = size - 8 - length
    covered = 0
    for name, dtype, shape, begin, end in sorted(entries, key=lambda e: e[3:]):
        if begin != covered or end - begin != prod(shape) * dtype.itemsize:
            raise _damaged(path, f"the place of {name!r} does not fit its shape")
        covered = end
    if covered != room:
        raise _damaged(path, f"it has {room} bytes of data where its header promises {covered}")
    return entries, metadata, 8 + length


def _entry(name: str, facts: Any) -> tuple[str, np.dtype, tuple[int, ...], int, int]:
    dtype, (begin, end) = facts["dtype"], facts["data_offsets"]
    if dtype not in _DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}")
    shape = tuple(facts["shape"])
    if not all(type(n) is int and n >= 0 for n in (*shape, begin, end)):
        raise ValueError(f"{name!r} has a size that is no natural number")
    return name, _DTYPES[dtype], shape, begin, end


def _damaged(path: Any, why: str) -> ValueError:
    return ValueError(f"load: {os.fspath(path)!r} is damaged or is no safetensors file: {why}.")
