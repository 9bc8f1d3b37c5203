"""Sparse tensors in the COO and CSR formats.

`COO` stores the coordinates of each nonzero, in any order; `CSR` is a matrix whose nonzeros are sorted by row. Both store
the nonzeros as an ordinary tensor, `values`, through which gradients flow; the indices are constants. A product with a
dense matrix and its gradients compute on the nonzeros only. (Row-sparse gradients of embedding tables are
`wf.RowSparse`.)

>>> a = wf.sparse.coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3))
>>> (a @ wf.ones(3, 1)).tolist()
[[3.0], [9.0]]
"""

from __future__ import annotations

from .base import Sparse as Sparse
from .construct import coo_tensor as coo_tensor
from .construct import csr_tensor as csr_tensor
from .construct import eye as eye
from .construct import from_dense as from_dense
from .construct import from_scipy as from_scipy
from .construct import matmul as matmul
from .construct import sampled_matmul as sampled_matmul
from .coo import COO as COO
from .csr import CSR as CSR
from .torch_style import SparseTensor as SparseTensor
from .torch_style import addmm as addmm
from .torch_style import mm as mm
from .torch_style import sparse_coo_tensor as sparse_coo_tensor
from .torch_style import sparse_csr_tensor as sparse_csr_tensor
from .torch_style import sum as sum

__all__ = [
    "COO",
    "CSR",
    "Sparse",
    "SparseTensor",
    "addmm",
    "coo_tensor",
    "csr_tensor",
    "eye",
    "from_dense",
    "from_scipy",
    "matmul",
    "mm",
    "sampled_matmul",
    "sparse_coo_tensor",
    "sparse_csr_tensor",
    "sum",
]
