"""Linear algebra: the array API's `linalg` extension, with gradients and batches of matrices.

>>> wf.linalg.solve(wf.tensor([[2.0, 0.0], [0.0, 4.0]]), wf.tensor([2.0, 4.0])).tolist()
[1.0, 1.0]
"""

from __future__ import annotations

from .ops.array.linalg_composed import LstsqResult as LstsqResult
from .ops.array.linalg_composed import cond as cond
from .ops.array.linalg_composed import lstsq as lstsq
from .ops.array.linalg_composed import multi_dot as multi_dot
from .ops.array.linalg_composed import norm as norm
from .ops.array.linalg_composed import solve_triangular as solve_triangular
from .ops.array.linalg_functions import EighResult as EighResult
from .ops.array.linalg_functions import EigResult as EigResult
from .ops.array.linalg_functions import QRResult as QRResult
from .ops.array.linalg_functions import SlogdetResult as SlogdetResult
from .ops.array.linalg_functions import SVDResult as SVDResult
from .ops.array.linalg_functions import eig as eig
from .ops.array.linalg_functions import eigh as eigh
from .ops.array.linalg_functions import matrix_rank as matrix_rank
from .ops.array.linalg_functions import pinv as pinv
from .ops.array.linalg_functions import qr as qr
from .ops.array.linalg_functions import slogdet as slogdet
from .ops.array.linalg_functions import svd as svd
from .ops.array.linalg_solve import LinAlgError as LinAlgError
from .ops.array.linalg_solve import cholesky as cholesky
from .ops.array.linalg_solve import det as det
from .ops.array.linalg_solve import inv as inv
from .ops.array.linalg_solve import matrix_power as matrix_power
from .ops.array.linalg_solve import solve as solve
from .ops.array.linalg_spectral import eigvals as eigvals
from .ops.array.linalg_spectral import eigvalsh as eigvalsh
from .ops.array.linalg_spectral import matrix_norm as matrix_norm
from .ops.array.linalg_spectral import svdvals as svdvals
from .ops.array.linalg_spectral import vector_norm as vector_norm
from .ops.array.linalg_structure import cross as cross
from .ops.array.linalg_structure import diagonal as diagonal
from .ops.array.linalg_structure import outer as outer
from .ops.array.linalg_structure import trace as trace
from .ops.array.matrix_exponential import matrix_exp as matrix_exp
from .ops.array.products import matmul as matmul
from .ops.array.products import tensordot as tensordot
from .ops.array.products import vecdot as vecdot
from .ops.array.shaping import matrix_transpose as matrix_transpose
from .ops.core.error_names import public as _public

__all__ = [
    "EigResult", "EighResult", "LinAlgError", "LstsqResult", "QRResult", "SVDResult", "SlogdetResult", "cholesky", "cond",
    "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "matmul", "matrix_exp", "matrix_norm",
    "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer", "pinv", "qr", "slogdet", "solve",
    "solve_triangular", "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip

# What users call names errors and takes arrays, see Note [Named errors].
globals().update({name: _public(globals()[name]) for name in __all__ if name[0].islower()})
