"""Recomputation within a memory budget: the graph before and after, the numbers, the limit, the refusal."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft.compiler.check_flow import check_flow
from weft.compiler.flow import from_graph
from weft.compiler.passes.recompute import candidates, recompute
from weft.graph.graph import Graph
from weft.ops.core.registry import table

F32 = np.dtype(np.float32)
RNG = np.random.default_rng(0)
WEIGHTS = [(RNG.standard_normal((64, 64)) / 8).astype(np.float32) for _ in range(12)]
X = RNG.standard_normal((512, 64)).astype(np.float32)


def emit(graph, name, *inputs, attrs=()):
    return graph.emit(table[name], inputs, attrs).outputs[0]


def chain():
    """relu(x) is read at the beginning and at the end of a long chain."""
    graph = Graph("g")
    x = graph.placeholder((64, 64), F32, "x")
    a = emit(graph, "relu", x)
    b = emit(graph, "matmul", a, a)
    for _ in range(40):
        b = emit(graph, "matmul", b, b)
    return from_graph(graph, [x], [emit(graph, "add", emit(graph, "matmul", b, a), x)])


def test_a_waiting_value_is_computed_again_for_its_late_reader():
    flow = chain()
    (found,) = candidates(flow)
    assert found.value.node.op.name == "relu"
    after = check_flow(recompute(flow, [found]), "recompute")
    relus = [n for n in after.nodes if n.op.name == "relu"]
    assert len(relus) == 2 and after.late == {relus[1]}
    last = next(n for n in reversed(after.nodes) if n.op.name == "matmul")
    assert last.inputs[1] is relus[1].outputs[0]
    assert relus[1].order == last.order - 1


def test_products_are_done_again_only_if_asked():
    graph = Graph("g")
    x = graph.placeholder((64, 64), F32, "x")
    a = emit(graph, "matmul", x, x)
    b = emit(graph, "matmul", a, a)
    for _ in range(40):
        b = emit(graph, "matmul", b, b)
    flow = from_graph(graph, [x], [emit(graph, "add", emit(graph, "matmul", b, a), x)])
    assert candidates(flow) == []
    assert [c.value.node.op.name for c in candidates(flow, expensive=1)] == ["matmul"]


def training(memory_budget=None):
    weights = [wf.tensor(w, requires_grad=True) for w in WEIGHTS]

    def step(x):
        for w in weights:
            x = wf.tanh(wf.exp(-wf.abs(x @ w)) * x)
        loss = (x * x).mean()
        for w in weights:
            w.grad = None
        loss.backward()
        with wf.no_grad():
            for w in weights:
                w.sub_(0.1 * w.grad)
        return loss

    fn = wf.function(step, memory_budget=memory_budget)
    losses = [fn(wf.tensor(X)).item() for _ in range(3)]
    (trace,) = fn._traces.values()
    return losses, [w.detach().numpy() for w in weights], trace.compiled.program.arena


def test_a_budget_is_kept_and_changes_no_bit():
    losses, weights, arena = training()
    for share in (0.9, 0.75):
        small_losses, small_weights, small = training(int(arena * share))
        assert small <= arena * share
        assert small_losses == losses
        for a, b in zip(weights, small_weights, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_budget_that_cannot_be_kept_says_what_would_be_needed():
    with pytest.raises(MemoryError, match=r"needs .* for temporaries, and .* with recomputation"):
        training(1000)
