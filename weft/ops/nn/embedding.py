"""Embedding lookup (`embedding`) and pooled lookup (`embedding_bag`).

The table's gradient stays row-sparse (`RowSparse`) until a dense one is needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...autograd.tape import no_grad
from ...errors import format_shape
from ...tensor import Tensor
from ..array.check_values import require
from ..array.creation import ones_like, zeros, zeros_like_spec
from ..array.elementwise import astype, maximum, where
from ..array.gathering import checked_indices, index_add, take_axis
from ..array.reduction import max_, reduce_sum
from ..array.row_sparse import RowSparse
from ..array.shaping import expand_dims, reshape
from ..core.define import composite, primitive
from ..core.inplace import apply_inplace
from ..core.registry import NOT_DIFFERENTIABLE
from ..core.samples import Bad, Sample
from ..core.spec import Spec, check_size, is_known, same_size
from ..internal.table_rows import put_rows, row_places
from .formulas import length


def _check_rows(op: str, indices: Any, weight: Any) -> None:
    if not dtypes.is_integral(indices.dtype):
        raise TypeError(f"{op}: indices must be integers. Got {indices.dtype.name}; use `indices.astype(wf.int64)`.")
    if weight.shape is None:
        return
    if len(weight.shape) != 2:
        raise ValueError(f"{op}: weight must have shape (rows, features). Got {format_shape(weight.shape)}.")
    _refuse_rows(op, indices, weight.shape[0])


def _refuse_rows(op: str, indices: Any, rows: Any) -> None:
    """Raise unless `indices` are valid rows; values are checked where they are known."""
    if type(indices) is np.ndarray and isinstance(rows, int) and indices.size:
        low, high = int(indices.min()), int(indices.max())
        if low < 0 or high >= rows:
            raise IndexError(f"{op}: indices hold {low if low < 0 else high}; expected 0 to {rows - 1}.")


def _infer_lookup(indices: Any, weight: Any, padding_idx: int | None, sparse: bool) -> Spec:
    _check_rows("embedding", indices, weight)
    if indices.shape is None or weight.shape is None:
        return Spec(None, weight.dtype)
    return Spec((*indices.shape, weight.shape[1]), weight.dtype)


def _lookup_rule(g: Tensor, indices: Tensor, like_weight: Any, padding_idx: int | None, sparse: bool) -> Any:
    if padding_idx is not None:
        g = where(expand_dims(indices != padding_idx, -1), g, 0.0)
    if is_known(like_weight.shape) and is_known(indices.shape):
        return RowSparse.from_gather(indices, g, tuple(like_weight.shape), keep=sparse)
    base = zeros_like_spec(Spec(like_weight.shape, g.dtype, like_weight.value))
    return index_add(base, reshape(indices, (-1,)), reshape(g, (-1, g.shape[-1])), 0)


def _batch_lookup(axes: Any, tensors: Any, attrs: Any) -> Tensor:
    indices, weight = tensors
    if axes[1] is None:
        return embedding_lookup(indices, weight, *attrs)
    # one table per example: concatenate the tables and offset the indices
    size, rows = weight.shape[0], weight.shape[1]
    shift = _arange(size) * rows
    if axes[0] is None:
        indices = expand_dims(indices, 0)
    shifted = indices + reshape(shift, (size, *(1,) * (indices.ndim - 1)))
    flat = reshape(weight, (size * rows, weight.shape[2]))
    found = take_axis(flat, shifted, 0)
    if attrs[0] is not None:
        found = where(expand_dims(indices != attrs[0], -1), found, found.detach())
    return found


def _arange(n: int) -> Tensor:
    from ..array.creation import arange

    return arange(n)


@primitive(
    accumulate="exact",
    namespace="internal",
    cost="look up",
    infer=_infer_lookup,
    vjp=(None, _lookup_rule),
    batch=_batch_lookup,
    reference=lambda indices, weight, padding_idx, sparse: weight[indices],
    samples=lambda m: [
        Sample(np.array([[0, 2], [2, 1]]), m.normal(4, 3), None, False),
        Sample(np.array(1), m.normal(4, 3), None, True),
        Sample(np.zeros((0,), np.int64), m.normal(4, 3), None, False),
    ],
    errors=lambda m: [
        Bad(IndexError, "embedding: indices hold 4; expected 0 to 3", np.array([4]), m.normal(4, 3), None, False)
    ],
)
def embedding_lookup(indices: Tensor, weight: Tensor, padding_idx: int | None, sparse: bool) -> Any:
    """The rows of `weight` at `indices`; row `padding_idx` gets no gradient; `sparse` keeps `.grad` row-sparse."""
    return np.take(weight, indices, 0)


def _padding(op: str, padding_idx: Any, weight: Any) -> int | None:
    if padding_idx is None:
        return None
    rows = weight.shape[0]
    if isinstance(padding_idx, bool) or not isinstance(padding_idx, (int, np.integer)):
        raise TypeError(f"{op}: padding_idx must be an integer. Got {padding_idx!r}.")
    if isinstance(rows, int) and not -rows <= padding_idx < rows:
        raise ValueError(f"{op}: padding_idx must be within the {rows} rows of weight. Got {padding_idx}.")
    return int(padding_idx + rows if padding_idx < 0 else padding_idx)


def _renormalize(op: str, indices: Tensor, weight: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale the rows looked up to a norm of at most `max_norm`, in place and outside the tape."""
    _check_rows(op, indices._data, weight)
    with no_grad():
        flat = checked_indices(reshape(indices, (-1,)), 0, weight.shape[0], None, f"{op}: index")
        rows = take_axis(weight.detach(), flat, 0)
        norms = length(rows, norm_type, -1, True)
        short = where(norms > max_norm, rows * (max_norm / (norms + 1e-7)), rows)
        if type(weight._data) is np.ndarray and type(flat._data) is np.ndarray:
            weight[flat] = short
        else:  # a compiled program writes only these rows
            apply_inplace(put_rows.op, weight, (weight, flat, short, row_places(flat, weight.shape[0])))  # type: ignore[attr-defined]


