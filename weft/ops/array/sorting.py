"""Sorting along an axis: sort, argsort, topk, kthvalue.

NaN is larger than every number, so it comes last in ascending and first in descending order. Every sort is stable, so
results do not depend on the algorithm.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ..core.define import composite, primitive
from ..core.registry import NOT_DIFFERENTIABLE
from ..core.samples import Bad, Sample
from ..core.spec import Spec, check_size, normalize_axis, rank_of
from .creation import zeros_like_spec
from .gathering import scatter, scatter_add, take_along_axis
from .shaping import reshape, squeeze

# Functions for users that are not ops; ops are public by their records.
__all__ = ["topk"]


def _comparable(x: np.ndarray) -> np.ndarray:
    """Convert `x` to a dtype that NumPy sorts natively: half precision is widened, which keeps order and equality."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 and dtypes.is_floating(x.dtype) else x


def _check(name: str, x: Any, axis: Any) -> None:
    if dtypes.is_complex(x.dtype):
        raise TypeError(f"{name}: complex numbers have no order. Got {x.dtype.name}; sort `wf.abs(x)` or a part.")
    if x.shape is not None:
        normalize_axis(name, axis, x.ndim)


def _infer_sort(name: str, dtype: np.dtype | None) -> Any:
    def infer(x: Any, axis: Any, descending: Any, stable: Any) -> Spec:
        _check(name, x, axis)
        return Spec(x.shape, x.dtype if dtype is None else dtype)

    return infer


