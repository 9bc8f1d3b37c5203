"""Softmax, one-hot and Gumbel softmax; norms, distances and cosine similarity of vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ..array.elementwise import astype, exp, log, maximum
from ..array.reduction import reduce_sum
from ..core.define import composite, primitive
from ..core.registry import NOT_DIFFERENTIABLE
from ..core.samples import Bad, Sample
from ..core.spec import Spec, normalize_axis, num_elements, number, rank_of, require_sizes, same_size
from .formulas import length

if TYPE_CHECKING:
    from ...random import Generator

# Functions for users that are not ops; ops are public by their records.
__all__ = ["gumbel_softmax", "one_hot"]


def _infer(name: str) -> Any:
    def infer(x: Any, axis: Any) -> Spec:
        normalize_axis(name, axis, x.ndim)
        return Spec(x.shape, x.dtype)

    return infer


def _infer_backward(name: str) -> Any:
    def infer(grad: Any, result: Any, axis: Any) -> Spec:
        normalize_axis(name, axis, result.ndim)
        if (
            grad.shape is not None
            and result.shape is not None
            and any(not same_size(a, b) for a, b in zip(grad.shape, result.shape, strict=True))
        ):
            raise ValueError(
                f"{name}: grad and result differ in shape. Got {format_shape(grad.shape)} and {format_shape(result.shape)}."
            )
        return Spec(result.shape, result.dtype)

    return infer


def _batch(op: Any) -> Any:
    """The batch is axis 0, so the axis moves up by one."""

    def rule(axes: Any, tensors: Any, attrs: Any) -> Tensor:
        from ..array.shaping import broadcast_to, expand_dims

        size = next(t.shape[0] for t, a in zip(tensors, axes, strict=True) if a is not None)
        full = [
            t if a is not None else broadcast_to(expand_dims(t, 0), (size, *t.shape))
            for t, a in zip(tensors, axes, strict=True)
        ]
        return op()(*full, normalize_axis("softmax", attrs[0], full[0].ndim - 1) + 1)

    return rule


def _samples(m: Any) -> list[Sample]:
    return [
        Sample(m.normal(2, 3)),
        Sample(m.normal(2, 3, 4), 1),
        Sample(m.normal(5) * 100, axis=0),
        Sample(m.normal(0, 3)),
        Sample(m.normal(2, 0)),
        Sample(np.array([[-np.inf, 0.0, 1.0], [2.0, 1.0, -np.inf]])),
    ]


def _gradient_samples(m: Any) -> list[Sample]:
    return [
        Sample(m.normal(2, 3), m.uniform(2, 3, low=0.1), -1),
        Sample(m.normal(2, 3, 4), m.uniform(2, 3, 4, low=0.1), 1),
    ]


def _errors(name: str) -> Any:
    return lambda m: [
        Bad(IndexError, f"{name}: axis 2 is out of range", m.normal(2, 3), 2),
        Bad(IndexError, f"{name}: axis 1 is out of range", m.normal(), 1),
        Bad(TypeError, f"{name}: axis must be an integer", m.normal(2), "a"),
        Bad(TypeError, f"{name}: expected a real tensor", np.ones(2, np.complex64)),
    ]


def _cost(x: Any, *_: Any) -> int:
    return 15 * (num_elements(x.shape) or 0)


# Softmax --------------------------------------------------------------------------------------------------------------


def _shifted(x: np.ndarray, axis: int) -> np.ndarray:
    """`x` minus its largest element along `axis`, so that exp does not overflow; rows of -inf stay -inf."""
    if x.shape[axis] == 0:
        return x
    top = x.max(axis, keepdims=True)
    return x - np.where(np.isfinite(top), top, np.zeros((), x.dtype))


@primitive(
    autocast="float32",
    namespace="internal",
    several_calls=True,
    checks_once=True,
    infer=_infer_backward("softmax_backward"),
    promote="real float",
    vjp=(
        lambda h, result, axis: softmax_backward(h, result, axis),
        lambda h, grad, result, axis: (
            h * (grad - reduce_sum(grad * result, axis, True)) - grad * reduce_sum(h * result, axis, True)
        ),
    ),
    batch=_batch(lambda: softmax_backward),
    cost=_cost,
    reference=lambda grad, result, axis: result * (grad - (grad * result).sum(axis, keepdims=True)),
    samples=_gradient_samples,
)
def softmax_backward(grad: Tensor, result: Tensor, axis: int) -> Any:
    """The gradient of `softmax` from its result y: y · (g - Σ g y)."""
    g, y = np.asarray(grad), np.asarray(result)
    out = g * y
    out -= y * out.sum(axis, keepdims=True)
    return out.astype(result.dtype, copy=False)


@primitive(
    autocast="float32",
    along=True,
    namespace="nn",
    several_calls=True,
    checks_once=True,
    infer=_infer("softmax"),
    promote="real float",
    vjp=lambda g, out, axis: softmax_backward(g, out, axis),
    batch=_batch(lambda: softmax),
    cost=_cost,
    reference=lambda x, axis=-1: (
        np.exp(x) / np.exp(x).sum(axis, keepdims=True)
        if np.max(x, initial=0) < 50
        else np.exp(x - x.max(axis, keepdims=True)) / np.exp(x - x.max(axis, keepdims=True)).sum(axis, keepdims=True)
    ),
    samples=_samples,
    errors=_errors("softmax"),
)
def softmax(x: Tensor, axis: int = -1) -> Any:
    """Softmax along `axis`: exp(x) / Σ exp(x), positive and summing to one.

    >>> F.softmax(wf.zeros(4)).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    out = _shifted(x, axis)  # type: ignore[arg-type]
    out = np.exp(out, out=out if out is not x else None)
    out /= out.sum(axis, keepdims=True)
    return out.astype(x.dtype, copy=False)


