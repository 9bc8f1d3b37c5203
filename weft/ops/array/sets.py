"""Set functions: distinct values, counts and membership."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ... import dtypes
from ...tensor import Tensor
from ..core.define import primitive
from ..core.registry import NOT_DIFFERENTIABLE
from ..core.samples import Bad, Sample
from ..core.spec import Spec
from .elementwise import equal, logical_not
from .reduction import any_
from .shaping import expand_dims, reshape

# Functions for users that are not ops; ops are public by their records.
__all__ = ["unique_all", "unique_counts", "unique_inverse", "unique_values"]


class UniqueAll(NamedTuple):
    """Result of `unique_all`: distinct values, first indices, inverse indices and counts."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Result of `unique_counts`: distinct values and counts."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Result of `unique_inverse`: distinct values and inverse indices."""

    values: Tensor
    inverse_indices: Tensor


def _infer_unique(x: Any) -> tuple[Spec, ...]:
    index = dtypes.int64
    return Spec((None,), x.dtype), Spec((None,), index), Spec(x.shape, index), Spec((None,), index)


def _unique(x: np.ndarray) -> tuple[np.ndarray, ...]:
    """Sorted distinct values; NaNs are distinct from each other, as they compare unequal."""
    keys = x.astype(np.float32) if x.dtype.itemsize == 2 and dtypes.is_floating(x.dtype) else x
    values, first, inverse, counts = np.unique(
        keys, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    return values.astype(x.dtype, copy=False), first, inverse.reshape(x.shape), counts


@primitive(
    accumulate="exact",
    name="unique_sorted",
    title="unique_all",
    namespace="internal",
    outputs=4,
    cost="sort",
    infer=_infer_unique,
    vjp=NOT_DIFFERENTIABLE,
    reference=_unique,
    samples=lambda m: [
        Sample(np.array([3, 1, 3, 2])),
        Sample(m.ints(2, 3, low=0, high=3)),
        Sample(np.array([1.0, np.nan, 1.0, np.nan, -0.0, 0.0])),
        Sample(m.normal(0)),
        Sample(m.normal()),
        Sample(np.array([1 + 1j, 1 + 1j, 2j])),
    ],
)
def unique_sorted(x: Tensor) -> Any:
    """Distinct values, first indices, inverse indices and counts: the primitive behind `unique_*`."""
    values, *places = _unique(x)  # type: ignore[arg-type]
    return (values, *[np.asarray(p, np.int64) for p in places])


def unique_all(x: Tensor, /) -> UniqueAll:
    """Distinct values of `x`, ascending, with first indices, inverse indices and counts. NaNs are all distinct."""
    return UniqueAll(*unique_sorted(x))


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Distinct values of `x`, ascending, and how often each occurs.

    >>> wf.unique_counts(wf.tensor([3, 1, 3])).counts
    tensor([1, 2])
    """
    values, _, _, counts = unique_sorted(x)
    return UniqueCounts(values, counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Distinct values of `x`, ascending, and for every element of `x` the index of its value."""
    values, _, inverse, _ = unique_sorted(x)
    return UniqueInverse(values, inverse)


def unique_values(x: Tensor, /) -> Tensor:
    """Distinct values of `x`, ascending.

    >>> wf.unique_values(wf.tensor([3, 1, 3]))
    tensor([1, 3])
    """
    return unique_sorted(x)[0]


def _batch_isin(axes: Any, tensors: Any, attrs: Any) -> Tensor:
    """Batching rule: a shared set is searched once for all examples; a set per example is compared elementwise."""
    x1, x2 = tensors
    if axes[1] is None:
        return isin(x1, x2, invert=attrs[0])
    if not isinstance(x1, Tensor):  # a number
        found = any_(equal(reshape(x2, (x2.shape[0], -1)), x1), axis=-1)
    else:
        members = reshape(x2, (x2.shape[0], *(1,) * (x1.ndim - (axes[0] is not None)), -1))
        found = any_(equal(expand_dims(x1, -1), members), axis=-1)
    return logical_not(found) if attrs[0] else found


def _isin(x1: Any, x2: Any, invert: bool = False) -> np.ndarray:
    return np.asarray(np.isin(x1, x2, invert=invert))


@primitive(
    accumulate="exact",
    cost="sort",
    infer=lambda x1, x2, invert: Spec(x1.shape, dtypes.bool_),
    promote="numeric",
    vjp=NOT_DIFFERENTIABLE,
    batch=_batch_isin,
    reference=_isin,
    samples=lambda m: [
        Sample(m.ints(2, 3), m.ints(4)),
        Sample(np.array([1, 2, 3]), 2),
        Sample(2, np.array([1, 2, 3])),
        Sample(np.array([1.0, np.nan]), np.array([np.nan]), invert=True),
        Sample(m.ints(0), m.ints(3)),
    ],
    errors=lambda m: [Bad(TypeError, "isin: x1 must be a tensor. Got str", "a", m.ints(2))],
)
def isin(x1: Tensor, x2: Tensor, /, *, invert: bool = False) -> Any:
    """Whether each element of `x1` is an element of `x2` (with `invert`, is not).

    >>> wf.isin(wf.tensor([1, 2, 3]), wf.tensor([2, 5]))
    tensor([False,  True, False])
    """
    return _isin(x1, x2, invert)
