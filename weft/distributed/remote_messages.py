"""What the processes of a cluster say to each other: kinds of frames, arrays, calls and errors, without pickle.

An array is described by its dtype and shape in the head of a frame, and its bytes are data. A receiver compares the shapes
with the length of the frame before it allocates anything, and allocates only what the allocator of tensors grants. Calls and
answers are JSON; an error is a name out of a fixed list and a text.
"""

from __future__ import annotations

import builtins
import json
import struct
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from .. import dtypes
from ..graph.declared.queues import QueueClosedError
from ..graph.execute.run import CancelledError
from ..io.tensor_file import MAX_AXES
from ..runtime import memory
from .remote_channel import Channel
from .wire import Frame, WireError

# Kinds of frames, and what their numbers (part, step, a) mean.
CALL, REPLY = 1, 2  # (number of the call, 0, client): JSON and arrays
START = 3  # client to task: (handle of the part, step, client), with the fed arrays
VALUE = 4  # (edge, step, client), with one array, or none for a control edge
TOKEN = 5  # the same with a tag and perhaps dead: between parts with loops
DONE = 6  # task to client: (executed nodes, step, client), with the fetched arrays
FAILED = 7  # task to client: (0, step, client), with an error: the part has stopped
STOP = 8  # client to task: (how, step, client): see STOP_NOW and the others
STOPPED = 9  # task to client: (0, step, client), what the part did before it stopped
END = 10  # client to task: (0, step, client): forget the step; with dequeues whose elements go back to their queues
IDLE = (
    11  # task to client: (0, step, client): a part with loops has nothing to do; how many tokens it sent and received
)
ASK = 12  # client to task: (0, step, client): report whenever idle
PING, PONG = 13, 14  # (0, 0, a number)
SHARED = 15  # as VALUE, but the array is in shared memory: see `remote_segments`
RELEASE = 16  # (0, 0, number of a segment)

# How a step is stopped: cancelled; its deadline has passed, so what has had effects may be completed; it is done everywhere.
STOP_NOW, STOP_LATE, STOP_DONE = 0, 1, 2

_CODES: dict[Any, int] = {dtype: code for code, dtype in enumerate(dtypes.ALL)}
_DTYPES = list(dtypes.ALL)
_NONE = 255  # in place of a dtype: no array
_BYTE = struct.Struct("<B")
_ARRAY = [struct.Struct(f"<BB{'Q' * axes}") for axes in range(MAX_AXES + 1)]
MAX_ARRAYS = 1 << 16
SMALL_BYTES = 1 << 10  # of arrays that are copied into the message rather than sent from their memory


# Arrays -------------------------------------------------------------------------------------------------------------


def bytes_of(array: np.ndarray) -> memoryview:
    """The memory of a contiguous array as bytes."""
    return array.reshape(-1).view(np.uint8).data


def pack(arrays: Sequence[np.ndarray | None]) -> tuple[bytes, list[memoryview]]:
    """The head that describes `arrays`, and their bytes."""
    parts: list[bytes] = []
    data: list[memoryview] = []
    for array in arrays:
        if array is None:
            parts.append(b"\xff\x00")
            continue
        shape = array.shape
        parts.append(_ARRAY[len(shape)].pack(_CODES[array.dtype], len(shape), *shape))
        if array.nbytes <= SMALL_BYTES:
            data.append(memoryview(array.tobytes()))
        elif array.nbytes:
            if not array.flags.c_contiguous:
                array = np.ascontiguousarray(array)
            data.append(bytes_of(array))
    return b"".join(parts), data


def pack_array(array: np.ndarray) -> bytes:
    """The head that describes one array."""
    shape = array.shape
    return _ARRAY[len(shape)].pack(_CODES[array.dtype], len(shape), *shape)


def describe_array(head: bytes) -> tuple[tuple[int, ...], np.dtype, int]:
    """Shape, dtype and bytes of the array that a head describes."""
    try:
        shape, dtype = _ARRAY[head[1]].unpack(head)[2:], _DTYPES[head[0]]
    except (IndexError, struct.error):
        raise WireError("a frame whose head describes no array") from None
    return shape, dtype, prod(shape) * dtype.itemsize


