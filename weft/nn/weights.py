"""Saving and loading state dicts as safetensors files, and checking them against a module.

Files are written to a temporary name and renamed when complete, so a crash or a full disk leaves the old file intact.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import dtypes
from ..autograd.tape import no_grad
from ..errors import FileError, format_shape
from ..io.checked import require_plain
from ..io.durable import replace_file
from ..io.tensor_file import read_arrays, write_arrays
from ..io.weight_index import in_directory, read_sharded
from ..tensor import Tensor, to_array, wrap

MAX_NAMES_SHOWN = 20  # names listed per kind of mismatch


def save_weights(
    state: Mapping[str, Any] | Any, path: str | os.PathLike[str], metadata: dict[str, str] | None = None
) -> None:
    """Write a state dict (or a module's) to a safetensors file, atomically.

    Args:
        state: a module, or tensors and arrays by name.
        path: the file; an existing one is replaced once the new one is complete.
        metadata: text to keep in the file's header.

    >>> import tempfile, os
    >>> layer, path = nn.Linear(2, 3), os.path.join(tempfile.mkdtemp(), "layer.safetensors")
    >>> nn.save_weights(layer, path)
    >>> sorted(nn.load_weights(path))
    ['bias', 'weight']
    """
    if hasattr(state, "state_dict"):
        state = state.state_dict()
    for name in state:
        if not isinstance(name, str):
            raise TypeError(f"save_weights: names must be strings. Got {name!r}.")
    arrays = {name: to_array(value) for name, value in state.items()}
    with replace_file(path) as file:
        write_arrays(file, arrays, {"format": "weft", **(metadata or {})})


def load_weights(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name.

    Args:
        path: the file; or the index of a model in several files (`model.safetensors.index.json`), which lie beside it; or the
            directory of either. 8-bit floats become float32.

    Raises:
        FileError: it is damaged, or is no safetensors file.
    """
    if os.path.isdir(path):
        path = in_directory(path)
    if os.fspath(path).endswith(".json"):
        return {name: wrap(array) for name, array in read_sharded(path, "load_weights").items()}
    require_plain("load_weights", path)
    with open(path, "rb") as file:
        start = file.read(8)
    # torch.save writes a zip archive or, in older versions, a bare pickle. A safetensors file starts with the size of its
    # header, eight bytes of which the last are zero.
    if start[:4] == b"PK\x03\x04" or start[:1] == b"\x80" and start[-1:] != b"\0":
        raise FileError(
            "load_weights",
            path,
            "is a file of torch.save, a pickle, which can run code when it is read. In PyTorch, save it with "
            "`safetensors.torch.save_file(model.state_dict(), 'model.safetensors')`.",
        )
    return {name: wrap(array) for name, array in read_arrays(path, "load_weights")[0].items()}


# Loading into modules --------------------------------------------------------------------------------------------------


def check_state(
    owner: str, own: Mapping[str, Tensor], given: Mapping[str, Any], strict: bool
) -> tuple[list[str], list[str]]:
    """Return missing and unexpected names; raises one error that lists every mismatch."""
    if not isinstance(given, Mapping):
        raise TypeError(f"load_state_dict: expected a mapping of names to tensors. Got {type(given).__name__}.")
    missing = [name for name in own if name not in given]
    unexpected = [name for name in given if name not in own]
    wrong = [
        f"{name}: the file has {format_shape(np.shape(given[name]))}, the module {format_shape(tensor.shape)}"
        for name, tensor in own.items()
        if name in given and tuple(np.shape(given[name])) != tuple(tensor.shape)
    ]
    if wrong or strict and (missing or unexpected):
        parts = [f"load_state_dict: the state does not fit {owner}."]
        if strict:
            parts += _listed("missing", missing) + _listed("unexpected", unexpected)
        parts += _listed("shapes that differ", wrong)
        hint = _hint(missing, unexpected)
        raise ValueError("\n".join(parts + ([hint] if hint else [])))
    return missing, unexpected


def _listed(title: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = [f"    … and {len(names) - MAX_NAMES_SHOWN} more"] if len(names) > MAX_NAMES_SHOWN else []
    return [f"  {title} ({len(names)}):", *[f"    {n}" for n in names[:MAX_NAMES_SHOWN]], *more]


def _hint(missing: list[str], unexpected: list[str]) -> str:
    """What to try: a common prefix to remove or to add, or a name that is nearly right."""
    if not missing or not unexpected:
        return ""
    for prefix in ("module.", "model.", "_orig_mod."):
        if all(n.startswith(prefix) for n in unexpected):
            return f"Every name starts with {prefix!r}: pass `{{n.removeprefix({prefix!r}): t for n, t in state.items()}}`."
    close = difflib.get_close_matches(missing[0], unexpected, 1)
    return f"Is {close[0]!r} meant to be {missing[0]!r}? Rename it, or pass strict=False." if close else ""


def copy_into(own: Mapping[str, Tensor], given: Mapping[str, Any]) -> None:
    """Copy the given values into the tensors of the same names, in place."""
    with no_grad():
        for name, tensor in own.items():
            if name in given:
                value = given[name]
                if not isinstance(value, Tensor):
                    value = wrap(to_array(value))
                if dtypes.is_complex(value.dtype) and not dtypes.is_complex(tensor.dtype):
                    raise TypeError(
                        f"load_state_dict: {name} is {value.dtype.name}, the module's is {tensor.dtype.name}."
                    )
                tensor.copy_(value.detach().to(tensor.dtype))
