"""L-BFGS against PyTorch 2.13's sequences, its line search, its state."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from tests.each import each
from weft import nn, optim
from weft.graph.capture.tracing import CaptureError
from weft.optim.lbfgs import strong_wolfe


def _problem(dtype=wf.float64):
    """Rosenbrock's function of four numbers and a number that follows the first."""
    x = nn.Parameter(wf.tensor([-1.2, 1.0, 0.5, -0.3], dtype=dtype))
    y = nn.Parameter(wf.tensor(2.0, dtype=dtype))

    def loss():
        rosenbrock = ((1 - x[:-1]) ** 2 + 100 * (x[1:] - x[:-1] ** 2) ** 2).sum()
        return rosenbrock + (y - x[0]) ** 2

    return x, y, loss


def _closure(optimizer, loss):
    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    return closure


# settings, the parameters and the losses after four steps, how often the function was evaluated, iterations
PYTORCH = {
    "fixed steps": (
        {"lr": 1e-3, "max_iter": 5},
        [-1.1949267981566953, 0.9962333193961779, 0.500539178690275, -0.28965358078561015, 1.9980371970714286],
        [89.94, 89.2847306345666, 88.61466283909989, 87.94273257999701], 20, 20,
    ),
    "line search": (
        {"line_search_fn": "strong_wolfe", "max_iter": 10},
        [0.9315461196059699, 0.8532327287602073, 0.7330130678603016, 0.5375657540513137, 0.9030385140719537],
        [89.94, 3.9402398251276574, 3.471490861701265, 1.4208896724768236], 47, 39,
    ),
    "short history": (
        {"line_search_fn": "strong_wolfe", "max_iter": 4, "history_size": 3, "lr": 0.5},
        [-0.26089722153437156, 0.07733113829189021, 0.008100063818072633, -0.002040620813697245, -0.21626648242442043],
        [89.94, 12.059411355389232, 10.576783430928272, 4.302336405809475], 21, 16,
    ),
    "few evaluations": (
        {"lr": 0.1, "max_iter": 20, "max_eval": 8, "history_size": 2},
        [-0.9298495719280773, 0.8688902066158479, 0.758344720678891, 0.5652656572973989, 1.000138192868927],
        [89.94, 32.75507340126343, 15.781646365285635, 11.263231476198206], 32, 28,
    ),
}  # fmt: skip


def test_sequences_are_pytorchs():
    def check(settings, position, losses, evaluations, iterations):
        x, y, loss = _problem()
        optimizer = optim.LBFGS([x, y], **settings)
        closure = _closure(optimizer, loss)
        found = [optimizer.step(closure).item() for _ in range(4)]
        np.testing.assert_allclose([*x.tolist(), y.item()], position, rtol=1e-8)
        np.testing.assert_allclose(found, losses, rtol=1e-9)
        state = optimizer.state_dict()["state"][0]
        assert (int(state["func_evals"]), int(state["n_iter"])) == (evaluations, iterations)

    each(check, PYTORCH)


def test_it_finds_the_minimum_in_single_precision_and_with_a_captured_loss():
    for dtype, captured in ((wf.float64, False), (wf.float32, False), (wf.float32, True)):
        x, y, loss = _problem(dtype)
        loss = wf.function(loss) if captured else loss
        optimizer = optim.LBFGS([x, y], max_iter=60, line_search_fn="strong_wolfe")
        for _ in range(4):
            optimizer.step(_closure(optimizer, loss))
        np.testing.assert_allclose(x.detach().numpy(), np.ones(4), atol=2e-3)


def test_a_step_at_the_minimum_changes_nothing():
    x = nn.Parameter(wf.zeros(3))
    optimizer = optim.LBFGS([x])
    loss = optimizer.step(_closure(optimizer, lambda: (x * x).sum()))
    assert loss.item() == 0 and x.tolist() == [0, 0, 0]
    assert int(optimizer._memory["n_iter"]) == 0


def test_parameters_without_gradients_stay():
    x, unused = nn.Parameter(wf.ones(2)), nn.Parameter(wf.ones(2))
    optimizer = optim.LBFGS([x, unused])
    optimizer.step(_closure(optimizer, lambda: (x * x).sum()))
    assert unused.tolist() == [1, 1] and x.abs().max().item() < 1e-3


