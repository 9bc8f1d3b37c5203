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
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
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

    def _loss(self, output: Tensor, target: Tensor) -> Tensor:
        raise NotImplementedError

    def _train(self, X: np.ndarray, target: np.ndarray, outputs: int) -> None:
        """Make the network and fit it to (X, target)."""
        self._check_settings()
        seed = int(check_random_state(self.random_state).randint(2**31))
        with _seeded(seed):
            self.model_ = self._make(X.shape[1], outputs)
            settings = {"lr": self.lr, "weight_decay": self.weight_decay}
            if self.optimizer == "sgd":
                settings["momentum"] = 0.9
            optimizer = _OPTIMIZERS[self.optimizer](self.model_.parameters(), **settings)
            size = min(int(self.batch_size), len(X))
            loader = DataLoader(TensorDataset(X, target), size, shuffle=True, seed=seed)

            def step(x: Tensor, y: Tensor) -> Tensor:
                optimizer.zero_grad()
                loss = self._loss(self.model_(x), y)
                loss.backward()
                optimizer.step()
                return loss.detach()

            wanted = len(X) * self.epochs >= _CAPTURE_FROM if self.capture == "auto" else self.capture
            run = wf.function(step) if wanted else step
            self.model_.train()
            self.loss_curve_ = []
            for _ in range(self.epochs):
                total = sum(float(run(x, y)) * len(x) for x, y in loader)
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
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model to data `X`, (samples, features), and labels `y`, (samples,)."""
        X, y = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        self._train(X, numbers.reshape(-1).astype(np.int64), len(self.classes_))
        return self

    def _loss(self, output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output, target)

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, (samples, classes)."""
        return F.softmax(wf.asarray(self._outputs(X)), axis=1).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each sample."""
        best = self._outputs(X).argmax(axis=1)
        return self.classes_[best]


class WeftRegressor(RegressorMixin, _Network):
    """A neural network regressor; parameters as in `WeftClassifier`.

    Targets, one or several per sample, are scaled to unit variance for training, and predictions are scaled back.

    >>> from weft.sklearn import WeftRegressor
    >>> X = np.linspace(-1, 1, 100)[:, None]
    >>> WeftRegressor(hidden=(16,), epochs=100, random_state=0).fit(X, X[:, 0] ** 2).predict(X).shape
    (100,)
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model to data `X`, (samples, features), and targets `y`, (samples,) or (samples, targets)."""
        X, y = validate_data(self, X, y, dtype=np.float32, multi_output=True, y_numeric=True)
        target = np.asarray(y, np.float64).reshape(len(X), -1)
        self._flat = np.ndim(y) == 1
        self.target_mean_ = target.mean(axis=0)
        spread = target.std(axis=0)
        self.target_scale_ = np.where(spread > 0, spread, 1.0)
        self._train(X, ((target - self.target_mean_) / self.target_scale_).astype(np.float32), target.shape[1])
        return self

    def _loss(self, output: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(output, target)

    def predict(self, X: Any) -> np.ndarray:
        """The predicted targets."""
        outputs = self._outputs(X)
        values = outputs * self.target_scale_ + self.target_mean_
        return values[:, 0] if self._flat else values

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Use `seed` within a block and restore the random state afterwards."""
    state = wf.get_rng_state()
    wf.manual_seed(seed)
    try:
        yield
    finally:
        wf.set_rng_state(state)
