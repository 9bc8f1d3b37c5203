"""Regression, probability and margin losses, with PyTorch's names and semantics.

`reduction` is "mean" (default), "sum" or "none". Operands of different shapes are an error and not broadcast: a loss
that silently compares every prediction with every target is the hardest kind of bug to find.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import format_shape
from ...tensor import Tensor
from ..array.check_values import require
from ..array.creation import asarray
from ..array.elementwise import abs_, exp, log, maximum, sign, square, where
from ..array.reduction import reduce_sum
from ..array.shaping import expand_dims, stop_gradient
from ..core import scalar as s
from ..core.define import composite, elementwise
from ..core.samples import Bad, Sample
from ..core.scalar import Term
from ..core.spec import number, require_sizes, same_size
from .loss_reduction import check_reduction, check_same, hinge, np_reduced, reduced
from .softmax import cosine_similarity, pairwise_distance


def _pair_samples(m: Any) -> list[Sample]:
    return [
        Sample(m.normal(2, 3), m.normal(2, 3)),
        Sample(m.normal(4), m.normal(4), reduction="sum"),
        Sample(m.normal(2, 3), m.normal(2, 3), reduction="none"),
        Sample(m.normal(), m.normal()),
    ]


def _pair_errors(op: str) -> Any:
    return lambda m: [
        Bad(
            ValueError,
            rf"{op}: input and target must have one shape; a loss does not broadcast. Got \(4, 1\) and \(4,\)",
            m.normal(4, 1),
            m.normal(4),
        ),
        Bad(
            ValueError,
            f"{op}: reduction must be one of mean, sum, none. Got 'avg'",
            m.normal(4),
            m.normal(4),
            reduction="avg",
        ),
    ]


# Differences ----------------------------------------------------------------------------------------------------------


@composite(
    accumulate="float32",
    namespace="nn",
    reference=lambda input, target, reduction="mean": np_reduced(np.square(input - target), reduction),
    samples=_pair_samples,
    errors=_pair_errors("mse_loss"),
)
def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Squared error (input - target)², averaged by default.

    >>> F.mse_loss(wf.tensor([1.0, 2.0]), wf.tensor([1.0, 4.0])).item()
    2.0
    """
    check_reduction("mse_loss", reduction)
    check_same("mse_loss", input=input, target=target)
    return reduced(square(input - target), reduction)


