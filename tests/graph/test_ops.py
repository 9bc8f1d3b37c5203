"""Every op of the table works on tensors of a declared graph, with known sizes and with sizes that only a feed knows."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from weft import dtypes
from weft.graph.declared.deferred_nodes import DeferredOp
from weft.graph.execute.session import _fits

_path = Path(__file__).parents[1] / "ops" / "test_table.py"
_spec = importlib.util.spec_from_file_location("table_cases", _path)
_table = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_table)

# how many results they have is a size: see test_results_whose_number_is_a_size_are_refused_in_words
NUMBER_IS_A_SIZE = ("unstack", "split")
OPEN = {"sizes": lambda t: (None,) * t.ndim, "rank": lambda t: None}


def _samples(most):
    """The first samples of every op, together."""
    found = {}
    for case in _table._samples():
        op, sample = case.values
        found.setdefault(op.name, (op, []))[1].append(sample)
    return [pytest.param(op, samples[:most], id=name) for name, (op, samples) in found.items()]


def _declared(op, args, kwargs, leaves, places):
    table = {id(old): new for old, new in zip(leaves, places, strict=True)}

    def swap(v):
        if isinstance(v, wf.Tensor):
            return table[id(v)]
        return (
            tuple(swap(x) for x in v)
            if isinstance(v, (tuple, list)) and any(isinstance(x, wf.Tensor) for x in v)
            else v
        )

    return _table._outputs(op.call(*[swap(a) for a in args], **{k: swap(v) for k, v in kwargs.items()}))


def _close(op, got, expected):
    assert got.dtype == expected.dtype and got.shape == expected.shape
    tol = 5e-5 * op.tolerance
    np.testing.assert_allclose(got.numpy(), expected.detach().numpy(), rtol=tol, atol=tol, equal_nan=True)


def _equals_eager(op, sample, shape_of):
    args, kwargs = _table._tensors(sample, "float32")
    leaves = _table._leaves(args, kwargs)
    expected = _table._outputs(op.call(*args, **kwargs))
    graph = wf.Graph("op")
    with graph.as_default():
        places = [wf.placeholder(t.dtype, shape_of(t)) for t in leaves]
        fetches = _declared(op, args, kwargs, leaves, places)
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
    args, kwargs = _table._tensors(sample, "float32", grad=True)
    leaves = _table._leaves(args, kwargs)
    outputs = [o for o in _floating(_table._outputs(op.call(*args, **kwargs))) if o._node is not None]
    if not outputs:
        return
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(o.shape).astype(np.float32) for o in outputs]
    loss = sum([wf.sum(o * wf.tensor(w)) for o, w in zip(outputs, weights, strict=True)], wf.tensor(0.0))
    expected = wf.grad(loss, _floating(leaves), allow_unused=True)
    graph = wf.Graph("op")
    with graph.as_default():
        places = [wf.placeholder(t.dtype, shape_of(t)) for t in leaves]
        declared = [o for o in _floating(_declared(op, args, kwargs, leaves, places)) if o._node is not None]
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


@pytest.mark.parametrize(("op", "samples"), _samples(1))
def test_declared_value_equals_eager(op, samples):
    _equals_eager(op, samples[0], lambda t: t.shape)


@pytest.mark.parametrize("shape_of", OPEN.values(), ids=OPEN)
@pytest.mark.parametrize(("op", "samples"), _samples(20))
def test_open_shapes_give_the_eager_value(op, samples, shape_of):
    for sample in samples:
        try:
            _equals_eager(op, sample, shape_of)
        except ValueError as error:
            if op.name not in NUMBER_IS_A_SIZE or "how many results" not in str(error):
                raise


@pytest.mark.parametrize("shape_of", OPEN.values(), ids=OPEN)
@pytest.mark.parametrize(
    ("op", "samples"),
    [p for p in _samples(2) if p.values[0].name not in NUMBER_IS_A_SIZE and p.values[0].differentiable],
)
def test_open_shapes_give_the_eager_gradient(op, samples, shape_of):
    if op.test.get("no_gradient"):
        pytest.skip("its gradient is not its derivative")
    for sample in samples:
        _gradient_equals_eager(op, sample, shape_of)


@pytest.mark.parametrize("shape", [None, (None, None)], ids=["rank", "sizes"])
@pytest.mark.parametrize("call", [lambda x: wf.unstack(x), lambda x: wf.split(x, 2)], ids=["unstack", "split"])
def test_results_whose_number_is_a_size_are_refused_in_words(call, shape):
    with wf.Graph().as_default(), pytest.raises(ValueError, match="how many results it has depends on a size"):
        call(wf.placeholder(wf.float32, shape))
