"""Scaled dot-product attention, with its backward pass as an op of its own.

The forward op keeps the log-sum-exp of every row of scores, not the scores: the backward pass computes the probabilities
again, a block of rows at a time, so memory grows with L + S instead of L · S. Dropout draws its mask again from the
generator's state. Shapes: query (..., L, E), key (..., S, E), value (..., S, V) with equal leading axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import format_shape
from ..tensor import Tensor
from .composed import composed_vjp
from .creation import zeros_like
from .dispatch import composite, primitive
from .elementwise import astype, exp, where
from .formulas import batched, wide
from .products import matmul
from .random_ops import check_state, keep_mask, random_dropout
from .reduction import reduce_sum
from .registry import joint
from .samples import Bad, Sample
from .shaping import broadcast_to_like, expand_dims, matrix_transpose, reshape, sum_to_like, swapaxes
from .spec import Spec, broadcast_shapes, num_elements, same_size

_BLOCK = 1 << 18  # scores at a time: one megabyte in float32


# The arrays, block by block ------------------------------------------------------------------------------------------------


def _blocks(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    step = max(1, min(rows, _BLOCK // max(columns, 1)))
    for start in range(0, rows, step):
        yield start, min(start + step, rows)


class _Problem:
    """One call on arrays: leading axes joined, masks and dropout applied block by block."""

    def __init__(
        self, query: Any, key: Any, value: Any, mask: Any, state: Any, dropout_p: float, is_causal: bool, scale: float
    ) -> None:
        self.lead, self.rows, self.columns = query.shape[:-2], query.shape[-2], key.shape[-2]
        self.count = math.prod(self.lead)
        self.query, self.key, self.value = (a.reshape(self.count, *a.shape[-2:]) for a in (query, key, value))
        self.state, self.dropout_p, self.is_causal, self.scale = state, dropout_p, is_causal, query.dtype.type(scale)
        self.mask = None if mask is None else np.broadcast_to(mask, (*self.lead, self.rows, self.columns))
        self.index = list(np.ndindex(*self.lead))

    def scores(self, i: int, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop` of the scores of matrix i, masked."""
        scores = self.query[i, start:stop] @ self.key[i].T
        scores *= self.scale
        if self.mask is not None:
            mask = self.mask[self.index[i]][start:stop]
            if mask.dtype == np.bool_:
                scores[~mask] = -np.inf
            else:
                scores += mask
        if self.is_causal:
            scores[np.arange(self.columns) > np.arange(start, stop)[:, None]] = -np.inf
        return scores

    def keep(self, i: int, start: int, stop: int) -> np.ndarray | None:
        """What dropout multiplies the probabilities of these rows by."""
        if self.dropout_p <= 0:
            return None
        first = (i * self.rows + start) * self.columns
        keep = keep_mask(self.state, (stop - start, self.columns), self.dropout_p, first)
        return keep * self.query.dtype.type(1 / (1 - self.dropout_p) if self.dropout_p < 1 else 0)


def _forward(p: _Problem) -> tuple[np.ndarray, np.ndarray]:
    dtype = p.query.dtype
    out = np.empty((p.count, p.rows, p.value.shape[-1]), dtype)
    lse = np.empty((p.count, p.rows), dtype)
    for i in range(p.count):
        for start, stop in _blocks(p.rows, p.columns):
            scores = p.scores(i, start, stop)
            top = scores.max(-1, keepdims=True, initial=-np.inf)
            top = np.where(np.isfinite(top), top, dtype.type(0))
            weights = np.exp(scores - top)
            total = weights.sum(-1, keepdims=True)
            lse[i, start:stop] = (np.log(total) + top)[:, 0]
            # a row whose keys are all masked attends to nothing: zeros, not nan
            weights *= 1 / np.where(total == 0, dtype.type(1), total)
            keep = p.keep(i, start, stop)
            out[i, start:stop] = (weights if keep is None else weights * keep) @ p.value[i]
    return out, lse