@composite(
    accumulate="float32",
    namespace="nn",
    reference=lambda input, target, reduction="mean": np_reduced(np.abs(input - target), reduction),
    samples=_pair_samples,
    errors=_pair_errors("l1_loss"),
)
def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Absolute error |input - target|, averaged by default.

    >>> F.l1_loss(wf.tensor([1.0, 2.0]), wf.tensor([1.0, 4.0])).item()
    1.0
    """
    check_reduction("l1_loss", reduction)
    check_same("l1_loss", input=input, target=target)
    return reduced(abs_(input - target), reduction)


def _huber_slope(g: Any, difference: Any, delta: Any) -> Any:
    inside = abs_(difference) < delta
    return g * where(inside, difference, sign(difference) * delta)


@elementwise(
    namespace="internal",
    kind="real float",
    vjp=(
        _huber_slope,
        lambda g, difference, delta: where(abs_(difference) < delta, 0.0, g * (abs_(difference) - delta)),
    ),
    reference=lambda difference, delta: np.where(
        np.abs(difference) < delta, 0.5 * difference**2, delta * (np.abs(difference) - 0.5 * delta)
    ),
    samples=lambda m: [Sample(m.normal(7), 1.0), Sample(m.normal(2, 3), 0.25), Sample(m.normal(3), m.positive(3))],
)
def huber(difference: Term, delta: Term) -> Term:
    """d² / 2 where |d| is below delta, else delta (|d| - delta / 2)."""
    size = s.abs(difference)
    near = s.mul(s.mul(difference, difference), 0.5)
    return s.where(s.lt(size, delta), near, s.mul(delta, s.sub(size, s.mul(delta, 0.5))))


def _reference_huber(input: Any, target: Any, reduction: str = "mean", delta: float = 1.0) -> Any:
    d = np.abs(input - target)
    return np_reduced(np.where(d < delta, 0.5 * d * d, delta * (d - 0.5 * delta)), reduction)


@composite(
    accumulate="float32",
    namespace="nn",
    reference=_reference_huber,
    samples=lambda m: [*_pair_samples(m), Sample(m.normal(6), m.normal(6), delta=0.5)],
    errors=lambda m: [
        *_pair_errors("huber_loss")(m),
        Bad(ValueError, "huber_loss: delta must be greater than 0", m.normal(2), m.normal(2), delta=0),
    ],
)
def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """Huber loss: d² / 2 for differences d below `delta`, delta (|d| - delta / 2) above.

    >>> F.huber_loss(wf.zeros(2), wf.tensor([1.0, 3.0])).item()
    1.5
    """
    check_reduction("huber_loss", reduction)
    check_same("huber_loss", input=input, target=target)
    delta = number("huber_loss", "delta", delta, above=0)
    return reduced(huber(input - target, delta), reduction)


@composite(
    accumulate="float32",
    namespace="nn",
    reference=lambda input, target, reduction="mean", beta=1.0: np_reduced(
        np.where(
            np.abs(input - target) < beta,
            0.5 * (input - target) ** 2 / (beta or 1),
            np.abs(input - target) - 0.5 * beta,
        ),
        reduction,
    ),
    samples=lambda m: [
        *_pair_samples(m),
        Sample(m.normal(6), m.normal(6), beta=0.5),
        Sample(m.normal(6), m.normal(6), beta=0.0),
    ],
    errors=lambda m: [
        *_pair_errors("smooth_l1_loss")(m),
        Bad(ValueError, "smooth_l1_loss: beta", m.normal(2), m.normal(2), beta=-1.0),
    ],
)
def smooth_l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """Smooth L1: d² / (2 beta) for differences d below `beta`, |d| - beta / 2 above; beta = 0 gives `l1_loss`.

    >>> F.smooth_l1_loss(wf.zeros(2), wf.tensor([1.0, 3.0])).item()
    1.5
    """
    check_reduction("smooth_l1_loss", reduction)
    check_same("smooth_l1_loss", input=input, target=target)
    beta = number("smooth_l1_loss", "beta", beta, least=0)
    if beta == 0:
        return reduced(abs_(input - target), reduction)
    return reduced(huber(input - target, beta) * (1 / beta), reduction)


# Probabilities --------------------------------------------------------------------------------------------------------


def _weigh(op: str, loss: Tensor, weight: Tensor | None) -> Tensor:
    """A rescaling weight may broadcast to the loss, but must not enlarge it."""
    if weight is None:
        return loss
    weighted = loss * weight
    if len(weighted.shape) != len(loss.shape) or any(
        not same_size(a, b) for a, b in zip(weighted.shape, loss.shape, strict=True)
    ):
        raise ValueError(
            f"{op}: weight of shape {format_shape(weight.shape)} does not broadcast to the loss, which has shape "
            f"{format_shape(loss.shape)}."
        )
    return weighted


def _np_cross_entropy(input: Any, target: Any) -> Any:
    return -(target * np.maximum(np.log(input), -100) + (1 - target) * np.maximum(np.log(1 - input), -100))


@elementwise(
    autocast="float32",
    namespace="internal",
    kind="real float",
    vjp=(
        lambda g, input, target: g * (input - target) / maximum(input * (1 - input), 1e-12),
        lambda g, input: g * (maximum(log(1 - input), -100.0) - maximum(log(input), -100.0)),
    ),
    reference=_np_cross_entropy,
    samples=lambda m: [
        Sample(m.uniform(2, 3, low=0.05, high=0.95), m.uniform(2, 3, low=0, high=1)),
        Sample(m.uniform(4, low=0.05, high=0.95), m.uniform(low=0, high=1)),
    ],
)
def probability_cross_entropy(input: Term, target: Term) -> Term:
    """Binary cross entropy of a probability; logarithms are clamped to at least -100."""
    yes, no = s.maximum(s.log(input), -100), s.maximum(s.log(s.sub(1, input)), -100)
    return s.neg(s.add(s.mul(target, yes), s.mul(s.sub(1, target), no)))


def _np_weigh(loss: Any, weight: Any) -> Any:
    return loss if weight is None else loss * weight


@composite(
    accumulate="float32",
    namespace="nn",
    reference=lambda input, target, weight=None, reduction="mean": np_reduced(
        _np_weigh(_np_cross_entropy(input, target), weight), reduction
    ),
    samples=lambda m: [
        Sample(m.uniform(2, 3, low=0.05, high=0.95), m.uniform(2, 3, low=0, high=1)),
        Sample(m.uniform(4, low=0.05, high=0.95), m.uniform(4, low=0, high=1), m.positive(4), reduction="sum"),
    ],
    errors=lambda m: [
        *_pair_errors("binary_cross_entropy")(m),
        Bad(
            ValueError,
            r"binary_cross_entropy: weight of shape \(3, 2\)",
            m.uniform(2, low=0.1),
            m.uniform(2, low=0.1),
            m.positive(3, 2),
        ),
    ],
)
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Binary cross entropy of probabilities p = `input`: -(t log p + (1 - t) log(1 - p)).

    Args:
        input, target: probabilities and targets in [0, 1], of one shape.
        weight: rescales the loss of each element; broadcasts to `input`.
        reduction: "mean", "sum" or "none".

    Logarithms are clamped to at least -100, and p (1 - p) in the gradient (p - t) / (p (1 - p)) to at least 1e-12, so
    that both are finite for p = 0 and p = 1, as in PyTorch.

    >>> round(F.binary_cross_entropy(wf.tensor([0.5]), wf.tensor([1.0])).item(), 4)
    0.6931
    """
    check_reduction("binary_cross_entropy", reduction)
    check_same("binary_cross_entropy", input=input, target=target)
    input, target = _probabilities("input", input), _probabilities("target", target)
    return reduced(_weigh("binary_cross_entropy", probability_cross_entropy(input, target), weight), reduction)