@primitive(
    autocast="float32",
    namespace="internal",
    several_calls=True,
    checks_once=True,
    infer=_infer_backward("log_softmax_backward"),
    promote="real float",
    vjp=(
        lambda h, result, axis: h - reduce_sum(h * exp(result), axis, True),
        lambda h, grad, result, axis: -h * exp(result) * reduce_sum(grad, axis, True),
    ),
    batch=_batch(lambda: log_softmax_backward),
    cost=_cost,
    reference=lambda grad, result, axis: grad - np.exp(result) * grad.sum(axis, keepdims=True),
    samples=_gradient_samples,
)
def log_softmax_backward(grad: Tensor, result: Tensor, axis: int) -> Any:
    """The gradient of `log_softmax` from its result y: g - exp(y) · Σ g."""
    g, out = np.asarray(grad), np.exp(result)
    out *= g.sum(axis, keepdims=True)
    return np.subtract(g, out, out=out).astype(result.dtype, copy=False)


@primitive(
    autocast="float32",
    along=True,
    namespace="nn",
    several_calls=True,
    checks_once=True,
    infer=_infer("log_softmax"),
    promote="real float",
    vjp=lambda g, out, axis: log_softmax_backward(g, out, axis),
    batch=_batch(lambda: log_softmax),
    cost=_cost,
    reference=lambda x, axis=-1: (
        x
        - (lambda t: t + np.log(np.exp(x - t).sum(axis, keepdims=True)))(
            x.max(axis, keepdims=True) if x.shape[axis] else 0.0
        )
    ),
    samples=lambda m: _samples(m)[:-1],  # -inf minus -inf has no derivative
    errors=_errors("log_softmax"),
)
def log_softmax(x: Tensor, axis: int = -1) -> Any:
    """log(softmax(x)) along `axis`, numerically stable.

    >>> F.log_softmax(wf.zeros(2)).exp().tolist()
    [0.5, 0.5]
    """
    out = _shifted(x, axis)  # type: ignore[arg-type]
    out = out - np.log(np.exp(out).sum(axis, keepdims=True))
    return out.astype(x.dtype, copy=False)


@composite(
    accumulate="float32",
    namespace="nn",
    reference=lambda x, axis=-1: np.exp(-x) / np.exp(-x).sum(axis, keepdims=True),
    samples=lambda m: [Sample(m.normal(2, 3)), Sample(m.normal(2, 3), 0)],
)
def softmin(x: Tensor, axis: int = -1) -> Tensor:
    """`softmax(-x)` along `axis`."""
    return softmax(-x, axis)


