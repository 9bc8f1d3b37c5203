"""The programs of one function for different sizes share machine code, and compute the same bits as programs of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import nn
from weft.backends.llvm import jit
from weft.compiler.tuning import Choice, ProgramTuning
from weft.nn import functional as F


def tokens(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(n)
    return (wf.tensor(rng.integers(0, 50, (2, n))), wf.tensor(rng.integers(0, 7, 2 * n)))


def transformer() -> tuple[Any, Any]:
    """A training step with an embedding, norms, products, a softmax and means over a varying length."""
    wf.manual_seed(0)
    parts = nn.ModuleList([nn.Embedding(50, 32), nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 7)])
    embed, norm, project, head = parts
    optimizer = wf.optim.SGD(parts.parameters(), lr=0.1, momentum=0.5)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        h = embed(x)
        q, k, v = project(norm(h)).split(32, -1)
        h = h + F.softmax(q @ k.permute_dims((0, 2, 1)) * 0.2, -1) @ v
        loss = F.cross_entropy(head(h).reshape(-1, 7), y) + h.mean() ** 2
        loss.backward()
        optimizer.step()
        return loss

    return step, parts


def images(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(n)
    return wf.tensor(rng.standard_normal((n, 3, 8, 8), np.float32)), wf.tensor(rng.integers(0, 5, n))


def network() -> tuple[Any, Any]:
    wf.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 5)
    )
    optimizer = wf.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, model


def sequences(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(n)
    return wf.tensor(rng.standard_normal((5, n, 16), np.float32)), wf.tensor(rng.integers(0, 4, n))


def recurrent() -> tuple[Any, Any]:
    wf.manual_seed(0)
    parts = nn.ModuleList([nn.LSTM(16, 32), nn.Linear(32, 4)])
    layer, head = parts
    optimizer = wf.optim.SGD(parts.parameters(), lr=0.1)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(head(layer(x)[0][-1]), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, parts


def run(
    build: Any, arguments: Any, sizes: list[int], captured: bool = True
) -> tuple[list[bytes], list[np.ndarray], list[int]]:
    """The bits of losses and of weights afterwards, the weights, and the modules of code that each call loaded."""
    step, model = build()
    if captured:
        step = wf.function(step, tune=False)
    bits: list[bytes] = []
    loads: list[int] = []
    for n in sizes:
        before = jit.engine().loaded
        bits.append(step(*arguments(n)).detach().numpy().tobytes())
        loads.append(jit.engine().loaded - before)
    weights = [p.detach().numpy().copy() for p in model.parameters()]
    return bits + [w.tobytes() for w in weights], weights, loads


MODELS = {"transformer": (transformer, tokens), "convolutional": (network, images), "recurrent": (recurrent, sequences)}


@pytest.mark.parametrize("name", MODELS)
def test_further_sizes_share_code_and_have_the_bits_of_programs_of_their_own(name, monkeypatch):
    build, arguments = MODELS[name]
    sizes = [19, 21, 29, 27]
    shared, weights, loads = run(build, arguments, sizes)
    monkeypatch.setenv("WEFT_OPEN_SIZES", "0")
    own, _, own_loads = run(build, arguments, sizes)
    _, eager, _ = run(build, arguments, sizes, captured=False)
    assert shared == own
    assert loads[0] > 0 and loads[-1] == 0, loads
    assert own_loads[-1] > 0 and sum(own_loads) > sum(loads)
    for a, b in zip(weights, eager, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)


def test_the_bits_of_a_size_do_not_depend_on_what_was_called_before():
    def fn(x: Any) -> Any:
        y = wf.exp(x - wf.max(x, axis=0, keepdims=True))
        return wf.sum(y / wf.sum(y, axis=0, keepdims=True) * wf.mean(x), axis=1), wf.std(x)

    def bits(captured: Any, n: int) -> list[bytes]:
        x = np.random.default_rng(n).standard_normal((n, 12), np.float32)
        return [y.numpy().tobytes() for y in captured(wf.tensor(x))]

    sizes = [1, 2, 7, 16, 40, 63, 64, 65, 130, 200]
    upwards, downwards = wf.function(fn), wf.function(fn)
    first = {n: bits(upwards, n) for n in sizes}
    assert first == {n: bits(downwards, n) for n in reversed(sizes)}
    assert first[65] == bits(wf.function(fn), 65)


def test_a_pullback_shares_code_too():
    w = wf.tensor(np.random.default_rng(0).standard_normal((24, 24), np.float32), requires_grad=True)
    forward = wf.function(lambda x: wf.tanh(wf.exp(x * 0.1) @ w))

    def gradient(n: int) -> tuple[np.ndarray, int]:
        x = wf.tensor(np.random.default_rng(n).standard_normal((n, 24), np.float32))
        before, w.grad = jit.engine().loaded, None
        forward(x).sum().backward()
        assert w.grad is not None
        found = w.grad.numpy().copy()
        loads, w.grad = jit.engine().loaded - before, None
        wf.tanh(wf.exp(x * 0.1) @ w).sum().backward()
        np.testing.assert_allclose(found, w.grad.numpy(), rtol=1e-4, atol=1e-4)
        return found, loads

    loads = [gradient(n)[1] for n in (21, 22, 26, 29, 31)]
    assert loads[0] > 0 and loads[-1] == 0, loads


def test_a_further_program_takes_the_choices_of_the_first():
    first = ProgramTuning()
    kind = '["op", [], "()"]'
    first.ways[kind] = ["a", "b"]

    class Op:
        name = "op"

    class Node:
        op, inputs, attrs = Op, (), ()

    further = ProgramTuning(like=first)
    found = []
    for _ in range(3):
        found.append(further.first_way(Node()))  # type: ignore[arg-type]
        further.ways.setdefault(kind, []).append(found[-1] or "")
    assert found == ["a", "b", "b"]
    assert ProgramTuning().first_way(Node()) is None  # type: ignore[arg-type]
    assert "as for the first size" in str(Choice("k", "a node", "a", "as for the first size"))
