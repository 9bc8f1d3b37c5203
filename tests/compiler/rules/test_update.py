"""Weight gradient and optimiser step in one kernel: the results of two separate steps, and only where fusion is legal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import nn, optim
from weft.compiler import tuning
from weft.compiler.lowering.rules import update
from weft.nn import functional as F

OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, lr=0.05),
    "momentum": lambda p: optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True),
    "adam": lambda p: optim.Adam(p, lr=0.01),
    "adamw": lambda p: optim.AdamW(p, lr=0.01),
}


def _train(optimizer: str, sizes: tuple[int, ...], batch: int, clip: bool = False, **options: Any) -> tuple[Any, ...]:
    """Three steps; the fused steps of the program, the losses and the weights."""
    wf.manual_seed(0)
    layers: list[Any] = []
    for i, o in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(i, o), nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    parameters = list(model.parameters())
    opt = OPTIMIZERS[optimizer](parameters)
    rng = np.random.default_rng(0)
    x = wf.tensor(rng.standard_normal((batch, sizes[0])).astype(np.float32))
    y = wf.tensor(rng.integers(0, sizes[-1], batch))

    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(parameters, 0.1)
        opt.step()
        return loss

    run = wf.function(step, **options)
    losses = [run(x, y).item() for _ in range(3)]
    fused = [s.label for s in run.traces[0].compiled.program.steps if s.label.startswith("matmul+")]
    return fused, losses, [p.detach().numpy().copy() for p in parameters]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fuse small layers too, so that the tests need no large ones."""
    monkeypatch.setattr(update, "MIN_RESULT_ELEMENTS", 4096)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.usefixtures("small")
def test_fused_updates_agree_with_separate_ones(optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (250, 517, 131, 10)  # neither rows nor columns fill the tiles
    fused, losses, weights = _train(optimizer, sizes, 19)
    assert len(fused) == 2
    monkeypatch.setattr(update, "MIN_RESULT_ELEMENTS", 1 << 60)
    plain, expected_losses, expected = _train(optimizer, sizes, 19)
    assert not plain
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    for got, want in zip(weights, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5)


@pytest.mark.usefixtures("small")
def test_wide_layers_are_cut_into_blocks() -> None:
    fused, losses, weights = _train("momentum", (1300, 40, 3), 20)
    assert len(fused) == 1
    wf.manual_seed(0)
    model = nn.Sequential(nn.Linear(1300, 40), nn.ReLU(), nn.Linear(40, 3))
    opt = OPTIMIZERS["momentum"](list(model.parameters()))
    rng = np.random.default_rng(0)
    x = wf.tensor(rng.standard_normal((20, 1300)).astype(np.float32))
    y = wf.tensor(rng.integers(0, 3, 20))
    for loss in losses:
        eager = F.cross_entropy(model(x), y)
        opt.zero_grad()
        eager.backward()
        opt.step()
        assert loss == pytest.approx(eager.item(), rel=1e-5)
    for got, want in zip(weights, model.parameters(), strict=True):
        np.testing.assert_allclose(got, want.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("small")
def test_a_gradient_that_others_need_is_not_fused() -> None:
    assert not _train("sgd", (250, 517, 10), 19, clip=True)[0]
    assert not _train("sgd", (250, 517, 10), 19, keep_grads=True)[0]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("way", "fused"), [("library", []), ("blocks", ["matmul+add+relu", "matmul+descend"])])
def test_deep_products_stay_with_the_library_where_it_is_faster(way: str, fused: list[str]) -> None:
    with tuning.forced(way):
        assert _train("sgd", (250, 517, 10), update.MAX_SHALLOW_DEPTH + 1)[0] == fused


@pytest.mark.usefixtures("small")
def test_bits_do_not_depend_on_the_number_of_threads(at_widths) -> None:
    results = at_widths(lambda: _train("adam", (250, 517, 10), 19)[2])
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)