# Categories -----------------------------------------------------------------------------------------------------------


def _infer_one_hot(x: Any, num_classes: int) -> Spec:
    from ..array.gathering import check_indices

    if not dtypes.is_integral(x.dtype):
        raise TypeError(f"one_hot: expected integers. Got {x.dtype.name}.")
    if num_classes < 1:
        raise ValueError(f"one_hot: num_classes must be at least 1. Got {num_classes}.")
    if type(x) is np.ndarray and x.size and int(x.min()) < 0:
        raise IndexError(f"one_hot: x holds {int(x.min())}; expected 0 to {num_classes - 1}.")
    check_indices("one_hot", x, num_classes, "x")
    return Spec(None if x.shape is None else (*x.shape, num_classes), dtypes.int64)


@primitive(
    accumulate="exact",
    name="one_hot_encode",
    namespace="internal",
    cost="put",
    infer=_infer_one_hot,
    vjp=NOT_DIFFERENTIABLE,
    batch=lambda axes, tensors, attrs: one_hot_encode(tensors[0], attrs[0]),
    reference=lambda x, num_classes: np.eye(num_classes, dtype=np.int64)[x],
    samples=lambda m: [Sample(m.ints(2, 3, low=0, high=4), 4), Sample(np.array(1), 3), Sample(m.ints(0, low=0), 2)],
    errors=lambda m: [
        Bad(IndexError, "one_hot: x holds 4", np.array([0, 4]), 4),
        Bad(IndexError, "one_hot: x holds -1", np.array([0, -1]), 4),
        Bad(TypeError, "one_hot: expected integers", m.normal(2), 4),
    ],
)
def one_hot_encode(x: Tensor, num_classes: int) -> Any:
    """1 at the class index, 0 elsewhere, along a new last axis: the primitive behind `one_hot`."""
    out = np.zeros((*x.shape, num_classes), np.int64)
    np.put_along_axis(out, np.asarray(x, np.int64)[..., None], 1, -1)
    return out


def one_hot(x: Tensor, num_classes: int = -1) -> Tensor:
    """Encode class indices as int64 vectors with a single 1 along a new last axis.

    Args:
        x: class indices, any shape.
        num_classes: size of the new axis; by default one more than the largest index.

    >>> F.one_hot(wf.tensor([0, 2]), 3).tolist()
    [[1, 0, 0], [0, 0, 1]]
    """
    if num_classes == -1:
        array = x._array("one_hot without num_classes")
        num_classes = int(array.max()) + 1 if array.size else 1
    return one_hot_encode(x, num_classes)


def gumbel_softmax(
    logits: Tensor, tau: float = 1.0, hard: bool = False, axis: int = -1, *, generator: Generator | None = None
) -> Tensor:
    """Differentiable sample of a category: softmax((logits + Gumbel noise) / tau).

    Args:
        logits: unnormalised log-probabilities along `axis`.
        tau: temperature.
        hard: return a one-hot sample, with the gradient of the soft one (straight-through).
        axis: the axis of the categories.

    >>> F.gumbel_softmax(wf.zeros(2, 3), hard=True).sum(axis=-1).tolist()
    [1.0, 1.0]
    """
    from ...random import rand_like
    from ..array.reduction import max_
    from ..array.shaping import stop_gradient

    if tau <= 0:
        raise ValueError(f"gumbel_softmax: tau must be positive. Got {tau}.")
    tiny = float(dtypes.finfo(logits.dtype).tiny)
    noise = -log(-log(maximum(rand_like(logits, generator=generator), tiny)))
    soft = softmax((logits + noise) / tau, axis)
    if not hard:
        return soft
    top = astype(soft == max_(soft, axis=axis, keepdims=True), soft.dtype)
    return stop_gradient(top - soft) + soft


# Lengths and angles ---------------------------------------------------------------------------------------------------


