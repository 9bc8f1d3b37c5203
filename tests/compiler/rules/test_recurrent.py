"""LSTM layers in programs: one kernel per step, against float64 and bit for bit between numbers of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import nn
from weft.ops.nn.recurrent.primitives import lstm_sequence

# steps, batch, hidden units, backwards in time, whether the cells have a gradient too
CASES = [
    (5, 4, 16, False, True),
    (4, 32, 48, True, False),
    (1, 3, 16, False, True),
    (2, 7, 32, True, True),
    (3, 70, 80, False, True),
]


def _inputs(steps: int, batch: int, size: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = ((steps, batch, 4 * size), (batch, size), (batch, size), (4 * size, size))
    return [(rng.standard_normal(shape) / 4).astype(np.float32) for shape in shapes]


def _step(shape: tuple[int, ...], reverse: bool, both: bool) -> Any:
    rng = np.random.default_rng(1)
    g_hidden, g_cells = rng.standard_normal(shape), rng.standard_normal(shape)

    def step(gates: Any, h0: Any, c0: Any, weight: Any) -> Any:
        hidden, cells, acts = lstm_sequence(gates, h0, c0, weight, None, reverse)
        loss = (hidden * wf.tensor(g_hidden.astype(gates.dtype))).sum()
        if both:
            loss = loss + (cells * wf.tensor(g_cells.astype(gates.dtype))).sum()
        return hidden, cells, acts, *wf.grad(loss, [gates, h0, c0, weight])

    return step


def _run(step: Any, arrays: list[np.ndarray], dtype: Any = np.float32) -> list[np.ndarray]:
    return [t.detach().numpy() for t in step(*[wf.tensor(a.astype(dtype), requires_grad=True) for a in arrays])]


@pytest.mark.parametrize("steps, batch, size, reverse, both", CASES)
def test_lstm_agrees_with_float64(steps: int, batch: int, size: int, reverse: bool, both: bool) -> None:
    arrays = _inputs(steps, batch, size)
    step = _step((steps, batch, size), reverse, both)
    captured = wf.function(step)
    found = _run(captured, arrays)
    labels = {s.label for s in captured.traces[0].compiled.program.steps}
    assert {"lstm step", "lstm step backward"} <= labels
    for got, expected in zip(found, _run(step, arrays, np.float64), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("steps, reverse", [(1, False), (4, False), (3, True)])
def test_a_walk_from_zeros_agrees_with_float64(steps: int, reverse: bool) -> None:
    gates, _, _, weight = _inputs(steps, 9, 32)

    def step(gates: Any, weight: Any) -> Any:
        start = wf.zeros((9, 32), dtype=gates.dtype)
        hidden, cells, _ = lstm_sequence(gates, start, start, weight, None, reverse)
        return hidden, cells, *wf.grad((hidden * cells).sum(), [gates, weight])

    captured = wf.function(step)
    found = _run(captured, [gates, weight])
    for got, expected in zip(found, _run(step, [gates, weight], np.float64), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=2e-5)
    kernels = [str(s.kernel) for s in captured.traces[0].compiled.program.steps if s.label == "lstm step"]
    assert any("w: float32" not in k for k in kernels) == (steps > 1)  # nothing to multiply with


def test_a_weight_that_is_not_a_number_shows() -> None:
    gates, _, _, weight = _inputs(3, 2, 16)
    weight[5, 3] = np.nan

    def step(gates: Any, weight: Any) -> Any:
        start = wf.zeros((2, 16))
        return lstm_sequence(gates, start, start, weight, None, False)[0]

    assert np.isnan(wf.function(step)(wf.tensor(gates), wf.tensor(weight)).numpy()[1:]).any()


def test_a_gradient_of_only_the_last_state() -> None:
    arrays = _inputs(4, 5, 16)

    def step(gates: Any, h0: Any, c0: Any, weight: Any) -> Any:
        hidden, _, _ = lstm_sequence(gates, h0, c0, weight, None, False)
        return wf.grad((hidden[-1] * hidden[-1]).sum(), [gates, h0, c0, weight])

    for got, expected in zip(_run(wf.function(step), arrays), _run(step, arrays, np.float64), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_the_gradient_of_an_initial_state_is_computed_only_where_it_is_read() -> None:
    arrays = _inputs(3, 5, 16)

    def labels(wanted: list[int]) -> list[str]:
        def step(*args: Any) -> Any:
            hidden, _, _ = lstm_sequence(*args, None, False)
            return wf.grad((hidden * hidden).sum(), [args[i] for i in wanted])

        captured = wf.function(step)
        _run(captured, arrays)
        return [s.label for s in captured.traces[0].compiled.program.steps]

    assert "lstm initial state" in labels([0, 1])
    assert "lstm initial state" not in labels([0, 3])


def test_training_a_bidirectional_layer_captured_is_training_it_eagerly() -> None:
    x = np.random.default_rng(2).standard_normal((3, 6, 8)).astype(np.float32)

    def losses(capture: bool) -> list[float]:
        wf.manual_seed(0)
        model = nn.LSTM(8, 16, num_layers=2, batch_first=True, bidirectional=True)
        opt = wf.optim.SGD(list(model.parameters()), lr=0.5)

        def step(x: Any) -> Any:
            out, _ = model(x)
            loss = (out * out).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            return loss

        run = wf.function(step) if capture else step
        return [run(wf.tensor(x)).item() for _ in range(4)]

    np.testing.assert_allclose(losses(True), losses(False), rtol=1e-5)


def test_bits_do_not_depend_on_the_number_of_threads(at_widths) -> None:
    arrays = _inputs(3, 33, 64)
    step = wf.function(_step((3, 33, 64), False, True))
    results = at_widths(lambda: _run(step, arrays))
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)
