"""Products of matrices and vectors under PyTorch's and NumPy's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ...typing import Axis
from ..array import (
    creation,
    linalg_functions,
    linalg_solve,
    linalg_spectral,
    linalg_structure,
    products,
    reduction,
    shaping,
)
from ..array.elementwise import conj, log, where
from ..core import registry
from ..core.short_floats import accumulates

__all__ = [
    "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "cdist", "chain_matmul", "cholesky", "cholesky_inverse",
    "cholesky_solve", "cosine_similarity", "det", "dist", "dot", "ger", "inner", "inverse", "kron", "logdet", "matrix_power",
    "mm", "mv", "norm", "pdist", "pinverse", "qr", "renorm", "slogdet", "svd", "vdot",
]  # fmt: skip


def _ranks(name: str, wanted: Sequence[int], *tensors: Tensor) -> None:
    """Raise unless each tensor has the rank that is wanted: these functions do not broadcast."""
    for x, rank in zip(tensors, wanted, strict=True):
        if x.ndim is not None and x.ndim != rank:
            kinds = " and ".join({1: "a vector", 2: "a matrix", 3: "a batch of matrices"}[r] for r in wanted)
            shapes = ", ".join([format_shape(t.shape) for t in tensors])
            raise ValueError(f"{name}: expected {kinds}. Got shapes {shapes}; `matmul` broadcasts.")


def mm(x: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices.

    >>> wf.mm(wf.ones(2, 3), wf.ones(3, 1)).tolist()
    [[3.0], [3.0]]
    """
    _ranks("mm", (2, 2), x, mat2)
    return products.matmul(x, mat2)


def bmm(x: Tensor, mat2: Tensor) -> Tensor:
    """The products of two batches of matrices.

    >>> wf.bmm(wf.ones(5, 2, 3), wf.ones(5, 3, 1)).shape
    (5, 2, 1)
    """
    _ranks("bmm", (3, 3), x, mat2)
    if x.shape[0] != mat2.shape[0] and None not in (x.shape[0], mat2.shape[0]):
        raise ValueError(f"bmm: batches of {x.shape[0]} and {mat2.shape[0]} matrices do not fit; `matmul` broadcasts.")
    return products.matmul(x, mat2)