def test_state_is_saved_and_continued():
    for settings in ({"lr": 0.1, "max_iter": 3}, {"line_search_fn": "strong_wolfe", "max_iter": 3}):
        x, y, loss = _problem()
        optimizer = optim.LBFGS([x, y], **settings)
        for _ in range(2):
            optimizer.step(_closure(optimizer, loss))
        state = optimizer.state_dict()
        x2, y2, loss2 = _problem()
        with wf.no_grad():
            x2.copy_(x.detach())
            y2.copy_(y.detach())
        other = optim.LBFGS([x2, y2])
        lists = {**state, "state": {0: {**state["state"][0]}}}  # PyTorch's form: by number, histories as lists
        for name in ("old_dirs", "old_stps", "ro"):
            lists["state"][0][name] = [wf.tensor(row) for row in state["state"][0][name].numpy()]
        other.load_state_dict(lists)
        for _ in range(2):
            optimizer.step(_closure(optimizer, loss))
            other.step(_closure(other, loss2))
        np.testing.assert_allclose(x2.detach().numpy(), x.detach().numpy(), rtol=1e-12)
    with pytest.raises(ValueError, match=r"state 'd' has shape \(5,\), expected \(2,\)"):
        optim.LBFGS([nn.Parameter(wf.ones(2)), nn.Parameter(wf.ones(0))]).load_state_dict(state)


def test_the_line_search_satisfies_the_strong_wolfe_conditions():
    def check(f, slope_of, first):
        evaluations = []

        def evaluate(t):
            evaluations.append(t)
            return f(t), np.array([slope_of(t)])

        d = np.array([1.0])
        value, gradient, t, count = strong_wolfe(evaluate, first, d, f(0.0), np.array([slope_of(0.0)]), slope_of(0.0))
        assert count == len(evaluations) and value == f(t)
        assert value <= f(0.0) + 1e-4 * t * slope_of(0.0)
        assert abs(gradient[0]) <= -0.9 * slope_of(0.0)

    each(
        check,
        {
            "parabola, far": (lambda t: (t - 3) ** 2, lambda t: 2 * (t - 3), 100.0),
            "parabola, near": (lambda t: (t - 3) ** 2, lambda t: 2 * (t - 3), 1e-3),
            "quartic": (lambda t: t**4 - 3 * t**2 - t, lambda t: 4 * t**3 - 6 * t - 1, 5.0),
            "wave": (lambda t: -np.sin(t) + 0.01 * t, lambda t: -np.cos(t) + 0.01, 40.0),
        },
    )


def test_what_cannot_be_done_is_said():
    x, other = nn.Parameter(wf.ones(2)), nn.Parameter(wf.ones(2))
    optimizer = optim.LBFGS([x])
    with pytest.raises(TypeError, match="step needs a closure"):
        optimizer.step()
    with pytest.raises(ValueError, match="one group"):
        optim.LBFGS([{"params": [x]}, {"params": [other]}])
    with pytest.raises(ValueError, match="line_search_fn must be 'strong_wolfe' or None"):
        optim.LBFGS([x], line_search_fn="x")
    with pytest.raises(TypeError, match="complex parameters"):
        optim.LBFGS([nn.Parameter(wf.ones(2, dtype=wf.complex64))])
    with pytest.raises(CaptureError, match="cannot be captured"):
        wf.function(lambda: optimizer.step(_closure(optimizer, lambda: (x * x).sum())), fullgraph=True)()


def test_schedules_change_its_step():
    x = nn.Parameter(wf.tensor([4.0]))
    optimizer = optim.LBFGS([x], lr=0.5, max_iter=1)
    scheduler = optim.lr_scheduler.ExponentialLR(optimizer, 0.0)
    optimizer.step(_closure(optimizer, lambda: (x * x).sum()))
    moved = x.item()
    scheduler.step()
    optimizer.step(_closure(optimizer, lambda: (x * x).sum()))
    assert moved != 4.0 and x.item() == moved
