"""Models whose weights lie in several safetensors files, with an index: `model.safetensors.index.json`.

The index is JSON, `{"weight_map": {"name of a tensor": "name of a file beside the index"}}`.
"""

from __future__ import annotations

import os

import numpy as np

from ..errors import FileError
from .checked import file_error, parse_json, require_plain
from .tensor_file import read_arrays

MAX_INDEX_BYTES = 100_000_000
_USUAL_NAMES = ("model.safetensors", "model.safetensors.index.json", "diffusion_pytorch_model.safetensors")


def in_directory(path: str | os.PathLike[str]) -> str:
    """The file of weights in a directory."""
    listed = sorted(n for n in os.listdir(path) if n.endswith((".safetensors", ".safetensors.index.json")))
    found = [n for n in _USUAL_NAMES if n in listed] or [n for n in listed if n.endswith(".index.json")] or listed
    if not found or len(found) > 1 and found[0] not in _USUAL_NAMES:
        what = (
            "holds no safetensors file" if not found else f"holds several safetensors files ({', '.join(found[:4])} …)"
        )
        raise FileError("load_weights", path, f"{what}. Name the file, or the index of its parts.")
    return os.path.join(os.fspath(path), found[0])


def read_sharded(path: str | os.PathLike[str], reader: str) -> dict[str, np.ndarray]:
    """The arrays of a model in several files, by the index that says which file holds which.

    Args:
        reader: the name of the public function, with which errors start.
    """
    require_plain(reader, path)
    refuse = file_error(reader, path)
    with open(path, "rb") as file:
        index = parse_json(file.read(), refuse, MAX_INDEX_BYTES)
    names = {name: place.text() for name, place in index["weight_map"].mapping().items()}
    folder = os.path.dirname(os.fspath(path))
    arrays: dict[str, np.ndarray] = {}
    for part in dict.fromkeys(names.values()):
        if not part or os.path.basename(part) != part or part in (".", ".."):
            raise refuse(f"its parts must lie beside it. Got {part!r}.", "weight_map")
        if not os.path.isfile(os.path.join(folder, part)):
            raise refuse(f"its part {part!r} is missing in {folder or '.'}.", "weight_map")
        held = read_arrays(os.path.join(folder, part), reader)[0]
        arrays.update({name: array for name, array in held.items() if names.get(name) == part})
    lost = [name for name in names if name not in arrays]
    if lost:
        raise refuse(f"{names[lost[0]]} does not hold {lost[0]!r}, as the index says.", "weight_map")
    return {name: arrays[name] for name in names}
