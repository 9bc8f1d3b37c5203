"""Python values that a captured function reads: changes are seen, and what is frozen is reported."""

from __future__ import annotations

import datetime
import os
import random
import time
import warnings

import numpy as np
import pytest

import weft as wf
from weft import nn

SCALE = 2.0
LAYERS = [1.0, 2.0]
step = 0


class Settings:
    bias = 1.0


def _helper(x):
    return x * SCALE


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = 3.0
        self.inner = nn.Linear(2, 2)

    def forward(self, x):
        return self.inner(x) * self.factor


def test_changed_globals_closures_and_attributes_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    x, settings, local, table = wf.ones(2), Settings(), 5.0, {"a": 1.0}
    layer = Scaled()
    functions = {
        "global": wf.function(lambda x: x * SCALE),
        "global of a function that is called": wf.function(lambda x: _helper(x)),
        "global list": wf.function(lambda x: x * sum(LAYERS)),
        "closure": wf.function(lambda x: x + local),
        "attribute": wf.function(lambda x: x + settings.bias),
        "dict": wf.function(lambda x: x + table["a"]),
        "attribute of a module": wf.function(lambda x: layer(x)),
        "method": wf.function(layer.forward),
    }
    before = {name: f(x).tolist() for name, f in functions.items()}
    assert {name: f(x).tolist() for name, f in functions.items()} == before
    assert all(len(f.traces) == 1 for f in functions.values())
    monkeypatch.setitem(globals(), "SCALE", 7.0)
    monkeypatch.setitem(globals(), "LAYERS", [4.0])
    settings.bias, local, table["a"], layer.factor = 9.0, 6.0, 2.0, 4.0
    for name, f in functions.items():
        assert f(x).tolist() != before[name], name
        assert f(x).tolist() == pytest.approx(f.fn(x).tolist()), name
        assert len(f.traces) == 2, name


def test_programs_for_old_values_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    f = wf.function(lambda x: x * SCALE)
    for value in (2.0, 5.0, 2.0, 5.0):
        monkeypatch.setitem(globals(), "SCALE", value)
        assert f(wf.ones(1)).item() == value
    assert len(f.traces) == 2


def test_an_integer_that_becomes_a_float_is_another_value(monkeypatch: pytest.MonkeyPatch) -> None:
    f = wf.function(lambda x: x * SCALE)
    monkeypatch.setitem(globals(), "SCALE", 2)
    assert f(wf.tensor([1])).dtype == wf.int64
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert f(wf.tensor([1])).dtype == wf.float32


def test_a_value_that_changes_at_every_call_ends_in_eager_calls_that_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    f = wf.function(lambda x: x * 0.9**step)
    with pytest.warns(
        UserWarning, match="runs eagerly, which is slower, because `step`, which it reads, has had 8 different values"
    ):
        for i in range(12):
            monkeypatch.setitem(globals(), "step", i)
            assert f(wf.ones(1)).item() == pytest.approx(0.9**i)
    assert len(f.traces) <= 8


count, seen = [0], []


def _counts(x):
    count[0] += 1
    return x + count[0]


GENERATOR = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("fn", "what"),
    [
        (lambda x: x + random.random(), "a random number of Python"),
        (lambda x: x + random.randint(1, 5), "a random number of Python"),
        (lambda x: x + np.random.rand(), "a random number of NumPy"),
        (lambda x: x + GENERATOR.normal(), "a random number of NumPy"),
        (lambda x: x + time.time(), "the time"),
        (lambda x: x + time.perf_counter(), "the time"),
        (lambda x: x + datetime.datetime.now().second, "the time"),
        (lambda x: x + len(os.environ.get("HOME", "")), "the value of an environment variable"),
        (lambda x: x + len(os.getenv("HOME", "")), "the value of an environment variable"),
        (_counts, "the change of `count`"),
    ],
)
def test_what_happens_once_is_reported_once_with_its_line(fn, what: str) -> None:
    captured = wf.function(fn)
    with pytest.warns(
        UserWarning, match=f"{what} is taken when the function is captured.*test_python_reads.py:"
    ) as caught:
        captured(wf.ones(1))
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        captured(wf.ones(1))
        captured(wf.ones(2))  # another program, the same report


def test_weft_random_numbers_are_drawn_anew_and_not_reported() -> None:
    f = wf.function(lambda x: x + wf.rand(1) + nn.functional.dropout(x, 0.5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert f(wf.ones(1)).item() != f(wf.ones(1)).item()