@composite(
    accumulate="float32",
    namespace="nn",
    reference=lambda x, p=2.0, axis=1, eps=1e-12: x / np.maximum(np.linalg.norm(x, p, axis, keepdims=True), eps),
    samples=lambda m: [Sample(m.normal(2, 3)), Sample(m.normal(2, 3), 1.0, 0), Sample(m.normal(4, 3), 3.0, axis=-1)],
    errors=lambda m: [Bad(IndexError, "axis 1 is out of range", m.normal(3))],
)
def normalize(x: Tensor, p: float = 2.0, axis: int = 1, eps: float = 1e-12) -> Tensor:
    """`x` divided by its p-norm along `axis`; norms below `eps` count as `eps`.

    >>> F.normalize(wf.tensor([[0.0, 4.0]])).tolist()
    [[0.0, 1.0]]
    """
    number("normalize", "eps", eps, least=0)
    return x / maximum(length(x, p, normalize_axis("normalize", axis, rank_of(x)), True), eps)


def _reference_cosine(x1: Any, x2: Any, axis: int = 1, eps: float = 1e-8) -> Any:
    x1, x2 = np.broadcast_arrays(x1, x2)
    n1, n2 = np.linalg.norm(x1, axis=axis), np.linalg.norm(x2, axis=axis)
    return (x1 * x2).sum(axis) / (np.maximum(n1, eps) * np.maximum(n2, eps))


@composite(
    accumulate="float32",
    namespace="nn",
    reference=_reference_cosine,
    samples=lambda m: [
        Sample(m.normal(2, 3), m.normal(2, 3)),
        Sample(m.normal(4), m.normal(4), 0),
        Sample(m.normal(2, 3, 2), m.normal(2, 3, 2), axis=-1),
        Sample(m.normal(4, 1), m.normal(4, 3)),
        Sample(m.normal(2, 3, 2), m.normal(2), axis=1),
    ],
    errors=lambda m: [
        Bad(
            TypeError,
            "cosine_similarity: expected real tensors. Got x2 of complex128",
            m.normal(2, 3),
            m.normal(2, 3) + 1j,
        )
    ],
)
def cosine_similarity(x1: Tensor, x2: Tensor, axis: int = 1, eps: float = 1e-8) -> Tensor:
    """Cosine similarity along `axis`: x1 · x2 / (|x1| |x2|); norms below `eps` count as `eps`.

    >>> F.cosine_similarity(wf.tensor([[1.0, 0.0]]), wf.tensor([[0.0, 2.0]])).tolist()
    [0.0]
    """
    from ..array.shaping import broadcast_to, reshape
    from ..core.spec import broadcast_shapes

    number("cosine_similarity", "eps", eps, least=0)
    for name, x in (("x1", x1), ("x2", x2)):
        if dtypes.is_complex(x.dtype):
            raise TypeError(f"cosine_similarity: expected real tensors. Got {name} of {x.dtype.name}.")
    require_sizes("cosine_similarity", x1, x2)  # whether a vector is broadcast along the axis
    shape = broadcast_shapes("cosine_similarity", x1.shape, x2.shape, names=("x1", "x2"))
    if shape == ():  # scalars are vectors of one element
        x1, x2, shape = reshape(x1, (1,)), reshape(x2, (1,)), (1,)
    axis = normalize_axis("cosine_similarity", axis, len(shape)) - len(shape)
    # a vector broadcast along the axis has the norm of its broadcast form
    x1, x2 = (
        x if x.ndim >= -axis and same_size(x.shape[axis], shape[axis]) else broadcast_to(x, shape) for x in (x1, x2)
    )
    lengths = maximum(length(x1, 2, axis), eps) * maximum(length(x2, 2, axis), eps)
    return reduce_sum(x1 * x2, axis, False) / lengths


@composite(
    accumulate="float32",
    namespace="nn",
    reference=lambda x1, x2, p=2.0, eps=1e-6, keepdims=False: np.linalg.norm(x1 - x2 + eps, p, -1, keepdims=keepdims),
    samples=lambda m: [Sample(m.normal(2, 3), m.normal(2, 3)), Sample(m.normal(4), m.normal(4), 1.0, keepdims=True)],
)
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last axis.

    >>> round(F.pairwise_distance(wf.zeros(1, 2), wf.tensor([[3.0, 4.0]])).item(), 3)
    5.0
    """
    return length(x1 - x2 + eps, p, -1, keepdims)
