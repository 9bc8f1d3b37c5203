"""MXNet's ideas as programs: symbols with several outputs and state, imperative updates, one engine, push and pull."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft import nn, optim
from weft.distributed import KVStore

WAIT = 30


class RunningMean(nn.Module):
    """A symbol with two inputs, two outputs and a state of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", wf.zeros(()))
        self.register_buffer("count", wf.zeros(()))

    def forward(self, x: wf.Tensor, weight: wf.Tensor) -> tuple[wf.Tensor, wf.Tensor]:
        self.total += (x * weight).sum()
        self.count += weight.sum()
        return self.total / self.count, self.count * 1.0


def test_a_symbol_has_several_outputs_and_internal_state() -> None:
    symbol = RunningMean()
    with wf.Graph().as_default() as graph:
        x, weight = wf.placeholder(wf.float32, (2,)), wf.placeholder(wf.float32, (2,))
        mean, count = symbol(x, weight)
    with wf.Session(graph) as executor:
        got = [
            [v.item() for v in executor.run([mean, count], {x: a, weight: [1.0, 1.0]}, timeout=WAIT)]
            for a in ([1.0, 3.0], [5.0, 7.0])
        ]
    assert got == [[2.0, 2.0], [4.0, 4.0]]
    assert symbol.count.item() == 4.0, "the imperative program sees the state"


def test_a_declarative_model_is_updated_imperatively() -> None:
    """Declared once for its structure; the update is a line of Python that can be changed or stepped through."""
    w = wf.zeros(3)
    with wf.Graph().as_default() as graph:
        x, y = wf.placeholder(wf.float32, (None, 3)), wf.placeholder(wf.float32, (None,))
        weight = wf.Variable(w)
        loss = wf.mean((x @ weight - y) ** 2)
        slope = wf.gradients(loss, weight)
    data = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
    target = data @ np.array([1.0, -2.0, 0.5], np.float32)
    with wf.Session(graph) as executor:
        for _ in range(100):
            w -= 0.2 * executor.run(slope, {x: data, y: target}, timeout=WAIT)
        np.testing.assert_allclose(executor.run(weight, timeout=WAIT), [1, -2, 0.5], atol=1e-3)


def test_one_op_serves_arrays_and_symbols() -> None:
    value = np.array([0.5, -1.0], np.float32)

    def program(x: wf.Tensor) -> wf.Tensor:
        return wf.tanh(x) * 2 + wf.relu(x)

    with wf.Graph().as_default() as graph:
        x = wf.placeholder(wf.float32, (2,))
        symbol = program(x)
    with wf.Session(graph) as executor:
        declared = executor.run(symbol, {x: value})
    np.testing.assert_allclose(declared, program(wf.tensor(value)), rtol=1e-6)
    np.testing.assert_allclose(wf.function(program)(wf.tensor(value)), declared, rtol=1e-6)  # hybridize()


def test_delayed_execution_finds_the_parallelism_and_naive_execution_the_same_result() -> None:
    """Two branches that wait for each other: the dataflow executor overlaps them; on pure graphs both executors agree."""
    with wf.Graph().as_default() as graph:
        x = wf.placeholder(wf.float32, ())
        here, there = wf.FIFOQueue(1, wf.float32, ()), wf.FIFOQueue(1, wf.float32, ())
        with wf.control_dependencies([here.enqueue(x)]):
            a = there.dequeue()
        with wf.control_dependencies([there.enqueue(x * 2)]):
            b = here.dequeue()
        both, pure = a + b, wf.exp(x) + wf.sin(x)
    results = []
    for executor in ("dataflow", "naive"):
        with wf.Session(graph, executor=executor) as sess:
            results.append(sess.run(pure, {x: 0.5}, timeout=WAIT).item())
    with wf.Session(graph) as sess:
        assert sess.run_async(both, {x: 1.0}).result(timeout=WAIT).item() == 3.0
    assert results[0] == pytest.approx(results[1], rel=1e-6)


def test_one_graph_has_forward_and_backward_and_is_planned_as_a_whole() -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = optim.SGD(model.parameters(), lr=0.01)

    @wf.function
    def step(x: wf.Tensor) -> wf.Tensor:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    x = wf.ones(8, 16)
    losses = [step(x).item() for _ in range(3)]
    assert losses[2] < losses[1] < losses[0]
    assert all(p.grad is None for p in model.parameters()), "a gradient that lives inside the program is never stored"


def test_push_and_pull_with_an_updater_on_the_store() -> None:
    kv = KVStore("local")
    kv.init("w", wf.ones(3))
    kv.push("w", [wf.ones(3), wf.ones(3) * 2])  # from two devices: they are added
    assert kv.pull("w").tolist() == [3, 3, 3]
    kv.set_optimizer(optim.SGD, lr=0.5)
    kv.push("w", wf.ones(3))
    assert kv.pull("w").tolist() == [2.5, 2.5, 2.5]
    kv.close()
