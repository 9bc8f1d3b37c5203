"""Sharded safetensors: several files of arrays, and an index that names the file of every array.

    NAME.index.json                    {"metadata", "weight_map": {array: file}}, written last
    NAME.<id>.<writer>.safetensors     one file per writer

This is the widespread form of sharded weights, so other programs can read it. A save is all or nothing: the files of a save
have new names, and only the index, which replaces its predecessor in one step, makes them the current ones. Reading does not
depend on who wrote what.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .checked import Checked, file_error, parse_json
from .durable import replace_file, write_file
from .tensor_file import read_arrays, write_arrays

_SUFFIX = ".index.json"
MAX_INDEX_BYTES = 1 << 28


def index_file(path: Any) -> Path:
    """The index of the arrays saved as `path`."""
    base = Path(path)
    return base if base.name.endswith(_SUFFIX) else base.with_name(base.name + _SUFFIX)


def shard_file(path: Any, save: str, writer: str) -> Path:
    """The file for the arrays of one writer; `save` is a new name for every save."""
    index = index_file(path)
    return index.with_name(f"{index.name.removesuffix(_SUFFIX)}.{save}.{writer}.safetensors")


def write_shard(file: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to a file; it appears when it is whole."""
    with replace_file(file) as opened:
        write_arrays(opened, arrays)


def write_index(path: Any, shards: Mapping[str, str], metadata: Mapping[str, Any] | None = None) -> None:
    """Make files the current ones of `path`: `shards` is the file of every array. Those of its predecessor are removed."""
    index = index_file(path)
    old = set(shards_of(path).values()) if index.exists() else set()
    text = json.dumps({"metadata": dict(metadata or {}), "weight_map": dict(sorted(shards.items()))}, indent=1)
    write_file(index, text.encode())
    for name in old - set(shards.values()):
        (index.parent / name).unlink(missing_ok=True)


def shards_of(path: Any) -> dict[str, str]:
    """The file of every array saved as `path`.

    Raises:
        FileError: the index is damaged.
    """
    index = index_file(path)
    data = parse_json(index.read_bytes(), file_error("restore", index), MAX_INDEX_BYTES)
    found = {}
    for name, entry in data["weight_map"].mapping().items():
        file = entry.text()
        if not file or os.path.basename(file) != file:
            entry.fail("a shard must be a file beside the index.")
        found[name] = file
    return found


def index_metadata(path: Any) -> Checked:
    """What the writer of an index noted in it."""
    index = index_file(path)
    return parse_json(index.read_bytes(), file_error("restore", index), MAX_INDEX_BYTES)["metadata"]


def read_sharded(path: Any, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Some of the arrays saved as `path`; one file at a time is in memory.

    Raises:
        KeyError: there is no such array.
    """
    shards = shards_of(path)
    wanted: dict[str, list[str]] = {}
    for name in names:
        if name not in shards:
            raise KeyError(f"restore: {index_file(path)} has no variable {name!r}.")
        wanted.setdefault(shards[name], []).append(name)
    found: dict[str, np.ndarray] = {}
    for file, inside in wanted.items():
        arrays, _ = read_arrays(index_file(path).parent / file, "restore")
        for name in inside:
            if name not in arrays:
                raise KeyError(f"restore: {file} has no variable {name!r}, which the index says it has.")
            found[name] = arrays[name]
    return found
