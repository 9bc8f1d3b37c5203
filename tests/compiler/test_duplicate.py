"""Duplication: values that two nests need are computed in both where that moves less memory."""

from __future__ import annotations

import numpy as np

import weft as wf
from weft.compiler.check_flow import check_flow
from weft.compiler.flow import from_graph
from weft.compiler.passes.duplicate import duplicate
from weft.compiler.program.steps import KernelCall
from weft.graph.graph import Graph
from weft.ops.core.registry import table

F32 = np.dtype(np.float32)
SHAPE = (64, 512)


def emit(graph, name, *inputs, attrs=()):
    return graph.emit(table[name], inputs, attrs).outputs[0]


def centred(activation: str, shape=SHAPE):
    """h = activation(x); h - mean(h): the mean over all rows separates the two uses of h."""
    graph = Graph("g")
    x = graph.placeholder(shape, F32, "x")
    h = emit(graph, activation, x)
    mean = emit(graph, "reduce_sum", h, attrs=((0,), True))
    centre = emit(graph, "matmul", mean, graph.placeholder((shape[1], shape[1]), F32, "w"))
    return from_graph(graph, [x, centre.node.inputs[1]], [emit(graph, "subtract", h, centre)])


def count(flow, name):
    return sum(n.op.name == name for n in flow.nodes)


def test_a_cheap_value_is_computed_in_both_nests():
    flow = check_flow(duplicate(centred("relu")), "duplicate")
    assert count(flow, "relu") == 2 and len(flow.late) == 1


def test_a_dear_value_is_stored():
    assert count(duplicate(centred("exp")), "exp") == 1


def test_a_small_value_is_stored():
    assert count(duplicate(centred("relu", (4, 8))), "relu") == 1


def test_a_value_made_from_many_large_ones_is_stored():
    graph = Graph("g")
    x, y, z, u = (graph.placeholder(SHAPE, F32, name) for name in "xyzu")
    w = graph.placeholder((SHAPE[1], SHAPE[1]), F32, "w")
    h = emit(graph, "add", emit(graph, "add", x, y), emit(graph, "add", z, u))
    mean = emit(graph, "matmul", emit(graph, "reduce_sum", h, attrs=((0,), True)), w)
    flow = duplicate(from_graph(graph, [x, y, z, u, w], [emit(graph, "subtract", h, mean)]))
    assert not flow.late  # reading four values costs more than writing and reading one


def test_the_gradient_through_a_normalisation_stores_no_gradient_of_the_activation():
    bn = wf.nn.BatchNorm2d(16)
    first, second = wf.nn.Conv2d(16, 16, 1, bias=False), wf.nn.Conv2d(16, 16, 1)
    parameters = [*bn.parameters(), *first.parameters(), *second.parameters()]
    x = wf.tensor(np.random.default_rng(0).standard_normal((8, 16, 32, 32)).astype(np.float32))

    def step(x):
        for p in parameters:
            p.grad = None
        loss = (second(wf.nn.functional.relu6(bn(first(x)))) ** 2).sum()
        loss.backward()
        return loss, [p.grad for p in parameters]

    captured = wf.function(step)
    loss, grads = captured(x)
    expected_loss, expected = step(x)
    np.testing.assert_allclose(loss.item(), expected_loss.item(), rtol=1e-4)
    for g, e in zip(grads, expected, strict=True):
        np.testing.assert_allclose(g.numpy(), e.numpy(), rtol=1e-3, atol=1e-2)
    large = [
        st.label
        for st in captured.traces[0].compiled.program.steps
        for storage in st.writes
        if isinstance(st, KernelCall)
        and "bitwise_and" in st.label
        and "reduce_sum" in st.label
        and storage.nbytes >= x.nbytes
    ]
    assert large == []
