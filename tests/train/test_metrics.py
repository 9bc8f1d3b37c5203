"""Metrics: the same as scikit-learn's, whatever the batches."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as reference

import weft as wf
from weft.train import F1, R2, Accuracy, Mean, MeanAbsoluteError, MeanSquaredError, Metric, Precision, Recall, TopK
from weft.train.metrics import as_metrics, batch_length


def over_batches(metric: Metric, output: np.ndarray, target: np.ndarray, sizes: tuple[int, ...]) -> float:
    total: np.ndarray | float = 0.0
    for part, truth in zip(np.split(output, np.cumsum(sizes)), np.split(target, np.cumsum(sizes))):
        total = total + metric.measure(wf.asarray(part), wf.asarray(truth)).numpy().astype(np.float64)
    return metric.result(np.asarray(total))


@pytest.fixture
def classified() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    target = rng.integers(0, 4, 50)
    scores = rng.normal(size=(50, 6)).astype(np.float32)  # classes 4 and 5 never occur
    scores[np.arange(50), target] += 1.0
    return scores, target


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
@pytest.mark.parametrize(
    ("metric", "wanted"),
    [(F1, reference.f1_score), (Precision, reference.precision_score), (Recall, reference.recall_score)],
)
def test_confusion_metrics(
    metric: type, wanted: object, average: str, classified: tuple[np.ndarray, np.ndarray]
) -> None:
    scores, target = classified
    expected = wanted(target, scores.argmax(1), average=average, zero_division=0)
    assert over_batches(metric(average), scores, target, (7, 20)) == pytest.approx(expected, abs=1e-6)


def test_accuracy_and_top_k(classified: tuple[np.ndarray, np.ndarray]) -> None:
    scores, target = classified
    assert over_batches(Accuracy(), scores, target, (1, 30)) == pytest.approx((scores.argmax(1) == target).mean())
    for k in (1, 2, 6):
        expected = reference.top_k_accuracy_score(target, scores, k=k, labels=range(6)) if k < 6 else 1.0
        assert over_batches(TopK(k), scores, target, (1, 30)) == pytest.approx(expected)


def test_where_the_classes_are() -> None:
    rng = np.random.default_rng(0)
    images, truth = rng.normal(size=(2, 5, 3, 4)), rng.integers(0, 5, (2, 3, 4))
    assert over_batches(Accuracy(), images, truth, ()) == pytest.approx((images.argmax(1) == truth).mean())
    words, truth = rng.normal(size=(2, 3, 5)), rng.integers(0, 5, (2, 3))
    assert over_batches(Accuracy(), words, truth, ()) == pytest.approx((words.argmax(2) == truth).mean())
    square, truth = rng.normal(size=(2, 3, 3)), rng.integers(0, 3, (2, 3))  # either would fit
    assert over_batches(Accuracy(axis=1), square, truth, ()) == pytest.approx((square.argmax(1) == truth).mean())
    logits, truth = rng.normal(size=8), rng.integers(0, 2, 8)
    assert over_batches(Accuracy(), logits, truth, ()) == pytest.approx(((logits > 0) == truth).mean())
    assert over_batches(F1("micro"), logits, truth, ()) == pytest.approx(((logits > 0) == truth).mean())
    with pytest.raises(
        ValueError, match=r"accuracy: scores and classes do not fit. Got output \(2, 5\) and target \(3,\)"
    ):
        Accuracy().measure(wf.zeros((2, 5)), wf.zeros((3,), dtype=wf.int64))


def test_regression_metrics() -> None:
    rng = np.random.default_rng(1)
    target = rng.normal(5, 2, 40).astype(np.float32)
    output = target + rng.normal(0, 0.5, 40).astype(np.float32)
    sizes = (3, 10)
    assert over_batches(MeanSquaredError(), output, target, sizes) == pytest.approx(np.mean((output - target) ** 2))
    assert over_batches(MeanAbsoluteError(), output, target, sizes) == pytest.approx(np.abs(output - target).mean())
    assert over_batches(R2(), output, target, sizes) == pytest.approx(reference.r2_score(target, output), rel=1e-4)
    with pytest.raises(ValueError, match="mse: output and target differ in shape"):
        MeanSquaredError().measure(wf.zeros((4, 1)), wf.zeros(4))


def test_a_function_is_a_metric_and_weighs_by_samples() -> None:
    def spread(output: wf.Tensor, target: wf.Tensor) -> wf.Tensor:
        return wf.max(output)

    (metric,) = as_metrics(spread)
    output = np.array([1.0, 5.0, 2.0], np.float32)
    assert metric.name == "spread" and over_batches(metric, output, output, (1,)) == pytest.approx((1 * 1 + 2 * 5) / 3)
    assert np.isnan(Mean(spread).result(np.zeros(2)))


def test_metrics_by_name() -> None:
    names = [m.name for m in as_metrics(["accuracy", "top5", "f1", "mse", TopK(3), Recall])]
    assert names == ["accuracy", "top5", "f1", "mse", "top3", "recall"]
    assert [m.name for m in as_metrics({"right": "accuracy"})] == ["right"] and as_metrics(None) == []
    for wrong, words in (("acuracy", "unknown metric 'acuracy'"), (["f1", "f1"], "a unique name"), (TopK, None)):
        if words is not None:
            with pytest.raises(ValueError, match=words):
                as_metrics(wrong)
    with pytest.raises(TypeError, match="Got int"):
        as_metrics([3])
    with pytest.raises(ValueError, match="k must be at least 1"):
        TopK(0)
    with pytest.raises(ValueError, match="macro, micro or weighted"):
        F1("mean")


def test_batch_length() -> None:
    assert batch_length((wf.zeros((3, 2)), wf.zeros(3))) == 3
    assert batch_length({"a": [wf.zeros(())], "b": np.zeros((4, 1))}) == 4
    assert batch_length("text") == 1
