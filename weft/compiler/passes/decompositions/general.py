"""Decompositions of ops that are one kernel eagerly into smaller ops, which the compiler fuses again."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....graph.graph import CONSTANT
from ....ops.array import elementwise as e
from ....ops.array import gathering, indexing, reduction, shaping
from ....ops.array.random_ops import random_dropout
from ....ops.core.slow_path import check_memory
from ....ops.nn.attention_call import Backward, Forward
from ....tensor import wrap
from ...flow import filled_with
from ...loop_ir.kernels.attention import serves_backward, serves_forward
from ..decompose import counting, decomposition


@decomposition("matmul")
def matmul(x1: Any, x2: Any) -> Any:
    """An outer product becomes a multiplication, which fuses with its neighbours."""
    if len(x1.shape) < 2 or len(x2.shape) < 2 or x1.shape[-1] != 1 or x1.dtype not in (np.float32, np.float64):
        return NotImplemented
    return x1 * x2


@decomposition("softmax")
def softmax(x: Any, axis: Any = -1) -> Any:
    shifted = e.exp(x - reduction.max_(x, axis=axis, keepdims=True))
    return shifted / reduction.reduce_sum(shifted, axis, True)


@decomposition("log_softmax")
def log_softmax(x: Any, axis: Any = -1) -> Any:
    shifted = x - reduction.max_(x, axis=axis, keepdims=True)
    return shifted - e.log(reduction.reduce_sum(e.exp(shifted), axis, True))


@decomposition("pow")
def pow(x1: Any, x2: Any) -> Any:
    """Integer powers check for negative exponents first."""
    if x2.dtype.kind != "i":
        return NotImplemented
    exponent = x2._data
    check, graph = e.check_exponents.op, exponent.node.graph  # type: ignore[attr-defined]
    known = exponent.node.op is CONSTANT and np.all(exponent.node.attrs[0] >= 0)
    if known or any(n.op is check and n.inputs[0] is exponent for n in graph.nodes):
        return NotImplemented
    e.check_exponents(x2)
    return e.pow(x1, x2)


def _bools(name: str, logic: Any) -> None:
    """Register that the reduction `name` of bools is `logic`: loops accumulate bools with `any` and `all` only."""

    def reduce(x: Any, axis: Any, keepdims: bool) -> Any:
        return logic(x, axis=axis, keepdims=keepdims) if x.dtype == np.bool_ else NotImplemented

    decomposition(name)(
        reduce if name.startswith("reduce_") else lambda x, *, axis, keepdims: reduce(x, axis, keepdims)
    )


_bools("max", reduction.any_)
_bools("min", reduction.all_)
_bools("reduce_sum", reduction.any_)
_bools("reduce_prod", reduction.all_)


@decomposition("sum_as")
def sum_as(x: Any, like: Any) -> Any:
    return shaping.sum_to(x, tuple(like.shape))


@decomposition("broadcast_as")
def broadcast_as(x: Any, like: Any) -> Any:
    return shaping.broadcast_to(x, tuple(like.shape))


@decomposition("reshape_as")
def reshape_as(x: Any, like: Any) -> Any:
    return shaping.reshape(x, tuple(like.shape))


@decomposition("put_into_zeros_like")
def put_into_zeros_like(x: Any, like: Any, index: Any) -> Any:
    return indexing.put_into_zeros(x, tuple(like.shape), index)


@decomposition("scatter_add")
def scatter_add(x: Any, index: Any, src: Any, axis: int = 0) -> Any:
    """One element per row added to zeros (the gradient of picking a class) is a comparison with the class numbers."""
    axis = axis % len(x.shape)
    zeros = filled_with(x._data) == 0
    rest_equal = all(a == b for i, (a, b) in enumerate(zip(index.shape, x.shape, strict=True)) if i != axis)
    if not zeros or index.shape[axis] != 1 or not rest_equal:
        return NotImplemented
    n = x.shape[axis]
    numbers = _numbers(x, n, axis)
    place = e.where(index < 0, index + n, index)
    return e.where(e.equal(numbers, place), src, 0.0)


def _numbers(x: Any, n: int, axis: int) -> Any:
    """0, 1, … along one axis of the shape of `x`."""
    shape = [1] * len(x.shape)
    shape[axis] = n
    graph = x._data.node.graph
    return wrap(graph.constant(counting("captured function", n).reshape(shape)))


@decomposition("softmax_backward")
def softmax_backward(grad: Any, result: Any, axis: int) -> Any:
    product = grad * result
    return product - result * reduction.reduce_sum(product, axis, True)


@decomposition("log_softmax_backward")
def log_softmax_backward(grad: Any, result: Any, axis: int) -> Any:
    return grad - e.exp(result) * reduction.reduce_sum(grad, axis, True)


def _hot(x: Any, target: Any, axis: int, ignore_index: int, name: str) -> tuple[Any, Any]:
    """(is this the target class, does the row count), over the classes of every row."""
    n = x.shape[axis]
    checked = gathering.checked_indices(target, 0, n, ignore_index, name)
    places = shaping.expand_dims(checked, axis)
    return e.equal(_numbers(x, n, axis), places), e.not_equal(places, ignore_index)


def _class_axis(x: Any) -> int:
    return 1 if len(x.shape) > 1 else 0


@decomposition("cross_entropy_forward")
def cross_entropy_forward(x: Any, target: Any, ignore_index: int, label_smoothing: float) -> Any:
    axis = _class_axis(x)
    hot, counts = _hot(x, target, axis, ignore_index, "cross_entropy: class")
    top = reduction.max_(x, axis=axis, keepdims=True)
    top = e.where(e.isfinite(top), top, 0.0)
    below = x - top  # the loss is unchanged, without cancellation for large logits
    total = e.log(reduction.reduce_sum(e.exp(below), axis, True))
    loss = total - reduction.reduce_sum(e.where(hot, below, 0.0), axis, True) * (1 - label_smoothing)
    if label_smoothing:
        loss = loss - reduction.reduce_sum(below, axis, True) * (label_smoothing / x.shape[axis])
    return shaping.squeeze(e.where(counts, loss, 0.0), axis), shaping.squeeze(total + top, axis)


@decomposition("cross_entropy_backward")
def cross_entropy_backward(
    grad: Any, grad_lse: Any, x: Any, lse: Any, target: Any, ignore_index: int, label_smoothing: float
) -> Any:
    axis = _class_axis(x)
    hot, counts = _hot(x, target, axis, ignore_index, "cross_entropy: class")
    live = e.where(counts, shaping.expand_dims(grad, axis), 0.0)
    total = live if grad_lse is None else live + shaping.expand_dims(grad_lse, axis)
    soft = e.exp(x - shaping.expand_dims(lse, axis)) * total
    if label_smoothing:
        soft = soft - live * (label_smoothing / x.shape[axis])
    return soft - e.where(hot, live * (1 - label_smoothing), 0.0)


@decomposition("pick_class")
def pick_class(x: Any, target: Any, ignore_index: int) -> Any:
    axis = _class_axis(x)
    hot, counts = _hot(x, target, axis, ignore_index, "nll_loss: class")
    picked = reduction.reduce_sum(e.where(hot, x, 0.0), axis, True)
    return shaping.squeeze(e.where(counts, picked, 0.0), axis)


@decomposition("embedding_lookup")
def embedding_lookup(indices: Any, weight: Any, padding_idx: int | None, sparse: bool) -> Any:
    rows = weight.shape[0]
    return gathering.take_axis(weight, gathering.checked_indices(indices, 0, rows, None, "embedding: index"), 0)


def _scores(call: Forward) -> Any:
    mask = call.mask
    scores = (call.query @ shaping.matrix_transpose(call.key)) * call.attention.scale
    if mask is not None:
        scores = e.where(mask, scores, -float("inf")) if mask.dtype == np.bool_ else scores + mask
    if call.attention.is_causal:
        rows, columns = scores.shape[-2:]
        check_memory("scaled_dot_product_attention", (rows, columns), np.dtype(np.bool_))
        seen = wrap(scores._data.node.graph.constant(np.tri(rows, columns, dtype=bool)))
        scores = e.where(seen, scores, -float("inf"))
    return scores


@decomposition("attention_forward")
def attention_forward(*values: Any) -> Any:
    call = Forward(*values)
    if call.query.dtype.itemsize == 2 or serves_forward(call):
        return NotImplemented
    scores, dropout_p = _scores(call), call.attention.dropout_p
    top = reduction.max_(scores, axis=-1, keepdims=True)
    top = e.where(e.isfinite(top), top, 0.0)
    weights = e.exp(scores - top)
    total = reduction.reduce_sum(weights, -1, True)
    lse = e.log(total) + top
    probabilities = weights / e.where(e.equal(total, 0.0), 1.0, total)
    if dropout_p > 0:
        probabilities = random_dropout(probabilities, call.state, dropout_p)
    return probabilities @ call.value, shaping.squeeze(lse, -1)


@decomposition("attention_backward")
def attention_backward(*values: Any) -> Any:
    call = Backward(*values)
    if call.query.dtype.itemsize == 2 or serves_backward(call):
        return NotImplemented
    grad, query, key, value = call.grad, call.query, call.key, call.value
    scores, dropout_p = _scores(call.forward), call.attention.dropout_p
    column = shaping.expand_dims(call.lse, -1)
    weights = dropped = e.where(e.isfinite(column), e.exp(scores - column), 0.0)
    g_dropped = grad @ shaping.matrix_transpose(value)
    if dropout_p > 0:
        dropped = random_dropout(weights, call.state, dropout_p)
        g_dropped = random_dropout(g_dropped, call.state, dropout_p)
    delta = reduction.reduce_sum(grad * call.result, -1, True)
    if call.grad_lse is not None:
        delta = delta - shaping.expand_dims(call.grad_lse, -1)
    g_scores = weights * (g_dropped - delta)
    if call.mask_grad:
        g_mask = shaping.sum_to(g_scores, tuple(call.mask.shape))
    else:
        g_mask = wrap(query._data.node.graph.constant(np.zeros(0, query.dtype)))
    scaled = g_scores * call.attention.scale
    gradients = (scaled @ key, shaping.matrix_transpose(scaled) @ query, shaping.matrix_transpose(dropped) @ grad)
    # sum over broadcast leading axes
    sums = [
        g if tuple(g.shape) == tuple(x.shape) else shaping.sum_to(g, tuple(x.shape))
        for g, x in zip(gradients, (query, key, value), strict=True)
    ]
    return (*sums, g_mask)
