"""Searching: argmax, argmin, non-zero elements, masked selection, searchsorted, bincount."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ..core.define import composite, constant, primitive
from ..core.registry import NOT_DIFFERENTIABLE
from ..core.samples import Bad, Sample
from ..core.spec import Spec, check_size, normalize_axis, reduced_shape, same_size
from .elementwise import astype, less, less_equal, not_equal
from .gathering import check_indices, take_along_axis, take_axis
from .indexing import advanced_index
from .reduction import reduce_sum
from .shaping import broadcast_arrays, broadcast_to, expand_dims, reshape

# Functions for users that are not ops; ops are public by their records.
__all__ = ["argwhere", "masked_select", "nonzero", "searchsorted"]

ndarray = np.ndarray

# Where the extremes are ------------------------------------------------------------------------------------------------


def _infer_arg(name: str) -> Any:
    def infer(x: Any, axis: Any, keepdims: Any) -> Spec:
        if dtypes.is_complex(x.dtype):
            raise TypeError(f"{name}: complex numbers have no order. Got {x.dtype.name}; use `wf.abs(x)`.")
        if x.shape is None:
            return Spec(None, dtypes.int64)
        axes = tuple(range(x.ndim)) if axis is None else (normalize_axis(name, axis, x.ndim),)
        if any(x.shape[a] == 0 for a in axes):
            raise ValueError(f"{name}: there is no element to point to. Got shape {format_shape(x.shape)}.")
        return Spec(reduced_shape(x.shape, axes, keepdims), dtypes.int64)

    return infer


def _batch_arg(op: Any) -> Any:
    def rule(axes: Any, tensors: Any, attrs: Any) -> Tensor:
        x, (axis, keepdims) = tensors[0], attrs
        if axis is not None:
            return op()(x, axis=normalize_axis("argmax", axis, x.ndim - 1) + 1, keepdims=keepdims)
        out = op()(reshape(x, (x.shape[0], -1)), axis=1)
        return reshape(out, (x.shape[0], *(1,) * (x.ndim - 1))) if keepdims else out

    return rule


_arg_samples = lambda m: [
    Sample(m.distinct(2, 3)),
    Sample(m.distinct(2, 3), axis=0),
    Sample(m.distinct(2, 3), axis=-1, keepdims=True),
    Sample(m.distinct(2, 3), keepdims=True),
    Sample(m.distinct()),
    Sample(np.array([1, 3, 3, 0, 0])),
    Sample(np.array([1.0, np.nan, 3.0, np.nan])),
]


def _arg_errors(name: str) -> Any:
    return lambda m: [
        Bad(ValueError, f"{name}: there is no element", m.normal(0)),
        Bad(IndexError, f"{name}: axis 2", m.normal(2, 3), axis=2),
        Bad(TypeError, f"{name}: axis must be an integer", m.normal(2, 3), axis=(0, 1)),
    ]


@primitive(
    accumulate="exact",
    along=True,
    cost="reduce",
    infer=_infer_arg("argmax"),
    checks_once=True,
    vjp=NOT_DIFFERENTIABLE,
    batch=_batch_arg(lambda: argmax),
    reference=lambda x, axis=None, keepdims=False: np.argmax(x, axis, keepdims=keepdims),
    samples=_arg_samples,
    errors=_arg_errors("argmax"),
)
def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """Index of the maximum along `axis` (of the flattened tensor by default); the first of equal ones.

    >>> wf.argmax(wf.tensor([[1, 5], [7, 3]]), axis=1)
    tensor([1, 0])
    """
    return np.asarray(np.argmax(x, axis, keepdims=keepdims), np.int64)


@primitive(
    accumulate="exact",
    along=True,
    cost="reduce",
    infer=_infer_arg("argmin"),
    checks_once=True,
    vjp=NOT_DIFFERENTIABLE,
    batch=_batch_arg(lambda: argmin),
    reference=lambda x, axis=None, keepdims=False: np.argmin(x, axis, keepdims=keepdims),
    samples=_arg_samples,
    errors=_arg_errors("argmin"),
)
def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """Index of the minimum along `axis` (of the flattened tensor by default); the first of equal ones.

    >>> wf.argmin(wf.tensor([4, 2, 8]))
    tensor(1)
    """
    return np.asarray(np.argmin(x, axis, keepdims=keepdims), np.int64)


# Non-zero elements -----------------------------------------------------------------------------------------------------


@composite(
    reference=lambda x, axis=None, keepdims=False: np.asarray(np.count_nonzero(x, axis=axis, keepdims=keepdims)),
    samples=lambda m: [
        Sample(m.ints(2, 3, low=0, high=2)),
        Sample(m.ints(2, 3, low=0, high=2), axis=1),
        Sample(m.bools(2, 3), axis=(0, 1), keepdims=True),
    ],
    errors=lambda m: [Bad(IndexError, "count_nonzero: axis 2", m.normal(2, 3), axis=2)],
)
def count_nonzero(x: Tensor, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
    """Number of non-zero elements over `axis` (all by default).

    >>> wf.count_nonzero(wf.tensor([0, 7, 8]))
    tensor(2)
    """
    return reduce_sum(astype(not_equal(x, 0), dtypes.int64), tuple(axis) if isinstance(axis, list) else axis, keepdims)


def _infer_nonzero(x: Any) -> Spec:
    if x.shape is not None and len(x.shape) == 0:
        raise ValueError("nonzero: expected a tensor with at least one axis. Got a 0-d tensor; use `x != 0`.")
    return Spec((None if x.shape is None else len(x.shape), None), dtypes.int64)


@primitive(
    accumulate="exact",
    cost="reduce",
    infer=_infer_nonzero,
    title="nonzero",
    namespace="internal",
    vjp=NOT_DIFFERENTIABLE,
    reference=lambda x: np.stack(np.nonzero(x)),
    samples=lambda m: [Sample(m.ints(5, low=0, high=2)), Sample(m.bools(2, 3)), Sample(m.ints(0, 3))],
    errors=lambda m: [Bad(ValueError, "nonzero: expected a tensor with at least one axis", m.normal())],
)
def nonzero_places(x: Tensor) -> Any:
    """Indices of the non-zero elements, one row per axis: the primitive behind `nonzero`."""
    return np.stack(np.nonzero(x)).astype(np.int64, copy=False)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Indices of the non-zero elements, one tensor per axis, in row-major order.

    >>> wf.nonzero(wf.tensor([0, 7, 8]))
    (tensor([1, 2]),)
    """
    places = nonzero_places(x)
    return tuple([places[i] for i in range(x.ndim)])


