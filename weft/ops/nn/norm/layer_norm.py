"""Layer norm and RMS norm: normalisation over the last axes.

Every forward op also returns its statistics, and every backward pass is a separate op, so both can have native kernels.
All norms (batch and group norm too) use one backward formula on differently shaped views.
With x̂ = (x - μ) r, ĝ = g w and means
over the n normalised elements::

    gx = r (ĝ - c₁ - x̂ c₂)      c₁ = mean(ĝ) - g_μ / (n r)      c₂ = mean(ĝ x̂) + g_r r / n

where g_μ and g_r are the gradients of the statistics themselves: None unless a higher derivative is taken.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .... import dtypes
from ....errors import format_shape
from ....tensor import Tensor, wrap
from ...array.creation import zeros_like
from ...array.reduction import reduce_sum
from ...array.shaping import reshape
from ...core import small_arrays
from ...core.define import composite, primitive
from ...core.registry import joint
from ...core.samples import Bad, Sample
from ...core.second_order import composed
from ...core.slow_path import native_kernels
from ...core.spec import Spec, check_shape, number, same_size
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

# Layer norm -----------------------------------------------------------------------------------------------------------


def _row_shapes(x: Any, num_axes: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return tuple(x.shape[: x.ndim - num_axes]), tuple(x.shape[x.ndim - num_axes :])


def _check_rank(op: str, x: Any, num_axes: int) -> None:
    if x.shape is not None and not 1 <= num_axes <= x.ndim:
        raise ValueError(f"{op}: cannot normalise the last {num_axes} axes of a tensor with {x.ndim}.")


def _infer_layer_norm(x: Any, weight: Any, bias: Any, num_axes: int, eps: float) -> tuple[Spec, Spec, Spec]:
    check_floating("layer_norm", x)
    if x.shape is None:
        return Spec(None, x.dtype), Spec(None, stat_dtype(x)), Spec(None, stat_dtype(x))
    _check_rank("layer_norm", x, num_axes)
    lead, last = _row_shapes(x, num_axes)
    check_parameter("layer_norm", "weight", weight, last)
    check_parameter("layer_norm", "bias", bias, last)
    return Spec(x.shape, x.dtype), Spec(lead, stat_dtype(x)), Spec(lead, stat_dtype(x))


def _infer_layer_norm_backward(
    grad: Any, grad_mean: Any, grad_rstd: Any, x: Any, weight: Any, mean: Any, rstd: Any, num_axes: int
) -> tuple[Spec, Spec, Spec]:
    _check_rank("layer_norm", x, num_axes)
    last = None if x.shape is None else _row_shapes(x, num_axes)[1]
    weight_spec = Spec((0,), x.dtype) if weight is None else Spec(last, weight.dtype)
    return Spec(x.shape, x.dtype), weight_spec, Spec(last, x.dtype)


def _rows_view(stat: Any, num_axes: int) -> Any:
    """A statistic of shape (rows…) as one that broadcasts against (rows…, normalised…)."""
    if stat is None:
        return None
    shape = (*stat.shape, *(1,) * num_axes)
    return stat.reshape(shape) if isinstance(stat, np.ndarray) else reshape(stat, shape)


def _layer_norm_backward_ops(
    grad: Any, g_mean: Any, g_rstd: Any, x: Any, weight: Any, mean: Any, rstd: Any, num_axes: int, keep: int = 0
) -> tuple[Any, Any, Any]:
    """The backward pass in public ops; gradients of the parameters keep `keep` leading (batch) axes."""
    n = x.ndim
    axes, rows = tuple(range(n - num_axes, n)), tuple(range(keep, n - num_axes))
    g_mean, g_rstd, mean, rstd = (_rows_view(v, num_axes) for v in (g_mean, g_rstd, mean, rstd))
    gx, product = input_gradient(
        grad, g_mean, g_rstd, x, weight, mean, rstd, axes=axes, count=count(x, axes), total=sum_tensors
    )
    gw = None if weight is None else reduce_sum(product, rows, False)
    return gx, gw, reduce_sum(grad, rows, False)


def _layer_norm_rule(
    g: Any, x: Any, weight: Any, like_bias: Any, out1: Any, out2: Any, num_axes: int, needs: Any
) -> Any:
    grad = zeros_like(x) if g[0] is None else g[0]
    gx, gw, gb = layer_norm_backward(grad, g[1], g[2], x, weight, out1, out2, num_axes)
    return gx, gw if needs[1] else None, cast_like(gb, like_bias) if needs[2] else None


def _between(parameter: Any, x: Any, num_axes: int) -> Any:
    """A batch of parameters (batch, normalised…) as one that broadcasts against (batch, rows…, normalised…)."""
    if parameter is None:
        return None
    middle = x.ndim - 1 - num_axes
    return reshape(parameter, (parameter.shape[0], *(1,) * middle, *parameter.shape[1:]))


def _batch_layer_norm(axes: Any, tensors: Any, attrs: Any) -> Any:
    x, weight, bias = batched(tensors, axes)
    y, mean, rstd = layer_norm_forward(x, None, None, *attrs)
    if weight is not None:
        y = y * _between(weight, x, attrs[0])
    return (y if bias is None else y + _between(bias, x, attrs[0])), mean, rstd


def _batch_layer_norm_backward(axes: Any, tensors: Any, attrs: Any) -> Any:
    grad, g_mean, g_rstd, x, weight, mean, rstd = batched(tensors, axes)
    gx, gw, gb = _layer_norm_backward_ops(
        grad, g_mean, g_rstd, x, _between(weight, x, attrs[0]), mean, rstd, attrs[0], keep=1
    )
    return gx, zeros_like(reshape(gb, (gb.shape[0], -1))[:, :0]) if gw is None else gw, gb


def _reference_layer_norm(x: Any, weight: Any = None, bias: Any = None, num_axes: int = 1, eps: float = 1e-5) -> Any:
    axes = tuple(range(x.ndim - num_axes, x.ndim))
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    y = (x - mean) / np.sqrt(var + eps)
    y = y if weight is None else y * weight
    y = y if bias is None else y + bias
    return (
        y,
        mean.reshape(x.shape[: x.ndim - num_axes]),
        (1 / np.sqrt(var + eps)).reshape(x.shape[: x.ndim - num_axes]),
    )


def _reference_backward(
    num_axes: int, grad: Any, g_mean: Any, g_rstd: Any, x: Any, weight: Any, mean: Any, rstd: Any
) -> Any:
    n = int(np.prod(x.shape[x.ndim - num_axes :]))
    m: Any = None if mean is None else mean.reshape(mean.shape + (1,) * num_axes)
    r = rstd.reshape(rstd.shape + (1,) * num_axes)
    axes = tuple(range(x.ndim - num_axes, x.ndim))
    hat = (x if m is None else x - m) * r
    gh = grad if weight is None else grad * weight
    gx = r * (gh - hat * (gh * hat).mean(axes, keepdims=True))
    if m is not None:
        gx = gx - r * gh.mean(axes, keepdims=True)
    if g_mean is not None:
        gx = gx + g_mean.reshape(m.shape) / n
    if g_rstd is not None:
        gx = gx - g_rstd.reshape(r.shape) * r * r * hat / n
    rows = tuple(range(x.ndim - num_axes))
    return gx, np.zeros(0) if weight is None else (grad * hat).sum(rows), grad.sum(rows)


@primitive(
    autocast="float32",
    namespace="internal",
    outputs=3,
    several_calls=True,
    checks_once=True,
    infer=_infer_layer_norm_backward,
    vjp=composed(_layer_norm_backward_ops, "num_axes"),
    batch=_batch_layer_norm_backward,
    cost=cost_per_element(12),
    reference=lambda grad, gm, gr, x, weight, mean, rstd, num_axes: _reference_backward(
        num_axes, grad, gm, gr, x, weight, mean, rstd
    ),
    samples=lambda m: [
        Sample(m.normal(4, 3), None, None, m.normal(4, 3), m.normal(3), m.normal(4), m.positive(4), 1),
        Sample(m.normal(2, 3, 2), m.normal(2), m.normal(2), m.normal(2, 3, 2), None, m.normal(2), m.positive(2), 2),
    ],
)
def layer_norm_backward(
    grad: Tensor,
    grad_mean: Tensor | None,
    grad_rstd: Tensor | None,
    x: Tensor,
    weight: Tensor | None,
    mean: Tensor,
    rstd: Tensor,
    num_axes: int,
) -> Any:
    """The gradients of `layer_norm` in x, weight (empty if there is none) and bias."""
    axes = tuple(range(x.ndim - num_axes, x.ndim))
    g, gm, gr, xs, w, m, r = wide(grad, grad_mean, grad_rstd, x, weight, mean, rstd)  # type: ignore[arg-type]
    gm, gr, m, r = (_rows_view(v, num_axes) for v in (gm, gr, m, r))
    size = int(np.prod(x.shape[x.ndim - num_axes :]))
    gx, product = input_gradient(g, gm, gr, xs, w, m, r, axes=axes, count=max(size, 1), total=sum_arrays)
    rows = tuple(range(x.ndim - num_axes))
    gw = np.zeros(0, x.dtype) if weight is None else product.sum(axis=rows).astype(weight.dtype, copy=False)
    return gx.astype(x.dtype, copy=False), gw, np.asarray(g.sum(axis=rows)).astype(x.dtype, copy=False)


@primitive(
    autocast="float32",
    namespace="internal",
    outputs=3,
    several_calls=True,
    checks_once=True,
    infer=_infer_layer_norm,
    vjp=joint(_layer_norm_rule, fill=False),
    batch=_batch_layer_norm,
    cost=cost_per_element(8),
    reference=_reference_layer_norm,
    samples=lambda m: [
        Sample(m.normal(4, 3), m.normal(3), m.normal(3), 1, 1e-5),
        Sample(m.normal(2, 3, 2), None, None, 2, 1e-3),
        Sample(m.normal(5), None, m.normal(5), 1, 1e-5),
        Sample(m.normal(2, 3), m.normal(3), None, 1, 1e-5),
        Sample(m.normal(0, 3), m.normal(3), m.normal(3), 1, 1e-5),
    ],
)
def layer_norm_forward(x: Tensor, weight: Tensor | None, bias: Tensor | None, num_axes: int, eps: float) -> Any:
    """(y, mean, rstd): `x` normalised over its last `num_axes` axes, with the statistics used."""
    xs, w, b = wide(x, weight, bias)  # type: ignore[arg-type]
    y, mean, var = statistics(xs, tuple(range(x.ndim - num_axes, x.ndim)))
    rstd = 1 / np.sqrt(var + xs.dtype.type(eps))
    y *= rstd
    if w is not None:
        y *= w
    if b is not None:
        y += b
    lead, stat = x.shape[: x.ndim - num_axes], stat_dtype(x)
    return (
        y.astype(x.dtype, copy=False),
        mean.reshape(lead).astype(stat, copy=False),
        rstd.reshape(lead).astype(stat, copy=False),
    )


def _trailing(op: str, x: Any, normalized_shape: Any) -> int:
    """How many axes `normalized_shape` names; it must be the end of the shape of `x`."""
    if normalized_shape.__class__ is tuple and x.__class__ is Tensor and normalized_shape:
        shape = x._data.shape
        if shape.__class__ is tuple and shape[-len(normalized_shape) :] == normalized_shape:
            return len(normalized_shape)
    sizes = check_shape(op, normalized_shape, "normalized_shape")
    last = tuple(x.shape[x.ndim - len(sizes) :]) if len(sizes) <= x.ndim else None
    if not sizes or last is None or any(not same_size(a, b) for a, b in zip(last, sizes, strict=True)):
        raise ValueError(
            f"{op}: normalized_shape {format_shape(sizes)} must be the last sizes of x. Got x of shape {format_shape(x.shape)}."
        )
    return len(sizes)


def _sizes(shape: Any) -> int:
    return len(shape) if isinstance(shape, (tuple, list)) else 1


@composite(
    namespace="nn",
    reference=lambda x, normalized_shape, weight=None, bias=None, eps=1e-5: _reference_layer_norm(
        x, weight, bias, _sizes(normalized_shape), eps
    )[0],
    samples=lambda m: [
        Sample(m.normal(4, 3), 3, m.normal(3), m.normal(3)),
        Sample(m.normal(2, 3, 2), (3, 2)),
        Sample(m.normal(2, 5), (5,), m.normal(5), eps=1e-2),
    ],
    errors=lambda m: [
        Bad(ValueError, r"layer_norm: normalized_shape \(4,\) must be the last sizes of x", m.normal(2, 3), (4,)),
        Bad(ValueError, r"layer_norm: weight has shape \(2,\); expected \(3,\)", m.normal(2, 3), (3,), m.normal(2)),
        Bad(TypeError, "layer_norm: expected a real floating tensor", m.ints(2, 3), (3,)),
    ],
)
def layer_norm(
    x: Tensor,
    normalized_shape: int | tuple[int, ...],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Layer normalisation: mean 0 and variance 1 over the last axes, then a scale and a shift.

    Args:
        x: (..., *normalized_shape).
        normalized_shape: sizes of the axes to normalise over; an integer for the last axis.
        weight, bias: of shape `normalized_shape`, or None.
        eps: added to the variance.

    >>> F.layer_norm(wf.tensor([[1.0, 1.0, 3.0, 3.0]]), 4).round().tolist()
    [[-1.0, -1.0, 1.0, 1.0]]
    """
    axes = _trailing("layer_norm", x, normalized_shape)
    found = small_arrays.arrays(x, weight, bias)
    if found is not None:
        values, factor, offset = found
        last = values.shape[values.ndim - axes :]
        fits = (factor is None or factor.shape == last) and (offset is None or offset.shape == last)
        native: Any = native_kernels() if fits and eps.__class__ is float and eps >= 0 else False
        result = native.layer_norm(values, factor, offset, axes, eps) if native is not False else None
        if result is not None:
            return wrap(result[0])
    return layer_norm_forward(x, weight, bias, axes, number("layer_norm", "eps", eps, least=0))[0]


