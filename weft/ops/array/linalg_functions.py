"""Public functions of `weft.linalg` that wrap one op: named results, argument defaults."""

from __future__ import annotations

from typing import NamedTuple

from ... import dtypes
from ...tensor import Tensor
from .elementwise import astype
from .linalg_solve import pseudo_inverse, rtol_of, sign_and_logdet
from .linalg_spectral import eig_pair, eigh_pair, numeric_rank, qr_pair, svd_triple


class EighResult(NamedTuple):
    """Result of `eigh`: real eigenvalues (ascending) and eigenvectors (columns)."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EigResult(NamedTuple):
    """Result of `eig`: complex eigenvalues and eigenvectors (columns of norm 1)."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """Result of `qr`: a matrix with orthonormal columns and an upper triangular matrix."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """Result of `slogdet`: the sign (or phase) of a determinant and the logarithm of its magnitude."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """Result of `svd`: U, the singular values (descending) and Vᴴ."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def eigh(x: Tensor, /) -> EighResult:
    """Eigenvalues (ascending) and eigenvectors of Hermitian matrices; only the Hermitian part (x + x.H) / 2 is used.

    >>> wf.linalg.eigh(wf.tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    tensor([1., 2.])
    """
    return EighResult(*eigh_pair(x))


def eig(x: Tensor, /) -> EigResult:
    """Eigenvalues and eigenvectors of square matrices, complex and unordered; use `eigh` for Hermitian matrices."""
    return EigResult(*eig_pair(x))


def qr(x: Tensor, /, *, mode: str = "reduced") -> QRResult:
    """QR decomposition `x = Q @ R` of (batches of) matrices.

    Args:
        x: shape (…, m, n).
        mode: "reduced" gives Q of shape (…, m, min(m, n)), "complete" of shape (…, m, m).

    Returns:
        A named tuple (Q, R): orthonormal columns and an upper triangular matrix.

    >>> q, r = wf.linalg.qr(wf.ones(4, 2))
    >>> q.shape, r.shape
    ((4, 2), (2, 2))
    """
    return QRResult(*qr_pair(x, mode))


def slogdet(x: Tensor, /) -> SlogdetResult:
    """Sign and logarithm of the absolute value of the determinant, without overflow.

    >>> wf.linalg.slogdet(wf.eye(3) * 2).logabsdet
    tensor(2.0794...)
    """
    return SlogdetResult(*sign_and_logdet(x))


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """Singular value decomposition `x = U @ diag(S) @ Vh`.

    Args:
        x: shape (…, m, n).
        full_matrices: False gives U and Vh only the first min(m, n) columns and rows.

    Returns:
        A named tuple (U, S, Vh), with S descending.

    >>> u, s, vh = wf.linalg.svd(wf.ones(4, 2), full_matrices=False)
    >>> u.shape, s.shape, vh.shape
    ((4, 2), (2,), (2, 2))
    """
    return SVDResult(*svd_triple(x, bool(full_matrices)))


def _floating(x: Tensor) -> Tensor:
    return astype(x, dtypes.float_for(x.dtype))


def pinv(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """Moore–Penrose pseudo-inverse; singular values up to `rtol` times the largest count as zero.

    >>> wf.linalg.pinv(wf.zeros(4, 2)).shape
    (2, 4)
    """
    return pseudo_inverse(_floating(x), rtol_of("pinv", rtol))


def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """Rank of (batches of) matrices: the number of singular values above `rtol` times the largest.

    Args:
        x: shape (…, m, n).
        rtol: the relative tolerance; max(m, n) times the machine epsilon by default.

    >>> wf.linalg.matrix_rank(wf.ones(3, 3))
    tensor(1)
    """
    return numeric_rank(_floating(x), rtol_of("matrix_rank", rtol))