def _backward(p: _Problem, grad: Any, grad_lse: Any, out: Any, lse: Any, mask_grad: np.ndarray | None) -> tuple[Any, Any, Any]:
    gq, gk, gv = (np.zeros_like(a) for a in (p.query, p.key, p.value))
    for i in range(p.count):
        for start, stop in _blocks(p.rows, p.columns):
            rows = slice(start, stop)
            g = grad[i, rows]
            log_total = lse[i, rows, None]
            weights = np.exp(p.scores(i, start, stop) - np.where(np.isfinite(log_total), log_total, 0))
            keep = p.keep(i, start, stop)
            gv[i] += (weights if keep is None else weights * keep).T @ g
            gp = g @ p.value[i].T
            if keep is not None:
                gp *= keep
            gp -= (g * out[i, rows]).sum(-1, keepdims=True)
            if grad_lse is not None:
                gp += grad_lse[i, rows, None]
            gs = np.multiply(weights, gp, out=gp)
            if mask_grad is not None:
                mask_grad[i, rows] = gs
            gs = gs * p.scale
            gq[i, rows] = gs @ p.key[i]
            gk[i] += gs.T @ p.query[i, rows]
    return gq, gk, gv


# Rules ----------------------------------------------------------------------------------------------------------------------


def _check(query: Any, key: Any, value: Any, mask: Any, state: Any, dropout_p: float) -> None:
    op = "scaled_dot_product_attention"
    for name, x in (("query", query), ("key", key), ("value", value)):
        if not dtypes.is_floating(x.dtype):
            raise TypeError(f"{op}: {name} must be floating. Got {x.dtype.name}.")
        if x.dtype != query.dtype:
            raise TypeError(f"{op}: query, key and value must have one dtype. Got {query.dtype.name} and {x.dtype.name}.")
        if x.shape is not None and len(x.shape) < 2:
            raise ValueError(f"{op}: {name} must have at least 2 axes. Got shape {format_shape(x.shape)}.")
    if dropout_p > 0:
        check_state(op, state)
    if query.shape is None or key.shape is None or value.shape is None:
        return
    shapes = f"Got query {format_shape(query.shape)}, key {format_shape(key.shape)}, value {format_shape(value.shape)}."
    if not same_size(query.shape[-1], key.shape[-1]):
        raise ValueError(f"{op}: query and key must have equal last sizes. {shapes}")
    if not same_size(key.shape[-2], value.shape[-2]):
        raise ValueError(f"{op}: key and value must be equally long (axis -2). {shapes}")
    if len(query.shape) != len(key.shape) or len(key.shape) != len(value.shape) or any(
        not same_size(a, b) or not same_size(a, c)
        for a, b, c in zip(query.shape[:-2], key.shape[:-2], value.shape[:-2], strict=True)
    ):
        raise ValueError(f"{op}: leading axes differ. {shapes}")
    if mask is not None and mask.shape is not None:
        if not (dtypes.is_bool(mask.dtype) or dtypes.is_floating(mask.dtype)):
            raise TypeError(f"{op}: attn_mask must be bool or floating. Got {mask.dtype.name}.")
        target = (*query.shape[:-1], key.shape[-2])
        try:
            fits = broadcast_shapes(op, mask.shape, target)
        except ValueError:
            fits = None
        if fits is None or len(fits) != len(target) or any(not same_size(a, b) for a, b in zip(fits, target, strict=True)):
            raise ValueError(
                f"{op}: attn_mask of shape {format_shape(mask.shape)} does not broadcast to the scores, which have shape "
                f"{format_shape(target)}."
            )


def _infer(
    query: Any, key: Any, value: Any, mask: Any, state: Any, dropout_p: float, is_causal: bool, scale: float
) -> tuple[Spec, Spec]:
    _check(query, key, value, mask, state, dropout_p)
    if query.shape is None or value.shape is None:
        return Spec(None, query.dtype), Spec(None, _stat(query))
    return Spec((*query.shape[:-1], value.shape[-1]), query.dtype), Spec(query.shape[:-1], _stat(query))


def _stat(x: Any) -> np.dtype:
    return dtypes.float32 if x.dtype.itemsize == 2 else x.dtype


def _scores_ops(query: Any, key: Any, mask: Any, is_causal: bool, scale: float) -> Any:
    scores = matmul(query, matrix_transpose(key)) * scale
    if mask is not None:
        scores = where(mask, scores, float("-inf")) if dtypes.is_bool(mask.dtype) else scores + mask
    if is_causal:
        scores = where(_triangle(query.shape[-2], key.shape[-2]), scores, float("-inf"))
    return scores


def _triangle(rows: int, columns: int) -> Tensor:
    from .dispatch import constant

    return constant(np.tri(rows, columns, dtype=np.bool_))


