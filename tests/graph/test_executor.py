"""Control flow in declared graphs: structured forms, and the routing ops with their dead tokens."""

from __future__ import annotations

import time

import numpy as np
import pytest

import weft as wf
from weft.ops.core.define import elementwise
from weft.ops.core.registry import table

WAIT = 20


pytestmark = pytest.mark.usefixtures("fresh_graph")


# Structured ---------------------------------------------------------------------------------------------------------------


def test_cond_and_its_gradient_with_unknown_shapes(control_session):
    x = wf.placeholder(wf.float32)
    y = wf.cond(wf.sum(x) > 0, lambda: x * 2.0, lambda: x * x)
    g = wf.gradients(y, x)
    with control_session() as sess:
        for a in ([1.0, 2.0], [-1.0, -2.0, 0.5]):
            a = np.array(a, np.float32)
            got, grad = sess.run([y, g], {x: a})
            np.testing.assert_allclose(got, a * 2 if a.sum() > 0 else a * a)
            np.testing.assert_allclose(grad, np.full_like(a, 2) if a.sum() > 0 else 2 * a)


def test_case(control_session):
    i, x = wf.placeholder(wf.int64, ()), wf.placeholder(wf.float32, (2,))
    y = wf.case(i, [lambda: x + 1.0, lambda: x * 10.0, lambda: -x])
    with control_session() as sess:
        got = [sess.run(y, {i: k, x: [1.0, 2.0]}).tolist() for k in range(4)]
    assert got == [[2.0, 3.0], [10.0, 20.0], [-1.0, -2.0], [-1.0, -2.0]]


def test_while_loop_of_unknown_trip_count_and_its_gradient(control_session):
    x, n = wf.placeholder(wf.float32), wf.placeholder(wf.int64, ())
    w = wf.Variable(np.float32(1.5))
    _, s = wf.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s * w), (wf.constant(0), x))
    gx, gw = wf.gradients(wf.sum(s), [x, w])
    with control_session() as sess:
        for k in (0, 1, 4):
            got = sess.run([s, gx, gw], {x: [1.0, 2.0], n: k})
            np.testing.assert_allclose(got[0], np.array([1.0, 2.0]) * 1.5**k, rtol=1e-5)
            np.testing.assert_allclose(got[1], np.full(2, 1.5**k), rtol=1e-5)
            np.testing.assert_allclose(got[2], 3 * k * 1.5 ** (k - 1) if k else 0.0, rtol=1e-5)


def test_the_gradient_of_a_long_loop_costs_a_fixed_number_of_runs_per_iteration():
    x, n = wf.placeholder(wf.float64, ()), wf.placeholder(wf.int64, ())
    _, y = wf.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s * 0.9999 + 0.001), (wf.constant(0), x))
    g = wf.gradients(y, x)
    start = time.monotonic()
    with wf.Session() as sess:  # 50,000 iterations: with the states computed anew for each this would take minutes
        assert sess.run(g, {x: 1.0, n: 50_000}, timeout=WAIT).item() == pytest.approx(0.9999**50_000, rel=1e-6)
    assert time.monotonic() - start < WAIT


def test_second_derivative_of_a_loop(control_session):
    x, n = wf.placeholder(wf.float32, ()), wf.placeholder(wf.int64, ())
    _, y = wf.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s * x), (wf.constant(0), x))
    first = wf.gradients(y, x)
    second = wf.gradients(first, x)
    with control_session() as sess:
        got = sess.run([y, first, second], {x: 2.0, n: 3}, timeout=60)  # x⁴
        np.testing.assert_allclose(got, [16.0, 32.0, 48.0], rtol=1e-5)


