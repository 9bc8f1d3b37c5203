"""How ops that are one kernel eagerly are written with smaller ops for the compiler, which fuses them again."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph.control_flow import scan
from ...ops import elementwise as e
from ...ops import indexing, reduction, shaping
from ...ops.formulas import count, input_gradient, sum_tensors
from ...tensor import wrap
from .decompose import decomposition


@decomposition("softmax")
def softmax(x: Any, axis: Any = -1) -> Any:
    shifted = e.exp(x - reduction.max_(x, axis=axis, keepdims=True))
    return shifted / reduction.reduce_sum(shifted, axis, True)


@decomposition("log_softmax")
def log_softmax(x: Any, axis: Any = -1) -> Any:
    shifted = x - reduction.max_(x, axis=axis, keepdims=True)
    return shifted - e.log(reduction.reduce_sum(e.exp(shifted), axis, True))


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
    zeros = x._data.node.op.name == "filled" and x._data.node.attrs[1] == 0
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
    return wrap(graph.constant(np.arange(n, dtype=np.int64).reshape(shape)))


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
    checked = indexing.checked_indices(target, 0, n, ignore_index, name)
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
    lse = e.log(reduction.reduce_sum(e.exp(x - top), axis, True)) + top
    loss = lse - reduction.reduce_sum(e.where(hot, x, 0.0), axis, True) * (1 - label_smoothing)
    if label_smoothing:
        loss = loss - reduction.reduce_sum(x, axis, True) * (label_smoothing / x.shape[axis])
    return shaping.squeeze(e.where(counts, loss, 0.0), axis), shaping.squeeze(lse, axis)


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
    return indexing.take_axis(weight, indices, 0)


def _tail(v: Any, num_axes: int) -> Any:
    """Statistics of rows as a column beside them."""
    return None if v is None else shaping.reshape(v, (*v.shape, *(1,) * num_axes))


@decomposition("layer_norm_forward")
def layer_norm_forward(x: Any, weight: Any, bias: Any, num_axes: int, eps: float) -> Any:
    axes = tuple(range(len(x.shape) - num_axes, len(x.shape)))
    if x.dtype.itemsize == 2:
        return NotImplemented
    n = count(x, axes)
    mean = reduction.reduce_sum(x, axes, True) * (1.0 / n)
    centred = x - mean
    rstd = e.rsqrt(reduction.reduce_sum(centred * centred, axes, True) * (1.0 / n) + eps)
    y = centred * rstd
    y = y if weight is None else y * weight
    y = y if bias is None else y + bias
    lead = tuple(x.shape[: len(x.shape) - num_axes])
    return y, shaping.reshape(mean, lead), shaping.reshape(rstd, lead)


@decomposition("layer_norm_backward")
def layer_norm_backward(
    grad: Any, grad_mean: Any, grad_rstd: Any, x: Any, weight: Any, mean: Any, rstd: Any, num_axes: int
) -> Any:
    rank = len(x.shape)
    axes, rows = tuple(range(rank - num_axes, rank)), tuple(range(rank - num_axes))
    if x.dtype.itemsize == 2 or weight is None:
        return NotImplemented
    gm, gr, m, r = [_tail(v, num_axes) for v in (grad_mean, grad_rstd, mean, rstd)]
    gx, product = input_gradient(
        grad, gm, gr, x, weight, m, r, axes=axes, count=count(x, axes), total=sum_tensors
    )
    return gx, reduction.reduce_sum(product, rows, False), reduction.reduce_sum(grad, rows, False)


def _column(v: Any, rank: int) -> Any:
    return None if v is None else shaping.reshape(v, (1, *v.shape, *(1,) * (rank - 2)))


@decomposition("batch_norm_forward")
def batch_norm_forward(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    rank = len(x.shape)
    axes = tuple(a for a in range(rank) if a != 1)
    if x.dtype.itemsize == 2:
        return NotImplemented
    n = count(x, axes)
    mean = reduction.reduce_sum(x, axes, True) * (1.0 / n)
    centred = x - mean
    var = reduction.reduce_sum(centred * centred, axes, True) * (1.0 / n)
    scale = e.rsqrt(var + eps)
    scale = scale if weight is None else scale * _column(weight, rank)
    y = centred * scale
    y = y if bias is None else y + _column(bias, rank)
    channels = (x.shape[1],)
    return y, shaping.reshape(mean, channels), shaping.reshape(var, channels)


@decomposition("batch_norm_backward")
def batch_norm_backward(
    grad: Any, grad_mean: Any, grad_var: Any, x: Any, weight: Any, mean: Any, var: Any, eps: float
) -> Any:
    rank = len(x.shape)
    axes = tuple(a for a in range(rank) if a != 1)
    if x.dtype.itemsize == 2 or weight is None or grad_mean is not None or grad_var is not None:
        return NotImplemented
    n = count(x, axes)
    m, r, w = _column(mean, rank), e.rsqrt(_column(var, rank) + eps), _column(weight, rank)
    centred = x - m
    total = reduction.reduce_sum(grad, axes, True)
    product = reduction.reduce_sum(grad * centred, axes, True)
    # gx = w r (g - Σg/n - (x - m) r² Σ(g (x - m))/n): two numbers per channel besides those of the forward pass
    slope = product * (r * r) * (1.0 / n)
    gx = (grad - total * (1.0 / n) - centred * slope) * (w * r)
    channels = (x.shape[1],)
    return gx, shaping.reshape(product * r, channels), shaping.reshape(total, channels)


def _scores(query: Any, key: Any, mask: Any, is_causal: bool, scale: float) -> Any:
    scores = (query @ shaping.matrix_transpose(key)) * scale
    if mask is not None:
        scores = e.where(mask, scores, -float("inf")) if mask.dtype == np.bool_ else scores + mask
    if is_causal:
        rows, columns = scores.shape[-2:]
        seen = wrap(scores._data.node.graph.constant(np.tri(rows, columns, dtype=bool)))
        scores = e.where(seen, scores, -float("inf"))
    return scores


@decomposition("attention_forward")
def attention_forward(
    query: Any, key: Any, value: Any, mask: Any, state: Any, dropout_p: float, is_causal: bool, scale: float
) -> Any:
    if dropout_p or query.dtype != np.float32:
        return NotImplemented
    scores = _scores(query, key, mask, is_causal, scale)
    top = reduction.max_(scores, axis=-1, keepdims=True)
    top = e.where(e.isfinite(top), top, 0.0)
    weights = e.exp(scores - top)
    total = reduction.reduce_sum(weights, -1, True)
    lse = e.log(total) + top
    probabilities = weights / e.where(e.equal(total, 0.0), 1.0, total)
    return probabilities @ value, shaping.squeeze(lse, -1)


@decomposition("attention_backward")
def attention_backward(
    grad: Any, grad_lse: Any, query: Any, key: Any, value: Any, mask: Any, state: Any, result: Any, lse: Any,
    dropout_p: float, is_causal: bool, scale: float, mask_grad: bool,
) -> Any:  # fmt: skip
    if (
        dropout_p
        or query.dtype != np.float32
        or mask_grad
        or _leading(query) != _leading(key)
        or _leading(key) != _leading(value)
    ):
        return NotImplemented
    scores = _scores(query, key, mask, is_causal, scale)
    column = shaping.expand_dims(lse, -1)
    weights = e.where(e.isfinite(column), e.exp(scores - column), 0.0)
    g_value = shaping.matrix_transpose(weights) @ grad
    delta = reduction.reduce_sum(grad * result, -1, True)
    if grad_lse is not None:
        delta = delta - shaping.expand_dims(grad_lse, -1)
    g_scores = weights * ((grad @ shaping.matrix_transpose(value)) - delta) * scale
    graph = query._data.node.graph
    empty = wrap(graph.constant(np.zeros(0, np.float32)))
    return g_scores @ key, shaping.matrix_transpose(g_scores) @ query, g_value, empty


def _leading(x: Any) -> tuple[int, ...]:
    return tuple(x.shape[:-2])


def _parts(a: Any, size: int) -> list[Any]:
    """The four gates of an LSTM, as views."""
    return [indexing.slice_axis(a, -1, k * size, (k + 1) * size) for k in range(4)]


@decomposition("lstm_sequence")
def lstm_sequence(gates: Any, h0: Any, c0: Any, weight_hh: Any, mask: Any, reverse: bool) -> Any:
    """A native loop over time; the gates of one step are one kernel."""
    if gates.dtype != np.float32 or mask is not None:
        return NotImplemented
    size = h0.shape[-1]
    across = shaping.matrix_transpose(weight_hh)
    column = np.arange(4 * size)[None]
    is_cell = (column >= 2 * size) & (column < 3 * size)

    def step(carry: Any, a: Any) -> Any:
        h, c = carry
        a = a + h @ across
        chosen = wrap(a._data.node.graph.constant(is_cell))
        acts = e.where(chosen, e.tanh(a), e.sigmoid(a))
        i, f, g, o = _parts(acts, size)
        c = f * c + i * g
        h = o * e.tanh(c)
        return (h, c), (h, c, acts)

    _, (hidden, cells, acts) = scan(step, (h0, c0), gates, reverse=reverse)
    return hidden, cells, acts


@decomposition("lstm_sequence_backward")
def lstm_sequence_backward(
    g_hidden: Any, g_cells: Any, c0: Any, weight_hh: Any, cells: Any, acts: Any, mask: Any, reverse: bool
) -> Any:
    if acts.dtype != np.float32 or mask is not None:
        return NotImplemented
    size = c0.shape[-1]
    steps = cells.shape[0]
    first = shaping.expand_dims(c0, 0)
    if reverse:
        befores = shaping.concat([indexing.slice_axis(cells, 0, 1, steps), first])
    else:
        befores = shaping.concat([first, indexing.slice_axis(cells, 0, 0, steps - 1)])

    def step(carry: Any, x: Any) -> Any:
        dh, dc = carry
        gh, gc, a, c, c_before = x
        dh = dh + gh
        dc = dc if gc is None else dc + gc
        i, f, g, o = _parts(a, size)
        tc = e.tanh(c)
        d = (1.0 - tc * tc) * dh * o + dc
        d_a = shaping.concat(
            [
                d * g * i * (1.0 - i),
                d * c_before * f * (1.0 - f),
                d * i * (1.0 - g * g),
                dh * tc * o * (1.0 - o),
            ],
            axis=-1,
        )
        return (d_a @ weight_hh, d * f), d_a

    zeros = c0 * 0.0
    xs = [g_hidden, acts, cells, befores] if g_cells is None else [g_hidden, g_cells, acts, cells, befores]

    def flat(carry: Any, x: Any) -> Any:
        gh, *rest = x
        gc = rest.pop(0) if g_cells is not None else None
        return step(carry, (gh, gc, *rest))

    (dh, dc), d_a = scan(flat, (zeros, zeros), xs, reverse=not reverse)
    return d_a, dh, dc
