"""Metrics: numbers about a model's outputs that are added up over batches.

A metric is two functions. `measure(output, target)` makes a vector of statistics of a batch (how many were right, how
many there were); it is written with Weft ops, so it becomes part of the captured step. The statistics of batches are
added, and `result(total)` makes one number of the sum. So a metric over an epoch is that of all its samples together,
whatever the batches, and what has to be kept, or saved in a checkpoint, is one small array.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import weft as wf

from ..tensor import Tensor


class Metric:
    """The base class: give it a `name`, and define `measure` and `result`."""

    name = "metric"
    greater_is_better = True

    def measure(self, output: Any, target: Any) -> Tensor:
        """The statistics of a batch, a 1-d tensor whose sum over batches means something."""
        raise NotImplementedError(f"{type(self).__name__}: define measure(output, target).")

    def result(self, total: np.ndarray) -> float:
        """The metric of everything measured, from the sum of the statistics (float64)."""
        raise NotImplementedError(f"{type(self).__name__}: define result(total).")


class Mean(Metric):
    """The mean over samples of what a function of (output, target) returns for a batch, or for each sample.

    >>> import numpy as np
    >>> bias = Mean(lambda output, target: output - target, name="bias")
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
    """The mean of the squared differences."""

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
    """The coefficient of determination: 1 - (squared error) / (squared error of always saying the mean)."""

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
    """The share of samples whose class has the greatest score.

    Args:
        axis: the axis of the scores that counts classes. By default the last, or axis 1 where only that fits. Outputs
            with the target's own shape are logits of yes or no.
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
    """The share of samples whose class is among the `k` greatest scores."""

    def __init__(self, k: int = 5, axis: int | None = None) -> None:
        if k < 1:
            raise ValueError(f"TopK: k must be at least 1. Got {k}.")
        self.k, self.axis = k, axis
        self.name = f"top{k}"

    def measure(self, output: Any, target: Any) -> Tensor:
        axis = class_axis(self.name, output, target, self.axis)
        # The rank of the right class: how many scores are greater than its own. (Equal ones count for us, as in top-k
        # with the best of all orders.)
        own = wf.take_along_axis(output, wf.expand_dims(target, axis), axis=axis)
        rank = wf.sum(wf.astype(wf.greater(output, own), wf.float32), axis=axis)
        right = wf.less(rank, float(self.k))
        return wf.stack([wf.sum(wf.astype(right, wf.float32)), wf.full((), float(right.size))])

    def result(self, total: np.ndarray) -> float:
        return _ratio(total[0], total[1])


class Confusion(Metric):
    """Base of metrics from the table of (true class, predicted class) counts.

    Args:
        average: "macro" is the mean over classes that occur, "micro" counts all samples together, "weighted" weighs
            classes by how often they occur.
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
    """The harmonic mean of precision and recall."""

    name = "f1"

    def score(self, right: float, truths: float, guesses: float) -> float:
        return 2 * right / (truths + guesses) if truths + guesses else 0.0


class Precision(Confusion):
    """Of what was said to be a class, the share that is."""

    name = "precision"

    def score(self, right: float, truths: float, guesses: float) -> float:
        return right / guesses if guesses else 0.0


class Recall(Confusion):
    """Of a class, the share that was found."""

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
        raise ValueError(f"metrics: every metric needs a name of its own, other than 'loss'. Got {names}.")
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
    """The tensors and arrays in nested tuples, lists and dicts."""
    if isinstance(tree, (Tensor, np.ndarray)):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from tensors_in(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from tensors_in(value)


def batch_length(batch: Any) -> int:
    """The number of samples in a batch: the first axis of its first tensor that has one."""
    if type(batch) in (tuple, list) and batch and type(batch[0]) is Tensor and batch[0].ndim:
        return batch[0].shape[0]  # the usual case, without a walk through the tree
    return next((int(t.shape[0]) for t in tensors_in(batch) if t.ndim), 1)


def class_axis(name: str, output: Any, target: Any, axis: int | None) -> int:
    """The axis of `output` that counts classes."""
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
    """The class with the greatest score; for logits of yes or no, whether they are positive."""
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