@primitive(
    namespace="internal",
    cost="move",
    infer=lambda x, scale: Spec(x.shape, x.dtype),
    vjp=(lambda g, scale: g * scale, None),
    reference=lambda x, scale: x,
    samples=lambda m: [Sample(m.normal(2, 3), m.positive(2, 1))],
    test={"no_gradient": True},  # the gradient is scaled on purpose
)
def scaled_gradient(x: Tensor, scale: Tensor) -> Any:
    """`x`, whose gradient is multiplied by `scale` on its way back."""
    return np.array(x)


def _shared_among_uses(rows: Tensor, indices: Tensor, count: int) -> Tensor:
    """`rows`, looked up at `indices`: the gradient of each is divided by how often its row was looked up."""
    flat = reshape(indices, (-1,))
    place = row_places(flat, count)
    uses = index_add(zeros(flat.shape, dtype=rows.dtype), place, ones_like(flat, dtype=rows.dtype), 0)
    return scaled_gradient(rows, reshape(1.0 / take_axis(uses, place, 0), (*indices.shape, 1)))


@composite(
    namespace="nn",
    reference=lambda indices, weight, padding_idx=None, sparse=False: weight[indices],
    samples=lambda m: [
        Sample(np.array([[0, 2], [2, 1]]), m.normal(4, 3)),
        Sample(np.array([1, 3]), m.normal(4, 2), sparse=True),
    ],
    errors=lambda m: [
        Bad(IndexError, "embedding: indices hold -1; expected 0 to 3", np.array([0, -1]), m.normal(4, 3)),
        Bad(TypeError, "embedding: indices must be integers", m.normal(2), m.normal(4, 3)),
        Bad(ValueError, r"embedding: weight must have shape \(rows, features\)", np.array([0]), m.normal(4)),
        Bad(ValueError, "embedding: padding_idx must be within the 4 rows", np.array([0]), m.normal(4, 3), 4),
    ],
)
def embedding(
    indices: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    sparse: bool = False,
    scale_grad_by_freq: bool = False,
) -> Tensor:
    """Look up rows of `weight`.

    Args:
        indices: row numbers, any shape.
        weight: (rows, features).
        padding_idx: a row that gets no gradient.
        max_norm: scale the rows looked up, in place, to a norm of at most this.
        sparse: keep `weight.grad` as a `RowSparse` of the rows looked up.
        scale_grad_by_freq: divide the gradient of a row by the number of times it was looked up.

    Returns:
        (*indices.shape, features).

    >>> F.embedding(wf.tensor([2, 0]), wf.arange(6.0).reshape(3, 2)).tolist()
    [[4.0, 5.0], [0.0, 1.0]]
    """
    place = _padding("embedding", padding_idx, weight) if weight.ndim == 2 else None
    if max_norm is not None:
        _renormalize("embedding", indices, weight, max_norm, norm_type)
    rows = embedding_lookup(indices, weight, place, bool(sparse))
    return _shared_among_uses(rows, indices, weight.shape[0]) if scale_grad_by_freq else rows


