"""NaN tracing: the error names the op and the user's line, forward and backward."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import weft as wf
from weft.ops.core import define


def _error(fn):
    with pytest.raises(RuntimeError) as caught, wf.detect_anomaly():
        fn()
    return str(caught.value)


def test_forward_nan_names_op_and_line():
    def program():
        x = wf.tensor([1.0, -1.0])
        y = x * 2
        z = wf.log(y)  # makes NaN
        return z + 1

    text = _error(program)
    assert text.startswith("log: made NaN in its result of shape (2,)")
    assert "test_anomaly.py" in text and "z = wf.log(y)  # makes NaN" in text


def test_forward_inf_names_op_and_line():
    text = _error(lambda: wf.ones(2) / wf.tensor([0.0, 1.0]))
    assert text.startswith("divide: made Inf")


def test_backward_only_nan_names_the_forward_line():
    def program():
        x = wf.tensor([0.0, 4.0], requires_grad=True)
        y = wf.sqrt(x)  # its slope at 0 is infinite
        (y * 0).sum().backward()

    text = _error(program)
    assert "backward of sqrt" in text and "its slope at 0 is infinite" in text


def test_gradient_of_a_custom_function_is_checked():
    class Bad(wf.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return wf.asarray(np.array([np.nan]))

    def program():
        x = wf.tensor([1.0], dtype=wf.float64, requires_grad=True)
        y = Bad.apply(x)  # the forward line
        y.sum().backward()

    text = _error(program)
    assert "backward of Bad: the gradient of input 0 is NaN" in text and "the forward line" in text


def test_infinities_on_purpose_pass():
    with wf.detect_anomaly():
        x = wf.tensor([[1.0, 2.0]], requires_grad=True)
        masked = wf.where(wf.tensor([[True, False]]), x, -float("inf"))
        e = wf.exp(masked - wf.max(masked))
        (e / e.sum()).sum().backward()
        wf.full((2,), float("inf")) + 1
    assert np.isfinite(x.grad.numpy()).all()


def test_inf_that_becomes_nan_is_found():
    text = _error(lambda: wf.full((1,), float("inf")) - wf.full((1,), float("inf")))
    assert text.startswith("subtract: made NaN")


def test_nan_from_outside_is_told_apart():
    data = wf.asarray(np.array([np.nan, 1.0]))
    assert "argument 0 held NaN already" in _error(lambda: data * 2)
    with wf.detect_anomaly():
        clean = wf.where(wf.isnan(data), 0.0, data)
    assert clean.tolist() == [0, 1]


def test_in_place_ops_are_checked():
    x = wf.tensor([0.0, 1.0])

    def program():
        x.div_(wf.tensor([0.0, 1.0]))

    assert "divide: made NaN in place" in _error(program)


def test_integers_and_clean_programs_pass():
    with wf.detect_anomaly():
        x = wf.tensor([2.0], requires_grad=True)
        (wf.arange(3) * 2).sum()
        (x * x).backward()
    assert x.grad.item() == 4


def test_switch_on_and_off():
    wf.set_detect_anomaly(True)
    try:
        wf.set_detect_anomaly(True)
        with pytest.raises(RuntimeError, match="log: made NaN"):
            wf.log(wf.tensor(-1.0))
    finally:
        wf.set_detect_anomaly(False)
    wf.set_detect_anomaly(False)
    assert np.isnan(wf.log(wf.tensor(-1.0)).item())
    assert define.modes.active == 0 and define.modes.lines == 0


def test_other_threads_are_not_concerned():
    results = []
    with wf.detect_anomaly():
        t = threading.Thread(target=lambda: results.append(wf.log(wf.tensor(-1.0)).item()))
        t.start()
        t.join(10)
    assert np.isnan(results[0])


def test_nothing_is_left_behind_after_an_error():
    _error(lambda: wf.log(wf.tensor(-1.0)))
    assert define.modes.active == 0 and define.modes.lines == 0 and define.current_modes() == ()
    x = wf.ones(1, requires_grad=True)
    assert (x * 2)._node.where is None


def test_nodes_carry_lines_while_on():
    with wf.detect_anomaly():
        y = wf.ones(1, requires_grad=True) * 2
    assert "test_anomaly.py" in str(y._node.where)


def test_checkpointed_and_second_order():
    def program():
        x = wf.tensor([0.0], requires_grad=True)
        g = wf.grad((x * x).sum(), x, create_graph=True)[0]
        wf.sqrt(g).sum().backward()

    assert "backward of sqrt" in _error(program)
