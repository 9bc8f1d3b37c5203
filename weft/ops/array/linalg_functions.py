"""Functions of `weft.linalg` that name their several results or prepare their arguments for one op."""

from __future__ import annotations

from typing import NamedTuple

from ... import dtypes
from ...tensor import Tensor
from .elementwise import astype
from .linalg_solve import pseudo_inverse, rtol_of, sign_and_logdet
from .linalg_spectral import eig_pair, eigh_pair, numeric_rank, qr_pair, svd_triple


class EighResult(NamedTuple):
    """Eigenvalues (real, ascending) and eigenvectors (columns) of Hermitian matrices."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EigResult(NamedTuple):
    """Eigenvalues and eigenvectors (columns of norm 1) of square matrices; complex."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """A matrix with orthonormal columns and an upper triangular one, whose product is the argument."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """The sign (or phase) of a determinant and the logarithm of its magnitude."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """U, the singular values (descending) and Vᴴ, with `U @ diag(S) @ Vh` the argument."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def eigh(x: Tensor, /) -> EighResult:
    """Eigenvalues and eigenvectors of Hermitian matrices. Only the Hermitian part (x + x.H) / 2 is looked at."""
    return EighResult(*eigh_pair(x))


def eig(x: Tensor, /) -> EigResult:
    """Eigenvalues and eigenvectors of square matrices; complex, in no particular order. See `eigh` for Hermitian ones."""
    return EigResult(*eig_pair(x))


def qr(x: Tensor, /, *, mode: str = "reduced") -> QRResult:
    """`x = Q @ R` with orthonormal columns in Q and an upper triangular R; `mode` is "reduced" or "complete"."""
    return QRResult(*qr_pair(x, mode))


def slogdet(x: Tensor, /) -> SlogdetResult:
    """The sign of the determinant of square matrices and the logarithm of its magnitude, without overflow."""
    return SlogdetResult(*sign_and_logdet(x))


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """`x = U @ diag(S) @ Vh`; with `full_matrices=False` U and Vh have only as many columns and rows as S elements."""
    return SVDResult(*svd_triple(x, bool(full_matrices)))


def _floating(x: Tensor) -> Tensor:
    return astype(x, dtypes.float_for(x.dtype))


def pinv(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """The Moore–Penrose pseudo-inverse. Singular values up to `rtol` times the largest count as zero."""
    return pseudo_inverse(_floating(x), rtol_of("pinv", rtol))


def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """The number of singular values above `rtol` times the largest one (by default max(M, N) times the machine's eps)."""
    return numeric_rank(_floating(x), rtol_of("matrix_rank", rtol))
