"""Gather, sum and scatter of table rows whose indices may repeat, without touching other rows.

A row-sparse gradient may contain a row several times. In a captured program shapes are fixed before indices are known,
so duplicates cannot be removed; instead each position gets the first position with the same row (`row_places`), sums
are accumulated there, and `put_rows` writes that position's result for all duplicates. Where the sum is consumed at
once (`adam_rows`), the positions of a row are traversed in order as a linked list (`row_chain`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ..core.define import primitive
from ..core.registry import NOT_DIFFERENTIABLE
from ..core.samples import Bad, Sample
from ..core.spec import Spec, is_known


def _infer_numbers(index: Any, rows: int) -> Spec:
    if not dtypes.is_integral(index.dtype):
        raise TypeError(f"row_numbers: index must hold integers. Got {index.dtype.name}.")
    return Spec(index.shape, dtypes.int64)


@primitive(
    accumulate="exact",
    namespace="internal",
    cost="each",
    infer=_infer_numbers,
    index_range=lambda index, rows: (0, rows),
    vjp=NOT_DIFFERENTIABLE,
    reference=lambda index, rows: np.clip(np.where(index < 0, index + rows, index), 0, rows - 1).astype(np.int64),
    samples=lambda m: [
        Sample(np.array([0, 2, -1, 2]), 3),
        Sample(np.zeros((0,), np.int64), 3),
        Sample(np.array([1, 0]), 2),
    ],
    errors=lambda m: [Bad(TypeError, "row_numbers: index must hold integers", m.normal(2), 3)],
)
def row_numbers(index: Tensor, rows: int) -> Any:
    """`index`, which a look-up has found valid for `rows` rows, as numbers from 0 to rows - 1.

    What it returns can be trusted: gathers of these rows cannot fail, so a program may write variables before them.
    """
    return np.clip(np.where(index < 0, index + rows, index), 0, max(rows - 1, 0)).astype(np.int64)


def _infer_places(index: Any, rows: int) -> Spec:
    if index.shape is not None and len(index.shape) != 1:
        raise ValueError(f"row_places: index must be a vector. Got shape {format_shape(index.shape)}.")
    return Spec(index.shape, dtypes.int64)


def _first_places(index: Any) -> np.ndarray:
    _, first, inverse = np.unique(index, return_index=True, return_inverse=True)
    return first[inverse.reshape(-1)].astype(np.int64)


@primitive(
    accumulate="exact",
    namespace="internal",
    cost="sort",
    infer=_infer_places,
    index_range=lambda index, rows: (0, index.shape[0]),
    vjp=NOT_DIFFERENTIABLE,
    reference=lambda index, rows: np.array([list(index).index(i) for i in index], np.int64),
    samples=lambda m: [
        Sample(np.array([4, 1, 4, 0, 1, 4]), 5),
        Sample(np.zeros((0,), np.int64), 5),
        Sample(np.array([2]), 3),
    ],  # fmt: skip
    errors=lambda m: [Bad(ValueError, "row_places: index must be a vector", np.zeros((2, 2), np.int64), 3)],
)
def row_places(index: Tensor, rows: int) -> Any:
    """For each position of `index` (values in 0 to rows - 1), the first position with the same value."""
    return _first_places(index)


def _infer_chain(place: Any) -> tuple[Spec, Spec]:
    if place.shape is not None and len(place.shape) != 1:
        raise ValueError(f"row_chain: place must be a vector. Got shape {format_shape(place.shape)}.")
    return Spec(place.shape, dtypes.int64), Spec(place.shape, dtypes.int64)


def _chain(place: Any) -> tuple[np.ndarray, np.ndarray]:
    count = len(place)
    times = np.bincount(place, minlength=count).astype(np.int64)
    following = np.full(count, count, np.int64)
    order = np.argsort(place, kind="stable")
    again = place[order[1:]] == place[order[:-1]]
    following[order[:-1][again]] = order[1:][again]
    return times, following


def _chain_reference(place: Any) -> tuple[np.ndarray, np.ndarray]:
    n = len(place)
    times = [sum(1 for p in place if p == k) for k in range(n)]
    following = [next((j for j in range(k + 1, n) if place[j] == place[k]), n) for k in range(n)]
    return np.array(times, np.int64), np.array(following, np.int64)


@primitive(
    accumulate="exact",
    namespace="internal",
    outputs=2,
    cost="sort",
    infer=_infer_chain,
    vjp=NOT_DIFFERENTIABLE,
    reference=_chain_reference,
    samples=lambda m: [
        Sample(np.array([0, 1, 0, 3, 1, 0])),
        Sample(np.zeros((0,), np.int64)),
        Sample(np.array([0])),
    ],  # fmt: skip
    errors=lambda m: [Bad(ValueError, "row_chain: place must be a vector", np.zeros((2, 2), np.int64))],
)
def row_chain(place: Tensor) -> Any:
    """Of each position, given its first place as `row_places` returns it: how often its row is named (0 unless the position
    is the first), and the next position that names the same row (the number of positions where there is none)."""
    return _chain(place)


def _infer_put(x: Any, index: Any, source: Any, place: Any) -> Spec:
    if is_known(x.shape) and is_known(index.shape) and is_known(source.shape):
        expected = (*index.shape, *x.shape[1:])
        if len(index.shape) != 1 or tuple(source.shape) != expected:
            raise ValueError(
                f"put_rows: expected one row of shape {format_shape(x.shape[1:])} per index. "
                f"Got index {format_shape(index.shape)} and source {format_shape(source.shape)}."
            )
    return Spec(x.shape, x.dtype)


def _put(x: np.ndarray, index: np.ndarray, source: np.ndarray, place: np.ndarray) -> np.ndarray:
    out = np.array(x)
    out[index] = source[place]
    return out


@primitive(
    namespace="internal",
    cost="scatter",
    infer=_infer_put,
    vjp=NOT_DIFFERENTIABLE,
    reference=_put,
    samples=lambda m: [
        Sample(m.normal(5, 3), np.array([4, 0, 4]), m.normal(3, 3), np.array([0, 1, 0])),
        Sample(m.normal(4), np.array([1, 2]), m.normal(2), np.array([0, 1])),
        Sample(m.normal(4, 2, 3), np.zeros((0,), np.int64), m.normal(0, 2, 3), np.zeros((0,), np.int64)),
    ],
    errors=lambda m: [
        Bad(
            ValueError,
            "put_rows: expected one row of shape",
            m.normal(5, 3),
            np.array([0]),
            m.normal(2, 3),
            np.array([0]),
        )
    ],
)
def put_rows(x: Tensor, index: Tensor, source: Tensor, place: Tensor) -> Any:
    """A copy of `x` whose row index[k], for every k, is `source[place[k]]`; `place` as `row_places` returns it."""
    return _put(x, index, source, place)  # type: ignore[arg-type]
