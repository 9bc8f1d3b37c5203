"""Gather and scatter along one axis (take, gather, scatter, index_add), and index checks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ...typing import Operand
from ..core import vmap_rules
from ..core.define import composite, primitive
from ..core.registry import NOT_DIFFERENTIABLE
from ..core.samples import Bad, Sample
from ..core.spec import (
    Spec,
    broadcast_shapes,
    is_known,
    normalize_axis,
    num_elements,
    rank_of,
    require_sizes,
    same_size,
)
from .indexing import slice_axis
from .row_sparse import RowSparse

# Functions for users that are not ops; ops are public by their records.
__all__ = ["take"]

ndarray = np.ndarray


def check_indices(op: str, indices: Any, size: Any, name: str = "indices") -> None:
    """Raise IndexError if an index array (not a graph value) is out of bounds for an axis of `size`."""
    if size == 0 and (num_elements(indices.shape) or 0) > 0:  # out of bounds for any value, also in graphs
        raise IndexError(f"{op}: {name} points into an axis of size 0.")
    if type(indices) is not ndarray or not isinstance(size, int) or indices.size == 0:
        return
    low, high = int(indices.min()), int(indices.max())
    if low < -size or high >= size:
        bad = low if low < -size else high
        raise IndexError(f"{op}: {name} holds {bad}, which is out of range for an axis of size {size}.")


def _infer_take(x: Any, indices: Any, axis: Any) -> Spec:
    if not dtypes.is_integral(indices.dtype):
        raise TypeError(f"take: indices must be integers. Got {indices.dtype.name}.")
    if x.shape is None or indices.shape is None:
        return Spec(None, x.dtype)
    if x.ndim == 0:
        raise ValueError("take: a 0-d tensor has no axis to take from.")
    axis = normalize_axis("take", axis, x.ndim)
    check_indices("take", indices, x.shape[axis])
    return Spec((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)


def _take_rule(g: Tensor, like_x: Any, indices: Tensor, axis: int) -> Any:
    axis = axis % len(like_x.shape)
    if axis == 0 and is_known(like_x.shape):
        return RowSparse.from_gather(indices, g, tuple(like_x.shape))
    from .creation import zeros_like_spec
    from .shaping import expand_dims, flatten, moveaxis, reshape

    n = indices.ndim
    base = zeros_like_spec(Spec(like_x.shape, g.dtype, like_x.value))
    moved = moveaxis(g, tuple(range(axis, axis + n)), tuple(range(n))) if n else g
    rows = flatten(moved, 0, n - 1) if n else expand_dims(moved, 0)
    flat = reshape(indices, (-1,))
    return index_add(base, flat, moveaxis(rows, 0, axis), axis)


@primitive(
    accumulate="exact",
    namespace="internal",
    title="take",
    name="take_axis",
    cost="gather",
    gather="axis",
    infer=_infer_take,
    vjp=(_take_rule, None),
    batch=vmap_rules.take_axis,
    reference=lambda x, indices, axis=0: np.take(x, indices, axis),
    samples=lambda m: [
        Sample(m.normal(4, 3), np.array([0, 3, 0]), 0),
        Sample(m.normal(2, 5), np.array([[4, -1], [0, 4]]), 1),
        Sample(m.normal(5), np.array(2), 0),
    ],
    errors=lambda m: [
        Bad(IndexError, "take: indices holds 7", m.normal(4, 3), np.array([7]), 0),
        Bad(TypeError, "take: indices must be integers", m.normal(4, 3), np.array([0.5]), 0),
    ],
)
def take_axis(x: Tensor, indices: Tensor, axis: int = 0) -> Any:
    """The slices of `x` along `axis` at `indices` (of any shape): the primitive behind `take` and `embedding`."""
    return np.take(x, indices, axis)


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Take the slices of `x` along `axis` at `indices`.

    Args:
        x: any shape.
        indices: integers of any shape, whose axes replace `axis` in the result.
        axis: may be left out for a vector.

    >>> wf.take(wf.tensor([10, 20, 30]), wf.tensor([2, 0]))
    tensor([30, 10])
    """
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"take: axis is needed for a tensor with {x.ndim} axes.")
        axis = 0
    return take_axis(x, indices, axis)


