"""Linear algebra, with gradients, for stacks of matrices.

Written by `python -m tools.stubs` from the op table. Do not edit.
"""

from collections.abc import Sequence
from typing import Any
from .ops.array.linalg_composed import LstsqResult as LstsqResult
from .ops.array.linalg_functions import EigResult as EigResult
from .ops.array.linalg_functions import EighResult as EighResult
from .ops.array.linalg_functions import QRResult as QRResult
from .ops.array.linalg_functions import SVDResult as SVDResult
from .ops.array.linalg_functions import SlogdetResult as SlogdetResult
from .ops.array.linalg_solve import LinAlgError as LinAlgError
from .tensor import Tensor as Tensor
from .typing import ArrayLike
from .typing import Axis
from .typing import DTypeLike

__all__ = [
    "EigResult", "EighResult", "LinAlgError", "LstsqResult", "QRResult", "SVDResult", "SlogdetResult",
    "cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq",
    "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot",
    "norm", "outer", "pinv", "qr", "slogdet", "solve", "solve_triangular", "svd", "svdvals", "tensordot",
    "trace", "vecdot", "vector_norm",
]

def cholesky(x: ArrayLike, /, *, upper: bool = False) -> Tensor:
    """Cholesky factor of (batches of) Hermitian positive-definite matrices."""
def cond(x: ArrayLike, /, p: Any = None) -> Tensor:
    """The condition number of matrices in the norm `p`, by default the ratio of the singular values."""
def cross(x1: ArrayLike, x2: ArrayLike, /, axis: int = -1, *, dim: int = ...) -> Tensor:
    """Cross product of vectors of 3 elements along `axis`; the other axes broadcast."""
def det(x: ArrayLike, /) -> Tensor:
    """Determinant of (batches of) square matrices."""
def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Tensor:
    """The `offset`-th diagonal of (batches of) matrices as the last axis; a copy."""
def eig(x: ArrayLike, /) -> EigResult:
    """Eigenvalues and eigenvectors of square matrices, complex and unordered; use `eigh` for Hermitian
    matrices.
    """
def eigh(x: ArrayLike, /) -> EighResult:
    """Eigenvalues (ascending) and eigenvectors of Hermitian matrices; only the Hermitian part (x + x.H) /
    2 is used.
    """
def eigvals(x: ArrayLike, /) -> Tensor:
    """Complex eigenvalues of square matrices, in no particular order."""
def eigvalsh(x: ArrayLike, /) -> Tensor:
    """Eigenvalues of Hermitian matrices, ascending; only the Hermitian part (x + x.H) / 2 is used."""
def inv(x: ArrayLike, /) -> Tensor:
    """Inverse of (batches of) square matrices."""
def lstsq(
    a: ArrayLike,
    b: ArrayLike,
    /,
    *,
    rcond: float | None = None,
    driver: str | None = None,
) -> LstsqResult:
    """The solution of `a @ x = b` with the least squares, of several the shortest."""
def matmul(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Matrix product; leading axes are batch axes and broadcast."""
def matrix_exp(x: ArrayLike, /) -> Tensor:
    """The exponential of (a batch of) square matrices: the sum of x**k / k!."""
def matrix_norm(
    x: ArrayLike,
    /,
    keepdims: bool = False,
    *,
    ord: int | float | str | None = 'fro',
    keepdim: bool = ...,
) -> Tensor:
    """Norm of (batches of) matrices."""
def matrix_power(x: ArrayLike, n: int, /) -> Tensor:
    """Integer power of (batches of) square matrices; negative powers invert first."""
def matrix_rank(x: ArrayLike, /, *, rtol: float | ArrayLike | None = None) -> Tensor:
    """Rank of (batches of) matrices: the number of singular values above `rtol` times the largest."""
def matrix_transpose(x: ArrayLike, /) -> Tensor:
    """Transpose the last two axes; a view."""
def multi_dot(tensors: Sequence[ArrayLike], /) -> Tensor:
    """The product of matrices, in the order that needs the fewest multiplications; vectors may be first
    and last.
    """
def norm(
    x: ArrayLike,
    /,
    ord: Any = None,
    axis: Axis = None,
    keepdims: bool = False,
    *,
    dtype: Any = None,
    dim: Axis = ...,
    keepdim: bool = ...,
) -> Tensor:
    """The norm of a vector or matrix, or of those along axes, as NumPy's and PyTorch's `linalg.norm`."""
def outer(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Outer product of two vectors: `out[i, j] = x1[i] * x2[j]`."""
def pinv(x: ArrayLike, /, *, rtol: float | ArrayLike | None = None) -> Tensor:
    """Moore–Penrose pseudo-inverse; singular values up to `rtol` times the largest count as zero."""
def qr(x: ArrayLike, /, *, mode: str = 'reduced') -> QRResult:
    """QR decomposition `x = Q @ R` of (batches of) matrices."""
def slogdet(x: ArrayLike, /) -> SlogdetResult:
    """Sign and logarithm of the absolute value of the determinant, without overflow."""
def solve(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Solve the linear system `x1 @ X = x2`."""
def solve_triangular(
    a: ArrayLike,
    b: ArrayLike,
    /,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Tensor:
    """Solve `a @ x = b` (or `x @ a = b`) for a triangular matrix; its other half is not read."""
def svd(x: ArrayLike, /, *, full_matrices: bool = True) -> SVDResult:
    """Singular value decomposition `x = U @ diag(S) @ Vh`."""
def svdvals(x: ArrayLike, /) -> Tensor:
    """Singular values of matrices, descending."""
def tensordot(x1: ArrayLike, x2: ArrayLike, /, *, axes: Any = 2) -> Tensor:
    """Contract two tensors over pairs of axes."""
def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """Sum along the `offset`-th diagonal of (batches of) matrices; small integers are summed in 64 bits."""
def vecdot(x1: ArrayLike, x2: ArrayLike, /, axis: int = -1, *, dim: int = ...) -> Tensor:
    """Sum of `conj(x1) * x2` over `axis`."""
def vector_norm(
    x: ArrayLike,
    /,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    *,
    ord: int | float = 2,
    dim: int | tuple[int, ...] | None = ...,
    keepdim: bool = ...,
) -> Tensor:
    """Vector norm over `axis` (all by default): (Σ |x|^ord)^(1/ord)."""
