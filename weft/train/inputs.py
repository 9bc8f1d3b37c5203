"""What `Trainer.fit` trains on: arrays, tensors and datasets become loaders, and loaders stay what they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset
from ..tensor import Tensor

BATCH_SIZE = 32  # of arrays and datasets, where none is given


def loaders(
    model: Any,
    x: Any,
    y: Any = None,
    *,
    batch_size: int | None = None,
    validation_data: Any = None,
    validation_split: float = 0.0,
    shuffle: bool = True,
) -> tuple[Any, Any]:
    """The loaders to train and to validate with, made from whatever `fit` was given; the second may be None."""
    train = as_dataset(model, x, y)
    if train is None:
        for name, given in (("y", y), ("batch_size", batch_size), ("validation_split", validation_split or None)):
            if given is not None:
                raise ValueError(
                    f"Trainer: {name} belongs to arrays and datasets. Got it with a {type(x).__name__}, which gives batches; "
                    "pass the DataLoader alone, and validation batches as `validation_data=`."
                )
    elif validation_split:
        if validation_data is not None:
            raise ValueError("Trainer: give either validation_split or validation_data, not both.")
        train, validation_data = split_last(train, validation_split)
    size = BATCH_SIZE if batch_size is None else batch_size
    return _loader(x if train is None else train, size, shuffle), validation_loader(model, validation_data, size)


def validation_loader(model: Any, data: Any, batch_size: int | None = None) -> Any:
    """The loader of validation data: (x, y) arrays, a dataset, a loader, or None."""
    if isinstance(data, tuple) and len(data) >= 2 and all(is_array(a) for a in data):
        data = _arrays(model, data[:-1] if len(data) > 2 else data[0], data[-1])
    elif data is not None:
        found = as_dataset(model, data, None)
        data = data if found is None else found
    return _loader(data, BATCH_SIZE if batch_size is None else batch_size, shuffle=False)


def takes_targets(x: Any, y: Any) -> bool:
    """Whether the second positional argument of `fit` holds the targets of `x`; else it is the validation data."""
    if is_array(x):
        return True
    if not isinstance(x, (tuple, list)) or not x:
        return False
    if is_array(x[0]):  # several inputs; as many batches of a single tensor if `y` is such a list, too
        return is_array(y)
    nested = isinstance(x[0], (tuple, list)) and not any(is_array(a) or isinstance(a, dict) for a in x[0])
    return nested or isinstance(x[0], (bool, int, float))


def is_array(value: Any) -> bool:
    """Whether `value` holds numbers: an array, a tensor, or what turns into an array, such as a data frame."""
    return isinstance(value, (np.ndarray, Tensor)) or hasattr(value, "__array__") and not hasattr(value, "__next__")


def as_dataset(model: Any, x: Any, y: Any) -> Any:
    """The dataset of `x` (and targets `y`); None if `x` is an iterable of batches already."""
    if y is not None and (is_array(x) or isinstance(x, (tuple, list))):
        return _arrays(model, x, y)
    if is_array(x):
        return _arrays(model, x, None)
    if isinstance(x, (Dataset, IterableDataset)):
        return x
    # a dataset of another library, or a class of one's own: it has samples by number and no way to iterate over batches
    if hasattr(x, "__getitem__") and hasattr(x, "__len__") and not hasattr(x, "__iter__"):
        return x
    return None


def _arrays(model: Any, x: Any, y: Any) -> TensorDataset:
    several = isinstance(x, (tuple, list)) and bool(x) and all(is_array(a) and np.ndim(a) for a in x)
    items: Sequence[Any] = [*x] if several else [x]
    if y is not None:
        items = [*items, y]
    return TensorDataset(*[in_model_dtype(model, a) for a in items])


def in_model_dtype(model: Any, value: Any) -> Any:
    """An array whose floats have the dtype of the model's parameters: NumPy's float64 is a default, not a choice.

    Tensors are taken as they are.
    """
    if isinstance(value, Tensor):
        return value
    array = np.asarray(value)
    if array.dtype.kind != "f":
        return array
    dtype = next((p.dtype for p in model.parameters() if p.dtype.kind == "f"), None)
    return array if dtype is None else array.astype(dtype, copy=False)


def split_last(dataset: Any, fraction: float) -> tuple[Any, Any]:
    """The first samples of a dataset, and the last `fraction` of them."""
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 < fraction < 1:
        raise ValueError(f"Trainer: validation_split must be a fraction between 0 and 1. Got {fraction!r}.")
    if isinstance(dataset, IterableDataset):
        raise ValueError("Trainer: a stream has no last samples to split off. Give `validation_data=` instead.")
    n = len(dataset)
    cut = int(n * (1 - fraction))
    if not 0 < cut < n:
        raise ValueError(f"Trainer: validation_split={fraction} of {n} samples leaves one of the two parts empty.")
    if type(dataset) is TensorDataset:  # views, so batches are still gathered at once
        return tuple(TensorDataset(*[a[part] for a in dataset.arrays]) for part in (slice(cut), slice(cut, None)))  # type: ignore[return-value]
    return Subset(dataset, np.arange(cut)), Subset(dataset, np.arange(cut, n))


def _loader(data: Any, batch_size: int, shuffle: bool) -> Any:
    """A loader of a dataset; anything else is returned as it is."""
    if isinstance(data, (Dataset, IterableDataset)) or data is not None and not hasattr(data, "__iter__"):
        if not (hasattr(data, "__getitem__") or isinstance(data, IterableDataset)):
            return data  # which the trainer refuses with its own words
        return DataLoader(data, batch_size, shuffle=shuffle and not isinstance(data, IterableDataset))
    return data
