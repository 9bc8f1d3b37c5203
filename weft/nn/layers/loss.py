"""Losses as layers; `reduction` is "mean", "sum" or "none" everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...ops.core.spec import number
from ...ops.nn.loss_reduction import hinge
from ...tensor import Tensor, wrap
from .. import functional as F
from ..module import Layer
from .words import explain_torch_names


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
    """Cross entropy between logits and target classes.

    Args:
        weight: (C,), a weight per class.
        ignore_index: targets with this value do not contribute.
        label_smoothing: share of the target distributed evenly over all classes.

    Shapes: input (N, C, …) of logits, target (N, …) of class indices, or probabilities like `input`.

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
    """Negative log likelihood of target classes given log-probabilities.

    Args:
        weight: (C,), a weight per class.
        ignore_index: targets with this value do not contribute.
        reduction: "mean", "sum" or "none".

    Shapes: input (N, C, …) of log-probabilities, target (N, …) of class indices.

    >>> log_probs = wf.tensor([[0.5, 0.5], [0.25, 0.75]]).log()
    >>> round(nn.NLLLoss()(log_probs, wf.tensor([0, 1])).item(), 4)
    0.4904
    """

    def __init__(self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(input, target, self.weight, self.ignore_index, self.reduction)


class CTCLoss(_Loss):
    """Connectionist temporal classification loss for label sequences without alignment.

    Args:
        blank: index of the blank class.
        reduction: "mean" (each loss divided by its target length), "sum" or "none".
        zero_infinity: count infinite losses (input too short for its target) as 0.

    Shapes: log_probs (T, N, C) from `log_softmax`, targets (N, S) or concatenated (ΣS,), input_lengths (N,),
    target_lengths (N,).

    >>> log_probs = wf.zeros(2, 1, 3).log_softmax(-1)
    >>> round(nn.CTCLoss()(log_probs, wf.tensor([[1]]), [2], [1]).item(), 4)
    1.0986
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
    """Mean squared error: (input - target)².

    >>> nn.MSELoss()(wf.tensor([1.0, 2.0]), wf.tensor([1.0, 4.0])).item()
    2.0
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, self.reduction)


class L1Loss(_Loss):
    """Mean absolute error: |input - target|.

    >>> nn.L1Loss()(wf.tensor([1.0, 2.0]), wf.tensor([1.0, 4.0])).item()
    1.0
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, self.reduction)


class SmoothL1Loss(_Loss):
    """L1 loss that is quadratic for differences below `beta`: d² / (2 · beta), else |d| - beta / 2.

    Args:
        reduction: "mean", "sum" or "none".
        beta: where the loss changes from quadratic to linear.

    >>> nn.SmoothL1Loss()(wf.tensor([0.0, 0.0]), wf.tensor([1.0, 3.0])).item()
    1.5
    """

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, self.reduction, self.beta)


class HuberLoss(_Loss):
    """Huber loss: d² / 2 for differences below `delta`, else delta · (|d| - delta / 2).

    Args:
        reduction: "mean", "sum" or "none".
        delta: where the loss changes from quadratic to linear.

    >>> nn.HuberLoss(delta=1.0)(wf.tensor([0.0, 0.0]), wf.tensor([1.0, 3.0])).item()
    1.5
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = number("HuberLoss", "delta", delta, above=0)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, self.reduction, self.delta)


class BCELoss(_Loss):
    """Binary cross entropy of probabilities.

    Args:
        weight: rescales the loss of each element; broadcasts to the input.
        reduction: "mean", "sum" or "none".

    Shapes: input (…) of probabilities, target of the same shape with values in [0, 1].

    >>> round(nn.BCELoss()(wf.tensor([0.5, 0.5]), wf.tensor([0.0, 1.0])).item(), 4)
    0.6931
    """

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, self.weight, self.reduction)


class BCEWithLogitsLoss(_Loss):
    """Binary cross entropy of logits, numerically stable.

    Args:
        weight: rescales the loss of each element; broadcasts to the input.
        reduction: "mean", "sum" or "none".
        pos_weight: weight of the positive class; broadcasts to the input.

    >>> round(nn.BCEWithLogitsLoss()(wf.zeros(2), wf.tensor([0.0, 1.0])).item(), 4)
    0.6931
    """

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean", pos_weight: Tensor | None = None) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(input, target, self.weight, self.reduction, self.pos_weight)


class KLDivLoss(_Loss):
    """Kullback–Leibler divergence of `target` from log-probabilities `input`.

    Args:
        reduction: "mean", "sum", "none" or "batchmean": the sum divided by the batch size,
            the mathematical definition.
        log_target: whether `target` holds log-probabilities too.

    >>> p = wf.tensor([[0.5, 0.5]])
    >>> nn.KLDivLoss(reduction="batchmean")(p.log(), p).item()
    0.0
    """

    _more = ("batchmean",)

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, self.reduction, self.log_target)


class PoissonNLLLoss(_Loss):
    """Negative log likelihood of counts under Poisson rates (log rates if `log_input`)."""

    def __init__(self, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(input, target, self.log_input, self.full, self.eps, self.reduction)


class GaussianNLLLoss(_Loss):
    """Negative log likelihood of `target` under normal distributions with mean `input` and variance `var`."""

    def __init__(self, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.full, self.eps = full, eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor) -> Tensor:
        return F.gaussian_nll_loss(input, target, var, self.full, self.eps, self.reduction)


class CosineEmbeddingLoss(_Loss):
    """1 - cos(x1, x2) where the target is 1, max(0, cos(x1, x2) - margin) where it is -1.

    >>> x = wf.tensor([[1.0, 0.0]])
    >>> nn.CosineEmbeddingLoss()(x, wf.tensor([[0.0, 1.0]]), wf.tensor([1])).item()
    1.0
    """

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
    """Triplet loss: max(0, d(anchor, positive) - d(anchor, negative) + margin) with p-norm distances.

    Args:
        margin: required gap between the two distances.
        p: norm of the distance.
        eps: added to the difference for stability.
        swap: use d(positive, negative) where it is the smaller negative distance.
        reduction: "mean", "sum" or "none".

    >>> a = wf.zeros(1, 2)
    >>> nn.TripletMarginLoss()(a, a, wf.tensor([[3.0, 4.0]])).item()
    0.0
    """

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


@explain_torch_names
class CosineSimilarity(Layer):
    """Cosine of the angle between vectors along `axis`.

    >>> nn.CosineSimilarity()(wf.tensor([[1.0, 0.0]]), wf.tensor([[2.0, 0.0]])).tolist()
    [1.0]
    """

    def __init__(self, axis: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.axis, self.eps = axis, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.axis, self.eps)


@explain_torch_names
class PairwiseDistance(Layer):
    """p-norm of the difference of vectors along the last axis."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False) -> None:
        super().__init__()
        self.p, self.eps, self.keepdims = p, eps, keepdims

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.p, self.eps, self.keepdims)