def _probabilities(name: str, x: Tensor) -> Tensor:
    """`x`, checked to be between 0 and 1. NaN passes, and is seen in the result."""
    return require(
        x,
        lambda p: ~((p < 0) | (p > 1)),
        f"binary_cross_entropy: {name} must be between 0 and 1; for logits use `F.binary_cross_entropy_with_logits`.",
        lambda p: f"{np.nanmin(p)} to {np.nanmax(p)}",
    )


def _logits_slope(g: Any, x: Any, target: Any, pos_weight: Any) -> Any:
    from ..array.elementwise import sigmoid

    return g * ((1 - target) - (1 + (pos_weight - 1) * target) * sigmoid(-x))


def _softplus_of_minus(x: Any) -> Any:
    from .activations import softplus

    return softplus(-x)


@elementwise(
    autocast="float32",
    namespace="internal",
    kind="real float",
    vjp=(
        _logits_slope,
        lambda g, x, pos_weight: g * ((pos_weight - 1) * _softplus_of_minus(x) - x),
        lambda g, x, target: g * target * _softplus_of_minus(x),
    ),
    reference=lambda x, target, pos_weight: (1 - target) * x + (1 + (pos_weight - 1) * target) * np.logaddexp(0, -x),
    samples=lambda m: [
        Sample(m.normal(7), m.uniform(7, low=0, high=1), 1.0),
        Sample(m.normal(2, 3) * 9, m.uniform(2, 3), m.positive(3)),
    ],
)
def logits_cross_entropy(x: Term, target: Term, pos_weight: Term) -> Term:
    """(1 - t) x + (1 + (w - 1) t) log(1 + exp(-x)), without overflow."""
    softplus = s.add(s.log1p(s.exp(s.neg(s.abs(x)))), s.maximum(s.neg(x), 0))
    share = s.add(s.mul(s.sub(pos_weight, 1), target), 1)
    return s.add(s.mul(s.sub(1, target), x), s.mul(share, softplus))


