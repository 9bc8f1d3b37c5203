"""Matrix functions that need no factorisation: triangles, diagonals, trace, outer and cross products."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import format_shape
from ...tensor import Tensor
from ...typing import DTypeLike
from ..core.define import composite, primitive
from ..core.samples import Bad, Sample
from ..core.spec import Spec, broadcast_shapes, check_integer, is_known, normalize_axis, require_sizes, same_size
from .indexing import slice_axis
from .reduction import sum as sum_
from .shaping import as_tensor, concat_axis, expand_dims, reshape


def matrix_shape(name: str, x: Any) -> Any:
    """The last two sizes of (batches of) matrices; raises if there are fewer than two axes."""
    if x.shape is None:
        return None, None
    if len(x.shape) < 2:
        raise ValueError(f"{name}: expected a matrix or a stack of matrices. Got shape {format_shape(x.shape)}.")
    return x.shape[-2], x.shape[-1]


def offset_of(name: str, value: Any, what: str = "k") -> int:
    """The index of a diagonal as an int in NumPy's range."""
    return max(min(check_integer(name, value, what), 2**31), -(2**31))


# Triangles ---------------------------------------------------------------------------------------------------------------


def _infer_triangle(name: str) -> Any:
    def infer(x: Any, k: Any) -> Spec:
        matrix_shape(name, x)
        offset_of(name, k)
        return Spec(x.shape, x.dtype)

    return infer


_triangle_samples = lambda m: [
    Sample(m.normal(3, 3)),
    Sample(m.normal(2, 3, 4), k=1),
    Sample(m.normal(4, 2), k=-1),
    Sample(m.normal(0, 2)),
    Sample(m.bools(3, 3)),
]


@primitive(
    accumulate="exact",
    cost="move",
    infer=_infer_triangle("tril"),
    checks_once=True,
    vjp=lambda g, k: tril(g, k=k),
    batch="elementwise",
    reference=lambda x, k=0: np.tril(x, k),
    samples=_triangle_samples,
    errors=lambda m: [
        Bad(ValueError, "tril: expected a matrix", m.normal(3)),
        Bad(TypeError, "tril: k must be an integer", m.normal(2, 2), k=0.5),
    ],
)
def tril(x: Tensor, /, *, k: int = 0) -> Any:
    """Lower triangle of (batches of) matrices: zero above the `k`-th diagonal.

    >>> wf.tril(wf.ones(2, 2))
    tensor([[1., 0.],
            [1., 1.]])
    """
    return np.tril(x, offset_of("tril", k))


@primitive(
    accumulate="exact",
    cost="move",
    infer=_infer_triangle("triu"),
    checks_once=True,
    vjp=lambda g, k: triu(g, k=k),
    batch="elementwise",
    reference=lambda x, k=0: np.triu(x, k),
    samples=_triangle_samples,
    errors=lambda m: [
        Bad(ValueError, "triu: expected a matrix", m.normal(3)),
        Bad(TypeError, "triu: k must be an integer", m.normal(2, 2), k=0.5),
    ],
)
def triu(x: Tensor, /, *, k: int = 0) -> Any:
    """Upper triangle of (batches of) matrices: zero below the `k`-th diagonal.

    >>> wf.triu(wf.ones(2, 2), k=1)
    tensor([[0., 1.],
            [0., 0.]])
    """
    return np.triu(x, offset_of("triu", k))


# Diagonals ---------------------------------------------------------------------------------------------------------------


def _diagonal_length(rows: Any, cols: Any, offset: int) -> int | None:
    if not (isinstance(rows, int) and isinstance(cols, int)):
        return None
    return max(0, min(rows + min(offset, 0), cols - max(offset, 0)))


def _infer_diagonal(x: Any, offset: Any) -> Spec:
    rows, cols = matrix_shape("diagonal", x)
    offset = offset_of("diagonal", offset, "offset")
    return Spec(None if x.shape is None else (*x.shape[:-2], _diagonal_length(rows, cols, offset)), x.dtype)


