"""Reader and writer of the safetensors format: a length, a JSON header, the bytes of the arrays.

Checkpoints need more than the safetensors library offers: arrays are streamed to the file without a copy of the whole,
the checksum is computed on the way, and every dtype of Weft is supported. Files are compatible with other readers and
writers of the format; complex128, which the format lacks, is stored as pairs of float64 with an entry in the metadata.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from math import prod
from typing import Any, BinaryIO, Protocol

import ml_dtypes
import numpy as np

from .. import dtypes
from ..errors import FileError
from .checked import MAX_INTEGER, Checked, Refuse, file_error, parse_json, require_plain

_NAMES = {
    dtypes.bool_: "BOOL", dtypes.int8: "I8", dtypes.int16: "I16", dtypes.int32: "I32", dtypes.int64: "I64",
    dtypes.uint8: "U8", dtypes.uint16: "U16", dtypes.uint32: "U32", dtypes.uint64: "U64", dtypes.float16: "F16",
    dtypes.bfloat16: "BF16", dtypes.float32: "F32", dtypes.float64: "F64", dtypes.complex64: "C64",
}  # fmt: skip
# 8-bit floats, which files of quantised models hold, are read as float32: each of their values is one exactly
_EIGHT_BITS = {
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "F8_E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "F8_E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()} | _EIGHT_BITS
_WIDENED = frozenset(_EIGHT_BITS.values())
_COMPLEX128 = "weft.complex128"  # metadata key: names of arrays stored as pairs of float64
_HEADER_LIMIT = 100_000_000  # the format's own
_CHUNK = 1 << 24
MAX_AXES = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32


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
        digest: a hash object that is updated with every byte.
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
        header[name] = {"dtype": _NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [offset, end]}
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


def read_arrays(path: str | os.PathLike[str], reader: str = "load") -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays and the metadata of a safetensors file. Every size is checked before anything is allocated.

    Args:
        reader: the name of the public function, with which errors start.

    Raises:
        FileError: the file is truncated or not a safetensors file.
    """
    require_plain(reader, path)
    with open(path, "rb") as file:
        entries, metadata, start = _read_header(file, path, reader)
        pairs = _pairs(entries, metadata, file_error(reader, path))
        arrays = {}
        for name, dtype, shape, first, last in entries:
            array = np.empty(shape, dtype)
            if array.size:
                file.seek(start + first)
                if file.readinto(array.reshape(-1).view(np.uint8).data) != last - first:
                    raise FileError(reader, path, "the file ends early.", _shown(name))
            if dtype in _WIDENED:
                array = array.astype(np.float32)
            arrays[name] = array.view(np.complex128)[..., 0] if name in pairs else array
    return arrays, metadata


def read_header(path: str | os.PathLike[str]) -> tuple[dict[str, tuple[np.dtype, tuple[int, ...]]], dict[str, str]]:
    """Dtype and shape of every array in the file as it is read, and its metadata, without reading the arrays."""
    require_plain("load", path)
    with open(path, "rb") as file:
        entries, metadata, _ = _read_header(file, path, "load")
    found = {name: (dtypes.float32 if dtype in _WIDENED else dtype, shape) for name, dtype, shape, _, _ in entries}
    return found, metadata


Entry = tuple[str, np.dtype, tuple[int, ...], int, int]
"""name, dtype, shape, first byte and the byte after the last"""


def _read_header(file: BinaryIO, path: Any, reader: str) -> tuple[list[Entry], dict[str, str], int]:
    size = os.fstat(file.fileno()).st_size
    refuse = file_error(reader, path)

    def damaged(reason: str, place: str) -> Exception:
        return refuse(f"is damaged or is no safetensors file: {reason}", place)

    first = file.read(8)
    if len(first) < 8:
        raise damaged(f"it has only {size} bytes.", "")
    (length,) = struct.unpack("<Q", first)
    if length > min(_HEADER_LIMIT, size - 8):
        raise damaged(f"its header claims {length} bytes of {size}.", "")
    header = parse_json(file.read(length), damaged, _HEADER_LIMIT)
    found = header.mapping()
    metadata = {k: v.text() for k, v in found.pop("__metadata__").mapping().items()} if "__metadata__" in found else {}
    entries = [_entry(name, facts) for name, facts in found.items()]
    room = size - 8 - length
    covered = 0
    for name, dtype, shape, begin, end in sorted(entries, key=lambda e: e[3:]):
        if begin != covered or end - begin != prod(shape) * dtype.itemsize:
            raise damaged("the place of its bytes does not fit its shape.", _shown(name))
        covered = end
    if covered != room:
        raise damaged(f"it has {room} bytes of data where its header promises {covered}.", "")
    return entries, metadata, 8 + length


def _entry(name: str, facts: Checked) -> Entry:
    dtype = _DTYPES[facts["dtype"].text(_DTYPES)]
    shape = tuple([d.integer(0) for d in facts["shape"].items()])
    # NumPy's own limits, which hold for empty arrays too
    if len(shape) > MAX_AXES or prod([d for d in shape if d]) * dtype.itemsize > MAX_INTEGER:
        facts["shape"].fail("no array can have this shape.")
    begin, end = [place.integer(0) for place in facts["data_offsets"].items(2)]
    return name, dtype, shape, begin, end


def _pairs(entries: list[Entry], metadata: dict[str, str], refuse: Refuse) -> set[str]:
    """The names of arrays that are complex128, stored as pairs of float64."""
    text = metadata.pop(_COMPLEX128, "[]")
    place = f"__metadata__.{_COMPLEX128}"
    listed = parse_json(text.encode("utf-8", "replace"), lambda reason, _: refuse(reason, place), _HEADER_LIMIT).items()
    pairs = {name.text() for name in listed}
    stored = {name for name, dtype, shape, _, _ in entries if dtype == dtypes.float64 and shape[-1:] == (2,)}
    if not pairs <= stored:
        raise refuse(f"{_shown(min(pairs - stored))} is not stored as pairs of float64.", place)
    return pairs


def _shown(name: str) -> str:
    return repr(name if len(name) <= 80 else name[:77] + "...")
