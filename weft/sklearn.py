"""Neural networks as scikit-learn estimators: `WeftClassifier` and `WeftRegressor`.

They fit into pipelines, grid searches and cross-validation like any other estimator. Needs scikit-learn
(`pip install scikit-learn`).

>>> import numpy as np
>>> from weft.sklearn import WeftClassifier
>>> X = np.random.default_rng(0).normal(size=(200, 2))
>>> y = np.where(X[:, 0] * X[:, 1] > 0, "same", "different")
>>> WeftClassifier(hidden=(16,), epochs=60, random_state=0).fit(X, y).score(X, y) > 0.9
True
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np

import weft as wf

from . import models, nn, optim
from .data import DataLoader, TensorDataset
from .nn import functional as F
from .tensor import Tensor

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
except ImportError as error:
    raise ImportError("weft.sklearn needs scikit-learn 1.6 or newer: `pip install scikit-learn`.") from error

_OPTIMIZERS: dict[str, Callable[..., Any]] = {"adam": optim.AdamW, "sgd": optim.SGD, "lion": optim.Lion}
_CAPTURE_FROM = 200_000  # samples over all epochs from which compilation pays off
_ROWS = 4096  # per batch of predictions


class _Network(BaseEstimator):
    """Base of both estimators: parameters, training, outputs."""

    def __init__(
        self,
        hidden: Sequence[int] = (64,),
        activation: str = "relu",
        *,
        module: Callable[[int, int], nn.Module] | None = None,
        optimizer: str = "adam",
        lr: float = 0.01,
        weight_decay: float = 1e-4,
        batch_size: int = 32,
        epochs: int = 50,
        capture: bool | str = "auto",
        random_state: Any = None,
    ) -> None:
        self.hidden = hidden
        self.activation = activation
        self.module = module
        self.optimizer = optimizer
        self.lr = lr
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.epochs = epochs
        self.capture = capture
        self.random_state = random_state

    def _check_settings(self) -> None:
        name = type(self).__name__
        if self.optimizer not in _OPTIMIZERS:
            raise ValueError(f"{name}: optimizer must be one of {', '.join(_OPTIMIZERS)}. Got {self.optimizer!r}.")
        for key in ("epochs", "batch_size"):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise ValueError(f"{name}: {key} must be an integer of at least 1. Got {value!r}.")
        if self.capture not in (True, False, "auto"):
            raise ValueError(f"{name}: capture must be True, False or 'auto'. Got {self.capture!r}.")

    def _loss(self, output: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
        raise NotImplementedError

    def _train(self, X: np.ndarray, target: np.ndarray, outputs: int, weight: np.ndarray | None = None) -> None:
        """Make the network and fit it to (X, target), where a sample counts `weight` times."""
        self._check_settings()
        arrays = [X, target]
        if weight is not None:
            kept = weight > 0
            scaled = (
                weight[kept] / weight[kept].mean()
            )  # the mean loss keeps its size, and the learning rate its meaning
            arrays = [X[kept], target[kept], scaled.astype(np.float32)]
            X = arrays[0]
        seed = int(check_random_state(self.random_state).randint(2**31))
        with _seeded(seed):
            self.model_ = self._make(X.shape[1], outputs)
            settings = {"lr": self.lr, "weight_decay": self.weight_decay}
            if self.optimizer == "sgd":
                settings["momentum"] = 0.9
            optimizer = _OPTIMIZERS[self.optimizer](self.model_.parameters(), **settings)
            size = min(int(self.batch_size), len(X))
            loader = DataLoader(TensorDataset(*arrays), size, shuffle=True, seed=seed)

            def step(x: Tensor, y: Tensor, w: Tensor | None = None) -> Tensor:
                optimizer.zero_grad()
                if w is None:
                    loss = self._loss(self.model_(x), y)
                else:
                    losses = self._loss(self.model_(x), y, "none")
                    loss = wf.mean(wf.reshape(losses, (losses.shape[0], -1)) * wf.reshape(w, (-1, 1)))
                loss.backward()
                optimizer.step()
                return loss.detach()

            wanted = len(X) * self.epochs >= _CAPTURE_FROM if self.capture == "auto" else self.capture
            run = wf.function(step) if wanted else step
            self.model_.train()
            self.loss_curve_ = []
            for _ in range(self.epochs):
                total = sum(float(run(*batch)) * len(batch[0]) for batch in loader)
                self.loss_curve_.append(total / len(X))
            self.model_.zero_grad()
            self.model_.eval()

    def _make(self, features: int, outputs: int) -> nn.Module:
        if self.module is not None:
            return self.module(features, outputs)
        return models.MLP(features, outputs, tuple(self.hidden), self.activation)

    def _outputs(self, X: Any) -> np.ndarray:
        """The network's outputs for X, (samples, outputs)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float32)
        with wf.no_grad():
            rows = [self.model_(wf.asarray(X[i : i + _ROWS])).numpy() for i in range(0, len(X), _ROWS)]
        return np.concatenate(rows)


