"""Classification losses: cross entropy and negative log likelihood.

Classes are axis 1 of the input (axis 0 of a vector). From logits and class indices the loss and its gradient are one op
each; they save the log-sum-exp of each row, and no other array of the input's size than the input.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...autograd import shards
from ...errors import format_shape
from ...tensor import Tensor, wrap
from ..array.creation import zeros_like, zeros_like_spec
from ..array.elementwise import astype, exp, where
from ..array.reduction import reduce_sum
from ..array.shaping import expand_dims
from ..core import small_arrays
from ..core.define import composite, primitive
from ..core.registry import joint
from ..core.samples import Bad, Sample
from ..core.second_order import composed
from ..core.slow_path import native_kernels
from ..core.spec import Spec, check_integer, normalize_axis, num_elements, number, same_size
from ..core.vmap_rules import folded_rows
from .formulas import wide
from .loss_reduction import all_below, check_reduction, check_same, np_reduced, real_floats, reduced
from .softmax import log_softmax


def _check_class_dtype(op: str, target: Any) -> None:
    if not dtypes.is_integral(target.dtype):
        raise TypeError(f"{op}: class labels must be integers. Got {target.dtype.name}; use `target.astype(wf.int64)`.")


def _check_classes(op: str, target: Any, classes: Any, ignore_index: int) -> None:
    """Class indices must be integers of 0 to classes - 1 (or `ignore_index`); values are checked where they are known."""
    _check_class_dtype(op, target)
    if type(target) is not np.ndarray or not isinstance(classes, int) or target.size == 0:
        return
    if not all_below(target, classes):
        wrong = ((target < 0) | (target >= classes)) & (target != ignore_index)
        if wrong.any():
            raise IndexError(
                f"{op}: target holds {target[wrong].flat[0]}; expected classes 0 to {classes - 1} or ignore_index {ignore_index}."
            )


def _check_target_shape(op: str, x: Any, target: Any) -> None:
    if x.shape is None or target.shape is None:
        return
    if len(x.shape) == 0:
        raise ValueError(f"{op}: input must have a class axis: shape (C,) or (N, C, ...). Got a 0-d tensor.")
    expected = (x.shape[0], *x.shape[2:]) if len(x.shape) > 1 else ()
    if len(target.shape) != len(expected) or any(
        not same_size(a, b) for a, b in zip(target.shape, expected, strict=True)
    ):
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
    from ..array.gathering import scatter_add

    counts = target != ignore_index
    axis = _class_axis(like_x)
    places = expand_dims(where(counts, target, 0), axis)
    return scatter_add(
        zeros_like_spec(Spec(like_x.shape, g.dtype, like_x.value)),
        places,
        expand_dims(where(counts, g, 0.0), axis),
        axis,
    )


def _np_pick(x: Any, target: Any, ignore_index: int) -> Any:
    axis = _class_axis(x)
    safe, counts = _safe(np.asarray(target), ignore_index)
    if x.ndim == 2:
        return np.where(counts, x[np.arange(len(x)), safe], 0)
    return np.where(counts, np.take_along_axis(x, np.expand_dims(safe, axis), axis).squeeze(axis), 0)


@primitive(
    accumulate="exact",
    namespace="internal",
    cost="gather",
    infer=_infer_pick,
    vjp=(_pick_rule, None),
    batch=folded_rows(lambda: pick_class, 0),
    reference=_np_pick,
    samples=lambda m: [
        Sample(m.normal(4, 3), np.array([0, 2, -100, 1]), -100),
        Sample(m.normal(2, 3, 2), np.array([[0, 1], [2, 2]]), -100),
        Sample(m.normal(3), np.array(1), -100),
    ],
    errors=lambda m: [
        Bad(IndexError, "nll_loss: target holds -1; expected classes 0 to 2", m.normal(2, 3), np.array([0, -1]), -100)
    ],
)
def pick_class(x: Tensor, target: Tensor, ignore_index: int) -> Any:
    """The element of every row of `x` (N, C, ...) at its class index, 0 where that is `ignore_index`."""
    return np.asarray(_np_pick(x, target, ignore_index)).astype(x.dtype, copy=False)


def _infer_cross_entropy(x: Any, target: Any, ignore_index: int, label_smoothing: float) -> tuple[Spec, Spec]:
    _check_target_shape("cross_entropy", x, target)
    _check_class_dtype("cross_entropy", target)
    return Spec(target.shape, x.dtype), Spec(target.shape, x.dtype)


def _cross_entropy_backward_ops(
    grad: Any, grad_lse: Any, x: Any, lse: Any, target: Any, ignore_index: int, label_smoothing: float
) -> Any:
    axis = _class_axis(x)
    from ..array.gathering import scatter_add

    counts = target != ignore_index
    live = expand_dims(where(counts, grad, 0.0), axis)
    total = live if grad_lse is None else live + expand_dims(grad_lse, axis)
    soft = exp(x - expand_dims(lse, axis)) * total
    if label_smoothing:
        soft = soft - live * (label_smoothing / x.shape[axis])
    return scatter_add(soft, expand_dims(where(counts, target, 0), axis), live * (label_smoothing - 1.0), axis)


@primitive(
    autocast="float32",
    namespace="internal",
    several_calls=True,
    checks_once=True,
    infer=lambda grad, grad_lse, x, lse, target, ignore_index, label_smoothing: Spec(x.shape, x.dtype),
    vjp=composed(_cross_entropy_backward_ops, "ignore_index", "label_smoothing"),
    cost=lambda grad, grad_lse, x, *_: 12 * (num_elements(x.shape) or 0),
    batch=folded_rows(lambda: cross_entropy_backward, 2),
    reference=lambda grad, grad_lse, x, lse, target, ignore_index, label_smoothing: _reference_cross_entropy_backward(
        grad, grad_lse, x, lse, target, ignore_index, label_smoothing
    ),
    samples=lambda m: [
        Sample(m.normal(3), None, m.normal(3, 4), m.positive(3), np.array([0, 3, -1]), -1, 0.0),
        Sample(
            m.normal(2, 2), m.normal(2, 2), m.normal(2, 3, 2), m.positive(2, 2), np.array([[0, 1], [2, 2]]), -100, 0.2
        ),
    ],
)
def cross_entropy_backward(
    grad: Tensor,
    grad_lse: Tensor | None,
    x: Tensor,
    lse: Tensor,
    target: Tensor,
    ignore_index: int,
    label_smoothing: float,
) -> Any:
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


def _np_top(x: Any, axis: int) -> Any:
    top = x.max(axis, keepdims=True)
    return np.where(np.isfinite(top), top, x.dtype.type(0))


def _np_lse(x: Any, axis: int) -> Any:
    top = _np_top(x, axis)
    return (np.log(np.exp(x - top).sum(axis, keepdims=True)) + top).squeeze(axis)


def _reference_cross_entropy_forward(x: Any, target: Any, ignore_index: int, label_smoothing: float) -> Any:
    axis = _class_axis(x)
    lse = _np_lse(x, axis)
    loss = lse - (1 - label_smoothing) * _np_pick(x, target, ignore_index)
    if label_smoothing:
        loss = loss - label_smoothing * x.mean(axis)
    return np.where(target == ignore_index, 0, loss), lse


@primitive(
    autocast="float32",
    namespace="internal",
    outputs=2,
    several_calls=True,
    checks_once=True,
    infer=_infer_cross_entropy,
    refuse=lambda x, target, ignore_index, label_smoothing: _check_classes(
        "cross_entropy", target, x.shape[_class_axis(x)], ignore_index
    ),
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
    errors=lambda m: [
        Bad(
            IndexError,
            "cross_entropy: target holds 3; expected classes 0 to 2",
            m.normal(2, 3),
            np.array([0, 3]),
            -100,
            0.0,
        )
    ],
)
def cross_entropy_forward(x: Tensor, target: Tensor, ignore_index: int, label_smoothing: float) -> Any:
    """(loss per row, log-sum-exp per row) of logits `x` (N, C, ...) and class indices; 0 where ignored."""
    axis = _class_axis(x)
    (xs,) = wide(x)  # type: ignore[arg-type]
    top = _np_top(xs, axis)
    below = xs - top  # softmax is shift invariant; subtracting the maximum preserves precision
    total = np.log(np.exp(below).sum(axis))
    loss = total - xs.dtype.type(1 - label_smoothing) * _np_pick(below, target, ignore_index)
    if label_smoothing:
        loss = loss - xs.dtype.type(label_smoothing) * below.mean(axis)
    loss = np.where(np.asarray(target) == ignore_index, xs.dtype.type(0), loss)
    lse = np.asarray(total + top.squeeze(axis))
    return np.asarray(loss).astype(x.dtype, copy=False), lse.astype(x.dtype, copy=False)


def _class_number(op: str, ignore_index: Any) -> int:
    return check_integer(op, ignore_index, "ignore_index")


def _wide_classes(target: Tensor) -> Tensor:
    """Class indices as int64, which can hold every `ignore_index`."""
    return astype(target, dtypes.int64) if dtypes.is_integral(target.dtype) else target


def _counted(target: Tensor, ignore_index: int, dtype: np.dtype) -> Tensor:
    counts: Any = target != ignore_index
    return reduce_sum(astype(counts, dtype), None, False)


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
    return loss.sum() / w.sum() if reduction == "mean" else np_reduced(loss, reduction)


_nll_samples = lambda m: [
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
        Bad(
            ValueError, f"{op}: weight must hold one number per class", m.normal(2, 3), np.array([0, 1]), m.positive(2)
        ),
        Bad(ValueError, f"{op}: reduction must be", m.normal(2, 3), np.array([0, 1]), reduction="max"),
        Bad(ValueError, f"{op}: input must have a class axis", m.normal(), np.array(1)),
    ]


@composite(
    accumulate="float32",
    namespace="nn",
    reference=_reference_nll,
    samples=_nll_samples,
    errors=lambda m: [
        *_nll_errors("nll_loss")(m),
        Bad(TypeError, "nll_loss: class labels must be integers", m.normal(2, 3), m.normal(2)),
    ],
)
def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """Negative log likelihood: -input at the target class.

    Args:
        input: log-probabilities (N, C, ...) or (C,).
        target: class indices (N, ...).
        weight: (C,), a weight per class; the mean is then a weighted one.
        ignore_index: targets with this value do not contribute.
        reduction: "mean", "sum" or "none".

    >>> log_probs = wf.tensor([[0.5, 0.5], [0.25, 0.75]]).log()
    >>> round(F.nll_loss(log_probs, wf.tensor([0, 1])).item(), 4)
    0.4904
    """
    check_reduction("nll_loss", reduction)
    ignore_index = _class_number("nll_loss", ignore_index)
    input, target = real_floats("nll_loss", input), _wide_classes(target)
    loss = -pick_class(input, target, ignore_index)
    return _weighted_nll("nll_loss", loss, input, target, weight, ignore_index, reduction)


def _weighted_nll(
    op: str, loss: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str
) -> Tensor:
    """Reduce losses per row, weighted by the weight of the row's class."""
    _class_weights(op, weight, x)
    if weight is None:
        if reduction == "mean":
            return shards.mean(reduce_sum(loss, None, False), _counted(target, ignore_index, loss.dtype))
        return reduced(loss, reduction)
    from ..array.gathering import take_axis

    counts = target != ignore_index
    weights = where(counts, take_axis(weight, where(counts, target, 0), 0), 0.0)
    loss = loss * weights
    if reduction == "mean":
        return shards.mean(reduce_sum(loss, None, False), reduce_sum(weights, None, False))
    return reduced(loss, reduction)


