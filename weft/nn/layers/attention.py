"""Multi-head attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import format_shape
from ...ops.array.creation import empty, full
from ...ops.array.elementwise import where
from ...ops.array.products import matmul
from ...ops.array.shaping import concat
from ...ops.core.define import constant
from ...ops.core.spec import check_size
from ...tensor import Tensor
from ...typing import DTypeLike
from .. import functional as F
from .. import init
from ..module import Module
from ..parameter import Parameter
from .dtypes import check_dtype
from .linear import Linear


class MultiheadAttention(Module):
    """Multi-head attention: softmax(Q Kᵀ / √head_dim) V per head, then a linear projection.

    Args:
        embed_dim: length of the vectors, divisible by `num_heads`.
        num_heads: heads.
        dropout: probability with which attention weights are dropped in training.
        bias: whether the projections have biases.
        add_bias_kv: append learned vectors to keys and values.
        add_zero_attn: append zeros to keys and values.
        kdim, vdim: lengths of key and value vectors; `embed_dim` by default.
        batch_first: inputs are (batch, sequence, features); by default (sequence, batch, features).

    Parameters: `in_proj_weight` (3·E, E), `in_proj_bias`, `out_proj.weight`, `out_proj.bias`; with other lengths of keys
    or values `q_proj_weight`, `k_proj_weight` and `v_proj_weight` instead of the first.

    >>> attention = nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = wf.randn(1, 5, 8)
    >>> y, weights = attention(x, x, x)
    >>> y.shape, weights.shape
    ((1, 5, 8), (1, 5, 5))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        *,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        embed_dim = check_size("MultiheadAttention", embed_dim, "embed_dim", 1)
        num_heads = check_size("MultiheadAttention", num_heads, "num_heads", 1)
        if embed_dim % num_heads:
            raise ValueError(
                f"MultiheadAttention: num_heads must divide embed_dim. Got embed_dim={embed_dim}, num_heads={num_heads}."
            )
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
        e = embed_dim
        if self.kdim == e and self.vdim == e:
            self.in_proj_weight: Parameter | None = Parameter(empty((3 * e, e), dtype=dtype))
        else:
            self.in_proj_weight = None
            self.q_proj_weight = Parameter(empty((e, e), dtype=dtype))
            self.k_proj_weight = Parameter(empty((e, self.kdim), dtype=dtype))
            self.v_proj_weight = Parameter(empty((e, self.vdim), dtype=dtype))
        self.in_proj_bias = Parameter(empty((3 * e,), dtype=dtype)) if bias else None
        self.out_proj = Linear(e, e, bias=bias, dtype=dtype)
        self.bias_k = Parameter(empty((1, 1, e), dtype=dtype)) if add_bias_kv else None
        self.bias_v = Parameter(empty((1, 1, e), dtype=dtype)) if add_bias_kv else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitialise the parameters."""
        if self.in_proj_weight is not None:
            init.xavier_uniform_(self.in_proj_weight)
        else:
            for weight in (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None and self.out_proj.bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        if self.bias_k is not None and self.bias_v is not None:
            init.xavier_normal_(self.bias_k)
            init.xavier_normal_(self.bias_v)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from `query` to `key` and `value`.

        Args:
            query, key, value: (L, N, E), (S, N, kdim), (S, N, vdim); (N, L, E) … if batch_first; N may be left out.
            key_padding_mask: (N, S); True masks a key, numbers are added to its scores.
            need_weights: also return the attention weights (slower).
            attn_mask: (L, S) or (N·num_heads, L, S); True masks a pair, numbers are added to the scores.
            average_attn_weights: return the weights averaged over the heads, else per head.
            is_causal: queries attend only to keys at or before their position.

        Returns:
            The result, of the shape of `query`, and the weights (N, L, S) or (N, num_heads, L, S), or None.
        """
        single = query.ndim == 2
        if query.ndim not in (2, 3) or key.ndim != query.ndim or value.ndim != query.ndim:
            raise ValueError(
                "MultiheadAttention: query, key and value must all have 3 axes (2 without a batch). "
                f"Got {format_shape(query.shape)}, {format_shape(key.shape)} and {format_shape(value.shape)}."
            )
        check_dtype(self, query, self.out_proj.weight)
        same_key, same_value = key is query, value is key
        if single:
            query, key, value = (t.unsqueeze(0) for t in (query, key, value))
        elif not self.batch_first:
            query, key, value = (t.transpose(0, 1) for t in (query, key, value))
        self._check(query, key, value)
        n, length = query.shape[:2]
        rows = n * self.num_heads if isinstance(n, int) else None
        _check_mask("attn_mask", attn_mask, ((length, key.shape[1]), (rows, length, key.shape[1])))
        _check_mask("key_padding_mask", key_padding_mask, ((n, key.shape[1]), *([(key.shape[1],)] if single else [])))
        q, k, v = self._project(query, key, value, same_key and same_value)
        k, v, attn_mask, key_padding_mask = self._extend(k, v, attn_mask, key_padding_mask)
        q, k, v = (self._heads(t) for t in (q, k, v))
        mask = self._mask(attn_mask, key_padding_mask, n, q.dtype)
        causal = is_causal and attn_mask is None
        if causal and (need_weights or mask is not None):
            later = _later(length, k.shape[-2], q.dtype)
            mask, causal = later if mask is None else mask + later, False
        dropped = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = matmul(
                q * (1 / math.sqrt(self.head_dim)), k.transpose(-2, -1)
            )  # in this order float16 does not overflow early
            if mask is not None:
                scores = scores + mask
            weights = F.softmax(scores, -1)
            if dropped:
                weights = F.dropout(weights, dropped)
            y = matmul(weights, v)
            if average_attn_weights:
                weights = weights.mean(axis=1)
        else:
            y = F.scaled_dot_product_attention(q, k, v, mask, dropped, causal)
        y = self.out_proj(y.transpose(1, 2).flatten(2))
        if single:
            return y.squeeze(0), None if weights is None else weights.squeeze(0)
        return (y if self.batch_first else y.transpose(0, 1)), weights

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        for name, tensor, size in (
            ("query", query, self.embed_dim),
            ("key", key, self.kdim),
            ("value", value, self.vdim),
        ):
            if tensor.shape[-1] != size:
                raise ValueError(
                    f"MultiheadAttention: {name} must have {size} features in its last axis. "
                    f"Got shape {format_shape(tensor.shape)}."
                )
        if key.shape[:2] != value.shape[:2] or key.shape[0] != query.shape[0]:
            raise ValueError(
                "MultiheadAttention: query, key and value must share the batch size, key and value the length. Got "
                f"(batch first) {format_shape(query.shape)}, {format_shape(key.shape)} and {format_shape(value.shape)}."
            )

    def _project(self, query: Tensor, key: Tensor, value: Tensor, same: bool) -> tuple[Tensor, Tensor, Tensor]:
        e, weight, bias = self.embed_dim, self.in_proj_weight, self.in_proj_bias
        if weight is not None and same:
            q, k, v = F.linear(query, weight, bias).split(e, axis=-1)
            return q, k, v
        if weight is not None:
            parts = (weight[:e], weight[e : 2 * e], weight[2 * e :])
        else:
            parts = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None,) * 3 if bias is None else (bias[:e], bias[e : 2 * e], bias[2 * e :])
        q, k, v = (F.linear(x, w, b) for x, w, b in zip((query, key, value), parts, biases, strict=True))
        return q, k, v

    def _extend(self, k: Tensor, v: Tensor, attn_mask: Any, key_padding_mask: Any) -> tuple[Tensor, Tensor, Any, Any]:
        """Append the learned and the zero position, which every query may see."""
        extra = 0
        n = k.shape[0]
        if self.bias_k is not None and self.bias_v is not None:
            k = concat([k, self.bias_k.expand(n, 1, self.embed_dim)], axis=1)
            v = concat([v, self.bias_v.expand(n, 1, self.embed_dim)], axis=1)
            extra += 1
        if self.add_zero_attn:
            zero = full((n, 1, self.embed_dim), 0.0, dtype=k.dtype)
            k, v = concat([k, zero], axis=1), concat([v, zero], axis=1)
            extra += 1
        if extra:
            if attn_mask is not None:
                attn_mask = F.pad(attn_mask, (0, extra))
            if key_padding_mask is not None:
                key_padding_mask = F.pad(key_padding_mask, (0, extra))
        return k, v, attn_mask, key_padding_mask

    def _heads(self, x: Tensor) -> Tensor:
        """(N, S, E) → (N, num_heads, S, head_dim)."""
        return x.unflatten(2, (self.num_heads, self.head_dim)).transpose(1, 2)

    def _mask(self, attn_mask: Any, key_padding_mask: Any, n: int, dtype: Any) -> Tensor | None:
        """Both masks as numbers to add to the scores (N, heads, L, S)."""
        mask = None
        if attn_mask is not None:
            mask = _additive(attn_mask, dtype)
            if mask.ndim == 3:
                mask = mask.reshape((n, self.num_heads, *mask.shape[1:]))
        if key_padding_mask is not None:
            padding = _additive(key_padding_mask, dtype)
            padding = padding.reshape((padding.shape[0] if padding.ndim == 2 else 1, 1, 1, padding.shape[-1]))
            mask = padding if mask is None else mask + padding
        return mask

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, batch_first={self.batch_first}"