@composite(
    accumulate="float32",
    namespace="nn",
    reference=lambda input, target, weight=None, reduction="mean", pos_weight=None: np_reduced(
        _np_weigh(
            (1 - target) * input
            + (1 + ((1 if pos_weight is None else pos_weight) - 1) * target) * np.logaddexp(0, -input),
            weight,
        ),
        reduction,
    ),
    samples=lambda m: [
        Sample(m.normal(2, 3), m.uniform(2, 3, low=0, high=1)),
        Sample(m.normal(4) * 30, m.uniform(4, low=0, high=1), m.positive(4), reduction="sum"),
        Sample(m.normal(2, 3), m.uniform(2, 3, low=0, high=1), pos_weight=m.positive(3), reduction="none"),
    ],
    errors=lambda m: [
        *_pair_errors("binary_cross_entropy_with_logits")(m),
        Bad(
            ValueError,
            "binary_cross_entropy_with_logits: pos_weight",
            m.normal(2),
            m.uniform(2),
            pos_weight=m.positive(3, 2),
        ),
    ],
)
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Binary cross entropy of sigmoid(input), computed stably from the logits.

    Args:
        input, target: logits and targets in [0, 1], of one shape.
        weight: rescales the loss of each element; broadcasts to `input`.
        reduction: "mean", "sum" or "none".
        pos_weight: weight of the positive class; broadcasts to `input`.

    >>> round(F.binary_cross_entropy_with_logits(wf.zeros(2), wf.tensor([0.0, 1.0])).item(), 4)
    0.6931
    """
    op = "binary_cross_entropy_with_logits"
    check_reduction(op, reduction)
    check_same(op, input=input, target=target)
    loss = logits_cross_entropy(input, target, 1.0 if pos_weight is None else pos_weight)
    if pos_weight is not None and loss.ndim != input.ndim:
        raise ValueError(
            f"{op}: pos_weight of shape {format_shape(pos_weight.shape)} does not broadcast to {format_shape(input.shape)}."
        )
    return reduced(_weigh(op, loss, weight), reduction)


def _reference_kl(input: Any, target: Any, reduction: str = "mean", log_target: bool = False) -> Any:
    if log_target:
        loss = np.exp(target) * (target - input)
    else:
        loss = np.where(target > 0, target * np.log(np.where(target > 0, target, 1)), 0) - target * input
    return loss.sum() / input.shape[0] if reduction == "batchmean" else np_reduced(loss, reduction)


@composite(
    accumulate="float32",
    namespace="nn",
    reference=_reference_kl,
    samples=lambda m: [
        Sample(m.normal(2, 3), m.positive(2, 3)),
        Sample(m.normal(4, 2), m.normal(4, 2), reduction="batchmean", log_target=True),
        Sample(m.normal(3), np.array([0.0, 0.5, 0.5]), reduction="none"),
    ],
    errors=lambda m: [
        Bad(ValueError, "kl_div: input and target must have one shape", m.normal(2, 3), m.positive(3)),
        Bad(ValueError, "kl_div: reduction must be one of mean, sum, none, batchmean", m.normal(2), m.positive(2), "x"),
    ],
    test={"differentiable_inputs": (0,)},  # t log t has no derivative at t = 0, where one sample is
)
def kl_div(input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """Kullback–Leibler divergence of the target t from log-probabilities `input`: t (log t - input).

    Args:
        input: log-probabilities.
        target: probabilities, or log-probabilities with `log_target`.
        reduction: "mean", "sum", "none" or "batchmean": the sum divided by the number of rows,
            the mathematical definition.

    >>> p = wf.tensor([[0.5, 0.5]])
    >>> F.kl_div(p.log(), p, reduction="batchmean").item()
    0.0
    """
    check_reduction("kl_div", reduction, "batchmean")
    check_same("kl_div", input=input, target=target)
    if log_target:
        loss = exp(target) * (target - input)
    else:
        positive = target > 0
        loss = where(positive, target * log(where(positive, target, 1.0)), 0.0) - target * input
    if reduction == "batchmean":
        require_sizes("kl_div", input)
        return reduce_sum(loss, None, False) / (input.shape[0] if input.ndim else 1)
    return reduced(loss, reduction)


@composite(
    accumulate="float32",
    namespace="nn",
    reference=lambda input, target, log_input=True, full=False, eps=1e-8, reduction="mean": np_reduced(
        (np.exp(input) - target * input if log_input else input - target * np.log(input + eps))
        + (
            np.where(
                target > 1,
                target * np.log(np.maximum(target, 1)) - target + 0.5 * np.log(2 * np.pi * np.maximum(target, 1)),
                0,
            )
            if full
            else 0
        ),
        reduction,
    ),
    samples=lambda m: [
        Sample(m.normal(2, 3), m.positive(2, 3)),
        Sample(m.positive(4), m.positive(4), False),
        Sample(m.normal(4), m.positive(4), full=True, reduction="sum"),
    ],
    errors=_pair_errors("poisson_nll_loss"),
)
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """Negative log likelihood of counts under a Poisson distribution whose rate is exp(input), or `input`.

    `full` adds Stirling's approximation of log(target!).
    """
    check_reduction("poisson_nll_loss", reduction)
    number("poisson_nll_loss", "eps", eps)
    check_same("poisson_nll_loss", input=input, target=target)
    loss = exp(input) - target * input if log_input else input - target * log(input + eps)
    if full:
        many = target > 1
        safe = where(many, target, 1.0)
        loss = loss + where(many, safe * log(safe) - safe + 0.5 * log(2 * math.pi * safe), 0.0)
    return reduced(loss, reduction)


def _check_gaussian(x: Any, target: Any, var: Any) -> Any:
    """The variance, ready to broadcast. Variance and target have the axes of the input, with its sizes or 1, as in PyTorch;
    the variance may lack the last axis."""
    if not _fits(target, x.shape):
        raise ValueError(
            f"gaussian_nll_loss: input and target must have one shape, or target sizes of 1. Got {format_shape(x.shape)} and "
            f"{format_shape(target.shape)}."
        )
    if isinstance(var, (int, float)) or _fits(var, x.shape):
        return var
    if _fits(var, x.shape[:-1]):
        return expand_dims(var, -1)
    raise ValueError(
        f"gaussian_nll_loss: var has shape {format_shape(var.shape)}; expected {format_shape(x.shape)} with sizes of 1 where "
        "it is shared, or one variance per row."
    )


def _fits(x: Any, shape: Any) -> bool:
    """Whether `x` has the axes of `shape`, each of the same size or of 1, as far as sizes are known."""
    return len(x.shape) == len(shape) and all(a == 1 or same_size(a, b) for a, b in zip(x.shape, shape, strict=True))


def _reference_gaussian(
    input: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Any:
    var = np.maximum(var if var.ndim == input.ndim else var[..., None], eps)
    loss = 0.5 * (np.log(var) + (input - target) ** 2 / var) + (0.5 * np.log(2 * np.pi) if full else 0)
    return np_reduced(loss, reduction)


@composite(
    accumulate="float32",
    namespace="nn",
    reference=_reference_gaussian,
    samples=lambda m: [
        Sample(m.normal(2, 3), m.normal(2, 3), m.positive(2, 3)),
        Sample(m.normal(2, 3), m.normal(2, 3), m.positive(2), full=True),
        Sample(m.normal(2, 3), m.normal(2, 3), m.positive(2, 1), reduction="none"),
        Sample(m.normal(2, 3), m.normal(2, 1), m.positive(1, 3)),
    ],
    errors=lambda m: [
        Bad(
            ValueError, "gaussian_nll_loss: var must not have negative", m.normal(2), m.normal(2), np.array([1.0, -1.0])
        ),
        Bad(
            ValueError,
            "gaussian_nll_loss: input and target must have one shape",
            m.normal(2, 3),
            m.normal(3),
            m.positive(3),
        ),
        Bad(ValueError, r"gaussian_nll_loss: var has shape \(3,\)", m.normal(2, 3), m.normal(2, 3), m.positive(3)),
    ],
)
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """Negative log likelihood of the target under normal distributions with mean `input` and variance `var`.

    Variances below `eps` are clamped to `eps` without cutting their gradient (as in PyTorch), so that they can grow
    again; `full` adds the constant term. `target` and `var` broadcast to `input`.
    """
    check_reduction("gaussian_nll_loss", reduction)
    number("gaussian_nll_loss", "eps", eps, above=0)
    var = _check_gaussian(input, target, var)
    if isinstance(var, (int, float)):
        number("gaussian_nll_loss", "var", var, least=0)
    else:
        var = require(
            var, lambda v: ~(v < 0), "gaussian_nll_loss: var must not have negative entries. Use `F.softplus(x)`."
        )
    var = asarray(var, dtype=input.dtype) if isinstance(var, (int, float)) else var
    var = var + stop_gradient(maximum(var, eps) - var)
    loss = 0.5 * (log(var) + square(input - target) / var)
    return reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


# Margins --------------------------------------------------------------------------------------------------------------


def _signs(m: Any, *shape: int) -> np.ndarray:
    return np.where(m.bools(*shape), 1.0, -1.0)


@composite(
    accumulate="float32",
    namespace="nn",
    reference=lambda input1, input2, target, margin=0.0, reduction="mean": np_reduced(
        np.maximum(-target * (input1 - input2) + margin, 0), reduction
    ),
    samples=lambda m: [
        Sample(m.normal(5), m.normal(5), _signs(m, 5)),
        Sample(m.normal(2, 3), m.normal(2, 3), _signs(m, 2, 3), 0.5, "sum"),
    ],
    errors=lambda m: [
        Bad(
            ValueError,
            "margin_ranking_loss: input1 and target must have one shape",
            m.normal(2),
            m.normal(2),
            m.normal(2, 1),
        )
    ],
)
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """max(0, -t (x1 - x2) + margin): x1 should rank above x2 where the target t is 1, below where it is -1."""
    check_reduction("margin_ranking_loss", reduction)
    check_same("margin_ranking_loss", input1=input1, input2=input2, target=target)
    return reduced(hinge(margin - target * (input1 - input2)), reduction)


@composite(
    accumulate="float32",
    namespace="nn",
    reference=lambda input, target, margin=1.0, reduction="mean": np_reduced(
        np.where(target == 1, input, np.maximum(margin - input, 0)), reduction
    ),
    samples=lambda m: [Sample(m.normal(5), _signs(m, 5)), Sample(m.normal(2, 3), _signs(m, 2, 3), 0.5, "none")],
    errors=_pair_errors("hinge_embedding_loss"),
    test={"differentiable_inputs": (0,)},  # the target is a sign
)
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean") -> Tensor:
    """`input` (a distance) where the target is 1, max(0, margin - input) where it is -1."""
    check_reduction("hinge_embedding_loss", reduction)
    check_same("hinge_embedding_loss", input=input, target=target)
    return reduced(where(target == 1, input, hinge(margin - input)), reduction)


@composite(
    accumulate="float32",
    namespace="nn",
    reference=lambda input, target, reduction="mean": np_reduced(np.logaddexp(0, -target * input), reduction),
    samples=lambda m: [Sample(m.normal(5), _signs(m, 5)), Sample(m.normal(2, 3), _signs(m, 2, 3), "sum")],
    errors=_pair_errors("soft_margin_loss"),
)
def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-t · input)) for targets t of 1 and -1."""
    check_reduction("soft_margin_loss", reduction)
    check_same("soft_margin_loss", input=input, target=target)
    return reduced(_softplus_of_minus(target * input), reduction)


