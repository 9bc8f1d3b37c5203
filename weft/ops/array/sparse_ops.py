"""Products with sparse matrices in coordinate form (row, column, value); the two ops are each other's gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ..core.define import primitive
from ..core.samples import Bad, Sample
from ..core.spec import Spec, check_size, same_size
from ..nn.formulas import batched
from .creation import arange
from .gathering import check_indices
from .shaping import reshape

_BLOCK = 1 << 20  # products per block, to bound the temporary


def _check_triples(op: str, rows: Any, columns: Any, count: Any) -> None:
    for name, index in (("rows", rows), ("columns", columns)):
        if not dtypes.is_integral(index.dtype):
            raise TypeError(f"{op}: {name} must be integers. Got {index.dtype.name}.")
        if index.shape is not None and (
            len(index.shape) != 1 or count is not None and not same_size(index.shape[0], count)
        ):
            raise ValueError(
                f"{op}: {name} has shape {format_shape(index.shape)}; expected one number per value, ({count},)."
            )


def _infer_sparse_matmul(rows: Any, columns: Any, values: Any, dense: Any, size: int) -> Spec:
    op = "sparse_matmul"
    check_size(op, size, "size")
    dtype = dtypes.promote(values.dtype, dense.dtype)
    if values.shape is None or dense.shape is None:
        return Spec(None, dtype)
    if len(values.shape) != 1 or len(dense.shape) != 2:
        raise ValueError(
            f"{op}: expected values (n,) and dense (columns, k). Got {format_shape(values.shape)} and "
            f"{format_shape(dense.shape)}."
        )
    _check_triples(op, rows, columns, values.shape[0])
    check_indices(op, rows, size, "rows")
    check_indices(op, columns, dense.shape[0], "columns")
    return Spec((size, dense.shape[1]), dtype)


def _segment_sum(
    order: np.ndarray | None, segments: np.ndarray, count: int, product: Any, width: int, dtype: Any
) -> np.ndarray:
    """Σ of `product(start, stop)` (rows of `width`) per segment; `segments` must be ascending in the order `order`."""
    out = np.zeros((count, width), dtype)
    step = max(1, _BLOCK // max(width, 1))
    for start in range(0, len(segments), step):
        part = segments[start : start + step]
        places = slice(start, start + step) if order is None else order[start : start + step]
        firsts = np.flatnonzero(np.r_[True, part[1:] != part[:-1]])
        out[part[firsts]] += np.add.reduceat(product(places), firsts, axis=0)
    return out


def _diagonal(rows: Any, columns: Any, height: int, width: int) -> tuple[Any, Any]:
    """Index vectors (batch, n) as those of one block-diagonal matrix."""
    steps = reshape(arange(rows.shape[0]), (-1, 1))
    return reshape(rows + steps * height, (-1,)), reshape(columns + steps * width, (-1,))


def _batch_sparse_matmul(axes: Any, tensors: Any, attrs: Any) -> Tensor:
    rows, columns, values, dense = batched(tensors, axes)
    batch, width, k = dense.shape
    places = _diagonal(rows, columns, attrs[0], width)
    out = sparse_matmul(*places, reshape(values, (-1,)), reshape(dense, (batch * width, k)), batch * attrs[0])
    return reshape(out, (batch, attrs[0], k))


def _batch_sampled(axes: Any, tensors: Any, attrs: Any) -> Tensor:
    rows, columns, x1, x2 = batched(tensors, axes)
    places = _diagonal(rows, columns, x1.shape[1], x2.shape[1])
    flat = [reshape(x, (x.shape[0] * x.shape[1], x.shape[2])) for x in (x1, x2)]
    return reshape(sampled_matmul(*places, *flat), tuple(rows.shape))


@primitive(
    autocast="low",
    namespace="internal",
    infer=_infer_sparse_matmul,
    vjp=(
        None,
        None,
        lambda g, rows, columns, dense: sampled_matmul(rows, columns, g, dense),
        lambda g, rows, columns, values, like_dense: sparse_matmul(columns, rows, values, g, like_dense.shape[0]),
    ),
    batch=_batch_sparse_matmul,
    cost=lambda rows, columns, values, dense, size: 2 * (values.shape[0] or 0) * (dense.shape[1] or 0),
    reference=lambda rows, columns, values, dense, size: _reference_matmul(rows, columns, values, dense, size),
    samples=lambda m: [
        Sample(np.array([0, 2, 2, 0]), np.array([1, 0, 2, 1]), m.normal(4), m.normal(3, 2), 4),
        Sample(np.array([2, 0, 1]), np.array([1, 1, 0]), m.normal(3), m.normal(2, 1), 3),
        Sample(np.zeros(0, np.int64), np.zeros(0, np.int64), m.normal(0), m.normal(2, 3), 2),
    ],
    errors=lambda m: [
        Bad(IndexError, "sparse_matmul: rows holds 4", np.array([4]), np.array([0]), m.normal(1), m.normal(3, 2), 4),
        Bad(IndexError, "sparse_matmul: columns holds 3", np.array([0]), np.array([3]), m.normal(1), m.normal(3, 2), 4),
        Bad(
            ValueError, "sparse_matmul: rows has shape", np.array([0, 1]), np.array([0]), m.normal(1), m.normal(3, 2), 4
        ),
        Bad(
            TypeError,
            "sparse_matmul: rows must be integers",
            m.normal(1),
            np.array([0]),
            m.normal(1),
            m.normal(3, 2),
            4,
        ),
    ],
)
def sparse_matmul(rows: Tensor, columns: Tensor, values: Tensor, dense: Tensor, size: int) -> Any:
    """The product of the (size, columns) matrix with these entries and `dense` (columns, k)."""
    dtype = dtypes.promote(values.dtype, dense.dtype)
    segments, order = np.asarray(rows), None
    if segments.size and (segments[1:] < segments[:-1]).any():
        order = np.argsort(segments, kind="stable")
        segments = segments[order]
    v, d = np.asarray(values, dtype), np.asarray(dense, dtype)

    def product(places: Any) -> np.ndarray:
        return v[places, None] * d[columns[places]]

    return _segment_sum(order, segments, size, product, d.shape[1], dtype)


def _reference_matmul(rows: Any, columns: Any, values: Any, dense: Any, size: int) -> Any:
    matrix = np.zeros((size, dense.shape[0]))
    np.add.at(matrix, (rows, columns), values)
    return matrix @ dense


def _infer_sampled(rows: Any, columns: Any, x1: Any, x2: Any) -> Spec:
    op = "sampled_matmul"
    dtype = dtypes.promote(x1.dtype, x2.dtype)
    _check_triples(op, rows, columns, None if rows.shape is None else rows.shape[0])
    if x1.shape is not None and x2.shape is not None:
        if len(x1.shape) != 2 or len(x2.shape) != 2 or not same_size(x1.shape[1], x2.shape[1]):
            raise ValueError(
                f"{op}: expected x1 (rows, k) and x2 (columns, k). Got {format_shape(x1.shape)} and {format_shape(x2.shape)}."
            )
        check_indices(op, rows, x1.shape[0], "rows")
        check_indices(op, columns, x2.shape[0], "columns")
    return Spec(rows.shape, dtype)


@primitive(
    autocast="low",
    namespace="internal",
    infer=_infer_sampled,
    vjp=(
        None,
        None,
        lambda g, rows, columns, like_x1, x2: sparse_matmul(rows, columns, g, x2, like_x1.shape[0]),
        lambda g, rows, columns, x1, like_x2: sparse_matmul(columns, rows, g, x1, like_x2.shape[0]),
    ),
    batch=_batch_sampled,
    cost=lambda rows, columns, x1, x2: 2 * (rows.shape[0] or 0) * (x1.shape[1] or 0),
    reference=lambda rows, columns, x1, x2: (x1[rows] * x2[columns]).sum(-1),
    samples=lambda m: [Sample(np.array([0, 2, 2]), np.array([1, 0, 1]), m.normal(3, 4), m.normal(2, 4))],
    errors=lambda m: [
        Bad(ValueError, "sampled_matmul: expected x1", np.array([0]), np.array([0]), m.normal(3, 4), m.normal(2, 3)),
        Bad(IndexError, "sampled_matmul: rows holds 3", np.array([3]), np.array([0]), m.normal(3, 4), m.normal(2, 4)),
    ],
)
def sampled_matmul(rows: Tensor, columns: Tensor, x1: Tensor, x2: Tensor) -> Any:
    """Entries of x1 x2ᵀ at the given coordinates: out[n] = x1[rows[n]] · x2[columns[n]]."""
    dtype = dtypes.promote(x1.dtype, x2.dtype)
    a, b = np.asarray(x1, dtype), np.asarray(x2, dtype)
    out = np.empty(rows.shape, dtype)
    step = max(1, _BLOCK // max(a.shape[1], 1))
    for start in range(0, len(out), step):
        part = slice(start, start + step)
        out[part] = np.einsum("nk,nk->n", a[rows[part]], b[columns[part]])
    return out.astype(dtype, copy=False)
