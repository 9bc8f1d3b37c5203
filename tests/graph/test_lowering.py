"""Structured control flow as routing ops: the same results, and bodies with state, queues and several devices."""

from __future__ import annotations

import time

import numpy as np
import pytest

import weft as wf
from weft.graph.execute.tokens import TokenPlan

WAIT = 20
TWO = ["cpu:0", "cpu:1"]
pytestmark = pytest.mark.usefixtures("fresh_graph")


def plan_of(sess, fetch, feeds):
    return sess._step(fetch, feeds)[0].plan


def test_pure_control_flow_is_compiled_unless_asked_otherwise():
    x = wf.placeholder(wf.float32, ())
    _, y = wf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s * 2.0), (wf.constant(0), x))
    with wf.Session() as compiled, wf.Session(lower=True) as lowered:
        for sess, is_tokens in ((compiled, False), (lowered, True)):
            assert sess.run(y, {x: 1.0}, timeout=WAIT).item() == 8.0
            assert isinstance(plan_of(sess, y, {x: 1.0}), TokenPlan) is is_tokens
        assert compiled.last_run.executed < 5 < lowered.last_run.executed


def test_both_forms_agree_on_nested_control_flow_and_gradients():
    """A loop in a branch in a loop, with values from outside at every level."""
    x, n = wf.placeholder(wf.float32, (3,)), wf.placeholder(wf.int64, ())
    w = wf.Variable(np.array([0.9, 1.1, 1.0], np.float32))

    def inner(i, s):
        def loop():
            _, t = wf.while_loop(lambda j, t: j < i, lambda j, t: (j + 1, wf.tanh(t * w)), (wf.constant(0), s))
            return t

        return i + 1, wf.cond(wf.sum(s) > 0.5, loop, lambda: s + w)

    _, y = wf.while_loop(lambda i, s: i < n, inner, (wf.constant(0), x))
    gx, gw = wf.gradients(wf.sum(y), [x, w])
    results = {}
    a = np.array([0.1, 0.2, 0.3], np.float32)
    for name, kwargs in {
        "compiled": {}, "naive": {"executor": "naive"}, "lowered": {"lower": True},
        "lowered naive": {"lower": True, "executor": "naive"},
    }.items():  # fmt: skip
        with wf.Session(**kwargs) as sess:
            results[name] = [sess.run([y, gx, gw], {x: a, n: k}, timeout=60) for k in (0, 1, 3)]
    for name, got in results.items():
        for mine, reference in zip(got, results["naive"], strict=True):
            for p, q in zip(mine, reference, strict=True):
                np.testing.assert_allclose(p, q, rtol=1e-4, atol=1e-6, err_msg=name)


def test_assigns_inside_a_loop_happen_once_per_iteration(session):
    n = wf.placeholder(wf.int64, ())
    v = wf.Variable(np.float32(0.0), name="v")

    def body(i):
        v.assign_add(1.0)  # its result is unused
        return i + 1

    i = wf.while_loop(lambda i: i < n, body, wf.constant(0))
    with session() as sess:
        for k in (0, 1, 5):
            assert sess.run(i, {n: k}, timeout=WAIT).item() == k
        assert v.numpy() == 6.0


def test_an_assign_in_a_branch_happens_only_if_it_is_taken(session):
    p = wf.placeholder(wf.bool, ())
    v = wf.Variable(np.float32(0.0), name="v")

    def taken():
        with wf.control_dependencies([v.assign_add(10.0)]):
            return v.read()

    y = wf.cond(p, taken, lambda: wf.constant(-1.0) * 1.0)
    with session() as sess:
        assert sess.run(y, {p: False}, timeout=WAIT).item() == -1.0
        assert v.numpy() == 0.0
        assert sess.run(y, {p: True}, timeout=WAIT).item() == 10.0
        assert v.numpy() == 10.0


