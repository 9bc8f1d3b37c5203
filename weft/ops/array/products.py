"""Matrix and vector products."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ..core.define import composite, primitive
from ..core.registry import joint
from ..core.samples import Bad, Sample
from ..core.spec import Spec, broadcast_shapes, same_size
from .shaping import matrix_transpose, sum_to_like

# Functions for users that are not ops; ops are public by their records.
__all__ = ["tensordot"]


def _infer_matmul(x1: Any, x2: Any) -> Spec:
    dtype = dtypes.promote(x1.dtype, x2.dtype)
    if x1.shape is None or x2.shape is None:
        return Spec(None, dtype)
    a, b = x1.shape, x2.shape
    if not a or not b:
        raise ValueError(
            f"matmul: expected tensors with at least one axis. Got x1 of shape {format_shape(a)} and x2 of shape "
            f"{format_shape(b)}; use `*` to multiply by a number."
        )
    inner = b[-2] if len(b) > 1 else b[0]
    if not same_size(a[-1], inner):
        where = "x2.shape[-2]" if len(b) > 1 else "x2.shape[0]"
        hint = " To multiply by the transpose, write `x1 @ x2.mT`." if len(b) > 1 and a[-1] == b[-1] else ""
        raise ValueError(
            f"matmul: inner dimensions differ. Got x1 of shape {format_shape(a)} and x2 of shape {format_shape(b)}; "
            f"expected x1.shape[-1] == {where}.{hint}"
        )
    batch = broadcast_shapes("matmul", a[:-2], b[:-2])
    return Spec((*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ())), dtype)


def _matmul_rule(g: Tensor, x1: Tensor, x2: Tensor, needs: tuple[bool, bool]) -> tuple[Any, Any]:
    """g x2ᵀ and x1ᵀ g; vectors are treated as matrices, broadcast batch axes are summed."""
    from .shaping import expand_dims, reshape_like

    a = expand_dims(x1, 0) if x1.ndim == 1 else x1
    b = expand_dims(x2, 1) if x2.ndim == 1 else x2
    if x1.ndim == 1:
        g = expand_dims(g, -2 if x2.ndim > 1 else 0)
    if x2.ndim == 1:
        g = expand_dims(g, -1)
    ga = gb = None
    if needs[0]:
        ga = matmul(g, matrix_transpose(b))
        ga = reshape_like(sum_to_like(ga, a), x1)
    if needs[1]:
        if (
            a.ndim > 2 and b.ndim == 2
        ):  # a batch times one matrix: one large product instead of a batched product and a sum
            from .shaping import flatten

            gb = matmul(matrix_transpose(flatten(a, 0, -2)), flatten(g, 0, -2))
        else:
            gb = matmul(matrix_transpose(a), g)
        gb = reshape_like(sum_to_like(gb, b), x2)
    return ga, gb


def _matmul_cost(x1: Any, x2: Any) -> int:
    out = _infer_matmul(x1, x2)
    n = 2 * x1.shape[-1]
    for d in out.shape:
        n *= d
    return n


def _batch_matmul(axes: Any, tensors: Any, attrs: Any) -> Tensor:
    from .shaping import expand_dims, squeeze

    x, y = tensors
    vector_x = axes[0] is not None and x.ndim == 2 or axes[0] is None and x.ndim == 1
    vector_y = axes[1] is not None and y.ndim == 2 or axes[1] is None and y.ndim == 1
    if vector_x:
        x = expand_dims(x, -2)
    if vector_y:
        y = expand_dims(y, -1)
    rank = max(x.ndim - (axes[0] is not None), y.ndim - (axes[1] is not None))
    x, y = (
        expand_dims(t, tuple(range(1, 1 + rank - (t.ndim - 1)))) if a is not None and t.ndim - 1 < rank else t
        for t, a in zip((x, y), axes, strict=True)
    )
    out = matmul(x, y)
    if vector_x:
        out = squeeze(out, -2)
    return squeeze(out, -1) if vector_y else out


@primitive(
    autocast="low",
    empty_value=0,
    accumulate="kernels",
    checks_once=True,
    infer=_infer_matmul,
    promote="arithmetic",
    vjp=joint(_matmul_rule),
    batch=_batch_matmul,
    cost=_matmul_cost,
    reference=np.matmul,
    samples=lambda m: [
        Sample(m.normal(2, 3), m.normal(3, 4)),
        Sample(m.normal(3), m.normal(3)),
        Sample(m.normal(3), m.normal(3, 2)),
        Sample(m.normal(2, 3), m.normal(3)),
        Sample(m.normal(5, 2, 3), m.normal(3, 4)),
        Sample(m.normal(5, 1, 2, 3), m.normal(4, 3, 2)),
        Sample(m.normal(3), m.normal(2, 3, 4)),
        Sample(m.normal(2, 3, 4), m.normal(4)),
        Sample(m.normal(0, 3), m.normal(3, 2)),
        Sample(m.normal(2, 0), m.normal(0, 2)),
    ],
    errors=lambda m: [
        Bad(
            ValueError,
            r"matmul: inner dimensions differ.*\(4, 3\).*\(5, 3\).*x1 @ x2.mT",
            m.normal(4, 3),
            m.normal(5, 3),
        ),
        Bad(ValueError, "matmul: expected tensors with at least one axis", m.normal(4), m.normal()),
        Bad(ValueError, "matmul: shapes do not broadcast", m.normal(2, 2, 2), m.normal(3, 2, 2)),
    ],
)
def matmul(x1: Tensor, x2: Tensor, /) -> Any:
    """Matrix product; leading axes are batch axes and broadcast.

    Args:
        x1: shape (…, n, k), or (k,) for a row vector.
        x2: shape (…, k, m), or (k,) for a column vector.

    Returns:
        Shape (…, n, m), without n or m where the operand is a vector.

    >>> wf.matmul(wf.tensor([[1.0, 2.0], [3.0, 4.0]]), wf.tensor([1.0, 1.0]))
    tensor([3., 7.])
    """
    if x1.dtype.itemsize == 2 and dtypes.is_floating(x1.dtype):
        return np.matmul(np.asarray(x1, np.float32), np.asarray(x2, np.float32)).astype(x1.dtype)
    return np.asarray(np.matmul(x1, x2))


@composite(
    accumulate="float32",
    reference=lambda x1, x2, axis=-1: np.sum(x1 * x2, axis=axis),
    samples=lambda m: [
        Sample(m.normal(3), m.normal(3)),
        Sample(m.normal(2, 3), m.normal(2, 3)),
        Sample(m.normal(3, 2), m.normal(3, 1), axis=-2),
    ],
)
def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Sum of `conj(x1) * x2` over `axis`.

    >>> wf.vecdot(wf.tensor([1.0, 2.0]), wf.tensor([3.0, 4.0]))
    tensor(11.)
    """
    from .elementwise import conj
    from .reduction import sum as sum_

    if x1.ndim and x2.ndim and not same_size(x1.shape[axis], x2.shape[axis]):
        raise ValueError(
            f"vecdot: sizes along axis {axis} differ. Got {format_shape(x1.shape)} and {format_shape(x2.shape)}."
        )
    dtype = dtypes.promote(x1.dtype, x2.dtype)
    return sum_((conj(x1) if dtypes.is_complex(x1.dtype) else x1) * x2, axis=axis, dtype=dtype)


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """Contract two tensors over pairs of axes.

    Args:
        x1: any shape.
        x2: any shape.
        axes: an integer n contracts the last n axes of `x1` with the first n of `x2`; a pair lists the axes of each.

    >>> wf.tensordot(wf.ones(2, 3), wf.ones(3, 4), axes=1).shape
    (2, 4)
    """
    from .shaping import permute_dims, reshape

    if isinstance(axes, int):
        if axes < 0 or axes > min(x1.ndim, x2.ndim):
            raise ValueError(f"tensordot: axes must be 0 to {min(x1.ndim, x2.ndim)}. Got {axes}.")
        left, right = tuple(range(x1.ndim - axes, x1.ndim)), tuple(range(axes))
    else:
        from ..core.spec import normalize_axes

        left = normalize_axes("tensordot", tuple(axes[0]) if not isinstance(axes[0], int) else axes[0], x1.ndim)
        right = normalize_axes("tensordot", tuple(axes[1]) if not isinstance(axes[1], int) else axes[1], x2.ndim)
    if len(left) != len(right) or any(x1.shape[a] != x2.shape[b] for a, b in zip(left, right, strict=True)):
        raise ValueError(
            f"tensordot: the summed axes differ in size. Got {format_shape(x1.shape)} along {left} and "
            f"{format_shape(x2.shape)} along {right}."
        )
    keep1 = [a for a in range(x1.ndim) if a not in left]
    keep2 = [a for a in range(x2.ndim) if a not in right]
    shape = tuple([x1.shape[a] for a in keep1] + [x2.shape[a] for a in keep2])
    inner = 1
    for a in left:
        inner *= x1.shape[a]
    outer1 = 1
    for a in keep1:
        outer1 *= x1.shape[a]
    outer2 = 1
    for a in keep2:
        outer2 *= x2.shape[a]
    a = reshape(permute_dims(x1, (*keep1, *left)), (outer1, inner))
    b = reshape(permute_dims(x2, (*right, *keep2)), (inner, outer2))
    return reshape(matmul(a, b), shape)