# RMS norm -------------------------------------------------------------------------------------------------------------


def _rms_norm_backward_ops(
    grad: Any, g_rstd: Any, x: Any, weight: Any, rstd: Any, num_axes: int, keep: int = 0
) -> tuple[Any, Any]:
    n = x.ndim
    axes, rows = tuple(range(n - num_axes, n)), tuple(range(keep, n - num_axes))
    g_rstd, rstd = _rows_view(g_rstd, num_axes), _rows_view(rstd, num_axes)
    gx, product = input_gradient(
        grad, None, g_rstd, x, weight, None, rstd, axes=axes, count=count(x, axes), total=sum_tensors
    )
    return gx, None if weight is None else reduce_sum(product, rows, False)


def _batch_rms_norm(axes: Any, tensors: Any, attrs: Any) -> Any:
    x, weight = batched(tensors, axes)
    y, rstd = rms_norm_forward(x, None, *attrs)
    return (y if weight is None else y * _between(weight, x, attrs[0])), rstd


def _batch_rms_norm_backward(axes: Any, tensors: Any, attrs: Any) -> Any:
    grad, g_rstd, x, weight, rstd = batched(tensors, axes)
    gx, gw = _rms_norm_backward_ops(grad, g_rstd, x, _between(weight, x, attrs[0]), rstd, attrs[0], keep=1)
    return gx, zeros_like(reshape(gx, (gx.shape[0], -1))[:, :0]) if gw is None else gw


