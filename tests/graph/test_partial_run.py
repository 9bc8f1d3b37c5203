"""Sessions as TensorFlow's users type them: `feed_dict`, partial runs, optimisers of Variables, joining threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import weft as wf
from weft import optim

EXECUTORS = ("dataflow", "naive")


def test_feeds_go_by_the_name_of_feed_dict():
    with wf.Graph().as_default() as graph:
        x = wf.placeholder(wf.float32, ())
        y = x + 1
    with wf.Session(graph) as sess:
        assert sess.run(y, feed_dict={x: 2.0}).item() == sess.run(y, {x: 2.0}).item() == 3.0
        assert sess.run_async(y, feed_dict={x: 2.0}).result(timeout=60).item() == 3.0
        with pytest.raises(TypeError, match="given twice, as `feeds` and as `feed_dict`"):
            sess.run(y, {x: 1.0}, feed_dict={x: 1.0})


@pytest.mark.parametrize("make", [lambda v: optim.SGD(v, lr=0.1), lambda v: optim.Adam(v, lr=0.1)], ids=["sgd", "adam"])
def test_optimisers_take_variables(make):
    with wf.Graph().as_default() as graph:
        x, y = wf.placeholder(wf.float32, (None, 3)), wf.placeholder(wf.float32, (None,))
        w, b = wf.Variable(np.zeros(3, np.float32), name="w"), wf.Variable(0.0, name="b", dtype=wf.float32)
        optimizer = make([w, b])
        train = wf.minimize(optimizer, wf.mean((x @ w + b - y) ** 2))
    assert optimizer.param_groups[0]["params"][0] is w.tensor
    inputs = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    with wf.Session(graph) as sess:
        for _ in range(300):
            sess.run(train, feed_dict={x: inputs, y: inputs @ np.array([1, -2, 0.5], np.float32) + 3})
    np.testing.assert_allclose(w.numpy(), [1, -2, 0.5], atol=1e-2)
    np.testing.assert_allclose(b.numpy(), 3, atol=1e-2)


def test_joining_takes_threads_that_others_started():
    coordinator, seen = wf.Coordinator(), []

    def work():
        coordinator.wait(30)
        seen.append("stopped")

    threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    own = coordinator.start(lambda: seen.append("own"), "own")
    coordinator.request_stop()
    coordinator.join(threads)
    assert sorted(seen) == ["own", "stopped", "stopped"]
    assert not own.is_alive()
    coordinator.join([own, *threads], timeout=5)
    coordinator.join(5.0)
    slow = threading.Thread(target=threading.Event().wait, args=(3,), daemon=True, name="slow")
    slow.start()
    with pytest.raises(TimeoutError, match="'slow' did not end within 0.05 seconds"):
        coordinator.join([slow], timeout=0.05)


def _step():
    """A graph in which a draw and a counter show how often their nodes run."""
    graph = wf.Graph()
    with graph.as_default():
        a, b = wf.placeholder(wf.float32, ()), wf.placeholder(wf.float32, ())
        count = wf.Variable(0.0, dtype=wf.float32)
        first = a * 2
        second = first + b + count.assign_add(1.0)
        third = second * first
        draw = wf.rand(3)
    return graph, (a, b), (first, second, third, draw), count


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_partial_run_runs_every_node_once(executor):
    graph, (a, b), (first, second, third, draw), count = _step()
    with wf.Session(graph, executor=executor) as sess:
        for repetition in (1, 2):
            handle = sess.partial_run_setup([first, second, third, draw], [a, b])
            value = sess.partial_run(handle, first, feed_dict={a: 1.0})
            drawn = sess.partial_run(handle, draw).tolist()
            assert count.numpy() == repetition - 1  # nothing that was fetched needs it yet
            assert sess.partial_run(handle, {"second": second}, {b: value})["second"].item() == 4 + repetition
            assert [t.item() for t in sess.partial_run(handle, [third, first])] == [2 * (4 + repetition), 2.0]
            assert count.numpy() == repetition
            assert sess.partial_run(handle, draw).tolist() == drawn
        assert sess.run(second, feed_dict={a: 1.0, b: 2.0}).item() == 7.0


def test_a_partial_run_keeps_effects_and_control_edges_in_order():
    with wf.Graph().as_default() as graph:
        x, v = wf.placeholder(wf.float32, ()), wf.Variable(1.0, dtype=wf.float32)
        write = v.assign(x)
        with wf.control_dependencies([write.node if hasattr(write, "node") else write._data.node]):
            after = v.read() * 10
    with wf.Session(graph) as sess:
        handle = sess.partial_run_setup([write, after], [x])
        assert sess.partial_run(handle, write, {x: 3.0}).item() == 3.0
        v.tensor.fill_(5.0)
        assert sess.partial_run(handle, after).item() == 50.0  # read now; the write did not run again


def test_what_a_partial_run_refuses():
    graph, (a, b), (first, second, third, draw), _ = _step()
    with wf.Session(graph) as sess, wf.Session(graph) as other:
        handle = sess.partial_run_setup([first, second], [a, b])
        for words, action in {
            "must be fed before": lambda: sess.partial_run(handle, second, {a: 1.0}),
            "was fed by an earlier call": lambda: sess.partial_run(handle, first, {a: 1.0}),
            "not among the fetches": lambda: sess.partial_run(handle, third),
            "not among the feeds": lambda: sess.partial_run(handle, first, {second: 1.0}),
        }.items():
            with pytest.raises(ValueError, match=words):
                action()
        with pytest.raises(TypeError, match="a handle that `partial_run_setup` of this session"):
            other.partial_run(handle, first)


# Functions of a graph, as in Theano ---------------------------------------------------------------------------------------


def test_updates_are_computed_from_the_old_values():
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, (None,))
        p, q = wf.Variable([1.0, 2.0]), wf.Variable([3.0, 4.0])
        swap = wf.function([x], [wf.sum(x * p), {"p": p}], updates=[(p, q), (q, p)])
    total, named = swap([1.0, 1.0])
    assert (total.item(), named["p"].tolist()) == (3.0, [1.0, 2.0])
    assert (p.numpy().tolist(), q.numpy().tolist()) == ([3.0, 4.0], [1.0, 2.0])
    swap([0.0, 0.0])
    assert p.numpy().tolist() == [1.0, 2.0]
    with wf.Graph().as_default():
        count = wf.Variable(0, dtype=wf.int64)
        assert wf.function([], updates={count: count + 1})() is None
    assert count.numpy() == 1


def test_training_with_updates_and_givens():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(60, 3)).astype(np.float32)
    with wf.Graph().as_default() as graph:
        x, y = wf.placeholder(wf.float32, (None, 3)), wf.placeholder(wf.float32, (None,))
        w = wf.Variable(np.zeros(3, np.float32))
        data, targets = wf.Variable(inputs), wf.Variable(inputs @ np.array([1, -2, 0.5], np.float32))
        cost = wf.mean((x @ w - y) ** 2)
        start = wf.placeholder(wf.int64, ())
        rows = wf.arange(20) + start
        batch = {x: wf.take(data, rows, axis=0), y: wf.take(targets, rows, axis=0)}
        train = wf.function([start], cost, updates=[(w, w - 0.1 * wf.gradients(cost, w))], givens=batch)
        direct = wf.function([x, y], cost)
        fixed = wf.function([], cost, givens=[(x, [[1.0, 0.0, 0.0]]), (y, [0.0])])
    first = train(0).item()
    for step in range(300):
        last = train(20 * (step % 3)).item()
    assert last < 1e-4 < first
    np.testing.assert_allclose(w.numpy(), [1, -2, 0.5], atol=1e-2)
    assert direct(inputs, targets.numpy()).item() < 1e-4  # what was declared before is unchanged
    assert fixed().item() == pytest.approx(1.0, abs=0.05)
    assert graph is w.graph


def test_what_a_function_of_a_graph_refuses():
    with wf.Graph().as_default():
        x, v = wf.placeholder(wf.float32, ()), wf.Variable(1.0, dtype=wf.float32)
        for kind, words, action in (
            (TypeError, "a list of pairs", lambda: wf.function([x], x, updates=[v])),
            (ValueError, "updates name a tensor twice", lambda: wf.function([x], x, updates=[(v, x), (v, x)])),
            (TypeError, "an update writes a wf.Variable", lambda: wf.function([x], x, updates=[(x, v)])),
            (TypeError, "must keep the dtype", lambda: wf.function([], x + 1, givens={x: wf.constant(1)})),
            (TypeError, "belongs to a declared graph", lambda: wf.function([], 3)),
            (TypeError, "belong to a list of inputs", lambda: wf.function(lambda x: x, updates=[(v, x)])),
        ):
            with pytest.raises(kind, match=words):
                action()