def receive_arrays(channel: Channel, head: bytes, nbytes: int) -> list[np.ndarray | None]:
    """Read the arrays that `head` describes, of `nbytes` bytes together.

    Raises:
        WireError: the head describes something else.
    """
    specs: list[Any] = []
    at = total = 0
    try:
        while at < len(head):
            code, axes = head[at], head[at + 1]
            shape = _ARRAY[axes].unpack_from(head, at)[2:]
            at += 2 + 8 * axes
            if code == _NONE:
                specs.append(None)
                continue
            dtype = _DTYPES[code]
            total += prod(shape) * dtype.itemsize
            specs.append((shape, dtype))
    except (IndexError, struct.error):
        raise WireError("a frame whose head describes no arrays") from None
    if total != nbytes or len(specs) > MAX_ARRAYS:
        raise WireError(f"a frame with {nbytes:,} bytes of data whose head promises {total:,}")
    arrays: list[np.ndarray | None] = []
    for spec in specs:
        if spec is None:
            arrays.append(None)
            continue
        shape, dtype = spec
        count = prod(shape)
        buffered = channel.take_buffered(count * dtype.itemsize) if count else None
        if buffered is not None:  # small, and here already
            array = np.frombuffer(buffered, dtype).reshape(shape).copy()
        else:
            array = memory.empty(shape, dtype)
            if array.nbytes:
                channel.read_into(bytes_of(array))
        arrays.append(array)
    return arrays


# Tags of tokens -----------------------------------------------------------------------------------------------------

_TOKEN = struct.Struct("<BH")  # dead, length of the tag


def pack_token(tag: Any, array: np.ndarray | None, dead: bool) -> tuple[bytes, list[memoryview]]:
    """A token as head and data."""
    text = json.dumps(tag).encode() if tag else b""
    head, data = pack([array])
    return _TOKEN.pack(dead, len(text)) + text + head, data


def receive_token(channel: Channel, head: bytes, nbytes: int) -> tuple[Any, np.ndarray | None, bool]:
    """(tag, array, dead) of a token."""
    try:
        dead, size = _TOKEN.unpack_from(head)
        tag = json.loads(head[_TOKEN.size : _TOKEN.size + size]) if size else []
        made = tuple([(str(frame), int(iteration)) for frame, iteration in tag])
    except (struct.error, ValueError, TypeError):
        raise WireError("a token without a tag") from None
    (array,) = receive_arrays(channel, head[_TOKEN.size + size :], nbytes)
    return made, array, bool(dead)


# Calls --------------------------------------------------------------------------------------------------------------


def pack_call(message: Any, arrays: Sequence[np.ndarray] = ()) -> tuple[bytes, list[memoryview]]:
    """JSON and arrays as head and data."""
    described, data = pack(arrays)
    text = json.dumps(message).encode()
    return struct.pack("<I", len(text)) + text + described, data


def receive_call(channel: Channel, frame: Frame, head: bytes) -> tuple[Any, list[np.ndarray]]:
    """What `pack_call` was given. JSON that is none is a WireError: no peer of this run sends it."""
    try:
        (size,) = struct.unpack_from("<I", head)
        message = json.loads(head[4 : 4 + size])
    except (struct.error, ValueError, RecursionError):
        raise WireError("a call that is no JSON") from None
    arrays = receive_arrays(channel, head[4 + size :], frame.nbytes - frame.b)
    return message, [a for a in arrays if a is not None]


# Errors -------------------------------------------------------------------------------------------------------------


class TaskLostError(RuntimeError):
    """A task of a cluster died, froze or cannot be reached, and a step needed it. The session goes on when it is back."""


class RemoteError(RuntimeError):
    """A task raised an exception of a type that is not passed on; the message begins with the type."""


_PLAIN = (
    "ArithmeticError", "AssertionError", "AttributeError", "BufferError", "FileExistsError", "FileNotFoundError",
    "FloatingPointError", "ImportError", "IndexError", "IsADirectoryError", "KeyError", "LookupError", "MemoryError",
    "NotADirectoryError", "NotImplementedError", "OSError", "OverflowError", "PermissionError", "RuntimeError",
    "StopIteration", "TimeoutError", "TypeError", "ValueError", "ZeroDivisionError",
)  # fmt: skip
_ERRORS: dict[str, type[Exception]] = {name: getattr(builtins, name) for name in _PLAIN}
_ERRORS |= {error.__name__: error for error in (QueueClosedError, CancelledError, TaskLostError)}


def dump_error(error: BaseException, place: str) -> dict[str, Any]:
    """An error as JSON; `place` names the task for the user."""
    known = next((c.__name__ for c in type(error).__mro__ if _ERRORS.get(c.__name__) is c), None)
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    for note in getattr(error, "__notes__", ()):
        text += f" {note}"
    if known is None or (known == "RuntimeError" and type(error) is not RuntimeError):
        known, text = "RemoteError", f"{type(error).__name__}: {text}"
    if place not in text:
        text += f" On {place}."
    return {"type": known, "text": text}


def load_error(data: Any) -> Exception:
    """The error that `dump_error` described."""
    name, text = (data.get("type"), data.get("text")) if isinstance(data, dict) else (None, None)
    made = _ERRORS.get(str(name), RemoteError)(str(text))
    made.located = True  # type: ignore[attr-defined]
    return made
