"""CIFAR-10 and CIFAR-100, in the binary and in the Python version, as a folder or as the archive it came in.

The Python version is a pickle, which can run any code when it is loaded. It is read by a restricted interpreter that
accepts bytes, strings, numbers, lists, dictionaries and arrays of bytes only (`plain_pickle`); neither
Python's unpickler nor NumPy's pickle functions are called. What an archive may unpack to is limited (`weft.io.limits`).
"""

from __future__ import annotations

import bz2
import gzip
import struct
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import FileError
from ...io.limits import Bounded, too_large, unpacked_limit
from ..dataset import TensorDataset
from ._files import PathLike, _listing
from .plain_pickle import Refused, StandIn, loads

_PIXELS = 3 * 32 * 32


def cifar10(root: PathLike, split: str = "train") -> TensorDataset:
    """CIFAR-10 from files on disk.

    Args:
        root: the folder with ``data_batch_1.bin`` … (binary) or ``data_batch_1`` … (Python version), its parent, or
            the ``cifar-10-binary.tar.gz`` or ``cifar-10-python.tar.gz`` archive.
        split: "train" (50,000 images) or "test" (10,000).

    Returns:
        A dataset of (image, label): bytes of shape (3, 32, 32), and int64. Use ``.map(ToFloat(), element=0)``.
    """
    names = ["test_batch"] if _is_test("cifar10", split) else [f"data_batch_{i}" for i in range(1, 6)]
    return _load(
        "cifar10", root, names, label_bytes=1, key="labels", folders=("cifar-10-batches-bin", "cifar-10-batches-py")
    )


def cifar100(root: PathLike, split: str = "train", coarse: bool = False) -> TensorDataset:
    """CIFAR-100 from files on disk, like `cifar10`; with `coarse`, the 20 superclasses."""
    names = ["test"] if _is_test("cifar100", split) else ["train"]
    key = "coarse_labels" if coarse else "fine_labels"
    return _load("cifar100", root, names, label_bytes=2, key=key, folders=("cifar-100-binary", "cifar-100-python"))


def _is_test(what: str, split: str) -> bool:
    if split not in ("train", "test"):
        raise ValueError(f"{what}: unknown split. Got {split!r}; expected 'train' or 'test'.")
    return split == "test"


def _load(
    what: str, root: PathLike, names: Sequence[str], *, label_bytes: int, key: str, folders: Sequence[str]
) -> TensorDataset:
    images, labels = [], []
    for name, data in _open_all(what, Path(root), names, folders):
        if name.endswith(".bin"):
            x, y = _parse_binary(what, name, data, label_bytes, column=label_bytes - 1 if key != "coarse_labels" else 0)
        else:
            x, y = _parse_python(what, name, data, key)
        images.append(x.reshape(-1, 3, 32, 32))
        labels.append(y)
    return TensorDataset(np.concatenate(images), np.concatenate(labels))


