"""Sparse tensors: few entries, named by their places.

`COO` keeps one column of indices per entry, in any order; `CSR` is a matrix whose entries are sorted by row. Both hold
their entries as an ordinary tensor, `values`, through which gradients flow; the places are constants. A product with a
dense matrix touches the entries only, and so do its gradients. (Gradients that touch few rows of a table are another
thing, `wf.RowSparse`.)

>>> import weft as wf
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

__all__ = [
    "COO",
    "CSR",
    "Sparse",
    "coo_tensor",
    "csr_tensor",
    "eye",
    "from_dense",
    "from_scipy",
    "matmul",
    "sampled_matmul",
]
