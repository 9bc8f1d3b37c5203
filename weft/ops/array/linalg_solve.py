"""Square matrices: inverse, linear systems, determinant, Cholesky factor, pseudo-inverse, powers.

All functions accept batches of matrices. Half precision is computed in float32.

Note [Conjugates in rules]. The engine expects plain transposes. The rule of a function that conjugates is written in the
usual convention (the gradient of a real loss is ∂L/∂Re + i ∂L/∂Im), with its input and output gradients conjugated;
for real matrices both conjugations do nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ..core.define import composite, primitive
from ..core.registry import joint
from ..core.samples import Bad, Sample
from ..core.spec import Spec, broadcast_shapes, check_integer, number, same_size
from .creation import asarray, eye
from .elementwise import astype, conj, imag, make_complex
from .linalg_structure import diagonal, matrix_shape, tril
from .products import matmul
from .reduction import sum as sum_
from .shaping import broadcast_to, expand_dims, matrix_transpose, squeeze, sum_to_like

ndarray = np.ndarray


class LinAlgError(ValueError):
    """The result does not exist: the matrix is singular or not positive definite, or an iteration did not converge."""


def wide(x: Any) -> ndarray:
    """Convert `x` to a dtype that LAPACK supports."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 else x


def narrow(out: Any, dtype: np.dtype) -> ndarray:
    return np.asarray(out).astype(dtype, copy=False)


