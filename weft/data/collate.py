"""Collating: stack samples into a batch with one copy per sample.

It has two phases, so that a worker can compute the size of the batch, acquire a slot of shared memory and copy the
samples straight into it: `plan` builds a tree of `Leaf`s, `fill` writes each leaf into an array from `allocate`.
`default_collate` does both on ordinary memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..runtime import memory
from ._tensor import arrays_to_tensors, is_tensor, map_leaves, to_numpy

Allocate = Callable[[tuple[int, ...], np.dtype], np.ndarray]

_SCALARS: tuple[tuple[type, str], ...] = ((bool, "bool"), (int, "int64"), (float, "float32"), (complex, "complex64"))


class Leaf:
    """One array of a batch, with its shape and dtype known and its values not yet copied."""

    __slots__ = ("dtype", "shape", "values")

    def __init__(self, values: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.values, self.shape, self.dtype = values, shape, dtype

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def write(self, out: np.ndarray) -> np.ndarray:
        for i, value in enumerate(self.values):
            out[i] = value
        return out


def default_collate(samples: Sequence[Any]) -> Any:
    """Stack samples into a batch.

    Arrays, tensors and numbers gain a leading batch axis; tuples, lists, named tuples and dictionaries are collated
    item by item and keep their type; strings and bytes become a list. Python floats become float32, integers int64.

    Returns:
        The batch with tensors for leaves.

    Raises:
        ValueError: the samples differ in shape, length or keys.
        TypeError: a sample holds something that cannot be stacked.

    Example:
        >>> x, label = data.default_collate([(np.zeros(3), 0), (np.ones(3), 1)])
        >>> x.shape, label.shape
        ((2, 3), (2,))
    """
    return arrays_to_tensors(fill(plan(samples), memory.empty))


def fill(tree: Any, allocate: Callable[[tuple[int, ...], np.dtype], np.ndarray]) -> Any:
    """Write the leaves of a plan into arrays made by ``allocate(shape, dtype)``."""

    def leaf_to_array(leaf: Any) -> Any:
        return leaf.write(allocate(leaf.shape, leaf.dtype)) if isinstance(leaf, Leaf) else leaf

    return map_leaves(leaf_to_array, tree)


def plan(samples: Sequence[Any], path: str = "") -> Any:
    """The structure of the batch, with a `Leaf` for every array to allocate."""
    if not len(samples):
        raise ValueError("default_collate: no samples. Got an empty list; expected at least one sample.")
    first = samples[0]
    if isinstance(first, np.ndarray) or is_tensor(first):
        return _plan_arrays([to_numpy(s) for s in samples], path)
    if isinstance(first, (bool, int, float, complex, np.generic)) and not isinstance(first, (np.str_, np.bytes_)):
        return _plan_numbers(samples, path)
    if isinstance(first, (str, bytes)):
        return list(samples)
    if isinstance(first, Mapping):
        return _plan_mapping(samples, path)
    if isinstance(first, (tuple, list)):
        return _plan_sequence(samples, path)
    raise TypeError(
        f"default_collate: cannot stack {_kind(first)}{_at(path)}. Expected numbers, arrays, tensors, strings, or "
        "tuples, lists and dictionaries of them. Convert it in the dataset, or pass collate_fn=."
    )


def _plan_arrays(arrays: list[np.ndarray], path: str) -> Leaf:
    shape, dtype = arrays[0].shape, arrays[0].dtype
    for i, array in enumerate(arrays):
        if array.shape != shape:
            raise ValueError(
                f"default_collate: samples differ in shape{_at(path)}. Got {shape} for sample 0 and {array.shape} "
                f"for sample {i} of the batch; expected equal shapes. Pad or crop them, or pass collate_fn=."
            )
        if array.dtype != dtype:
            dtype = np.result_type(dtype, array.dtype)
    if dtype.hasobject:
        raise TypeError(
            f"default_collate: cannot stack arrays of Python objects{_at(path)}. Got dtype {dtype}; expected numbers."
        )
    return Leaf(arrays, (len(arrays), *shape), dtype.newbyteorder("="))


def _plan_numbers(samples: Sequence[Any], path: str) -> Leaf:
    dtype: np.dtype | None = None
    for i, value in enumerate(samples):
        if isinstance(value, np.generic):
            own = value.dtype
        else:
            names = [name for kind, name in _SCALARS if isinstance(value, kind)]
            if not names:
                raise TypeError(
                    f"default_collate: samples differ in type{_at(path)}. Got {_kind(samples[0])} for sample 0 and "
                    f"{_kind(value)} for sample {i} of the batch; expected numbers."
                )
            own = np.dtype(names[0])
        dtype = own if dtype is None or dtype == own else _number_type(dtype, own)
    assert dtype is not None
    return Leaf(samples, (len(samples),), dtype)


def _number_type(a: np.dtype, b: np.dtype) -> np.dtype:
    """Type promotion in which integers mixed with float32 stay float32 instead of becoming float64."""
    if a.kind == "f" and b.kind in "biu":
        return a
    if b.kind == "f" and a.kind in "biu":
        return b
    return np.result_type(a, b)


def _plan_mapping(samples: Sequence[Any], path: str) -> dict[Any, Any]:
    keys = list(samples[0])
    for i, sample in enumerate(samples):
        if not isinstance(sample, Mapping) or set(sample) != set(keys):
            got = sorted(map(str, sample)) if isinstance(sample, Mapping) else _kind(sample)
            raise ValueError(
                f"default_collate: samples differ in keys{_at(path)}. Got {sorted(map(str, keys))} for sample 0 and "
                f"{got} for sample {i} of the batch; expected the same keys."
            )
    return {key: plan([sample[key] for sample in samples], f"{path}[{key!r}]") for key in keys}


def _plan_sequence(samples: Sequence[Any], path: str) -> Any:
    first = samples[0]
    for i, sample in enumerate(samples):
        if not isinstance(sample, (tuple, list)) or len(sample) != len(first):
            got = f"{len(sample)} items" if isinstance(sample, (tuple, list)) else _kind(sample)
            raise ValueError(
                f"default_collate: samples differ in length{_at(path)}. Got {len(first)} items for sample 0 and {got} "
                f"for sample {i} of the batch; expected the same number."
            )
    items = [plan(column, f"{path}[{k}]") for k, column in enumerate(zip(*samples, strict=True))]
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*items)
    return type(first)(items) if type(first) in (tuple, list) else items


def _kind(value: Any) -> str:
    return "None" if value is None else type(value).__name__


def _at(path: str) -> str:
    return f" at sample{path}" if path else ""