def _backward_ops(
    grad: Any, grad_lse: Any, query: Any, key: Any, value: Any, mask: Any, state: Any, out: Any, lse: Any,
    dropout_p: float, is_causal: bool, scale: float,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """The backward pass in public ops, for higher derivatives."""
    scores = _scores_ops(query, key, mask, is_causal, scale)
    weights = exp(scores - expand_dims(where(lse == float("-inf"), 0.0, lse), -1))
    gp = matmul(grad, matrix_transpose(value))
    dropped = weights
    if dropout_p > 0:
        dropped, gp = random_dropout(weights, state, dropout_p), random_dropout(gp, state, dropout_p)
    gp = gp - reduce_sum(grad * out, -1, True)
    if grad_lse is not None:
        gp = gp + expand_dims(grad_lse, -1)
    gs = weights * gp
    gm = None if mask is None or dtypes.is_bool(mask.dtype) else sum_to_like(gs, mask)
    scaled = gs * scale
    return matmul(scaled, key), matmul(matrix_transpose(scaled), query), matmul(matrix_transpose(dropped), grad), gm


def _rule(
    g: Any, query: Any, key: Any, value: Any, mask: Any, state: Any, out0: Any, out1: Any,
    dropout_p: float, is_causal: bool, scale: float, needs: Any,
) -> tuple[Any, ...]:  # fmt: skip
    grad = zeros_like(out0) if g[0] is None else g[0]
    gq, gk, gv, gm = attention_backward(
        grad, g[1], query, key, value, mask, state, out0, out1, dropout_p, is_causal, scale, bool(needs[3])
    )
    return gq, gk, gv, gm if needs[3] else None, None


def _infer_backward(
    grad: Any, grad_lse: Any, query: Any, key: Any, value: Any, mask: Any, state: Any, out: Any, lse: Any,
    dropout_p: float, is_causal: bool, scale: float, mask_grad: bool,
) -> tuple[Spec, ...]:  # fmt: skip
    mask_spec = Spec(mask.shape, mask.dtype) if mask_grad else Spec((0,), query.dtype)
    return (*[Spec(x.shape, x.dtype) for x in (query, key, value)], mask_spec)


def _reference(
    query: Any, key: Any, value: Any, mask: Any = None, state: Any = None, dropout_p: float = 0.0, is_causal: bool = False, scale: Any = None
) -> Any:  # fmt: skip
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ np.swapaxes(key, -1, -2) * scale
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    weights = np.exp(scores)
    lse = np.log(weights.sum(-1))
    weights = weights / np.where(weights.sum(-1, keepdims=True) == 0, 1, weights.sum(-1, keepdims=True))
    if dropout_p:
        from .random_ops import _reference_dropout

        weights = _reference_dropout(weights, state, dropout_p)
    return weights @ value, lse


def _reference_backward(
    grad: Any, grad_lse: Any, query: Any, key: Any, value: Any, mask: Any, state: Any, out: Any, lse: Any,
    dropout_p: float, is_causal: bool, scale: float, mask_grad: bool,
) -> Any:  # fmt: skip
    scores = query @ np.swapaxes(key, -1, -2) * scale
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - lse[..., None])
    keep = np.ones_like(weights)
    if dropout_p:
        from .random_ops import _reference_dropout

        keep = _reference_dropout(keep, state, dropout_p)
    gs = weights * (grad @ np.swapaxes(value, -1, -2) * keep - (grad * out).sum(-1, keepdims=True))
    if grad_lse is not None:
        gs = gs + weights * grad_lse[..., None]
    gm = np.zeros(0)
    if mask_grad:
        extra = tuple(range(gs.ndim - mask.ndim))
        gm = gs.sum(extra + tuple(i + len(extra) for i, d in enumerate(mask.shape) if d == 1 and gs.shape[i + len(extra)] != 1), keepdims=True)
        gm = gm.reshape(mask.shape)
    gv = np.swapaxes(weights * keep, -1, -2) @ grad
    return gs @ key * scale, np.swapaxes(gs, -1, -2) @ query * scale, gv, gm


def _batch_forward(axes: Any, tensors: Any, attrs: Any) -> Any:
    query, key, value = batched(tensors[:3], axes[:3]) if any(a is not None for a in axes[:3]) else _as_batch(tensors, axes)
    mask = _batch_mask(tensors[3], axes[3], query)
    return attention_forward(query, key, value, mask, tensors[4], *attrs)


def _as_batch(tensors: Any, axes: Any) -> list[Any]:
    size = tensors[3].shape[0]
    return [broadcast_to_like(expand_dims(t, 0), Spec((size, *t.shape), t.dtype)) for t in tensors[:3]]


