"""Subgraphs traced again from their nodes: gradients of control flow that was read from a file."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf

WAIT = 60
VALUES = np.array([0.5, -1.2, 2.0], np.float32)


def _loop(n, x, body):
    return wf.sum(wf.while_loop(lambda i, h: i < n, lambda i, h: (i + 1, body(i, h)), (wf.constant(0), x))[1])


def _scan(x, w, n):
    last, rows = wf.scan(lambda h, row: (wf.tanh(h + row * w[0]), h * row), wf.constant(0.3), x)
    return last * last + wf.sum(rows * rows)


def _nested_loops(x, w, n):
    def inner(i, h):
        return wf.while_loop(lambda j, g: j < i, lambda j, g: (j + 1, wf.sin(g * w)), (wf.constant(0), h))[1]

    return _loop(n, x, inner)


PROGRAMS = {
    "cond": lambda x, w, n: wf.cond(n > 2, lambda: wf.sum(x * x * w), lambda: wf.sum(x * w * 3.0)),
    "cond with operands": lambda x, w, n: wf.cond(n > 2, lambda a: wf.sum(wf.tanh(a) * w), lambda a: wf.sum(a * a), x),
    "case": lambda x, w, n: wf.sum(wf.case(n - 2, [lambda a: a * w, lambda a: a * a * w, lambda a: wf.exp(a)], x)),
    "while": lambda x, w, n: _loop(n, x, lambda i, h: wf.tanh(h * w) + x * 0.1),
    "scan": _scan,
    "cond in while": lambda x, w, n: _loop(
        n, x, lambda i, h: wf.cond(i > 1, lambda a: wf.tanh(a * w), lambda a: a * w * 0.5 + x, h)
    ),
    "while in while": _nested_loops,
}


def _declare(program, shape):
    graph = wf.Graph("flow")
    with graph.as_default():
        x, n = wf.placeholder(wf.float32, shape, name="x"), wf.placeholder(wf.int64, (), name="n")
        w = wf.Variable(np.array([0.7, -0.4, 1.1], np.float32), name="w")
        y = program(x, w, n)
    return graph, x, w, y


def _differentiate(graph, y, x, w):
    with graph.as_default():
        gx, gw = wf.gradients(y, [x, w])
        return [y, gx, gw, wf.gradients(wf.sum(gx * gx), x)]


@pytest.mark.parametrize("shape", [(3,), (None,)], ids=["known", "open"])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_loaded_control_flow_has_first_and_second_gradients(program, shape, executor, tmp_path):
    graph, x, w, y = _declare(program, shape)
    graph.save(tmp_path / "flow")
    loaded = wf.Graph.load(tmp_path / "flow")
    expected = _differentiate(graph, y, x, w)
    found = _differentiate(loaded, loaded.tensor(y._data.name), loaded.tensor("x"), loaded.variables()["w"])
    loaded.save(tmp_path / "again")  # the gradients that were made from nodes can be stored and loaded themselves
    again = wf.Graph.load(tmp_path / "again")
    for n in (1, 4):
        with wf.Session(graph, executor=executor) as sess:
            wanted = sess.run(expected, {"x": VALUES, "n": n}, timeout=WAIT)
        for g, fetches in ((loaded, found), (again, [t._data.name for t in found])):
            with wf.Session(g, executor=executor) as sess:
                for a, b in zip(sess.run(fetches, {"x": VALUES, "n": n}, timeout=WAIT), wanted, strict=True):
                    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5)


def test_loaded_control_flow_with_effects_refuses_its_gradient(tmp_path):
    graph = wf.Graph("effects")
    with graph.as_default():
        x, count = wf.placeholder(wf.float32, (), name="x"), wf.Variable(np.float32(0.0), name="count")

        def body(i, h):
            count.assign_add(1.0)
            return i + 1, h * 2.0

        y = wf.while_loop(lambda i, h: i < 3, body, (wf.constant(0), x))[1]
    graph.save(tmp_path / "effects")
    loaded = wf.Graph.load(tmp_path / "effects")
    with loaded.as_default(), pytest.raises(RuntimeError, match="inside a while has no gradient"):
        wf.gradients(loaded.tensor(y._data.name), loaded.tensor("x"))


def test_a_function_given_to_a_variable_may_branch_and_loop(session, fresh_graph):
    x = wf.placeholder(wf.float32, (None,))
    w = wf.Variable(np.float32(1.0))
    step = w.assign_fn(lambda old: wf.cond(old > 1.5, lambda: old - wf.median(x), lambda: old + wf.sum(x)))
    with session(fresh_graph) as sess:
        assert sess.run(step, {x: [1.0, 2.0, 4.0]}, timeout=WAIT).item() == 8.0
        assert sess.run(step, {x: [1.0, 2.0, 4.0]}, timeout=WAIT).item() == 6.0