def _open_all(what: str, root: Path, names: Sequence[str], folders: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    if root.is_file():
        yield from _open_archive(what, root, names)
        return
    if not root.is_dir():
        raise FileNotFoundError(f"{what}: no such file or folder: {root}.")
    places = [root, *(root / folder for folder in folders)]
    for name in names:
        found = [place / (name + end) for place in places for end in (".bin", "") if (place / (name + end)).is_file()]
        if not found:
            raise FileNotFoundError(
                f"{what}: {root} has neither {name}.bin (binary version) nor {name} (Python version). "
                f"Found {_listing(root)}."
            )
        yield str(found[0]), found[0].read_bytes()


def _open_archive(what: str, path: Path, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    wanted = {name + end: name for name in names for end in (".bin", "")}
    found: dict[str, tuple[str, bytes]] = {}
    size = path.stat().st_size
    limit = unpacked_limit(size)
    try:
        with (
            _unpacked_archive(what, path) as stream,
            tarfile.open(fileobj=Bounded(stream, limit), mode="r|") as archive,  # type: ignore[call-overload]
        ):
            for member in archive:
                base = member.name.rsplit("/", 1)[-1]
                if not member.isfile() or base not in wanted:
                    continue
                if member.size > limit or member.issparse():  # a sparse one has zeros that are not in the archive
                    raise FileError(what, path, too_large(member.size, limit), repr(member.name[:80]))
                content = archive.extractfile(member)
                assert content is not None
                found[wanted[base]] = (f"{path}/{member.name}", content.read())
    except (FileError, MemoryError):
        raise
    except OverflowError as error:
        raise FileError(what, path, str(error)) from None
    except Exception as error:  # the library fails on damaged archives in many ways
        reason = f"({size:,} bytes) is not a complete archive: {error}. Fetch it again."
        raise FileError(what, path, reason) from None
    for name in names:
        if name not in found:
            raise FileError(what, path, f"the archive has no {name}. Expected {', '.join(names)}.")
        yield found[name]


def _unpacked_archive(what: str, path: Path) -> Any:
    with open(path, "rb") as file:
        start = file.read(6)
    if start[:2] == b"\x1f\x8b":
        return gzip.open(path)
    if start[:3] == b"BZh":
        return bz2.open(path)
    if start == b"\xfd7zXZ\0":
        raise FileError(what, path, "archives in xz format are not read. Unpack it and give the folder.")
    return open(path, "rb")


def _parse_binary(what: str, name: str, data: bytes, label_bytes: int, column: int) -> tuple[np.ndarray, np.ndarray]:
    record = label_bytes + _PIXELS
    if not data or len(data) % record:
        raise FileError(
            what,
            name,
            f"is truncated or of another kind. Got {len(data):,} bytes; expected a multiple of {record:,} "
            f"({label_bytes} for the label and {_PIXELS:,} for the pixels of each image).",
        )
    records = np.frombuffer(data, np.uint8).reshape(-1, record)
    return records[:, label_bytes:], records[:, column].astype(np.int64)


def _parse_python(what: str, name: str, data: bytes, key: str) -> tuple[np.ndarray, np.ndarray]:
    try:
        content = loads(data, _KNOWN)
    except Refused as error:
        raise FileError(what, name, f"is not a CIFAR batch: {error}.") from None
    except (ValueError, IndexError, TypeError, struct.error, OverflowError) as error:
        reason = f"({len(data):,} bytes) is truncated or damaged ({type(error).__name__}: {error})."
        raise FileError(what, name, reason) from None
    if isinstance(content, dict):
        content = {k.decode("latin-1") if isinstance(k, bytes) else k: v for k, v in content.items()}
    if not isinstance(content, dict) or "data" not in content or key not in content:
        got = sorted(map(str, content)) if isinstance(content, dict) else type(content).__name__
        raise FileError(what, name, f"is not a batch of this set. Got {str(got)[:200]}; expected 'data' and {key!r}.")
    images, labels = content["data"], content[key]
    if isinstance(images, _ArrayState):
        images = images.array
    if not isinstance(images, np.ndarray) or images.ndim != 2 or images.shape[1] != _PIXELS:
        raise FileError(what, name, f"holds no images. Expected 'data' of shape (n, {_PIXELS}).", "data")
    if (
        not isinstance(labels, list)
        or len(labels) != len(images)
        or not all(type(v) is int and 0 <= v < 100 for v in labels)
    ):
        reason = f"has no usable labels. Expected a list of {len(images)} numbers in {key!r}."
        raise FileError(what, name, reason, key)
    return images, np.array(labels, np.int64)


class _DtypeState(StandIn):
    """Stands in for `numpy.dtype`; only bytes are allowed. Byte order and alignment mean nothing for them."""

    def __init__(self, name: Any = None, *_: Any) -> None:
        if name not in ("u1", b"u1", "uint8", b"uint8"):
            raise Refused(f"an array of dtype {name!r}; only uint8 is allowed")


class _ArrayState(StandIn):
    """Stands in for `numpy.ndarray`: takes the state that an array pickles and checks it."""

    array: np.ndarray | None = None

    def __init__(self, *_: Any) -> None:
        pass

    def set_state(self, state: Any) -> None:
        if type(state) is not tuple or len(state) != 5:
            raise Refused("an array whose state is not that of an array")
        _, shape, dtype, fortran, raw = state
        if isinstance(raw, str):
            raw = raw.encode("latin-1")
        if not isinstance(dtype, _DtypeState) or type(raw) is not bytes or type(shape) is not tuple:
            raise Refused("an array that is not made of bytes")
        if len(shape) != 2 or not all(type(d) is int and d >= 0 for d in shape) or shape[0] * shape[1] != len(raw):
            raise Refused(f"an array of shape {str(shape)[:60]} with {len(raw):,} bytes")
        self.array = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran else "C")


def _reconstruct(*_: Any) -> _ArrayState:
    return _ArrayState()


def _encode(text: Any = None, encoding: Any = "latin1", *_: Any) -> bytes:
    """Stands in for `_codecs.encode`, with which Python 3 writes bytes into old pickles."""
    if isinstance(encoding, bytes):
        encoding = encoding.decode("latin-1")
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise Refused(f"text in encoding {encoding!r}")
    return text.encode("latin-1")


_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _ArrayState,
    ("numpy", "dtype"): _DtypeState,
    ("_codecs", "encode"): _encode,
}
