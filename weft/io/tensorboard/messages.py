"""Encoders of the protocol-buffer messages in an event file.

A protocol buffer is a sequence of fields: a key (number << 3 | kind) and a value. Kind 0 is a variable-length integer,
1 eight bytes, 2 a length and that many bytes, 5 four bytes. Field numbers are those of TensorFlow's `event.proto`,
`summary.proto`, `graph.proto` and what they include.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

START = 1  # SessionLog.SessionStatus
_TENSORFLOW_TYPES = {
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "complex64": 8, "int64": 9, "bool": 10,
    "bfloat16": 14, "uint16": 17, "complex128": 18, "float16": 19, "uint32": 22, "uint64": 23,
}  # fmt: skip


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF  # negative numbers are their 64-bit pattern
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def _block(field: int, data: bytes | str) -> bytes:
    data = data.encode() if isinstance(data, str) else data
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def event(
    wall_time: float,
    step: int = 0,
    *,
    file_version: str | None = None,
    summary: bytes | None = None,
    graph: bytes | None = None,
    session: int | None = None,
) -> bytes:
    """One entry of the file."""
    out = _double(1, wall_time) + _integer(2, step)
    if file_version is not None:
        out += _block(3, file_version)
    if graph is not None:
        out += _block(4, graph)
    if summary is not None:
        out += _block(5, summary)
    if session is not None:
        out += _block(7, _integer(1, session))
    return out


def summary(values: Iterable[bytes]) -> bytes:
    """A Summary of several values."""
    return b"".join(_block(1, value) for value in values)


def scalar(tag: str, value: float) -> bytes:
    # Values beyond the range of float32 become infinite.
    with np.errstate(over="ignore"):
        return _block(1, tag) + _float(2, float(np.float32(value)))


def histogram(tag: str, array: np.ndarray, bins: int | np.ndarray = 64) -> bytes:
    """The distribution of the finite values of `array`, which may be none; `bins` is a number or the edges."""
    data = np.asarray(array, np.float64).reshape(-1)
    data = data[np.isfinite(data)]
    low, high = (float(data.min()), float(data.max())) if data.size else (0.0, 0.0)
    if data.size == 0:
        limits, counts = np.zeros(1), np.zeros(1)
    elif low == high and not isinstance(bins, np.ndarray):
        limits, counts = np.array([low, low + max(abs(low), 1e-12)]), np.array([float(data.size), 0.0])
    else:
        counts, edges = np.histogram(data, bins)
        limits = edges[1:]
    out = _double(1, low) + _double(2, high) + _double(3, data.size) + _double(4, float(data.sum()))
    out += _double(5, float(np.square(data).sum()))
    out += _block(6, np.asarray(limits, "<f8").tobytes()) + _block(7, np.asarray(counts, "<f8").tobytes())
    return _block(1, tag) + _block(5, out)


def text(tag: str, content: str) -> bytes:
    """Markdown for the text dashboard: a string tensor with the metadata of that plugin."""
    tensor = _integer(1, 7) + _block(2, _block(2, _integer(1, 1))) + _block(8, content)  # 7: DT_STRING
    metadata = _block(1, _block(1, "text"))
    return _block(1, f"{tag}/text_summary") + _block(8, tensor) + _block(9, metadata)


def image(tag: str, shape: Sequence[int], encoded: bytes) -> bytes:
    """A PNG of pixels of shape (height, width, channels)."""
    height, width, channels = shape
    out = _integer(1, height) + _integer(2, width) + _integer(3, channels) + _block(4, encoded)
    return _block(1, tag) + _block(4, out)


def audio(tag: str, rate: int, frames: int, encoded: bytes) -> bytes:
    """A WAV of one channel."""
    out = _float(1, rate) + _integer(2, 1) + _integer(3, frames) + _block(4, encoded) + _block(5, "audio/wav")
    return _block(1, tag) + _block(6, out)


def pr_curve(tag: str, curve: np.ndarray) -> bytes:
    """Rows of true and false positives and negatives, precision and recall, with the metadata of the plugin."""
    sizes = b"".join(_block(2, _integer(1, n)) for n in curve.shape)
    tensor = _integer(1, 1) + _block(2, sizes) + _block(5, curve.astype("<f4").tobytes())  # 1: DT_FLOAT
    plugin = _block(1, "pr_curves") + _block(2, _integer(1, 0) + _integer(2, curve.shape[1]))
    return _block(1, tag) + _block(8, tensor) + _block(9, _block(1, plugin))


def hparams(values: Mapping[str, Any], metrics: Sequence[str], domains: Mapping[str, Sequence[Any]]) -> list[bytes]:
    """The three values that make a row of the table of hyperparameters: the columns, the values, and the end of the run."""
    columns = b"".join(
        _block(4, _block(1, name) + _integer(4, _hparam_type(name, value)) + _domain(domains.get(name)))
        for name, value in values.items()
    )
    columns += b"".join(_block(5, _block(1, _block(2, name))) for name in metrics)
    chosen = b"".join(_block(1, _block(1, name) + _block(2, _plain(value))) for name, value in values.items())
    parts = (
        ("experiment", _block(2, columns)),
        ("session_start_info", _block(3, chosen)),
        ("session_end_info", _block(4, _integer(1, 1))),  # 1: success
    )
    return [
        _block(1, f"_hparams_/{name}") + _block(9, _block(1, _block(1, "hparams") + _block(2, content)))
        for name, content in parts
    ]


def _hparam_type(name: str, value: Any) -> int:
    """hparams.DataType: 1 text, 2 bool, 3 number."""
    if isinstance(value, str):
        return 1
    if isinstance(value, (bool, np.bool_)):
        return 2
    try:
        float(value)
    except (TypeError, ValueError):
        raise TypeError(
            f"add_hparams: {name!r} must be text, a number or a bool. Got {type(value).__name__}."
        ) from None
    return 3


def _domain(values: Sequence[Any] | None) -> bytes:
    return b"" if values is None else _block(5, b"".join(_block(1, _plain(v)) for v in values))


def _plain(value: Any) -> bytes:
    """A google.protobuf.Value."""
    if isinstance(value, str):
        return _block(3, value)
    if isinstance(value, (bool, np.bool_)):
        return _integer(4, int(value))
    return _double(2, float(value))


def node(name: str, op: str, inputs: Sequence[str] = (), shape: Sequence[int | None] | None = None, dtype: str = "",
         notes: Iterable[tuple[str, str]] = ()) -> bytes:  # fmt: skip
    """A NodeDef; an unknown size in `shape` is None."""
    out = _block(1, name) + _block(2, op) + b"".join(_block(3, each) for each in inputs)
    if dtype in _TENSORFLOW_TYPES:
        out += _attribute("dtype", _integer(6, _TENSORFLOW_TYPES[dtype]))
    if shape is not None:
        sizes = b"".join(_block(2, _integer(1, -1 if n is None else n)) for n in shape)
        out += _attribute("_output_shapes", _block(1, _block(7, sizes)))
    for key, value in notes:
        out += _attribute(key, _block(2, value))
    return out


def _attribute(key: str, value: bytes) -> bytes:
    return _block(5, _block(1, key) + _block(2, value))


def graph(nodes: Iterable[bytes]) -> bytes:
    """A GraphDef."""
    return b"".join(_block(1, each) for each in nodes) + _block(4, _integer(1, 22))