# Bags -----------------------------------------------------------------------------------------------------------------


_TWO = np.array([0, 1])  # indices of samples


def _infer_bags(offsets: Any, count: Any) -> Spec:
    if not dtypes.is_integral(offsets.dtype) or offsets.shape is not None and len(offsets.shape) != 1:
        raise TypeError(
            f"embedding_bag: offsets must be a vector of integers. Got {offsets.dtype.name} {format_shape(offsets.shape)}."
        )
    if count is not None:
        check_size("embedding_bag", count, "count")
    return Spec((count,), dtypes.int64)


def _checked_offsets(offsets: Tensor, count: int | None, ends: bool) -> Tensor:
    """Where the bags start, of `count` indices (None: not known yet); with `ends` the last offset is where the last one ends."""
    if dtypes.is_integral(offsets.dtype) and offsets.ndim == 1:  # else `bag_numbers` refuses them
        if offsets.shape[0] == 0 and (count or ends):
            raise ValueError(f"embedding_bag: offsets must say where the bags of {count} indices start. Got none.")
        message = f"embedding_bag: offsets must rise from 0 to {'' if ends else 'at most '}{count}."
        for holds in (lambda o: o[:1] == 0, lambda o: o[1:] >= o[:-1]):
            offsets = require(offsets, holds, message, lambda found: found.tolist())
        if count is not None:
            offsets = require(
                offsets, lambda o: o[-1:] == count if ends else o[-1:] <= count, message, lambda found: found.tolist()
            )
    return offsets[:-1] if ends else offsets


@primitive(
    accumulate="exact",
    namespace="internal",
    cost="search",
    infer=_infer_bags,
    vjp=NOT_DIFFERENTIABLE,
    reference=lambda offsets, count: np.searchsorted(offsets, np.arange(count), "right") - 1,
    samples=lambda m: [Sample(np.array([0, 2, 2, 4]), 6), Sample(np.array([0]), 0)],
    errors=lambda m: [Bad(TypeError, "embedding_bag: offsets must be a vector of integers", m.normal(2), 4)],
)
def bag_numbers(offsets: Tensor, count: int) -> Any:
    """For each of `count` items the number of the bag that it is in: bag k starts at offsets[k]."""
    return np.searchsorted(offsets, np.arange(count), "right").astype(np.int64) - 1


def _infer_segments(x: Any, segments: Any, count: int) -> Spec:
    if x.shape is not None and segments.shape is not None and not same_size(x.shape[0], segments.shape[0]):
        raise ValueError(
            f"segment_max: one segment number per row is needed. Got {x.shape[0]} rows and {segments.shape[0]} numbers."
        )
    return Spec(None if x.shape is None else (count, *x.shape[1:]), x.dtype)


def _segment_max_rule(g: Tensor, x: Tensor, segments: Tensor, out: Tensor, count: int) -> Tensor:
    """Equal largest elements share the gradient."""
    hit = astype(x == take_axis(out, segments, 0), g.dtype)
    shares = index_add(zeros((count, *x.shape[1:]), dtype=g.dtype), segments, hit, 0)
    return hit * take_axis(g / where(shares == 0, 1.0, shares), segments, 0)


def _np_segment_max(x: Any, segments: Any, count: int) -> Any:
    out = np.full((count, *x.shape[1:]), -np.inf, x.dtype)
    np.maximum.at(out, segments, x)
    return np.where(np.isin(np.arange(count), segments).reshape(-1, *(1,) * (x.ndim - 1)), out, 0).astype(x.dtype)