def _rms_norm_rule(g: Any, x: Any, weight: Any, out1: Any, num_axes: int, needs: Any) -> Any:
    gx, gw = rms_norm_backward(zeros_like(x) if g[0] is None else g[0], g[1], x, weight, out1, num_axes)
    return gx, gw if needs[1] else None


def _reference_rms_norm(x: Any, weight: Any = None, num_axes: int = 1, eps: float = 1e-5) -> Any:
    axes = tuple(range(x.ndim - num_axes, x.ndim))
    rstd = 1 / np.sqrt(np.square(x).mean(axes, keepdims=True) + eps)
    y = x * rstd if weight is None else x * rstd * weight
    return y, rstd.reshape(x.shape[: x.ndim - num_axes])


def _infer_rms_norm(x: Any, weight: Any, num_axes: int, eps: float) -> tuple[Spec, Spec]:
    check_floating("rms_norm", x)
    if x.shape is None:
        return Spec(None, x.dtype), Spec(None, stat_dtype(x))
    _check_rank("rms_norm", x, num_axes)
    lead, last = _row_shapes(x, num_axes)
    check_parameter("rms_norm", "weight", weight, last)
    return Spec(x.shape, x.dtype), Spec(lead, stat_dtype(x))


def _infer_rms_norm_backward(
    grad: Any, grad_rstd: Any, x: Any, weight: Any, rstd: Any, num_axes: int
) -> tuple[Spec, Spec]:
    _check_rank("rms_norm", x, num_axes)
    weight_spec = Spec((0,), x.dtype) if weight is None else Spec(weight.shape, weight.dtype)
    return Spec(x.shape, x.dtype), weight_spec


