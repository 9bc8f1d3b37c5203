"""Connectionist temporal classification (Graves et al. 2006): the likelihood of label sequences without alignment.

Labels are interleaved with blanks, b l₁ b l₂ b …, and a path traverses these states: it stays, advances, or skips a
blank between two different labels. α sums the paths from the start, β the paths to the end; their normalised product is the
posterior of each state at each time, which gives the gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ..array.elementwise import astype, maximum, where
from ..array.shaping import broadcast_to, expand_dims, moveaxis, reshape, squeeze
from ..core.define import composite, primitive
from ..core.registry import joint
from ..core.samples import Bad, Sample
from ..core.spec import Spec, is_known
from .loss_reduction import check_reduction, real_floats, reduced


def _check(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int) -> None:
    for name, value in (("targets", targets), ("input_lengths", input_lengths), ("target_lengths", target_lengths)):
        if not dtypes.is_integral(value.dtype):
            raise TypeError(f"ctc_loss: {name} must be integers. Got {value.dtype.name}.")
    if not is_known(log_probs.shape):
        return
    steps, n, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise ValueError(f"ctc_loss: blank must be a class, 0 to {classes - 1}. Got {blank}.")
    for name, value in (("input_lengths", input_lengths), ("target_lengths", target_lengths)):
        if is_known(value.shape) and tuple(value.shape) != (n,):
            raise ValueError(
                f"ctc_loss: {name} must have one entry per sequence, ({n},). Got {format_shape(value.shape)}."
            )
    if is_known(targets.shape) and len(targets.shape) == 2 and targets.shape[0] != n or len(targets.shape) > 2:
        raise ValueError(
            f"ctc_loss: targets must be ({n}, S), or all in one vector. Got {format_shape(targets.shape)}."
        )


def _check_values(targets: np.ndarray, inputs: np.ndarray, lengths: np.ndarray, shape: tuple[int, ...]) -> None:
    steps, _, classes = shape
    if inputs.size and (inputs.min() < 0 or inputs.max() > steps):
        raise ValueError(
            f"ctc_loss: input_lengths must be 0 to {steps}, the number of time steps. Got {inputs.tolist()}."
        )
    longest = targets.shape[1] if targets.ndim == 2 else None
    if lengths.size and (lengths.min() < 0 or longest is not None and lengths.max() > longest):
        raise ValueError(f"ctc_loss: target_lengths must be 0 to {longest}. Got {lengths.tolist()}.")
    if targets.ndim == 1 and int(lengths.sum()) != len(targets):
        raise ValueError(
            f"ctc_loss: target_lengths must add up to the {len(targets)} targets. Got {int(lengths.sum())}."
        )
    if targets.size and (targets.min() < 0 or targets.max() >= classes):
        raise IndexError(
            f"ctc_loss: targets must be classes 0 to {classes - 1}. Got {targets.min()} to {targets.max()}."
        )


def _infer(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int) -> tuple[Spec, ...]:
    if log_probs.shape is not None and len(log_probs.shape) != 3:
        raise ValueError(f"ctc_loss: log_probs must be (T, N, C). Got {format_shape(log_probs.shape)}.")
    _check(log_probs, targets, input_lengths, target_lengths, blank)
    return Spec((log_probs.shape[1],), log_probs.dtype), Spec(log_probs.shape, log_probs.dtype)


def _padded(targets: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Targets padded to (N, S)."""
    if targets.ndim == 2:
        return targets
    out = np.zeros((len(lengths), int(lengths.max(initial=0))), np.int64)
    start = 0
    for row, length in zip(out, lengths, strict=True):
        row[:length] = targets[start : start + length]
        start += length
    return out


