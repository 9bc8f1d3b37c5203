"""Linear algebra, with gradients, for stacks of matrices.

Written by `python -m tools.stubs` from the op table. Do not edit.
"""

from typing import Any
from .ops.array.linalg_functions import EigResult as EigResult
from .ops.array.linalg_functions import EighResult as EighResult
from .ops.array.linalg_functions import QRResult as QRResult
from .ops.array.linalg_functions import SVDResult as SVDResult
from .ops.array.linalg_functions import SlogdetResult as SlogdetResult
from .ops.array.linalg_solve import LinAlgError as LinAlgError
from .tensor import Tensor as Tensor
from .typing import ArrayLike
from .typing import DTypeLike

__all__ = [
    "EigResult", "EighResult", "LinAlgError", "QRResult", "SVDResult", "SlogdetResult", "cholesky", "cross",
    "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power",
    "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals",
    "tensordot", "trace", "vecdot", "vector_norm",
]

def cholesky(x: ArrayLike, /, *, upper: bool = False) -> Tensor:
    """The lower triangular L with `L @ L.H = x` (or the upper U with `U.H @ U = x`) of positive definite
    matrices.
    """
def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of 3 elements along `axis`; the other axes broadcast."""
def det(x: ArrayLike, /) -> Tensor:
    """The determinant of square matrices."""
def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Tensor:
    """The `offset`-th diagonal of a (stack of) matrices, as the last axis; a copy."""
def eig(x: ArrayLike, /) -> EigResult:
    """Eigenvalues and eigenvectors of square matrices; complex, in no particular order."""
def eigh(x: ArrayLike, /) -> EighResult:
    """Eigenvalues and eigenvectors of Hermitian matrices."""
def eigvals(x: ArrayLike, /) -> Tensor:
    """The (complex) eigenvalues of square matrices, in no particular order."""
def eigvalsh(x: ArrayLike, /) -> Tensor:
    """The eigenvalues of Hermitian matrices, ascending."""
def inv(x: ArrayLike, /) -> Tensor:
    """The inverse of square matrices."""
def matmul(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The matrix product; leading axes are batches and broadcast; vectors are rows on the left, columns on
    the right.
    """
def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: int | float | str | None = 'fro') -> Tensor:
    """The norm of matrices: "fro" (Frobenius), "nuc" (sum of singular values), 1 and inf (largest column,
    row sum), 2 (largest singular value), and with a minus sign the smallest.
    """
def matrix_power(x: ArrayLike, n: int, /) -> Tensor:
    """Square matrices to an integer power; negative powers are those of the inverse."""
def matrix_rank(x: ArrayLike, /, *, rtol: float | ArrayLike | None = None) -> Tensor:
    """The number of singular values above `rtol` times the largest one (by default max(M, N) times the
    machine's eps).
    """
def matrix_transpose(x: ArrayLike, /) -> Tensor:
    """`x` with its last two axes exchanged; a view."""
def outer(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The matrix of products of every element of the vector `x1` with every element of the vector `x2`."""
def pinv(x: ArrayLike, /, *, rtol: float | ArrayLike | None = None) -> Tensor:
    """The Moore–Penrose pseudo-inverse."""
def qr(x: ArrayLike, /, *, mode: str = 'reduced') -> QRResult:
    """`x = Q @ R` with orthonormal columns in Q and an upper triangular R; `mode` is "reduced" or
    "complete".
    """
def slogdet(x: ArrayLike, /) -> SlogdetResult:
    """The sign of the determinant of square matrices and the logarithm of its magnitude, without overflow."""
def solve(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The solution X of `x1 @ X = x2`; `x2` is a vector, or (a stack of) matrices that broadcast with
    `x1`.
    """
def svd(x: ArrayLike, /, *, full_matrices: bool = True) -> SVDResult:
    """`x = U @ diag(S) @ Vh`; with `full_matrices=False` U and Vh have only as many columns and rows as S
    elements.
    """
def svdvals(x: ArrayLike, /) -> Tensor:
    """The singular values of matrices, descending."""
def tensordot(x1: ArrayLike, x2: ArrayLike, /, *, axes: Any = 2) -> Tensor:
    """The sum over pairs of axes: the last `axes` of x1 with the first of x2, or the given (x1 axes, x2
    axes).
    """
def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """The sum along the `offset`-th diagonal of a (stack of) matrices; small integers are summed in 64
    bits.
    """
def vecdot(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """The sum of `conj(x1) * x2` over `axis`."""
def vector_norm(
    x: ArrayLike,
    /,
    *,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    ord: int | float = 2,
) -> Tensor:
    """The norm over `axis` (all by default): (Σ |x|^ord)^(1/ord); `ord` may be ±inf (largest, smallest) or
    0 (count).
    """
