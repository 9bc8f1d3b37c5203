"""Batching rules (for `vmap`) of ops that move, join and index: `rule(axes, tensors, attrs)`.

`axes[i]` is 0 if tensor i has a batch axis, which is then its first, and None otherwise. The result has the batch axis
first. Rules are written with public ops, imported locally because the records of those ops refer to these rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...tensor import wrap
from .spec import Spec

if TYPE_CHECKING:
    from ...tensor import Tensor

Axes = Sequence[int | None]


def size_of(axes: Axes, tensors: Sequence[Any]) -> int:
    """The size of the batch axis."""
    return next(t.shape[0] for t, a in zip(tensors, axes, strict=True) if a is not None)


def with_axis(t: Tensor, axis: int | None, size: int) -> Tensor:
    """`t` with a batch axis, broadcast if it has none."""
    from ..array.shaping import broadcast_to

    return t if axis is not None else broadcast_to(t, (size, *t.shape))


def all_with_axis(axes: Axes, tensors: Sequence[Any]) -> list[Any]:
    size = size_of(axes, tensors)
    return [with_axis(t, a, size) for t, a in zip(tensors, axes, strict=True)]


def of_rank(t: Tensor, rank: int) -> Tensor:
    """A batched tensor with axes of size 1 inserted after the batch axis, up to `rank` axes per example."""
    from ..array.shaping import reshape

    missing = rank - (t.ndim - 1)
    return reshape(t, (t.shape[0], *(1,) * missing, *t.shape[1:])) if missing > 0 else t


# Joining and repeating -------------------------------------------------------------------------------------------------


def concat_axis(axes: Axes, tensors: Sequence[Any], attrs: Any) -> Any:
    from ..array import shaping

    full = all_with_axis(axes, tensors)
    return shaping.concat_axis(tuple(full), attrs[0] % (full[0].ndim - 1) + 1)


def roll(axes: Axes, tensors: Sequence[Any], attrs: Any) -> Any:
    from ..array import repeating, shaping

    (x,), (shift, axis) = tensors, attrs
    if axis is None:
        total = sum(shift) if isinstance(shift, tuple) else shift
        return shaping.reshape(repeating.roll(shaping.reshape(x, (x.shape[0], -1)), total, axis=1), tuple(x.shape))
    n = x.ndim - 1
    shifted = tuple([a % n + 1 for a in axis]) if isinstance(axis, tuple) else axis % n + 1
    return repeating.roll(x, shift, axis=shifted)


def tile(axes: Axes, tensors: Sequence[Any], attrs: Any) -> Any:
    from ..array import repeating
    from .spec import check_shape

    counts = check_shape("tile", attrs[0])
    rank = max(len(counts), tensors[0].ndim - 1)
    return repeating.tile(of_rank(tensors[0], rank), (1,) * (1 + rank - len(counts)) + counts)


def repeat_static(axes: Axes, tensors: Sequence[Any], attrs: Any) -> Any:
    from ..array import repeating, shaping

    (x,), (repeats, axis) = tensors, attrs
    if axis is None:
        return repeating.repeat_static(shaping.reshape(x, (x.shape[0], -1)), repeats, 1)
    return repeating.repeat_static(x, repeats, axis % (x.ndim - 1) + 1)


# Indexing ----------------------------------------------------------------------------------------------------------------


def setitem(axes: Axes, tensors: Sequence[Any], attrs: Any) -> Any:
    from ..array import indexing

    size = size_of(axes, tensors)
    x = with_axis(tensors[0], axes[0], size)
    value = tensors[1]
    if axes[1] is not None:
        part = indexing._infer_basic(Spec(tuple(x.shape[1:]), x.dtype), attrs[0])
        value = of_rank(value, part.ndim or 0)
    return indexing.setitem(x, value, (indexing.Slice(None, None, None), *attrs[0]))


def _layout(spec: Any, ndim: int) -> tuple[int, bool]:
    """The position of the broadcast index axes in the result of an advanced index, and whether the indices are adjacent.

    NumPy puts the axes of non-adjacent indices first.
    """
    from ..array.indexing import HERE, Slice

    advanced = [
        i for i, item in enumerate(spec) if item is not None and item is not Ellipsis and item.__class__ is not Slice
    ]
    together = advanced == list(range(advanced[0], advanced[-1] + 1))
    if not together:
        return 0, False
    used = sum(1 for item in spec if item is not None and item is not Ellipsis)
    before = 0
    for item in spec[: advanced[0]]:
        before += ndim - used if item is Ellipsis else 1
    assert HERE in spec
    return before, True


def _batched_indices(axes: Axes, indices: Sequence[Any], size: int) -> list[Any]:
    """Index tensors for a tensor with a leading batch axis: the example index, then the given ones."""
    rank = max([t.ndim - (a is not None) for t, a in zip(indices, axes, strict=True)])
    lined = [of_rank(t, rank) if a is not None else t for t, a in zip(indices, axes, strict=True)]
    return [wrap(np.arange(size).reshape((size,) + (1,) * rank)), *lined]


def _index_rank(axes: Axes, indices: Sequence[Any]) -> int:
    return max([t.ndim - (a is not None) for t, a in zip(indices, axes, strict=True)])


def advanced_index(axes: Axes, tensors: Sequence[Any], attrs: Any) -> Any:
    from ..array import indexing
    from ..array.shaping import moveaxis

    (spec,) = attrs
    size = size_of(axes, tensors)
    if axes[0] is not None and all(a is None for a in axes[1:]):
        before, together = _layout(spec, tensors[0].ndim - 1)
        if together:
            return indexing.advanced_index((*tensors,), (indexing.Slice(None, None, None), *spec))
    x = with_axis(tensors[0], axes[0], size)
    before, _ = _layout(spec, x.ndim - 1)
    out = indexing.advanced_index((x, *_batched_indices(axes[1:], tensors[1:], size)), (indexing.HERE, *spec))
    rank = _index_rank(axes[1:], tensors[1:])
    if before and rank:  # the index axes came first; they belong behind the sliced ones
        out = moveaxis(out, tuple(range(1, 1 + rank)), tuple(range(1 + before, 1 + before + rank)))
    return out


def advanced_put(axes: Axes, tensors: Sequence[Any], attrs: Any) -> Any:
    from ..array import indexing
    from ..array.shaping import broadcast_to, moveaxis

    spec, accumulate = attrs
    size = size_of(axes, tensors)
    x = with_axis(tensors[0], axes[0], size)
    indices, index_axes = tensors[2:], axes[2:]
    inner = [
        Spec(tuple(t.shape[1:] if a is not None else t.shape), t.dtype)
        for t, a in zip(indices, index_axes, strict=True)
    ]
    part = indexing._infer_advanced((Spec(tuple(x.shape[1:]), x.dtype), *inner), spec).shape
    value = with_axis(tensors[1], axes[1], size)
    value = broadcast_to(of_rank(value, len(part)), (size, *part))
    before, _ = _layout(spec, x.ndim - 1)
    rank = _index_rank(index_axes, indices)
    if before and rank:
        value = moveaxis(value, tuple(range(1 + before, 1 + before + rank)), tuple(range(1, 1 + rank)))
    full = (x, value, *_batched_indices(index_axes, indices, size))
    return indexing.advanced_put(full, (indexing.HERE, *spec), accumulate)


def take_axis(axes: Axes, tensors: Sequence[Any], attrs: Any) -> Any:
    from ..array import gathering, indexing
    from ..array.shaping import moveaxis

    x, indices = tensors
    axis = attrs[0] % (x.ndim - (axes[0] is not None))
    if axes[1] is None:
        return gathering.take_axis(x, indices, axis + 1)
    if axes[0] is None:
        return moveaxis(gathering.take_axis(x, indices, axis), axis, 0)
    return advanced_index(axes, tensors, ((indexing.Slice(None, None, None),) * axis + (indexing.HERE,),))


def take_along_axis(axes: Axes, tensors: Sequence[Any], attrs: Any) -> Any:
    from ..array import gathering
    from ..array.shaping import expand_dims

    x, indices = [t if a is not None else expand_dims(t, 0) for t, a in zip(tensors, axes, strict=True)]
    return gathering.take_along_axis(x, indices, axis=attrs[0] % (x.ndim - 1) + 1)


def scatter_add(axes: Axes, tensors: Sequence[Any], attrs: Any) -> Any:
    from ..array import gathering

    x, index, src = all_with_axis(axes, tensors)
    return gathering.scatter_add(x, index, src, attrs[0] % (x.ndim - 1) + 1)


def scatter(axes: Axes, tensors: Sequence[Any], attrs: Any) -> Any:
    from ..array import gathering

    x, index, src = all_with_axis(axes, tensors)
    return gathering.scatter(x, index, src, attrs[0] % (x.ndim - 1) + 1)


def index_add(axes: Axes, tensors: Sequence[Any], attrs: Any) -> Any:
    from ..array import gathering, indexing

    size = size_of(axes, tensors)
    x, index, source = tensors
    x, source = with_axis(x, axes[0], size), with_axis(source, axes[2], size)
    axis = attrs[0] % (x.ndim - 1)
    if axes[1] is None:
        return gathering.index_add(x, index, source, axis + 1)
    spec = (indexing.Slice(None, None, None),) * axis + (indexing.HERE,)
    return advanced_put((0, 0, 0), (x, source, index), (spec, True))


# Losses over rows -----------------------------------------------------------------------------------------------------------


def folded_rows(call: Any, logits: int) -> Any:
    """Batching rule for ops over rows, logits (N, C, ...) with targets (N, ...) or (C,) with (): folds the batch into rows.

    `call()` is the op; `logits` is the position of the logits among its tensors.
    """

    def rule(axes: Axes, tensors: Sequence[Any], attrs: Any) -> Any:
        from ..array.shaping import reshape

        size = size_of(axes, tensors)
        full: list[Any] = [None if t is None else with_axis(t, a, size) for t, a in zip(tensors, axes, strict=True)]
        if full[logits].ndim == 2:  # one row each
            return call()(*full, *attrs)
        flat = [None if t is None else reshape(t, (-1, *t.shape[2:])) for t in full]
        out = call()(*flat, *attrs)
        if isinstance(out, tuple):
            return tuple([reshape(o, (size, -1, *o.shape[1:])) for o in out])
        return reshape(out, (size, -1, *out.shape[1:]))

    return rule
