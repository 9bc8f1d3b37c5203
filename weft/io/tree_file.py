"""`save` and `load`: nested dictionaries, lists and tuples of tensors, arrays, numbers and text in one file.

The file is a safetensors file. Its arrays are the tree's tensors, named by their path ("encoder.0.weight"), so a state
dict becomes an ordinary safetensors file; everything else is JSON in the header. The round trip is exact, including
tuples and integer keys.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from ..errors import FileError
from ..tensor import Tensor, to_array, wrap
from .checked import Checked, Refuse, parse_json
from .durable import replace_file
from .tensor_file import Hash, read_arrays, write_arrays
from .weight_index import read_sharded

STRUCTURE = "weft.tree"  # metadata key
MAX_STRUCTURE_BYTES = 100_000_000
MAX_LEVELS = 80  # of a tree; each takes up to three of the `MAX_DEPTH` levels of JSON
_MARK = "$"  # starts the key of an encoded leaf; a user's own key of that kind is encoded too


def save(tree: Any, path: str | os.PathLike[str]) -> None:
    """Write a tree of tensors to a file atomically: a crash or a full disk leaves an existing file intact.

    Args:
        tree: nested dicts, lists and tuples of tensors, NumPy arrays, numbers, strings, booleans and None; or a module,
            whose `state_dict()` is saved.
        path: the file; by convention it ends in `.safetensors`.

    >>> wf.save({"weight": wf.ones(2), "step": 3, "betas": (0.9, 0.99)}, "state.safetensors")
    >>> wf.load("state.safetensors")["betas"]
    (0.9, 0.99)
    """
    if hasattr(tree, "state_dict") and not isinstance(tree, (Mapping, Tensor)):
        tree = tree.state_dict()
    structure, arrays = pack(tree)
    with replace_file(path) as file:
        write_packed(file, structure, arrays)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a file of `save`, any safetensors file (a dict of tensors), or a checkpoint directory (a dict of parts).

    The index of a model in several files, `model.safetensors.index.json`, gives the tensors of all of them.

    Raises:
        FileNotFoundError: there is nothing at `path`.
        FileError: the file is damaged or of another format; the message says where.

    >>> wf.save(nn.Linear(2, 1), "linear.safetensors")
    >>> sorted(wf.load("linear.safetensors"))
    ['bias', 'weight']
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"load: expected a path. Got {type(path).__name__}.")
    if os.path.isdir(path):
        from .checkpoint import open_checkpoint

        return open_checkpoint(path).load()
    if os.fspath(path).endswith(".safetensors.index.json"):
        return {name: wrap(to_array(array)) for name, array in read_sharded(path, "load").items()}
    arrays, metadata = read_arrays(path)
    if STRUCTURE not in metadata:
        return {name: wrap(to_array(array)) for name, array in arrays.items()}
    place = f"__metadata__.{STRUCTURE}"
    return read_tree(
        metadata[STRUCTURE].encode("utf-8", "replace"),
        arrays,
        lambda reason, inner: FileError("load", path, f"is damaged: {reason}", f"{place}.{inner}" if inner else place),
    )


def write_packed(file: BinaryIO, structure: Any, arrays: Mapping[str, np.ndarray], digest: Hash | None = None) -> int:
    """Write the result of `pack` to an open file; returns the number of bytes."""
    text = json.dumps(structure, separators=(",", ":"), allow_nan=False)
    return write_arrays(file, arrays, {"format": "weft", STRUCTURE: text}, digest)


# The tree as JSON and arrays -------------------------------------------------------------------------------------------


def pack(tree: Any, copy: bool = False) -> tuple[Any, dict[str, np.ndarray]]:
    """Flatten a tree into (JSON, arrays by path); with `copy`, the arrays are copied."""
    arrays: dict[str, np.ndarray] = {}

    def leaf(array: np.ndarray, path: tuple[str, ...]) -> str:
        name = base = ".".join(path) or "tensor"
        n = 1
        while name in arrays or name == "__metadata__":  # {"a.b": …, "a": {"b": …}}
            n += 1
            name = f"{base}#{n}"
        arrays[name] = np.array(array, order="C", copy=True) if copy else array
        return name

    def encode(value: Any, path: tuple[str, ...]) -> Any:
        if len(path) > MAX_LEVELS:
            raise ValueError(f"save: the tree is nested deeper than {MAX_LEVELS} levels, at {'.'.join(path)[:60]!r}...")
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"$float": repr(value)}
        if isinstance(value, Tensor):
            return {"$tensor": leaf(value._array("save"), path)}
        if isinstance(value, np.ndarray):
            return {"$array": leaf(to_array(value), path)}
        if isinstance(value, np.generic):
            return encode(value.item(), path)
        if isinstance(value, Mapping):
            if all(type(k) is str and not k.startswith(_MARK) for k in value):
                return {k: encode(v, (*path, k)) for k, v in value.items()}
            items = [[_key(k, path), encode(v, (*path, str(k)))] for k, v in value.items()]
            return {"$dict": items}
        if type(value) is list:
            return [encode(v, (*path, str(i))) for i, v in enumerate(value)]
        if isinstance(value, tuple):
            return {"$tuple": [encode(v, (*path, str(i))) for i, v in enumerate(value)]}
        if type(value) is complex:
            return {"$complex": [repr(value.real), repr(value.imag)]}
        if isinstance(value, (bool, int, float, str)):  # subclasses, say an enumeration of integers
            return encode(next(t for t in (bool, int, float, str) if isinstance(value, t))(value), path)
        raise TypeError(
            f"save: {'.'.join(path) or 'the tree'!r} is a {type(value).__name__}, which has no place in a file. Expected "
            "tensors, arrays, numbers, strings, None, and dicts, lists and tuples of them."
        )

    return encode(tree, ()), arrays


def _key(key: Any, path: tuple[str, ...]) -> Any:
    if isinstance(key, (bool, int, str)) or key is None:
        return key
    raise TypeError(f"save: a key of {'.'.join(path) or 'the tree'!r} is {key!r}. Expected strings or integers.")


def read_tree(text: bytes, arrays: Mapping[str, np.ndarray], refuse: Refuse) -> Any:
    """Rebuild a tree from its JSON structure and its arrays; `refuse` makes the error if they do not match."""
    return _unpack(parse_json(text, refuse, MAX_STRUCTURE_BYTES), arrays)


def _unpack(structure: Checked, arrays: Mapping[str, np.ndarray]) -> Any:
    """The inverse of `pack`."""
    value = structure.value
    if isinstance(value, list):
        return [_unpack(v, arrays) for v in structure.items()]
    if not isinstance(value, dict):
        return value
    inner = structure.mapping()
    if len(inner) == 1:
        ((mark, content),) = inner.items()
        if mark in ("$tensor", "$array"):
            array = arrays.get(content.text())
            if array is None:
                content.fail("the file has no array of this name.")
            return wrap(to_array(array)) if mark == "$tensor" else array
        if mark == "$tuple":
            return tuple([_unpack(v, arrays) for v in content.items()])
        if mark == "$dict":
            pairs = [pair.items(2) for pair in content.items()]
            return {_plain_key(k): _unpack(v, arrays) for k, v in pairs}
        if mark == "$float":
            return _float(content)
        if mark == "$complex":
            real, imag = content.items(2)
            return complex(_float(real), _float(imag))
    return {k: _unpack(v, arrays) for k, v in inner.items()}


def _plain_key(key: Checked) -> Any:
    if key.value is not None and type(key.value) not in (bool, int, str):
        key.expected("a string or an integer")
    return key.value


def _float(value: Checked) -> float:
    try:
        return float(value.text())
    except ValueError:
        value.expected("a number as text")