def _forward_backward(
    log_probs: np.ndarray, targets: np.ndarray, inputs: np.ndarray, lengths: np.ndarray, blank: int
) -> tuple[np.ndarray, np.ndarray]:
    """The negative log likelihoods (N,), and the posterior of each class at each time, (T, N, C)."""
    steps, n, _ = log_probs.shape
    labels = _padded(targets, lengths)
    states = 2 * labels.shape[1] + 1
    symbols = np.full((n, states), blank, np.int64)
    symbols[:, 1::2] = labels
    ends = 2 * lengths  # the last state: the blank after the last label
    real = np.arange(states) <= ends[:, None]
    skips = np.zeros((n, states), bool)
    skips[:, 2:] = (symbols[:, 2:] != blank) & (symbols[:, 2:] != symbols[:, :-2])
    wide = log_probs.astype(np.float64)
    emitted = np.where(real, np.take_along_axis(wide, np.broadcast_to(symbols, (steps, n, states)), 2), -np.inf)
    rows = np.arange(n)

    alpha = np.full((steps + 1, n, states + 2), -np.inf)  # two padding states in front, never reachable
    alpha[0, :, 2] = 0.0  # initial state: in the first blank, from which the first label can be reached
    before = alpha[0]
    for t in range(steps):
        stay, step, skip = before[:, 2:], before[:, 1:-1], np.where(skips, before[:, :-2], -np.inf)
        alpha[t + 1, :, 2:] = np.logaddexp(np.logaddexp(stay, step), skip) + emitted[t]
        before = alpha[t + 1]
    last = alpha[inputs, rows]  # forward scores at the end of each input
    before_end = np.where(ends > 0, last[rows, ends + 1], -np.inf)
    total = np.logaddexp(last[rows, ends + 2], before_end)

    shares = np.zeros(log_probs.shape)
    beta = np.full((n, states + 2), -np.inf)  # two padding states behind
    onward = np.zeros((n, states), bool)
    onward[:, : max(states - 2, 0)] = skips[:, 2:]
    for t in range(steps - 1, -1, -1):
        ending = inputs - 1 == t
        if ending.any():
            beta[ending] = -np.inf
            beta[rows[ending], ends[ending]] = 0.0
            some = ending & (ends > 0)
            beta[rows[some], ends[some] - 1] = 0.0
        live = (t < inputs) & np.isfinite(total)
        joint_paths = np.where(live[:, None], alpha[t + 1, :, 2:] + beta[:, :states] - total[:, None], -np.inf)
        np.add.at(shares[t], (rows[:, None], symbols), np.exp(joint_paths))
        seen = beta[:, :states] + emitted[t]
        ahead = np.concatenate([seen, np.full((n, 2), -np.inf)], 1)
        stay, step, skip = ahead[:, :states], ahead[:, 1:-1], np.where(onward, ahead[:, 2:], -np.inf)
        beta[:, :states] = np.where((t < inputs)[:, None], np.logaddexp(np.logaddexp(stay, step), skip), -np.inf)
    return (-total).astype(log_probs.dtype), shares.astype(log_probs.dtype)


def _rule(g: Any, outs: Any, blank: int, needs: Any) -> list[Any]:
    if g[1] is not None:
        raise RuntimeError("ctc_loss: there is no second derivative. Call backward without `create_graph=True`.")
    return [expand_dims(g[0], (0, -1)) * -outs[1], None, None, None]


def _every_path(log_probs: Any, targets: Any, inputs: Any, lengths: Any, blank: int) -> Any:
    """Σ over all sequences of classes that collapse to the labels: the definition, for tiny cases."""
    import itertools

    steps, n, classes = log_probs.shape
    labels = _padded(np.asarray(targets), np.asarray(lengths))
    losses, shares = np.zeros(n), np.zeros(log_probs.shape)
    for i in range(n):
        total = 0.0
        for path in itertools.product(range(classes), repeat=int(inputs[i])):
            shown = [c for c, _ in itertools.groupby(path) if c != blank]
            if shown == list(labels[i, : lengths[i]]):
                p = np.exp(sum(log_probs[t, i, c] for t, c in enumerate(path)))
                total += p
                for t, c in enumerate(path):
                    shares[t, i, c] += p
        losses[i] = -np.log(total)
        shares[:, i] /= total
    return losses, shares


def _batch(axes: Any, tensors: Any, attrs: Any) -> Any:
    """The sequences of all examples are one batch of sequences."""
    size = next(t.shape[0] for t, axis in zip(tensors, axes, strict=True) if axis is not None)
    full = [
        t if axis is not None else broadcast_to(expand_dims(t, 0), (size, *t.shape))
        for t, axis in zip(tensors, axes, strict=True)
    ]
    steps, n, classes = full[0].shape[1:]
    labels = (-1,) if full[1].ndim == 2 else (size * n, full[1].shape[-1])
    losses, shares = ctc_paths(
        reshape(moveaxis(full[0], 0, 1), (steps, size * n, classes)),
        reshape(full[1], labels),
        reshape(full[2], (-1,)),
        reshape(full[3], (-1,)),
        *attrs,
    )
    return reshape(losses, (size, n)), moveaxis(reshape(shares, (steps, size, n, classes)), 1, 0)


def _logs(m: Any, *shape: int) -> np.ndarray:
    x = m.normal(*shape)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


