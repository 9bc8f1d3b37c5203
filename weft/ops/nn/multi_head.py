"""Multi-head attention: projections around `scaled_dot_product_attention`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ..array.elementwise import astype, where
from ..array.products import matmul
from ..array.reduction import reduce_sum
from ..array.shaping import expand_dims, matrix_transpose, reshape, swapaxes
from ..core.define import constant
from ..core.error_names import guarded
from .attention import scaled_dot_product_attention
from .dropout import dropout
from .formulas import masked_scores, triangle
from .linear import add_bias
from .softmax import softmax

if TYPE_CHECKING:
    from ...random import Generator

# Functions for users that are not ops; ops are public by their records.
__all__ = ["multi_head_attention_forward"]


def _as_mask(mask: Tensor, dtype: np.dtype) -> Tensor:
    """An additive mask: True (masked out, as in PyTorch's modules) becomes -inf."""
    if dtypes.is_bool(mask.dtype):
        return where(mask, constant(np.asarray(-np.inf, dtype)), constant(np.asarray(0, dtype)))
    return astype(mask, dtype)


def _heads(x: Tensor, num_heads: int) -> Tensor:
    """(N, L, E) as (N, heads, L, E / heads)."""
    return swapaxes(reshape(x, (x.shape[0], x.shape[1], num_heads, x.shape[2] // num_heads)), 1, 2)


@guarded  # with unknown sizes the whole call becomes one deferred node
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    num_heads: int,
    in_proj_weight: Tensor | tuple[Tensor, Tensor, Tensor],
    in_proj_bias: Tensor | None,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    *,
    dropout_p: float = 0.0,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    need_weights: bool = False,
    average_attn_weights: bool = True,
    batch_first: bool = True,
    generator: Generator | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Multi-head attention with input and output projections, as in `nn.MultiheadAttention`.

    Args:
        query, key, value: (N, L, E), (N, S, ·), (N, S, ·), or without N; with `batch_first=False` (L, N, E) and so on.
        in_proj_weight: (3E, E) for query, key and value together, or three weights (E, ·).
        key_padding_mask: (N, S); True masks a key, numbers are added to its scores.
        attn_mask: (L, S) or (N · heads, L, S); True masks a pair, numbers are added to the scores.

    Returns:
        (output, attention weights or None).
    """
    op = "multi_head_attention_forward"
    single = query.ndim == 2
    if query.ndim not in (2, 3) or key.ndim != query.ndim or value.ndim != query.ndim:
        raise ValueError(
            f"{op}: query, key and value must all have 2 or all have 3 axes. Got {format_shape(query.shape)}, "
            f"{format_shape(key.shape)} and {format_shape(value.shape)}."
        )
    if single:
        query, key, value = (expand_dims(t, 0) for t in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else expand_dims(key_padding_mask, 0)
    elif not batch_first:
        query, key, value = (swapaxes(t, 0, 1) for t in (query, key, value))
    embed = query.shape[-1]
    if num_heads < 1 or embed % num_heads:
        raise ValueError(f"{op}: the embedding size {embed} does not divide into {num_heads} heads.")
    q, k, v = _project(query, key, value, in_proj_weight, in_proj_bias)
    q, k, v = (_heads(t, num_heads) for t in (q, k, v))
    rows, columns, batch = q.shape[2], k.shape[2], q.shape[0]
    mask = None
    if attn_mask is not None:
        mask = _as_mask(attn_mask, q.dtype)
        if mask.ndim == 3:
            mask = reshape(mask, (batch, num_heads, rows, columns))
    if key_padding_mask is not None:
        if tuple(key_padding_mask.shape) != (batch, columns):
            raise ValueError(
                f"{op}: key_padding_mask has shape {format_shape(key_padding_mask.shape)}; expected ({batch}, {columns})."
            )
        padding = reshape(_as_mask(key_padding_mask, q.dtype), (batch, 1, 1, columns))
        mask = padding if mask is None else mask + padding
    if is_causal and mask is not None:
        mask = mask + _as_mask(~triangle(rows, columns), q.dtype)
        is_causal = False
    p = dropout_p if training else 0.0
    weights = None
    if need_weights:
        weights = softmax(masked_scores(q, k, mask, is_causal, 1 / math.sqrt(q.shape[-1])), -1)
        weights = dropout(weights, p, training, generator=generator)
        out = matmul(weights, v)
        weights = reduce_sum(weights, 1, False) / num_heads if average_attn_weights else weights
    else:
        out = scaled_dot_product_attention(q, k, v, mask, p, is_causal, generator=generator)
    out = reshape(swapaxes(out, 1, 2), (batch, rows, embed))
    out = matmul(out, matrix_transpose(out_proj_weight))
    out = add_bias(out, out_proj_bias)
    if single:
        return out[0], None if weights is None else weights[0]
    return (out if batch_first else swapaxes(out, 0, 1)), weights


def _project(query: Tensor, key: Tensor, value: Tensor, weight: Any, bias: Tensor | None) -> tuple[Tensor, ...]:
    """Query, key and value through their projections; one product if they are the same tensor."""
    embed = query.shape[-1]
    if isinstance(weight, (tuple, list)):
        results = [matmul(x, matrix_transpose(w)) for x, w in zip((query, key, value), weight, strict=True)]
    elif tuple(weight.shape) != (3 * embed, embed):
        raise ValueError(
            f"multi_head_attention_forward: in_proj_weight has shape {format_shape(weight.shape)}; "
            f"expected ({3 * embed}, {embed})."
        )
    elif query is key and key is value:
        joined = matmul(query, matrix_transpose(weight))
        joined = add_bias(joined, bias)
        return tuple([joined[..., i * embed : (i + 1) * embed] for i in range(3)])
    else:
        parts = [weight[i * embed : (i + 1) * embed] for i in range(3)]
        results = [matmul(x, matrix_transpose(w)) for x, w in zip((query, key, value), parts, strict=True)]
    if bias is not None:
        results = [add_bias(r, bias[i * embed : (i + 1) * embed]) for i, r in enumerate(results)]
    return tuple(results)
