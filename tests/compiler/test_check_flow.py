"""A flow that breaks a structural rule is refused with the pass, the node and the rule."""

import numpy as np
import pytest

from weft.backends.llvm.target import host
from weft.compiler.check_flow import check_flow
from weft.compiler.flow import from_graph
from weft.graph.graph import Graph, Value
from weft.ops.core.registry import table
from weft.ops.core.spec import Spec

F32 = np.dtype(np.float32)


def flow():
    graph = Graph("g")
    x = graph.placeholder((2, 3), F32, "x")
    y = graph.emit(table["exp"], (x,), ()).outputs[0]
    z = graph.emit(table["add"], (y, x), ()).outputs[0]
    return from_graph(graph, [x], [z])


def test_a_good_flow_passes_and_is_returned():
    f = flow()
    assert check_flow(f) is f


def _later(f):
    f.nodes[1], f.nodes[2] = f.nodes[2], f.nodes[1]
    for i, n in enumerate(f.nodes):
        n.order = i


def _foreign_input(f):
    f.nodes[2].inputs = (flow().nodes[1].outputs[0], f.inputs[0])


def _wrong_shape(f):
    node = f.nodes[1]
    node.outputs[0].shape = (3, 2)


def _wrong_dtype(f):
    f.nodes[1].outputs[0].dtype = np.dtype(np.float64)


def _refused(f):
    f.add(table["matmul"], (f.inputs[0], f.inputs[0]), (), (Spec((2, 3), F32),))


def _stolen_output(f):
    f.nodes[2].outputs = (f.nodes[1].outputs[0],)


def _dangling(f):
    f.outputs = [Value(f.nodes[2], 0, (2, 3), F32)]


def _input_not_placeholder(f):
    f.inputs = [f.nodes[1].outputs[0]]


def _order(f):
    f.nodes[2].order = 7


def _name(f):
    f.nodes[2].name = f.nodes[1].name


BROKEN = {
    "which no earlier node of the flow makes": _later,
    "reads %exp: float32": _foreign_input,
    "where its shape rule gives float32(2, 3)": _wrong_shape,
    "makes %exp: float64(2, 3) where its shape rule gives float32(2, 3)": _wrong_dtype,
    "is refused by its own shape rule": _refused,
    "which belongs elsewhere": _stolen_output,
    "is returned, but not made in the flow": _dangling,
    "is an input of the flow, but no placeholder": _input_not_placeholder,
    "says it is node 7": _order,
    "has the name of another node": _name,
}


@pytest.mark.parametrize("problem", BROKEN)
def test_broken_rule_is_named(problem):
    f = flow()
    BROKEN[problem](f)
    with pytest.raises(ValueError, match="flow g after merge: node ") as raised:
        check_flow(f, "merge")
    assert problem in str(raised.value)


def test_passes_are_checked_when_asked_for(monkeypatch):
    from weft.compiler import passes

    def breaks(f):
        f.nodes[1].outputs[0].shape = (9,)
        return f

    monkeypatch.setattr(passes, "PASSES", (breaks,))
    monkeypatch.setenv("WEFT_VALIDATE", "1")
    with pytest.raises(ValueError, match="after breaks"):
        passes.optimise(flow(), host())
    monkeypatch.setenv("WEFT_VALIDATE", "0")
    passes.optimise(flow(), host())


def test_names_stay_unique_beside_names_that_look_numbered():
    graph = Graph("g")
    for base in ("add_1", "add", "add", "add", "add_1"):
        graph.placeholder((), F32, base)
    names = [n.name for n in graph.nodes]
    assert len(set(names)) == len(names)
