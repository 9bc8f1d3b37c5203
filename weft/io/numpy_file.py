"""A reader of `.npy` and `.npz` files that uses no pickle and does not trust headers.

NumPy's own reader evaluates the header with Python's tokenizer, allocates what it says, and fails on damaged files in many
ways. Here the header is checked first: its size, its three fields, a dtype without objects, and a shape whose bytes are
really there (for `.npz`: within the limit of `weft.io.limits`).
"""

from __future__ import annotations

import ast
import os
import re
import struct
import zipfile
from collections.abc import Iterator
from math import prod
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ..errors import FileError
from .limits import Bounded, too_large, unpacked_limit
from .tensor_file import MAX_AXES

MAGIC = b"\x93NUMPY"
MAX_HEADER = 10_000  # NumPy's own limit
_DESCRIPTION = re.compile(r"[<>|=]?[?A-Za-z]\d{0,9}(\[[A-Za-z0-9]{1,8}\])?", re.ASCII)


class _Header(NamedTuple):
    dtype: np.dtype
    shape: tuple[int, ...]
    order: Any
    start: int

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


def read_npy(reader: str, path: Any, mmap: bool = False) -> np.ndarray:
    """The array of a `.npy` file, in memory or mapped for reading.

    Raises:
        FileError: the file is damaged, is no `.npy` file, or holds objects (pickles).
    """
    size = os.stat(path).st_size

    def damaged(reason: str, place: str = "") -> FileError:
        return FileError(reader, path, f"cannot be read as .npy ({size:,} bytes): {reason}", place)

    with open(path, "rb") as file:
        header = _read_header(file, damaged)
        if header.nbytes > size - header.start:
            missing = header.nbytes - (size - header.start)
            raise damaged(f"{header.dtype} of shape {header.shape} needs {missing:,} bytes more.", "values")
        if mmap and header.nbytes:
            return np.memmap(file, header.dtype, "r", header.start, header.shape, header.order)
        return _fill(file, header, damaged)


def read_npz(reader: str, path: Any, max_bytes: int | None = None) -> dict[str, np.ndarray]:
    """The arrays of an `.npz` file by name.

    Args:
        max_bytes: the largest total size of the arrays; by default 64 MiB or a hundred times the size of the file.

    Raises:
        FileError: the file is damaged, is no `.npz` file, holds objects, or unpacks to more than is allowed.
    """
    size = os.stat(path).st_size
    limit = unpacked_limit(size, max_bytes)

    def damaged(reason: str, place: str = "") -> FileError:
        return FileError(reader, path, f"cannot be read as .npz ({size:,} bytes): {reason}", place)

    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            total = sum(m.file_size for m in members)
            if total > limit:
                raise damaged(too_large(total, limit))
            return dict(_members(archive, members, damaged, limit))
    except (FileError, MemoryError):
        raise
    except Exception as error:  # the library fails on damaged archives in many ways
        raise damaged(f"{type(error).__name__}: {error}") from None


def _members(
    archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], damaged: Any, limit: int
) -> Iterator[tuple[str, np.ndarray]]:
    for member in members:
        place = repr(member.filename[:80])
        if not member.filename.endswith(".npy"):
            raise damaged("it is not an array.", place)
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or member.flag_bits & 1:
            raise damaged("it is encrypted, or compressed in a way that NumPy does not write.", place)

        def wrong(reason: str, _: str = "", place: str = place) -> FileError:
            return damaged(reason, place)

        with archive.open(member) as stream:
            bounded: Any = Bounded(stream, limit)  # type: ignore[arg-type]
            header = _read_header(bounded, wrong)
            if header.start + header.nbytes != member.file_size:
                raise wrong(f"{header.dtype} of shape {header.shape} does not make {member.file_size:,} bytes.")
            yield member.filename.removesuffix(".npy"), _fill(bounded, header, wrong)


def _read_header(file: BinaryIO, damaged: Any) -> _Header:
    first = file.read(8)
    if len(first) < 8 or first[:6] != MAGIC or first[6] not in (1, 2, 3):
        raise damaged(f"its first bytes are {first.hex(' ') or 'none'}.")
    form, width = ("<H", 2) if first[6] == 1 else ("<I", 4)
    raw = file.read(width)
    length = struct.unpack(form, raw)[0] if len(raw) == width else 0
    if not 0 < length <= MAX_HEADER:
        raise damaged(f"its header has {length} bytes. Expected 1 to {MAX_HEADER}.", "header")
    text = file.read(length)
    if len(text) != length:
        raise damaged("it ends inside its header.", "header")
    dtype, order, shape = _parse(text, first[6], damaged)
    return _Header(dtype, shape, order, 8 + width + length)


def _parse(raw: bytes, version: int, damaged: Any) -> tuple[np.dtype, Any, tuple[int, ...]]:
    try:
        text = raw.decode("utf-8" if version == 3 else "latin-1")
        fields = ast.literal_eval(re.sub(r"(\d)L\b", r"\1", text))  # Python 2 wrote 3L
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise damaged(f"its header is not a description of an array ({type(error).__name__}).", "header") from None
    if not isinstance(fields, dict) or set(fields) != {"descr", "fortran_order", "shape"}:
        raise damaged("its header has other fields than descr, fortran_order and shape.", "header")
    shape, description = fields["shape"], fields["descr"]
    if (
        not isinstance(shape, tuple)
        or not all(type(d) is int and 0 <= d < 1 << 62 for d in shape)
        or len(shape) > MAX_AXES
    ):
        raise damaged(f"no array has the shape {str(shape)[:60]}.", "header.shape")
    if type(fields["fortran_order"]) is not bool:
        raise damaged("fortran_order is neither True nor False.", "header.fortran_order")
    try:
        dtype = np.dtype(description) if isinstance(description, str) and _DESCRIPTION.fullmatch(description) else None
    except (TypeError, ValueError):
        dtype = None
    if dtype is None or dtype.hasobject or dtype.itemsize == 0:
        raise damaged(
            f"it has dtype {str(description)[:60]}. Expected numbers, text or dates; objects and records are not read "
            "(NumPy's allow_pickle).",
            "header.descr",
        )
    if prod([d for d in shape if d]) * dtype.itemsize > 1 << 62:
        raise damaged(f"no array has the shape {shape}.", "header.shape")
    return dtype, "F" if fields["fortran_order"] else "C", shape


def _fill(file: Any, header: _Header, damaged: Any) -> np.ndarray:
    flat = np.empty(prod(header.shape), header.dtype)
    if header.nbytes and file.readinto(flat.view(np.uint8).data) != header.nbytes:
        raise damaged("the values are cut short.")
    return flat.reshape(header.shape, order=header.order)
