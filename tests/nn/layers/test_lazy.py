"""Layers whose input size follows from the first input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import nn, optim


def net() -> nn.Sequential:
    return nn.Sequential(nn.LazyConv2d(4, 3, groups=2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3))


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_the_first_input_makes_them_ordinary_layers_that_train(captured: bool) -> None:
    wf.manual_seed(0)
    model = net()
    opt = optim.SGD(model.parameters(), lr=0.1)  # made before any shape is known
    x = wf.tensor(np.random.default_rng(0).normal(size=(2, 2, 5, 5)).astype("f"))

    def step(x: wf.Tensor) -> wf.Tensor:
        loss = (model(x) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    run = wf.function(step) if captured else step
    losses = [run(x).item() for _ in range(5)]
    assert losses[-1] < losses[0]
    assert type(model[0]) is nn.Conv2d and model[0].in_channels == 2 and model[0].weight.shape == (4, 1, 3, 3)
    assert type(model[3]) is nn.Linear and model[3].in_features == 36
    assert type(model[3].weight) is nn.Parameter and abs(model[3].weight.detach().numpy()).max() <= 1 / 6 + 0.2


@pytest.mark.parametrize(
    ("lazy", "full", "shape"),
    [
        (lambda: nn.LazyConv1d(4, 3, stride=2), lambda: nn.Conv1d(2, 4, 3, stride=2), (1, 2, 7)),
        (lambda: nn.LazyConv3d(2, 2), lambda: nn.Conv3d(3, 2, 2), (3, 4, 4, 4)),
        (lambda: nn.LazyConvTranspose1d(4, 3), lambda: nn.ConvTranspose1d(2, 4, 3), (1, 2, 7)),
        (lambda: nn.LazyConvTranspose2d(4, 3, groups=2), lambda: nn.ConvTranspose2d(2, 4, 3, groups=2), (1, 2, 4, 4)),
        (lambda: nn.LazyConvTranspose3d(2, 2), lambda: nn.ConvTranspose3d(3, 2, 2), (1, 3, 2, 2, 2)),
    ],
)
def test_they_start_like_the_layers_they_become(lazy: Any, full: Any, shape: tuple[int, ...]) -> None:
    wf.manual_seed(3)
    expected = full()
    made = lazy()
    wf.manual_seed(3)
    y = made(wf.ones(*shape))
    assert type(made) is type(expected) and repr(made) == repr(expected)
    np.testing.assert_array_equal(y.detach().numpy(), expected(wf.ones(*shape)).detach().numpy())


def test_a_state_dict_tells_the_sizes_too() -> None:
    trained = net()
    x = wf.ones(1, 2, 5, 5)
    y = trained(x)
    fresh = net()
    assert "UninitializedParameter" in repr(fresh[3].weight)
    fresh.load_state_dict(trained.state_dict())
    assert fresh[3].weight.shape == (3, 36)
    np.testing.assert_array_equal(fresh(x).detach().numpy(), y.detach().numpy())
    assert fresh[0].in_channels == 2


def test_inputs_that_tell_no_size_are_errors() -> None:
    with pytest.raises(ValueError, match="LazyConv2d: expected an input of at least 3 axes"):
        nn.LazyConv2d(4, 3)(wf.ones(5, 5))
    with pytest.raises(ValueError, match="LazyConv2d: groups=2 does not divide the 3 channels"):
        nn.LazyConv2d(4, 3, groups=2)(wf.ones(1, 3, 5, 5))