@primitive(
    autocast="float32",
    namespace="internal",
    outputs=2,
    several_calls=True,
    checks_once=True,
    infer=_infer_rms_norm_backward,
    vjp=composed(_rms_norm_backward_ops, "num_axes"),
    batch=_batch_rms_norm_backward,
    cost=cost_per_element(10),
    reference=lambda grad, gr, x, weight, rstd, num_axes: _reference_backward(
        num_axes, grad, None, gr, x, weight, None, rstd
    )[:2],
    samples=lambda m: [
        Sample(m.normal(4, 3), None, m.normal(4, 3), m.normal(3), m.positive(4), 1),
        Sample(m.normal(2, 3, 2), m.normal(2), m.normal(2, 3, 2), None, m.positive(2), 2),
    ],
)
def rms_norm_backward(
    grad: Tensor, grad_rstd: Tensor | None, x: Tensor, weight: Tensor | None, rstd: Tensor, num_axes: int
) -> Any:
    """The gradients of `rms_norm` in x and weight (empty if there is none)."""
    axes = tuple(range(x.ndim - num_axes, x.ndim))
    g, gr, xs, w, r = wide(grad, grad_rstd, x, weight, rstd)  # type: ignore[arg-type]
    gr, r = _rows_view(gr, num_axes), _rows_view(r, num_axes)
    size = int(np.prod(x.shape[x.ndim - num_axes :]))
    gx, product = input_gradient(g, None, gr, xs, w, None, r, axes=axes, count=max(size, 1), total=sum_arrays)
    rows = tuple(range(x.ndim - num_axes))
    gw = np.zeros(0, x.dtype) if weight is None else product.sum(axis=rows).astype(weight.dtype, copy=False)
    return gx.astype(x.dtype, copy=False), gw


