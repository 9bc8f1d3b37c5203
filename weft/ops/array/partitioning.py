"""Parting the rows of a tensor by number, and putting them together again: `dynamic_partition` and `dynamic_stitch`.

Together they send rows to where the work for them is done and bring the results back in order, as in a look-up in a table
whose rows are spread over several tasks of a cluster:

    shards = wf.dynamic_partition(ids, ids % 2, 2)                          # the ids of each task
    places = wf.dynamic_partition(wf.arange(ids.shape[0]), ids % 2, 2)      # where they come from
    rows = wf.dynamic_stitch(places, [wf.take(t, s // 2, axis=0) for t, s in zip(tables, shards)])

How many rows a part has depends on values: they run eagerly and in declared graphs; one compiled program cannot hold them, as it
cannot hold `nonzero`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ..core.define import composite, primitive
from ..core.samples import Bad, Sample
from ..core.spec import Spec, check_size, is_known, same_size
from .creation import arange
from .elementwise import equal, where
from .gathering import checked_indices, take_axis
from .searching import nonzero_places
from .shaping import check_sequence, concat_axis, moveaxis, reshape

MAX_PARTS = 1 << 20  # each part is a tensor, even if it is empty

# Functions for users that are not ops; ops are public by their records.
__all__ = ["dynamic_stitch"]


def _check_lead(op: str, indices: Any, data: Any, name: str) -> None:
    """Raise unless `indices` are integers whose shape is how the shape of `data` begins."""
    if not dtypes.is_integral(indices.dtype):
        raise TypeError(
            f"{op}: {name} must be integers. Got {indices.dtype.name}; use `{name.split()[0]}.astype(wf.int64)`."
        )
    if indices.shape is None or data.shape is None:
        return
    lead = data.shape[: len(indices.shape)]
    if len(lead) < len(indices.shape) or not all(same_size(a, b) for a, b in zip(lead, indices.shape, strict=True)):
        raise ValueError(
            f"{op}: the shape of data must begin with that of {name}. Got data {format_shape(data.shape)} and {name} "
            f"{format_shape(indices.shape)}."
        )


def _reference_partition(data: Any, partitions: Any, num_partitions: int) -> tuple[np.ndarray, ...]:
    return tuple([np.asarray(data)[np.asarray(partitions) == i] for i in range(num_partitions)])


@composite(
    reference=_reference_partition,
    samples=lambda m: [
        Sample(m.normal(5), np.array([0, 2, 0, 1, 2]), 3),
        Sample(m.normal(4, 3), np.array([1, 1, 0, 1]), 2),
        Sample(m.normal(2, 3, 2), np.array([[0, 1, 1], [3, 0, 1]]), 4),
        Sample(m.normal(0, 2), np.zeros(0, np.int64), 2),
    ],
    errors=lambda m: [
        Bad(IndexError, "dynamic_partition: partition 2 is out of range", m.normal(2), np.array([0, 2]), 2),
        Bad(ValueError, "dynamic_partition: the shape of data must begin", m.normal(3), np.array([0, 1]), 2),
        Bad(TypeError, "dynamic_partition: partitions must be integers", m.normal(2), m.normal(2), 2),
        Bad(ValueError, "dynamic_partition: num_partitions must be at least 1", m.normal(2), np.array([0, 0]), 0),
    ],
    test={"tuple": True, "differentiable_inputs": (0,)},
)
def dynamic_partition(data: Tensor, partitions: Tensor, num_partitions: int) -> tuple[Tensor, ...]:
    """Part the rows of `data` by number: part i has the rows whose entry in `partitions` is i, in their order.

    Args:
        data: its shape begins with that of `partitions`.
        partitions: an integer from 0 to num_partitions - 1 for every row.
        num_partitions: how many parts there are; some may be empty.

    Returns:
        One tensor per part, of shape (count, *data.shape[partitions.ndim:]).

    >>> wf.dynamic_partition(wf.tensor([10, 20, 30]), wf.tensor([1, 0, 1]), 2)
    (tensor([20]), tensor([10, 30]))
    """
    number = check_size("dynamic_partition", num_partitions, "num_partitions", 1)
    if number > MAX_PARTS:
        raise ValueError(f"dynamic_partition: num_partitions must be at most {MAX_PARTS:,}. Got {number}.")
    _check_lead("dynamic_partition", partitions, data, "partitions")
    if partitions.ndim != 1:
        data = reshape(data, (-1, *data.shape[partitions.ndim :]))
        partitions = reshape(partitions, (-1,))
    partitions = checked_indices(partitions, 0, number, None, "dynamic_partition: partition")
    return tuple([take_axis(data, nonzero_places(equal(partitions, i))[0], 0) for i in range(number)])


# Putting together --------------------------------------------------------------------------------------------------------


def _infer_stitch(indices: Any, data: Any) -> Spec:
    _check_lead("dynamic_stitch", indices, data, "indices")
    if type(indices) is np.ndarray:
        if indices.size and int(indices.min()) < 0:
            raise IndexError(f"dynamic_stitch: indices must not be negative. Got {int(indices.min())}.")
        size: Any = int(indices.max()) + 1 if indices.size else 0
    else:
        size = None
    return Spec(None if data.shape is None else (size, *data.shape[1:]), data.dtype)


def _stitch(indices: Any, data: Any) -> np.ndarray:
    """Rows in their places, one at a time: the last of equal indices stays."""
    if indices.size and int(indices.min()) < 0:
        raise IndexError(f"dynamic_stitch: indices must not be negative. Got {int(indices.min())}.")
    out = np.zeros((int(indices.max()) + 1 if indices.size else 0, *data.shape[1:]), data.dtype)
    out[indices] = data
    return out


def _reference_stitch(indices: Any, data: Any) -> np.ndarray:
    out = np.zeros((max([int(i) for i in indices], default=-1) + 1, *data.shape[1:]), data.dtype)
    for i, row in zip(indices, data, strict=True):
        out[int(i)] = row
    return out


def _stitch_rule(g: Tensor, indices: Tensor) -> Tensor:
    """The gradient goes to the rows that stayed."""
    own = arange(indices.shape[0])
    stayed = equal(take_axis(stitch_rows(indices, own), indices, 0), own)
    return where(reshape(stayed, (-1, *(1,) * (g.ndim - 1))), take_axis(g, indices, 0), 0.0)


def _batch_stitch(axes: Any, tensors: Any, attrs: Any) -> Tensor:
    """Batching rule: rows of all examples travel together. Indices per example would give results of several sizes."""
    indices, data = tensors
    if axes[0] is not None:
        raise ValueError(
            "dynamic_stitch: under vmap the indices must be the same for all examples, or the results would differ in size. "
            "Use in_axes=None for them."
        )
    return moveaxis(stitch_rows(indices, moveaxis(data, 0, 1)), 1, 0)


@primitive(
    accumulate="exact",
    namespace="internal",
    title="dynamic_stitch",
    cost="gather",
    infer=_infer_stitch,
    vjp=(None, _stitch_rule),
    batch=_batch_stitch,
    reference=_reference_stitch,
    samples=lambda m: [
        Sample(np.array([2, 0, 1]), m.normal(3, 2)),
        Sample(np.array([1, 3, 1]), m.normal(3)),
        Sample(np.zeros(0, np.int64), m.normal(0, 2)),
    ],
    errors=lambda m: [
        Bad(IndexError, "dynamic_stitch: indices must not be negative. Got -1", np.array([0, -1]), m.normal(2)),
        Bad(ValueError, "dynamic_stitch: the shape of data must begin", np.array([0, 1]), m.normal(3)),
        Bad(TypeError, "dynamic_stitch: indices must be integers", m.normal(2), m.normal(2)),
    ],
)
def stitch_rows(indices: Tensor, data: Tensor) -> Any:
    """Row i of `data` as row `indices[i]` of the result: the primitive behind `dynamic_stitch`."""
    return _stitch(indices, data)


def dynamic_stitch(indices: Sequence[Tensor], data: Sequence[Tensor]) -> Tensor:
    """Put rows together: row `data[k][i]` becomes row `indices[k][i]` of the result. The inverse of `dynamic_partition`.

    Of several rows for one place the last stays, in the order of the lists, and gets the gradient. Places that no index names
    are zeros; the result has max(indices) + 1 rows.

    Args:
        indices: tensors of integers from 0 on.
        data: as many tensors; the shape of each begins with that of its indices, and the rest is the same for all.

    >>> wf.dynamic_stitch([wf.tensor([0, 2]), wf.tensor([1])], [wf.tensor([1, 3]), wf.tensor([2])])
    tensor([1, 2, 3])
    """
    indices, data = check_sequence("dynamic_stitch", indices), check_sequence("dynamic_stitch", data)
    if len(indices) != len(data):
        raise ValueError(
            f"dynamic_stitch: expected one tensor of data for each tensor of indices. Got {len(indices)} of indices and "
            f"{len(data)} of data."
        )
    if not indices:
        raise ValueError("dynamic_stitch: expected at least one tensor. Got none.")
    flat_indices, flat_data = [], []
    for i, d in zip(indices, data, strict=True):
        _check_lead("dynamic_stitch", i, d, "indices")
        if i.ndim != 1:
            d = reshape(d, (-1, *d.shape[i.ndim :])) if is_known(d.shape[i.ndim :]) else d
            i = reshape(i, (-1,))
        flat_indices.append(i)
        flat_data.append(d)
    if len(flat_indices) == 1:
        return stitch_rows(flat_indices[0], flat_data[0])
    return stitch_rows(concat_axis(tuple(flat_indices), 0), concat_axis(tuple(flat_data), 0))
