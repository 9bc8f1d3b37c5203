"""The scikit-learn estimators pass scikit-learn's own checks, and do what they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.datasets import make_moons
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import weft as wf
from weft import nn
from weft.sklearn import WeftClassifier, WeftRegressor


@parametrize_with_checks(
    [
        WeftClassifier(hidden=(16,), epochs=12, batch_size=32, lr=0.03),
        WeftRegressor(hidden=(16,), epochs=12, batch_size=32, lr=0.03),
    ],
    expected_failed_checks=lambda estimator: {
        f"check_sample_weight_equivalence_on_{kind}_data": "batches of repeated samples differ from those of weighted ones"
        for kind in ("dense", "sparse")
    },
)
@pytest.mark.filterwarnings("ignore::UserWarning:sklearn")
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_classes_and_probabilities() -> None:
    X, y = make_moons(300, noise=0.1, random_state=0)
    names = np.array(["down", "up"])[y]
    model = WeftClassifier(hidden=(32,), epochs=40, random_state=0).fit(X, names)
    assert model.score(X, names) > 0.97 and list(model.classes_) == ["down", "up"]
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (300, 2) and np.allclose(probabilities.sum(1), 1, atol=1e-5)
    assert (model.classes_[probabilities.argmax(1)] == model.predict(X)).all()
    assert model.loss_curve_[-1] < model.loss_curve_[0] and len(model.loss_curve_) == 40


def test_in_a_pipeline_with_a_search() -> None:
    X, y = make_moons(120, noise=0.1, random_state=0)
    pipeline = make_pipeline(StandardScaler(), WeftClassifier(epochs=20, random_state=0))
    search = GridSearchCV(pipeline, {"weftclassifier__hidden": [(2,), (24,)]}, cv=2).fit(X, y)
    assert search.best_params_ == {"weftclassifier__hidden": (24,)}


def test_regression_of_several_targets() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = np.stack([1000 + 100 * X[:, 0], X[:, 1] ** 2], axis=1)
    model = WeftRegressor(hidden=(32,), epochs=60, random_state=0).fit(X, y)
    assert model.predict(X).shape == (300, 2) and model.score(X, y) > 0.95
    assert WeftRegressor(epochs=1).fit(X, y[:, 0]).predict(X).shape == (300,)
    constant = WeftRegressor(epochs=30, lr=0.05, random_state=0).fit(X, np.full(300, 7.0))
    assert np.abs(constant.predict(X) - 7.0).max() < 0.5


def test_the_same_seed_gives_the_same_bits_and_leaves_the_global_generator_alone() -> None:
    X, y = make_moons(60, random_state=0)
    wf.manual_seed(1)
    before = wf.get_rng_state().tolist()
    first, second = (WeftClassifier(epochs=3, random_state=5).fit(X, y).predict_proba(X) for _ in range(2))
    assert first.tobytes() == second.tobytes() and wf.get_rng_state().tolist() == before


def test_captured_or_not_is_the_same() -> None:
    X, y = make_moons(64, random_state=0)
    results = [WeftClassifier(epochs=3, capture=c, random_state=0).fit(X, y).predict_proba(X) for c in (True, False)]
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-6)


def test_a_network_of_ones_own() -> None:
    X, y = make_moons(60, random_state=0)

    def network(features: int, classes: int) -> nn.Module:
        return nn.Sequential(nn.Linear(features, 7), nn.Tanh(), nn.Linear(7, classes))

    model = WeftClassifier(module=network, epochs=2, optimizer="sgd").fit(X, y)
    assert model.model_[0].weight.shape == (7, 2)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"optimizer": "adm"}, "WeftClassifier: optimizer must be one of adam"),
        ({"epochs": 0}, "epochs must be an integer of at least 1. Got 0"),
        ({"batch_size": 1.5}, "batch_size must be an integer"),
        ({"capture": "maybe"}, "capture must be True, False or 'auto'"),
        ({"activation": "rleu"}, "unknown activation 'rleu'"),
    ],
)
def test_bad_settings(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        WeftClassifier(**settings).fit(*make_moons(20, random_state=0))


def test_weights_of_samples_decide() -> None:
    X = np.zeros((40, 1))
    y, weight = np.repeat([0, 1], 20), np.repeat([1.0, 9.0], 20)
    model = WeftClassifier(hidden=(), epochs=80, random_state=0, weight_decay=0.0).fit(X, y, sample_weight=weight)
    assert model.predict_proba(X)[0, 1] == pytest.approx(0.9, abs=0.03)
    regressor = WeftRegressor(hidden=(), epochs=80, random_state=0, weight_decay=0.0).fit(X, y, sample_weight=weight)
    assert regressor.predict(X)[0] == pytest.approx(0.9, abs=0.03)
    alone = WeftClassifier(epochs=2, random_state=0).fit(X[:20], y[:20])
    zeros = WeftClassifier(epochs=2, random_state=0).fit(X[:20], y[:20], sample_weight=np.ones(20))
    np.testing.assert_allclose(alone.predict_proba(X), zeros.predict_proba(X), rtol=1e-5)
    for bad, words in (
        (np.ones(3), "one number per sample"),
        (-np.ones(40), "not negative"),
        (np.zeros(40), "not all zero"),
    ):
        with pytest.raises(ValueError, match=words):
            WeftClassifier(epochs=1).fit(X, y, sample_weight=bad)


def test_several_labels_per_sample() -> None:
    X = np.random.default_rng(0).normal(size=(300, 3))
    y = np.stack([X[:, 0] > 0, X[:, 1] > 0, X[:, 0] * X[:, 1] > 0], axis=1).astype(int)
    model = WeftClassifier(hidden=(32,), epochs=60, random_state=0).fit(X, y)
    assert model.multilabel_ and model.classes_.tolist() == [0, 1, 2]
    assert model.predict(X).shape == model.predict_proba(X).shape == (300, 3)
    assert (model.predict(X) == y).mean() > 0.95 and model.score(X, y) > 0.85
    assert ((model.predict_proba(X) > 0.5) == model.predict(X)).all()
    weighted = WeftClassifier(hidden=(32,), epochs=10, random_state=0).fit(X, y, sample_weight=np.ones(300))
    assert weighted.predict(X).shape == (300, 3)
    with pytest.raises(ValueError, match="labels, each 0 or 1"):
        WeftClassifier(epochs=1).fit(X, np.stack([y[:, 0], 3 * y[:, 1]], axis=1))