@primitive(
    accumulate="exact",
    namespace="internal",
    cost="reduce",
    infer=_infer_segments,
    vjp=(_segment_max_rule, None),
    reference=lambda x, segments, count: np.stack(
        [x[segments == k].max(0) if (segments == k).any() else np.zeros(x.shape[1:]) for k in range(count)]
    ),
    samples=lambda m: [Sample(m.distinct(5, 2), np.array([0, 0, 2, 2, 2]), 4)],
    errors=lambda m: [Bad(ValueError, "segment_max: one segment number per row", m.normal(3, 2), np.array([0]), 1)],
)
def segment_max(x: Tensor, segments: Tensor, count: int) -> Any:
    """The largest element of the rows of each segment; 0 for segments without rows."""
    return _np_segment_max(x, segments, count)


def _reference_bag(
    indices: Any,
    weight: Any,
    offsets: Any = None,
    mode: str = "mean",
    per_sample_weights: Any = None,
    padding_idx: Any = None,
    include_last_offset: bool = False,
) -> Any:
    if offsets is None:
        bags = [list(row) for row in indices]
        scales = [None] * len(bags) if per_sample_weights is None else list(per_sample_weights)
    else:
        ends = [*offsets[1:], len(indices)] if not include_last_offset else offsets[1:]
        starts = offsets if not include_last_offset else offsets[:-1]
        bags = [list(indices[a:b]) for a, b in zip(starts, ends, strict=True)]
        scales = [
            None if per_sample_weights is None else per_sample_weights[a:b] for a, b in zip(starts, ends, strict=True)
        ]
    out = []
    for bag, scale in zip(bags, scales, strict=True):
        keep = [j for j, i in enumerate(bag) if i != padding_idx]
        rows = weight[[bag[j] for j in keep]] if keep else np.zeros((0, weight.shape[1]))
        if scale is not None:
            rows = rows * np.asarray(scale)[keep][:, None]
        if len(rows) == 0:
            out.append(np.zeros(weight.shape[1]))
        else:
            out.append(rows.sum(0) if mode == "sum" else rows.mean(0) if mode == "mean" else rows.max(0))
    return np.stack(out)


