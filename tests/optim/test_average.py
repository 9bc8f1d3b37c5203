"""Averages of weights, and gradients gathered over batches."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft import nn, optim


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_ema_follows_its_formula(captured: bool) -> None:
    p = nn.Parameter(wf.zeros(2, dtype=wf.float64))
    ema = optim.EMA([p], decay=0.75)
    update = wf.function(ema.update) if captured else ema.update
    expected = np.zeros(2)
    for i in range(5):
        with wf.no_grad():
            p.fill_(float(i))
        update()
        expected = 0.75 * expected + 0.25 * i
    np.testing.assert_allclose(ema.averages[0].numpy(), expected, rtol=1e-12)
    assert ema.steps.item() == 5


def test_ema_warms_up() -> None:
    p = nn.Parameter(wf.zeros(1))
    ema = optim.EMA([p], decay=0.999, warmup=True)
    with wf.no_grad():
        p.fill_(1.0)
    ema.update()
    np.testing.assert_allclose(ema.averages[0].numpy(), [1 - 2 / 11], rtol=1e-6)


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_swa_is_the_mean(captured: bool) -> None:
    p = nn.Parameter(wf.zeros(1, dtype=wf.float64))
    swa = optim.SWA([p])
    update = wf.function(swa.update) if captured else swa.update
    for i in (1.0, 2.0, 6.0):
        with wf.no_grad():
            p.fill_(i)
        update()
    np.testing.assert_allclose(swa.averages[0].numpy(), [3.0], rtol=1e-6)


def test_averages_stand_in_for_the_weights_and_leave_again() -> None:
    model = nn.BatchNorm1d(2)
    weight = model.weight.detach()
    ema = optim.EMA(model, decay=0.5)
    with wf.no_grad():
        model.weight.fill_(3.0)
        model.num_batches_tracked.fill_(7)
    ema.update()
    with ema.applied():
        assert weight.tolist() == [2.0, 2.0]  # in place: an alias sees it
        assert model.num_batches_tracked.item() == 7
    assert weight.tolist() == [3.0, 3.0]
    ema.copy_to()
    assert weight.tolist() == [2.0, 2.0]


def test_ema_state_round_trip() -> None:
    p = nn.Parameter(wf.ones(2))
    one, two = optim.EMA([p], 0.9), optim.EMA([p], 0.5)
    with wf.no_grad():
        p.fill_(5.0)
    one.update()
    two.load_state_dict(one.state_dict())
    assert two.averages[0].tolist() == one.averages[0].tolist()
    assert (two.steps.item(), two.decay) == (1.0, 0.9)
    with pytest.raises(ValueError, match=r"expected averages of shapes \[\(3,\)\]"):
        optim.EMA([nn.Parameter(wf.ones(3))]).load_state_dict(one.state_dict())


def test_ema_refuses_what_it_cannot_average() -> None:
    with pytest.raises(ValueError, match="decay must be between 0 and 1"):
        optim.EMA([nn.Parameter(wf.ones(1))], 1.5)
    with pytest.raises(TypeError, match="expected a module or tensors"):
        optim.EMA([])


def test_accumulated_batches_are_one_large_batch() -> None:
    x, y = wf.randn(8, 3), wf.randn(8, 2)
    one, two = nn.Linear(3, 2), nn.Linear(3, 2)
    two.load_state_dict(one.state_dict())
    loss = nn.MSELoss()
    first, second = optim.SGD(one.parameters(), lr=0.1), optim.SGD(two.parameters(), lr=0.1)
    loss(one(x), y).backward()
    first.step()
    accumulate = optim.GradientAccumulator(second, every=4)
    done = []
    for i in range(4):
        part = slice(2 * i, 2 * i + 2)
        accumulate.backward(loss(two(x[part]), y[part]))
        done.append(accumulate.step())
    assert done == [False, False, False, True]
    assert two.weight.grad is None
    np.testing.assert_allclose(two.weight.detach().numpy(), one.weight.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_flush_uses_the_mean_of_what_there_is_and_clips() -> None:
    p = nn.Parameter(wf.zeros(2))
    opt = optim.SGD([p], lr=1.0)
    accumulate = optim.GradientAccumulator(opt, every=4)
    for g in ([1.0, 0.0], [3.0, 2.0]):
        accumulate.backward((p * wf.tensor(g)).sum())
        assert not accumulate.step()
    state = accumulate.state_dict()
    accumulate.flush()
    np.testing.assert_allclose(p.detach().numpy(), [-2.0, -1.0])
    assert state == {"batches": 2}
    clipped = optim.GradientAccumulator(opt, every=1, max_norm=1.0)
    clipped.backward((p * wf.tensor([30.0, 40.0])).sum())
    assert clipped.step()
    np.testing.assert_allclose(p.detach().numpy(), [-2.6, -1.8], rtol=1e-5)