def test_reads_inside_a_loop_see_the_writes_of_earlier_iterations(session):
    v = wf.Variable(np.float32(1.0), name="v")

    def body(i, total):
        now = v.read()
        with wf.control_dependencies([now]):
            doubled = v.assign(now * 2.0)
        return i + 1, total + now + 0.0 * doubled

    _, total = wf.while_loop(lambda i, t: i < 4, body, (wf.constant(0), wf.constant(0.0)))
    with session() as sess:
        assert sess.run(total, timeout=WAIT).item() == 1 + 2 + 4 + 8
        assert v.numpy() == 16.0


def test_a_loop_that_drains_a_queue(session):
    q = wf.FIFOQueue(10, wf.float32, ())
    n = wf.placeholder(wf.int64, ())
    _, total = wf.while_loop(
        lambda i, s: i < n, lambda i, s: (i + 1, s * 10.0 + q.dequeue()), (wf.constant(0), wf.constant(0.0))
    )
    with session() as sess:
        future = sess.run_async(total, {n: 3}, timeout=WAIT)
        for value in (1.0, 2.0, 3.0):
            q.put(value, timeout=WAIT)
        assert future.result(timeout=WAIT).item() == 123.0  # in the order of the iterations
        assert q.size() == 0


def test_a_loop_that_fills_a_queue_keeps_order_and_waits_for_room(session):
    q = wf.FIFOQueue(2, wf.float32, ())

    def body(i):
        q.enqueue(i.astype(wf.float32))
        return i + 1

    done = wf.while_loop(lambda i: i < 6, body, wf.constant(0))
    with session() as sess:
        future = sess.run_async(done, timeout=WAIT)
        assert [q.get(timeout=WAIT).item() for _ in range(6)] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
        assert future.result(timeout=WAIT).item() == 6


def test_control_edges_wait_for_the_effects_of_a_loop(session):
    v = wf.Variable(np.float32(0.0), name="v")

    def body(i):
        v.assign_add(1.0)
        return i + 1

    i = wf.while_loop(lambda i: i < 5, body, wf.constant(0))
    with wf.control_dependencies([i]):
        after = v.read()
    with session() as sess:
        assert sess.run(after, timeout=WAIT).item() == 5.0


def test_effects_in_a_loop_in_a_branch_that_is_not_taken(session):
    p = wf.placeholder(wf.bool, ())
    v = wf.Variable(np.float32(0.0), name="v")

    def loop():
        def body(i):
            v.assign_add(1.0)
            return i + 1

        return wf.while_loop(lambda i: i < 3, body, wf.constant(0))

    y = wf.cond(p, loop, lambda: wf.constant(-1))
    with session() as sess:
        assert sess.run(y, {p: False}, timeout=WAIT).item() == -1 and v.numpy() == 0.0
        assert sess.run(y, {p: True}, timeout=WAIT).item() == 3 and v.numpy() == 3.0


def test_a_body_on_two_devices_and_its_gradient(executor):
    x, n = wf.placeholder(wf.float32, (4,)), wf.placeholder(wf.int64, ())
    w = wf.Variable(np.float32(1.5))

    def body(i, s):
        with wf.device("cpu:0"):
            h = wf.tanh(s * w)
        with wf.device("cpu:1"):
            return i + 1, h + s

    _, y = wf.while_loop(lambda i, s: i < n, body, (wf.constant(0), x))
    gx, gw = wf.gradients(wf.sum(y), [x, w])
    a = np.linspace(-1, 1, 4, dtype=np.float32)
    t, u = wf.tensor(a, requires_grad=True), wf.tensor(1.5, requires_grad=True)
    s = t
    for _ in range(3):
        s = wf.tanh(s * u) + s
    s.sum().backward()
    with wf.Session(executor=executor, devices=TWO) as sess:
        got = sess.run([y, gx, gw], {x: a, n: 3}, timeout=60)
        for mine, expected in zip(got, (s.detach(), t.grad, u.grad), strict=True):
            np.testing.assert_allclose(mine, expected, rtol=1e-4)
        before = sess.transport.sent
        sess.run(y, {x: a, n: 3}, timeout=WAIT)
        assert sess.transport.sent - before >= 3  # at least one value in each iteration
        assert not sess.transport._values and not sess.transport._listeners