def _batch_mask(mask: Any, axis: Any, query: Any) -> Any:
    """A mask with its batch axis in front of the leading axes of the (batched) query."""
    if mask is None or axis is None:
        return mask
    return reshape(mask, (mask.shape[0], *(1,) * (query.ndim - mask.ndim), *mask.shape[1:]))


def _batch_backward(axes: Any, tensors: Any, attrs: Any) -> Any:
    grad, grad_lse, query, key, value, mask, state, out, lse = tensors
    full = batched([grad, grad_lse, query, key, value, out, lse], [axes[i] for i in (0, 1, 2, 3, 4, 7, 8)])
    grad, grad_lse, query, key, value, out, lse = full
    if mask is not None and attrs[3]:  # a gradient per example
        (mask,) = batched([mask, query], [axes[5], 0])[:1]
    mask = _batch_mask(mask, 0 if attrs[3] else axes[5], query)
    gq, gk, gv, gm = attention_backward(grad, grad_lse, query, key, value, mask, state, out, lse, *attrs)
    if attrs[3]:
        gm = reshape(gm, (gm.shape[0], *tensors[5].shape[(axes[5] is not None) :]))
    else:
        gm = reshape(gm, (1, 0)) * zeros_like(gq[(slice(None), *[0] * (gq.ndim - 1))])[:, None]
    return gq, gk, gv, gm


def _cost(query: Any, key: Any, value: Any, *_: Any) -> int:
    rows = num_elements(query.shape[:-1]) or 0
    return 2 * rows * (key.shape[-2] or 0) * ((query.shape[-1] or 0) + (value.shape[-1] or 0))


_STATE = np.array([3, 1], np.int64)


@primitive(
    namespace="internal",
    outputs=4,
    infer=_infer_backward,
    vjp=joint(
        lambda h, grad, grad_lse, query, key, value, mask, state, result, lse, dropout_p, is_causal, scale, needs: composed_vjp(
            lambda *inputs: _backward_ops(*inputs, dropout_p, is_causal, scale),
            (grad, grad_lse, query, key, value, mask, state, result, lse), needs, h,
        ),
        fill=False,
    ),
    batch=_batch_backward,
    cost=lambda grad, grad_lse, query, key, value, *_: 5 * _cost(query, key, value) // 2,
    reference=_reference_backward,
    samples=lambda m: [
        Sample(m.normal(2, 3, 2), None, m.normal(2, 3, 4), m.normal(2, 5, 4), m.normal(2, 5, 2), None, None, m.normal(2, 3, 2), m.positive(2, 3) + 1, 0.0, False, 0.5, False),
        Sample(m.normal(3, 2), m.normal(3), m.normal(3, 4), m.normal(3, 4), m.normal(3, 2), m.normal(1, 3), _STATE, m.normal(3, 2), m.positive(3) + 1, 0.4, True, 0.5, True),
    ],
    test={"differentiable_inputs": (0, 1, 2, 3, 4, 5, 6, 7, 8)},
)  # fmt: skip
def attention_backward(
    grad: Tensor, grad_lse: Tensor | None, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, state: Tensor | None, result: Tensor,
    lse: Tensor, dropout_p: float, is_causal: bool, scale: float, mask_grad: bool,
) -> Any:  # fmt: skip
    """The gradients of attention in query, key, value and mask (empty unless `mask_grad`)."""
    g, gl, q, k, v, o, ls = wide(grad, grad_lse, query, key, value, result, lse)  # type: ignore[arg-type]
    p = _Problem(q, k, v, mask, state, dropout_p, is_causal, scale)
    flat = (p.count, p.rows)
    scores = np.empty((*flat, p.columns), q.dtype) if mask_grad else None
    gq, gk, gv = _backward(
        p, g.reshape(*flat, -1) if v.shape[-1] else g.reshape(*flat, 0), None if gl is None else gl.reshape(flat),
        o.reshape(*flat, v.shape[-1]), ls.reshape(flat), scores,
    )  # fmt: skip
    gm = np.zeros(0, query.dtype)
    if scores is not None and mask is not None:
        from .shaping import _sum_array

        gm = _sum_array(scores.reshape(*p.lead, p.rows, p.columns), mask.shape).astype(mask.dtype, copy=False)
    return (*[a.reshape(b.shape).astype(b.dtype, copy=False) for a, b in ((gq, query), (gk, key), (gv, value))], gm)