def test_second_derivatives_of_branches_and_scans(control_session):
    x = wf.placeholder(wf.float32, ())
    w = wf.Variable(np.float32(3.0))
    branch = wf.cond(x > 0, lambda: x * x * x * w, lambda: x)
    last, ys = wf.scan(lambda c, k: (c * x + k * w, c * c), x * 1.0, wf.constant([1.0, 2.0]))
    results = []
    for y in (branch, last, wf.sum(ys)):
        first = wf.gradients(y, [x, w])
        results.append([*first, *wf.gradients(first[0], [x, w])])
    with control_session() as sess:
        got = [[np.asarray(v) for v in row] for row in sess.run(results, {x: 2.0}, timeout=60)]
    X, W = 2.0, 3.0
    expected = [  # branch: w x³; last: x³ + w x + 2 w; ys: x² + (x² + w)²
        [3 * W * X**2, X**3, 6 * W * X, 3 * X**2],
        [3 * X**2 + W, X + 2, 6 * X, 1.0],
        [2 * X + 4 * X * (X**2 + W), 2 * (X**2 + W), 2 + 12 * X**2 + 4 * W, 4 * X],
    ]
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_scan_over_a_length_that_only_the_feed_knows(control_session):
    xs = wf.placeholder(wf.float32, (None, 2))
    last, ys = wf.scan(lambda c, x: (c + x, c * x), wf.zeros(2), xs)
    g = wf.gradients(wf.sum(last * last) + wf.sum(ys), xs)
    with control_session() as sess:
        for k in (0, 1, 4):
            a = np.arange(2 * k, dtype=np.float32).reshape(k, 2)
            t = wf.tensor(a, requires_grad=True)
            carry, rows = wf.zeros(2), []
            for row in t:
                rows.append(carry * row)
                carry = carry + row
            final, stacked, gradient = sess.run([last, ys, g], {xs: a}, timeout=60)
            np.testing.assert_allclose(final, carry.detach())
            assert stacked.shape == (k, 2)
            if k:
                np.testing.assert_allclose(stacked, wf.stack(rows).detach())
                (wf.sum(carry * carry) + wf.sum(wf.stack(rows))).backward()
                np.testing.assert_allclose(gradient, t.grad, rtol=1e-5)


def test_nested_loops(control_session):
    n = wf.placeholder(wf.int64, ())

    def outer(i, total):
        _, inner = wf.while_loop(lambda j, s: j < i, lambda j, s: (j + 1, s + j), (wf.constant(0), total))
        return i + 1, inner

    _, total = wf.while_loop(lambda i, t: i < n, outer, (wf.constant(0), wf.constant(0)))
    with control_session() as sess:
        assert sess.run(total, {n: 6}).item() == sum(j for i in range(6) for j in range(i))


def test_scan_with_gradient(control_session):
    xs = wf.placeholder(wf.float32, (5, 2))
    w = wf.Variable(np.float32(0.5))
    last, ys = wf.scan(lambda c, x: (wf.tanh(c * w + x), c), wf.zeros((2,)), xs)
    g = wf.gradients(wf.sum(last), w)
    a = np.linspace(-1, 1, 10, dtype=np.float32).reshape(5, 2)
    t = wf.tensor(0.5, requires_grad=True)
    carry = wf.zeros((2,))
    for row in a:
        carry = wf.tanh(carry * t + wf.tensor(row))
    carry.sum().backward()
    with control_session() as sess:
        got, grad = sess.run([last, g], {xs: a})
    np.testing.assert_allclose(got, carry.detach(), rtol=1e-5)
    np.testing.assert_allclose(grad, t.grad, rtol=1e-4)


# Routing ops --------------------------------------------------------------------------------------------------------------


def test_switch_and_merge_run_only_one_branch(session):
    x, p = wf.placeholder(wf.float32, (2,)), wf.placeholder(wf.bool, ())
    count = wf.Variable(np.float32(0.0))
    no, yes = wf.switch(x, p)
    left = no - 1.0
    right = yes * 10.0 + wf.sum(yes) * 0.0 + 0.0
    bump = count.assign_add(wf.sum(yes))
    y, which = wf.merge(left, right)
    with session() as sess:
        a, i = sess.run([y, which], {x: [1.0, 2.0], p: False})
        assert a.tolist() == [0.0, 1.0] and i.item() == 0
        a, i = sess.run([y, which], {x: [1.0, 2.0], p: True})
        assert a.tolist() == [10.0, 20.0] and i.item() == 1
        sess.run([y, wf.group(bump)], {x: [1.0, 2.0], p: False}, timeout=WAIT)
        assert count.numpy() == 0  # the assign was in the branch not taken
        with pytest.raises(RuntimeError, match=r"branch that was not taken.*test_executor.py"):
            sess.run(right, {x: [1.0, 2.0], p: False})


def test_gradient_of_switch_and_merge(session):
    x, p = wf.placeholder(wf.float32, (2,)), wf.placeholder(wf.bool, ())
    no, yes = wf.switch(x, p)
    y, _ = wf.merge(no * no, yes * 5.0)
    g = wf.gradients(wf.sum(y * 2.0), x)
    with session() as sess:
        np.testing.assert_allclose(sess.run(g, {x: [1.0, 3.0], p: False}), [4.0, 12.0])
        np.testing.assert_allclose(sess.run(g, {x: [1.0, 3.0], p: True}), [10.0, 10.0])


