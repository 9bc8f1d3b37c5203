"""Linear algebra composed from other ops: norms of any kind, least squares, conditions, triangular systems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ...typing import Axis
from ..core.spec import normalize_axes
from . import creation, linalg_functions, linalg_solve, linalg_spectral, products, reduction, shaping
from .elementwise import where
from .linalg_structure import tril, triu


class LstsqResult(NamedTuple):
    """What `lstsq` returns."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def norm(x: Tensor, /, ord: Any = None, axis: Axis = None, keepdims: bool = False, *, dtype: Any = None) -> Tensor:
    """The norm of a vector or matrix, or of those along axes, as NumPy's and PyTorch's `linalg.norm`.

    Args:
        ord: the order. Without one: the root of the sum of squares of all elements. For matrices "fro", "nuc", 1, -1, 2, -2,
            inf or -inf, for vectors any number.
        axis: one axis for vectors, two for matrices; without one, `x` itself is the vector or matrix.
        keepdims: keep the axes with size 1.
        dtype: converts `x` first.

    >>> wf.linalg.norm(wf.tensor([3.0, 4.0])), wf.linalg.norm(wf.eye(2), ord="nuc")
    (tensor(5.), tensor(2.))
    """
    x = x if dtype is None else x.astype(dtype)
    axis = tuple(axis) if isinstance(axis, list) else axis
    if ord is None:
        return linalg_spectral.vector_norm(x, axis=axis, keepdims=keepdims)
    if axis is None:
        if x.ndim not in (1, 2):
            raise ValueError(
                f"norm: with `ord` but no axis x must be a vector or a matrix. Got {format_shape(x.shape)}."
            )
        axis = tuple(range(x.ndim))
    axes = normalize_axes("norm", axis, x.ndim)
    if len(axes) == 1:
        return linalg_spectral.vector_norm(x, axis=axes[0], keepdims=keepdims, ord=ord)
    if len(axes) != 2:
        raise ValueError(f"norm: expected one axis or two. Got {axis!r}.")
    made = linalg_spectral.matrix_norm(shaping.moveaxis(x, axis, (-2, -1)), ord=ord)
    return shaping.expand_dims(made, tuple(sorted(axes))) if keepdims else made


def cond(x: Tensor, /, p: Any = None) -> Tensor:
    """The condition number of matrices in the norm `p`, by default the ratio of the singular values.

    >>> wf.linalg.cond(wf.tensor([[2.0, 0.0], [0.0, 1.0]]))
    tensor(2.)
    """
    if p in (None, 2, -2):
        values = linalg_spectral.svdvals(x)
        large, small = values[..., 0], values[..., -1]
        return small / large if p == -2 else large / small
    return linalg_spectral.matrix_norm(x, ord=p) * linalg_spectral.matrix_norm(linalg_solve.inv(x), ord=p)


def lstsq(a: Tensor, b: Tensor, /, *, rcond: float | None = None, driver: str | None = None) -> LstsqResult:
    """The solution of `a @ x = b` with the least squares, of several the shortest.

    Args:
        a: (…, m, n).
        b: (…, m, k), or a vector of size m.
        rcond: singular values below this part of the largest count as zero.
        driver: accepted for PyTorch programs.

    >>> wf.linalg.lstsq(wf.tensor([[1.0], [1.0]]), wf.tensor([1.0, 3.0])).solution.round(decimals=3)
    tensor([2.])
    """
    vector = b.ndim == 1 or b.ndim == a.ndim - 1
    right = shaping.expand_dims(b, -1) if vector else b
    solution = products.matmul(linalg_functions.pinv(a, rtol=rcond), right)
    left = right - products.matmul(a, solution)
    m, n = a.shape[-2:]
    rank = linalg_functions.matrix_rank(a, rtol=rcond)
    residuals = reduction.sum((left * left.conj()).real, axis=-2) if m > n else creation.zeros(0, dtype=b.dtype)
    made = shaping.squeeze(solution, -1) if vector else solution
    return LstsqResult(made, residuals, rank, linalg_spectral.svdvals(a))


def multi_dot(tensors: Sequence[Tensor], /) -> Tensor:
    """The product of matrices, in the order that needs the fewest multiplications; vectors may be first and last.

    >>> wf.linalg.multi_dot([wf.ones(2, 3), wf.ones(3, 4), wf.ones(4)]).shape
    (2,)
    """
    from ..aliases.products import chain_matmul

    parts = list(tensors)
    if len(parts) < 2:
        raise ValueError(f"multi_dot: expected at least two tensors. Got {len(parts)}.")
    first, last = parts[0].ndim == 1, parts[-1].ndim == 1
    if first:
        parts[0] = shaping.reshape(parts[0], (1, -1))
    if last:
        parts[-1] = shaping.reshape(parts[-1], (-1, 1))
    made = chain_matmul(*parts)
    axes = tuple([axis for axis, drop in ((0, first), (1, last)) if drop])
    return shaping.squeeze(made, axes) if axes else made


def solve_triangular(a: Tensor, b: Tensor, /, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """Solve `a @ x = b` (or `x @ a = b`) for a triangular matrix; its other half is not read.

    Args:
        a: (…, n, n).
        b: (…, n, k), or (…, k, n) without `left`.
        upper: which half of `a` counts.
        left: whether `a` is the left factor.
        unitriangular: take the diagonal as ones.

    >>> wf.linalg.solve_triangular(wf.tensor([[2.0, 9.0], [0.0, 4.0]]), wf.tensor([[2.0], [4.0]]), upper=True).tolist()
    [[-3.5], [1.0]]
    """
    half = triu(a) if upper else tril(a)
    if unitriangular:
        eye = creation.eye(a.shape[-1], dtype=dtypes.bool_)
        half = where(eye, creation.ones((), dtype=a.dtype), half)
    if left:
        return linalg_solve.solve(half, b)
    turned = linalg_solve.solve(shaping.matrix_transpose(half), shaping.matrix_transpose(b))
    return shaping.matrix_transpose(turned)