def _reference_cosine_embedding(
    input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: str = "mean"
) -> Any:
    cos = (input1 * input2).sum(-1) / np.maximum(
        np.linalg.norm(input1, axis=-1) * np.linalg.norm(input2, axis=-1), 1e-12
    )
    return np_reduced(np.where(target == 1, 1 - cos, np.maximum(cos - margin, 0)), reduction)


@composite(
    accumulate="float32",
    namespace="nn",
    reference=_reference_cosine_embedding,
    samples=lambda m: [
        Sample(m.normal(4, 3), m.normal(4, 3), _signs(m, 4)),
        Sample(m.normal(3), m.normal(3), np.array(1.0), 0.5),
        Sample(m.normal(4, 3), m.normal(4, 3), _signs(m, 4), 0.2, "none"),
    ],
    errors=lambda m: [
        Bad(
            ValueError,
            "cosine_embedding_loss: input1 and input2 must have one shape",
            m.normal(4, 3),
            m.normal(3),
            np.ones(4),
        ),
        Bad(
            ValueError,
            r"cosine_embedding_loss: target has shape \(3,\); expected \(4,\)",
            m.normal(4, 3),
            m.normal(4, 3),
            np.ones(3),
        ),
    ],
    test={"differentiable_inputs": (0, 1)},  # the target is a sign
)
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """1 - cos(x1, x2) where the target is 1, max(0, cos(x1, x2) - margin) where it is -1. Vectors are rows.

    >>> F.cosine_embedding_loss(wf.tensor([[1.0, 0.0]]), wf.tensor([[0.0, 1.0]]), wf.tensor([1])).item()
    1.0
    """
    check_reduction("cosine_embedding_loss", reduction)
    check_same("cosine_embedding_loss", input1=input1, input2=input2)
    if input1.ndim not in (1, 2):
        raise ValueError(
            f"cosine_embedding_loss: expected vectors or rows of them. Got shape {format_shape(input1.shape)}."
        )
    expected = tuple(input1.shape[:-1])
    if target.ndim != len(expected) or any(not same_size(a, b) for a, b in zip(target.shape, expected, strict=True)):
        raise ValueError(
            f"cosine_embedding_loss: target has shape {format_shape(target.shape)}; expected {format_shape(expected)}."
        )
    cos = cosine_similarity(input1, input2, -1)
    return reduced(where(target == 1, 1 - cos, hinge(cos - margin)), reduction)


