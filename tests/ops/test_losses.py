"""Losses beyond their records: broadcasting is refused, targets are checked, known values, precision, ignored rows."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft as wf
from weft.nn import functional as F

PAIRS = [
    F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy, F.binary_cross_entropy_with_logits,
    F.kl_div, F.poisson_nll_loss, F.hinge_embedding_loss, F.soft_margin_loss,
]  # fmt: skip


@pytest.mark.parametrize("loss", PAIRS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("shapes", [((4, 1), (4,)), ((4,), (4, 1)), ((4,), (1,)), ((2, 3), (3,)), ((4,), ())])
def test_operands_that_would_broadcast_are_refused(loss, shapes):
    a, b = (wf.full(s, 0.5) for s in shapes)
    with pytest.raises(ValueError, match="must have one shape; a loss does not broadcast"):
        loss(a, b)


def test_three_operand_losses_refuse_broadcasting():
    x, y, row = wf.ones(4, 3), wf.ones(4, 3), wf.ones(3)
    for call in (
        lambda: F.triplet_margin_loss(x, y, row),
        lambda: F.triplet_margin_loss(x, row, y),
        lambda: F.cosine_embedding_loss(x, row, wf.ones(4)),
        lambda: F.margin_ranking_loss(x, y, wf.ones(4)),
        lambda: F.gaussian_nll_loss(x, row, y),
        lambda: F.cross_entropy(x, wf.full((1, 3), 1 / 3)),
    ):
        with pytest.raises(ValueError, match="one shape"):
            call()


@pytest.mark.parametrize("target", [[0, 3], [0, -1], [2**40, 0]])
@pytest.mark.parametrize(
    "options", [{}, {"weight": True}, {"label_smoothing": 0.1}, {"weight": True, "label_smoothing": 0.1}]
)
def test_a_target_out_of_range_is_an_index_error_with_its_value(target, options):
    options = {k: wf.ones(3) if k == "weight" else v for k, v in options.items()}
    bad = next(v for v in target if not 0 <= v < 3)
    with pytest.raises(IndexError, match=f"target holds {bad}; expected classes 0 to 2"):
        F.cross_entropy(wf.zeros(2, 3), wf.tensor(target), **options)
    if "label_smoothing" not in options:
        with pytest.raises(IndexError, match=f"target holds {bad}"):
            F.nll_loss(wf.zeros(2, 3), wf.tensor(target), **options)


def test_cross_entropy_of_huge_logits_is_finite_and_its_gradient_exact():
    x = wf.tensor([[1e4, -1e4], [-1e4, 1e4]], requires_grad=True)
    loss = F.cross_entropy(x, wf.tensor([0, 0]))
    assert loss.item() == 1e4
    loss.backward()
    assert x.grad.tolist() == [[0.0, 0.0], [-0.5, 0.5]]


def test_ignored_rows_get_no_gradient_and_do_not_count():
    x = wf.randn(4, 3, generator=wf.Generator(0)).requires_grad_()
    target = wf.tensor([0, -100, 2, -100])
    loss = F.cross_entropy(x, target)
    np.testing.assert_allclose(loss.item(), F.cross_entropy(x[[0, 2]], target[[0, 2]]).item(), rtol=1e-6)
    loss.backward()
    assert np.abs(x.grad.numpy()[[1, 3]]).max() == 0 and np.abs(x.grad.numpy()[[0, 2]]).min() > 0
    assert math.isnan(F.cross_entropy(x, wf.full((4,), -100, dtype=wf.int64)).item())
    assert F.cross_entropy(x, target, reduction="none").tolist()[1] == 0


def test_class_numbers_and_one_hot_probabilities_agree():
    x = wf.randn(5, 4, 3, generator=wf.Generator(1), dtype=wf.float64)
    target = wf.randint(0, 4, (5, 3), generator=wf.Generator(2))
    probabilities = F.one_hot(target, 4).astype(wf.float64).permute_dims((0, 2, 1))
    for options in ({}, {"label_smoothing": 0.3}, {"reduction": "none"}):
        np.testing.assert_allclose(
            F.cross_entropy(x, target, **options).numpy(),
            F.cross_entropy(x, probabilities, **options).numpy(),
            rtol=1e-12,
        )


@pytest.mark.parametrize("dtype", [wf.float16, wf.bfloat16])
def test_half_precision_computes_in_float32(dtype):
    x = wf.randn(64, 100, generator=wf.Generator(0)).astype(dtype)
    target = wf.randint(0, 100, (64,), generator=wf.Generator(1))
    loss = F.cross_entropy(x, target)
    assert loss.dtype == dtype
    assert abs(loss.astype(wf.float32).item() - F.cross_entropy(x.astype(wf.float32), target).item()) < 0.05


def test_integer_predictions_and_targets_of_several_integer_dtypes():
    for dtype in (wf.int32, wf.uint8, wf.int64):
        assert abs(F.cross_entropy(wf.zeros(2, 4), wf.tensor([0, 3]).astype(dtype)).item() - math.log(4)) < 1e-6
    with pytest.raises(TypeError, match="class labels must be integers"):
        F.nll_loss(wf.zeros(2, 4), wf.tensor([0.0, 1.0]))


def test_bce_saturates_instead_of_overflowing():
    p = wf.tensor([0.0, 1.0, 0.0, 1.0])
    assert F.binary_cross_entropy(p, wf.tensor([0.0, 1.0, 1.0, 0.0]), reduction="none").tolist() == [0, 0, 100, 100]
    x = wf.tensor([-1e4, 1e4, 1e4], requires_grad=True)
    loss = F.binary_cross_entropy_with_logits(x, wf.tensor([0.0, 1.0, 0.0]), reduction="none")
    assert loss.tolist() == [0.0, 0.0, 1e4]
    loss.sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 1.0]


def test_empty_batches():
    x, t = wf.zeros(0, 3), wf.zeros(0, dtype=wf.int64)
    assert math.isnan(F.cross_entropy(x, t).item()) and F.cross_entropy(x, t, reduction="sum").item() == 0
    assert F.mse_loss(x, x, reduction="none").shape == (0, 3)


def test_a_classifier_learns():
    g = wf.Generator(0)
    x = wf.randn(64, 2, generator=g)
    target = (x[:, 0] * x[:, 1] > 0).astype(wf.int64)
    w1, w2 = (wf.randn(2, 16, generator=g).requires_grad_(), (wf.randn(16, 2, generator=g) * 0.3).requires_grad_())
    losses = []
    for _ in range(150):
        loss = F.cross_entropy(F.relu(x @ w1) @ w2, target)
        losses.append(loss.item())
        loss.backward()
        with wf.no_grad():
            for w in (w1, w2):
                w -= w.grad * 0.5
                w.grad = None
    assert losses[-1] < 0.2 < losses[0]