def _infer_along(x: Any, indices: Any, axis: Any) -> Spec:
    if not dtypes.is_integral(indices.dtype):
        raise TypeError(f"take_along_axis: indices must be integers. Got {indices.dtype.name}.")
    if x.shape is None or indices.shape is None:
        return Spec(None, x.dtype)
    if x.ndim != indices.ndim:
        raise ValueError(
            f"take_along_axis: x and indices must have as many axes. Got {format_shape(x.shape)} and "
            f"{format_shape(indices.shape)}."
        )
    axis = normalize_axis("take_along_axis", axis, x.ndim)
    rest_x = tuple([d for i, d in enumerate(x.shape) if i != axis])
    rest_i = tuple([d for i, d in enumerate(indices.shape) if i != axis])
    rest = list(broadcast_shapes("take_along_axis", rest_x, rest_i))
    check_indices("take_along_axis", indices, x.shape[axis])
    rest.insert(axis, indices.shape[axis])
    return Spec(tuple(rest), x.dtype)


def _along_rule(g: Tensor, like_x: Any, indices: Tensor, axis: int) -> Tensor:
    from .creation import zeros_like_spec
    from .shaping import broadcast_to, sum_to_like

    full = list(g.shape)
    full[axis % g.ndim] = like_x.shape[axis % g.ndim]
    base = zeros_like_spec(Spec(tuple(full), g.dtype))
    scattered = scatter_add(base, broadcast_to(indices, tuple(g.shape)), g, axis=axis)
    return sum_to_like(scattered, like_x)


@primitive(
    accumulate="exact",
    along=True,
    cost="gather",
    gather="along",
    infer=_infer_along,
    vjp=(_along_rule, None),
    batch=vmap_rules.take_along_axis,
    reference=lambda x, indices, axis=-1: np.take_along_axis(x, indices, axis),
    samples=lambda m: [
        Sample(m.normal(2, 4), m.ints(2, 3, low=0, high=4)),
        Sample(m.normal(4, 2), m.ints(3, 2, low=-4, high=4), axis=0),
    ],
    errors=lambda m: [Bad(IndexError, "take_along_axis: indices holds 9", m.normal(2, 3), np.array([[9], [0]]))],
)
def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Any:
    """Gather one element per index: `out[i, j] = x[i, indices[i, j]]` along the last axis, likewise for others.

    >>> wf.take_along_axis(wf.tensor([[1, 2], [3, 4]]), wf.tensor([[1], [0]]))
    tensor([[2],
            [3]])
    """
    return np.take_along_axis(x, indices, axis)  # type: ignore[arg-type]


@composite(
    reference=lambda x, axis, index: np.take_along_axis(
        x[tuple(slice(0, n) if i != axis % x.ndim else slice(None) for i, n in enumerate(index.shape))], index, axis
    ),
    samples=lambda m: [
        Sample(m.normal(3, 4), 1, m.ints(3, 2, low=0, high=4)),
        Sample(m.normal(3, 4), 0, m.ints(2, 3, low=0, high=3)),
    ],
)
def gather(x: Tensor, axis: int, index: Tensor) -> Tensor:
    """Gather elements along `axis`: `out[i][j] = x[index[i][j]][j]` for axis 0, as in PyTorch.

    Args:
        x: any shape.
        axis: the axis to index.
        index: integers, with as many axes as `x`; other axes may be smaller than those of `x`.

    >>> wf.gather(wf.tensor([[1, 2], [3, 4]]), 1, wf.tensor([[1], [0]]))
    tensor([[2],
            [3]])
    """
    require_sizes("gather", x, index)
    axis = normalize_axis("gather", axis, rank_of(x))
    if index.ndim != x.ndim:
        raise ValueError(f"gather: index must have {x.ndim} axes like x. Got shape {format_shape(index.shape)}.")
    for i in range(x.ndim):
        if i != axis and index.shape[i] != x.shape[i]:
            if index.shape[i] > x.shape[i]:
                raise ValueError(f"gather: index is longer than x along axis {i}. Got {index.shape} for {x.shape}.")
            x = slice_axis(x, i, 0, index.shape[i])
    return take_along_axis(x, index, axis=axis)


