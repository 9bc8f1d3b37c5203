"""Spectral decompositions (eigenvalues, singular values), QR, matrix norms and rank.

Eigenvectors, singular vectors and Q are unique only up to signs (phases for complex matrices). Gradients are those of
functions that do not depend on that choice, and do not exist where eigenvalues or singular values coincide. A loss that
depends on the phases of complex vectors is refused (`_phase_free`).
Rules that conjugate follow Note [Conjugates in rules].
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ..core.define import composite, primitive
from ..core.registry import NOT_DIFFERENTIABLE
from ..core.samples import Bad, Sample
from ..core.spec import Spec, normalize_axes
from .check_values import require
from .creation import eye
from .elementwise import abs_, astype, conj, imag, norm_sqrt, real, sign, square, where
from .indexing import slice_axis
from .linalg_solve import (
    adjoint,
    batch_with_rtol,
    conjugate,
    default_rtol,
    diagonal_part,
    finite,
    lapack,
    narrow,
    solve,
    square_shape,
    symmetric,
    wide,
)
from .linalg_structure import diag_embed, diagonal, matrix_shape, triu
from .products import matmul
from .reduction import max_, min_
from .reduction import sum as sum_
from .shaping import concat_axis, expand_dims

ndarray = np.ndarray
_DIVERGED = "the iteration did not converge"


def _cost(x: Any, *_: Any) -> int:
    """Approximate FLOPs of an iterative factorisation of a batch of matrices."""
    n = 10 * min(x.shape[-2:])
    for d in x.shape:
        n *= d
    return n


def _scaled(columns: Tensor, factors: Tensor) -> Tensor:
    """`columns @ diag(factors)`."""
    return columns * expand_dims(factors, -2)


def _phase_free(name: str, what: str, gradient: Tensor, *changes: Tensor) -> Tensor:
    """`gradient`; raises if the loss depends on the phases of complex vectors.

    `changes` are diag(Vᴴ gV) of the vectors that have a phase in common: the imaginary part of their sum is how the loss
    changes with it. Rounding makes it small, not zero.
    """
    if not dtypes.is_complex(changes[0].dtype):
        return gradient
    phase, size = imag(changes[0]), abs_(changes[0])
    for change in changes[1:]:
        phase, size = phase + imag(change), size + abs_(change)
    excess = abs_(phase) - 1e-3 * size
    message = (
        f"backward of {name}: {what} are known up to a factor exp(iφ) each, and the loss depends on these factors, so it has no "
        "gradient. Use what they do not change: absolute values, or products such as `v @ v.mH`."
    )
    checked = require(excess, lambda e: (e > 1e-2) == False, message)  # noqa: E712 (NaN passes, and both kinds know ==)
    return gradient + astype(0.0 * checked, gradient.dtype)


def _errors(name: str, square: bool = True) -> Any:
    def make(m: Any) -> list[Bad]:
        bad = [Bad(ValueError, f"{name}: expected a matrix", m.normal(3))]
        return [*bad, Bad(ValueError, f"{name}: expected square matrices", m.normal(2, 3))] if square else bad

    return make


def _spread_matrix(m: Any, *shape: int) -> ndarray:
    """Random matrices with well-separated eigenvalues and singular values."""
    return m.normal(*shape) * 0.3 + np.eye(shape[-2], shape[-1]) * np.arange(1.0, 1 + shape[-1])


# Symmetric eigenvalues -----------------------------------------------------------------------------------------------------


def _hermitian_part(x: ndarray) -> ndarray:
    return (x + np.conj(np.swapaxes(x, -1, -2))) / 2


def _infer_eigh(x: Any) -> tuple[Spec, Spec]:
    square_shape("eigh", x)
    return Spec(None if x.shape is None else x.shape[:-1], dtypes.real_dtype(x.dtype)), Spec(x.shape, x.dtype)


def _reciprocal_gaps(values: Tensor) -> Tensor:
    """1 / (λⱼ - λᵢ) off the diagonal, 0 on it."""
    gaps = expand_dims(values, -2) - expand_dims(values, -1)
    same = astype(eye(values.shape[-1], dtype=dtypes.bool_), dtypes.bool_)
    return where(same, 0.0, 1 / where(same, 1.0, gaps))


def _eigh_rule(g: Any, outs: Any) -> Tensor:
    """gA = V (diag(gw) + (Vᴴ gV) / (wⱼ - wᵢ)) Vᴴ, symmetrised."""
    values, vectors = outs
    gw, gv = g[0], conjugate(g[1])
    inner = matmul(adjoint(vectors), gv)
    gw = _phase_free("eigh", "eigenvectors of a complex matrix", gw, diagonal(inner))
    inner = inner * _reciprocal_gaps(values) + diag_embed(gw)
    return conjugate(symmetric(matmul(matmul(vectors, inner), adjoint(vectors))))


@primitive(
    autocast="float32",
    name="eigh_pair",
    title="eigh",
    namespace="internal",
    outputs=2,
    infer=_infer_eigh,
    promote="float",
    vjp=_eigh_rule,
    batch="elementwise",
    cost=_cost,
    reference=lambda x: tuple(np.linalg.eigh(_hermitian_part(x))),
    samples=lambda m: [Sample(_spread_matrix(m, 3, 3)), Sample(_spread_matrix(m, 2, 3, 3)), Sample(m.normal(0, 0))],
    errors=_errors("eigh"),
    tolerance=20,
    test={"gradient_tolerance": 1e-4},
)
def eigh_pair(x: Tensor) -> Any:
    """The eigenvalues and eigenvectors of Hermitian matrices: the primitive behind `eigh`."""
    w, v = lapack("eigh", _DIVERGED, np.linalg.eigh, _hermitian_part(finite("eigh", x)))
    return narrow(w, dtypes.real_dtype(x.dtype)), narrow(v, x.dtype)


def _eigvalsh_rule(g: Tensor, x: Tensor) -> Tensor:
    vectors = eigh_pair(x)[1]
    return conjugate(symmetric(matmul(_scaled(vectors, astype(g, vectors.dtype)), adjoint(vectors))))


def _infer_eigvalsh(x: Any) -> Spec:
    square_shape("eigvalsh", x)
    return Spec(None if x.shape is None else x.shape[:-1], dtypes.real_dtype(x.dtype))


@primitive(
    autocast="float32",
    infer=_infer_eigvalsh,
    promote="float",
    vjp=_eigvalsh_rule,
    batch="elementwise",
    cost=_cost,
    reference=lambda x: np.linalg.eigvalsh(_hermitian_part(x)),
    samples=lambda m: [
        Sample(_spread_matrix(m, 3, 3)),
        Sample(_spread_matrix(m, 2, 3, 3)),
        Sample(_spread_matrix(m, 3, 3) + 0.3j * m.normal(3, 3)),
    ],
    errors=_errors("eigvalsh"),
    namespace="linalg",
    tolerance=20,
    test={"gradient_tolerance": 1e-4},
)
def eigvalsh(x: Tensor, /) -> Any:
    """Eigenvalues of Hermitian matrices, ascending; only the Hermitian part (x + x.H) / 2 is used."""
    w = lapack("eigvalsh", _DIVERGED, np.linalg.eigvalsh, _hermitian_part(finite("eigvalsh", x)))
    return narrow(w, dtypes.real_dtype(x.dtype))


# General eigenvalues ---------------------------------------------------------------------------------------------------------


def _infer_eig(x: Any) -> tuple[Spec, Spec]:
    square_shape("eig", x)
    dtype = dtypes.complex_dtype(x.dtype)
    return Spec(None if x.shape is None else x.shape[:-1], dtype), Spec(x.shape, dtype)


def _eig_rule(g: Any, like_x: Any, outs: Any) -> Tensor:
    """gA = V⁻ᴴ (diag(gλ) + (Vᴴ gV - VᴴV diag(Re Vᴴ gV)) / conj(λⱼ - λᵢ)) Vᴴ for eigenvectors of norm 1."""
    values, vectors = outs
    gw, gv = conjugate(g[0]), conjugate(g[1])
    vh = adjoint(vectors)
    inner = matmul(vh, gv)
    gw = _phase_free("eig", "complex eigenvectors", gw, diagonal(inner))
    inner = inner - _scaled(matmul(vh, vectors), astype(real(diagonal(inner)), inner.dtype))
    inner = inner * conj(_reciprocal_gaps(values)) + diag_embed(gw)
    out = conj(solve(vh, matmul(inner, vh)))
    return out if dtypes.is_complex(like_x.dtype) else real(out)


def _eig(x: ndarray) -> tuple[ndarray, ndarray]:
    w, v = np.linalg.eig(x)
    dtype = np.result_type(x.dtype, np.complex64)
    return w.astype(dtype), v.astype(dtype)


@primitive(
    name="eig_pair",
    title="eig",
    namespace="internal",
    outputs=2,
    infer=_infer_eig,
    promote="float",
    vjp=_eig_rule,
    batch="elementwise",
    cost=_cost,
    reference=_eig,
    samples=lambda m: [
        Sample(_spread_matrix(m, 3, 3)),
        Sample(_spread_matrix(m, 2, 3, 3)),
        Sample(np.array([[0.0, -1.0], [1.0, 0.0]])),
    ],
    errors=_errors("eig"),
    tolerance=50,
    # the phase LAPACK chooses is not the one the rule assumes: checked on functions that do not depend on it
    test={"no_gradient": True},
)
def eig_pair(x: Tensor) -> Any:
    """The (complex) eigenvalues and eigenvectors of square matrices: the primitive behind `eig`."""
    w, v = lapack("eig", _DIVERGED, _eig, finite("eig", x))
    dtype = dtypes.complex_dtype(x.dtype)
    return narrow(w, dtype), narrow(v, dtype)


def _infer_eigvals(x: Any) -> Spec:
    square_shape("eigvals", x)
    return Spec(None if x.shape is None else x.shape[:-1], dtypes.complex_dtype(x.dtype))


def _eigvals_rule(g: Tensor, x: Tensor) -> Tensor:
    vectors = eig_pair(x)[1]
    vh = adjoint(vectors)
    out = conj(solve(vh, expand_dims(conj(g), -1) * vh))
    return out if dtypes.is_complex(x.dtype) else real(out)


@primitive(
    infer=_infer_eigvals,
    promote="float",
    vjp=_eigvals_rule,
    batch="elementwise",
    cost=_cost,
    reference=lambda x: np.linalg.eigvals(x).astype(np.complex128),
    samples=lambda m: [
        Sample(_spread_matrix(m, 3, 3)),
        Sample(_spread_matrix(m, 2, 3, 3)),
        Sample(_spread_matrix(m, 3, 3) + 0.3j * m.normal(3, 3)),
        Sample(np.array([[0.0, -1.0], [1.0, 0.0]])),
    ],
    errors=_errors("eigvals"),
    namespace="linalg",
    tolerance=50,
    test={"gradient_tolerance": 1e-4},
)
def eigvals(x: Tensor, /) -> Any:
    """Complex eigenvalues of square matrices, in no particular order."""
    w = lapack("eigvals", _DIVERGED, np.linalg.eigvals, finite("eigvals", x))
    return np.asarray(w).astype(dtypes.complex_dtype(x.dtype))


# Singular values -------------------------------------------------------------------------------------------------------------


def _infer_svd(x: Any, full_matrices: Any) -> tuple[Spec, Spec, Spec]:
    rows, cols = matrix_shape("svd", x)
    dtype = dtypes.real_dtype(x.dtype)
    if x.shape is None:
        return Spec(None, x.dtype), Spec(None, dtype), Spec(None, x.dtype)
    lead = x.shape[:-2]
    k = min(rows, cols) if isinstance(rows, int) and isinstance(cols, int) else None
    u_cols, v_rows = (rows, cols) if full_matrices else (k, k)
    return Spec((*lead, rows, u_cols), x.dtype), Spec((*lead, k), dtype), Spec((*lead, v_rows, cols), x.dtype)


def _svd_rule(g: Any, like_x: Any, outs: Any, full_matrices: bool) -> Tensor:
    """With A = U S Vᴴ and skew(X) = X - Xᴴ, E = sⱼ² - sᵢ²:

    gA = U ((skew(Uᴴ gU) / E) S + S (skew(Vᴴ gV) / E) + diag(gS)) Vᴴ
         + (I - U Uᴴ) gU S⁻¹ Vᴴ + U S⁻¹ gVᴴ (I - V Vᴴ);
    complex matrices add the phase term diag(skew(Uᴴ gU)) / (2 S) on the diagonal.
    """
    u, s, vh = outs
    gu, gs, gvh = conjugate(g[0]), g[1], conjugate(g[2])
    rows, cols = like_x.shape[-2:]
    k = min(rows, cols)
    if full_matrices and rows != cols:  # the columns that A does not determine carry no gradient
        u, gu = slice_axis(u, -1, 0, k), slice_axis(gu, -1, 0, k)
        vh, gvh = slice_axis(vh, -2, 0, k), slice_axis(gvh, -2, 0, k)
    gaps = _reciprocal_gaps(square(s))
    uhgu = matmul(adjoint(u), gu)
    vhgv = matmul(vh, adjoint(gvh))
    gs = _phase_free("svd", "pairs of singular vectors of a complex matrix", gs, diagonal(uhgu), diagonal(vhgv))
    skew_u, skew_v = uhgu - adjoint(uhgu), vhgv - adjoint(vhgv)
    inner = _scaled(skew_u * gaps, s) + expand_dims(s, -1) * (skew_v * gaps) + diag_embed(gs)
    if dtypes.is_complex(u.dtype):
        inner = inner + _scaled(diagonal_part(skew_u), 0.5 / s)
    out = matmul(u, inner)
    if rows > k:
        rest = _scaled(gu, 1 / s)
        out = out + rest - matmul(u, matmul(adjoint(u), rest))
    out = matmul(out, vh)
    if cols > k:
        rest = matmul(u, expand_dims(1 / s, -1) * gvh)
        out = out + rest - matmul(matmul(rest, adjoint(vh)), vh)
    return conjugate(out)


@primitive(
    autocast="float32",
    name="svd_triple",
    title="svd",
    namespace="internal",
    outputs=3,
    infer=_infer_svd,
    promote="float",
    vjp=_svd_rule,
    batch="elementwise",
    cost=_cost,
    reference=lambda x, full_matrices=True: tuple(np.linalg.svd(x, full_matrices)),
    samples=lambda m: [
        Sample(_spread_matrix(m, 3, 3)),
        Sample(_spread_matrix(m, 4, 3), full_matrices=False),
        Sample(_spread_matrix(m, 2, 2, 3), full_matrices=False),
    ],
    errors=_errors("svd", False),
    tolerance=20,
    test={"gradient_tolerance": 1e-4},
)
def svd_triple(x: Tensor, full_matrices: bool = True) -> Any:
    """U, the singular values and Vᴴ: the primitive behind `svd`."""
    u, s, vh = lapack("svd", _DIVERGED, np.linalg.svd, finite("svd", x), full_matrices)
    return narrow(u, x.dtype), narrow(s, dtypes.real_dtype(x.dtype)), narrow(vh, x.dtype)


def _svdvals_rule(g: Tensor, x: Tensor) -> Tensor:
    u, _, vh = svd_triple(x, False)
    return conjugate(matmul(_scaled(u, astype(g, u.dtype)), vh))


def _infer_svdvals(x: Any) -> Spec:
    return _infer_named_svd("svdvals", x)[1]


def _infer_named_svd(name: str, x: Any) -> tuple[Spec, Spec, Spec]:
    matrix_shape(name, x)
    return _infer_svd(x, False)


@primitive(
    infer=_infer_svdvals,
    promote="float",
    vjp=_svdvals_rule,
    batch="elementwise",
    cost=_cost,
    reference=lambda x: np.linalg.svd(x, compute_uv=False),
    samples=lambda m: [
        Sample(_spread_matrix(m, 3, 3)),
        Sample(_spread_matrix(m, 2, 4, 3)),
        Sample(_spread_matrix(m, 2, 3) + 0.3j * m.normal(2, 3)),
    ],
    errors=_errors("svdvals", False),
    namespace="linalg",
    tolerance=20,
    test={"gradient_tolerance": 1e-4},
)
def svdvals(x: Tensor, /) -> Any:
    """Singular values of matrices, descending.

    >>> wf.linalg.svdvals(wf.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor([4., 3.])
    """
    s = lapack("svdvals", _DIVERGED, np.linalg.svd, finite("svdvals", x), compute_uv=False)
    return narrow(s, dtypes.real_dtype(x.dtype))


# QR --------------------------------------------------------------------------------------------------------------------------


def _infer_qr(x: Any, mode: Any) -> tuple[Spec, Spec]:
    if mode not in ("reduced", "complete"):
        raise ValueError(f"qr: mode must be 'reduced' or 'complete'. Got {mode!r}.")
    rows, cols = matrix_shape("qr", x)
    if x.shape is None:
        return Spec(None, x.dtype), Spec(None, x.dtype)
    lead = x.shape[:-2]
    known = isinstance(rows, int) and isinstance(cols, int)
    k = rows if mode == "complete" else min(rows, cols) if known else None
    return Spec((*lead, rows, k), x.dtype), Spec((*lead, k, cols), x.dtype)


def _tall_qr_rule(gq: Tensor, gr: Tensor, q: Tensor, r: Tensor) -> Tensor:
    """(gQ + Q S(triu(gR Rᴴ - Qᴴ gQ))) R⁻ᴴ where S(X) = X + Xᴴ with half the diagonal; R is square."""
    inner = triu(matmul(gr, adjoint(r)) - matmul(adjoint(q), gq))
    inner = inner + adjoint(inner)
    inner = inner - diagonal_part(inner) / 2
    return adjoint(solve(r, adjoint(gq + matmul(q, inner))))


def _qr_rule(g: Any, x: Tensor, outs: Any, mode: str) -> Tensor:
    """A wide matrix is [X | Y] with X = Q U and Y = Q V: Y's gradient is Q gV, and it adds Y gVᴴ to gQ."""
    q, r = outs
    gq, gr = conjugate(g[0]), conjugate(g[1])
    rows, cols = x.shape[-2:]
    if rows > cols and mode == "complete":
        raise RuntimeError(
            f"qr: mode='complete' has no gradient for more rows than columns. Got shape {format_shape(x.shape)}; "
            "use mode='reduced'."
        )
    if rows >= cols:
        return conjugate(_tall_qr_rule(gq, gr, q, r))
    gv = slice_axis(gr, -1, rows, None)
    gq = gq + matmul(slice_axis(x, -1, rows, None), adjoint(gv))
    left = _tall_qr_rule(gq, slice_axis(gr, -1, 0, rows), q, slice_axis(r, -1, 0, rows))
    return conjugate(concat_axis((left, matmul(q, gv)), -1))


@primitive(
    autocast="float32",
    name="qr_pair",
    title="qr",
    namespace="internal",
    outputs=2,
    infer=_infer_qr,
    promote="float",
    vjp=_qr_rule,
    batch="elementwise",
    cost=_cost,
    reference=lambda x, mode="reduced": tuple(np.linalg.qr(x, mode)),
    samples=lambda m: [
        Sample(_spread_matrix(m, 3, 3)),
        Sample(_spread_matrix(m, 2, 4, 3)),
        Sample(_spread_matrix(m, 2, 4)),
        Sample(_spread_matrix(m, 2, 3), mode="complete"),
        Sample(_spread_matrix(m, 4, 3) + 0.3j * m.normal(4, 3)),
    ],
    errors=lambda m: [*_errors("qr", False)(m), Bad(ValueError, "qr: mode must be", m.normal(2, 2), mode="full")],
    tolerance=20,
    test={"gradient_tolerance": 1e-4},
)
def qr_pair(x: Tensor, mode: str = "reduced") -> Any:
    """Q and R: the primitive behind `qr`."""
    q, r = lapack("qr", "the factorisation failed", np.linalg.qr, wide(x), mode)
    return narrow(q, x.dtype), narrow(r, x.dtype)


# Norms and rank ----------------------------------------------------------------------------------------------------------------


def _magnitude(x: Tensor) -> Tensor:
    return abs_(x)


def _squares(x: Tensor) -> Tensor:
    return square(abs_(x)) if dtypes.is_complex(x.dtype) else square(x)


def _vector_norm_reference(x: Any, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    return np.linalg.vector_norm(x, axis=axis, keepdims=keepdims, ord=ord)


@composite(
    accumulate="float32",
    reference=_vector_norm_reference,
    samples=lambda m: [
        Sample(m.normal(4)),
        Sample(m.normal(2, 3), axis=0),
        Sample(m.normal(2, 3, 2), axis=(0, 2), keepdims=True),
        Sample(m.positive(5), ord=1),
        Sample(m.positive(5), ord=3.5),
        Sample(m.positive(5), ord=math.inf),
        Sample(m.positive(5), ord=-math.inf),
        Sample(m.positive(5), ord=-2),
        Sample(m.positive(5), ord=0),
        Sample(m.normal(3) + 1j * m.normal(3)),
        Sample(m.normal(2, 3), keepdims=True),
    ],
    errors=lambda m: [
        Bad(IndexError, "vector_norm: axis 2", m.normal(2, 3), axis=2),
        Bad(TypeError, "vector_norm: ord must be a number", m.normal(2, 3), ord="fro"),
    ],
    namespace="linalg",
    tolerance=5,
)
def vector_norm(
    x: Tensor, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False, ord: int | float = 2
) -> Tensor:
    """Vector norm over `axis` (all by default): (Σ |x|^ord)^(1/ord).

    Args:
        x: any shape.
        axis: an axis or a tuple of axes; all axes by default.
        keepdims: keep the reduced axes with size 1.
        ord: the order; ±inf is the largest or smallest magnitude, 0 the number of non-zero elements.

    >>> wf.linalg.vector_norm(wf.tensor([3.0, 4.0]))
    tensor(5.)
    """
    if isinstance(ord, bool) or not isinstance(ord, (int, float)):
        raise TypeError(f"vector_norm: ord must be a number. Got {ord!r}.")
    x = astype(x, dtypes.float_for(x.dtype))
    axis = tuple(axis) if isinstance(axis, list) else axis
    normalize_axes("vector_norm", axis, x.ndim)
    if ord == 2:
        return norm_sqrt(sum_(_squares(x), axis=axis, keepdims=keepdims))
    size = _magnitude(x)
    if ord == math.inf:
        return max_(size, axis=axis, keepdims=keepdims)
    if ord == -math.inf:
        return min_(size, axis=axis, keepdims=keepdims)
    if ord == 1:
        return sum_(size, axis=axis, keepdims=keepdims)
    if ord == 0:
        return sum_(sign(size), axis=axis, keepdims=keepdims)  # a count, whose gradient is 0
    if ord < 1:  # the unbounded slope of a zero counts as 0
        none = size == 0
        size = where(none, 0.0 if ord > 0 else math.inf, where(none, 1.0, size) ** ord)
    else:
        size = size**ord
    total = sum_(size, axis=axis, keepdims=keepdims)
    if ord < 0:
        return total ** (1 / ord)
    zero = total == 0
    return where(zero, 0.0, where(zero, 1.0, total) ** (1 / ord))


def _matrix_norm_reference(x: Any, keepdims: bool = False, ord: Any = "fro") -> Any:
    return np.linalg.norm(x, ord, (-2, -1), keepdims)


@composite(
    accumulate="float32",
    reference=_matrix_norm_reference,
    samples=lambda m: [
        Sample(_spread_matrix(m, 3, 3)),
        *[Sample(_spread_matrix(m, 2, 3, 4), ord=o) for o in ("nuc", 1, -1, 2, -2, math.inf, -math.inf)],
        Sample(_spread_matrix(m, 2, 3), keepdims=True),
        Sample(_spread_matrix(m, 2, 3), keepdims=True, ord=2),
        Sample(m.normal(2, 2) + 1j * m.normal(2, 2)),
    ],
    errors=lambda m: [
        Bad(ValueError, "matrix_norm: expected a matrix", m.normal(3)),
        Bad(ValueError, "matrix_norm: ord must be one of", m.normal(3, 3), ord=3),
    ],
    namespace="linalg",
    tolerance=20,
    test={"gradient_tolerance": 1e-4},
)
def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: int | float | str | None = "fro") -> Tensor:
    """Norm of (batches of) matrices.

    Args:
        x: shape (…, m, n).
        keepdims: keep the reduced axes with size 1.
        ord: "fro" (Frobenius), "nuc" (sum of singular values), 1 and inf (largest column and row sum), 2 (largest
            singular value); -1, -inf and -2 are the smallest.

    >>> wf.linalg.matrix_norm(wf.ones(2, 2))
    tensor(2.)
    """
    matrix_shape("matrix_norm", x)
    x = astype(x, dtypes.float_for(x.dtype))
    if ord is None or ord == "fro":
        return norm_sqrt(sum_(_squares(x), axis=(-2, -1), keepdims=keepdims))
    if ord in ("nuc", 2, -2):
        s = svdvals(x)
        out = sum_(s, axis=-1) if ord == "nuc" else max_(s, axis=-1) if ord == 2 else min_(s, axis=-1)
    elif ord in (1, -1, math.inf, -math.inf):
        sums = sum_(_magnitude(x), axis=-2 if abs(ord) == 1 else -1)
        out = (max_ if ord > 0 else min_)(sums, axis=-1)
    else:
        raise ValueError(f"matrix_norm: ord must be one of 'fro', 'nuc', 1, -1, 2, -2, inf, -inf. Got {ord!r}.")
    return expand_dims(out, (-2, -1)) if keepdims else out


def _infer_rank(x: Any, rtol: Any) -> Spec:
    matrix_shape("matrix_rank", x)
    return Spec(None if x.shape is None else x.shape[:-2], dtypes.int64)


def _rank(x: Any, rtol: Any = None) -> ndarray:
    rtol = default_rtol(x.shape, x.dtype) if rtol is None else np.asarray(rtol)
    if 0 in x.shape[-2:]:
        return np.zeros(x.shape[:-2], np.int64)
    s = np.linalg.svd(x, compute_uv=False)
    keep = s > np.asarray(rtol)[..., None] * s.max(axis=-1, keepdims=True)
    return np.asarray(np.count_nonzero(keep, axis=-1), np.int64)


@primitive(
    name="numeric_rank",
    title="matrix_rank",
    namespace="internal",
    infer=_infer_rank,
    vjp=NOT_DIFFERENTIABLE,
    batch=batch_with_rtol(lambda: numeric_rank),
    cost=_cost,
    reference=_rank,
    samples=lambda m: [
        Sample(m.normal(3, 3)),
        Sample(np.ones((2, 3, 4))),
        Sample(np.diag([1.0, 1e-3, 0.0]), np.array(0.01)),
        Sample(m.normal(0, 3)),
    ],
    errors=_errors("matrix_rank", False),
)
def numeric_rank(x: Tensor, rtol: Tensor | None = None) -> Any:
    """The number of singular values above `rtol` times the largest: the primitive behind `matrix_rank`."""
    return lapack("matrix_rank", _DIVERGED, _rank, finite("matrix_rank", x), rtol)