def loop(limit, start, factor):
    """start * factor ** limit, with routing ops."""
    i, _ = wf.merge(wf.enter(wf.constant(0) + 0, "loop"))
    s, _ = wf.merge(wf.enter(start, "loop"))
    n = wf.enter(limit, "loop", is_constant=True)
    f = wf.enter(factor, "loop", is_constant=True)
    going = i < n
    _, i_body = wf.switch(i, going)
    s_out, s_body = wf.switch(s, going)
    wf.next_iteration(i_body + 1, i)
    wf.next_iteration(s_body * f, s)
    return wf.exit(s_out)


def test_a_loop_of_routing_ops(session):
    n, x = wf.placeholder(wf.int64, ()), wf.placeholder(wf.float32, (2,))
    y = loop(n, x, wf.placeholder(wf.float32, (), name="f")) + 1.0
    with session() as sess:
        for k in (0, 1, 7, 100):
            got = sess.run(y, {n: k, x: [1.0, 2.0], "f": 1.01}, timeout=WAIT)
            np.testing.assert_allclose(got, np.array([1.0, 2.0]) * 1.01**k + 1, rtol=1e-4)


@pytest.mark.parametrize("name", ["enter", "next_iteration", "merge"])
def test_an_op_may_have_the_name_of_a_routing_op(session, name):
    @elementwise(name=name, namespace="internal", vjp=lambda g: g)
    def plus_one(x):
        """x + 1"""
        return x + 1.0

    try:
        x, _ = wf.merge(wf.enter(wf.placeholder(wf.float32, (), name="start"), "loop"))
        out, body = wf.switch(x, x < 5.0)
        wf.next_iteration(plus_one(body), x)
        with session() as sess:
            assert sess.run(wf.exit(out), {"start": 0.5}, timeout=WAIT).item() == 5.5
    finally:
        del table[name]


def test_a_loop_in_a_branch_that_is_not_taken(session):
    p, x = wf.placeholder(wf.bool, ()), wf.placeholder(wf.float32, ())
    no, yes = wf.switch(x, p)
    y, _ = wf.merge(no, loop(wf.constant(3) + 0, yes, wf.constant(2.0) * 1.0))
    with session() as sess:
        assert sess.run(y, {p: True, x: 1.0}, timeout=WAIT).item() == 8.0
        assert sess.run(y, {p: False, x: 1.0}, timeout=WAIT).item() == 1.0


def test_queues_inside_a_loop_of_routing_ops(session):
    q = wf.FIFOQueue(20, wf.float32, ())
    x = wf.placeholder(wf.float32, ())
    n = wf.constant(5) + 0
    i, _ = wf.merge(wf.enter(wf.constant(0) + 0, "w"))
    limit, value = wf.enter(n, "w", is_constant=True), wf.enter(x, "w", is_constant=True)
    going = i < limit
    out, body = wf.switch(i, going)
    put = q.enqueue(value + body.astype(wf.float32))
    with wf.control_dependencies([put]):
        wf.next_iteration(body + 1, i)
    done = wf.exit(out)
    with session() as sess:
        assert sess.run(done, {x: 10.0}, timeout=WAIT).item() == 5
    assert q.get_many(5, timeout=WAIT).tolist() == [10.0, 11.0, 12.0, 13.0, 14.0]


def test_structural_mistakes_are_found_when_the_graph_is_built():
    x = wf.placeholder(wf.float32, (2,), name="x")
    inside = wf.enter(x, "loop")
    with pytest.raises(ValueError, match=r"add: inputs are in different frames.*'x' in no frame.*test_executor.py"):
        inside + x
    with pytest.raises(ValueError, match="exit: the tensor is not inside a frame"):
        wf.exit(x)
    with pytest.raises(ValueError, match="next_iteration: `into` must be"):
        wf.next_iteration(inside, inside)
    merged, _ = wf.merge(inside)
    with pytest.raises(ValueError, match="same frame"):
        wf.next_iteration(x, merged)
    with pytest.raises(TypeError, match="float32. Got int64"):
        wf.next_iteration(inside.astype(wf.int64), merged)
    with pytest.raises(TypeError, match="pred must be one bool"):
        wf.switch(x, x)
    with pytest.raises(TypeError, match="one dtype"):
        wf.merge(x, wf.constant(1))
    with wf.Session() as sess, pytest.raises(ValueError, match="inside the loop 'loop'"):
        sess.run(merged, {x: [1.0, 2.0]})