@primitive(
    namespace="internal",
    outputs=2,
    infer=_infer,
    vjp=joint(_rule, fill=False),
    batch=_batch_forward,
    cost=_cost,
    reference=_reference,
    samples=lambda m: [
        Sample(m.normal(2, 3, 4), m.normal(2, 5, 4), m.normal(2, 5, 2), None, None, 0.0, False, 0.5),
        Sample(m.normal(3, 4), m.normal(3, 4), m.normal(3, 2), None, None, 0.0, True, 0.7),
        Sample(m.normal(2, 3, 4), m.normal(2, 5, 4), m.normal(2, 5, 2), m.normal(3, 5), _STATE, 0.3, False, 0.5),
        Sample(m.normal(1, 2, 3, 4), m.normal(1, 2, 5, 4), m.normal(1, 2, 5, 2), np.arange(15).reshape(3, 5) % 3 > 0, None, 0.0, False, 0.5),
    ],
)  # fmt: skip
def attention_forward(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, state: Tensor | None, dropout_p: float, is_causal: bool, scale: float
) -> Any:  # fmt: skip
    """(softmax(query keyᵀ · scale + mask) value, log-sum-exp of the scores)."""
    q, k, v = wide(query, key, value)  # type: ignore[arg-type]
    p = _Problem(q, k, v, mask, state, dropout_p, is_causal, scale)
    out, lse = _forward(p)
    shape = (*query.shape[:-1], value.shape[-1])
    return out.reshape(shape).astype(query.dtype, copy=False), lse.reshape(query.shape[:-1])


# What users call --------------------------------------------------------------------------------------------------------------


def _reference_public(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, *, scale: Any = None, enable_gqa: bool = False
) -> Any:  # fmt: skip
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = np.repeat(key, times, -3), np.repeat(value, times, -3)
    return _reference(query, key, value, attn_mask, None, 0.0, is_causal, scale)[0]


@composite(
    namespace="nn",
    reference=_reference_public,
    samples=lambda m: [
        Sample(m.normal(2, 3, 4), m.normal(2, 5, 4), m.normal(2, 5, 2)),
        Sample(m.normal(2, 2, 3, 4), m.normal(2, 2, 3, 4), m.normal(2, 2, 3, 4), is_causal=True),
        Sample(m.normal(2, 3, 4), m.normal(1, 5, 4), m.normal(5, 2), m.normal(3, 5), scale=0.3),
        Sample(m.normal(1, 4, 3, 2), m.normal(1, 2, 3, 2), m.normal(1, 2, 3, 2), enable_gqa=True),
    ],
    errors=lambda m: [
        Bad(ValueError, r"attention: query and key must have equal last sizes. Got query \(3, 4\), key \(5, 3\)", m.normal(3, 4), m.normal(5, 3), m.normal(5, 2)),
        Bad(ValueError, "attention: key and value must be equally long", m.normal(3, 4), m.normal(5, 4), m.normal(4, 2)),
        Bad(ValueError, r"attention: attn_mask of shape \(4, 5\) does not broadcast", m.normal(3, 4), m.normal(5, 4), m.normal(5, 2), m.normal(4, 5)),
        Bad(ValueError, "attention: attn_mask and is_causal", m.normal(3, 4), m.normal(3, 4), m.normal(3, 2), m.normal(3, 3), is_causal=True),
        Bad(ValueError, "attention: dropout_p must be between 0 and 1", m.normal(3, 4), m.normal(3, 4), m.normal(3, 2), dropout_p=2.0),
        Bad(ValueError, "attention: query must have at least 2 axes", m.normal(4), m.normal(3, 4), m.normal(3, 2)),
        Bad(TypeError, "attention: attn_mask must be bool or floating", m.normal(3, 4), m.normal(3, 4), m.normal(3, 2), m.ints(3, 3)),
    ],
)  # fmt: skip
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    generator: Any = None,
) -> Tensor:
    """softmax(query keyᵀ · scale + mask) value.

    Args:
        query, key, value: (..., L, E), (..., S, E), (..., S, V); leading axes broadcast.
        attn_mask: broadcasts to (..., L, S). Bool: True takes part. Floating: added to the scores.
        dropout_p: the probability with which a weight is set to zero (whether training or not).
        is_causal: position i sees keys 0 to i only. Not together with `attn_mask`.
        scale: 1 / sqrt(E) unless given.
        enable_gqa: the query may have a multiple of the heads (axis -3) of key and value.

    A query whose keys are all masked gives zeros.
    """
    op = "scaled_dot_product_attention"
    if not 0 <= dropout_p <= 1:
        raise ValueError(f"{op}: dropout_p must be between 0 and 1. Got {dropout_p}.")
    if is_causal and attn_mask is not None:
        raise ValueError(f"{op}: attn_mask and is_causal exclude each other. Put the triangle into the mask.")
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.ndim < 2:
            raise ValueError(f"{op}: {name} must have at least 2 axes. Got shape {format_shape(x.shape)}.")
    if enable_gqa:
        key, value = _repeat_heads(query, key), _repeat_heads(query, value)
    lead = broadcast_shapes(op, query.shape[:-2], key.shape[:-2], value.shape[:-2])
    query, key, value = (_lead(x, lead) for x in (query, key, value))
    state = None
    if dropout_p > 0:
        from ..random import _next

        state = _next(op, generator)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None and query.shape[-1] else 1.0 if scale is None else float(scale)
    return attention_forward(query, key, value, attn_mask, state, float(dropout_p), bool(is_causal), factor)[0]