class WeftClassifier(ClassifierMixin, _Network):
    """A neural network classifier.

    Args:
        hidden: sizes of the hidden layers.
        activation: "relu", "gelu", "tanh", "sigmoid" or "silu".
        module: a function of (number of features, number of classes) that returns another network.
        optimizer: "adam" (AdamW), "sgd" (momentum 0.9) or "lion".
        lr: learning rate.
        weight_decay: coefficient of the weight decay.
        batch_size: samples per step.
        epochs: passes over the data.
        capture: compile the training step; "auto" does so for larger data.
        random_state: seed of the initial weights and of the order of samples.

    Attributes:
        classes_: the labels. model_: the network, a `weft.nn.Module`. loss_curve_: the mean loss of each epoch.
        multilabel_: whether a sample may have several labels.

    >>> from weft.sklearn import WeftClassifier
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> several = WeftClassifier(hidden=(16,), epochs=60, random_state=0).fit(X, X > 0)     # two labels, each or none
    >>> several.predict(X[:3]).shape
    (3, 2)
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model to data `X`, (samples, features), and labels `y`.

        Args:
            y: one label per sample, (samples,); or 0 and 1 for each of several labels, (samples, labels).
            sample_weight: how much each sample counts, (samples,); 1 by default.
        """
        X, y = validate_data(self, X, _dense(y), dtype=np.float32, multi_output=True)
        check_classification_targets(y)
        kind = type_of_target(y, input_name="y")
        if kind == "multiclass-multioutput":
            raise ValueError(
                "WeftClassifier: several outputs must be labels, each 0 or 1. Got other numbers in a column."
            )
        self.multilabel_ = kind == "multilabel-indicator"
        weight = _weights(type(self).__name__, sample_weight, len(X))
        if self.multilabel_:
            self.classes_ = np.arange(y.shape[1])
            self._train(X, np.asarray(y, np.float32), y.shape[1], weight)
            return self
        self.classes_, numbers = np.unique(column_or_1d(y, warn=True), return_inverse=True)
        self._train(X, numbers.reshape(-1).astype(np.int64), len(self.classes_), weight)
        return self

    def _loss(self, output: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
        if self.multilabel_:
            return F.binary_cross_entropy_with_logits(output, target, reduction=reduction)
        return F.cross_entropy(output, target, reduction=reduction)

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, (samples, classes); with several labels, of each label."""
        outputs = wf.asarray(self._outputs(X))
        return (wf.sigmoid(outputs) if self.multilabel_ else F.softmax(outputs, axis=1)).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each sample; with several labels, 1 for each that is more probable than not."""
        outputs = self._outputs(X)
        if self.multilabel_:
            return (outputs > 0).astype(np.int64)
        return self.classes_[outputs.argmax(axis=1)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class WeftRegressor(RegressorMixin, _Network):
    """A neural network regressor; parameters as in `WeftClassifier`.

    Targets, one or several per sample, are scaled to unit variance for training, and predictions are scaled back.

    >>> from weft.sklearn import WeftRegressor
    >>> X = np.linspace(-1, 1, 100)[:, None]
    >>> WeftRegressor(hidden=(16,), epochs=100, random_state=0).fit(X, X[:, 0] ** 2).predict(X).shape
    (100,)
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model to data `X`, (samples, features), and targets `y`, (samples,) or (samples, targets).

        Args:
            sample_weight: how much each sample counts, (samples,); 1 by default.
        """
        X, y = validate_data(self, X, y, dtype=np.float32, multi_output=True, y_numeric=True)
        target = np.asarray(y, np.float64).reshape(len(X), -1)
        weight = _weights(type(self).__name__, sample_weight, len(X))
        self._flat = np.ndim(y) == 1
        if weight is None:
            self.target_mean_, spread = target.mean(axis=0), target.std(axis=0)
        else:
            self.target_mean_ = np.average(target, axis=0, weights=weight)
            spread = np.sqrt(np.average((target - self.target_mean_) ** 2, axis=0, weights=weight))
        self.target_scale_ = np.where(spread > 0, spread, 1.0)
        scaled = ((target - self.target_mean_) / self.target_scale_).astype(np.float32)
        self._train(X, scaled, target.shape[1], weight)
        return self

    def _loss(self, output: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
        return F.mse_loss(output, target, reduction=reduction)

    def predict(self, X: Any) -> np.ndarray:
        """The predicted targets."""
        outputs = self._outputs(X)
        values = outputs * self.target_scale_ + self.target_mean_
        return values[:, 0] if self._flat else values

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _dense(y: Any) -> Any:
    """Labels as an array; scikit-learn also gives them as a sparse matrix."""
    return y.toarray() if hasattr(y, "toarray") else y


def _weights(name: str, given: Any, samples: int) -> np.ndarray | None:
    """Checked weights of samples; None if every sample counts once."""
    if given is None:
        return None
    weights = np.full(samples, float(given)) if isinstance(given, (int, float)) else np.asarray(given, np.float64)
    if weights.shape != (samples,):
        raise ValueError(
            f"{name}: sample_weight must have one number per sample, ({samples},). Got shape {weights.shape}."
        )
    if not np.isfinite(weights).all() or (weights < 0).any() or not (weights > 0).any():
        raise ValueError(f"{name}: sample_weight must be finite, not negative, and not all zero.")
    return weights


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Use `seed` within a block and restore the random state afterwards."""
    state = wf.get_rng_state()
    wf.manual_seed(seed)
    try:
        yield
    finally:
        wf.set_rng_state(state)