def _order(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """The stable sort order along `axis`; descending reverses the order of the reversed array, to keep ties in order."""
    x = _comparable(x)
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    order = np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    return x.shape[axis] - 1 - order


def _sort_cost(x: Any, axis: int, descending: bool, stable: bool) -> int:
    total = 1
    for d in x.shape:
        total *= d
    return total * max(int(x.shape[axis]).bit_length(), 1)


def _samples(m: Any) -> list[Sample]:
    return [
        Sample(m.distinct(5)),
        Sample(m.distinct(3, 4), axis=0),
        Sample(m.distinct(2, 3, 2), axis=-2, descending=True),
        Sample(np.array([2, 1, 2, 0, 1]), descending=True),
        Sample(m.normal(2, 0)),
    ]


def _errors(name: str) -> Any:
    return lambda m: [
        Bad(IndexError, f"{name}: axis 2 is out of range", m.normal(2, 3), axis=2),
        Bad(IndexError, f"{name}: axis 1 is out of range: a 0-d tensor", m.normal(), axis=1),
        Bad(TypeError, f"{name}: complex numbers have no order", np.ones(2, "complex64")),
    ]


@primitive(
    accumulate="exact",
    along=True,
    infer=_infer_sort("argsort", dtypes.int64),
    checks_once=True,
    vjp=NOT_DIFFERENTIABLE,
    batch=lambda axes, tensors, attrs: argsort(
        tensors[0], axis=normalize_axis("argsort", attrs[0], tensors[0].ndim - 1) + 1, descending=attrs[1]
    ),
    cost=_sort_cost,
    reference=lambda x, axis=-1, descending=False, stable=True: _order(x, axis, descending),
    samples=_samples,
    errors=_errors("argsort"),
)
def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """Indices that sort `x` along `axis`; the sort is stable.

    >>> wf.argsort(wf.tensor([3.0, 1.0, 2.0]))
    tensor([1, 2, 0])
    """
    return _order(x, axis, descending)  # type: ignore[arg-type]


def _sort_rule(g: Tensor, x: Tensor, axis: int, descending: bool) -> Tensor:
    order = argsort(x, axis=axis, descending=descending)
    return scatter(zeros_like_spec(Spec(g.shape, g.dtype, g._data)), order, g, axis)


@primitive(
    accumulate="exact",
    along=True,
    infer=_infer_sort("sort", None),
    checks_once=True,
    vjp=_sort_rule,
    batch=lambda axes, tensors, attrs: sort(
        tensors[0], axis=normalize_axis("sort", attrs[0], tensors[0].ndim - 1) + 1, descending=attrs[1]
    ),
    cost=_sort_cost,
    reference=lambda x, axis=-1, descending=False, stable=True: np.take_along_axis(
        x, _order(x, axis, descending), axis
    ),
    samples=_samples,
    errors=_errors("sort"),
)
def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """Sort along `axis`, NaN last.

    Args:
        x: any real shape.
        axis: the axis to sort along.
        descending: sort from large to small, NaN first.
        stable: accepted for compatibility; the order of equal elements is always kept.

    >>> wf.sort(wf.tensor([3.0, 1.0, 2.0]), descending=True)
    tensor([3., 2., 1.])
    """
    # equal values are indistinguishable, so the fastest sort suffices
    out = np.sort(_comparable(x), axis=axis)  # type: ignore[arg-type]
    if descending:
        out = np.flip(out, axis)
    return np.ascontiguousarray(out).astype(x.dtype, copy=False)


# The k largest -------------------------------------------------------------------------------------------------------


class TopK(NamedTuple):
    """Result of `topk`: values and their indices along the axis."""

    values: Tensor
    indices: Tensor


def _infer_topk(x: Any, k: Any, axis: Any, largest: Any, sorted: Any) -> tuple[Spec, Spec]:
    _check("topk", x, axis)
    k = check_size("topk", k, "k")
    if x.shape is None:
        return Spec(None, x.dtype), Spec(None, dtypes.int64)
    axis = normalize_axis("topk", axis, x.ndim)
    if isinstance(x.shape[axis], int) and k > x.shape[axis]:
        raise ValueError(
            f"topk: k must be at most the size of axis {axis}. Got k={k} for shape {format_shape(x.shape)}."
        )
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return Spec(shape, x.dtype), Spec(shape, dtypes.int64)


def _scatter_back(g: Any, like: Any, outs: Any, axis: int) -> Tensor:
    """Gradient of gathering `outs[1]` along `axis`: scatter-add of `g`."""
    return scatter_add(zeros_like_spec(Spec(like.shape, g[0].dtype, like.value)), outs[1], g[0], axis)


def _first_of_equals(keys: np.ndarray, part: np.ndarray, axis: int, largest: bool) -> np.ndarray:
    """The indices `part` of the k best elements, with ties for the last place resolved to the first ones (stable)."""
    k = part.shape[axis]
    chosen = np.take_along_axis(keys, part, axis)
    last = chosen.min(axis=axis, keepdims=True) if largest else chosen.max(axis=axis, keepdims=True)
    as_good = keys >= last if largest else keys <= last
    if np.isnan(last).any():  # NaN compares unequal
        return np.take(_order(keys, axis, largest), range(k), axis=axis)
    if np.count_nonzero(as_good) == part.size:
        return part  # no ties with the last place
    equal = keys == last
    better = as_good & ~equal
    wanted = k - np.count_nonzero(better, axis=axis, keepdims=True)
    taken = np.moveaxis(better | equal & (np.cumsum(equal, axis=axis) <= wanted), axis, -1)
    places = np.nonzero(taken)[-1].reshape(*taken.shape[:-1], k)
    return np.moveaxis(places, -1, axis)


def _topk_array(x: np.ndarray, k: int, axis: int, largest: bool, sorted: bool) -> tuple[np.ndarray, np.ndarray]:
    n = x.shape[axis]
    keys = _comparable(x)
    if k * 8 < n and n > 256:  # partition first; then only k elements need sorting
        part = np.argpartition(keys, min(n - k, n - 1) if largest else max(k - 1, 0), axis=axis)
        part = np.take(part, range(n - k, n) if largest else range(k), axis=axis)
        part = _first_of_equals(keys, part, axis, largest) if k else part
        part = np.sort(part, axis=axis)  # ascending indices keep ties in order
        chosen = np.take_along_axis(keys, part, axis)
        order = np.take_along_axis(part, _order(chosen, axis, largest), axis)
    else:
        order = np.take(_order(keys, axis, largest), range(k), axis=axis)
    return np.take_along_axis(x, order, axis), order


@primitive(
    accumulate="exact",
    along=True,
    name="topk_pair",
    title="topk",
    namespace="internal",
    outputs=2,
    infer=_infer_topk,
    checks_once=True,
    vjp=lambda g, like_x, outs, axis: _scatter_back(g, like_x, outs, axis),
    batch=lambda axes, tensors, attrs: topk_pair(
        tensors[0], attrs[0], normalize_axis("topk", attrs[1], tensors[0].ndim - 1) + 1, *attrs[2:]
    ),
    cost=lambda x, k, axis, largest, sorted: _sort_cost(x, axis, largest, True),
    reference=lambda x, k, axis=-1, largest=True, sorted=True: _topk_array(x, k, axis, largest, sorted),
    samples=lambda m: [
        Sample(m.distinct(6), 3),
        Sample(m.distinct(4, 3), 2, axis=0, largest=False),
        Sample(m.distinct(2, 300), 4),
        Sample(m.distinct(2, 300), 4, largest=False),
        Sample(m.distinct(3), 0),
    ],
    errors=lambda m: [
        Bad(ValueError, "topk: k must be at most the size of axis 0", m.normal(3), 4),
        Bad(ValueError, "topk: k must be at least 0", m.normal(3), -1),
        Bad(TypeError, "topk: k must be an integer", m.normal(3), 1.5),
    ],
)
def topk_pair(x: Tensor, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The `k` largest (or smallest) elements and their indices: the primitive behind `topk`."""
    return _topk_array(x, k, axis, largest, sorted)  # type: ignore[arg-type]


def topk(x: Tensor, /, k: int, axis: int = -1, *, largest: bool = True, sorted: bool = True) -> TopK:
    """The `k` largest elements along `axis` and their indices.

    Args:
        x: any shape.
        k: the number of elements, at most the size of `axis`.
        axis: the axis to search.
        largest: False for the `k` smallest elements.
        sorted: accepted for compatibility; results are always sorted.

    Returns:
        A named tuple (values, indices).

    >>> values, indices = wf.topk(wf.tensor([1.0, 5.0, 3.0]), 2)
    >>> values, indices
    (tensor([5., 3.]), tensor([1, 2]))
    """
    return TopK(*topk_pair(x, k, axis, largest, sorted))


class KthValue(NamedTuple):
    """Result of `kthvalue`: values and their indices along the axis."""

    values: Tensor
    indices: Tensor


def _kth_reference(x: np.ndarray, k: int, axis: int = -1, keepdims: bool = False) -> tuple[np.ndarray, np.ndarray]:
    order = np.take(np.argsort(x, axis, kind="stable"), [k - 1], axis)
    values = np.take_along_axis(x, order, axis)
    return (values, order) if keepdims else (np.squeeze(values, axis), np.squeeze(order, axis))


@composite(
    reference=_kth_reference,
    samples=lambda m: [
        Sample(m.distinct(5), 2),
        Sample(m.distinct(3, 4), 3, axis=0),
        Sample(m.distinct(3, 4), 1, keepdims=True),
    ],
    errors=lambda m: [Bad(ValueError, "kthvalue: k must be 1 to 3", m.normal(3), 4)],
)
def kthvalue(x: Tensor, /, k: int, axis: int = -1, *, keepdims: bool = False) -> KthValue:
    """The `k`-th smallest element along `axis` (counting from 1) and its index.

    >>> wf.kthvalue(wf.tensor([3.0, 1.0, 2.0]), 2).values
    tensor(2.)
    """
    axis = normalize_axis("kthvalue", axis, rank_of(x))
    if x.ndim == 0:
        values, order = kthvalue(reshape(x, (1,)), k, axis)
        return KthValue(reshape(values, ()), reshape(order, ()))
    k = check_size("kthvalue", k, "k", 1)
    size = x.shape[axis]
    if isinstance(size, int) and k > size:
        raise ValueError(f"kthvalue: k must be 1 to {size}, the size of axis {axis}. Got {k}.")
    from .indexing import slice_axis

    order = slice_axis(argsort(x, axis=axis), axis, k - 1, k)
    values = take_along_axis(x, order, axis=axis)
    return KthValue(values, order) if keepdims else KthValue(squeeze(values, axis), squeeze(order, axis))
