"""Losses as layers: the functions of `weft.nn.functional` with their settings kept. `reduction` is "mean", "sum" or
"none" everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...ops.core.spec import number
from ...ops.nn.loss_reduction import hinge
from ...tensor import Tensor, wrap
from .. import functional as F
from ..module import Layer
from .words import numpys_words


class _Loss(Layer):
    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        allowed = ("mean", "sum", "none", *self._more)
        if reduction not in allowed:
            raise ValueError(f"{type(self).__name__}: reduction must be one of {allowed}. Got {reduction!r}.")
        self.reduction = reduction

    _more: tuple[str, ...] = ()

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}" if self.reduction != "mean" else ""


class CrossEntropyLoss(_Loss):
    """The cross entropy between logits and classes.

    Args:
        weight: (C,), a weight per class.
        ignore_index: targets with this value do not count.
        label_smoothing: part of the probability that is spread over all classes.

    Shapes: input (N, C, …) of logits, target (N, …) of class numbers, or probabilities like `input`.

    >>> import weft as wf
    >>> from weft import nn
    >>> round(nn.CrossEntropyLoss()(wf.zeros(2, 4), wf.tensor([0, 3])).item(), 4)
    1.3863
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(input, target, self.weight, self.ignore_index, self.reduction, self.label_smoothing)


class NLLLoss(_Loss):
    """The negative log likelihood of classes given log probabilities (N, C, …)."""

    def __init__(self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(input, target, self.weight, self.ignore_index, self.reduction)


class CTCLoss(_Loss):
    """The loss of labels whose places in time are not known: connectionist temporal classification.

    Args:
        blank: the class that stands for "no label".
        zero_infinity: count sequences that cannot be produced (too short an input) as 0 instead of inf.

    Shapes: log_probs (T, N, C) from `log_softmax`, targets (N, S) or one vector, input_lengths (N,), target_lengths (N,).
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any) -> Tensor:
        inputs, lengths = (
            v if isinstance(v, Tensor) else wrap(np.asarray(v, np.int64)) for v in (input_lengths, target_lengths)
        )
        return F.ctc_loss(log_probs, targets, inputs, lengths, self.blank, self.reduction, self.zero_infinity)


class MSELoss(_Loss):
    """The squared difference."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, self.reduction)


class L1Loss(_Loss):
    """The absolute difference."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, self.reduction)


class SmoothL1Loss(_Loss):
    """Squared (over 2·beta) below `beta`, absolute above."""

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, self.reduction, self.beta)


class HuberLoss(_Loss):
    """Half the square below `delta`, linear above."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = number("HuberLoss", "delta", delta, above=0)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, self.reduction, self.delta)


class BCELoss(_Loss):
    """The binary cross entropy of probabilities."""

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, self.weight, self.reduction)


class BCEWithLogitsLoss(_Loss):
    """The binary cross entropy of logits, stable; `pos_weight` weighs the positive class."""

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean", pos_weight: Tensor | None = None) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(input, target, self.weight, self.reduction, self.pos_weight)


class KLDivLoss(_Loss):
    """The Kullback–Leibler divergence of `target` from log probabilities; `reduction="batchmean"` is the true mean."""

    _more = ("batchmean",)

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, self.reduction, self.log_target)


class PoissonNLLLoss(_Loss):
    """The negative log likelihood of counts under Poisson rates (their logarithms if `log_input`)."""

    def __init__(self, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(input, target, self.log_input, self.full, self.eps, self.reduction)


class GaussianNLLLoss(_Loss):
    """The negative log likelihood under normal distributions with mean `input` and variance `var`."""

    def __init__(self, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.full, self.eps = full, eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor) -> Tensor:
        return F.gaussian_nll_loss(input, target, var, self.full, self.eps, self.reduction)


class CosineEmbeddingLoss(_Loss):
    """1 - cos(x1, x2) where the target is 1, max(0, cos(x1, x2) - margin) where it is -1."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def forward(self, x1: Tensor, x2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(x1, x2, target, self.margin, self.reduction)


class MarginRankingLoss(_Loss):
    """max(0, margin - target · (x1 - x2)): the first should rank higher where the target is 1."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def forward(self, x1: Tensor, x2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(x1, x2, target, self.margin, self.reduction)


class HingeEmbeddingLoss(_Loss):
    """x where the target is 1, max(0, margin - x) where it is -1."""

    def __init__(self, margin: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, target, self.margin, self.reduction)


class SoftMarginLoss(_Loss):
    """log(1 + exp(-target · x)) for targets of ±1."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, self.reduction)


class TripletMarginLoss(_Loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin) with p-norm distances."""

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction)
        number("TripletMarginLoss", "margin", margin, above=0)
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(
            anchor, positive, negative, self.margin, self.p, self.eps, self.swap, self.reduction
        )


class TripletMarginWithDistanceLoss(_Loss):
    """`TripletMarginLoss` with any distance function."""

    def __init__(
        self,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        self.distance_function: Any = F.pairwise_distance if distance_function is None else distance_function
        self.margin, self.swap = number("TripletMarginWithDistanceLoss", "margin", margin, above=0), swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        near, far = self.distance_function(anchor, positive), self.distance_function(anchor, negative)
        if self.swap:
            far = far.minimum(self.distance_function(positive, negative))
        loss = hinge(near - far + self.margin)
        return loss if self.reduction == "none" else loss.sum() if self.reduction == "sum" else loss.mean()


@numpys_words
class CosineSimilarity(Layer):
    """cos of the angle between vectors along `axis`."""

    def __init__(self, axis: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.axis, self.eps = axis, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.axis, self.eps)


@numpys_words
class PairwiseDistance(Layer):
    """The p-norm of the difference of vectors along the last axis."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False) -> None:
        super().__init__()
        self.p, self.eps, self.keepdims = p, eps, keepdims

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.p, self.eps, self.keepdims)
