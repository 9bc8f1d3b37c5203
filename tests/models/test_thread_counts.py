"""Training steps of the zoo have the same bits for any number of threads, eagerly and captured."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import models, nn, optim
from weft.nn import functional as F
from weft.runtime import threads

MODES = [
    pytest.param(False, (1, 2, 4), id="eager"),
    pytest.param(True, (1, 4), id="captured"),  # the captured step is compiled again for each number of threads
    pytest.param(True, (1, 2, 3), id="captured-2-3", marks=pytest.mark.slow),
]


@pytest.fixture(autouse=True)
def restore_width() -> Iterator[None]:
    before = threads.get_num_threads()
    yield
    threads.set_num_threads(before)


def _images(n: int, size: int, channels: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((n, channels, size, size), np.float32), np.arange(n) % 4]


def _numbers(n: int, size: int) -> list[np.ndarray]:
    return [np.random.default_rng(0).standard_normal((n, size), np.float32), np.arange(n) % 4]


def _tokens(vocabulary: int, *shape: int, inputs: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, vocabulary, shape) for _ in range(inputs + 1)]


def _ratings(n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 500, n), rng.integers(0, 300, n), (rng.random(n) < 0.5).astype(np.float32)]


def _sgd(parameters: Any) -> Any:
    return optim.SGD(parameters, lr=0.01, momentum=0.9)


# name: the model, its data (inputs and target), its optimiser. Sizes such that every layer's work is shared out.
ZOO: dict[str, tuple[Callable[[], Any], Callable[[], list[np.ndarray]], Callable[[Any], Any]]] = {
    "alexnet": (lambda: models.AlexNet(4, hidden=256), lambda: _images(4, 80), _sgd),
    "vgg11": (lambda: models.VGG(models.vgg.LAYERS[11], 4, hidden=128), lambda: _images(2, 32), _sgd),
    "resnet18": (lambda: models.resnet18(4), lambda: _images(3, 32), _sgd),
    "resnet50": (lambda: models.resnet50(4), lambda: _images(2, 32), _sgd),
    "one_image": (lambda: models.resnet18(4).eval(), lambda: _images(1, 64), _sgd),
    "mobilenet_v1": (lambda: models.mobilenet_v1(4, width=0.5), lambda: _images(4, 48), _sgd),
    "mobilenet_v2": (lambda: models.mobilenet_v2(4), lambda: _images(4, 48), _sgd),
    "lenet": (lambda: models.lenet(4), lambda: _images(32, 28, 1), _sgd),
    "mlp": (lambda: models.mlp(784, 10, (512, 512), dropout=0.1), lambda: _numbers(128, 784), _sgd),
    "vit_tiny": (lambda: models.vit_tiny(num_classes=4), lambda: _images(4, 32), optim.AdamW),
    "gpt": (lambda: models.gpt(512, 64, 2, 4, 128), lambda: _tokens(512, 8, 64), optim.AdamW),
    "gnmt_v2": (lambda: models.gnmt_v2(500, 128, 3), lambda: _tokens(500, 16, 8, inputs=2), _sgd),
    "ncf": (lambda: models.ncf(500, 300, 64, (256, 256, 128, 64)), lambda: _ratings(4096), optim.Adam),
    "ncf_sparse": (
        lambda: models.ncf(500, 300, 64, (256, 256, 128, 64), sparse=True), lambda: _ratings(4096), optim.SparseAdam,
    ),
}  # fmt: skip
SAME_ARCHITECTURE = {"resnet34": "resnet18", "vgg16": "vgg11", "vgg19": "vgg11", "vit_b_16": "vit_tiny"}


def test_every_model_is_in_the_table() -> None:
    assert set(models.constructors()) - set(ZOO) == set(SAME_ARCHITECTURE)


def _digest(name: str, captured: bool) -> str:
    """Of the losses of two steps, and of all parameters and buffers after them."""
    make, data, optimizer = ZOO[name]
    wf.manual_seed(5)
    model = make()
    opt = optimizer(list(model.parameters()))

    def step(*args: Any) -> Any:
        *inputs, target = args
        out = model(*inputs)
        if name.startswith("ncf"):
            loss = F.binary_cross_entropy_with_logits(out, target)
        else:
            loss = F.cross_entropy(out.reshape(-1, out.shape[-1]), target.reshape(-1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    run = wf.function(step) if captured else step
    arguments = [wf.tensor(a) for a in data()]
    digest = hashlib.sha256()
    for _ in range(2):
        digest.update(run(*arguments).detach().numpy().tobytes())
    for value in (*model.parameters(), *model.buffers()):
        array = value.detach().numpy()
        assert array.dtype.kind != "f" or np.isfinite(array).all()
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize(("captured", "widths"), MODES)
@pytest.mark.parametrize("name", ZOO)
@pytest.mark.timeout(300)
def test_training_has_the_same_bits_for_any_number_of_threads(
    name: str, captured: bool, widths: tuple[int, ...]
) -> None:
    found = {}
    for width in widths:
        threads.set_num_threads(width)
        found[width] = _digest(name, captured)
    assert len(set(found.values())) == 1, found


def test_a_captured_step_may_change_its_number_of_threads() -> None:
    """A program that was compiled for one number runs with another, with the same results."""
    model, x = nn.Conv2d(3, 16, 3, padding=1), wf.tensor(_images(8, 32)[0])

    @wf.function
    def gradient(x: Any) -> Any:
        (model(x) ** 2).sum().backward()
        grad, model.weight.grad = model.weight.grad, None
        return grad

    found = []
    for width in (2, 1, 4):
        threads.set_num_threads(width)
        found.append(gradient(x).numpy().copy())
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])