def _diagonal_rule(g: Tensor, like_x: Any, offset: int) -> Tensor:
    if is_known(like_x.shape):
        return diagonal_matrix(g, int(like_x.shape[-2]), int(like_x.shape[-1]), offset)
    return diagonal_matrix_as(g, as_tensor(like_x), offset)


@primitive(
    accumulate="exact",
    cost="move",
    infer=_infer_diagonal,
    checks_once=True,
    vjp=_diagonal_rule,
    batch="elementwise",
    reference=lambda x, offset=0: np.diagonal(x, offset, -2, -1),
    samples=lambda m: [
        Sample(m.normal(3, 3)),
        Sample(m.normal(2, 3, 4), offset=1),
        Sample(m.normal(3, 4), offset=-2),
        Sample(m.normal(2, 2), offset=5),
    ],
    errors=lambda m: [
        Bad(ValueError, "diagonal: expected a matrix", m.normal(3)),
        Bad(TypeError, "diagonal: offset must be an integer", m.normal(2, 2), offset=0.5),
    ],
)
def diagonal(x: Tensor, /, *, offset: int = 0) -> Any:
    """The `offset`-th diagonal of (batches of) matrices as the last axis; a copy.

    >>> wf.diagonal(wf.tensor([[1, 2], [3, 4]]))
    tensor([1, 4])
    """
    offset = offset_of("diagonal", offset, "offset")
    if offset >= x.shape[-1] or -offset >= x.shape[-2]:
        return np.zeros((*x.shape[:-2], 0), x.dtype)
    return np.array(np.diagonal(x, offset, -2, -1))


def _put_diagonal(x: Any, rows: int, cols: int, offset: int) -> np.ndarray:
    out = np.zeros((*x.shape[:-1], rows, cols), x.dtype)
    steps = np.arange(x.shape[-1])
    out[..., steps + max(-offset, 0), steps + max(offset, 0)] = x
    return out


def _infer_diagonal_matrix(x: Any, rows: int, cols: int, offset: int) -> Spec:
    if x.shape is not None and not x.shape:
        raise ValueError("diag_embed: expected a tensor with at least one axis. Got a 0-d tensor.")
    length = _diagonal_length(rows, cols, offset)
    if x.shape is not None and not same_size(x.shape[-1], length):
        raise ValueError(f"diag_embed: a diagonal of {length} elements cannot hold {x.shape[-1]}.")
    return Spec(None if x.shape is None else (*x.shape[:-1], rows, cols), x.dtype)


@primitive(
    accumulate="exact",
    cost="put",
    infer=_infer_diagonal_matrix,
    checks_once=True,
    title="diag_embed",
    namespace="internal",
    vjp=lambda g, offset: diagonal(g, offset=offset),
    batch="elementwise",
    reference=lambda x, rows, cols, offset=0: _put_diagonal(x, rows, cols, offset),
    samples=lambda m: [
        Sample(m.normal(3), 3, 3),
        Sample(m.normal(2, 3), 3, 4, 1),
        Sample(m.normal(2), 4, 3, -2),
        Sample(m.normal(0), 0, 0),
    ],
    errors=lambda m: [Bad(ValueError, "diag_embed: a diagonal of 2 elements cannot hold 3", m.normal(3), 2, 2)],
)
def diagonal_matrix(x: Tensor, rows: int, cols: int, offset: int = 0) -> Any:
    """Matrices of zeros with the last axis of `x` on the `offset`-th diagonal: the transpose of `diagonal`."""
    return _put_diagonal(x, rows, cols, offset)