def argwhere(x: Tensor, /) -> Tensor:
    """Indices of the non-zero elements, one row per element.

    >>> wf.argwhere(wf.eye(2))
    tensor([[0, 0],
            [1, 1]])
    """
    return nonzero_places(x).mT


def masked_select(x: Tensor, mask: Tensor, /) -> Tensor:
    """Elements of `x` where `mask` is true, as a vector in row-major order; the two broadcast.

    >>> x = wf.arange(4)
    >>> wf.masked_select(x, x > 1)
    tensor([2, 3])
    """
    if not dtypes.is_bool(mask.dtype):
        raise TypeError(f"masked_select: mask must be bool. Got {mask.dtype.name}.")
    if x.shape != mask.shape:
        x, mask = broadcast_arrays(x, mask)
    flat = reshape(x, (-1,))
    return advanced_index((flat, nonzero_places(reshape(mask, (-1,)))[0]), ("tensor",))


# Where a value belongs ---------------------------------------------------------------------------------------------------


def _infer_searchsorted(x1: Any, x2: Any, sorter: Any, side: Any) -> Spec:
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: side must be 'left' or 'right'. Got {side!r}.")
    for name, x in (("x1", x1), ("x2", x2)):
        if dtypes.is_complex(x.dtype):
            raise TypeError(f"searchsorted: complex numbers have no order. Got {name} of {x.dtype.name}.")
    if x1.shape is not None and len(x1.shape) != 1:
        raise ValueError(f"searchsorted: x1 must be a vector. Got shape {format_shape(x1.shape)}.")
    if sorter is not None:
        if not dtypes.is_integral(sorter.dtype):
            raise TypeError(f"searchsorted: sorter must hold integers. Got {sorter.dtype.name}.")
        known = x1.shape is not None and sorter.shape is not None
        if known and (len(sorter.shape) != 1 or not same_size(sorter.shape[0], x1.shape[0])):
            raise ValueError(
                f"searchsorted: sorter must have the shape of x1, {format_shape(x1.shape)}. "
                f"Got {format_shape(sorter.shape)}."
            )
        if known:
            check_indices("searchsorted", sorter, x1.shape[0], "sorter")
    return Spec(x2.shape, dtypes.int64)


def _search(x1: Any, x2: Any, sorter: Any, side: str) -> ndarray:
    dtype = dtypes.promote(x1.dtype, x2.dtype)
    if dtype.itemsize == 2 and dtypes.is_floating(dtype):
        dtype = np.dtype(np.float32)
    if sorter is not None:  # NumPy refuses negative ones, which other indices may be
        sorter = np.where(sorter < 0, sorter + len(x1), sorter)
    return np.asarray(np.searchsorted(x1.astype(dtype), x2.astype(dtype), side, sorter), np.int64)  # type: ignore[call-overload]


def _batch_search(axes: Any, tensors: Any, attrs: Any) -> Tensor:
    """Batching rule: a shared sorted vector is searched once for all examples; one per example counts smaller elements."""
    x1, x2, sorter = tensors
    if axes[0] is None and axes[2] is None:
        return search_places(x1, x2, sorter, attrs[0])
    if sorter is not None:
        size = next(t.shape[0] for t, a in zip(tensors, axes, strict=True) if a is not None)
        x1, sorter = (
            t if a is not None else broadcast_to(t, (size, *t.shape)) for t, a in ((x1, axes[0]), (sorter, axes[2]))
        )
        x1 = take_along_axis(x1, sorter, axis=1)
    lead = x2.ndim - (axes[1] is not None)
    rows = reshape(x1, (x1.shape[0], *(1,) * lead, x1.shape[1]))
    values = expand_dims(x2, -1)
    before = less(rows, values) if attrs[0] == "left" else less_equal(rows, values)
    return reduce_sum(astype(before, dtypes.int64), (-1,), False)