def lapack(name: str, problem: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call a NumPy linear-algebra routine and translate its failure to a `LinAlgError` with the text `problem`."""
    try:
        return function(*args, **options)
    except np.linalg.LinAlgError as error:
        raise LinAlgError(f"{name}: {problem} ({error}).") from None


def finite(name: str, x: Any) -> ndarray:
    """Convert `x` for an iterative LAPACK routine, which may not terminate on NaN or infinity: raises for those."""
    x = wide(x)
    if not np.isfinite(x).all():
        raise LinAlgError(f"{name}: the matrix holds NaN or infinite elements. Expected finite numbers.")
    return x


def square_shape(name: str, x: Any) -> Any:
    rows, cols = matrix_shape(name, x)
    if not same_size(rows, cols):
        raise ValueError(f"{name}: expected square matrices. Got shape {format_shape(x.shape)}.")
    return rows


def adjoint(x: Tensor) -> Tensor:
    """The conjugate transpose."""
    x = matrix_transpose(x)
    return conj(x) if dtypes.is_complex(x.dtype) else x


def conjugate(x: Any) -> Any:
    return conj(x) if x is not None and dtypes.is_complex(x.dtype) else x


def symmetric(x: Tensor) -> Tensor:
    return (x + adjoint(x)) / 2


def _infer_square(name: str) -> Any:
    def infer(x: Any) -> Spec:
        square_shape(name, x)
        return Spec(x.shape, x.dtype)

    return infer


def well_conditioned(m: Any, *shape: int) -> ndarray:
    """Random matrices that are far from singular."""
    x = m.normal(*shape)
    return x + 2 * np.eye(shape[-1]) * np.sign(np.trace(x, axis1=-2, axis2=-1))[..., None, None] * 1.5


def complex_matrix(m: Any, *shape: int) -> ndarray:
    return well_conditioned(m, *shape) + 0.5j * m.normal(*shape)


_SINGULAR = "the matrix is singular; use `wf.linalg.pinv` for a least-squares answer"
_square_samples = lambda m: [
    Sample(well_conditioned(m, 3, 3)),
    Sample(well_conditioned(m, 2, 3, 3)),
    Sample(complex_matrix(m, 3, 3)),
    Sample(m.normal(0, 0)),
    Sample(m.normal(0, 2, 2)),
]


def _square_errors(name: str) -> Any:
    return lambda m: [
        Bad(ValueError, f"{name}: expected square matrices", m.normal(2, 3)),
        Bad(ValueError, f"{name}: expected a matrix", m.normal(3)),
    ]


def _cube(x: Any, *_: Any, **__: Any) -> int:
    """Approximate FLOPs of a factorisation of a batch of square matrices."""
    n = 2
    for d in x.shape:
        n *= d
    return n * (x.shape[-1] if x.shape else 1)


# Inverse and systems -------------------------------------------------------------------------------------------------------


@primitive(
    autocast="float32",
    infer=_infer_square("inv"),
    promote="float",
    vjp=lambda g, out: -matmul(matmul(matrix_transpose(out), g), matrix_transpose(out)),
    batch="elementwise",
    cost=_cube,
    reference=np.linalg.inv,
    samples=_square_samples,
    errors=lambda m: [*_square_errors("inv")(m), Bad(ValueError, "inv: the matrix is singular", np.zeros((2, 2)))],
    namespace="linalg",
    tolerance=10,
)
def inv(x: Tensor, /) -> Any:
    """Inverse of (batches of) square matrices.

    Raises:
        LinAlgError: a matrix is singular.

    >>> wf.linalg.inv(wf.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5 , 0.  ],
            [0.  , 0.25]])
    """
    return narrow(lapack("inv", _SINGULAR, np.linalg.inv, wide(x)), x.dtype)


def _infer_solve(x1: Any, x2: Any) -> Spec:
    n = square_shape("solve", x1)
    if x1.shape is None or x2.shape is None:
        return Spec(None, x1.dtype)
    if not x2.shape:
        raise ValueError("solve: x2 must be a vector or a stack of matrices. Got a 0-d tensor.")
    rows = x2.shape[0] if len(x2.shape) == 1 else x2.shape[-2]
    if not same_size(n, rows):
        raise ValueError(
            f"solve: the sizes of the system differ. Got x1 of shape {format_shape(x1.shape)} and x2 of shape "
            f"{format_shape(x2.shape)}; expected x2 with {n} rows."
        )
    if len(x2.shape) == 1:
        return Spec(x1.shape[:-1], x1.dtype)
    batch = broadcast_shapes("solve", x1.shape[:-2], x2.shape[:-2], names=("x1", "x2"))
    return Spec((*batch, *x2.shape[-2:]), x1.dtype)


def _solve_rule(g: Tensor, x1: Tensor, x2: Tensor, out: Tensor, needs: Any) -> tuple[Any, Any]:
    """With A X = B: gB = A⁻ᵀ g and gA = -gB Xᵀ; vectors are columns, batch axes are summed back."""
    vector = x2.ndim == 1
    if vector:
        g, out = expand_dims(g, -1), expand_dims(out, -1)
    gb = solve(matrix_transpose(x1), g)
    ga = None
    if needs[0]:
        ga = sum_to_like(-matmul(gb, matrix_transpose(out)), x1)
    return ga, sum_to_like(squeeze(gb, -1) if vector else gb, x2)


def _solve(x1: Any, x2: Any) -> ndarray:
    vector = x2.ndim == 1
    out = np.linalg.solve(x1, x2[:, None] if vector else x2)
    return out[..., 0] if vector else out


def _batch_solve(axes: Any, tensors: Any, attrs: Any) -> Tensor:
    x1, x2 = tensors
    vector = x2.ndim - (axes[1] is not None) == 1
    if vector:
        x2 = expand_dims(x2, -1)
    rank = max(x1.ndim - (axes[0] is not None), x2.ndim - (axes[1] is not None))
    x1, x2 = (
        expand_dims(t, tuple(range(1, 1 + rank - (t.ndim - 1)))) if a is not None and t.ndim - 1 < rank else t
        for t, a in zip((x1, x2), axes, strict=True)
    )
    out = solve(x1, x2)
    return squeeze(out, -1) if vector else out


@primitive(
    autocast="float32",
    infer=_infer_solve,
    promote="float",
    broadcasts=True,
    vjp=joint(_solve_rule),
    batch=_batch_solve,
    cost=_cube,
    reference=_solve,
    samples=lambda m: [
        Sample(well_conditioned(m, 3, 3), m.normal(3)),
        Sample(well_conditioned(m, 3, 3), m.normal(3, 2)),
        Sample(well_conditioned(m, 2, 3, 3), m.normal(3)),
        Sample(well_conditioned(m, 2, 1, 3, 3), m.normal(4, 3, 2)),
        Sample(complex_matrix(m, 3, 3), m.normal(3, 2) + 1j * m.normal(3, 2)),
        Sample(m.normal(0, 0), m.normal(0, 2)),
    ],
    errors=lambda m: [
        *_square_errors("solve")(m)[:0],
        Bad(ValueError, "solve: the sizes of the system differ", well_conditioned(m, 3, 3), m.normal(2)),
        Bad(ValueError, "solve: expected square", m.normal(2, 3), m.normal(2)),
        Bad(ValueError, "solve: the matrix is singular", np.zeros((2, 2)), m.normal(2)),
    ],
    namespace="linalg",
    tolerance=10,
)
def solve(x1: Tensor, x2: Tensor, /) -> Any:
    """Solve the linear system `x1 @ X = x2`.

    Args:
        x1: square matrices, shape (…, n, n).
        x2: shape (n,), or (…, n, k); leading axes broadcast with those of `x1`.

    Raises:
        LinAlgError: a matrix is singular.

    >>> wf.linalg.solve(wf.tensor([[2.0, 0.0], [0.0, 4.0]]), wf.tensor([2.0, 4.0]))
    tensor([1., 1.])
    """
    return narrow(lapack("solve", _SINGULAR, _solve, wide(x1), wide(x2)), x1.dtype)


# Determinants ----------------------------------------------------------------------------------------------------------------


def _cofactor_array(x: ndarray) -> ndarray:
    """det(x) x⁻ᵀ, which exists for singular matrices too: from the singular values, det(UV) V diag(∏ others) Uᵀ."""
    if x.shape[-1] == 0:
        return x.copy()
    if not np.isfinite(x).all():
        return np.full_like(x, np.nan)
    u, s, vh = np.linalg.svd(x)
    n = s.shape[-1]
    others = np.repeat(s[..., None, :], n, axis=-2)
    others[..., np.arange(n), np.arange(n)] = 1
    scale = np.prod(others, axis=-1) * np.asarray(np.linalg.det(u) * np.linalg.det(vh))[..., None]
    adjugate = np.matmul(np.conj(np.swapaxes(vh, -1, -2)) * scale[..., None, :], np.conj(np.swapaxes(u, -1, -2)))
    return np.swapaxes(adjugate, -1, -2)


def _cofactor_rule(g: Tensor, x: Tensor, out: Tensor) -> Tensor:
    """(⟨g, C⟩ C - C gᵀ C) / det: where the matrix is regular."""
    inner = sum_(g * out, axis=(-2, -1), keepdims=True)
    scale = expand_dims(det(x), (-2, -1))
    return (inner * out - matmul(matmul(out, matrix_transpose(g)), out)) / scale


@primitive(
    infer=_infer_square("det"),
    title="det",
    namespace="internal",
    vjp=_cofactor_rule,
    batch="elementwise",
    cost=_cube,
    reference=lambda x: np.swapaxes(np.linalg.inv(x), -1, -2) * np.asarray(np.linalg.det(x))[..., None, None],
    samples=lambda m: _square_samples(m)[:3],
    tolerance=20,
)
def cofactor(x: Tensor) -> Any:
    """The matrix of cofactors: the gradient of `det`, also where the matrix is singular."""
    return narrow(lapack("det", "the iteration did not converge", _cofactor_array, wide(x)), x.dtype)


def _infer_det(name: str) -> Any:
    def infer(x: Any) -> Spec:
        square_shape(name, x)
        return Spec(None if x.shape is None else x.shape[:-2], x.dtype)

    return infer


@primitive(
    autocast="float32",
    infer=_infer_det("det"),
    promote="float",
    vjp=lambda g, x: expand_dims(g, (-2, -1)) * cofactor(x),
    batch="elementwise",
    cost=_cube,
    reference=np.linalg.det,
    samples=lambda m: [*_square_samples(m), Sample(np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]]))],
    errors=_square_errors("det"),
    namespace="linalg",
    tolerance=20,
    # the second derivative divides by the determinant, which is zero in one sample: see tests/ops/test_linalg.py
    test={"first_order_only": True},
)
def det(x: Tensor, /) -> Any:
    """Determinant of (batches of) square matrices.

    >>> wf.linalg.det(wf.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor(8.)
    """
    return narrow(np.linalg.det(wide(x)), x.dtype)


def _infer_slogdet(x: Any) -> tuple[Spec, Spec]:
    square_shape("slogdet", x)
    shape = None if x.shape is None else x.shape[:-2]
    return Spec(shape, x.dtype), Spec(shape, dtypes.real_dtype(x.dtype))


def _slogdet_rule(g: Any, x: Tensor, outs: Any) -> Tensor:
    """d log|det| = Re tr(x⁻¹ dx), and for complex matrices d sign = i sign Im tr(x⁻¹ dx)."""
    g_sign, g_log = g
    scale = make_complex(g_log, imag(g_sign * outs[0])) if dtypes.is_complex(x.dtype) else g_log
    return expand_dims(scale, (-2, -1)) * matrix_transpose(inv(x))


@primitive(
    name="sign_and_logdet",
    title="slogdet",
    namespace="internal",
    outputs=2,
    infer=_infer_slogdet,
    promote="float",
    vjp=_slogdet_rule,
    batch="elementwise",
    cost=_cube,
    reference=lambda x: tuple(np.linalg.slogdet(x)),
    samples=lambda m: _square_samples(m),
    errors=_square_errors("slogdet"),
    tolerance=10,
)
def sign_and_logdet(x: Tensor) -> Any:
    """The sign of the determinant and the logarithm of its magnitude: the primitive behind `slogdet`."""
    sign, log = np.linalg.slogdet(wide(x))
    return narrow(sign, x.dtype), narrow(log, dtypes.real_dtype(x.dtype))


# Cholesky ------------------------------------------------------------------------------------------------------------------


def _positive(m: Any, *shape: int) -> ndarray:
    x = m.normal(*shape)
    return x @ np.swapaxes(x, -1, -2) + 0.5 * np.eye(shape[-1])


def _cholesky(x: ndarray, upper: bool = False) -> ndarray:
    factor = np.linalg.cholesky((x + np.conj(np.swapaxes(x, -1, -2))) / 2)
    return np.conj(np.swapaxes(factor, -1, -2)) if upper else factor


def _cholesky_rule(g: Tensor, out: Tensor, upper: bool) -> Tensor:
    """gA = L⁻ᴴ Φ(Lᴴ gL) L⁻¹, symmetrised; Φ takes the lower triangle with half the diagonal."""
    g = conjugate(g)
    factor = adjoint(out) if upper else out
    g = adjoint(g) if upper else g
    inner = tril(matmul(adjoint(factor), g))
    half = inner - (diagonal_part(inner) / 2)
    left = solve(adjoint(factor), half)
    return conjugate(symmetric(adjoint(solve(adjoint(factor), adjoint(left)))))


def diagonal_part(x: Tensor) -> Tensor:
    """`x` with everything off the main diagonal set to zero."""
    from .linalg_structure import diag_embed

    return diag_embed(diagonal(x))


def _infer_cholesky(x: Any, upper: Any) -> Spec:
    square_shape("cholesky", x)
    return Spec(x.shape, x.dtype)


@primitive(
    autocast="float32",
    infer=_infer_cholesky,
    promote="float",
    vjp=_cholesky_rule,
    batch="elementwise",
    cost=_cube,
    reference=_cholesky,
    samples=lambda m: [
        Sample(_positive(m, 3, 3)),
        Sample(_positive(m, 2, 3, 3), upper=True),
        Sample(np.array([[2.0, 0.5j], [-0.5j, 3.0]])),
        Sample(m.normal(0, 0)),
    ],
    errors=lambda m: [
        *_square_errors("cholesky")(m),
        Bad(ValueError, "cholesky: the matrix is not positive definite", -np.eye(2)),
    ],
    namespace="linalg",
    tolerance=10,
)
def cholesky(x: Tensor, /, *, upper: bool = False) -> Any:
    """Cholesky factor of (batches of) Hermitian positive-definite matrices.

    Args:
        x: shape (…, n, n). Only the Hermitian part (x + x.H) / 2 is used, so the gradient is symmetric too.
        upper: return the upper U with `U.H @ U = x` instead of the lower L with `L @ L.H = x`.

    Raises:
        LinAlgError: a matrix is not positive definite.

    >>> wf.linalg.cholesky(wf.tensor([[4.0, 2.0], [2.0, 5.0]]))
    tensor([[2., 0.],
            [1., 2.]])
    """
    return narrow(lapack("cholesky", "the matrix is not positive definite", _cholesky, wide(x), upper), x.dtype)


# Pseudo-inverse and powers ---------------------------------------------------------------------------------------------------


def _pinv_rule(g: Tensor, x: Tensor, out: Tensor) -> Tensor:
    """-Pᴴ g Pᴴ + (I - A P) gᴴ P Pᴴ + Pᴴ P gᴴ (I - P A), the rank being constant."""
    g = conjugate(g)
    p, ph, gh = out, adjoint(out), adjoint(g)
    first = -matmul(matmul(ph, g), ph)
    right = matmul(gh, matmul(p, ph))
    left = matmul(matmul(ph, p), gh)
    return conjugate(first + right - matmul(x, matmul(p, right)) + left - matmul(matmul(left, p), x))


def _infer_pinv(x: Any, rtol: Any) -> Spec:
    rows, cols = matrix_shape("pinv", x)
    if rtol is not None:
        if dtypes.is_complex(rtol.dtype):
            raise TypeError("pinv: rtol must be real. Got a complex tensor.")
        if x.shape is not None and rtol.shape is not None:
            broadcast_shapes("pinv", x.shape[:-2], rtol.shape, names=("x", "rtol"))
    return Spec(None if x.shape is None else (*x.shape[:-2], cols, rows), x.dtype)


def batch_with_rtol(op: Any) -> Any:
    """Batching rule for (matrices, rtol): a tolerance per example is aligned with the batch axis."""

    def rule(axes: Any, tensors: Any, attrs: Any) -> Tensor:
        x, rtol = tensors
        if axes[0] is None:
            x = broadcast_to(x, (rtol.shape[0], *x.shape))
        if axes[1] is not None:
            missing = (x.ndim - 3) - (rtol.ndim - 1)
            rtol = expand_dims(rtol, tuple(range(1, 1 + missing))) if missing > 0 else rtol
        return op()(x, rtol)

    return rule


def default_rtol(shape: Any, dtype: np.dtype) -> float:
    return max(shape[-2:]) * float(np.finfo(np.float32 if dtype.itemsize == 2 else dtype).eps)


def _pinv(x: ndarray, rtol: Any = None) -> ndarray:
    rtol = default_rtol(x.shape, x.dtype) if rtol is None else np.asarray(rtol)
    if 0 in x.shape[-2:]:
        return np.zeros((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype)
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    keep = s > np.asarray(rtol)[..., None] * s.max(axis=-1, keepdims=True)
    inverse = np.where(keep, 1 / np.where(keep, s, 1), 0).astype(s.dtype)
    return np.matmul(np.conj(np.swapaxes(vh, -1, -2)) * inverse[..., None, :], np.conj(np.swapaxes(u, -1, -2)))


@primitive(
    name="pseudo_inverse",
    title="pinv",
    namespace="internal",
    infer=_infer_pinv,
    vjp=(_pinv_rule, None),
    batch=batch_with_rtol(lambda: pseudo_inverse),
    cost=_cube,
    reference=_pinv,
    samples=lambda m: [
        Sample(m.normal(3, 3)),
        Sample(m.normal(4, 2)),
        Sample(m.normal(2, 2, 4)),
        Sample(m.normal(3, 2) + 1j * m.normal(3, 2)),
        Sample(m.normal(0, 2)),
    ],
    errors=lambda m: [Bad(ValueError, "pinv: expected a matrix", m.normal(3))],
    tolerance=20,
    test={"differentiable_inputs": (0,), "gradient_tolerance": 1e-4},
)
def pseudo_inverse(x: Tensor, rtol: Tensor | None = None) -> Any:
    """The Moore–Penrose pseudo-inverse: the primitive behind `pinv`."""
    return narrow(lapack("pinv", "the iteration did not converge", _pinv, finite("pinv", x), rtol), x.dtype)


def rtol_of(name: str, rtol: Any) -> Any:
    if rtol is None or isinstance(rtol, Tensor):
        return rtol
    return asarray(number(name, "rtol", rtol, least=0), dtype=dtypes.float64)


@composite(
    accumulate="float32",
    reference=lambda x, n: np.linalg.matrix_power(x, n),
    samples=lambda m: [
        Sample(well_conditioned(m, 3, 3), 3),
        Sample(well_conditioned(m, 2, 3, 3), 0),
        Sample(well_conditioned(m, 2, 2), -2),
        Sample(well_conditioned(m, 2, 2), 1),
        Sample(well_conditioned(m, 2, 2), 6),
    ],
    errors=lambda m: [
        *_square_errors("matrix_power")(m)[:0],
        Bad(ValueError, "matrix_power: expected square", m.normal(2, 3), 2),
        Bad(TypeError, "matrix_power: n must be an integer", m.normal(2, 2), 0.5),
    ],
    namespace="linalg",
    tolerance=50,
)
def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """Integer power of (batches of) square matrices; negative powers invert first.

    >>> wf.linalg.matrix_power(wf.tensor([[1.0, 1.0], [0.0, 1.0]]), 3)
    tensor([[1., 3.],
            [0., 1.]])
    """
    square_shape("matrix_power", x)
    n = check_integer("matrix_power", n, "n")
    if not (dtypes.is_integral(x.dtype) and n >= 0):
        x = astype(x, dtypes.float_for(x.dtype))
    if n == 0:
        return broadcast_to(eye(x.shape[-1], dtype=x.dtype), tuple(x.shape))
    if n < 0:
        x, n = inv(x), -n
    result = None
    while n:  # square and multiply
        if n & 1:
            result = x if result is None else matmul(result, x)
        n >>= 1
        if n:
            x = matmul(x, x)
    assert result is not None
    return result