@composite(
    accumulate="float32",
    namespace="nn",
    reference=_reference_bag,
    samples=lambda m: [
        Sample(np.array([[0, 2], [2, 1]]), m.distinct(4, 3)),
        Sample(np.array([0, 2, 2, 1, 3]), m.distinct(4, 3), np.array([0, 2, 2]), "sum"),
        Sample(np.array([0, 2, 3, 1]), m.distinct(4, 3), np.array([0, 3, 4]), "max", include_last_offset=True),
        Sample(np.array([[0, 2], [2, 1]]), m.distinct(4, 3), mode="sum", per_sample_weights=m.normal(2, 2)),
        Sample(np.array([[0, 2], [2, 2], [1, 1]]), m.distinct(4, 3), padding_idx=2),
        Sample(np.array([[0, 3], [1, 2]]), m.distinct(4, 3), mode="max"),
    ],
    errors=lambda m: [
        Bad(
            ValueError,
            "embedding_bag: mode must be 'sum', 'mean' or 'max'",
            np.array([[0]]),
            m.normal(4, 3),
            mode="min",
        ),
        Bad(ValueError, "embedding_bag: offsets are needed", np.array([0]), m.normal(4, 3)),
        Bad(ValueError, "embedding_bag: offsets are for a vector", np.array([[0]]), m.normal(4, 3), np.array([0])),
        Bad(ValueError, "embedding_bag: offsets must rise from 0 to at most 2", _TWO, m.normal(4, 3), np.array([1, 2])),
        Bad(
            ValueError,
            "embedding_bag: offsets must rise from 0 to at most 2",
            _TWO,
            m.normal(4, 3),
            np.array([0, 2, 1]),
        ),
        Bad(ValueError, "embedding_bag: offsets must rise from 0 to at most 2", _TWO, m.normal(4, 3), np.array([0, 5])),
        Bad(ValueError, "embedding_bag: offsets must say where", _TWO, m.normal(4, 3), np.array([], np.int64)),
        Bad(
            ValueError,
            "embedding_bag: offsets must rise from 0 to 2",
            _TWO,
            m.normal(4, 3),
            np.array([0, 1]),
            include_last_offset=True,
        ),
        Bad(
            ValueError,
            "embedding_bag: per_sample_weights are for mode='sum'",
            np.array([[0]]),
            m.normal(4, 3),
            per_sample_weights=m.normal(1, 1),
        ),
        Bad(IndexError, "embedding_bag: indices hold 9", np.array([[9]]), m.normal(4, 3)),
    ],
)
def embedding_bag(
    indices: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    mode: str = "mean",
    per_sample_weights: Tensor | None = None,
    padding_idx: int | None = None,
    include_last_offset: bool = False,
    sparse: bool = False,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
) -> Tensor:
    """Sum, mean or maximum of the rows of `weight` for each bag of indices.

    Args:
        indices: (bags, size), or a vector that `offsets` (where each bag starts) cuts into bags.
        mode: "sum", "mean" or "max". An empty bag gives zeros.
        per_sample_weights: a factor per index, for mode "sum".
        padding_idx: an index that does not contribute.
        include_last_offset: `offsets` has one more element, the end of the last bag, which is the number of indices.
        sparse, max_norm, norm_type, scale_grad_by_freq: as for `embedding`.

    >>> F.embedding_bag(wf.tensor([[0, 2]]), wf.arange(6.0).reshape(3, 2), mode="sum").tolist()
    [[4.0, 6.0]]
    """
    if mode not in ("sum", "mean", "max"):
        raise ValueError(f"embedding_bag: mode must be 'sum', 'mean' or 'max'. Got {mode!r}.")
    if per_sample_weights is not None:
        if mode != "sum":
            raise ValueError(f"embedding_bag: per_sample_weights are for mode='sum'. Got mode={mode!r}.")
        if tuple(per_sample_weights.shape) != tuple(indices.shape):
            raise ValueError(
                f"embedding_bag: per_sample_weights have shape {format_shape(per_sample_weights.shape)}; expected that of "
                f"indices, {format_shape(indices.shape)}."
            )
    if indices.ndim == 2 and offsets is not None:
        raise ValueError("embedding_bag: offsets are for a vector of indices. Got indices with 2 axes.")
    if indices.ndim == 1 and offsets is None:
        raise ValueError("embedding_bag: offsets are needed for a vector of indices, to say where each bag starts.")
    if indices.ndim not in (1, 2):
        raise ValueError(f"embedding_bag: indices must have 1 or 2 axes. Got shape {format_shape(indices.shape)}.")
    place = _padding("embedding_bag", padding_idx, weight)
    if max_norm is not None:
        _renormalize("embedding_bag", indices, weight, max_norm, norm_type)
    rows = embedding_lookup(indices, weight, place, bool(sparse))
    if scale_grad_by_freq:
        rows = _shared_among_uses(rows, indices, weight.shape[0])
    counts: Any = None if place is None else indices != place
    if per_sample_weights is not None:
        rows = rows * expand_dims(per_sample_weights, -1)
    if counts is not None:
        rows = where(expand_dims(counts, -1), rows, float("-inf") if mode == "max" else 0.0)
    if offsets is None:
        return _reduce_rows(rows, counts, mode)
    starts = _checked_offsets(offsets, indices.shape[0], bool(include_last_offset))
    return _reduce_segments(rows, counts, bag_numbers(starts, indices.shape[0]), starts.shape[0], mode)


def _reduce_rows(rows: Tensor, counts: Tensor | None, mode: str) -> Tensor:
    if mode == "max":
        top = max_(rows, axis=1)
        return top if counts is None else where(top == float("-inf"), 0.0, top)
    total = reduce_sum(rows, 1, False)
    if mode == "sum":
        return total
    if counts is None:
        return total / max(rows.shape[1], 1)
    return total / maximum(reduce_sum(astype(expand_dims(counts, -1), rows.dtype), 1, False), 1.0)


def _reduce_segments(rows: Tensor, counts: Tensor | None, bags: Tensor, number: int, mode: str) -> Tensor:
    if mode == "max":
        top = segment_max(rows, bags, number)
        return top if counts is None else where(top == float("-inf"), 0.0, top)
    total = index_add(zeros((number, rows.shape[1]), dtype=rows.dtype), bags, rows, 0)
    if mode == "sum":
        return total
    ones = ones_like(bags, dtype=rows.dtype) if counts is None else astype(counts, rows.dtype)
    sizes = index_add(zeros((number,), dtype=rows.dtype), bags, ones, 0)
    return total / expand_dims(maximum(sizes, 1.0), -1)
