"""Losses, with PyTorch's names and meaning.

`reduction` is "mean" (default), "sum" or "none". Operands of different shapes are an error and not broadcast: a loss
that silently compares every prediction with every target is the hardest kind of bug to find.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import format_shape
from ..tensor import Tensor
from . import scalar as s
from .composed import composed_vjp
from .creation import zeros_like, zeros_like_spec
from .batching import folded_rows
from .dispatch import composite, elementwise, primitive
from .elementwise import abs_, astype, exp, log, maximum, sign, square, where
from .formulas import wide
from .reduction import mean as mean_
from .reduction import reduce_sum
from .registry import joint
from .samples import Bad, Sample
from .shaping import expand_dims
from .softmax import cosine_similarity, log_softmax, pairwise_distance
from .spec import Spec, normalize_axis, num_elements, same_size

_REDUCTIONS = ("mean", "sum", "none")


def _check_reduction(op: str, reduction: Any, *more: str) -> None:
    if reduction not in _REDUCTIONS and reduction not in more:
        raise ValueError(f"{op}: reduction must be one of {', '.join((*_REDUCTIONS, *more))}. Got {reduction!r}.")


def _check_same(op: str, **operands: Any) -> None:
    """All operands must have one shape."""
    (name, first), *rest = operands.items()
    for other, value in rest:
        if first.shape is None or value.shape is None:
            continue
        if len(first.shape) != len(value.shape) or any(
            not same_size(a, b) for a, b in zip(first.shape, value.shape, strict=True)
        ):
            raise ValueError(
                f"{op}: {name} and {other} must have one shape; a loss does not broadcast. Got "
                f"{format_shape(first.shape)} and {format_shape(value.shape)}. Use `reshape` or `wf.broadcast_to` to say "
                "what is meant."
            )


def _reduce(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return mean_(loss)
    return loss if reduction == "none" else reduce_sum(loss, None, False)


def _np_reduce(loss: Any, reduction: str) -> Any:
    return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.mean()


def _pair_samples(m: Any) -> list[Sample]:
    return [
        Sample(m.normal(2, 3), m.normal(2, 3)),
        Sample(m.normal(4), m.normal(4), reduction="sum"),
        Sample(m.normal(2, 3), m.normal(2, 3), reduction="none"),
        Sample(m.normal(), m.normal()),
    ]


def _pair_errors(op: str) -> Any:
    return lambda m: [
        Bad(ValueError, rf"{op}: input and target must have one shape; a loss does not broadcast. Got \(4, 1\) and \(4,\)", m.normal(4, 1), m.normal(4)),
        Bad(ValueError, f"{op}: reduction must be one of mean, sum, none. Got 'avg'", m.normal(4), m.normal(4), reduction="avg"),
    ]  # fmt: skip


# Classes: cross entropy ------------------------------------------------------------------------------------------------------


def _check_classes(op: str, target: Any, classes: Any, ignore_index: int) -> None:
    """Class numbers must be integers of 0 to classes - 1 (or `ignore_index`); values are checked where they are known."""
    if not dtypes.is_integral(target.dtype):
        raise TypeError(f"{op}: class numbers must be integers. Got {target.dtype.name}; use `target.astype(wf.int64)`.")
    if type(target) is not np.ndarray or not isinstance(classes, int) or target.size == 0:
        return
    wrong = (target < 0) | (target >= classes)
    if wrong.any():
        wrong &= target != ignore_index
        if wrong.any():
            raise IndexError(f"{op}: target holds {target[wrong].flat[0]}; expected classes 0 to {classes - 1} or ignore_index {ignore_index}.")


def _check_target_shape(op: str, x: Any, target: Any) -> None:
    if x.shape is None or target.shape is None:
        return
    if len(x.shape) == 0:
        raise ValueError(f"{op}: input must have a class axis: shape (C,) or (N, C, ...). Got a 0-d tensor.")
    expected = (x.shape[0], *x.shape[2:]) if len(x.shape) > 1 else ()
    if len(target.shape) != len(expected) or any(not same_size(a, b) for a, b in zip(target.shape, expected, strict=True)):
        raise ValueError(
            f"{op}: target has shape {format_shape(target.shape)}; expected {format_shape(expected)} for input of shape "
            f"{format_shape(x.shape)}, whose axis {min(len(x.shape) - 1, 1)} counts classes."
        )


def _class_axis(x: Any) -> int:
    return 0 if len(x.shape) == 1 else 1


def _infer_pick(x: Any, target: Any, ignore_index: int) -> Spec:
    _check_target_shape("nll_loss", x, target)
    _check_classes("nll_loss", target, None if x.shape is None else x.shape[_class_axis(x)], ignore_index)
    return Spec(target.shape, x.dtype)


def _safe(target: np.ndarray, ignore_index: int) -> tuple[np.ndarray, np.ndarray]:
    """(a valid class everywhere, where the class counts)."""
    counts = target != ignore_index
    return np.where(counts, target, 0), counts


def _pick_rule(g: Tensor, like_x: Any, target: Tensor, ignore_index: int) -> Tensor:
    from .indexing import scatter_add

    counts = target != ignore_index
    axis = _class_axis(like_x)
    places = expand_dims(where(counts, target, 0), axis)
    return scatter_add(zeros_like_spec(Spec(like_x.shape, g.dtype, like_x.value)), places, expand_dims(where(counts, g, 0.0), axis), axis)


def _np_pick(x: Any, target: Any, ignore_index: int) -> Any:
    axis = _class_axis(x)
    safe, counts = _safe(np.asarray(target), ignore_index)
    return np.where(counts, np.take_along_axis(x, np.expand_dims(safe, axis), axis).squeeze(axis), 0)


@primitive(
    namespace="internal",
    infer=_infer_pick,
    vjp=(_pick_rule, None),
    batch=folded_rows(lambda: pick_class, 0),
    reference=_np_pick,
    samples=lambda m: [
        Sample(m.normal(4, 3), np.array([0, 2, -100, 1]), -100),
        Sample(m.normal(2, 3, 2), np.array([[0, 1], [2, 2]]), -100),
        Sample(m.normal(3), np.array(1), -100),
    ],
    errors=lambda m: [Bad(IndexError, "nll_loss: target holds -1; expected classes 0 to 2", m.normal(2, 3), np.array([0, -1]), -100)],
)
def pick_class(x: Tensor, target: Tensor, ignore_index: int) -> Any:
    """The element of every row of `x` (N, C, ...) at its class number, 0 where that is `ignore_index`."""
    return np.asarray(_np_pick(x, target, ignore_index)).astype(x.dtype, copy=False)


def _infer_cross_entropy(x: Any, target: Any, ignore_index: int, label_smoothing: float) -> tuple[Spec, Spec]:
    _check_target_shape("cross_entropy", x, target)
    _check_classes("cross_entropy", target, None if x.shape is None else x.shape[_class_axis(x)], ignore_index)
    return Spec(target.shape, x.dtype), Spec(target.shape, x.dtype)


def _cross_entropy_backward_ops(
    grad: Any, grad_lse: Any, x: Any, lse: Any, target: Any, ignore_index: int, label_smoothing: float
) -> Any:
    axis = _class_axis(x)
    from .indexing import scatter_add

    counts = target != ignore_index
    live = expand_dims(where(counts, grad, 0.0), axis)
    total = live if grad_lse is None else live + expand_dims(grad_lse, axis)
    soft = exp(x - expand_dims(lse, axis)) * total
    if label_smoothing:
        soft = soft - live * (label_smoothing / x.shape[axis])
    return scatter_add(soft, expand_dims(where(counts, target, 0), axis), live * (label_smoothing - 1.0), axis)


@primitive(
    namespace="internal",
    infer=lambda grad, grad_lse, x, lse, target, ignore_index, label_smoothing: Spec(x.shape, x.dtype),
    vjp=joint(
        lambda h, grad, grad_lse, x, lse, target, ignore_index, label_smoothing, needs: composed_vjp(
            lambda *inputs: _cross_entropy_backward_ops(*inputs, ignore_index, label_smoothing), (grad, grad_lse, x, lse, target), needs, (h,)
        )
    ),
    cost=lambda grad, grad_lse, x, *_: 12 * (num_elements(x.shape) or 0),
    batch=folded_rows(lambda: cross_entropy_backward, 2),
    reference=lambda grad, grad_lse, x, lse, target, ignore_index, label_smoothing: _reference_cross_entropy_backward(
        grad, grad_lse, x, lse, target, ignore_index, label_smoothing
    ),
    samples=lambda m: [
        Sample(m.normal(3), None, m.normal(3, 4), m.positive(3), np.array([0, 3, -1]), -1, 0.0),
        Sample(m.normal(2, 2), m.normal(2, 2), m.normal(2, 3, 2), m.positive(2, 2), np.array([[0, 1], [2, 2]]), -100, 0.2),
    ],
)  # fmt: skip
def cross_entropy_backward(
    grad: Tensor, grad_lse: Tensor | None, x: Tensor, lse: Tensor, target: Tensor, ignore_index: int, label_smoothing: float
) -> Any:  # fmt: skip
    """The gradient of `cross_entropy_forward` in its logits: (softmax(x) - smoothed one-hot) · grad, in one pass."""
    axis = _class_axis(x)
    g, gl, xs, ls = wide(grad, grad_lse, x, lse)  # type: ignore[arg-type]
    safe, counts = _safe(target, ignore_index)  # type: ignore[arg-type]
    live = np.expand_dims(np.where(counts, g, 0), axis).astype(xs.dtype, copy=False)
    out = np.exp(xs - np.expand_dims(ls, axis))
    out *= live if gl is None else live + np.expand_dims(gl, axis)
    if label_smoothing:
        out -= live * (label_smoothing / x.shape[axis])
    places = np.expand_dims(safe, axis)
    np.put_along_axis(out, places, np.take_along_axis(out, places, axis) - live * (1 - label_smoothing), axis)
    return out.astype(x.dtype, copy=False)


def _reference_cross_entropy_backward(
    grad: Any, grad_lse: Any, x: Any, lse: Any, target: Any, ignore_index: int, label_smoothing: float
) -> Any:
    axis = _class_axis(x)
    classes = x.shape[axis]
    hot = np.moveaxis(np.eye(classes)[np.where(target == ignore_index, 0, target)], -1, axis)
    hot = hot * (1 - label_smoothing) + label_smoothing / classes
    soft = np.exp(x - np.expand_dims(lse, axis))
    live = np.expand_dims(np.where(target == ignore_index, 0, grad), axis)
    return (soft - hot) * live + (0 if grad_lse is None else soft * np.expand_dims(grad_lse, axis))


def _cross_entropy_rule(
    g: Any, x: Any, target: Any, out1: Any, ignore_index: int, label_smoothing: float, needs: Any
) -> tuple[Any, None]:
    grad = zeros_like(out1) if g[0] is None else g[0]
    return cross_entropy_backward(grad, g[1], x, out1, target, ignore_index, label_smoothing), None


def _np_lse(x: Any, axis: int) -> Any:
    top = x.max(axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    return (np.log(np.exp(x - top).sum(axis, keepdims=True)) + top).squeeze(axis)


def _reference_cross_entropy_forward(x: Any, target: Any, ignore_index: int, label_smoothing: float) -> Any:
    axis = _class_axis(x)
    lse = _np_lse(x, axis)
    loss = lse - (1 - label_smoothing) * _np_pick(x, target, ignore_index)
    if label_smoothing:
        loss = loss - label_smoothing * x.mean(axis)
    return np.where(target == ignore_index, 0, loss), lse


@primitive(
    namespace="internal",
    outputs=2,
    infer=_infer_cross_entropy,
    promote=None,
    vjp=joint(_cross_entropy_rule, fill=False),
    cost=lambda x, *_: 10 * (num_elements(x.shape) or 0),
    batch=folded_rows(lambda: cross_entropy_forward, 0),
    reference=_reference_cross_entropy_forward,
    samples=lambda m: [
        Sample(m.normal(4, 3), np.array([0, 2, -100, 1]), -100, 0.0),
        Sample(m.normal(2, 3, 2) * 20, np.array([[0, 1], [2, 2]]), 2, 0.1),
        Sample(m.normal(3), np.array(1), -100, 0.0),
    ],
    errors=lambda m: [Bad(IndexError, "cross_entropy: target holds 3; expected classes 0 to 2", m.normal(2, 3), np.array([0, 3]), -100, 0.0)],
)
def cross_entropy_forward(x: Tensor, target: Tensor, ignore_index: int, label_smoothing: float) -> Any:
    """(loss per row, log-sum-exp per row) of logits `x` (N, C, ...) and class numbers; 0 where ignored."""
    axis = _class_axis(x)
    (xs,) = wide(x)  # type: ignore[arg-type]
    lse = np.asarray(_np_lse(xs, axis), xs.dtype)
    loss = lse - xs.dtype.type(1 - label_smoothing) * _np_pick(xs, target, ignore_index)
    if label_smoothing:
        loss = loss - xs.dtype.type(label_smoothing) * xs.mean(axis)
    loss = np.where(np.asarray(target) == ignore_index, xs.dtype.type(0), loss)
    return np.asarray(loss).astype(x.dtype, copy=False), lse.astype(x.dtype, copy=False)


def _wide_classes(target: Tensor) -> Tensor:
    """Class numbers as int64, which can hold every `ignore_index`."""
    return astype(target, dtypes.int64) if dtypes.is_integral(target.dtype) else target


def _counted(target: Tensor, ignore_index: int, dtype: np.dtype) -> Tensor:
    return reduce_sum(astype(target != ignore_index, dtype), None, False)


def _class_weights(op: str, weight: Tensor | None, x: Tensor) -> None:
    if weight is not None and (weight.ndim != 1 or not same_size(weight.shape[0], x.shape[_class_axis(x)])):
        raise ValueError(
            f"{op}: weight must hold one number per class. Got shape {format_shape(weight.shape)} for "
            f"{x.shape[_class_axis(x)]} classes."
        )


def _reference_nll(x: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean") -> Any:
    classes = x.shape[_class_axis(x)]
    weight = np.ones(classes) if weight is None else weight
    counts = target != ignore_index
    w = weight[np.where(counts, target, 0)] * counts
    loss = -_np_pick(x, target, ignore_index) * w
    return loss.sum() / w.sum() if reduction == "mean" else _np_reduce(loss, reduction)


_nll_samples = lambda m: [  # noqa: E731
    Sample(m.normal(4, 3), np.array([0, 2, 1, 1])),
    Sample(m.normal(4, 3), np.array([0, 2, -100, 1]), m.positive(3)),
    Sample(m.normal(2, 3, 2), np.array([[0, 1], [2, 2]]), ignore_index=2, reduction="sum"),
    Sample(m.normal(2, 3, 2), np.array([[0, 1], [2, 2]]), m.positive(3), reduction="none"),
    Sample(m.normal(3), np.array(1)),
]


def _nll_errors(op: str) -> Any:
    return lambda m: [
        Bad(IndexError, f"{op}: target holds 5; expected classes 0 to 2", m.normal(2, 3), np.array([0, 5])),
        Bad(ValueError, rf"{op}: target has shape \(3,\); expected \(2,\)", m.normal(2, 3), np.array([0, 1, 2])),
        Bad(ValueError, f"{op}: weight must hold one number per class", m.normal(2, 3), np.array([0, 1]), m.positive(2)),
        Bad(ValueError, f"{op}: reduction must be", m.normal(2, 3), np.array([0, 1]), reduction="max"),
        Bad(ValueError, f"{op}: input must have a class axis", m.normal(), np.array(1)),
    ]


@composite(
    namespace="nn", reference=_reference_nll, samples=_nll_samples,
    errors=lambda m: [*_nll_errors("nll_loss")(m), Bad(TypeError, "nll_loss: class numbers must be integers", m.normal(2, 3), m.normal(2))],
)  # fmt: skip
def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"  # noqa: A002
) -> Tensor:
    """The negative log likelihood: -input at the target class, from log-probabilities (N, C, ...) and class numbers.

    With class weights the mean is a weighted one. Targets equal to `ignore_index` do not count.
    """
    _check_reduction("nll_loss", reduction)
    target = _wide_classes(target)
    loss = -pick_class(input, target, ignore_index)
    return _weighted_nll("nll_loss", loss, input, target, weight, ignore_index, reduction)


def _weighted_nll(
    op: str, loss: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str
) -> Tensor:
    """Reduce losses per row, weighted by the weight of the row's class."""
    _class_weights(op, weight, x)
    if weight is None:
        if reduction == "mean":
            return reduce_sum(loss, None, False) / _counted(target, ignore_index, loss.dtype)
        return _reduce(loss, reduction)
    from .indexing import take_axis

    counts = target != ignore_index
    weights = where(counts, take_axis(weight, where(counts, target, 0), 0), 0.0)
    loss = loss * weights
    if reduction == "mean":
        return reduce_sum(loss, None, False) / reduce_sum(weights, None, False)
    return _reduce(loss, reduction)


