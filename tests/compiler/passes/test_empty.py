"""Values without elements, by comparing the graphs before and after the pass."""

import numpy as np
import pytest

import weft as wf
from weft.compiler.check_flow import check_flow
from weft.compiler.passes.empty import drop_empty
from weft.graph.graph import CONSTANT, PLACEHOLDER


def captured(fn, *args):
    f = wf.function(fn)
    f(*args)
    return f.traces[0].flow


def ops(flow):
    return [n.op.name for n in flow.nodes if n.op is not PLACEHOLDER and n.op is not CONSTANT]


def test_nothing_is_computed_for_values_without_elements():
    flow = captured(lambda x: wf.exp(x) * 2.0, wf.ones(0, 3))
    assert ops(flow) == ["exp", "multiply"]
    assert ops(check_flow(drop_empty(flow))) == []


@pytest.mark.parametrize(("name", "expected"), [("sum", 0.0), ("prod", 1.0)])
def test_reductions_of_nothing_are_known(name, expected):
    x = wf.ones(0, 3)
    flow = captured(lambda t: getattr(wf, name)(t, axis=0), x)
    assert ops(check_flow(drop_empty(flow))) == ["filled"]
    assert wf.function(lambda t: getattr(wf, name)(t, axis=0))(x).tolist() == [expected] * 3


def test_writing_nothing_changes_nothing():
    x, index, source = wf.ones(4), wf.tensor(np.zeros(0, np.int64)), wf.ones(0)
    flow = captured(lambda x, i, s: wf.index_add(x, i, s, 0), x, index, source)
    assert ops(check_flow(drop_empty(flow))) == []


def test_flows_without_empty_values_are_left_alone():
    flow = captured(lambda x: wf.exp(x), wf.ones(2))
    assert drop_empty(flow) is flow
