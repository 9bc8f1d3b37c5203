"""Group norm and instance norm: normalisation within each sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....autograd.tape import no_grad
from ....errors import format_shape
from ....tensor import Tensor
from ...array.creation import zeros_like
from ...array.reduction import reduce_sum
from ...array.shaping import reshape, reshape_like
from ...core.define import composite, primitive
from ...core.registry import joint
from ...core.samples import Bad, Sample
from ...core.second_order import composed
from ...core.spec import Spec, check_size, num_elements, number
from ..formulas import (
    batched,
    cast_like,
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
from .batch_norm import (
    _check_channels,
    _column,
    _move_average,
    _other_axes,
    _reference_batch_norm_eval,
    batch_norm,
    check_momentum,
)


def _groups(x: Any, num_groups: int) -> tuple[Any, ...]:
    """(N, groups, channels per group, elements per channel)."""
    spatial = num_elements(x.shape[2:])
    return (x.shape[0], num_groups, x.shape[1] // num_groups, -1 if spatial is None else spatial)


def _infer_group_norm(x: Any, weight: Any, bias: Any, num_groups: int, eps: float) -> tuple[Spec, Spec, Spec]:
    _check_channels("group_norm", x)
    if x.shape is None:
        return Spec(None, x.dtype), Spec(None, stat_dtype(x)), Spec(None, stat_dtype(x))
    channels = x.shape[1]
    if num_groups < 1 or isinstance(channels, int) and channels % num_groups:
        raise ValueError(f"group_norm: {channels} channels do not divide into {num_groups} groups.")
    check_parameter("group_norm", "weight", weight, (channels,))
    check_parameter("group_norm", "bias", bias, (channels,))
    stat = Spec((x.shape[0], num_groups), stat_dtype(x))
    return Spec(x.shape, x.dtype), stat, stat


def _infer_group_norm_backward(
    grad: Any, grad_mean: Any, grad_rstd: Any, x: Any, weight: Any, mean: Any, rstd: Any, num_groups: int
) -> tuple[Spec, Spec, Spec]:
    weight_spec = Spec((0,), x.dtype) if weight is None else Spec(weight.shape, weight.dtype)
    return Spec(x.shape, x.dtype), weight_spec, Spec((x.shape[1],), x.dtype)


def _group_views(
    grad: Any, gm: Any, gr: Any, x: Any, weight: Any, mean: Any, rstd: Any, *, num_groups: int
) -> list[Any]:
    """All operands as (N, groups, channels per group, spatial)."""
    shape = _groups(x, num_groups)

    def view(v: Any, sizes: tuple[Any, ...]) -> Any:
        return None if v is None else v.reshape(sizes) if isinstance(v, np.ndarray) else reshape(v, sizes)

    full = [view(v, shape) for v in (grad, x)]
    stats = [view(v, (shape[0], num_groups, 1, 1)) for v in (gm, gr, mean, rstd)]
    return [full[0], stats[0], stats[1], full[1], view(weight, (1, num_groups, shape[2], 1)), stats[2], stats[3]]


def _group_norm_backward_ops(
    grad: Any, gm: Any, gr: Any, x: Any, weight: Any, mean: Any, rstd: Any, num_groups: int, batch: int | None = None
) -> tuple[Any, Any, Any]:
    """The backward pass in public ops; with `batch`, axis 0 holds that many batches with separate parameters."""
    views = _group_views(grad, gm, gr, x, weight, mean, rstd, num_groups=num_groups)
    gx, product = input_gradient(*views, axes=(2, 3), count=count(views[3], (2, 3)), total=sum_tensors)

    def per_channel(v: Any) -> Any:
        if batch is None:
            return reshape(reduce_sum(v, (0, 3), False), (x.shape[1],))
        apart = reshape(v, (batch, v.shape[0] // batch, *v.shape[1:]))
        return reshape(reduce_sum(apart, (1, 4), False), (batch, x.shape[1]))

    return (reshape(gx, tuple(x.shape)), None if weight is None else per_channel(product), per_channel(views[0]))


def _group_norm_rule(
    g: Any, x: Any, weight: Any, like_bias: Any, out1: Any, out2: Any, num_groups: int, needs: Any
) -> Any:
    grad = zeros_like(x) if g[0] is None else g[0]
    gx, gw, gb = group_norm_backward(grad, g[1], g[2], x, weight, out1, out2, num_groups)
    return gx, gw if needs[1] else None, cast_like(gb, like_bias) if needs[2] else None


def _merge(v: Any) -> Any:
    """(batch, N, ...) as (batch · N, ...)."""
    return None if v is None else reshape(v, (v.shape[0] * v.shape[1], *v.shape[2:]))


def _split(v: Any, size: int) -> Any:
    return reshape(v, (size, v.shape[0] // size, *v.shape[1:]))


def _batch_group_norm(axes: Any, tensors: Any, attrs: Any) -> Any:
    x, weight, bias = batched(tensors, axes)
    size = x.shape[0]
    y, mean, rstd = (_split(v, size) for v in group_norm_forward(_merge(x), None, None, *attrs))
    tail = (size, 1, -1, *(1,) * (x.ndim - 3))
    if weight is not None:
        y = y * reshape(weight, tail)
    return (y if bias is None else y + reshape(bias, tail)), mean, rstd


def _batch_group_norm_backward(axes: Any, tensors: Any, attrs: Any) -> Any:
    grad, gm, gr, x, weight, mean, rstd = batched(tensors, axes)
    size = x.shape[0]
    if weight is not None:  # fold each batch's weight into its gradient; divide out of the weight's own gradient below
        grad_w = grad * reshape(weight, (size, 1, -1, *(1,) * (x.ndim - 3)))
    else:
        grad_w = grad
    merged = [_merge(v) for v in (gm, gr, x, mean, rstd)]
    gx, _, _ = _group_norm_backward_ops(
        _merge(grad_w), merged[0], merged[1], merged[2], None, merged[3], merged[4], attrs[0]
    )
    ones = None if weight is None else zeros_like(weight[0]) + 1.0
    _, gw, gb = _group_norm_backward_ops(
        _merge(grad), None, None, merged[2], ones, merged[3], merged[4], attrs[0], size
    )
    return _split(gx, size), zeros_like(gb[:, :0]) if gw is None else gw, gb


def _reference_group_norm(x: Any, weight: Any = None, bias: Any = None, num_groups: int = 1, eps: float = 1e-5) -> Any:
    groups = x.reshape(x.shape[0], num_groups, -1)
    mean, var = groups.mean(-1), groups.var(-1)
    y = ((groups - mean[..., None]) / np.sqrt(var + eps)[..., None]).reshape(x.shape)
    y = y if weight is None else y * _column(weight, x.ndim)
    return y if bias is None else y + _column(bias, x.ndim), mean, 1 / np.sqrt(var + eps)


def _reference_group_norm_backward(
    grad: Any, gm: Any, gr: Any, x: Any, weight: Any, mean: Any, rstd: Any, num_groups: int
) -> Any:
    def grouped(v: Any) -> Any:
        return v.reshape(x.shape[0], num_groups, -1)

    m, r = mean[..., None], rstd[..., None]
    hat = (grouped(x) - m) * r
    gh = grouped(grad if weight is None else grad * _column(weight, x.ndim))
    gx = r * (gh - gh.mean(-1, keepdims=True) - hat * (gh * hat).mean(-1, keepdims=True))
    n = hat.shape[-1]
    if gm is not None:
        gx = gx + gm[..., None] / n
    if gr is not None:
        gx = gx - gr[..., None] * r * r * hat / n
    axes = _other_axes(x.ndim)
    gw = np.zeros(0) if weight is None else (grad * hat.reshape(x.shape)).sum(axes)
    return gx.reshape(x.shape), gw, grad.sum(axes)


@primitive(
    autocast="float32",
    namespace="internal",
    outputs=3,
    infer=_infer_group_norm_backward,
    vjp=composed(_group_norm_backward_ops, "num_groups"),
    batch=_batch_group_norm_backward,
    cost=cost_per_element(12),
    reference=_reference_group_norm_backward,
    samples=lambda m: [
        Sample(m.normal(2, 4, 3), None, None, m.normal(2, 4, 3), m.normal(4), m.normal(2, 2), m.positive(2, 2), 2),
        Sample(
            m.normal(2, 4), m.normal(2, 2), m.normal(2, 2), m.normal(2, 4), None, m.normal(2, 2), m.positive(2, 2), 2
        ),
    ],
)
def group_norm_backward(
    grad: Tensor,
    grad_mean: Tensor | None,
    grad_rstd: Tensor | None,
    x: Tensor,
    weight: Tensor | None,
    mean: Tensor,
    rstd: Tensor,
    num_groups: int,
) -> Any:
    """The gradients of `group_norm` in x, weight (empty if there is none) and bias."""
    arrays = wide(grad, grad_mean, grad_rstd, x, weight, mean, rstd)  # type: ignore[arg-type]
    views = _group_views(*arrays, num_groups=num_groups)
    n = max(views[3].shape[2] * views[3].shape[3], 1)
    gx, product = input_gradient(*views, axes=(2, 3), count=n, total=sum_arrays)
    gw = np.zeros(0, x.dtype)
    if weight is not None:
        gw = product.sum(axis=(0, 3)).reshape(-1).astype(weight.dtype, copy=False)
    gb = views[0].sum(axis=(0, 3)).reshape(-1).astype(x.dtype, copy=False)
    return gx.reshape(x.shape).astype(x.dtype, copy=False), gw, gb


@primitive(
    autocast="float32",
    namespace="internal",
    outputs=3,
    infer=_infer_group_norm,
    vjp=joint(_group_norm_rule, fill=False),
    batch=_batch_group_norm,
    cost=cost_per_element(8),
    reference=_reference_group_norm,
    samples=lambda m: [
        Sample(m.normal(2, 4, 3), m.normal(4), m.normal(4), 2, 1e-5),
        Sample(m.normal(2, 4, 2, 2), None, None, 4, 1e-3),
        Sample(m.normal(3, 4), m.normal(4), None, 1, 1e-5),
    ],
)
def group_norm_forward(x: Tensor, weight: Tensor | None, bias: Tensor | None, num_groups: int, eps: float) -> Any:
    """(y, mean, rstd): `x` (N, C, ...) normalised within groups of channels of each example."""
    xs, w, b = wide(x, weight, bias)  # type: ignore[arg-type]
    y, mean, var = statistics(xs.reshape(_groups(x, num_groups)), (2, 3))
    rstd = 1 / np.sqrt(var + xs.dtype.type(eps))
    y *= rstd
    y = y.reshape(x.shape)
    if w is not None:
        y *= _column(w, x.ndim)
    if b is not None:
        y += _column(b, x.ndim)
    shape, stat = (x.shape[0], num_groups), stat_dtype(x)
    return (
        y.astype(x.dtype, copy=False),
        mean.reshape(shape).astype(stat, copy=False),
        rstd.reshape(shape).astype(stat, copy=False),
    )


@composite(
    namespace="nn",
    reference=lambda x, num_groups, weight=None, bias=None, eps=1e-5: _reference_group_norm(
        x, weight, bias, num_groups, eps
    )[0],
    samples=lambda m: [
        Sample(m.normal(2, 4, 3), 2, m.normal(4), m.normal(4)),
        Sample(m.normal(2, 6, 2, 2), 3),
        Sample(m.normal(2, 4), 1, eps=1e-2),
    ],
    errors=lambda m: [
        Bad(ValueError, "group_norm: 4 channels do not divide into 3 groups", m.normal(2, 4), 3),
        Bad(ValueError, r"group_norm: expected shape \(N, C", m.normal(4), 2),
        Bad(ValueError, r"group_norm: weight has shape \(2,\)", m.normal(2, 4), 2, m.normal(2)),
    ],
)
def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Group normalisation: each group of channels of each sample normalised, then a scale and a shift per channel.

    Args:
        x: (N, C, ...).
        num_groups: number of groups, a divisor of C.
        weight, bias: (C,) or None.
        eps: added to the variance.

    >>> F.group_norm(wf.randn(1, 4, 8, 8), 2).shape
    (1, 4, 8, 8)
    """
    return group_norm_forward(
        x,
        weight,
        bias,
        check_size("group_norm", num_groups, "num_groups", 1),
        number("group_norm", "eps", eps, least=0),
    )[0]