@primitive(
    namespace="internal",
    title="ctc_loss",
    outputs=2,
    cost=lambda log_probs, targets, *_: 140 * log_probs.shape[0] * log_probs.shape[1] * (2 * targets.shape[-1] + 1),
    infer=_infer,
    vjp=joint(_rule, fill=False),
    batch=_batch,
    reference=_every_path,
    samples=lambda m: [
        Sample(_logs(m, 4, 2, 3), np.array([[1, 2], [2, 2]]), np.array([4, 4]), np.array([2, 2]), 0),
        Sample(_logs(m, 4, 2, 3), np.array([1, 0, 0]), np.array([3, 4]), np.array([1, 2]), 2),
        Sample(_logs(m, 3, 1, 3), np.zeros((1, 0), np.int64), np.array([2]), np.array([0]), 0),
    ],
    test={"no_gradient": True},  # the posteriors have no gradient, they are one; tested through `ctc_loss`
)
def ctc_paths(log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int) -> Any:
    """Negative log likelihood of each sequence of labels (N,) and the share of each class at each time (T, N, C)."""
    inputs, lengths, labels = (np.asarray(v, np.int64) for v in (input_lengths, target_lengths, targets))
    _check_values(labels, inputs, lengths, log_probs.shape)
    with np.errstate(all="ignore"):  # log 0 - log 0 where there is no path
        return _forward_backward(log_probs, labels, inputs, lengths, blank)  # type: ignore[arg-type]


def _reference_loss(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:  # fmt: skip
    losses = _every_path(log_probs, targets, input_lengths, target_lengths, blank)[0]
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else (losses / np.maximum(target_lengths, 1)).mean()


def _bad(m: Any) -> list[Bad]:
    def bad(error: Any, text: str, targets: Any, inputs: int = 4, lengths: int = 1, *more: Any) -> Bad:
        return Bad(error, text, _logs(m, 4, 1, 3), np.asarray(targets), np.array([inputs]), np.array([lengths]), *more)

    return [
        bad(ValueError, "ctc_loss: blank must be a class", [[1]], 4, 1, 3),
        bad(TypeError, "ctc_loss: targets must be integers", m.normal(1, 1)),
        bad(ValueError, "ctc_loss: input_lengths must be 0 to 4", [[1]], 5),
        bad(ValueError, "ctc_loss: target_lengths must be 0 to 1", [[1]], 4, 2),
        bad(ValueError, "ctc_loss: target_lengths must add up", [1, 2]),
        bad(IndexError, "ctc_loss: targets must be classes 0 to 2", [[3]]),
        Bad(
            ValueError, "ctc_loss: input_lengths must have one entry", _logs(m, 4, 2, 3), np.array([[1], [1]]),
            np.array([4]), np.array([1, 1]),
        ),
    ]  # fmt: skip


@composite(
    accumulate="float32",
    namespace="nn",
    reference=_reference_loss,
    samples=lambda m: [
        Sample(_logs(m, 4, 2, 3), np.array([[1, 2], [2, 0]]), np.array([4, 3]), np.array([2, 1])),
        Sample(_logs(m, 4, 2, 3), np.array([[1, 2], [2, 2]]), np.array([4, 4]), np.array([2, 2]), 0, "none"),
        Sample(_logs(m, 4, 2, 3), np.array([1, 0, 0]), np.array([3, 4]), np.array([1, 2]), 2, "sum"),
    ],
    errors=_bad,
    test={"first_order_only": True, "differentiable_inputs": (0,)},
)
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """The connectionist temporal classification loss: -log of the probability of `targets`, wherever they are in time.

    Args:
        log_probs: (T, N, C), or (T, C) for one sequence: logarithms of probabilities, as `log_softmax` gives them.
        targets: (N, S) classes, padded, or all targets in one vector; never the blank.
        input_lengths: (N,) how many of the T steps are real.
        target_lengths: (N,) how many of the targets are real.
        blank: the class that stands for "no label".
        reduction: "mean" (each loss divided by its number of labels, then the mean), "sum" or "none".
        zero_infinity: count sequences that cannot be produced (too short an input) as 0 instead of inf.
    """
    check_reduction("ctc_loss", reduction)
    single = log_probs.ndim == 2
    if single:
        log_probs = expand_dims(log_probs, 1)
        targets = expand_dims(targets, 0) if targets.ndim == 1 else targets
        input_lengths, target_lengths = reshape(input_lengths, (1,)), reshape(target_lengths, (1,))
    losses, _ = ctc_paths(real_floats("ctc_loss", log_probs), targets, input_lengths, target_lengths, blank)
    if zero_infinity:
        losses = where(losses == float("inf"), 0.0, losses)
    if reduction == "mean":
        losses = losses / maximum(astype(target_lengths, losses.dtype), 1.0)
    return squeeze(losses, 0) if single and reduction == "none" else reduced(losses, reduction)