def _infer_scatter(x: Any, index: Any, src: Any, axis: Any, name: str = "scatter") -> Spec:
    if not dtypes.is_integral(index.dtype):
        raise TypeError(f"{name}: index must hold integers. Got {index.dtype.name}.")
    if x.shape is not None and index.shape is not None and src.shape is not None:
        axis = normalize_axis(name, axis, x.ndim)
        if not len(x.shape) == len(index.shape) == len(src.shape) or any(
            not same_size(a, b) for a, b in zip(index.shape, src.shape, strict=True)
        ):
            raise ValueError(
                f"{name}: index and src must have one shape and as many axes as x. Got x {format_shape(x.shape)}, "
                f"index {format_shape(index.shape)}, src {format_shape(src.shape)}."
            )
        for i, (a, b) in enumerate(zip(index.shape, x.shape, strict=True)):
            if i != axis and isinstance(a, int) and isinstance(b, int) and a > b:
                raise ValueError(f"{name}: index is longer than x along axis {i}. Got {index.shape} for {x.shape}.")
        check_indices(name, index, x.shape[axis], "index")
    return Spec(x.shape, x.dtype)


def _along_index(index: ndarray, axis: int) -> tuple[Any, ...]:
    grid = list(np.ogrid[tuple([slice(n) for n in index.shape])])
    grid[axis % index.ndim] = index
    return tuple(grid)


def _scatter(x: ndarray, index: ndarray, src: ndarray, axis: int, accumulate: bool) -> ndarray:
    out = x.copy()
    src = dtypes.convert(src, x.dtype) if src.dtype != x.dtype else src
    if accumulate:
        np.add.at(out, _along_index(index, axis), src)
    else:
        out[_along_index(index, axis)] = src
    return out


_scatter_samples = lambda m: [
    Sample(m.normal(3, 4), np.array([[0, 2, 1], [3, 1, 0]]), m.normal(2, 3), axis=1),
    Sample(m.normal(3, 4), np.array([[0, 2, 1, 0]]), m.normal(1, 4), axis=0),
]


@primitive(
    along=True,
    cost="scatter",
    scatter="along",
    infer=lambda x, index, src, axis: _infer_scatter(x, index, src, axis, "scatter_add"),
    promote=None,
    vjp=(lambda g: g, None, lambda g, index, axis: gather(g, axis, index)),
    batch=vmap_rules.scatter_add,
    reference=lambda x, index, src, axis=0: _scatter(x, index, src, axis, True),
    samples=_scatter_samples,
    errors=lambda m: [Bad(IndexError, "scatter_add: index holds 5", m.normal(3), np.array([5]), m.normal(1))],
)
def scatter_add(x: Tensor, index: Tensor, src: Tensor, axis: int = 0) -> Any:
    """Copy `x` and add `src` at `index` along `axis`; duplicate indices accumulate.

    >>> wf.scatter_add(wf.zeros(3), wf.tensor([0, 0, 2]), wf.ones(3))
    tensor([2., 0., 1.])
    """
    return _scatter(x, index, src, axis, True)  # type: ignore[arg-type]


@primitive(
    accumulate="exact",
    along=True,
    cost="scatter",
    scatter="along",
    infer=_infer_scatter,
    vjp=(
        lambda g, index, axis: scatter(g, index, _zeros_of(g, index), axis),
        None,
        lambda g, index, axis: gather(g, axis, index),
    ),
    batch=vmap_rules.scatter,
    reference=lambda x, index, src, axis=0: _scatter(x, index, src, axis, False),
    samples=_scatter_samples,
)
def scatter(x: Tensor, index: Tensor, src: Tensor, axis: int = 0) -> Any:
    """Copy `x` and replace the elements at `index` along `axis` by `src`; of duplicate indices one wins.

    >>> wf.scatter(wf.zeros(3), wf.tensor([2]), wf.tensor([5.0]))
    tensor([0., 0., 5.])
    """
    return _scatter(x, index, src, axis, False)  # type: ignore[arg-type]


def _zeros_of(g: Tensor, index: Tensor) -> Tensor:
    from .creation import zeros

    return zeros(tuple(index.shape), dtype=g.dtype)