@primitive(
    autocast="float32",
    namespace="internal",
    outputs=2,
    several_calls=True,
    checks_once=True,
    infer=_infer_rms_norm,
    vjp=joint(_rms_norm_rule, fill=False),
    batch=_batch_rms_norm,
    cost=cost_per_element(5),
    reference=_reference_rms_norm,
    samples=lambda m: [Sample(m.normal(4, 3), m.normal(3), 1, 1e-5), Sample(m.normal(2, 3, 2), None, 2, 1e-3)],
)
def rms_norm_forward(x: Tensor, weight: Tensor | None, num_axes: int, eps: float) -> Any:
    """(y, rstd): `x` divided by its root mean square over its last `num_axes` axes."""
    xs, w = wide(x, weight)  # type: ignore[arg-type]
    axes = tuple(range(x.ndim - num_axes, x.ndim))
    count = max(math.prod(x.shape[a] for a in axes), 1)
    rstd = 1 / np.sqrt(np.square(xs).sum(axis=axes, keepdims=True) / xs.dtype.type(count) + xs.dtype.type(eps))
    y = xs * rstd
    if w is not None:
        y *= w
    return y.astype(x.dtype, copy=False), rstd.reshape(x.shape[: x.ndim - num_axes]).astype(stat_dtype(x), copy=False)


@composite(
    accumulate="float32",
    namespace="nn",
    reference=lambda x, normalized_shape, weight=None, eps=None: _reference_rms_norm(
        x, weight, _sizes(normalized_shape), float(np.finfo(np.float64).eps) if eps is None else eps
    )[0],
    samples=lambda m: [
        Sample(m.normal(4, 3), 3, m.normal(3), 1e-5),
        Sample(m.normal(2, 3, 2), (3, 2)),
        Sample(m.normal(2, 5), (5,), eps=1e-2),
    ],
    errors=lambda m: [Bad(ValueError, "rms_norm: normalized_shape", m.normal(2, 3), (2,))],
)
def rms_norm(
    x: Tensor, normalized_shape: int | tuple[int, ...], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """RMS normalisation: `x` divided by its root mean square over the last axes, then a scale.

    Args:
        x: (..., *normalized_shape).
        normalized_shape: sizes of the axes to normalise over; an integer for the last axis.
        weight: of shape `normalized_shape`, or None.
        eps: added to the mean square; the dtype's machine epsilon by default.

    >>> F.rms_norm(wf.tensor([[3.0, 3.0]]), 2).round().tolist()
    [[1.0, 1.0]]
    """
    num_axes = _trailing("rms_norm", x, normalized_shape)
    check_floating("rms_norm", x)
    least = dtypes.finfo(x.dtype).eps if eps is None else number("rms_norm", "eps", eps, least=0)
    return rms_norm_forward(x, weight, num_axes, float(least))[0]
