"""The choice among several lowerings: forced, adopted, measured, remembered, or by rule."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
import weft.nn.functional as F
from weft.backends.llvm import cache, choices
from weft.backends.onednn import library
from weft.compiler import trials, tuning
from weft.compiler.flow import Flow
from weft.ops.core.spec import Spec
from weft.ops.nn.conv.convolution import convolution
from weft.ops.nn.window import Window
from weft.runtime import memory

FLOAT = np.dtype(np.float32)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("WEFT_TUNE", "1")
    tuning.forget()
    yield
    tuning.forget()


def some_node(channels: int = 16) -> Any:
    flow = Flow("test")
    x, w = flow.placeholder((1, channels, 8, 8), FLOAT), flow.placeholder((16, channels, 3, 3), FLOAT)
    attrs = (Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)), 1)
    return flow.add(convolution.op, (x, w, None), attrs, [Spec((1, 16, 8, 8), FLOAT)])


WAYS = {"a": lambda lowering, node: True, "b": lambda lowering, node: True}
SMALL = tuning.Sample((), (), (), 1.0, lambda label: False)


class Clock:
    """A measurement with a known result."""

    def __init__(self, seconds: dict[str, float], spent: float = 0.01, calm: bool = True) -> None:
        self.result, self.calls = tuning.Measurement(seconds, spent, calm), 0

    def __call__(self, node: Any, ways: Any, sample: Any, limit: float) -> tuning.Measurement:
        self.calls += 1
        return self.result


def choose(measure: Any, node: Any = None, preferred: str = "a") -> tuning.Choice:
    with tuning.choosing(measure, choices):
        return tuning.choose(node or some_node(), WAYS, preferred, "a node", lambda: SMALL)


def test_the_fastest_way_is_taken_and_remembered() -> None:
    clock = Clock({"a": 2.0, "b": 1.0})
    choice = choose(clock)
    assert (choice.way, choice.source) == ("b", "measured")
    assert str(choice) == "a node: b, 1000.00 ms vs 2000.00 ms a (measured)"
    assert choose(clock) == choice and clock.calls == 1
    tuning.forget()  # as another process would start
    again = choose(clock)
    assert (again.way, again.source, dict(again.seconds)) == ("b", "remembered", {"a": 2.0, "b": 1.0})
    assert clock.calls == 1


def test_a_hair_faster_is_not_faster() -> None:
    assert choose(Clock({"a": 1.0, "b": 0.99})).way == "a"


def test_on_a_busy_machine_the_difference_must_be_larger() -> None:
    assert choose(Clock({"a": 1.0, "b": 0.9}, calm=False)).way == "a"
    assert choose(Clock({"a": 1.0, "b": 0.5}, calm=False), some_node(32)).way == "b"


def test_on_a_busy_machine_several_processes_measure_and_the_least_times_count() -> None:
    times = [{"a": 1.0, "b": 0.9}, {"a": 1.5, "b": 0.5}, {"a": 2.0, "b": 3.0}]
    ways = []
    for seconds in times:
        choice = choose(Clock(seconds, calm=False))
        assert choice.source == "measured"
        ways.append(choice.way)
        tuning.forget()  # another process
    assert ways == ["a", "b", "b"]
    last = choose(Clock({"a": 0.1, "b": 5.0}, calm=False))
    assert (last.source, dict(last.seconds)) == ("remembered", {"a": 1.0, "b": 0.5})


def test_a_calm_measurement_replaces_busy_ones() -> None:
    choose(Clock({"a": 1.0, "b": 0.1}, calm=False))
    tuning.forget()
    assert choose(Clock({"a": 1.0, "b": 2.0})).way == "a"
    tuning.forget()
    assert choose(Clock({"a": 9.0, "b": 1.0})).source == "remembered"


def test_other_shapes_are_measured_on_their_own() -> None:
    clock = Clock({"a": 2.0, "b": 1.0})
    choose(clock)
    choose(clock, some_node(32))
    assert clock.calls == 2


@pytest.mark.parametrize("damage", ["garbage", "other json", "unknown way"])
def test_a_damaged_entry_is_measured_again(damage: str) -> None:
    clock = Clock({"a": 2.0, "b": 1.0})
    choose(clock)
    tuning.forget()
    key = tuning._file_key(choices, tuning.describe(some_node()))
    folder = cache.directory()
    assert folder is not None and (folder / key).exists()
    if damage == "garbage":
        (folder / key).write_bytes(b"weft-object-1\nnonsense")
    else:
        entry: Any = [1] if damage == "other json" else {"way": "c", "seconds": {"c": 1.0}}
        cache.write(key, json.dumps(entry).encode())
    assert choose(clock).source == "measured" and clock.calls == 2


def test_the_time_of_a_program_is_bounded() -> None:
    clock = Clock({"a": 2.0, "b": 1.0}, spent=1.5)
    with tuning.choosing(clock, choices):
        sources = [tuning.choose(some_node(c), WAYS, "a", "", lambda: SMALL).source for c in (16, 32, 48, 64)]
    assert sources == ["measured", "measured", "rule", "rule"]
    assert clock.calls == 2


def test_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock({"a": 2.0, "b": 1.0})
    choose(clock)
    monkeypatch.setenv("WEFT_TUNE", "0")
    choice = choose(clock)
    assert (choice.way, choice.source, clock.calls) == ("a", "rule", 1)  # nothing remembered either


def test_export_and_adopt() -> None:
    choose(Clock({"a": 2.0, "b": 1.0}))
    exported = json.loads(json.dumps(tuning.export()))
    tuning.forget()
    tuning.adopt(exported)
    clock = Clock({"a": 1.0, "b": 2.0})
    choice = choose(clock)
    assert (choice.way, choice.source, clock.calls) == ("b", "adopted", 0)
    assert tuning.export() == exported


def test_adopting_overrules_what_was_measured() -> None:
    clock = Clock({"a": 2.0, "b": 1.0})
    choose(clock)
    key = tuning.describe(some_node())
    tuning.adopt({"format": 1, "ways": {key: "a"}})
    assert choose(clock).way == "a"
    tuning.adopt({"format": 1, "ways": {key: "unheard of"}})
    assert choose(clock).way in WAYS


@pytest.mark.parametrize("bad", [None, [], {}, {"ways": [1]}, {"ways": {"key": 1}}])
def test_adopt_says_what_it_expects(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"tuning.adopt: expected what tuning.export returned"):
        tuning.adopt(bad)


def test_rule_choices_are_exported_too() -> None:
    choose(None)
    assert list(tuning.export()["ways"].values()) == ["a"]


needs_onednn = pytest.mark.skipif(not library.available(), reason="the ways are oneDNN's and Winograd's")


@needs_onednn
def test_a_trial_measures_every_way() -> None:
    from weft.backends.onednn.lowerings import OneDNN
    from weft.compiler.lowering.rules import conv

    node = some_node()
    ways = {"direct": OneDNN().convolution, "winograd_f4": lambda lowering, n: conv._winograd(4, lowering, n)}
    sample = tuning.Sample(
        ((1, 16, 8, 8), (16, 16, 3, 3), None), ((1, 16, 8, 8),), node.attrs, 3.0, conv.FIXED.__contains__
    )
    found = trials.measure(node, ways, sample, 0.01)
    assert set(found.seconds) == set(ways) and min(found.seconds.values()) > 0 and found.spent > 0


@needs_onednn
def test_captured_functions_list_their_choices_and_follow_adopted_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_TUNE", "0")
    x, w = wf.randn(4, 64, 16, 16), wf.randn(64, 64, 3, 3)
    f = wf.function(lambda x, w: F.conv2d(x, w, padding=1))
    before = f(x, w)
    assert "conv 3x3 64->64 @16x16 batch 4: winograd_f4 (rule)" in f.explain()
    (key,) = tuning.export()["ways"]
    tuning.adopt({"format": 1, "ways": {key: "direct"}})
    after = f(x, w)
    assert "conv 3x3 64->64 @16x16 batch 4: direct (adopted)" in f.explain()
    np.testing.assert_allclose(before.numpy(), after.numpy(), rtol=1e-3, atol=1e-3)


@needs_onednn
def test_tune_false_takes_the_rule() -> None:
    x, w = wf.randn(4, 32, 24, 24), wf.randn(32, 32, 3, 3)
    f = wf.function(lambda x, w: F.conv2d(x, w, padding=1), tune=False)
    f(x, w)
    assert "(rule)" in f.explain() and "(measured)" not in f.explain()


@needs_onednn
def test_forcing_ends_with_its_block() -> None:
    x, w = wf.randn(4, 64, 16, 16), wf.randn(64, 64, 3, 3)
    f = wf.function(lambda x, w: F.conv2d(x, w, padding=1), tune=False)
    first = f(x, w)
    with tuning.forced("direct"):
        f(x, w)
        assert "direct (forced)" in f.explain()
    assert f(x, w).numpy().tobytes() == first.numpy().tobytes()
    assert len(f.signatures) == 2


@needs_onednn
def test_memory_of_trials_is_given_back():
    x, w = wf.ones((8, 64, 56, 56)), wf.ones((64, 64, 3, 3))
    f = wf.function(lambda x: F.conv2d(x, w, padding=1).sum())
    gc.collect()  # what earlier tests left must not be given back meanwhile
    memory.trim()
    f(x)
    choices = f.traces[0].compiled.choices
    assert [c.source for c in choices] == ["measured"]
    assert memory.stats().cached < x.nbytes / 4