def _infer_index_add(x: Any, index: Any, source: Any, axis: Any) -> Spec:
    if not dtypes.is_integral(index.dtype):
        raise TypeError(f"index_add: index must hold integers. Got {index.dtype.name}.")
    axis = normalize_axis("index_add", axis, x.ndim)
    if x.shape is not None and source.shape is not None and index.shape is not None:
        expected = (*x.shape[:axis], index.shape[0] if len(index.shape) == 1 else None, *x.shape[axis + 1 :])
        if (
            len(index.shape) != 1
            or len(source.shape) != len(expected)
            or any(not same_size(a, b) for a, b in zip(source.shape, expected, strict=True))
        ):
            raise ValueError(
                f"index_add: source must have shape {format_shape(expected)} for x {format_shape(x.shape)} and index "
                f"{format_shape(index.shape)}. Got {format_shape(source.shape)}."
            )
        check_indices("index_add", index, x.shape[axis], "index")
    return Spec(x.shape, x.dtype)


def _index_add_array(x: ndarray, index: ndarray, source: ndarray, axis: int) -> ndarray:
    out = np.array(x)
    axis = axis % x.ndim
    view = np.moveaxis(out, axis, 0)
    np.add.at(
        view, index, np.moveaxis(dtypes.convert(source, out.dtype) if source.dtype != out.dtype else source, axis, 0)
    )
    return out


@primitive(
    along=True,
    cost="scatter",
    scatter="axis",
    infer=_infer_index_add,
    vjp=(lambda g: g, None, lambda g, index, axis: take_axis(g, index, axis)),
    batch=vmap_rules.index_add,
    reference=lambda x, index, source, axis=0: _index_add_array(x, index, source, axis),
    samples=lambda m: [
        Sample(m.normal(4, 3), np.array([0, 2, 0]), m.normal(3, 3), 0),
        Sample(m.normal(2, 3), np.array([2, 2]), m.normal(2, 2), 1),
    ],
    errors=lambda m: [
        Bad(ValueError, "index_add: source must have shape", m.normal(4, 3), np.array([0]), m.normal(2, 3), 0)
    ],
)
def index_add(x: Tensor, index: Tensor, source: Tensor, axis: int = 0) -> Any:
    """Copy `x` and add the slices of `source` to the slices of `x` at `index` along `axis`.

    >>> wf.index_add(wf.zeros(3, 2), wf.tensor([0, 2]), wf.ones(2, 2))
    tensor([[1., 1.],
            [0., 0.],
            [1., 1.]])
    """
    return _index_add_array(x, index, source, axis)  # type: ignore[arg-type]


@composite(
    reference=lambda x, mask, value: np.where(mask, value, x),
    samples=lambda m: [Sample(m.normal(2, 3), m.bools(2, 3), 0.5), Sample(m.normal(2, 3), m.bools(3), -1.0)],
)
def masked_fill(x: Tensor, mask: Tensor, value: Operand) -> Tensor:
    """Replace the elements of `x` where `mask` is true by `value`; 0 and 1 stand for False and True in a bool tensor.

    >>> wf.masked_fill(wf.zeros(3), wf.tensor([True, False, True]), -1.0)
    tensor([-1.,  0., -1.])
    """
    from .elementwise import where

    if dtypes.is_bool(x.dtype) and value.__class__ in (int, float) and value in (0, 1):
        value = bool(value)
    return where(mask, value, x)


def _infer_checked(x: Any, low: int, high: int, ignored: int | None, name: str) -> Spec:
    if not dtypes.is_integral(x.dtype):
        raise TypeError(f"{name}: expected integers. Got {x.dtype.name}.")
    return Spec(x.shape, x.dtype)


@primitive(
    accumulate="exact",
    cost="each",
    infer=_infer_checked,
    identity="always",
    index_range=lambda x, low, high, ignored, name: (low, high) if ignored is None else None,
    vjp=NOT_DIFFERENTIABLE,
    namespace="internal",
    batch="elementwise",
    effects=("check",),
    reference=lambda x, low, high, ignored, name: x,
    samples=lambda m: [
        Sample(np.array([0, 2, 1]), 0, 3, None, "class"),
        Sample(np.array([0, -100]), 0, 3, -100, "class"),
    ],
    errors=lambda m: [
        Bad(IndexError, "class 3 is out of range: expected 0 to 2", np.array([0, 3]), 0, 3, None, "class")
    ],
)
def checked_indices(x: Tensor, low: int, high: int, ignored: int | None, name: str) -> Any:
    """`x` unchanged, after checking that every element is in [low, high) or equals `ignored`."""
    bad = (x < low) | (x >= high)
    if ignored is not None:
        bad &= x != ignored
    if np.any(bad):
        raise IndexError(f"{name} {x[bad][0]} is out of range: expected {low} to {high - 1}.")
    return x
