"""The CSR format: a matrix with values sorted by row; row i has the values `indptr[i]` to `indptr[i + 1]`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import format_shape
from ..ops.core.spec import check_shape
from ..tensor import Tensor, wrap
from .base import Sparse, index_tensor, value_tensor
from .coo import COO


class CSR(Sparse):
    """A sparse matrix: `indptr` (rows + 1,) and `indices` (nnz,) int64, `values` (nnz,)."""

    __slots__ = ("indptr", "indices", "_rows")
    layout = "csr"

    indptr: Tensor
    indices: Tensor

    def __init__(self, indptr: Any, indices: Any, values: Any, shape: Any) -> None:
        op = "csr_tensor"
        self.indptr, self.indices = index_tensor(op, "indptr", indptr), index_tensor(op, "indices", indices)
        self.values, self.shape = value_tensor(op, values), check_shape(op, shape)
        self._rows: Tensor | None = None
        if len(self.shape) != 2:
            raise ValueError(f"{op}: expected a matrix. Got shape {format_shape(self.shape)}; use `coo_tensor`.")
        starts, columns = self.indptr._data, self.indices._data
        if starts.shape != (self.shape[0] + 1,):
            raise ValueError(
                f"{op}: indptr has shape {format_shape(starts.shape)}; expected ({self.shape[0] + 1},), rows + 1."
            )
        if columns.shape != (self.nnz,):
            raise ValueError(
                f"{op}: indices have shape {format_shape(columns.shape)}; expected ({self.nnz},), one per value."
            )
        if starts[0] != 0 or starts[-1] != self.nnz or (np.diff(starts) < 0).any():
            raise ValueError(f"{op}: indptr must rise from 0 to {self.nnz}, the number of values.")
        if columns.size and (int(columns.min()) < 0 or int(columns.max()) >= self.shape[1]):
            bad = int(columns.min()) if int(columns.min()) < 0 else int(columns.max())
            raise IndexError(f"{op}: indices hold {bad}; expected 0 to {self.shape[1] - 1}.")

    @classmethod
    def _make(
        cls, indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, ...], rows: Tensor | None = None
    ) -> CSR:
        self = object.__new__(cls)
        self.indptr, self.indices, self.values, self.shape, self._rows = indptr, indices, values, shape, rows
        return self

    def _with(self, values: Tensor) -> CSR:
        return CSR._make(self.indptr, self.indices, values, self.shape, self._rows)

    def _triples(self) -> tuple[Tensor, Tensor]:
        if self._rows is None:
            self._rows = wrap(np.repeat(np.arange(self.shape[0]), np.diff(self.indptr._data)))
        return self._rows, self.indices

    def to_coo(self) -> COO:
        """The same matrix in COO format."""
        rows, columns = self._triples()
        return COO._make(wrap(np.stack([rows._data, columns._data])), self.values, self.shape)

    def to_csr(self) -> CSR:
        return self

    def _gather(self, dense: Tensor) -> Tensor:
        return self.to_coo()._gather(dense)

    def to_dense(self) -> Tensor:
        """An ordinary tensor with the same elements; gradients flow back to `values`."""
        return self.to_coo().to_dense()

    def transpose(self) -> COO:
        """The transpose in COO format, not sorted; `.to_csr()` sorts it."""
        return self.to_coo().transpose()

    def __reduce__(self) -> Any:
        return (CSR, (self.indptr, self.indices, self.values, self.shape))