def _reference_cross_entropy(
    x: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    axis = _class_axis(x)
    classes = x.shape[axis]
    logp = x - np.expand_dims(_np_lse(x, axis), axis)
    shape = [1] * x.ndim
    shape[axis] = classes
    w = np.ones(shape) if weight is None else weight.reshape(shape)
    if target.dtype.kind == "f":
        goal = target * (1 - label_smoothing) + label_smoothing / classes
        loss = -(goal * logp * w).sum(axis)
        return loss.sum() / max(loss.size, 1) if reduction == "mean" else np_reduced(loss, reduction)
    counts = target != ignore_index
    hot = np.moveaxis(np.eye(classes)[np.where(counts, target, 0)], -1, axis)
    row = (hot * w).sum(axis) * counts
    loss = (
        -((1 - label_smoothing) * (hot * w * logp).sum(axis) + label_smoothing / classes * (w * logp).sum(axis))
        * counts
    )
    return loss.sum() / row.sum() if reduction == "mean" else np_reduced(loss, reduction)


@composite(
    accumulate="float32",
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
        Bad(
            ValueError,
            r"cross_entropy: input and target must have one shape.*\(2, 3\) and \(2, 1\)",
            m.normal(2, 3),
            m.positive(2, 1),
        ),
        Bad(
            ValueError,
            "cross_entropy: label_smoothing must be between 0 and 1",
            m.normal(2, 3),
            np.array([0, 1]),
            label_smoothing=1.5,
        ),
        Bad(ValueError, "cross_entropy: ignore_index", m.normal(2, 3), m.positive(2, 3), ignore_index=0),
    ],
)
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy of logits with a target.

    Args:
        input: logits (N, C, ...) or (C,).
        target: class indices, shape (N, ...), or probabilities of the shape of `input`.
        weight: one weight per class; with class indices the mean is a weighted one.
        ignore_index: a class index that does not contribute.
        label_smoothing: share of the target distributed evenly over all classes, 0 to 1.

    >>> round(F.cross_entropy(wf.zeros(2, 4), wf.tensor([0, 3])).item(), 4)
    1.3863
    """
    if reduction == "mean" and weight is None and label_smoothing == 0:
        loss = _mean_at_once(input, target, ignore_index)
        if loss is not None:
            return loss
    check_reduction("cross_entropy", reduction)
    ignore_index = _class_number("cross_entropy", ignore_index)
    label_smoothing = number("cross_entropy", "label_smoothing", label_smoothing)
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"cross_entropy: label_smoothing must be between 0 and 1. Got {label_smoothing}.")
    input = real_floats("cross_entropy", input)
    if dtypes.is_floating(target.dtype):
        axis = _class_axis(input)
        if input.shape is not None and target.shape == (*input.shape[:axis], *input.shape[axis + 1 :]):
            raise TypeError(
                f"cross_entropy: class labels must be integers. Got {target.dtype.name} {format_shape(target.shape)} for input "
                f"of shape {format_shape(input.shape)}; use `target.astype(wf.int64)`. Probabilities as target have the shape "
                "of the input."
            )
        if ignore_index >= 0:
            raise ValueError("cross_entropy: ignore_index is for class indices. Got probabilities as target.")
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    target = _wide_classes(target)
    if weight is None:
        loss, _ = cross_entropy_forward(input, target, ignore_index, label_smoothing)
        return _weighted_nll("cross_entropy", loss, input, target, None, ignore_index, reduction)
    _check_target_shape("cross_entropy", input, target)
    _check_classes("cross_entropy", target._data, input.shape[_class_axis(input)], ignore_index)
    logp = log_softmax(input, _class_axis(input))
    if not label_smoothing:
        return _weighted_nll(
            "cross_entropy", -pick_class(logp, target, ignore_index), input, target, weight, ignore_index, reduction
        )
    _class_weights("cross_entropy", weight, input)
    hard = _weighted_nll(
        "cross_entropy", -pick_class(logp, target, ignore_index), input, target, weight, ignore_index, "none"
    )
    axis = _class_axis(input)
    counts = target != ignore_index
    spread = where(counts, -reduce_sum(logp * _along_classes(weight, input), axis, False), 0.0)
    loss = hard * (1 - label_smoothing) + spread * (label_smoothing / input.shape[axis])
    if reduction != "mean":
        return reduced(loss, reduction)
    from ..array.gathering import take_axis

    weights = where(counts, take_axis(weight, where(counts, target, 0), 0), 0.0)
    return shards.mean(reduce_sum(loss, None, False), reduce_sum(weights, None, False))


def _mean_at_once(input: Any, target: Any, ignore_index: Any) -> Tensor | None:
    """Shortcut for small matrices outside the tape: mean cross entropy in one native call, else None."""
    found = small_arrays.arrays(input) if shards.current.shard is None else None
    if found is None or target.__class__ is not Tensor or target._data.__class__ is not np.ndarray:
        return None
    native = native_kernels()
    if native is False or ignore_index.__class__ is not int:
        return None
    loss = native.mean_cross_entropy(found[0], target._data, ignore_index)
    return None if loss is None else wrap(loss)


def _along_classes(weight: Tensor, x: Tensor) -> Tensor:
    from ..array.shaping import reshape

    return weight if x.ndim == 1 else reshape(weight, (1, -1, *(1,) * (x.ndim - 2)))


def _soft_cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: str, label_smoothing: float
) -> Tensor:
    check_same("cross_entropy", input=x, target=target)
    _class_weights("cross_entropy", weight, x)
    axis = normalize_axis("cross_entropy", _class_axis(x), x.ndim)
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / x.shape[axis]
    terms = target * log_softmax(x, axis)
    if weight is not None:
        terms = terms * _along_classes(weight, x)
    return reduced(-reduce_sum(terms, axis, False), reduction)