@primitive(
    accumulate="exact",
    cost="search",
    infer=_infer_searchsorted,
    title="searchsorted",
    namespace="internal",
    vjp=NOT_DIFFERENTIABLE,
    batch=_batch_search,
    reference=lambda x1, x2, sorter=None, side="left": np.searchsorted(x1, x2, side, sorter),
    samples=lambda m: [
        Sample(np.sort(m.normal(5)), m.normal(2, 3)),
        Sample(np.array([1, 2, 2, 3]), np.array([2, 0, 9]), None, "right"),
        Sample(np.array([3, 1, 2]), np.array(2), np.array([1, 2, 0])),
    ],
    errors=lambda m: [
        Bad(ValueError, "searchsorted: x1 must be a vector", m.normal(2, 2), m.normal(2)),
        Bad(ValueError, "searchsorted: side must be", m.normal(2), m.normal(2), None, "middle"),
        Bad(ValueError, "searchsorted: sorter must have the shape", m.normal(2), m.normal(2), np.array([0])),
    ],
)
def search_places(x1: Tensor, x2: Tensor, sorter: Tensor | None = None, side: str = "left") -> Any:
    """Insertion indices of `x2` in the sorted vector `x1`: the primitive behind `searchsorted`."""
    return _search(x1, x2, sorter, side)


def searchsorted(
    x1: Tensor, x2: Tensor | int | float, /, *, side: str = "left", sorter: Tensor | None = None
) -> Tensor:
    """Indices at which to insert `x2` into the sorted vector `x1` to keep it sorted.

    Args:
        x1: shape (n,), ascending.
        x2: a number or a tensor of any shape.
        side: "left" inserts before equal elements, "right" after them.
        sorter: the indices that sort `x1` if it is not sorted.

    Returns:
        int64 indices in [0, n], shaped like `x2`.

    >>> wf.searchsorted(wf.tensor([1, 3, 5]), wf.tensor([0, 3, 9]))
    tensor([0, 1, 3])
    """
    if isinstance(x2, (bool, int, float)):
        x2 = constant(np.asarray(x2, dtypes.result_type(x1.dtype, x2)))
    return search_places(x1, x2, sorter, side)


# How often a value occurs ------------------------------------------------------------------------------------------------


def _infer_bincount(x: Any, weights: Any, minlength: Any) -> Spec:
    if not dtypes.is_integral(x.dtype):
        raise TypeError(f"bincount: expected non-negative integers. Got {x.dtype.name}.")
    if x.shape is not None and len(x.shape) != 1:
        raise ValueError(f"bincount: x must be a vector. Got shape {format_shape(x.shape)}.")
    least = check_size("bincount", minlength, "minlength")
    if weights is not None and weights.shape != x.shape:
        raise ValueError(
            f"bincount: weights must have the shape of x, {format_shape(x.shape)}. Got {format_shape(weights.shape)}."
        )
    if type(x) is not ndarray:
        return Spec((None,), dtypes.int64 if weights is None else weights.dtype)
    low, high = (int(x.min()), int(x.max())) if x.size else (0, -1)
    if low < 0:
        raise ValueError(f"bincount: expected non-negative integers. Got {low}.")
    return Spec((max(least, high + 1),), dtypes.int64 if weights is None else weights.dtype)


@primitive(
    accumulate="exact",
    cost="reduce",
    infer=_infer_bincount,
    vjp=(None, lambda g, x: take_axis(g, x, 0)),
    reference=lambda x, weights=None, minlength=0: np.bincount(x, weights, minlength),
    samples=lambda m: [
        Sample(np.array([0, 3, 3, 1])),
        Sample(np.array([0, 3, 3, 1]), m.normal(4)),
        Sample(np.array([1, 1]), minlength=5),
        Sample(np.array([], np.int64), minlength=2),
    ],
    errors=lambda m: [
        Bad(ValueError, "bincount: expected non-negative", np.array([-1])),
        Bad(ValueError, "bincount: weights must have the shape", np.array([1]), m.normal(2)),
        Bad(TypeError, "bincount: expected non-negative integers", m.normal(2)),
    ],
    test={"differentiable_inputs": (1,)},
)
def bincount(x: Tensor, /, weights: Tensor | None = None, minlength: int = 0) -> Any:
    """Count the occurrences of 0, 1, 2, … in a vector of integers.

    Args:
        x: non-negative integers, shape (n,).
        weights: shape (n,); summed per value instead of counted.
        minlength: the minimum size of the result.

    >>> wf.bincount(wf.tensor([0, 2, 2]))
    tensor([1, 0, 2])
    """
    length = max(minlength, int(x.max()) + 1 if x.size else 0)
    if weights is None:
        return np.bincount(np.asarray(x).astype(np.int64), minlength=length).astype(np.int64, copy=False)
    out = np.zeros(length, weights.dtype)
    np.add.at(out, np.asarray(x).astype(np.int64), weights)
    return out