# Instance norm --------------------------------------------------------------------------------------------------------


def _reference_instance_norm(
    x: Any,
    mean: Any = None,
    var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    if use_input_stats:
        return _reference_group_norm(x, weight, bias, x.shape[1], eps)[0]
    return _reference_batch_norm_eval(x, mean, var, weight, bias, False, momentum, eps)


@composite(
    namespace="nn",
    reference=_reference_instance_norm,
    samples=lambda m: [
        Sample(m.normal(2, 3, 4), weight=m.normal(3), bias=m.normal(3)),
        Sample(m.normal(2, 3, 2, 2)),
        Sample(m.normal(2, 3, 4), m.normal(3), m.positive(3), use_input_stats=False),
    ],
    errors=lambda m: [
        Bad(ValueError, "instance_norm: more than one value", m.normal(2, 3, 1)),
        Bad(
            ValueError,
            "instance_norm: running_mean and running_var are needed",
            m.normal(2, 3, 2),
            use_input_stats=False,
        ),
    ],
)
def instance_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Instance normalisation: each channel of each sample normalised, then a scale and a shift per channel.

    Args:
        x: (N, C, ...).
        running_mean, running_var: (C,) or None; moved in place towards the mean of the samples' statistics.
        weight, bias: (C,) or None.
        use_input_stats: normalise by the input's statistics; if False, by the running ones.
        momentum: weight of the batch in the running statistics.
        eps: added to the variance.

    >>> F.instance_norm(wf.randn(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """
    _check_channels("instance_norm", x)
    check_momentum("instance_norm", momentum)
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise ValueError("instance_norm: running_mean and running_var are needed unless use_input_stats. Got None.")
        return batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
    if num_elements(x.shape[2:]) in (0, 1):
        raise ValueError(
            f"instance_norm: more than one value per channel and example is needed. Got shape {format_shape(x.shape)}."
        )
    eps = number("instance_norm", "eps", eps, least=0)
    y, mean, rstd = group_norm_forward(x, weight, bias, x.shape[1], eps)
    with no_grad():
        if running_mean is not None:
            _move_average(running_mean, mean.detach().mean(0), momentum)
        if running_var is not None:
            var = 1 / (rstd.detach() * rstd.detach()) - eps
            n = count(x, tuple(range(2, x.ndim)))
            n = reshape_like(n, var) if isinstance(n, Tensor) else n
            _move_average(running_var, (var * (n / (n - 1))).mean(0), momentum)
    return y