def test_a_scan_with_a_queue_in_its_body(session):
    q = wf.FIFOQueue(10, wf.float32, ())
    xs = wf.placeholder(wf.float32, (3, 2))
    last, ys = wf.scan(lambda c, x: (c + x, c * q.dequeue()), wf.zeros(2), xs)
    for value in (1.0, 2.0, 3.0):
        q.put(value, timeout=WAIT)
    a = np.arange(6, dtype=np.float32).reshape(3, 2)
    with session() as sess:
        final, stacked = sess.run([last, ys], {xs: a}, timeout=WAIT)
    np.testing.assert_allclose(final, a.sum(0))
    carries = np.concatenate([np.zeros((1, 2)), np.cumsum(a, 0)[:-1]])
    np.testing.assert_allclose(stacked, carries * np.array([[1.0], [2.0], [3.0]]))


def test_an_error_in_a_body_names_the_line_and_ends_the_step(session):
    x = wf.placeholder(wf.float32)
    v = wf.Variable(np.zeros(2, np.float32), name="v")

    def body(i):
        v.assign_add(x)
        return i + 1

    done = wf.while_loop(lambda i: i < 3, body, wf.constant(0))
    with session() as sess:
        with pytest.raises(ValueError, match=r"v.*test_lowering.py"):
            sess.run(done, {x: np.ones(3, np.float32)}, timeout=WAIT)
        np.testing.assert_array_equal(v.numpy(), 0)
        sess.run(done, {x: np.ones(2, np.float32)}, timeout=WAIT)
    np.testing.assert_array_equal(v.numpy(), 3)


def test_gradients_through_effects_are_refused():
    q = wf.FIFOQueue(3, wf.float32, ())
    x = wf.placeholder(wf.float32, ())
    _, y = wf.while_loop(lambda i, s: i < 2, lambda i, s: (i + 1, s * q.dequeue()), (wf.constant(0), x))
    with pytest.raises(
        RuntimeError, match=r"has no gradient, because the gradient runs the body again.*test_lowering.py"
    ):
        wf.gradients(y, x)


def test_effects_in_captured_functions_are_refused():
    q = wf.FIFOQueue(3, wf.float32, ())
    v = wf.Variable(np.float32(1.0))

    with pytest.raises(RuntimeError, match="cannot be used inside a captured function"):
        wf.function(lambda x: x + q.dequeue())(wf.tensor(1.0))
    with pytest.raises(RuntimeError, match="cannot be used inside a captured function"):
        wf.function(lambda x: x + v.assign_add(1.0))(wf.tensor(1.0))


def test_cancelling_a_loop_that_never_ends(executor):
    i = wf.while_loop(lambda i: i >= 0, lambda i: (i + 1) % 1000, wf.constant(0))
    with wf.Session(executor=executor, lower=True) as sess, pytest.raises(TimeoutError):
        sess.run(i, timeout=0.3)


def test_a_compiled_loop_that_never_ends_stops_at_its_deadline_or_when_cancelled(executor):
    v = wf.Variable(np.float32(0.0))
    i = wf.while_loop(lambda i: i >= 0, lambda i: (i + 1) % 1000, wf.constant(0))
    after = v.assign_add(i.astype(wf.float32))
    with wf.Session(executor=executor) as sess:
        with pytest.raises(TimeoutError, match="deadline"):
            sess.run(after, timeout=0.5)
        future = sess.run_async(i)
        while not sess._runs:
            time.sleep(0.001)
        time.sleep(0.1)
        sess.cancel()
        assert isinstance(future.exception(timeout=WAIT), wf.CancelledError)
        assert v.numpy() == 0.0
        done = wf.while_loop(lambda i: i < 10, lambda i: i + 1, wf.constant(0))
        assert sess.run(done, timeout=WAIT).item() == 10  # the flag was taken back
