"""Metrics: statistics of a model's outputs, accumulated over batches.

A metric is two functions. `measure(output, target)` computes a vector of statistics of a batch (the number of correct
predictions, the number of samples); it is written with Weft ops, so it is part of the captured step. The statistics are
summed over batches, and `result(total)` turns the sum into one number. So the metric of an epoch does not depend on how
samples are grouped into batches, and its state, which checkpoints save, is one small array.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import weft as wf

from ..autograd.tree import flatten
from ..tensor import Tensor


class Metric:
    """Base class of metrics: set `name` and implement `measure` and `result`.

    Example:
        >>> class MaxError(wf.train.Metric):
        ...     name = "mean_max_error"
        ...
        ...     def measure(self, output, target):
        ...         return wf.stack([wf.max(wf.abs(output - target)), wf.tensor(1.0)])
        ...
        ...     def result(self, total):
        ...         return float(total[0] / total[1])
    """

    name = "metric"
    greater_is_better = True

    def measure(self, output: Any, target: Any) -> Tensor:
        """The statistics of a batch: a 1-d tensor that is summed over batches."""
        raise NotImplementedError(f"{type(self).__name__}: define measure(output, target).")

    def result(self, total: np.ndarray) -> float:
        """The value of the metric, from the sum of the statistics (float64)."""
        raise NotImplementedError(f"{type(self).__name__}: define result(total).")


class Mean(Metric):
    """The mean over samples of a function of (output, target), which returns one number per batch or per sample.

    >>> bias = wf.train.Mean(lambda output, target: output - target, name="bias")
    >>> bias.result(bias.measure(wf.asarray([1.0, 2.0]), wf.asarray([0.0, 0.0])).numpy())
    1.5
    """

    def __init__(
        self, function: Callable[[Any, Any], Any], name: str | None = None, greater_is_better: bool = False
    ) -> None:
        self.function = function
        self.name = name or str(getattr(function, "__name__", "mean")).strip("<>")
        self.greater_is_better = greater_is_better

    def measure(self, output: Any, target: Any) -> Tensor:
        value = self.function(output, target)
        value = value if isinstance(value, Tensor) else wf.asarray(value)
        n = batch_length((output, target))
        return wf.stack([wf.mean(wf.astype(value, wf.float32)) * n, wf.full((), float(n))])

    def result(self, total: np.ndarray) -> float:
        return _ratio(total[0], total[1])


class MeanSquaredError(Metric):
    """The mean of the squared differences.

    >>> mse = wf.train.MeanSquaredError()
    >>> mse.result(mse.measure(wf.tensor([1.0, 2.0]), wf.tensor([0.0, 0.0])).numpy())
    2.5
    """

    name, greater_is_better = "mse", False

    def measure(self, output: Any, target: Any) -> Tensor:
        difference = _same_shape(self.name, output, target)
        return wf.stack([wf.sum(difference * difference), wf.full((), float(difference.size))])

    def result(self, total: np.ndarray) -> float:
        return _ratio(total[0], total[1])


class MeanAbsoluteError(MeanSquaredError):
    """The mean of the absolute differences."""

    name = "mae"

    def measure(self, output: Any, target: Any) -> Tensor:
        difference = _same_shape(self.name, output, target)
        return wf.stack([wf.sum(wf.abs(difference)), wf.full((), float(difference.size))])


class R2(Metric):
    """The coefficient of determination: 1 - (squared error) / (squared error of predicting the mean)."""

    name = "r2"

    def measure(self, output: Any, target: Any) -> Tensor:
        difference = _same_shape(self.name, output, target)
        y = wf.astype(target, wf.float32)
        return wf.stack([wf.full((), float(y.size)), wf.sum(y), wf.sum(y * y), wf.sum(difference * difference)])

    def result(self, total: np.ndarray) -> float:
        n, s, s2, error = (float(x) for x in total)
        spread = s2 - s * s / n if n else 0.0
        return 1.0 - error / spread if spread > 0 else float("nan")


class Accuracy(Metric):
    """The fraction of samples whose class has the highest score.

    Args:
        axis: the class axis of the scores. By default the last, or axis 1 if only that matches the target. Outputs of
            the target's shape are binary logits.

    >>> accuracy = wf.train.Accuracy()
    >>> scores = wf.tensor([[0.1, 0.9], [0.8, 0.2]])
    >>> accuracy.result(accuracy.measure(scores, wf.tensor([1, 1])).numpy())
    0.5
    """

    name = "accuracy"

    def __init__(self, axis: int | None = None) -> None:
        self.axis = axis

    def measure(self, output: Any, target: Any) -> Tensor:
        right = wf.equal(predicted(self.name, output, target, self.axis), target)
        return wf.stack([wf.sum(wf.astype(right, wf.float32)), wf.full((), float(right.size))])

    def result(self, total: np.ndarray) -> float:
        return _ratio(total[0], total[1])


class TopK(Metric):
    """The fraction of samples whose class is among the `k` highest scores.

    >>> top2 = wf.train.TopK(2)
    >>> top2.result(top2.measure(wf.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]]), wf.tensor([1, 2])).numpy())
    0.5
    """

    def __init__(self, k: int = 5, axis: int | None = None) -> None:
        if k < 1:
            raise ValueError(f"TopK: k must be at least 1. Got {k}.")
        self.k, self.axis = k, axis
        self.name = f"top{k}"

    def measure(self, output: Any, target: Any) -> Tensor:
        axis = class_axis(self.name, output, target, self.axis)
        # The rank of the true class is the number of higher scores; ties count in its favour.
        own = wf.take_along_axis(output, wf.expand_dims(target, axis), axis=axis)
        rank = wf.sum(wf.astype(wf.greater(output, own), wf.float32), axis=axis)
        right = wf.less(rank, float(self.k))
        return wf.stack([wf.sum(wf.astype(right, wf.float32)), wf.full((), float(right.size))])

    def result(self, total: np.ndarray) -> float:
        return _ratio(total[0], total[1])


class Confusion(Metric):
    """Base of metrics computed from the confusion matrix.

    Args:
        average: "macro" is the mean over the classes that occur, "micro" pools all samples, "weighted" weights classes
            by their frequency.
    """

    def __init__(self, average: str = "macro", axis: int | None = None) -> None:
        if average not in ("macro", "micro", "weighted"):
            raise ValueError(f"{type(self).__name__}: average must be macro, micro or weighted. Got {average!r}.")
        self.average, self.axis = average, axis

    def measure(self, output: Any, target: Any) -> Tensor:
        guess = wf.reshape(predicted(self.name, output, target, self.axis), (-1,))
        truth = wf.reshape(target, (-1,))
        binary = output.ndim == target.ndim
        n = 2 if binary else output.shape[class_axis(self.name, output, target, self.axis)]
        classes = wf.arange(n)
        truths = wf.astype(wf.equal(wf.expand_dims(truth, 1), classes), wf.float32)
        guesses = wf.astype(wf.equal(wf.expand_dims(guess, 1), classes), wf.float32)
        return wf.reshape(wf.matrix_transpose(truths) @ guesses, (-1,))

    def result(self, total: np.ndarray) -> float:
        n = round(total.size**0.5)
        table = total.reshape(n, n)
        right, truths, guesses = np.diag(table), table.sum(1), table.sum(0)
        if self.average == "micro":
            return float(self.score(right.sum(), truths.sum(), guesses.sum()))
        occurs = (truths + guesses) > 0
        scores = np.array([self.score(*each) for each in zip(right, truths, guesses)])
        if not occurs.any():
            return float("nan")
        if self.average == "weighted":
            return float((scores * truths).sum() / truths.sum())
        return float(scores[occurs].mean())

    def score(self, right: float, truths: float, guesses: float) -> float:
        """The score of one class from its counts."""
        raise NotImplementedError


class F1(Confusion):
    """The harmonic mean of precision and recall.

    >>> f1 = wf.train.F1()
    >>> f1.result(f1.measure(wf.tensor([[0.1, 0.9], [0.8, 0.2]]), wf.tensor([1, 0])).numpy())
    1.0
    """

    name = "f1"

    def score(self, right: float, truths: float, guesses: float) -> float:
        return 2 * right / (truths + guesses) if truths + guesses else 0.0


class Precision(Confusion):
    """The fraction of predictions of a class that are correct."""

    name = "precision"

    def score(self, right: float, truths: float, guesses: float) -> float:
        return right / guesses if guesses else 0.0


class Recall(Confusion):
    """The fraction of samples of a class that are predicted as such."""

    name = "recall"

    def score(self, right: float, truths: float, guesses: float) -> float:
        return right / truths if truths else 0.0


_BY_NAME: dict[str, Callable[[], Metric]] = {
    "accuracy": Accuracy, "f1": F1, "precision": Precision, "recall": Recall, "mse": MeanSquaredError,
    "mae": MeanAbsoluteError, "r2": R2,
}  # fmt: skip


def as_metrics(given: Any) -> list[Metric]:
    """Metrics from objects, names ("accuracy", "top5", "f1" …), functions of (output, target), or a dict of those."""
    if given is None:
        return []
    if isinstance(given, (str, Metric)) or callable(given):
        given = [given]
    if isinstance(given, dict):
        metrics = []
        for name, each in given.items():
            metric = as_metric(each)
            metric.name = name
            metrics.append(metric)
    else:
        metrics = [as_metric(each) for each in given]
    names = [m.name for m in metrics]
    if len(set(names)) < len(names) or "loss" in names:
        raise ValueError(f"metrics: every metric needs a unique name other than 'loss'. Got {names}.")
    return metrics


def as_metric(given: Any) -> Metric:
    """One metric from an object, a name or a function."""
    if isinstance(given, Metric):
        return given
    if isinstance(given, str):
        if given in _BY_NAME:
            return _BY_NAME[given]()
        if top := re.fullmatch(r"top-?(\d+)", given):
            return TopK(int(top[1]))
        raise ValueError(f"metrics: unknown metric {given!r}. Expected one of {', '.join(_BY_NAME)}, or 'top5'.")
    if isinstance(given, type) and issubclass(given, Metric):
        return given()
    if callable(given):
        return Mean(given)
    raise TypeError(f"metrics: expected a Metric, a name or a function. Got {type(given).__name__}.")


# Helpers -----------------------------------------------------------------------------------------------------------------


def tensors_in(tree: Any) -> Iterable[Any]:
    """The tensors and arrays in a tree."""
    return [leaf for leaf in flatten(tree)[0] if isinstance(leaf, (Tensor, np.ndarray))]


def batch_length(batch: Any) -> int:
    """The number of samples in a batch: the first axis of its first tensor that has one."""
    if type(batch) in (tuple, list) and batch and type(batch[0]) is Tensor and batch[0].ndim:
        return batch[0].shape[0]  # the usual case, without traversing the tree
    return next((int(t.shape[0]) for t in tensors_in(batch) if t.ndim), 1)


def class_axis(name: str, output: Any, target: Any, axis: int | None) -> int:
    """The class axis of `output`."""
    if axis is not None:
        return axis % output.ndim
    shape, wanted = tuple(output.shape), tuple(target.shape)
    if shape[:-1] == wanted:
        return output.ndim - 1
    if output.ndim > 1 and shape[:1] + shape[2:] == wanted:
        return 1
    raise ValueError(
        f"{name}: scores and classes do not fit. Got output {shape} and target {wanted}; expected the target's shape with "
        "one more axis, last or second, for the classes."
    )


def predicted(name: str, output: Any, target: Any, axis: int | None) -> Tensor:
    """The class with the highest score; for binary logits, whether they are positive."""
    if output.ndim == target.ndim and tuple(output.shape) == tuple(target.shape):
        return wf.astype(output > 0, target.dtype)
    return wf.argmax(output, axis=class_axis(name, output, target, axis))


def _same_shape(name: str, output: Any, target: Any) -> Tensor:
    if tuple(output.shape) != tuple(target.shape):
        raise ValueError(
            f"{name}: output and target differ in shape. Got {tuple(output.shape)} and {tuple(target.shape)}; a difference "
            "that broadcasts would be a mistake. Reshape one of them."
        )
    return wf.astype(output, wf.float32) - wf.astype(target, wf.float32)


def _ratio(numerator: float, denominator: float) -> float:
    return float(numerator) / float(denominator) if denominator else float("nan")
