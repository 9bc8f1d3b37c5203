"""Batch norm and local response norm, over the channel axis (axis 1).

Batch norm returns the biased variance rather than rstd because the running statistics need it. The backward formula is
in `weft.ops.nn.norm.layer_norm`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....autograd import shards
from ....autograd.tape import no_grad
from ....errors import format_shape
from ....tensor import Tensor, wrap
from ...array.creation import zeros_like
from ...array.elementwise import rsqrt
from ...array.reduction import reduce_sum
from ...array.shaping import concat, moveaxis, reshape
from ...core import scalar as s
from ...core import small_arrays
from ...core.define import composite, elementwise, primitive
from ...core.registry import NOT_DIFFERENTIABLE, joint
from ...core.samples import Bad, Sample
from ...core.scalar import Term
from ...core.second_order import composed
from ...core.short_floats import widened
from ...core.spec import Spec, check_size, num_elements, number
from ..formulas import (
    batched,
    cast_like,
    check_floating,
    check_parameter,
    cost_per_element,
    count,
    input_gradient,
    stat_dtype,
    statistics,
    sum_arrays,
    sum_tensors,
    wide,
)


def _check_channels(op: str, x: Any) -> None:
    check_floating(op, x)
    if x.shape is not None and len(x.shape) < 2:
        raise ValueError(f"{op}: expected shape (N, C, ...). Got {format_shape(x.shape)}.")


def _column(parameter: Any, ndim: int) -> Any:
    """Values per channel as something that broadcasts against (N, C, ...)."""
    if parameter is None:
        return None
    shape = (1, -1, *(1,) * (ndim - 2))
    return parameter.reshape(shape) if isinstance(parameter, np.ndarray) else reshape(parameter, shape)


def _other_axes(ndim: int) -> tuple[int, ...]:
    return (0, *range(2, ndim))


# Batch norm with the statistics of the batch --------------------------------------------------------------------------


def _infer_batch_norm(x: Any, weight: Any, bias: Any, eps: float) -> tuple[Spec, Spec, Spec]:
    _check_channels("batch_norm", x)
    channels = None if x.shape is None else (x.shape[1],)
    check_parameter("batch_norm", "weight", weight, channels)
    check_parameter("batch_norm", "bias", bias, channels)
    return Spec(x.shape, x.dtype), Spec(channels, stat_dtype(x)), Spec(channels, stat_dtype(x))


def _infer_batch_norm_backward(
    grad: Any, grad_mean: Any, grad_var: Any, x: Any, weight: Any, mean: Any, var: Any, eps: float
) -> tuple[Spec, Spec, Spec]:
    weight_spec = Spec((0,), x.dtype) if weight is None else Spec(weight.shape, weight.dtype)
    return Spec(x.shape, x.dtype), weight_spec, Spec(mean.shape, x.dtype)


def _batch_norm_core(
    grad: Any, g_mean: Any, g_var: Any, x: Any, weight: Any, mean: Any, var: Any, rstd: Any, n: Any, total: Any
) -> tuple[Any, Any]:
    """`input_gradient` for batch norm: the gradient of r = (var + eps)^-1/2 stands in for that of the variance."""
    g_mean, g_var, mean, rstd, weight = (_column(v, x.ndim) for v in (g_mean, g_var, mean, rstd, weight))
    g_rstd = None if g_var is None else g_var * -2 / (rstd * rstd * rstd)
    return input_gradient(grad, g_mean, g_rstd, x, weight, mean, rstd, axes=_other_axes(x.ndim), count=n, total=total)


def _batch_norm_backward_ops(
    grad: Any, g_mean: Any, g_var: Any, x: Any, weight: Any, mean: Any, var: Any, eps: float
) -> tuple[Any, Any, Any]:
    axes = _other_axes(x.ndim)
    n = count(x, axes)
    gx, product = _batch_norm_core(grad, g_mean, g_var, x, weight, mean, var, rsqrt(var + eps), n, sum_tensors)
    return gx, None if weight is None else reduce_sum(product, axes, False), reduce_sum(grad, axes, False)


def _batch_norm_rule(g: Any, x: Any, weight: Any, like_bias: Any, out1: Any, out2: Any, eps: float, needs: Any) -> Any:
    grad = zeros_like(x) if g[0] is None else g[0]
    gx, gw, gb = batch_norm_backward(grad, g[1], g[2], x, weight, out1, out2, eps)
    return gx, gw if needs[1] else None, cast_like(gb, like_bias) if needs[2] else None


def _fold(x: Any) -> Any:
    """(batch, N, C, ...) as (N, batch · C, ...): separate batches are separate channels."""
    moved = moveaxis(x, 0, 1)
    return reshape(moved, (moved.shape[0], moved.shape[1] * moved.shape[2], *moved.shape[3:]))


def _unfold(y: Any, size: int) -> Any:
    return moveaxis(reshape(y, (y.shape[0], size, y.shape[1] // size, *y.shape[2:])), 1, 0)


def _flat(v: Any) -> Any:
    return None if v is None else reshape(v, (v.shape[0] * v.shape[1],))


def _batch_batch_norm(axes: Any, tensors: Any, attrs: Any) -> Any:
    x, weight, bias = batched(tensors, axes)
    size, channels = x.shape[0], x.shape[2]
    y, mean, var = batch_norm_forward(_fold(x), _flat(weight), _flat(bias), *attrs)
    return _unfold(y, size), reshape(mean, (size, channels)), reshape(var, (size, channels))


def _batch_batch_norm_backward(axes: Any, tensors: Any, attrs: Any) -> Any:
    grad, g_mean, g_var, x, weight, mean, var = batched(tensors, axes)
    size, channels = x.shape[0], x.shape[2]
    gx, gw, gb = batch_norm_backward(
        _fold(grad), _flat(g_mean), _flat(g_var), _fold(x), _flat(weight), _flat(mean), _flat(var), *attrs
    )
    gw = reshape(gw, (size, channels if weight is not None else 0))
    return _unfold(gx, size), gw, reshape(gb, (size, channels))


def _reference_batch_norm(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    axes = _other_axes(x.ndim)
    mean, var = x.mean(axes), x.var(axes)
    y = (x - _column(mean, x.ndim)) / np.sqrt(_column(var, x.ndim) + eps)
    y = y if weight is None else y * _column(weight, x.ndim)
    return y if bias is None else y + _column(bias, x.ndim), mean, var


def _reference_batch_norm_backward(
    grad: Any, gm: Any, gv: Any, x: Any, weight: Any, mean: Any, var: Any, eps: float
) -> Any:
    axes, n = _other_axes(x.ndim), x.size // x.shape[1]
    m, r = _column(mean, x.ndim), 1 / np.sqrt(_column(var, x.ndim) + eps)
    hat = (x - m) * r
    gh = grad if weight is None else grad * _column(weight, x.ndim)
    gx = r * (gh - gh.mean(axes, keepdims=True) - hat * (gh * hat).mean(axes, keepdims=True))
    if gm is not None:
        gx = gx + _column(gm, x.ndim) / n
    if gv is not None:
        gx = gx + _column(gv, x.ndim) * 2 * (x - m) / n
    return gx, np.zeros(0) if weight is None else (grad * hat).sum(axes), grad.sum(axes)


@primitive(
    autocast="float32",
    namespace="internal",
    outputs=3,
    infer=_infer_batch_norm_backward,
    vjp=composed(_batch_norm_backward_ops, "eps"),
    batch=_batch_batch_norm_backward,
    cost=cost_per_element(12),
    reference=_reference_batch_norm_backward,
    samples=lambda m: [
        Sample(m.normal(4, 3), None, None, m.normal(4, 3), m.normal(3), m.normal(3), m.positive(3), 1e-5),
        Sample(m.normal(2, 3, 4), m.normal(3), m.normal(3), m.normal(2, 3, 4), None, m.normal(3), m.positive(3), 0.1),
    ],
)
def batch_norm_backward(
    grad: Tensor,
    grad_mean: Tensor | None,
    grad_var: Tensor | None,
    x: Tensor,
    weight: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
) -> Any:
    """The gradients of batch norm in x, weight (empty if there is none) and bias, given the batch's statistics."""
    g, gm, gv, xs, w, m, v = wide(grad, grad_mean, grad_var, x, weight, mean, var)  # type: ignore[arg-type]
    rstd = 1 / np.sqrt(v + v.dtype.type(eps))
    n = max(x.size // max(x.shape[1], 1), 1)
    gx, product = _batch_norm_core(g, gm, gv, xs, w, m, v, rstd, n, sum_arrays)
    axes = _other_axes(x.ndim)
    gw = np.zeros(0, x.dtype) if weight is None else product.sum(axis=axes).astype(weight.dtype, copy=False)
    return gx.astype(x.dtype, copy=False), gw, g.sum(axis=axes).astype(x.dtype, copy=False)


def _infer_moments(x: Any) -> tuple[Spec, Spec]:
    _check_channels("channel_moments", x)
    shape = None if x.shape is None else (1, x.shape[1], *(1,) * (len(x.shape) - 2))
    return Spec(shape, x.dtype), Spec(shape, x.dtype)


@primitive(
    namespace="internal",
    outputs=2,
    infer=_infer_moments,
    vjp=NOT_DIFFERENTIABLE,  # created by the compiler after differentiation
    cost=cost_per_element(4),
    reference=lambda x: tuple([f(x, axis=_other_axes(x.ndim), keepdims=True) for f in (np.mean, np.var)]),
    samples=lambda m: [Sample(m.normal(4, 3)), Sample(m.normal(2, 3, 4)), Sample(m.normal(3, 16, 70, 7))],
)
def channel_moments(x: Tensor) -> Any:
    """Mean and biased variance of every channel, each (1, C, 1, ...)."""
    _, mean, var = statistics(wide(x)[0], _other_axes(x.ndim))  # type: ignore[arg-type]
    return mean.astype(x.dtype, copy=False), var.astype(x.dtype, copy=False)


@primitive(
    autocast="float32",
    namespace="internal",
    outputs=3,
    infer=_infer_batch_norm,
    vjp=joint(_batch_norm_rule, fill=False),
    batch=_batch_batch_norm,
    cost=cost_per_element(8),
    reference=_reference_batch_norm,
    samples=lambda m: [
        Sample(m.normal(4, 3), m.normal(3), m.normal(3), 1e-5),
        Sample(m.normal(2, 3, 4), None, None, 1e-3),
        Sample(m.normal(2, 3, 2, 2), m.normal(3), None, 1e-5),
    ],
)
def batch_norm_forward(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
    """(y, mean, var): every channel of `x` normalised by its own statistics over the batch."""
    xs, w, b = wide(x, weight, bias)  # type: ignore[arg-type]
    y, mean, var = statistics(xs, _other_axes(x.ndim))
    scale = 1 / np.sqrt(var + xs.dtype.type(eps))
    y *= scale if w is None else scale * _column(w, x.ndim)
    if b is not None:
        y += _column(b, x.ndim)
    stat = stat_dtype(x)
    return (
        y.astype(x.dtype, copy=False),
        mean.reshape(-1).astype(stat, copy=False),
        var.reshape(-1).astype(stat, copy=False),
    )


@elementwise(
    namespace="internal",
    vjp=(lambda g, scale: g * scale, lambda g, x: g * x, lambda g: g),
    reference=lambda x, scale, shift: x * scale + shift,
    samples=lambda m: [Sample(m.normal(2, 3), m.normal(3), m.normal(3)), Sample(m.normal(4), 2.0, m.normal(1))],
)
def scale_shift(x: Term, scale: Term, shift: Term) -> Term:
    """x · scale + shift in one pass."""
    return s.add(s.mul(x, scale), shift)


def check_momentum(op: str, momentum: Any) -> None:
    """Raise unless `momentum` is a number, or a tensor with one element (a cumulative average)."""
    if isinstance(momentum, (bool, str)) or not (isinstance(momentum, (int, float, np.number, Tensor))):
        raise TypeError(f"{op}: momentum must be a number. Got {momentum!r}.")


def _move_average(running: Tensor, new: Tensor, momentum: Any) -> None:
    """running ← running + momentum (new - running), in place, outside the tape."""
    step = (widened(new.detach()) - widened(running)) * momentum
    running += cast_like(step, running)


def _reference_batch_norm_eval(
    x: Any,
    mean: Any,
    var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: float = 1e-5,
) -> Any:
    if training or mean is None:
        return _reference_batch_norm(x, weight, bias, eps)[0]
    y = (x - _column(mean, x.ndim)) / np.sqrt(_column(var, x.ndim) + eps)
    y = y if weight is None else y * _column(weight, x.ndim)
    return y if bias is None else y + _column(bias, x.ndim)


@composite(
    namespace="nn",
    reference=_reference_batch_norm_eval,
    samples=lambda m: [
        Sample(m.normal(4, 3), m.normal(3), m.positive(3), m.normal(3), m.normal(3)),
        Sample(m.normal(2, 3, 2, 2), m.normal(3), m.positive(3), eps=1e-2),
        Sample(m.normal(4, 3, 2), None, None, m.normal(3), m.normal(3), True),
    ],
    errors=lambda m: [
        Bad(ValueError, r"batch_norm: expected shape \(N, C, \.\.\.\)", m.normal(3), None, None, training=True),
        Bad(ValueError, "batch_norm: more than one value per channel", m.normal(1, 3), None, None, training=True),
        Bad(ValueError, "batch_norm: running_mean and running_var are needed", m.normal(2, 3), None, None),
        Bad(ValueError, r"batch_norm: running_mean has shape \(2,\)", m.normal(2, 3), m.normal(2), m.positive(2)),
        Bad(
            ValueError, r"batch_norm: weight has shape \(2,\)", m.normal(2, 3), m.normal(3), m.positive(3), m.normal(2)
        ),
        Bad(TypeError, "batch_norm: expected a real floating", m.ints(2, 3), None, None, training=True),
    ],
)
def batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Batch normalisation: each channel normalised, then scaled by `weight` and shifted by `bias`.

    Args:
        x: (N, C, ...).
        running_mean, running_var: (C,); updated in place when `training`, used as the statistics otherwise.
        weight, bias: (C,) or None.
        training: use the batch's own mean and variance, and move the running ones towards them by `momentum` (the
            running variance is the unbiased one, as in PyTorch).
        momentum: weight of the batch in the running statistics.
        eps: added to the variance.

    >>> x = wf.tensor([[1.0, 10.0], [3.0, 30.0]])
    >>> F.batch_norm(x, None, None, training=True).round().tolist()
    [[-1.0, -1.0], [1.0, 1.0]]
    """
    if eps.__class__ is not float or not eps > 0:  # variances divide by it in training, as in PyTorch
        number("batch_norm", "eps", eps, **{"above" if training else "least": 0})
    if not training:
        found = _eval_at_once(x, running_mean, running_var, weight, bias, eps)
        if found is not None:
            return found
    _check_channels("batch_norm", x)
    channels = (x.shape[1],)
    for name, value in (
        ("running_mean", running_mean),
        ("running_var", running_var),
        ("weight", weight),
        ("bias", bias),
    ):
        check_parameter("batch_norm", name, value, channels)
    check_momentum("batch_norm", momentum)
    if not training:
        if running_mean is None or running_var is None:
            raise ValueError("batch_norm: running_mean and running_var are needed unless training=True. Got None.")
        running_mean, running_var, weight, bias = widened((running_mean, running_var, weight, bias))
        scale = rsqrt(running_var + eps)
        scale = scale if weight is None else scale * weight
        shift = -running_mean * scale
        shift = shift if bias is None else shift + bias
        return cast_like(scale_shift(x, _column(scale, x.ndim), _column(shift, x.ndim)), x)
    sizes = tuple([x.shape[a] for a in _other_axes(x.ndim)])
    if num_elements(sizes) in (0, 1):
        advice = "use a larger batch or training=False"
        if shards.current.shard is not None:
            advice = "this is one shard of a batch: use fewer shards, nn.SyncBatchNorm, or a loader with drop_last=True"
        raise ValueError(
            f"batch_norm: more than one value per channel is needed for training. Got shape {format_shape(x.shape)}; {advice}."
        )
    y, mean, var = batch_norm_forward(x, weight, bias, number("batch_norm", "eps", eps))
    with no_grad():
        if running_mean is not None:
            _move_average(running_mean, mean, momentum)
        if running_var is not None:
            _move_average(running_var, _unbiased(var, x, _other_axes(x.ndim)), momentum)
    return y


def _eval_at_once(x: Any, running_mean: Any, running_var: Any, weight: Any, bias: Any, eps: Any) -> Tensor | None:
    """Shortcut for small inputs in evaluation mode outside the tape, else None."""
    found = small_arrays.arrays(x, running_mean, running_var, weight, bias)
    if found is None:
        return None
    values, mean, var, factor, offset = found
    shape = values.shape
    if len(shape) < 2 or mean is None or var is None or eps.__class__ is not float:
        return None
    channels = shape[1:2]
    for parameter in found[1:]:
        if parameter is not None and parameter.shape != channels:
            return None
    with np.errstate(all="ignore"):
        scale = s.rsqrt(var + eps)
        if factor is not None:
            scale *= factor
        shift = -mean * scale
        if offset is not None:
            shift += offset
        if len(shape) > 2:
            column = (-1, *(1,) * (len(shape) - 2))
            scale, shift = scale.reshape(column), shift.reshape(column)
        out = values * scale
        out += shift
    return wrap(out)


def _unbiased(var: Tensor, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    n = count(x, axes)
    if isinstance(n, Tensor):
        n = reshape(n, (-1,))
    return var * (n / (n - 1))


# Across channels ------------------------------------------------------------------------------------------------------


def _reference_local_response(x: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Any:
    square, total = np.square(x), np.zeros_like(x)
    for c in range(x.shape[1]):
        low = max(0, c - size // 2)
        total[:, c] = square[:, low : c - size // 2 + size].sum(1)
    return x / (k + alpha * total / size) ** beta


@composite(
    accumulate="float32",
    namespace="nn",
    reference=_reference_local_response,
    samples=lambda m: [
        Sample(m.normal(2, 5, 3), 3, 0.5),
        Sample(m.normal(2, 4, 2, 2), 2, 0.1, 0.5, 2.0),
        Sample(m.normal(2, 3), 5),
    ],
    errors=lambda m: [
        Bad(ValueError, "local_response_norm: size must be at least 1", m.normal(2, 3), 0),
        Bad(ValueError, r"local_response_norm: expected shape \(N, C", m.normal(3), 2),
    ],
)
def local_response_norm(x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """x / (k + alpha · mean of squares over `size` neighbouring channels)^beta."""
    _check_channels("local_response_norm", x)
    size = check_size("local_response_norm", size, "size", 1)
    channels = x.shape[1]
    square = x * x
    edge = zeros_like(square[:, :1].detach())
    # a window beyond the number of channels covers only padding
    before, after = min(size // 2, max(channels - 1, 0)), min(size - 1 - size // 2, max(channels - 1, 0))
    padded = concat([edge] * before + [square] + [edge] * after, axis=1)
    total = padded[:, :channels]
    for i in range(1, before + after + 1):
        total = total + padded[:, i : i + channels]
    return x / (total * (alpha / size) + k) ** beta
