"""Linear algebra: the array API's `linalg` extension, with gradients, for stacks of matrices.

>>> import weft as wf
>>> wf.linalg.solve(wf.tensor([[2.0, 0.0], [0.0, 4.0]]), wf.tensor([2.0, 4.0])).tolist()
[1.0, 1.0]
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import dtypes as _dtypes
from .ops.elementwise import astype as _astype
from .ops.guard import public as _public
from .ops.linalg_solve import LinAlgError as LinAlgError
from .ops.linalg_solve import cholesky as cholesky
from .ops.linalg_solve import det as det
from .ops.linalg_solve import inv as inv
from .ops.linalg_solve import matrix_power as matrix_power
from .ops.linalg_solve import pseudo_inverse as _pseudo_inverse
from .ops.linalg_solve import rtol_of as _rtol_of
from .ops.linalg_solve import sign_and_logdet as _sign_and_logdet
from .ops.linalg_solve import solve as solve
from .ops.linalg_spectral import eig_pair as _eig_pair
from .ops.linalg_spectral import eigh_pair as _eigh_pair
from .ops.linalg_spectral import eigvals as eigvals
from .ops.linalg_spectral import eigvalsh as eigvalsh
from .ops.linalg_spectral import matrix_norm as matrix_norm
from .ops.linalg_spectral import numeric_rank as _numeric_rank
from .ops.linalg_spectral import qr_pair as _qr_pair
from .ops.linalg_spectral import svd_triple as _svd_triple
from .ops.linalg_spectral import svdvals as svdvals
from .ops.linalg_spectral import vector_norm as vector_norm
from .ops.linalg_structure import cross as cross
from .ops.linalg_structure import diagonal as diagonal
from .ops.linalg_structure import outer as outer
from .ops.linalg_structure import trace as trace
from .ops.products import matmul as matmul
from .ops.products import tensordot as tensordot
from .ops.products import vecdot as vecdot
from .ops.shaping import matrix_transpose as matrix_transpose
from .tensor import Tensor


class EighResult(NamedTuple):
    """Eigenvalues (real, ascending) and eigenvectors (columns) of Hermitian matrices."""

    eigenvalues: Any
    eigenvectors: Any


class EigResult(NamedTuple):
    """Eigenvalues and eigenvectors (columns of norm 1) of square matrices; complex."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """A matrix with orthonormal columns and an upper triangular one, whose product is the argument."""

    Q: Any
    R: Any


class SlogdetResult(NamedTuple):
    """The sign (or phase) of a determinant and the logarithm of its magnitude."""

    sign: Any
    logabsdet: Any


class SVDResult(NamedTuple):
    """U, the singular values (descending) and Vᴴ, with `U @ diag(S) @ Vh` the argument."""

    U: Any
    S: Any
    Vh: Any


def eigh(x: Tensor, /) -> EighResult:
    """Eigenvalues and eigenvectors of Hermitian matrices. Only the Hermitian part (x + x.H) / 2 is looked at."""
    return EighResult(*_eigh_pair(x))


def eig(x: Tensor, /) -> EigResult:
    """Eigenvalues and eigenvectors of square matrices; complex, in no particular order. See `eigh` for Hermitian ones."""
    return EigResult(*_eig_pair(x))


def qr(x: Tensor, /, *, mode: str = "reduced") -> QRResult:
    """`x = Q @ R` with orthonormal columns in Q and an upper triangular R; `mode` is "reduced" or "complete"."""
    return QRResult(*_qr_pair(x, mode))


def slogdet(x: Tensor, /) -> SlogdetResult:
    """The sign of the determinant of square matrices and the logarithm of its magnitude, without overflow."""
    return SlogdetResult(*_sign_and_logdet(x))


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """`x = U @ diag(S) @ Vh`; with `full_matrices=False` U and Vh have only as many columns and rows as S elements."""
    return SVDResult(*_svd_triple(x, bool(full_matrices)))


def _floating(x: Tensor) -> Tensor:
    return _astype(x, _dtypes.float_for(x.dtype))


def pinv(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """The Moore–Penrose pseudo-inverse. Singular values up to `rtol` times the largest count as zero."""
    return _pseudo_inverse(_floating(x), _rtol_of("pinv", rtol))


def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """The number of singular values above `rtol` times the largest one (by default max(M, N) times the machine's eps)."""
    return _numeric_rank(_floating(x), _rtol_of("matrix_rank", rtol))


__all__ = [
    "LinAlgError", "cholesky", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "matmul",
    "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd",
    "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip

globals().update(
    {name: _public(globals()[name]) for name in __all__ if name[0].islower()}
)  # see Note [Named errors]
