"""Zero-copy conversion between NumPy arrays and tensors for the data package.

The rest of `weft.data` works on NumPy arrays only, so worker processes never import the tensor library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np


def _as_tensor(array: np.ndarray) -> Any:
    """A tensor that shares the memory of `array`; arrays of strings, dates or records are returned unchanged."""
    if array.dtype.kind not in "biufc" and array.dtype.name != "bfloat16":
        return array
    import weft

    make: Callable[[np.ndarray], Any] = weft.asarray  # names come from the op table
    return make(array)


def is_tensor(value: Any) -> bool:
    module = sys.modules.get("weft.tensor")  # not imported yet: then no tensor can exist
    return module is not None and isinstance(value, module.Tensor)


def to_numpy(value: Any) -> np.ndarray:
    """Convert to a NumPy array, without a copy where possible. Tensors must not require gradients."""
    if isinstance(value, np.ndarray):
        return value
    if is_tensor(value):
        return value.numpy()  # raises for tensors that require gradients, which would be lost here
    return np.asarray(value)


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """Apply `function` to every leaf of nested dictionaries, lists, tuples and named tuples."""
    if isinstance(tree, dict):
        return {key: map_leaves(function, item) for key, item in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_leaves(function, item) for item in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(map_leaves(function, item) for item in tree)
    return function(tree)


def arrays_to_tensors(tree: Any) -> Any:
    """Replace every array of a collated batch by a tensor on the same memory."""
    return map_leaves(lambda leaf: _as_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf, tree)


def tensors_to_arrays(tree: Any) -> Any:
    """The inverse of `arrays_to_tensors`, for the result of a user's collate function."""
    return map_leaves(lambda leaf: to_numpy(leaf) if is_tensor(leaf) else leaf, tree)
