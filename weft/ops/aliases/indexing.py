"""Gathering, scattering and selecting under PyTorch's names and in its order of arguments.

`x` stays as it is; Tensor has the in-place forms (`x.scatter_(…)`), which are derived from these.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ...typing import Operand
from ..array import creation, cumulative, gathering, reduction, searching, sets, shaping, statistics, subscripts
from ..array.check_values import require
from ..array.elementwise import maximum, minimum, where
from ..core.short_floats import accumulates

__all__ = [
    "bucketize", "cartesian_prod", "combinations", "histc", "index_add", "index_copy", "index_fill", "index_put",
    "index_select", "masked_scatter", "msort", "scatter", "scatter_add", "scatter_reduce", "select_scatter", "take",
    "take_along_dim", "tril_indices", "triu_indices", "unique", "unique_consecutive",
]  # fmt: skip
IN_PLACE = (
    "index_add", "index_copy", "index_fill", "index_put", "masked_scatter", "scatter", "scatter_add", "scatter_reduce",
)  # fmt: skip


def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of `x` along `dim` with the numbers in `index`.

    >>> wf.index_select(wf.tensor([[1, 2], [3, 4]]), 1, wf.tensor([1]))
    tensor([[2],
            [4]])
    """
    return gathering.take(x, index, axis=dim)


def take(x: Tensor, index: Tensor, *, axis: int | None = None, dim: int | None = None) -> Tensor:
    """Elements by number: of the flattened tensor, or slices along an axis.

    Args:
        x: any shape.
        index: integers. Without an axis the result has its shape.
        axis: take slices along this axis; vectors need none.
        dim: the same.

    >>> x = wf.tensor([[1, 2], [3, 4]])
    >>> wf.take(x, wf.tensor([0, 3])), wf.take(x, wf.tensor([1]), axis=0)
    (tensor([1, 4]), tensor([[3, 4]]))
    """
    if axis is not None and dim is not None:
        raise TypeError("take: two values for argument 'axis', as 'axis' and as 'dim'. Give one of them.")
    axis = dim if axis is None else axis
    if axis is not None:
        return gathering.take(x, index, axis=axis)
    places = index if isinstance(index, Tensor) else creation.asarray(index)
    flat = gathering.take(shaping.reshape(x, (-1,)), shaping.reshape(places, (-1,)), axis=0)
    return shaping.reshape(flat, places.shape)


