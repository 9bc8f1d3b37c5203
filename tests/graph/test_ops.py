"""Every op of the table works on tensors of a declared graph, with known sizes and with sizes that only a feed knows."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import weft as wf

_path = Path(__file__).parents[1] / "ops" / "test_table.py"
_spec = importlib.util.spec_from_file_location("table_cases", _path)
_table = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_table)


def _first_samples():
    """One sample of every op."""
    seen, cases = set(), []
    for case in _table._samples():
        op = case.values[0]
        if op.name not in seen:
            seen.add(op.name)
            cases.append(case)
    return cases


def _declared(op, args, kwargs, leaves, places):
    table = {id(old): new for old, new in zip(leaves, places, strict=True)}

    def swap(v):
        if isinstance(v, wf.Tensor):
            return table[id(v)]
        return (
            tuple(swap(x) for x in v) if isinstance(v, (tuple, list)) and any(isinstance(x, wf.Tensor) for x in v) else v
        )

    return op.call(*[swap(a) for a in args], **{k: swap(v) for k, v in kwargs.items()})


def _equals_eager(op, sample, shape_of):
    args, kwargs = _table._tensors(sample, "float32")
    leaves = _table._leaves(args, kwargs)
    expected = _table._outputs(op.call(*args, **kwargs))
    graph = wf.Graph("op")
    with graph.as_default():
        places = [wf.placeholder(t.dtype, shape_of(t)) for t in leaves]
        fetches = _table._outputs(_declared(op, args, kwargs, leaves, places))
    with wf.Session(graph, executor="naive") as sess:
        got = sess.run(fetches, {p: t.detach().numpy() for p, t in zip(places, leaves, strict=True)}, timeout=60)
    for g, e in zip(got, expected, strict=True):
        assert g.dtype == e.dtype and g.shape == e.shape
        tol = 2e-5 * op.tolerance
        np.testing.assert_allclose(g.numpy(), e.detach().numpy(), rtol=tol, atol=tol, equal_nan=True)


@pytest.mark.parametrize(("op", "sample"), _first_samples())
def test_declared_value_equals_eager(op, sample):
    _equals_eager(op, sample, lambda t: t.shape)


@pytest.mark.parametrize("shape_of", [lambda t: (None,) * t.ndim, lambda t: None], ids=["sizes", "rank"])
@pytest.mark.parametrize(("op", "sample"), _first_samples())
def test_unknown_shapes_give_the_eager_value_or_an_error_in_words(op, sample, shape_of):
    try:
        _equals_eager(op, sample, shape_of)
    except (ValueError, TypeError) as error:  # an op that needs a size to be declared says so
        assert "NoneType" not in str(error) or op.namespace == "internal", error