def _lead(x: Tensor, lead: tuple[Any, ...]) -> Tensor:
    if tuple(x.shape[:-2]) == tuple(lead):
        return x
    return broadcast_to_like(x, Spec((*lead, *x.shape[-2:]), x.dtype))


def _repeat_heads(query: Tensor, x: Tensor) -> Tensor:
    if query.ndim < 3 or x.ndim < 3 or query.shape[-3] % x.shape[-3]:
        raise ValueError(
            f"scaled_dot_product_attention: the heads of the query (axis -3) must be a multiple of those of key and value. "
            f"Got {format_shape(query.shape)} and {format_shape(x.shape)}."
        )
    from .shaping import repeat

    times = query.shape[-3] // x.shape[-3]
    return x if times == 1 else repeat(x, times, axis=-3)


def _as_mask(mask: Tensor, dtype: np.dtype) -> Tensor:
    """PyTorch's modules mark what is left out: a bool mask becomes -inf there."""
    from .dispatch import constant

    if dtypes.is_bool(mask.dtype):
        return where(mask, constant(np.asarray(-np.inf, dtype)), constant(np.asarray(0, dtype)))
    return astype(mask, dtype)


def _heads(x: Tensor, num_heads: int) -> Tensor:
    """(N, L, E) as (N, heads, L, E / heads)."""
    return swapaxes(reshape(x, (x.shape[0], x.shape[1], num_heads, x.shape[2] // num_heads)), 1, 2)


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
    generator: Any = None,
) -> tuple[Tensor, Tensor | None]:
    """Attention with projections: what `nn.MultiheadAttention` computes. Returns (output, weights or None).

    Args:
        query, key, value: (N, L, E), (N, S, ·), (N, S, ·), or without N; with `batch_first=False` (L, N, E) and so on.
        in_proj_weight: (3E, E) for query, key and value together, or three weights (E, ·).
        key_padding_mask: (N, S); True (or an added number) leaves a key out.
        attn_mask: (L, S) or (N · heads, L, S); True (or an added number) leaves a pair out.
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
        mask = mask + _as_mask(~_triangle(rows, columns), q.dtype)
        is_causal = False
    p = dropout_p if training else 0.0
    weights = None
    if need_weights:
        from .dropout import dropout
        from .softmax import softmax

        weights = softmax(_scores_ops(q, k, mask, is_causal, 1 / math.sqrt(q.shape[-1])), -1)
        weights = dropout(weights, p, training, generator=generator)
        out = matmul(weights, v)
        weights = reduce_sum(weights, 1, False) / num_heads if average_attn_weights else weights
    else:
        out = scaled_dot_product_attention(q, k, v, mask, p, is_causal, generator=generator)
    out = reshape(swapaxes(out, 1, 2), (batch, rows, embed))
    out = matmul(out, matrix_transpose(out_proj_weight))
    out = out if out_proj_bias is None else out + out_proj_bias
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
        joined = joined if bias is None else joined + bias
        return tuple([joined[..., i * embed : (i + 1) * embed] for i in range(3)])
    else:
        parts = [weight[i * embed : (i + 1) * embed] for i in range(3)]
        results = [matmul(x, matrix_transpose(w)) for x, w in zip((query, key, value), parts, strict=True)]
    if bias is not None:
        results = [r + bias[i * embed : (i + 1) * embed] for i, r in enumerate(results)]
    return tuple(results)