def take_along_dim(x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Elements at `indices` along `dim`; without it of the flattened tensor.

    >>> wf.take_along_dim(wf.tensor([[3, 1], [2, 4]]), wf.tensor([[1], [0]]), dim=1)
    tensor([[1],
            [2]])
    """
    if dim is None:
        return gathering.take_along_axis(shaping.reshape(x, (-1,)), shaping.reshape(indices, (-1,)), axis=0)
    return gathering.take_along_axis(x, indices, axis=dim)


def _torch_order(name: str, first: Any, index: Any, src: Any, axis: Any) -> tuple[Any, Any, Any]:
    """(index, source, axis) of a call in PyTorch's order (dim, index, src) or in that of the op (index, src, axis)."""
    if isinstance(first, int) and not isinstance(first, bool):
        return index, src, first
    return first, index, 0 if src is None and axis is None else (axis if axis is not None else src)


def scatter(
    x: Tensor, dim: Any, index: Any = None, src: Any = None, *, reduce: str | None = None, **words: Any
) -> Tensor:
    """A copy of `x` with elements of `src` at `index` along `dim`: `out[index[i][j], j] = src[i][j]` for `dim=0`.

    Args:
        dim: the axis.
        index: where along `dim` each element goes.
        src: the elements, or one number.
        reduce: "add" or "multiply" combines with what is there.

    >>> wf.zeros(3).scatter(0, wf.tensor([0, 2]), wf.tensor([5.0, 6.0]))
    tensor([5., 0., 6.])
    """
    src = words.pop("value", src)
    index, src, axis = _torch_order("scatter", dim, index, src, words.pop("axis", None))
    if words:
        raise TypeError(f"scatter: unexpected argument {next(iter(words))!r}.")
    if reduce is not None:
        kinds = {"add": "sum", "multiply": "prod"}
        if reduce not in kinds:
            raise ValueError(f"scatter: reduce must be 'add' or 'multiply'. Got {reduce!r}; see `scatter_reduce`.")
        return scatter_reduce(x, axis, index, _source(x, index, src), kinds[reduce])
    return gathering.scatter(x, index, _source(x, index, src), axis)


def _source(x: Tensor, index: Tensor, src: Any) -> Tensor:
    """The elements to scatter, in the shape of the indices."""
    if isinstance(src, Tensor) and src.ndim == index.ndim:
        if src.shape == index.shape:
            return src
        return subscripts.tensor_getitem(src, tuple([slice(0, n) for n in index.shape]))
    if isinstance(src, Tensor):
        return shaping.broadcast_to(src.astype(x.dtype), index.shape)
    return creation.full(index.shape, src, dtype=x.dtype)


def scatter_add(x: Tensor, dim: Any, index: Any = None, src: Any = None, *, axis: int | None = None) -> Tensor:
    """A copy of `x` to which elements of `src` are added at `index` along `dim`.

    >>> wf.zeros(2).scatter_add(0, wf.tensor([0, 0, 1]), wf.tensor([1.0, 2.0, 3.0]))
    tensor([3., 3.])
    """
    index, src, axis = _torch_order("scatter_add", dim, index, src, axis)
    return gathering.scatter_add(x, index, _source(x, index, src), axis)


@accumulates
def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """A copy of `x` in which the elements of `src` with one index along `dim` are combined.

    Args:
        reduce: "sum", "prod", "mean", "amax" or "amin".
        include_self: combine with the elements of `x`, too.

    >>> x, index = wf.zeros(2), wf.tensor([0, 0, 1])
    >>> x.scatter_reduce(0, index, wf.tensor([1.0, 4.0, 2.0]), "amax")
    tensor([4., 2.])
    """
    axis = dim % x.ndim if x.ndim else 0
    src = _source(x, index, src)
    ones = creation.ones(index.shape, dtype=dtypes.int64)
    count = gathering.scatter_add(creation.zeros(x.shape, dtype=dtypes.int64), index, ones, axis)
    touched = count > 0
    if reduce in ("sum", "mean"):
        start = x if include_self else where(touched, x * 0, x)
        total = gathering.scatter_add(start, index, src, axis)
        if reduce == "sum":
            return total
        divisor = maximum(count + (1 if include_self else 0), 1)
        mean = total / divisor.astype(x.dtype) if dtypes.is_inexact(x.dtype) else total // divisor.astype(x.dtype)
        return where(touched, mean, x)
    if reduce not in ("prod", "amax", "amin"):
        raise ValueError(f"scatter_reduce: reduce must be 'sum', 'prod', 'mean', 'amax' or 'amin'. Got {reduce!r}.")
    return _scatter_by_rank(x, axis, index, src, reduce, include_self, touched)


def _scatter_by_rank(
    x: Tensor, axis: int, index: Tensor, src: Tensor, reduce: str, include_self: bool, touched: Tensor
) -> Tensor:
    """Combine one contribution per place at a time: the n-th element with an index is in round n."""
    along = index.shape[axis]
    earlier = [subscripts.tensor_getitem(index, _slot(index, axis, i)) for i in range(along)]
    out, combine = x, {"prod": lambda a, b: a * b, "amax": maximum, "amin": minimum}[reduce]
    first = not include_self
    done = creation.zeros(x.shape, dtype=dtypes.bool_)
    for i, where_to in enumerate(earlier):
        part = subscripts.tensor_getitem(src, _slot(index, axis, i))
        mask = gathering.scatter(
            creation.zeros(x.shape, dtype=dtypes.int8), where_to, creation.ones(where_to.shape, dtype=dtypes.int8), axis
        ).astype(dtypes.bool_)
        value = gathering.scatter(out, where_to, part.astype(x.dtype), axis)
        merged = where(done, combine(out, value), value) if first else combine(out, value)
        out, done = where(mask, merged, out), done | mask
    return out


def _slot(index: Tensor, axis: int, i: int) -> tuple[slice, ...]:
    return tuple([slice(i, i + 1) if a == axis else slice(None) for a in range(index.ndim)])


def index_add(
    x: Tensor, dim: Any, index: Any = None, source: Any = None, *, alpha: float = 1, axis: int | None = None
) -> Tensor:
    """A copy of `x` to which the slices of `source`, times `alpha`, are added at `index` along `dim`.

    >>> wf.zeros(3).index_add(0, wf.tensor([0, 0, 2]), wf.ones(3))
    tensor([2., 0., 1.])
    """
    index, source, axis = _torch_order("index_add", dim, index, source, axis)
    return gathering.index_add(x, index, source if alpha == 1 else source * alpha, axis)


def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy of `x` with the slices of `source` at `index` along `dim`.

    >>> wf.zeros(3).index_copy(0, wf.tensor([2, 0]), wf.tensor([1.0, 5.0]))
    tensor([5., 0., 1.])
    """
    shape = [1] * source.ndim
    if source.ndim:
        shape[dim] = -1
    everywhere = shaping.broadcast_to(shaping.reshape(index, tuple(shape)), source.shape)
    return gathering.scatter(x, everywhere, source, dim)


def index_fill(x: Tensor, dim: int, index: Tensor, value: Operand) -> Tensor:
    """A copy of `x` whose slices at `index` along `dim` are filled with `value`.

    >>> wf.zeros(3).index_fill(0, wf.tensor([1]), 7.0)
    tensor([0., 7., 0.])
    """
    ones = creation.ones(index.shape, dtype=dtypes.int8)
    chosen = gathering.scatter(creation.zeros((x.shape[dim],), dtype=dtypes.int8), index, ones, 0)
    shape = [1] * x.ndim
    shape[dim] = -1
    return gathering.masked_fill(x, shaping.reshape(chosen.astype(dtypes.bool_), tuple(shape)), value)


def index_put(x: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of `x` with `x[indices] = values`, or with `values` added there.

    >>> wf.zeros(3).index_put((wf.tensor([0, 2]),), wf.tensor(1.0))
    tensor([1., 0., 1.])
    """
    key = tuple(indices)
    if not accumulate:
        made = shaping.clone(x)
        subscripts.tensor_setitem(made, key, values)
        return made
    places = shaping.reshape(creation.arange(x.size), x.shape)
    flat = shaping.reshape(subscripts.tensor_getitem(places, key), (-1,))
    shown = subscripts.tensor_getitem(places, key).shape
    given = shaping.reshape(shaping.broadcast_to(values.astype(x.dtype), shown), (-1,))
    return shaping.reshape(gathering.index_add(shaping.reshape(x, (-1,)), flat, given, 0), x.shape)


def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy of `x` with the first elements of `source` where `mask` is True, in row-major order.

    >>> wf.zeros(3).masked_scatter(wf.tensor([True, False, True]), wf.tensor([5.0, 6.0]))
    tensor([5., 0., 6.])
    """
    wide = shaping.reshape(shaping.broadcast_to(mask, x.shape), (-1,))
    order = cumulative.cumsum(wide.astype(dtypes.int64), 0) - 1
    flat = shaping.reshape(source, (-1,))
    order = require(
        order,
        lambda o: o < flat.shape[0],
        f"masked_scatter: the mask has more True elements than source, which has {flat.shape[0]}.",
        lambda o: o[-1] + 1,
    )
    taken = gathering.take(flat, maximum(order, 0), axis=0)
    return shaping.reshape(where(wide, taken.astype(x.dtype), shaping.reshape(x, (-1,))), x.shape)


def select_scatter(x: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of `x` with `src` as slice number `index` along `dim`.

    >>> wf.zeros(2, 2).select_scatter(wf.ones(2), 0, 1).tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """
    made = shaping.clone(x)
    subscripts.tensor_setitem(made, (*[slice(None)] * (dim % x.ndim), index), src)
    return made


def unique(
    x: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
    *,
    return_index: bool = False,
) -> Any:
    """The different elements, in ascending order.

    Args:
        x: any shape.
        sorted: accepted for PyTorch programs; the values are always sorted.
        return_inverse: return the position in the values of every element of `x`, too.
        return_counts: return how often each value occurs, too.
        dim: compare slices along this axis instead of elements.
        return_index: return where each value occurs first, too, as in NumPy.

    >>> wf.unique(wf.tensor([3, 1, 3]), return_counts=True)
    (tensor([1, 3]), tensor([1, 2]))
    """
    if dim is not None:
        array = x._array("unique")
        found = np.unique(array, return_index=True, return_inverse=True, return_counts=True, axis=dim)
        values, index, inverse, counts = [Tensor(np.ascontiguousarray(v)) for v in found]
    else:
        values, index, inverse, counts = sets.unique_all(x)
    results = [values, *([index] if return_index else []), *([inverse] if return_inverse else [])]
    results += [counts] if return_counts else []
    return results[0] if len(results) == 1 else tuple(results)


def unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The first element of every run of equal neighbours.

    Args:
        x: any shape; flattened without `dim`.
        return_inverse: return the number of the run of every element, too.
        return_counts: return the lengths of the runs, too.
        dim: compare slices along this axis.

    >>> wf.unique_consecutive(wf.tensor([1, 1, 2, 1]), return_counts=True)
    (tensor([1, 2, 1]), tensor([2, 1, 1]))
    """
    array = x._array("unique_consecutive")
    rows = array.reshape(-1, 1) if dim is None else np.moveaxis(array, dim, 0).reshape(array.shape[dim], -1)
    begins = np.ones(len(rows), bool)
    begins[1:] = (rows[1:] != rows[:-1]).any(1)
    starts = np.flatnonzero(begins)
    flat = shaping.reshape(x, (-1,)) if dim is None else x
    values = gathering.take(flat, Tensor(starts), axis=0 if dim is None else dim)
    inverse = np.cumsum(begins) - 1
    results = [values]
    if return_inverse:
        results.append(Tensor(inverse.reshape(array.shape) if dim is None else inverse))
    if return_counts:
        results.append(Tensor(np.diff(np.append(starts, len(rows)))))
    return results[0] if len(results) == 1 else tuple(results)


def bucketize(x: Tensor, boundaries: Tensor, *, right: bool = False) -> Tensor:
    """The number of the interval between `boundaries` (ascending) in which each element is.

    Args:
        right: an element that equals a boundary belongs to the interval above it.

    >>> wf.bucketize(wf.tensor([0.5, 2.0]), wf.tensor([1.0, 2.0]))
    tensor([0, 1])
    """
    return searching.searchsorted(boundaries, x, side="right" if right else "left")


def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements are in each of `bins` equal intervals between `min` and `max` (by default those of `x`).

    >>> wf.histc(wf.tensor([1.0, 2.0, 1.0]), bins=4, min=0, max=3)
    tensor([0., 2., 1., 0.])
    """
    if min == max == 0 and x.size == 0:
        low, high = 0.0, 1.0  # an empty histogram, as in PyTorch
    elif min == max == 0:
        low, high = float(reduction.min_(x)), float(reduction.max_(x))
        low, high = (low - 1, high + 1) if low == high else (low, high)
    else:
        low, high = float(min), float(max)
    return statistics.histogram(x, bins, (low, high))[0].astype(x.dtype)


def msort(x: Tensor) -> Tensor:
    """Sort along the first axis.

    >>> wf.msort(wf.tensor([[2, 1], [1, 3]])).tolist()
    [[1, 1], [2, 3]]
    """
    from ..array.sorting import sort

    return sort(x, axis=0)


def _triangle(rows: int, columns: int, offset: int, lower: bool) -> Tensor:
    i, j = np.indices((rows, columns))
    return Tensor(np.stack(np.nonzero(j - i <= offset if lower else j - i >= offset)).astype(np.int64))


def tril_indices(row: int, col: int, offset: int = 0) -> Tensor:
    """The indices of the elements on and below a diagonal of a matrix: rows and columns.

    >>> wf.tril_indices(2, 2).tolist()
    [[0, 1, 1], [0, 0, 1]]
    """
    return _triangle(row, col, offset, True)


def triu_indices(row: int, col: int, offset: int = 0) -> Tensor:
    """The indices of the elements on and above a diagonal of a matrix: rows and columns.

    >>> wf.triu_indices(2, 2).tolist()
    [[0, 0, 1], [0, 1, 1]]
    """
    return _triangle(row, col, offset, False)


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of one element of each vector, a row each.

    >>> wf.cartesian_prod(wf.tensor([1, 2]), wf.tensor([3, 4])).tolist()
    [[1, 3], [1, 4], [2, 3], [2, 4]]
    """
    if any(v.ndim != 1 for v in tensors):
        shapes = ", ".join([format_shape(v.shape) for v in tensors])
        raise ValueError(f"cartesian_prod: expected vectors. Got shapes {shapes}.")
    if len(tensors) == 1:
        return shaping.clone(tensors[0])
    grids = creation.meshgrid(*tensors, indexing="ij")
    return shaping.stack([shaping.reshape(g, (-1,)) for g in grids], axis=1)


def combinations(x: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All ways to choose `r` elements of a vector, a row each.

    >>> wf.combinations(wf.tensor([1, 2, 3])).tolist()
    [[1, 2], [1, 3], [2, 3]]
    """
    import itertools

    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = np.array(list(choose(range(x.shape[0]), r)), np.int64).reshape(-1, r)
    return shaping.reshape(gathering.take(x, Tensor(rows.reshape(-1)), axis=0), rows.shape)
