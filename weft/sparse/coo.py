"""The COO format: coordinates and values in any order; repeated coordinates are summed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import format_shape
from ..ops.array.creation import zeros
from ..ops.array.gathering import index_add, take_axis
from ..ops.array.shaping import reshape
from ..ops.core.spec import check_shape
from ..tensor import Tensor, wrap
from .base import Sparse, index_tensor, value_tensor

if TYPE_CHECKING:
    from .csr import CSR


class COO(Sparse):
    """A sparse tensor of any rank: `indices` (ndim, nnz) int64 and `values` (nnz,). Values at repeated indices are summed."""

    __slots__ = ("indices", "is_coalesced")
    layout = "coo"

    indices: Tensor
    is_coalesced: bool
    """whether indices are unique and sorted"""

    def __init__(self, indices: Any, values: Any, shape: Any) -> None:
        op = "coo_tensor"
        self.indices, self.values = index_tensor(op, "indices", indices), value_tensor(op, values)
        self.shape, self.is_coalesced = check_shape(op, shape), False
        expected = (len(self.shape), self.values.shape[0])
        if tuple(self.indices.shape) != expected:
            raise ValueError(
                f"{op}: indices have shape {format_shape(self.indices.shape)}; expected {format_shape(expected)}, a row per "
                "axis and a column per value."
            )
        for axis, (row, size) in enumerate(zip(self.indices._data, self.shape, strict=True)):
            if row.size and (int(row.min()) < 0 or int(row.max()) >= size):
                bad = int(row.min()) if int(row.min()) < 0 else int(row.max())
                raise IndexError(f"{op}: indices of axis {axis} hold {bad}; expected 0 to {size - 1}.")

    @classmethod
    def _make(cls, indices: Tensor, values: Tensor, shape: tuple[int, ...], coalesced: bool = False) -> COO:
        """Construct without validation."""
        self = object.__new__(cls)
        self.indices, self.values, self.shape, self.is_coalesced = indices, values, shape, coalesced
        return self

    def _with(self, values: Tensor) -> COO:
        return COO._make(self.indices, values, self.shape, self.is_coalesced)

    def _flat(self) -> np.ndarray:
        """The indices into the flattened tensor."""
        if not self.nnz:
            return np.zeros(0, np.int64)
        if self.size > np.iinfo(np.int64).max:
            raise ValueError(
                f"sparse: a tensor of shape {format_shape(self.shape)} has more places than 64 bits can count, so it cannot be "
                "coalesced, reshaped or made dense."
            )
        return (
            np.ravel_multi_index(tuple(self.indices._data), self.shape).astype(np.int64)
            if self.ndim
            else np.zeros(self.nnz, np.int64)
        )

    def _triples(self) -> tuple[Tensor, Tensor]:
        return wrap(self.indices._data[0]), wrap(self.indices._data[1])

    def _gather(self, dense: Tensor) -> Tensor:
        return take_axis(reshape(dense, (-1,)), wrap(self._flat()), 0)

    def to_dense(self) -> Tensor:
        """An ordinary tensor with the same elements; gradients flow back to `values`."""
        flat = index_add(zeros((self.size,), dtype=self.dtype), wrap(self._flat()), self.values, 0)
        return reshape(flat, self.shape)

    def coalesce(self) -> COO:
        """The same tensor with unique, sorted indices; values at repeated indices are summed."""
        if self.is_coalesced:
            return self
        places, inverse = np.unique(self._flat(), return_inverse=True)
        values = index_add(zeros((len(places),), dtype=self.dtype), wrap(inverse.reshape(-1)), self.values, 0)
        indices = np.stack(np.unravel_index(places, self.shape)) if self.ndim else np.zeros((0, len(places)))
        return COO._make(wrap(indices.astype(np.int64)), values, self.shape, True)

    def transpose(self) -> COO:
        """The tensor with its axes in reverse order."""
        return COO._make(wrap(np.ascontiguousarray(self.indices._data[::-1])), self.values, self.shape[::-1])

    def to_coo(self) -> COO:
        return self

    def to_csr(self) -> CSR:
        """The same matrix with its entries sorted by row."""
        from .csr import CSR

        self._check_matrix("to_csr")
        merged = self.coalesce()
        rows, columns = merged._triples()
        counts = np.bincount(rows._data, minlength=self.shape[0])
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]).astype(np.int64)
        return CSR._make(wrap(indptr), columns, merged.values, self.shape)

    def __reduce__(self) -> Any:
        return (COO, (self.indices, self.values, self.shape))