@primitive(
    accumulate="exact",
    cost="put",
    infer=lambda x, like, offset: Spec(like.shape, x.dtype),
    title="diag_embed",
    namespace="internal",
    vjp=(lambda g, offset: diagonal(g, offset=offset), None),
    reference=lambda x, like, offset=0: _put_diagonal(x, like.shape[-2], like.shape[-1], offset),
    samples=lambda m: [Sample(m.normal(2, 3), m.normal(2, 3, 4), 1)],
)
def diagonal_matrix_as(x: Tensor, like: Tensor, offset: int = 0) -> Any:
    """`diagonal_matrix` with the sizes of `like`, which may be known only at run time."""
    return _put_diagonal(x, like.shape[-2], like.shape[-1], offset)


@composite(
    reference=lambda x, offset=0: _put_diagonal(x, x.shape[-1] + abs(offset), x.shape[-1] + abs(offset), offset),
    samples=lambda m: [Sample(m.normal(3)), Sample(m.normal(2, 3), offset=1), Sample(m.normal(2), offset=-1)],
    errors=lambda m: [Bad(ValueError, "diag_embed: expected a tensor with at least one axis", m.normal())],
)
def diag_embed(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """Square matrices with the last axis of `x` on their `offset`-th diagonal and zeros elsewhere."""
    if x.ndim == 0:
        raise ValueError("diag_embed: expected a tensor with at least one axis. Got a 0-d tensor.")
    offset = offset_of("diag_embed", offset, "offset")
    n = x.shape[-1] + abs(offset)
    return diagonal_matrix(x, n, n, offset)


@composite(
    reference=np.diag,
    samples=lambda m: [Sample(m.normal(3)), Sample(m.normal(3), 1), Sample(m.normal(3, 4)), Sample(m.normal(3, 4), -1)],
    errors=lambda m: [Bad(ValueError, "diag: expected a vector or a matrix", m.normal(2, 2, 2))],
)
def diag(x: Tensor, /, k: int = 0) -> Tensor:
    """Matrix with the vector `x` on its `k`-th diagonal, or the `k`-th diagonal of the matrix `x`.

    >>> wf.diag(wf.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]])
    """
    if x.ndim not in (1, 2):
        raise ValueError(f"diag: expected a vector or a matrix. Got shape {format_shape(x.shape)}.")
    k = offset_of("diag", k)
    return diag_embed(x, offset=k) if x.ndim == 1 else diagonal(x, offset=k)


@composite(
    accumulate="float32",
    reference=lambda x, offset=0, dtype=None: np.trace(x, offset, -2, -1, dtype),
    samples=lambda m: [Sample(m.normal(3, 3)), Sample(m.normal(2, 3, 4), offset=1), Sample(m.ints(3, 3))],
    errors=lambda m: [Bad(ValueError, "trace: expected a matrix", m.normal(3))],
)
def trace(x: Tensor, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """Sum along the `offset`-th diagonal of (batches of) matrices; small integers are summed in 64 bits.

    >>> wf.trace(wf.eye(3))
    tensor(3.)
    """
    matrix_shape("trace", x)
    return sum_(diagonal(x, offset=offset_of("trace", offset, "offset")), axis=-1, dtype=dtype)


# Products of vectors -------------------------------------------------------------------------------------------------------


@composite(
    reference=np.outer,
    samples=lambda m: [Sample(m.normal(3), m.normal(2)), Sample(m.normal(0), m.normal(2))],
    errors=lambda m: [Bad(ValueError, "outer: expected two vectors", m.normal(2, 2), m.normal(2))],
)
def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Outer product of two vectors: `out[i, j] = x1[i] * x2[j]`.

    >>> wf.outer(wf.tensor([1, 2]), wf.tensor([3, 4]))
    tensor([[3, 4],
            [6, 8]])
    """
    if x1.ndim != 1 or x2.ndim != 1:
        raise ValueError(
            f"outer: expected two vectors. Got shapes {format_shape(x1.shape)} and {format_shape(x2.shape)}."
        )
    return expand_dims(x1, 1) * x2


@composite(
    accumulate="float32",
    reference=lambda x1, x2, axis=-1: np.cross(x1, x2, axis=axis),
    samples=lambda m: [
        Sample(m.normal(3), m.normal(3)),
        Sample(m.normal(2, 3), m.normal(2, 3)),
        Sample(m.normal(3, 2), m.normal(3, 2), axis=-2),
        Sample(m.normal(4, 1, 3), m.normal(2, 3)),
    ],
    errors=lambda m: [
        Bad(ValueError, "cross: vectors must have 3 elements", m.normal(2), m.normal(2)),
        Bad(IndexError, "cross: axis 1 is out of range", m.normal(3), m.normal(3), axis=1),
    ],
)
def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Cross product of vectors of 3 elements along `axis`; the other axes broadcast.

    >>> wf.cross(wf.tensor([1.0, 0.0, 0.0]), wf.tensor([0.0, 1.0, 0.0]))
    tensor([0., 0., 1.])
    """
    axis1 = normalize_axis("cross", axis, x1.ndim)
    axis2 = normalize_axis("cross", axis, x2.ndim)
    if not same_size(x1.shape[axis1], 3) or not same_size(x2.shape[axis2], 3):
        raise ValueError(
            f"cross: vectors must have 3 elements along axis {axis}. "
            f"Got shapes {format_shape(x1.shape)} and {format_shape(x2.shape)}."
        )
    if not is_known((x1.shape[axis1], x2.shape[axis2])):
        require_sizes("cross", x1, x2)
    a = [slice_axis(x1, axis1, i, i + 1) for i in range(3)]
    b = [slice_axis(x2, axis2, i, i + 1) for i in range(3)]
    shape = broadcast_shapes("cross", x1.shape, x2.shape, names=("x1", "x2"))
    place = axis if axis < 0 else axis1
    parts = [a[i - 2] * b[i - 1] - a[i - 1] * b[i - 2] for i in range(3)]
    return concat_axis(tuple(parts), normalize_axis("cross", place, len(shape)))


@composite(
    reference=np.kron,
    samples=lambda m: [
        Sample(m.normal(2, 3), m.normal(2, 2)),
        Sample(m.normal(2), m.normal(3)),
        Sample(m.normal(2, 1, 2), m.normal(3)),
        Sample(m.normal(), m.normal(2)),
    ],
)
def kron(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Kronecker product: every element of `x1` multiplied by the whole of `x2`.

    >>> wf.kron(wf.tensor([1, 2]), wf.tensor([1, 1]))
    tensor([1, 1, 2, 2])
    """
    n = max(x1.ndim, x2.ndim)
    shape1 = (1,) * (n - x1.ndim) + tuple(x1.shape)
    shape2 = (1,) * (n - x2.ndim) + tuple(x2.shape)
    a = reshape(x1, tuple([v for d in shape1 for v in (d, 1)]))
    b = reshape(x2, tuple([v for d in shape2 for v in (1, d)]))
    return reshape(a * b, tuple([p * q for p, q in zip(shape1, shape2, strict=True)]))


@composite(
    reference=np.flipud,
    samples=lambda m: [Sample(m.normal(3)), Sample(m.normal(3, 2))],
    errors=lambda m: [Bad(ValueError, "flipud: expected a tensor with at least one axis", m.normal())],
)
def flipud(x: Tensor, /) -> Tensor:
    """Reverse the order along the first axis."""
    from .repeating import flip

    if x.ndim == 0:
        raise ValueError("flipud: expected a tensor with at least one axis. Got a 0-d tensor.")
    return flip(x, axis=0)


@composite(
    reference=np.fliplr,
    samples=lambda m: [Sample(m.normal(3, 2)), Sample(m.normal(3, 2, 2))],
    errors=lambda m: [Bad(ValueError, "fliplr: expected a tensor with at least two axes", m.normal(3))],
)
def fliplr(x: Tensor, /) -> Tensor:
    """Reverse the order along the second axis."""
    from .repeating import flip

    if x.ndim < 2:
        raise ValueError(f"fliplr: expected a tensor with at least two axes. Got shape {format_shape(x.shape)}.")
    return flip(x, axis=1)