def _reference_triplet(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    near, far = np.linalg.norm(anchor - positive + eps, p, -1), np.linalg.norm(anchor - negative + eps, p, -1)
    if swap:
        far = np.minimum(far, np.linalg.norm(positive - negative + eps, p, -1))
    return np_reduced(np.maximum(near - far + margin, 0), reduction)


@composite(
    accumulate="float32",
    namespace="nn",
    reference=_reference_triplet,
    samples=lambda m: [
        Sample(m.normal(4, 3), m.normal(4, 3), m.normal(4, 3)),
        Sample(m.normal(3), m.normal(3), m.normal(3), 2.0),
        Sample(m.normal(4, 3), m.normal(4, 3), m.normal(4, 3), 0.5, 1.0, swap=True, reduction="sum"),
    ],
    errors=lambda m: [
        Bad(
            ValueError,
            "triplet_margin_loss: anchor and negative must have one shape",
            m.normal(4, 3),
            m.normal(4, 3),
            m.normal(3),
        )
    ],
)
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
    """Triplet loss: max(0, d(anchor, positive) - d(anchor, negative) + margin), p-norms along the last axis.

    With `swap` the negative distance is the smaller of d(anchor, negative) and d(positive, negative).

    >>> a = wf.zeros(1, 2)
    >>> F.triplet_margin_loss(a, a, wf.tensor([[3.0, 4.0]])).item()
    0.0
    """
    from ..array.elementwise import minimum

    check_reduction("triplet_margin_loss", reduction)
    number("triplet_margin_loss", "margin", margin, above=0)
    check_same("triplet_margin_loss", anchor=anchor, positive=positive, negative=negative)
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = minimum(far, pairwise_distance(positive, negative, p, eps))
    return reduced(hinge(near - far + margin), reduction)
