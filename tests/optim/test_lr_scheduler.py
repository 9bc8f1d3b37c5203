"""Schedules against PyTorch's numbers (2.13), and what all of them share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import nn, optim
from weft.optim import lr_scheduler as S


def optimizer(kind: Any = optim.SGD, **settings: Any) -> optim.Optimizer:
    if kind is optim.SGD:
        settings.setdefault("momentum", 0.9)
    return kind([nn.Parameter(wf.ones(1))], lr=0.5, **settings)


EXPECTED: dict[str, tuple[Callable[[optim.Optimizer], Any], list[float]]] = {
    "StepLR": (
        lambda o: S.StepLR(o, 3, 0.5),
        [0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125, 0.125, 0.125, 0.0625, 0.0625, 0.0625],
    ),
    "MultiStepLR": (
        lambda o: S.MultiStepLR(o, [2, 5, 5, 9], 0.5),
        [0.5, 0.5, 0.25, 0.25, 0.25, 0.0625, 0.0625, 0.0625, 0.0625, 0.03125, 0.03125, 0.03125],
    ),
    "ExponentialLR": (
        lambda o: S.ExponentialLR(o, 0.9),
        [0.5, 0.45, 0.405, 0.3645, 0.32805, 0.295245, 0.2657205, 0.23914845, 0.215233605, 0.1937102445, 0.1743392201],
    ),
    "CosineAnnealingLR": (
        lambda o: S.CosineAnnealingLR(o, 8, 0.1),
        [0.5, 0.4847759065, 0.4414213562, 0.3765366865, 0.3, 0.2234633135, 0.1585786438, 0.1152240935, 0.1,
         0.1152240935, 0.1585786438, 0.2234633135],
    ),
    "CosineAnnealingWarmRestarts": (
        lambda o: S.CosineAnnealingWarmRestarts(o, 3, 2, 0.1),
        [0.5, 0.4, 0.2, 0.5, 0.4732050808, 0.4, 0.3, 0.2, 0.1267949192, 0.5, 0.4931851653, 0.4732050808],
    ),
    "LinearLR": (lambda o: S.LinearLR(o, 0.25, 1.0, 5), [0.125, 0.2, 0.275, 0.35, 0.425, 0.5, 0.5, 0.5]),
    "LinearWarmup": (lambda o: S.LinearWarmup(o, 4), [0.125, 0.25, 0.375, 0.5, 0.5, 0.5]),
    "ConstantLR": (lambda o: S.ConstantLR(o, 0.25, 4), [0.125, 0.125, 0.125, 0.125, 0.5, 0.5]),
    "PolynomialLR": (
        lambda o: S.PolynomialLR(o, 8, 2.0),
        [0.5, 0.3828125, 0.28125, 0.1953125, 0.125, 0.0703125, 0.03125, 0.0078125, 0.0, 0.0],
    ),
    "LambdaLR": (lambda o: S.LambdaLR(o, lambda t: 1 / (t + 1)), [0.5, 0.25, 0.1666666667, 0.125, 0.1]),
    "OneCycleLR": (
        lambda o: S.OneCycleLR(o, 2.0, 12),
        [0.08, 0.6995793084, 1.7585703182, 1.9888308709, 1.8660259397, 1.6234913079, 1.2947579954, 0.9252742053,
         0.5661219964, 0.2669550604, 0.0691339749],
    ),
    "OneCycleLR in three phases": (
        lambda o: S.OneCycleLR(o, 2.0, 12, three_phase=True, anneal_strategy="linear", pct_start=0.4),
        [0.08, 0.5852631579, 1.0905263158, 1.5957894737, 1.8989473684, 1.3936842105, 0.8884210526, 0.3831578947,
         0.0705891765, 0.0470621176, 0.0235350588],
    ),
    "MultiplicativeLR": (
        lambda o: S.MultiplicativeLR(o, lambda t: 1 / (t + 1)),
        [0.5, 0.25, 0.0833333333, 0.0208333333, 0.0041666667],
    ),
    "CyclicLR": (
        lambda o: S.CyclicLR(o, 0.1, 0.9, 2, 3),
        [0.1, 0.5, 0.9, 0.6333333333, 0.3666666667, 0.1, 0.5, 0.9, 0.6333333333, 0.3666666667, 0.1, 0.5],
    ),
    "CyclicLR that halves": (
        lambda o: S.CyclicLR(o, 0.1, 0.9, 2, mode="triangular2"),
        [0.1, 0.5, 0.9, 0.5, 0.1, 0.3, 0.5, 0.3, 0.1, 0.2, 0.3, 0.2],
    ),
    "CyclicLR that decays": (
        lambda o: S.CyclicLR(o, 0.1, 0.9, 3, mode="exp_range", gamma=0.9),
        [0.1, 0.34, 0.532, 0.6832, 0.44992, 0.257464, 0.1, 0.22754584, 0.329582512, 0.4099363912, 0.2859618347],
    ),
    "SequentialLR": (
        lambda o: S.SequentialLR(o, [S.LinearLR(o, 0.1, 1.0, 4), S.CosineAnnealingLR(o, 6)], [4]),
        [0.05, 0.1625, 0.275, 0.3875, 0.5, 0.4665063509, 0.375, 0.25, 0.125, 0.0334936491, 0.0, 0.0334936491],
    ),
    "ChainedScheduler": (
        lambda o: S.ChainedScheduler([S.ConstantLR(o, 0.1, 3), S.ExponentialLR(o, 0.9)]),
        [0.05, 0.045, 0.0405, 0.3645, 0.32805, 0.295245, 0.2657205, 0.23914845, 0.215233605, 0.1937102445],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_the_rates_are_pytorchs(name: str) -> None:
    make, expected = EXPECTED[name]
    opt = optimizer()
    schedule = make(opt)
    found = []
    for _ in expected:
        found.append(opt.param_groups[0]["lr"])
        schedule.step()
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_schedule_resumes(name: str) -> None:
    make, _ = EXPECTED[name]
    first, second = optimizer(), optimizer()
    one = make(first)
    for _ in range(4):
        one.step()
    two = make(second)
    two.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert two.get_last_lr() == one.get_last_lr()
    one.step()
    two.step()
    assert two.get_last_lr() == one.get_last_lr()


def test_one_cycle_moves_the_momentum_the_other_way() -> None:
    expected = [0.95, 0.9177302444, 0.8625744626, 0.8505584587, 0.8566987298, 0.8688255099, 0.8852622413]
    sgd, adam = optimizer(), optimizer(optim.Adam)
    schedules = [S.OneCycleLR(o, 2.0, 12) for o in (sgd, adam)]
    found = []
    for _ in expected:
        found.append((sgd.param_groups[0]["momentum"], adam.param_groups[0]["betas"][0]))
        for s in schedules:
            s.step()
    np.testing.assert_allclose(found, [[e, e] for e in expected], rtol=1e-8)
    with pytest.raises(ValueError, match="step 13 is beyond total_steps=12"):
        for _ in range(9):
            schedules[0].step()


@pytest.mark.parametrize(
    ("settings", "metrics", "expected"),
    [
        (
            {"factor": 0.5, "patience": 1, "cooldown": 1},
            [1, 0.9, 0.95, 0.95, 0.95, 0.95, 0.95, 0.95, 0.5, 0.6, 0.6, 0.6],
            [0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125, 0.125, 0.125, 0.125, 0.0625],
        ),
        (
            {"mode": "max", "factor": 0.5, "patience": 0, "threshold": 0.1, "threshold_mode": "abs", "min_lr": 0.1},
            [1, 1.05, 1.2, 1.2, 1.4, 1.4, 1.4, 1.4, 0.5, 0.6, 0.6, 0.6],
            [0.5, 0.5, 0.25, 0.25, 0.125, 0.125, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1],
        ),
    ],
)
def test_reduce_on_plateau(settings: dict[str, Any], metrics: list[float], expected: list[float]) -> None:
    opt = optimizer()
    schedule = S.ReduceLROnPlateau(opt, **settings)
    found = []
    for i, metric in enumerate(metrics):
        found.append(opt.param_groups[0]["lr"])
        schedule.step(wf.tensor(metric) if i % 2 else metric)
        if i == 5:  # continue with another object half-way
            state = json.loads(json.dumps(schedule.state_dict()))
            schedule = S.ReduceLROnPlateau(opt, **settings)
            schedule.load_state_dict(state)
    np.testing.assert_allclose(found, expected)


def test_groups_keep_their_own_base() -> None:
    p, q = nn.Parameter(wf.ones(1)), nn.Parameter(wf.ones(1))
    opt = optim.SGD([{"params": [p]}, {"params": [q], "lr": 2.0}], lr=1.0)
    schedule = S.LambdaLR(opt, [lambda t: 1.0, lambda t: 0.5**t])
    schedule.step()
    assert schedule.get_last_lr() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda o: S.StepLR(o, 0), "step_size must be at least 1"),
        (lambda o: S.CosineAnnealingLR(o, 0), "T_max must be at least 1"),
        (lambda o: S.OneCycleLR(o, 1.0), "give total_steps"),
        (lambda o: S.CyclicLR(o, 0.1, 0.2, 0), "step sizes of at least 1"),
        (lambda o: S.CyclicLR(o, 0.1, 0.2, 5, mode="sawtooth"), "needs mode"),
        (lambda o: S.OneCycleLR(o, [1.0, 2.0], 5), "expected one number, or 1, one per group"),
        (lambda o: S.SequentialLR(o, [S.ConstantLR(o)], [3]), "expected 0 rising milestones"),
        (lambda o: S.LambdaLR(o, [lambda t: 1.0] * 2), "expected 1 functions"),
        (lambda o: S.ReduceLROnPlateau(o, "best"), "mode 'min' or 'max'"),
        (lambda o: S.OneCycleLR(optimizer(optim.Adagrad), 1.0, 5), "has no momentum"),
        (lambda o: S.StepLR(o, 1).load_state_dict({"last_epoch": 1, "base_lrs": [1.0, 2.0]}), "the state has 2 groups"),
    ],
)
def test_bad_input(make: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make(optimizer())


def test_cyclic_momentum_goes_the_other_way() -> None:
    opt = optimizer()
    schedule = S.CyclicLR(opt, 0.1, 0.9, 2, 3)
    found = []
    for _ in range(6):
        found.append(opt.param_groups[0]["momentum"])
        schedule.step()
    np.testing.assert_allclose(found, [0.9, 0.85, 0.8, 0.8333333333, 0.8666666667, 0.9])


def test_a_multiplicative_schedule_resumes_from_its_state() -> None:
    whole, part = optimizer(), optimizer()
    schedule = S.MultiplicativeLR(whole, lambda t: 1 / (t + 1))
    for _ in range(4):
        schedule.step()
    S.MultiplicativeLR(part, lambda t: 1 / (t + 1)).load_state_dict(json.loads(json.dumps(schedule.state_dict())))
    assert part.param_groups[0]["lr"] == whole.param_groups[0]["lr"]
