"""Every model has its known number of parameters and learns a tiny batch by heart."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft import models
from weft.nn import functional as F

COUNTS = {
    "alexnet": 61_100_840, "resnet18": 11_689_512, "resnet34": 21_797_672, "resnet50": 25_557_032,
    "mobilenet_v1": 4_231_976, "mobilenet_v2": 3_504_872,
}  # fmt: skip
LAYERS = {"vgg11": 132_863_336, "vgg16": 138_357_544, "vgg19": 143_667_240}


def _count(model):
    return sum(p.size for p in model.parameters())


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_count(name):
    assert _count(getattr(models, name)()) == COUNTS[name]


@pytest.mark.parametrize("name", LAYERS)
def test_vgg_parameter_count_from_its_layers(name):
    """Without building 140 million numbers three times."""
    total, channels = 0, 3
    for width in models.vgg.LAYERS[int(name[3:])]:
        if width != "M":
            total += channels * width * 9 + width
            channels = width
    assert total + 25088 * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 1000 + 1000 == LAYERS[name]


def _learns(model, inputs, target, loss_fn, steps, rate=0.02, captured=True):
    ps = list(model.parameters())
    moments = [wf.zeros(*p.shape) for p in ps]

    def step(*args):
        loss = loss_fn(model(*args[:-1]), args[-1])
        for p in ps:
            p.grad = None
        loss.backward()
        with wf.no_grad():
            for p, m in zip(ps, moments, strict=True):
                m *= 0.9
                m += p.grad
                p -= rate * m
        return loss

    run = wf.function(step) if captured else step
    losses = [run(*inputs, target).item() for _ in range(steps)]
    assert np.isfinite(losses).all() and losses[-1] < 0.5 * losses[0], losses


def _images(n, size, seed=0):
    rng = np.random.default_rng(seed)
    return wf.tensor(rng.standard_normal((n, 3, size, size)).astype("f")), wf.tensor(np.arange(n) % 4)




@pytest.mark.parametrize(
    ("make", "size", "rate"),
    [
        (lambda: models.resnet18(num_classes=4), 32, 0.02),
        (lambda: models.mobilenet_v2(num_classes=4, dropout=0.0), 32, 0.02),
        (lambda: models.mobilenet_v1(num_classes=4, width=0.25), 32, 0.05),
        (lambda: models.vit_tiny(16, 4, num_classes=4), 16, 0.02),
    ],
    ids=["resnet18", "mobilenet_v2", "mobilenet_v1", "vit"],
)
def test_image_model_learns_a_batch_by_heart(make, size, rate):
    wf.manual_seed(0)
    x, y = _images(8, size)
    _learns(make(), [x], y, F.cross_entropy, 20, rate)


def test_ncf_learns_a_batch_by_heart():
    wf.manual_seed(0)
    rng = np.random.default_rng(0)
    model = models.ncf(50, 40, 8, (16, 16, 8))
    users, items = wf.tensor(rng.integers(0, 50, 64)), wf.tensor(rng.integers(0, 40, 64))
    likes = wf.tensor((rng.random(64) < 0.5).astype("f"))
    _learns(model, [users, items], likes, F.binary_cross_entropy_with_logits, 400, 0.5)


def test_gnmt_learns_a_batch_by_heart():
    wf.manual_seed(0)
    rng = np.random.default_rng(0)
    model = models.gnmt_v2(vocabulary=20, width=16, layers=3, dropout=0.0)
    source, target = wf.tensor(rng.integers(0, 20, (4, 5))), wf.tensor(rng.integers(0, 20, (4, 6)))

    def loss(logits, expected):
        return F.cross_entropy(logits.reshape(-1, 20), expected.reshape(-1))

    _learns(model, [source, target], target, loss, 120, 0.5)


def test_alexnet_and_vgg_run_forward():
    wf.manual_seed(0)
    with wf.no_grad():
        x, _ = _images(1, 64)
        assert models.alexnet(num_classes=5)(x).shape == (1, 5)