def _reference_cross_entropy(
    x: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0
) -> Any:  # fmt: skip
    axis = _class_axis(x)
    classes = x.shape[axis]
    logp = x - np.expand_dims(_np_lse(x, axis), axis)
    shape = [1] * x.ndim
    shape[axis] = classes
    w = np.ones(shape) if weight is None else weight.reshape(shape)
    if target.dtype.kind == "f":
        goal = target * (1 - label_smoothing) + label_smoothing / classes
        loss = -(goal * logp * w).sum(axis)
        return loss.sum() / max(loss.size, 1) if reduction == "mean" else _np_reduce(loss, reduction)
    counts = target != ignore_index
    hot = np.moveaxis(np.eye(classes)[np.where(counts, target, 0)], -1, axis)
    row = (hot * w).sum(axis) * counts
    loss = -((1 - label_smoothing) * (hot * w * logp).sum(axis) + label_smoothing / classes * (w * logp).sum(axis)) * counts
    return loss.sum() / row.sum() if reduction == "mean" else _np_reduce(loss, reduction)


@composite(
    namespace="nn",
    reference=_reference_cross_entropy,
    samples=lambda m: [
        *_nll_samples(m),
        Sample(m.normal(4, 3), np.array([0, 2, -100, 1]), label_smoothing=0.1),
        Sample(m.normal(2, 3, 2), np.array([[0, 1], [2, -100]]), m.positive(3), label_smoothing=0.2),
        Sample(m.normal(4, 3), m.positive(4, 3)),
        Sample(m.normal(2, 3, 2), m.positive(2, 3, 2), m.positive(3), reduction="sum", label_smoothing=0.1),
        Sample(m.normal(3), m.positive(3), reduction="none"),
    ],
    errors=lambda m: [
        *_nll_errors("cross_entropy")(m),
        Bad(ValueError, r"cross_entropy: input and target must have one shape.*\(2, 3\) and \(2, 1\)", m.normal(2, 3), m.positive(2, 1)),
        Bad(ValueError, "cross_entropy: label_smoothing must be between 0 and 1", m.normal(2, 3), np.array([0, 1]), label_smoothing=1.5),
        Bad(ValueError, "cross_entropy: ignore_index", m.normal(2, 3), m.positive(2, 3), ignore_index=0),
    ],
)
def cross_entropy(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The cross entropy of logits `input` (N, C, ...) or (C,) with a target.

    Args:
        target: class numbers, shape (N, ...), or probabilities of the shape of `input`.
        weight: one weight per class; with class numbers the mean is a weighted one.
        ignore_index: a class number that does not count.
        label_smoothing: how much of the target is spread evenly over all classes, 0 to 1.

    >>> import weft as wf
    >>> from weft.nn import functional as F
    >>> round(F.cross_entropy(wf.zeros(2, 4), wf.tensor([0, 3])).item(), 4)
    1.3863
    """
    _check_reduction("cross_entropy", reduction)
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"cross_entropy: label_smoothing must be between 0 and 1. Got {label_smoothing}.")
    input = astype(input, dtypes.float_for(input.dtype))  # noqa: A001
    if dtypes.is_floating(target.dtype):
        if ignore_index >= 0:
            raise ValueError("cross_entropy: ignore_index is for class numbers. Got probabilities as target.")
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    target = _wide_classes(target)
    if weight is None:
        loss, _ = cross_entropy_forward(input, target, ignore_index, float(label_smoothing))
        return _weighted_nll("cross_entropy", loss, input, target, None, ignore_index, reduction)
    _check_target_shape("cross_entropy", input, target)
    _check_classes("cross_entropy", target._data, input.shape[_class_axis(input)], ignore_index)
    logp = log_softmax(input, _class_axis(input))
    if not label_smoothing:
        return _weighted_nll("cross_entropy", -pick_class(logp, target, ignore_index), input, target, weight, ignore_index, reduction)
    _class_weights("cross_entropy", weight, input)
    hard = _weighted_nll("cross_entropy", -pick_class(logp, target, ignore_index), input, target, weight, ignore_index, "none")
    axis = _class_axis(input)
    counts = target != ignore_index
    spread = where(counts, -reduce_sum(logp * _along_classes(weight, input), axis, False), 0.0)
    loss = hard * (1 - label_smoothing) + spread * (label_smoothing / input.shape[axis])
    if reduction != "mean":
        return _reduce(loss, reduction)
    from .indexing import take_axis

    weights = where(counts, take_axis(weight, where(counts, target, 0), 0), 0.0)
    return reduce_sum(loss, None, False) / reduce_sum(weights, None, False)


def _along_classes(weight: Tensor, x: Tensor) -> Tensor:
    from .shaping import reshape

    return weight if x.ndim == 1 else reshape(weight, (1, -1, *(1,) * (x.ndim - 2)))


def _soft_cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: str, label_smoothing: float
) -> Tensor:
    _check_same("cross_entropy", input=x, target=target)
    _class_weights("cross_entropy", weight, x)
    axis = normalize_axis("cross_entropy", _class_axis(x), x.ndim)
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / x.shape[axis]
    terms = target * log_softmax(x, axis)
    if weight is not None:
        terms = terms * _along_classes(weight, x)
    return _reduce(-reduce_sum(terms, axis, False), reduction)


# Differences ------------------------------------------------------------------------------------------------------------------


@composite(
    namespace="nn",
    reference=lambda input, target, reduction="mean": _np_reduce(np.square(input - target), reduction),
    samples=_pair_samples, errors=_pair_errors("mse_loss"),
)  # fmt: skip
def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:  # noqa: A002
    """The squared difference (input - target)²."""
    _check_reduction("mse_loss", reduction)
    _check_same("mse_loss", input=input, target=target)
    return _reduce(square(input - target), reduction)


@composite(
    namespace="nn",
    reference=lambda input, target, reduction="mean": _np_reduce(np.abs(input - target), reduction),
    samples=_pair_samples, errors=_pair_errors("l1_loss"),
)  # fmt: skip
def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:  # noqa: A002
    """The absolute difference |input - target|."""
    _check_reduction("l1_loss", reduction)
    _check_same("l1_loss", input=input, target=target)
    return _reduce(abs_(input - target), reduction)


def _huber_slope(g: Any, difference: Any, delta: Any) -> Any:
    inside = abs_(difference) < delta
    return g * where(inside, difference, sign(difference) * delta)


@elementwise(
    namespace="internal",
    kind="real float",
    vjp=(_huber_slope, lambda g, difference, delta: where(abs_(difference) < delta, 0.0, g * (abs_(difference) - delta))),
    reference=lambda difference, delta: np.where(np.abs(difference) < delta, 0.5 * difference**2, delta * (np.abs(difference) - 0.5 * delta)),
    samples=lambda m: [Sample(m.normal(7), 1.0), Sample(m.normal(2, 3), 0.25), Sample(m.normal(3), m.positive(3))],
)
def huber(difference, delta):  # type: ignore[no-untyped-def]
    """d² / 2 where |d| is below delta, else delta (|d| - delta / 2)."""
    size = s.abs(difference)
    near = s.mul(s.mul(difference, difference), 0.5)
    return s.where(s.lt(size, delta), near, s.mul(delta, s.sub(size, s.mul(delta, 0.5))))


def _reference_huber(input: Any, target: Any, reduction: str = "mean", delta: float = 1.0) -> Any:  # noqa: A002
    d = np.abs(input - target)
    return _np_reduce(np.where(d < delta, 0.5 * d * d, delta * (d - 0.5 * delta)), reduction)


@composite(
    namespace="nn",
    reference=_reference_huber,
    samples=lambda m: [*_pair_samples(m), Sample(m.normal(6), m.normal(6), delta=0.5)],
    errors=lambda m: [*_pair_errors("huber_loss")(m), Bad(ValueError, "huber_loss: delta must be positive", m.normal(2), m.normal(2), delta=0)],
)
def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:  # noqa: A002
    """d² / 2 for differences d below `delta`, delta (|d| - delta / 2) above: squares near, straight lines far."""
    _check_reduction("huber_loss", reduction)
    _check_same("huber_loss", input=input, target=target)
    if not delta > 0:
        raise ValueError(f"huber_loss: delta must be positive. Got {delta}.")
    return _reduce(huber(input - target, float(delta)), reduction)


@composite(
    namespace="nn",
    reference=lambda input, target, reduction="mean", beta=1.0: _np_reduce(
        np.where(np.abs(input - target) < beta, 0.5 * (input - target) ** 2 / (beta or 1), np.abs(input - target) - 0.5 * beta), reduction
    ),
    samples=lambda m: [*_pair_samples(m), Sample(m.normal(6), m.normal(6), beta=0.5), Sample(m.normal(6), m.normal(6), beta=0.0)],
    errors=lambda m: [*_pair_errors("smooth_l1_loss")(m), Bad(ValueError, "smooth_l1_loss: beta", m.normal(2), m.normal(2), beta=-1.0)],
)  # fmt: skip
def smooth_l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:  # noqa: A002
    """d² / (2 beta) for differences d below `beta`, |d| - beta / 2 above; with beta = 0 the same as `l1_loss`."""
    _check_reduction("smooth_l1_loss", reduction)
    _check_same("smooth_l1_loss", input=input, target=target)
    if beta < 0:
        raise ValueError(f"smooth_l1_loss: beta must not be negative. Got {beta}.")
    if beta == 0:
        return _reduce(abs_(input - target), reduction)
    return _reduce(huber(input - target, float(beta)) * (1 / beta), reduction)


# Probabilities ------------------------------------------------------------------------------------------------------------------


def _weigh(op: str, loss: Tensor, weight: Tensor | None) -> Tensor:
    """A rescaling weight may broadcast to the loss, but must not enlarge it."""
    if weight is None:
        return loss
    weighted = loss * weight
    if len(weighted.shape) != len(loss.shape) or any(not same_size(a, b) for a, b in zip(weighted.shape, loss.shape, strict=True)):
        raise ValueError(
            f"{op}: weight of shape {format_shape(weight.shape)} does not broadcast to the loss, which has shape "
            f"{format_shape(loss.shape)}."
        )
    return weighted


def _np_weigh(loss: Any, weight: Any) -> Any:
    return loss if weight is None else loss * weight


@composite(
    namespace="nn",
    reference=lambda input, target, weight=None, reduction="mean": _np_reduce(
        _np_weigh(-(target * np.maximum(np.log(input), -100) + (1 - target) * np.maximum(np.log(1 - input), -100)), weight), reduction
    ),
    samples=lambda m: [
        Sample(m.uniform(2, 3, low=0.05, high=0.95), m.uniform(2, 3, low=0, high=1)),
        Sample(m.uniform(4, low=0.05, high=0.95), m.uniform(4, low=0, high=1), m.positive(4), reduction="sum"),
    ],
    errors=lambda m: [
        *_pair_errors("binary_cross_entropy")(m),
        Bad(ValueError, r"binary_cross_entropy: weight of shape \(3, 2\)", m.uniform(2, low=0.1), m.uniform(2, low=0.1), m.positive(3, 2)),
    ],
)  # fmt: skip
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"  # noqa: A002
) -> Tensor:
    """-(t log p + (1 - t) log(1 - p)) for probabilities p = `input`. Logarithms are taken as at least -100."""
    _check_reduction("binary_cross_entropy", reduction)
    _check_same("binary_cross_entropy", input=input, target=target)
    loss = -(target * maximum(log(input), -100.0) + (1 - target) * maximum(log(1 - input), -100.0))
    return _reduce(_weigh("binary_cross_entropy", loss, weight), reduction)


def _logits_slope(g: Any, x: Any, target: Any, pos_weight: Any) -> Any:
    from .elementwise import sigmoid

    return g * ((1 - target) - (1 + (pos_weight - 1) * target) * sigmoid(-x))


def _softplus_of_minus(x: Any) -> Any:
    from .activations import softplus

    return softplus(-x)


@elementwise(
    namespace="internal",
    kind="real float",
    vjp=(
        _logits_slope,
        lambda g, x, pos_weight: g * ((pos_weight - 1) * _softplus_of_minus(x) - x),
        lambda g, x, target: g * target * _softplus_of_minus(x),
    ),
    reference=lambda x, target, pos_weight: (1 - target) * x + (1 + (pos_weight - 1) * target) * np.logaddexp(0, -x),
    samples=lambda m: [Sample(m.normal(7), m.uniform(7, low=0, high=1), 1.0), Sample(m.normal(2, 3) * 9, m.uniform(2, 3), m.positive(3))],
)
def logits_cross_entropy(x, target, pos_weight):  # type: ignore[no-untyped-def]
    """(1 - t) x + (1 + (w - 1) t) log(1 + exp(-x)), without overflow."""
    softplus = s.add(s.log1p(s.exp(s.neg(s.abs(x)))), s.maximum(s.neg(x), 0))
    share = s.add(s.mul(s.sub(pos_weight, 1), target), 1)
    return s.add(s.mul(s.sub(1, target), x), s.mul(share, softplus))


@composite(
    namespace="nn",
    reference=lambda input, target, weight=None, reduction="mean", pos_weight=None: _np_reduce(
        _np_weigh((1 - target) * input + (1 + ((1 if pos_weight is None else pos_weight) - 1) * target) * np.logaddexp(0, -input), weight), reduction
    ),
    samples=lambda m: [
        Sample(m.normal(2, 3), m.uniform(2, 3, low=0, high=1)),
        Sample(m.normal(4) * 30, m.uniform(4, low=0, high=1), m.positive(4), reduction="sum"),
        Sample(m.normal(2, 3), m.uniform(2, 3, low=0, high=1), pos_weight=m.positive(3), reduction="none"),
    ],
    errors=lambda m: [
        *_pair_errors("binary_cross_entropy_with_logits")(m),
        Bad(ValueError, "binary_cross_entropy_with_logits: pos_weight", m.normal(2), m.uniform(2), pos_weight=m.positive(3, 2)),
    ],
)  # fmt: skip
def binary_cross_entropy_with_logits(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """The binary cross entropy of sigmoid(input), computed from the logits; `pos_weight` scales the positive part."""
    op = "binary_cross_entropy_with_logits"
    _check_reduction(op, reduction)
    _check_same(op, input=input, target=target)
    loss = logits_cross_entropy(input, target, 1.0 if pos_weight is None else pos_weight)
    if pos_weight is not None and loss.ndim != input.ndim:
        raise ValueError(f"{op}: pos_weight of shape {format_shape(pos_weight.shape)} does not broadcast to {format_shape(input.shape)}.")
    return _reduce(_weigh(op, loss, weight), reduction)


def _reference_kl(input: Any, target: Any, reduction: str = "mean", log_target: bool = False) -> Any:  # noqa: A002
    if log_target:
        loss = np.exp(target) * (target - input)
    else:
        loss = np.where(target > 0, target * np.log(np.where(target > 0, target, 1)), 0) - target * input
    return loss.sum() / input.shape[0] if reduction == "batchmean" else _np_reduce(loss, reduction)


@composite(
    namespace="nn",
    reference=_reference_kl,
    samples=lambda m: [
        Sample(m.normal(2, 3), m.positive(2, 3)),
        Sample(m.normal(4, 2), m.normal(4, 2), reduction="batchmean", log_target=True),
        Sample(m.normal(3), np.array([0.0, 0.5, 0.5]), reduction="none"),
    ],
    errors=lambda m: [Bad(ValueError, "kl_div: input and target must have one shape", m.normal(2, 3), m.positive(3)),
                      Bad(ValueError, "kl_div: reduction must be one of mean, sum, none, batchmean", m.normal(2), m.positive(2), "x")],
    test={"differentiable_inputs": (0,)},  # t log t has no derivative at t = 0, where one sample is
)  # fmt: skip
def kl_div(input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:  # noqa: A002
    """t (log t - input): the divergence of the target from log-probabilities `input`.

    `reduction="batchmean"` divides the sum by the number of rows, which is the mathematical definition.
    """
    _check_reduction("kl_div", reduction, "batchmean")
    _check_same("kl_div", input=input, target=target)
    if log_target:
        loss = exp(target) * (target - input)
    else:
        positive = target > 0
        loss = where(positive, target * log(where(positive, target, 1.0)), 0.0) - target * input
    if reduction == "batchmean":
        return reduce_sum(loss, None, False) / (input.shape[0] if input.ndim else 1)
    return _reduce(loss, reduction)


@composite(
    namespace="nn",
    reference=lambda input, target, log_input=True, full=False, eps=1e-8, reduction="mean": _np_reduce(
        (np.exp(input) - target * input if log_input else input - target * np.log(input + eps))
        + (np.where(target > 1, target * np.log(np.maximum(target, 1)) - target + 0.5 * np.log(2 * np.pi * np.maximum(target, 1)), 0) if full else 0),
        reduction,
    ),
    samples=lambda m: [
        Sample(m.normal(2, 3), m.positive(2, 3)), Sample(m.positive(4), m.positive(4), False), Sample(m.normal(4), m.positive(4), full=True, reduction="sum"),
    ],
    errors=_pair_errors("poisson_nll_loss"),
)  # fmt: skip
def poisson_nll_loss(
    input: Tensor,  # noqa: A002
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """The negative log likelihood of counts under a Poisson distribution whose rate is exp(input), or `input`.

    `full` adds Stirling's approximation of log(target!).
    """
    _check_reduction("poisson_nll_loss", reduction)
    _check_same("poisson_nll_loss", input=input, target=target)
    loss = exp(input) - target * input if log_input else input - target * log(input + eps)
    if full:
        many = target > 1
        safe = where(many, target, 1.0)
        loss = loss + where(many, safe * log(safe) - safe + 0.5 * log(2 * math.pi * safe), 0.0)
    return _reduce(loss, reduction)


def _check_variance(op: str, x: Any, var: Any) -> Any:
    """A variance has the shape of the input, or that with a last axis of 1, or without the last axis."""
    if var.ndim == x.ndim and all(same_size(a, b) for a, b in zip(var.shape, x.shape, strict=True)):
        return var
    if var.ndim == x.ndim and var.shape[-1] == 1 and tuple(var.shape[:-1]) == tuple(x.shape[:-1]):
        return var
    if var.ndim == x.ndim - 1 and tuple(var.shape) == tuple(x.shape[:-1]):
        return expand_dims(var, -1)
    raise ValueError(
        f"{op}: var has shape {format_shape(var.shape)}; expected {format_shape(x.shape)}, or one variance per row."
    )


def _reference_gaussian(
    input: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"  # noqa: A002
) -> Any:
    var = np.maximum(var if var.ndim == input.ndim else var[..., None], eps)
    loss = 0.5 * (np.log(var) + (input - target) ** 2 / var) + (0.5 * np.log(2 * np.pi) if full else 0)
    return _np_reduce(loss, reduction)


@composite(
    namespace="nn",
    reference=_reference_gaussian,
    samples=lambda m: [
        Sample(m.normal(2, 3), m.normal(2, 3), m.positive(2, 3)),
        Sample(m.normal(2, 3), m.normal(2, 3), m.positive(2), full=True),
        Sample(m.normal(2, 3), m.normal(2, 3), m.positive(2, 1), reduction="none"),
    ],
    errors=lambda m: [
        Bad(ValueError, "gaussian_nll_loss: input and target must have one shape", m.normal(2, 3), m.normal(3), m.positive(3)),
        Bad(ValueError, r"gaussian_nll_loss: var has shape \(3,\)", m.normal(2, 3), m.normal(2, 3), m.positive(3)),
    ],
)
def gaussian_nll_loss(
    input: Tensor,  # noqa: A002
    target: Tensor,
    var: Tensor,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """The negative log likelihood of the target under normal distributions with mean `input` and variance `var`.

    Variances below `eps` count as `eps`, without a gradient; `full` adds the constant term.
    """
    _check_reduction("gaussian_nll_loss", reduction)
    _check_same("gaussian_nll_loss", input=input, target=target)
    var = maximum(_check_variance("gaussian_nll_loss", input, var), eps)
    loss = 0.5 * (log(var) + square(input - target) / var)
    return _reduce(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


# Margins ------------------------------------------------------------------------------------------------------------------------


def _signs(m: Any, *shape: int) -> np.ndarray:
    return np.where(m.bools(*shape), 1.0, -1.0)


@composite(
    namespace="nn",
    reference=lambda input1, input2, target, margin=0.0, reduction="mean": _np_reduce(np.maximum(-target * (input1 - input2) + margin, 0), reduction),
    samples=lambda m: [Sample(m.normal(5), m.normal(5), _signs(m, 5)), Sample(m.normal(2, 3), m.normal(2, 3), _signs(m, 2, 3), 0.5, "sum")],
    errors=lambda m: [Bad(ValueError, "margin_ranking_loss: input1 and target must have one shape", m.normal(2), m.normal(2), m.normal(2, 1))],
)  # fmt: skip
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """max(0, -t (x1 - x2) + margin): x1 should rank above x2 where the target t is 1, below where it is -1."""
    _check_reduction("margin_ranking_loss", reduction)
    _check_same("margin_ranking_loss", input1=input1, input2=input2, target=target)
    return _reduce(maximum(margin - target * (input1 - input2), 0.0), reduction)


@composite(
    namespace="nn",
    reference=lambda input, target, margin=1.0, reduction="mean": _np_reduce(np.where(target == 1, input, np.maximum(margin - input, 0)), reduction),
    samples=lambda m: [Sample(m.normal(5), _signs(m, 5)), Sample(m.normal(2, 3), _signs(m, 2, 3), 0.5, "none")],
    errors=_pair_errors("hinge_embedding_loss"),
    test={"differentiable_inputs": (0,)},  # the target is a sign
)  # fmt: skip
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean") -> Tensor:  # noqa: A002
    """`input` (a distance) where the target is 1, max(0, margin - input) where it is -1."""
    _check_reduction("hinge_embedding_loss", reduction)
    _check_same("hinge_embedding_loss", input=input, target=target)
    return _reduce(where(target == 1, input, maximum(margin - input, 0.0)), reduction)


@composite(
    namespace="nn",
    reference=lambda input, target, reduction="mean": _np_reduce(np.logaddexp(0, -target * input), reduction),
    samples=lambda m: [Sample(m.normal(5), _signs(m, 5)), Sample(m.normal(2, 3), _signs(m, 2, 3), "sum")],
    errors=_pair_errors("soft_margin_loss"),
)
def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:  # noqa: A002
    """log(1 + exp(-t · input)) for targets t of 1 and -1."""
    _check_reduction("soft_margin_loss", reduction)
    _check_same("soft_margin_loss", input=input, target=target)
    return _reduce(_softplus_of_minus(target * input), reduction)


def _reference_cosine_embedding(
    input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: str = "mean"
) -> Any:
    cos = (input1 * input2).sum(-1) / np.maximum(np.linalg.norm(input1, axis=-1) * np.linalg.norm(input2, axis=-1), 1e-12)
    return _np_reduce(np.where(target == 1, 1 - cos, np.maximum(cos - margin, 0)), reduction)


@composite(
    namespace="nn",
    reference=_reference_cosine_embedding,
    samples=lambda m: [
        Sample(m.normal(4, 3), m.normal(4, 3), _signs(m, 4)), Sample(m.normal(3), m.normal(3), np.array(1.0), 0.5), Sample(m.normal(4, 3), m.normal(4, 3), _signs(m, 4), 0.2, "none"),
    ],
    errors=lambda m: [
        Bad(ValueError, "cosine_embedding_loss: input1 and input2 must have one shape", m.normal(4, 3), m.normal(3), np.ones(4)),
        Bad(ValueError, r"cosine_embedding_loss: target has shape \(3,\); expected \(4,\)", m.normal(4, 3), m.normal(4, 3), np.ones(3)),
    ],
    test={"differentiable_inputs": (0, 1)},  # the target is a sign
)  # fmt: skip
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """1 - cos(x1, x2) where the target is 1, max(0, cos(x1, x2) - margin) where it is -1. Vectors are rows."""
    _check_reduction("cosine_embedding_loss", reduction)
    _check_same("cosine_embedding_loss", input1=input1, input2=input2)
    if input1.ndim not in (1, 2):
        raise ValueError(f"cosine_embedding_loss: expected vectors or rows of them. Got shape {format_shape(input1.shape)}.")
    expected = tuple(input1.shape[:-1])
    if target.ndim != len(expected) or any(not same_size(a, b) for a, b in zip(target.shape, expected, strict=True)):
        raise ValueError(f"cosine_embedding_loss: target has shape {format_shape(target.shape)}; expected {format_shape(expected)}.")
    cos = cosine_similarity(input1, input2, -1)
    return _reduce(where(target == 1, 1 - cos, maximum(cos - margin, 0.0)), reduction)


def _reference_triplet(
    anchor: Any, positive: Any, negative: Any, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, reduction: str = "mean"
) -> Any:  # fmt: skip
    near, far = np.linalg.norm(anchor - positive + eps, p, -1), np.linalg.norm(anchor - negative + eps, p, -1)
    if swap:
        far = np.minimum(far, np.linalg.norm(positive - negative + eps, p, -1))
    return _np_reduce(np.maximum(near - far + margin, 0), reduction)


@composite(
    namespace="nn",
    reference=_reference_triplet,
    samples=lambda m: [
        Sample(m.normal(4, 3), m.normal(4, 3), m.normal(4, 3)), Sample(m.normal(3), m.normal(3), m.normal(3), 2.0),
        Sample(m.normal(4, 3), m.normal(4, 3), m.normal(4, 3), 0.5, 1.0, swap=True, reduction="sum"),
    ],
    errors=lambda m: [Bad(ValueError, "triplet_margin_loss: anchor and negative must have one shape", m.normal(4, 3), m.normal(4, 3), m.normal(3))],
)  # fmt: skip
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin) with the p-norm distance along the last axis.

    With `swap` the negative's distance from the positive counts if it is the smaller one.
    """
    from .elementwise import minimum

    _check_reduction("triplet_margin_loss", reduction)
    _check_same("triplet_margin_loss", anchor=anchor, positive=positive, negative=negative)
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = minimum(far, pairwise_distance(positive, negative, p, eps))
    return _reduce(maximum(near - far + margin, 0.0), reduction)
