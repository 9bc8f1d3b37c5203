"""Scaled dot-product attention, with its backward pass as a separate op.

The forward op saves the log-sum-exp of each row of scores, not the scores: the backward pass recomputes the
probabilities one block of rows at a time, so memory is O(L + S) instead of O(L · S). The dropout mask is regenerated from the
generator's state. Shapes: query (..., L, E), key (..., S, E), value (..., S, V) with equal leading axes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ..array.creation import zeros_like
from ..array.elementwise import exp, where
from ..array.products import matmul
from ..array.random_ops import check_state, random_dropout
from ..array.reduction import reduce_sum
from ..array.shaping import broadcast_to_like, expand_dims, matrix_transpose, reshape, sum_to_like
from ..core.define import composite, primitive
from ..core.registry import joint
from ..core.samples import Bad, Sample
from ..core.second_order import composed
from ..core.spec import Spec, broadcast_shapes, num_elements, number, same_size
from .attention_call import Attention, Backward, Forward, attention_of
from .attention_reference import Problem, backward, forward
from .formulas import batched, masked_scores, wide

if TYPE_CHECKING:
    from ...random import Generator

# Rules ----------------------------------------------------------------------------------------------------------------


def _check(call: Forward) -> None:
    op = "scaled_dot_product_attention"
    query, key, value, mask = call[:4]
    if call.attention.__class__ is not Attention:
        raise TypeError(f"{op}: expected an Attention value. Got {call.attention!r}.")
    for name, x in (("query", query), ("key", key), ("value", value)):
        if not dtypes.is_floating(x.dtype):
            raise TypeError(f"{op}: {name} must be floating. Got {x.dtype.name}.")
        if x.dtype != query.dtype:
            raise TypeError(
                f"{op}: query, key and value must have one dtype. Got {query.dtype.name} and {x.dtype.name}."
            )
        if x.shape is not None and len(x.shape) < 2:
            raise ValueError(f"{op}: {name} must have at least 2 axes. Got shape {format_shape(x.shape)}.")
    if call.attention.dropout_p > 0:
        check_state(op, call.state)
    if query.shape is None or key.shape is None or value.shape is None:
        return
    shapes = f"Got query {format_shape(query.shape)}, key {format_shape(key.shape)}, value {format_shape(value.shape)}."
    if not same_size(query.shape[-1], key.shape[-1]):
        raise ValueError(f"{op}: query and key must have equal last sizes. {shapes}")
    if not same_size(key.shape[-2], value.shape[-2]):
        raise ValueError(f"{op}: key and value must be equally long (axis -2). {shapes}")
    if (
        len(query.shape) != len(key.shape)
        or len(key.shape) != len(value.shape)
        or any(
            not same_size(a, b) or not same_size(a, c)
            for a, b, c in zip(query.shape[:-2], key.shape[:-2], value.shape[:-2], strict=True)
        )
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
        if (
            fits is None
            or len(fits) != len(target)
            or any(not same_size(a, b) for a, b in zip(fits, target, strict=True))
        ):
            raise ValueError(
                f"{op}: attn_mask of shape {format_shape(mask.shape)} does not broadcast to the scores, which have shape "
                f"{format_shape(target)}."
            )


def _infer(*values: Any) -> tuple[Spec, Spec]:
    call = Forward(*values)
    _check(call)
    query, value = call.query, call.value
    if query.shape is None or value.shape is None:
        return Spec(None, query.dtype), Spec(None, _stat(query))
    return Spec((*query.shape[:-1], value.shape[-1]), query.dtype), Spec(query.shape[:-1], _stat(query))


def _stat(x: Any) -> np.dtype:
    return dtypes.float32 if x.dtype.itemsize == 2 else x.dtype


def _backward_ops(*tensors: Any, attention: Attention) -> tuple[Any, Any, Any, Any]:
    """The backward pass in public ops, for higher derivatives."""
    call = Backward._make((*tensors, attention, False))
    grad, query, key, value, mask, lse = call.grad, call.query, call.key, call.value, call.mask, call.lse
    scores = masked_scores(query, key, mask, attention.is_causal, attention.scale)
    weights = exp(scores - expand_dims(where(lse == float("-inf"), 0.0, lse), -1))
    gp = matmul(grad, matrix_transpose(value))
    dropped = weights
    if attention.dropout_p > 0:
        dropped = random_dropout(weights, call.state, attention.dropout_p)
        gp = random_dropout(gp, call.state, attention.dropout_p)
    gp = gp - reduce_sum(grad * call.result, -1, True)
    if call.grad_lse is not None:
        gp = gp + expand_dims(call.grad_lse, -1)
    gs = weights * gp
    gm = None if mask is None or dtypes.is_bool(mask.dtype) else sum_to_like(gs, mask)
    scaled = gs * attention.scale
    return (matmul(scaled, key), matmul(matrix_transpose(scaled), query), matmul(matrix_transpose(dropped), grad), gm)


def _rule(
    g: Any, query: Any, key: Any, value: Any, mask: Any, state: Any, out0: Any, out1: Any, attention: Any, needs: Any
) -> tuple[Any, ...]:
    grad = zeros_like(out0) if g[0] is None else g[0]
    mask_grad = bool(needs[3])
    gq, gk, gv, gm = attention_backward(
        *Backward(grad, g[1], query, key, value, mask, state, out0, out1, attention, mask_grad)
    )
    return gq, gk, gv, gm if mask_grad else None, None


def _infer_backward(*values: Any) -> tuple[Spec, ...]:
    call = Backward(*values)
    if call.attention.__class__ is not Attention:
        raise TypeError(f"attention_backward: expected an Attention value. Got {call.attention!r}.")
    mask_spec = Spec(call.mask.shape, call.mask.dtype) if call.mask_grad else Spec((0,), call.query.dtype)
    return (*[Spec(x.shape, x.dtype) for x in (call.query, call.key, call.value)], mask_spec)


def _reference_scores(call: Forward) -> Any:
    scores = call.query @ np.swapaxes(call.key, -1, -2) * call.attention.scale
    if call.mask is not None:
        scores = np.where(call.mask, scores, -np.inf) if call.mask.dtype == bool else scores + call.mask
    if call.attention.is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=np.bool_), scores, -np.inf)
    return scores


def _reference_keep(weights: Any, call: Forward) -> Any:
    """`weights` after dropout."""
    if not call.attention.dropout_p:
        return weights
    from ..array.random_ops import _reference_dropout

    return _reference_dropout(weights, call.state, call.attention.dropout_p)


def _reference(*values: Any) -> Any:
    call = Forward(*values)
    weights = np.exp(_reference_scores(call))
    lse = np.log(weights.sum(-1))
    weights = weights / np.where(weights.sum(-1, keepdims=True) == 0, 1, weights.sum(-1, keepdims=True))
    return _reference_keep(weights, call) @ call.value, lse


def _reference_backward(*values: Any) -> Any:
    call = Backward(*values)
    grad, mask, scale = call.grad, call.mask, call.attention.scale
    weights = np.exp(_reference_scores(call.forward) - call.lse[..., None])
    keep = _reference_keep(np.ones_like(weights), call.forward)
    gs = weights * (grad @ np.swapaxes(call.value, -1, -2) * keep - (grad * call.result).sum(-1, keepdims=True))
    if call.grad_lse is not None:
        gs = gs + weights * call.grad_lse[..., None]
    gm = np.zeros(0)
    if call.mask_grad:
        extra = tuple(range(gs.ndim - mask.ndim))
        gm = gs.sum(
            extra + tuple(i + len(extra) for i, d in enumerate(mask.shape) if d == 1 and gs.shape[i + len(extra)] != 1),
            keepdims=True,
        )
        gm = gm.reshape(mask.shape)
    gv = np.swapaxes(weights * keep, -1, -2) @ grad
    return gs @ call.key * scale, np.swapaxes(gs, -1, -2) @ call.query * scale, gv, gm


def _batch_forward(axes: Any, tensors: Any, attrs: Any) -> Any:
    query, key, value = (
        batched(tensors[:3], axes[:3]) if any(a is not None for a in axes[:3]) else _as_batch(tensors, axes)
    )
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
    call, axis = Backward(*tensors, *attrs), Backward(*axes, *attrs)
    names = ("grad", "grad_lse", "query", "key", "value", "result", "lse")
    full = batched([getattr(call, n) for n in names], [getattr(axis, n) for n in names])
    call = call._replace(**dict(zip(names, full, strict=True)))
    mask, mask_axis = call.mask, axis.mask
    if mask is not None and call.mask_grad:  # a gradient per example
        (mask,) = batched([mask, call.query], [mask_axis, 0])[:1]
        mask_axis = 0
    gq, gk, gv, gm = attention_backward(*call._replace(mask=_batch_mask(mask, mask_axis, call.query)))
    if call.mask_grad:
        gm = reshape(gm, (gm.shape[0], *tensors[5].shape[(axes[5] is not None) :]))
    else:
        gm = reshape(gm, (1, 0)) * zeros_like(gq[(slice(None), *[0] * (gq.ndim - 1))])[:, None]
    return gq, gk, gv, gm


def _cost(query: Any, key: Any, value: Any, *_: Any) -> int:
    rows = num_elements(query.shape[:-1]) or 0
    return 2 * rows * (key.shape[-2] or 0) * ((query.shape[-1] or 0) + (value.shape[-1] or 0))


_STATE = np.array([3, 1], np.int64)


@primitive(
    version=2,
    upgrade=lambda version, inputs, attrs: (attention_of(*attrs[:3]), *attrs[3:]),
    autocast="low",
    namespace="internal",
    outputs=4,
    infer=_infer_backward,
    vjp=composed(_backward_ops, "attention"),
    batch=_batch_backward,
    cost=lambda grad, grad_lse, query, key, value, *_: 5 * _cost(query, key, value) // 2,
    reference=_reference_backward,
    samples=lambda m: [
        Sample(
            m.normal(2, 3, 2), None, m.normal(2, 3, 4), m.normal(2, 5, 4), m.normal(2, 5, 2), None, None,
            m.normal(2, 3, 2), m.positive(2, 3) + 1, Attention(0.0, False, 0.5), False,
        ),
        Sample(
            m.normal(3, 2), m.normal(3), m.normal(3, 4), m.normal(3, 4), m.normal(3, 2), m.normal(1, 3), _STATE,
            m.normal(3, 2), m.positive(3) + 1, Attention(0.4, True, 0.5), True,
        ),
    ],
    test={"differentiable_inputs": (0, 1, 2, 3, 4, 5, 6, 7, 8)},
)  # fmt: skip
def attention_backward(
    grad: Tensor,
    grad_lse: Tensor | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    state: Tensor | None,
    result: Tensor,
    lse: Tensor,
    attention: Attention,
    mask_grad: bool,
) -> Any:
    """The gradients of attention in query, key, value and mask (empty unless `mask_grad`)."""
    g, gl, q, k, v, o, ls = wide(grad, grad_lse, query, key, value, result, lse)  # type: ignore[arg-type]
    p = Problem(Forward(q, k, v, mask, state, attention))
    flat = (p.count, p.rows)
    scores = np.empty((*flat, p.columns), q.dtype) if mask_grad else None
    gq, gk, gv = backward(
        p,
        g.reshape(*flat, v.shape[-1]),
        None if gl is None else gl.reshape(flat),
        o.reshape(*flat, v.shape[-1]),
        ls.reshape(flat),
        scores,
    )
    gm = np.zeros(0, query.dtype)
    if scores is not None and mask is not None:
        from ..array.shaping import _sum_array

        gm = _sum_array(scores.reshape(*p.lead, p.rows, p.columns), mask.shape).astype(mask.dtype, copy=False)
    return (*[a.reshape(b.shape).astype(b.dtype, copy=False) for a, b in ((gq, query), (gk, key), (gv, value))], gm)


@primitive(
    version=2,
    upgrade=lambda version, inputs, attrs: (attention_of(*attrs),),
    autocast="low",
    namespace="internal",
    outputs=2,
    infer=_infer,
    vjp=joint(_rule, fill=False),
    batch=_batch_forward,
    cost=_cost,
    reference=_reference,
    samples=lambda m: [
        Sample(m.normal(2, 3, 4), m.normal(2, 5, 4), m.normal(2, 5, 2), None, None, Attention(0.0, False, 0.5)),
        Sample(m.normal(3, 4), m.normal(3, 4), m.normal(3, 2), None, None, Attention(0.0, True, 0.7)),
        Sample(
            m.normal(2, 3, 4), m.normal(2, 5, 4), m.normal(2, 5, 2), m.normal(3, 5), _STATE, Attention(0.3, False, 0.5)
        ),
        Sample(
            m.normal(1, 2, 3, 4), m.normal(1, 2, 5, 4), m.normal(1, 2, 5, 2), np.arange(15).reshape(3, 5) % 3 > 0, None,
            Attention(0.0, False, 0.5),
        ),
    ],
)  # fmt: skip
def attention_forward(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, state: Tensor | None, attention: Attention
) -> Any:
    """(softmax(query keyᵀ · scale + mask) value, log-sum-exp of the scores)."""
    q, k, v = wide(query, key, value)  # type: ignore[arg-type]
    out, lse = forward(Problem(Forward(q, k, v, mask, state, attention)))
    shape = (*query.shape[:-1], value.shape[-1])
    return out.reshape(shape).astype(query.dtype, copy=False), lse.reshape(query.shape[:-1])


# Public functions -----------------------------------------------------------------------------------------------------


def _reference_public(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: Any = None,
    enable_gqa: bool = False,
) -> Any:
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = np.repeat(key, times, -3), np.repeat(value, times, -3)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    return _reference(query, key, value, attn_mask, None, Attention(0.0, is_causal, scale))[0]


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
        Bad(
            ValueError,
            r"attention: query and key must have equal last sizes. Got query \(3, 4\), key \(5, 3\)",
            m.normal(3, 4),
            m.normal(5, 3),
            m.normal(5, 2),
        ),
        Bad(
            ValueError, "attention: key and value must be equally long", m.normal(3, 4), m.normal(5, 4), m.normal(4, 2)
        ),
        Bad(
            ValueError,
            r"attention: attn_mask of shape \(4, 5\) does not broadcast",
            m.normal(3, 4),
            m.normal(5, 4),
            m.normal(5, 2),
            m.normal(4, 5),
        ),
        Bad(
            ValueError,
            "attention: attn_mask and is_causal",
            m.normal(3, 4),
            m.normal(3, 4),
            m.normal(3, 2),
            m.normal(3, 3),
            is_causal=True,
        ),
        Bad(
            ValueError,
            "attention: dropout_p must be between 0 and 1",
            m.normal(3, 4),
            m.normal(3, 4),
            m.normal(3, 2),
            dropout_p=2.0,
        ),
        Bad(ValueError, "attention: query must have at least 2 axes", m.normal(4), m.normal(3, 4), m.normal(3, 2)),
        Bad(
            TypeError,
            "attention: attn_mask must be bool or floating",
            m.normal(3, 4),
            m.normal(3, 4),
            m.normal(3, 2),
            m.ints(3, 3),
        ),
    ],
)
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
    generator: Generator | None = None,
) -> Tensor:
    """Scaled dot-product attention: softmax(query keyᵀ · scale + mask) value.

    Args:
        query, key, value: (..., L, E), (..., S, E), (..., S, V); leading axes broadcast.
        attn_mask: broadcasts to (..., L, S). Bool: True attends. Floating: added to the scores.
        dropout_p: the probability with which a weight is set to zero (whether training or not).
        is_causal: position i attends to keys 0 to i only. Not together with `attn_mask`.
        scale: factor on the scores; 1 / sqrt(E) by default.
        enable_gqa: the query may have a multiple of the heads (axis -3) of key and value.

    A query whose keys are all masked gives zeros.

    >>> q, k, v = wf.randn(2, 4, 8), wf.randn(2, 6, 8), wf.randn(2, 6, 3)
    >>> F.scaled_dot_product_attention(q, k, v).shape
    (2, 4, 3)
    """
    op = "scaled_dot_product_attention"
    dropout_p = number(op, "dropout_p", dropout_p)
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
        from ...random import _next

        state = _next(op, generator)
    if scale is None and not isinstance(query.shape[-1], int):
        raise ValueError(
            f"{op}: the scale is 1 / sqrt of the size of the query's last axis, which is not known. Got shape "
            f"{format_shape(query.shape)}. Pass `scale=`, or give the placeholder that size."
        )
    factor = (
        1 / math.sqrt(query.shape[-1])
        if scale is None and query.shape[-1]
        else 1.0
        if scale is None
        else number(op, "scale", scale)
    )
    return attention_forward(query, key, value, attn_mask, state, Attention(dropout_p, bool(is_causal), factor))[0]


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
    from ..array.repeating import repeat

    times = query.shape[-3] // x.shape[-3]
    return x if times == 1 else repeat(x, times, axis=-3)
