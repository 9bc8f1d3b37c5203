"""Constructors of sparse tensors, and products as functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import describe
from ..ops.array.creation import ones
from ..ops.array.gathering import take_axis
from ..ops.array.shaping import reshape
from ..ops.array.sparse_ops import sampled_matmul as _sampled
from ..ops.core.spec import check_size
from ..tensor import Tensor, wrap
from .base import Sparse
from .coo import COO
from .csr import CSR


def coo_tensor(indices: Any, values: Any, shape: Any = None) -> COO:
    """A sparse tensor from coordinates.

    Args:
        indices: (ndim, nnz) integers, a row per axis. Values at repeated indices are summed.
        values: (nnz,) numbers; gradients flow back to a tensor.
        shape: by default the smallest that holds all indices.

    >>> wf.sparse.coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3)).to_dense().tolist()
    [[0.0, 0.0, 3.0], [4.0, 0.0, 0.0]]
    """
    if shape is None:
        array = indices._array("coo_tensor") if isinstance(indices, Tensor) else np.asarray(indices)
        if array.ndim != 2 or array.shape[1] == 0:
            raise ValueError("coo_tensor: shape is needed unless indices (ndim, nnz) name at least one place.")
        shape = tuple(int(n) + 1 for n in array.max(1))
    return COO(indices, values, shape)


def csr_tensor(indptr: Any, indices: Any, values: Any, shape: Any) -> CSR:
    """A sparse matrix in CSR format: row i has `values[indptr[i]:indptr[i + 1]]` in the columns `indices[…]`.

    Args:
        indptr: (rows + 1,) integers, the start of each row.
        indices: (nnz,) integers, the columns.
        values: (nnz,) numbers.
        shape: (rows, columns).

    >>> wf.sparse.csr_tensor([0, 1, 2], [2, 0], [3.0, 4.0], (2, 3)).to_dense().tolist()
    [[0.0, 0.0, 3.0], [4.0, 0.0, 0.0]]
    """
    return CSR(indptr, indices, values, shape)


def from_dense(x: Any, layout: str = "coo") -> COO | CSR:
    """The nonzero elements of `x` as a "coo" or "csr" tensor; gradients flow back to `x`.

    >>> wf.sparse.from_dense([[0.0, 2.0], [3.0, 0.0]], layout="csr").nnz
    2
    """
    if layout not in ("coo", "csr"):
        raise ValueError(f"from_dense: layout must be 'coo' or 'csr'. Got {layout!r}.")
    dense = x if isinstance(x, Tensor) else Tensor(x)
    array = dense.detach()._array("from_dense (where the zeros are depends on the data)")
    places = np.nonzero(array)
    flat = np.flatnonzero(array.reshape(-1))
    values = take_axis(reshape(dense, (-1,)), wrap(flat.astype(np.int64)), 0)
    indices = np.stack(places).astype(np.int64) if array.ndim else np.zeros((0, len(flat)), np.int64)
    result = COO._make(wrap(indices), values, tuple(array.shape), True)
    return result if layout == "coo" else result.to_csr()


def from_scipy(matrix: Any) -> COO | CSR:
    """Convert a `scipy.sparse` matrix (or any object with its attributes)."""
    if getattr(matrix, "format", "csr" if hasattr(matrix, "indptr") else "coo") == "csr":
        return CSR(matrix.indptr, matrix.indices, np.asarray(matrix.data), matrix.shape)
    if not hasattr(matrix, "row"):
        if not hasattr(matrix, "tocoo"):
            raise TypeError(f"from_scipy: expected a scipy.sparse matrix. Got {type(matrix).__name__}.")
        matrix = matrix.tocoo()
    return COO(np.stack([matrix.row, matrix.col]), np.asarray(matrix.data), matrix.shape)


def eye(n: int, *, dtype: Any = None) -> CSR:
    """The (n, n) identity matrix in CSR format."""
    n = check_size("eye", n, "n")
    return CSR._make(wrap(np.arange(n + 1)), wrap(np.arange(n)), ones(n, dtype=dtype), (n, n))


def matmul(a: Any, b: Any) -> Tensor:
    """`a @ b`, where one operand is a sparse matrix.

    >>> wf.sparse.matmul(wf.sparse.eye(2), wf.tensor([[1.0], [2.0]])).tolist()
    [[1.0], [2.0]]
    """
    if not isinstance(a, Sparse) and not isinstance(b, Sparse):
        raise TypeError(
            f"sparse.matmul: one operand must be sparse. Got {describe(a)} and {describe(b)}; use `wf.matmul`."
        )
    return a @ b if isinstance(a, Sparse) else b.__rmatmul__(a)


def sampled_matmul(pattern: Sparse, a: Tensor, b: Tensor) -> Any:
    """The elements of `a @ b` at the indices of `pattern` only (SDDMM), as a sparse tensor with the same indices.

    Args:
        pattern: (n, m) sparse; its values are ignored.
        a: (n, k) dense.
        b: (k, m) dense.
    """
    pattern._check_matrix("sampled_matmul")
    rows, columns = pattern._triples()
    from ..ops.array.shaping import matrix_transpose

    if a.ndim != 2 or b.ndim != 2 or (a.shape[0], b.shape[1]) != pattern.shape:
        raise ValueError(
            f"sampled_matmul: expected a (n, k) and b (k, m) for a pattern (n, m). Got {describe(a)}, {describe(b)}, "
            f"{pattern.shape}."
        )
    return pattern._with(_sampled(rows, columns, a, matrix_transpose(b)))