def mv(x: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix and a vector.

    >>> wf.mv(wf.ones(2, 3), wf.ones(3))
    tensor([3., 3.])
    """
    _ranks("mv", (2, 1), x, vec)
    return products.matmul(x, vec)


def dot(x: Tensor, other: Tensor) -> Tensor:
    """The product of two vectors, or NumPy's `dot` of two tensors.

    >>> wf.dot(wf.tensor([1.0, 2.0]), wf.tensor([3.0, 4.0]))
    tensor(11.)
    """
    if x.ndim == 0 or other.ndim == 0:
        return x * other
    if other.ndim <= 2:
        return products.matmul(x, other)
    return products.tensordot(x, other, axes=((-1,), (-2,)))


def vdot(x: Tensor, other: Tensor) -> Tensor:
    """The product of two vectors, the first one conjugated.

    >>> wf.vdot(wf.tensor([1j]), wf.tensor([1j])).item()
    (1+0j)
    """
    return products.matmul(shaping.reshape(conj(x), (-1,)), shaping.reshape(other, (-1,)))


def inner(x: Tensor, other: Tensor) -> Tensor:
    """Sums of products over the last axes of both.

    >>> wf.inner(wf.ones(2, 3), wf.ones(4, 3)).shape
    (2, 4)
    """
    return x * other if x.ndim == 0 or other.ndim == 0 else products.tensordot(x, other, axes=((-1,), (-1,)))


def ger(x: Tensor, vec2: Tensor) -> Tensor:
    """`outer`.

    >>> wf.ger(wf.ones(2), wf.ones(3)).shape
    (2, 3)
    """
    return linalg_structure.outer(x, vec2)


def _blend(x: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    """`beta * x + alpha * product`; with `beta` 0, `x` is not read, so its NaNs vanish."""
    scaled = product if alpha == 1 else product * alpha
    if beta == 0:
        return shaping.broadcast_to(scaled, shaping.broadcast_shapes(x.shape, scaled.shape))
    return (x if beta == 1 else x * beta) + scaled


def addmm(x: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`beta * x + alpha * (mat1 @ mat2)`.

    >>> wf.addmm(wf.ones(2, 2), wf.eye(2), wf.eye(2), alpha=3).tolist()
    [[4.0, 1.0], [1.0, 4.0]]
    """
    return _blend(x, mm(mat1, mat2), beta, alpha)


def addmv(x: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`beta * x + alpha * (mat @ vec)`.

    >>> wf.addmv(wf.zeros(2), wf.eye(2), wf.ones(2))
    tensor([1., 1.])
    """
    return _blend(x, mv(mat, vec), beta, alpha)


def addr(x: Tensor, vec1: Tensor, vec2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`beta * x + alpha * outer(vec1, vec2)`.

    >>> wf.addr(wf.zeros(1, 2), wf.ones(1), wf.tensor([1.0, 2.0]))
    tensor([[1., 2.]])
    """
    return _blend(x, linalg_structure.outer(vec1, vec2), beta, alpha)


def baddbmm(x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`beta * x + alpha * (batch1 @ batch2)` for batches of matrices.

    >>> wf.baddbmm(wf.zeros(3, 2, 2), wf.ones(3, 2, 4), wf.ones(3, 4, 2)).shape
    (3, 2, 2)
    """
    return _blend(x, bmm(batch1, batch2), beta, alpha)


def addbmm(x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`beta * x + alpha *` the sum of the products of two batches of matrices.

    >>> wf.addbmm(wf.zeros(1, 1), wf.ones(3, 1, 1), wf.ones(3, 1, 1))
    tensor([[3.]])
    """
    return _blend(x, reduction.sum(bmm(batch1, batch2), axis=0), beta, alpha)


def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of matrices, in the order that needs the fewest multiplications.

    >>> wf.chain_matmul(wf.ones(2, 3), wf.ones(3, 4), wf.ones(4, 1)).shape
    (2, 1)
    """
    if not matrices:
        raise ValueError("chain_matmul: expected at least one matrix.")
    sizes = [m.shape[0] for m in matrices] + [matrices[-1].shape[1]]
    n = len(matrices)
    cost = [[0] * n for _ in range(n)]
    cut = [[0] * n for _ in range(n)]
    for span in range(1, n):
        for i in range(n - span):
            j = i + span
            options = [(cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)]
            cost[i][j], cut[i][j] = min(options)

    def multiply(i: int, j: int) -> Tensor:
        if i == j:
            return matrices[i]
        return products.matmul(multiply(i, cut[i][j]), multiply(cut[i][j] + 1, j))

    return multiply(0, n - 1)


def kron(x: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product.

    >>> wf.kron(wf.eye(2), wf.ones(1, 2)).tolist()
    [[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]
    """
    rank = max(x.ndim, other.ndim)
    a, b = (shaping.reshape(v, (*[1] * (rank - v.ndim), *v.shape)) for v in (x, other))
    left = shaping.reshape(a, tuple([n for d in a.shape for n in (d, 1)]))
    right = shaping.reshape(b, tuple([n for d in b.shape for n in (1, d)]))
    return shaping.reshape(left * right, tuple([m * n for m, n in zip(a.shape, b.shape)]))


def norm(
    x: Tensor, p: Any = "fro", dim: Axis = None, keepdim: bool = False, *, dtype: Any = None, **words: Any
) -> Tensor:
    """The norm of all elements, or of vectors or matrices along axes.

    Args:
        p: the order: a number, "fro" (the root of the sum of squares) or "nuc" (the sum of the singular values).
        dim: an axis, or two for "nuc"; all by default.
        keepdim: keep the axes with size 1.
        dtype: converts `x` first.

    >>> wf.tensor([3.0, 4.0]).norm(), wf.eye(2).norm(dim=1)
    (tensor(5.), tensor([1., 1.]))
    """
    axis, keepdims = words.pop("axis", dim), words.pop("keepdims", keepdim)
    p = words.pop("ord", p)
    if words:
        raise TypeError(f"norm: unexpected argument {next(iter(words))!r}.")
    x = x if dtype is None else x.astype(dtype)
    if not dtypes.is_inexact(x.dtype):
        raise TypeError(f"norm: expected floating-point or complex numbers. Got {x.dtype.name}; use `x.float()`.")
    axis = tuple(axis) if isinstance(axis, list) else axis
    if p == "nuc":
        last = x if axis is None else shaping.moveaxis(x, axis, (-2, -1))
        made = reduction.sum(linalg_spectral.svdvals(last), axis=-1)
        return shaping.expand_dims(made, axis) if keepdims and axis is not None else made
    return linalg_spectral.vector_norm(x, axis=axis, keepdims=keepdims, ord=2 if p in ("fro", None) else p)


@accumulates
def dist(x: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The `p`-norm of the difference.

    >>> wf.dist(wf.tensor([0.0, 3.0]), wf.tensor([4.0, 0.0]))
    tensor(5.)
    """
    return norm(x - other, p)


@accumulates
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0) -> Tensor:
    """The distances between all pairs of rows of two (batches of) matrices.

    Args:
        x1: (…, n, features).
        x2: (…, m, features).
        p: the order of the norm, at least 0.

    >>> wf.cdist(wf.tensor([[0.0, 0.0]]), wf.tensor([[3.0, 4.0], [0.0, 1.0]]))
    tensor([[5., 1.]])
    """
    difference = shaping.expand_dims(x1, -2) - shaping.expand_dims(x2, -3)
    return linalg_spectral.vector_norm(difference, axis=-1, ord=p)


@accumulates
def pdist(x: Tensor, p: float = 2.0) -> Tensor:
    """The distances between all pairs of different rows of a matrix, as a vector.

    >>> wf.pdist(wf.tensor([[0.0], [1.0], [3.0]]))
    tensor([1., 3., 2.])
    """
    import numpy as np

    from ..array.gathering import take

    _ranks("pdist", (2,), x)
    rows, columns = np.triu_indices(x.shape[0], 1)
    difference = take(x, Tensor(rows), axis=0) - take(x, Tensor(columns), axis=0)
    return linalg_spectral.vector_norm(difference, axis=-1, ord=p)


@accumulates
def renorm(x: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Scale the slices along `dim` whose `p`-norm is larger than `maxnorm` down to it.

    >>> wf.renorm(wf.tensor([[3.0, 4.0], [0.0, 1.0]]), 2, 0, 1.0).round(decimals=4).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 1.0]]
    """
    axes = tuple([a for a in range(x.ndim) if a != dim % x.ndim])
    size = linalg_spectral.vector_norm(x, axis=axes, keepdims=True, ord=p)
    return x * where(size > maxnorm, maxnorm / (size + 1e-7), creation.ones((), dtype=x.dtype))


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angles between vectors along `dim`.

    >>> wf.cosine_similarity(wf.eye(2), wf.ones(2, 2)).tolist()
    [0.7071067690849304, 0.7071067690849304]
    """
    return registry.get("cosine_similarity").call(x1, x2, axis=dim, eps=eps)


def det(x: Tensor) -> Tensor:
    """The determinants of (a batch of) square matrices.

    >>> wf.det(wf.eye(2) * 2)
    tensor(4.)
    """
    return linalg_solve.det(x)


def slogdet(x: Tensor) -> Any:
    """Sign and logarithm of the absolute value of determinants.

    >>> wf.slogdet(wf.eye(2)).sign
    tensor(1.)
    """
    return linalg_functions.slogdet(x)


def logdet(x: Tensor) -> Tensor:
    """The logarithms of determinants; NaN for negative ones.

    >>> wf.logdet(wf.eye(2))
    tensor(0.)
    """
    sign, value = linalg_functions.slogdet(x)
    if dtypes.is_complex(x.dtype):
        return value + log(sign)
    return where(sign < 0, float("nan"), value)  # of a constant, which has no gradient


def inverse(x: Tensor) -> Tensor:
    """The inverses of (a batch of) square matrices.

    >>> wf.inverse(wf.eye(2) * 2).tolist()
    [[0.5, 0.0], [0.0, 0.5]]
    """
    return linalg_solve.inv(x)


def pinverse(x: Tensor) -> Tensor:
    """The pseudo-inverse of (a batch of) matrices.

    >>> wf.pinverse(wf.ones(2, 1)).shape
    (1, 2)
    """
    return linalg_functions.pinv(x)


def cholesky(x: Tensor, upper: bool = False) -> Tensor:
    """The Cholesky factor of positive definite matrices: lower, or upper if asked for.

    >>> wf.cholesky(wf.eye(2) * 4).tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """
    return linalg_solve.cholesky(x, upper=upper)


def cholesky_solve(x: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    """Solve `A @ y = x` from the Cholesky factor of A.

    >>> wf.cholesky_solve(wf.ones(2, 1), wf.eye(2) * 2).tolist()
    [[0.25], [0.25]]
    """
    lower = shaping.matrix_transpose(conj(factor)) if upper else factor
    half = linalg_solve.solve(lower, x)
    return linalg_solve.solve(shaping.matrix_transpose(conj(lower)), half)


def cholesky_inverse(x: Tensor, upper: bool = False) -> Tensor:
    """The inverse of a matrix from its Cholesky factor.

    >>> wf.cholesky_inverse(wf.eye(2) * 2).tolist()
    [[0.25, 0.0], [0.0, 0.25]]
    """
    return cholesky_solve(creation.eye(x.shape[-1], dtype=x.dtype), x, upper)


def matrix_power(x: Tensor, n: int) -> Tensor:
    """Square matrices multiplied `n` times by themselves.

    >>> wf.matrix_power(wf.eye(2) * 2, 3).tolist()
    [[8.0, 0.0], [0.0, 8.0]]
    """
    return linalg_solve.matrix_power(x, n)


def qr(x: Tensor, some: bool = True) -> Any:
    """The QR decomposition: orthonormal columns Q and an upper triangle R.

    >>> wf.qr(wf.eye(2)).R.shape
    (2, 2)
    """
    return linalg_functions.qr(x, mode="reduced" if some else "complete")


def svd(x: Tensor, some: bool = True, compute_uv: bool = True) -> Any:
    """The singular value decomposition `U @ diag(S) @ V.mH`, as PyTorch's `svd` returns it: U, S and V.

    `wf.linalg.svd` returns V conjugated and transposed, as NumPy does.

    >>> U, S, V = wf.svd(wf.eye(2)); S
    tensor([1., 1.])
    """
    u, s, vh = linalg_functions.svd(x, full_matrices=not some)
    return u, s, shaping.matrix_transpose(conj(vh))
