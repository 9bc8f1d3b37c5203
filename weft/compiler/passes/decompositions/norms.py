"""Decompositions of normalisation, forward and backward, into sums and products that fuse with their neighbours.

Half precision is computed in float32. The weight gradient of a norm without a weight is empty.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....ops.array import elementwise as e
from ....ops.array import reduction, shaping
from ....ops.nn.formulas import count, input_gradient, sum_tensors
from ....ops.nn.norm import batch_norm
from ....ops.nn.norm.group_norm import _group_norm_backward_ops, _groups
from ....ops.nn.norm.layer_norm import _rms_norm_backward_ops
from ...target import Target
from ..decompose import decomposition
from .moving import constant


def _nothing(x: Any) -> Any:
    return constant(x, np.zeros(0, x.dtype))


def _tail(v: Any, num_axes: int) -> Any:
    """Row statistics as a broadcastable column."""
    return None if v is None else shaping.reshape(v, (*v.shape, *(1,) * num_axes))


@decomposition("layer_norm_forward")
def layer_norm_forward(x: Any, weight: Any, bias: Any, num_axes: int, eps: float) -> Any:
    axes = tuple(range(len(x.shape) - num_axes, len(x.shape)))
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
    gm, gr, m, r = [_tail(v, num_axes) for v in (grad_mean, grad_rstd, mean, rstd)]
    gx, product = input_gradient(grad, gm, gr, x, weight, m, r, axes=axes, count=count(x, axes), total=sum_tensors)
    gw = _nothing(x) if weight is None else reduction.reduce_sum(product, rows, False)
    return gx, gw, reduction.reduce_sum(grad, rows, False)


def _column(v: Any, rank: int) -> Any:
    return None if v is None else shaping.reshape(v, (1, *v.shape, *(1,) * (rank - 2)))


@decomposition("channel_moments", late=True)
def channel_moments(x: Any, *, target: Target) -> tuple[Any, Any]:
    """Mean and variance of every channel, with one pass over memory.

    Blocks that fit into a core's cache are read twice, for their own mean and squared deviation; the moments of all
    follow from those of the blocks: Σ(x - m)² = Σ over blocks of (Σ(x - m_b)² + k (m_b - m)²).
    """
    rank = len(x.shape)
    axes = tuple(a for a in range(rank) if a != 1)
    n = count(x, axes)
    block = axes[1:]
    cached = target.l2_bytes // 2  # a block stays in L2 between two reads
    while len(block) > 1 and count(x, block) * x.shape[1] * x.dtype.itemsize > cached:
        block = block[1:]
    if not block or n * x.shape[1] * x.dtype.itemsize <= cached:
        mean = reduction.reduce_sum(x, axes, True) * (1.0 / n)
        return mean, reduction.reduce_sum(e.square(x - mean), axes, True) * (1.0 / n)
    k = count(x, block)
    total = reduction.reduce_sum(x, block, True)
    block_mean = total * (1.0 / k)
    squares = reduction.reduce_sum(e.square(x - block_mean), block, True)
    mean = reduction.reduce_sum(total, axes, True) * (1.0 / n)
    var = reduction.reduce_sum(squares + e.square(block_mean - mean) * float(k), axes, True) * (1.0 / n)
    return mean, var


@decomposition("batch_norm_forward")
def batch_norm_forward(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    rank = len(x.shape)
    mean, var = batch_norm.channel_moments(x)  # decomposed late: `depthwise_blocks` matches it
    centred = x - mean
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
    n = count(x, axes)
    m, r = _column(mean, rank), e.rsqrt(_column(var, rank) + eps)
    centred = x - m
    total = reduction.reduce_sum(grad, axes, True)
    product = reduction.reduce_sum(grad * centred, axes, True)
    # gx = w r (g - Σg/n - (x - m) r² Σ(g (x - m))/n): two sums per channel besides those of the forward pass
    slope = product * (r * r) * (1.0 / n)
    gx = (grad - total * (1.0 / n) - centred * slope) * (r if weight is None else _column(weight, rank) * r)
    if grad_mean is not None:
        gx = gx + _column(grad_mean, rank) * (1.0 / n)
    if grad_var is not None:
        gx = gx + centred * (_column(grad_var, rank) * (2.0 / n))
    channels = (x.shape[1],)
    gw = _nothing(x) if weight is None else shaping.reshape(product * r, channels)
    return gx, gw, shaping.reshape(total, channels)


@decomposition("group_norm_forward")
def group_norm_forward(x: Any, weight: Any, bias: Any, num_groups: int, eps: float) -> Any:
    shape = tuple(_groups(x, num_groups))
    grouped = shaping.reshape(x, shape)
    n = count(grouped, (2, 3))
    mean = reduction.reduce_sum(grouped, (2, 3), True) * (1.0 / n)
    centred = grouped - mean
    rstd = e.rsqrt(reduction.reduce_sum(centred * centred, (2, 3), True) * (1.0 / n) + eps)
    y = centred * rstd
    apart = (1, num_groups, shape[2], 1)
    y = y if weight is None else y * shaping.reshape(weight, apart)
    y = y if bias is None else y + shaping.reshape(bias, apart)
    lead = (shape[0], num_groups)
    return shaping.reshape(y, tuple(x.shape)), shaping.reshape(mean, lead), shaping.reshape(rstd, lead)


@decomposition("group_norm_backward")
def group_norm_backward(
    grad: Any, grad_mean: Any, grad_rstd: Any, x: Any, weight: Any, mean: Any, rstd: Any, num_groups: int
) -> Any:
    gx, gw, gb = _group_norm_backward_ops(grad, grad_mean, grad_rstd, x, weight, mean, rstd, num_groups)
    return gx, _nothing(x) if gw is None else gw, gb


@decomposition("rms_norm_forward")
def rms_norm_forward(x: Any, weight: Any, num_axes: int, eps: float) -> Any:
    axes = tuple(range(len(x.shape) - num_axes, len(x.shape)))
    rstd = e.rsqrt(reduction.reduce_sum(x * x, axes, True) * (1.0 / count(x, axes)) + eps)
    y = x * rstd
    lead = tuple(x.shape[: len(x.shape) - num_axes])
    return y if weight is None else y * weight, shaping.reshape(rstd, lead)


@decomposition("rms_norm_backward")
def rms_norm_backward(grad: Any, grad_rstd: Any, x: Any, weight: Any, rstd: Any, num_axes: int) -> Any:
    gx, gw = _rms_norm_backward_ops(grad, grad_rstd, x, weight, rstd, num_axes)
    return gx, _nothing(x) if gw is None else gw