def _check_mask(name: str, mask: Any, shapes: tuple[tuple[Any, ...], ...]) -> None:
    """Refuse numbers that are not meant to be added (0 and 1 for False and True), and shapes that would broadcast."""
    if mask is None:
        return
    if mask.dtype.kind in "iu":
        raise TypeError(
            f"MultiheadAttention: {name} must be bool, or floating to be added to the scores. Got {mask.dtype.name}; use "
            "`mask.astype(wf.bool)` where True leaves out."
        )
    if not any(_fits(mask.shape, shape) for shape in shapes):
        expected = " or ".join(format_shape(shape) for shape in shapes)
        raise ValueError(f"MultiheadAttention: {name} has shape {format_shape(mask.shape)}; expected {expected}.")


def _fits(shape: tuple[Any, ...], expected: tuple[Any, ...]) -> bool:
    """Whether the sizes that are known agree; in a declared graph some are not."""
    known = [(a, b) for a, b in zip(shape, expected, strict=False) if isinstance(a, int) and isinstance(b, int)]
    return len(shape) == len(expected) and all(a == b for a, b in known)


def _later(queries: int, keys: int, dtype: Any) -> Tensor:
    """The numbers to add to scores (queries, keys) so that no query sees a later key."""
    return constant(np.triu(np.full((queries, keys), -math.inf, dtype), 1))


def _additive(mask: Tensor, dtype: Any) -> Tensor:
    """A mask whose True forbids as numbers to add: -inf and 0."""
    if mask.dtype.kind == "b":
        return where(mask, full((), -math.inf, dtype=dtype), full((), 0.0, dtype=dtype))
    return mask.to(dtype)
