"""Every op of the table works on tensors of a declared graph, with known sizes and with sizes that only a feed knows."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from tests.each import each
from tests.ops.table_cases import (
    call_with,
    for_every_sample,
    has_gradient,
    leaves_of,
    ops,
    outputs_of,
    samples_of,
    tensors_of,
)
from weft import dtypes
from weft.graph.declared.deferred_nodes import DeferredOp
from weft.graph.execute.session import _fits

# how many results they have is a size: see test_results_whose_number_is_a_size_are_refused_in_words
NUMBER_IS_A_SIZE = ("unstack", "split")
OPEN = {"sizes": lambda t: (None,) * t.ndim, "rank": lambda t: None}


def _close(op, got, expected):
    assert got.dtype == expected.dtype and got.shape == expected.shape
    tol = 5e-5 * op.tolerance
    np.testing.assert_allclose(got.numpy(), expected.detach().numpy(), rtol=tol, atol=tol, equal_nan=True)


def _equals_eager(op, sample, shape_of):
    args, kwargs = tensors_of(sample, "float32")
    leaves = leaves_of(args, kwargs)
    expected = outputs_of(op.call(*args, **kwargs))
    graph = wf.Graph("op")
    with graph.as_default():
        places = [wf.placeholder(t.dtype, shape_of(t)) for t in leaves]
        fetches = call_with(op, args, kwargs, places)
    with wf.Session(graph, executor="naive") as sess:
        got = sess.run(fetches, {p: t.detach().numpy() for p, t in zip(places, leaves, strict=True)}, timeout=60)
    for f, g, e in zip(fetches, got, expected, strict=True):
        _close(op, g, e)
        assert f.shape is None or _fits(f.shape, g.shape), f"declared as {f.shape}, is {g.shape}"


def _floating(tensors):
    return [t for t in tensors if dtypes.is_floating(t.dtype)]


def _weighted(outputs, weights):
    terms = [wf.sum(o * wf.constant(w)) for o, w in zip(outputs, weights, strict=True)]
    return sum(terms[1:], terms[0])


def _gradient_equals_eager(op, sample, shape_of):
    args, kwargs = tensors_of(sample, "float32", grad=True)
    leaves = leaves_of(args, kwargs)
    outputs = [o for o in _floating(outputs_of(op.call(*args, **kwargs))) if o._node is not None]
    if not outputs:
        return
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(o.shape).astype(np.float32) for o in outputs]
    loss = sum([wf.sum(o * wf.tensor(w)) for o, w in zip(outputs, weights, strict=True)], wf.tensor(0.0))
    expected = wf.grad(loss, _floating(leaves), allow_unused=True)
    graph = wf.Graph("op")
    with graph.as_default():
        places = [wf.placeholder(t.dtype, shape_of(t)) for t in leaves]
        declared = [o for o in _floating(call_with(op, args, kwargs, places)) if o._node is not None]
        found = wf.gradients(_weighted(declared, weights), _floating(places))
    pairs = [(g, e) for g, e in zip(found, expected, strict=True) if g is not None]
    assert all(e is None or not np.any(e.numpy()) for g, e in zip(found, expected, strict=True) if g is None)
    feeds = {p: t.detach().numpy() for p, t in zip(places, leaves, strict=True)}
    executors = ["naive", "dataflow"] if any(isinstance(n.op, DeferredOp) for n in graph.nodes) else ["naive"]
    for executor in executors:
        with wf.Session(graph, executor=executor) as sess:
            got = sess.run([g for g, _ in pairs], feeds, timeout=60)
        for g, (_, e) in zip(got, pairs, strict=True):
            _close(op, g, wf.zeros_like(g) if e is None else e)


@pytest.mark.parametrize("op", ops())
def test_declared_value_equals_eager(op):
    _equals_eager(op, samples_of(op)[0], lambda t: t.shape)


@for_every_sample(shape_of=OPEN)
def test_open_shapes_give_the_eager_value(op, sample, shape_of):
    try:
        _equals_eager(op, sample, OPEN[shape_of])
    except ValueError as error:
        if op.name not in NUMBER_IS_A_SIZE or "how many results" not in str(error):
            raise


@pytest.mark.parametrize("op", ops(lambda op: has_gradient(op) and op.name not in NUMBER_IS_A_SIZE))
def test_open_shapes_give_the_eager_gradient(op):
    samples = enumerate(samples_of(op)[:2])
    each(_gradient_equals_eager, {f"{op.name} {i} {way}: {s}": (op, s, OPEN[way]) for i, s in samples for way in OPEN})


@pytest.mark.parametrize("shape", [None, (None, None)], ids=["rank", "sizes"])
@pytest.mark.parametrize("call", [lambda x: wf.unstack(x), lambda x: wf.split(x, 2)], ids=["unstack", "split"])
def test_results_whose_number_is_a_size_are_refused_in_words(call, shape):
    with wf.Graph().as_default(), pytest.raises(ValueError, match="how many results it has depends on a size"):
        call(wf.placeholder(wf.float32, shape))
