"""Formulas that several model functions share: normalisation on any view, norms of vectors, checks of parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ..array.elementwise import abs_, astype, norm_sqrt, where
from ..array.products import matmul
from ..array.reduction import max_, reduce_sum
from ..array.shaping import broadcast_to, expand_dims, matrix_transpose
from ..core.define import constant
from ..core.slow_path import check_memory
from ..core.spec import num_elements, same_size

# Normalisation, for arrays and tensors alike --------------------------------------------------------------------------


def sum_arrays(x: Any, axes: tuple[int, ...]) -> Any:
    return x.sum(axis=axes, keepdims=True)


def sum_tensors(x: Any, axes: tuple[int, ...]) -> Any:
    return reduce_sum(x, axes, True)


def input_gradient(
    grad: Any,
    g_mean: Any,
    g_rstd: Any,
    x: Any,
    weight: Any,
    mean: Any,
    rstd: Any,
    *,
    axes: tuple[int, ...],
    count: Any,
    total: Callable[..., Any],
) -> tuple[Any, Any]:
    """(gx, g · x̂) for operands that broadcast against x; `mean` None: not centred (RMS norm)."""
    hat = (x if mean is None else x - mean) * rstd
    weighted = grad if weight is None else grad * weight
    c2 = total(weighted * hat, axes) / count
    if g_rstd is not None:
        c2 = c2 + g_rstd * rstd / count
    inner = weighted - hat * c2
    if mean is not None:
        c1 = total(weighted, axes) / count
        if g_mean is not None:
            c1 = c1 - g_mean / (rstd * count)
        inner = inner - c1
    return inner * rstd, grad * hat


def statistics(x: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x - mean, mean, biased variance) over `axes`, kept as axes of size 1."""
    if not x.size:  # NumPy warns about the mean of an empty array
        mean = np.zeros_like(x).sum(axis=axes, keepdims=True)
        return x, mean, mean
    mean = x.mean(axis=axes, keepdims=True)
    centred = x - mean
    return centred, mean, np.square(centred).mean(axis=axes, keepdims=True)


def wide(*arrays: np.ndarray | None) -> list[Any]:
    """Half precision is computed in float32; operands of several precisions in the widest."""
    dtype = np.result_type(np.float32, *[a.dtype for a in arrays if a is not None and a.dtype.itemsize > 2])
    return [None if a is None else a if a.dtype == dtype else a.astype(dtype) for a in arrays]


def check_parameter(op: str, name: str, value: Any, shape: Any) -> None:
    if value is None:
        return
    if not dtypes.is_floating(value.dtype):
        raise TypeError(f"{op}: {name} must be floating. Got {value.dtype.name}.")
    if (
        value.shape is not None
        and shape is not None
        and (
            len(value.shape) != len(shape) or any(not same_size(a, b) for a, b in zip(value.shape, shape, strict=True))
        )
    ):
        raise ValueError(f"{op}: {name} has shape {format_shape(value.shape)}; expected {format_shape(shape)}.")


def check_floating(op: str, x: Any) -> None:
    if not dtypes.is_floating(x.dtype):
        raise TypeError(f"{op}: expected a real floating tensor. Got {x.dtype.name}; use `x.astype(wf.float32)`.")


def count(x: Tensor, axes: tuple[int, ...]) -> Any:
    """How many elements go into one statistic: a number, or a tensor if a size is known only at run time."""
    n = num_elements(tuple([x.shape[a] for a in axes]))
    if n is not None:
        return n
    from ..array.creation import ones_like

    return reduce_sum(ones_like(x.detach()), axes, True)


def cast_like(g: Any, like: Any) -> Any:
    return g if g is None or like is None or g.dtype == like.dtype else astype(g, like.dtype)


def cost_per_element(per_element: int) -> Any:
    return lambda x, *_: per_element * (num_elements(x.shape) or 0)


def stat_dtype(x: Any) -> np.dtype:
    """Statistics of half-precision data are kept in float32."""
    return dtypes.float32 if x.dtype.itemsize == 2 else x.dtype


def batched(tensors: Any, axes: Any) -> list[Any]:
    """All tensors with the batch axis in front; those without one are repeated."""
    size = next(t.shape[0] for t, a in zip(tensors, axes, strict=True) if a is not None)
    return [
        t if t is None or a is not None else broadcast_to(expand_dims(t, 0), (size, *t.shape))
        for t, a in zip(tensors, axes, strict=True)
    ]


# Vectors --------------------------------------------------------------------------------------------------------------


def length(x: Tensor, p: float, axis: Any, keepdims: bool = False) -> Tensor:
    """The p-norm along `axis`, of complex numbers that of their moduli; at zero the gradient is zero."""
    if dtypes.is_complex(x.dtype):
        x = abs_(x)
    if p == 2:
        return norm_sqrt(reduce_sum(x * x, axis, keepdims))
    if p == 1:
        return reduce_sum(abs_(x), axis, keepdims)
    if p == float("inf"):
        return max_(abs_(x), axis=axis, keepdims=keepdims)
    if p <= 0:
        raise ValueError(f"norm: p must be positive. Got {p}.")
    size = abs_(x)
    zero = size == 0
    powers = reduce_sum(where(zero, 0.0, where(zero, 1.0, size) ** p), axis, keepdims)
    nothing = powers == 0
    return where(nothing, 0.0, where(nothing, 1.0, powers) ** (1 / p))


# Attention ------------------------------------------------------------------------------------------------------------


def masked_scores(query: Any, key: Any, mask: Any, is_causal: bool, scale: float) -> Any:
    scores = matmul(query, matrix_transpose(key)) * scale
    if mask is not None:
        scores = where(mask, scores, float("-inf")) if dtypes.is_bool(mask.dtype) else scores + mask
    if is_causal:
        scores = where(triangle(query.shape[-2], key.shape[-2]), scores, float("-inf"))
    return scores


def triangle(rows: int, columns: int) -> Tensor:
    check_memory("scaled_dot_product_attention", (rows, columns), dtypes.bool_)
    return constant(np.tri(rows, columns, dtype=np.bool_))
