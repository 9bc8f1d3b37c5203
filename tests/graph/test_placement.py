"""Devices: constraints, kernels, colocation, the choice of the placer, and steps that run on several devices."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft.graph.execute import costs
from weft.graph.execute.placement import as_devices
from weft.graph.execute.transport import Key, LocalTransport

WAIT = 20
DEVICES = ["cpu:0", "cpu:1", "ref:0"]


pytestmark = pytest.mark.usefixtures("fresh_graph")


def place_of(sess, fetch, feeds):
    step, _ = sess._step(fetch, feeds)
    return {n.name: str(d) for n, d in step.placement.of.items()}


def test_constraints_are_honoured_and_values_cross(executor):
    x = wf.placeholder(wf.float32, (3,))
    with wf.device("cpu:0"):
        a = x + 1.0
    with wf.device("cpu:1"):
        b = a * 2.0
        c = wf.tanh(a)
    with wf.device("ref:0"):
        d = b + c
    with wf.Session(executor=executor, devices=DEVICES) as sess:
        v = np.array([1.0, 2.0, 3.0], np.float32)
        got = sess.run([a, d], {x: v}, timeout=WAIT)
        np.testing.assert_allclose(got[1], (v + 1) * 2 + np.tanh(v + 1), rtol=1e-6)
        where = place_of(sess, [a, d], {x: v})
        assert where == {"add": "cpu:0", "multiply": "cpu:1", "tanh": "cpu:1", "add_1": "ref:0"}
        before = sess.transport.sent
        sess.run(d, {x: v}, timeout=WAIT)
        assert sess.transport.sent - before == 3  # `a` once although two nodes use it, then `b` and `c`
        assert not sess.transport._values and not sess.transport._waiting


def test_state_and_control_edges_across_devices(executor):
    x = wf.placeholder(wf.float32, ())
    with wf.device("cpu:1"):
        v = wf.Variable(np.float32(1.0))
        bump = v.assign_add(x)
    with wf.device("cpu:0"), wf.control_dependencies([bump]):
        done = wf.constant(5.0) * x
    with wf.device("cpu:1"), wf.control_dependencies([done]):
        after = v.read()
    with wf.Session(executor=executor, devices=DEVICES[:2]) as sess:
        for i in range(1, 4):
            assert sess.run(after, {x: 1.0}, timeout=WAIT).item() == 1.0 + i


def test_training_over_two_devices_equals_one(executor):
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((4, 8)).astype(np.float32), rng.standard_normal((8, 1)).astype(np.float32)
    a = rng.standard_normal((16, 4)).astype(np.float32)
    results = []
    for names in (("cpu:0", "cpu:0"), ("cpu:0", "cpu:1")):
        with wf.Graph().as_default():
            x = wf.placeholder(wf.float32, (None, 4))
            with wf.device(names[0]):
                w1 = wf.Variable(first)
                h = wf.tanh(x @ w1)
            with wf.device(names[1]):
                w2 = wf.Variable(second)
                loss = wf.mean((h @ w2 - 1.0) ** 2)
            g1, g2 = wf.gradients(loss, [w1, w2])
            train = wf.group(w1.assign_sub(0.1 * g1), w2.assign_sub(0.1 * g2))
            with wf.Session(executor=executor, devices=DEVICES[:2]) as sess:
                for _ in range(5):
                    last = sess.run([loss, train], {x: a}, timeout=WAIT)[0]
            results.append((last.item(), w1.numpy(), w2.numpy()))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5)
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-4, atol=1e-6)


def test_a_cut_inside_a_loop(executor):
    x = wf.placeholder(wf.float32, ())
    i, _ = wf.merge(wf.enter(wf.constant(0) + 0, "loop"))
    s, _ = wf.merge(wf.enter(x, "loop"))
    going = i < 4
    _, i_body = wf.switch(i, going)
    s_out, s_body = wf.switch(s, going)
    wf.next_iteration(i_body + 1, i)
    with wf.device("cpu:1"):
        doubled = s_body * 2.0
    wf.next_iteration(doubled, s)
    y = wf.exit(s_out)
    with wf.Session(executor=executor, devices=DEVICES[:2]) as sess:
        assert sess.run(y, {x: 1.0}, timeout=WAIT).item() == 16.0
        assert sess.transport.sent >= 4  # at least once in each of four iterations


def test_an_error_on_one_device_ends_the_step_on_all(executor):
    x = wf.placeholder(wf.float32)
    q = wf.FIFOQueue(1, wf.float32, ())
    waits = q.dequeue()
    with wf.device("cpu:1"):
        bad = x + wf.constant([1.0, 2.0, 3.0])
    with wf.Session(executor=executor, devices=DEVICES[:2]) as sess, pytest.raises(ValueError, match="node 'add'"):
        sess.run([waits, bad], {x: [1.0, 2.0]}, timeout=WAIT)


def test_variables_stay_with_their_assigns_and_colocate_with(fresh_graph):
    with wf.device("cpu:1"):
        v = wf.Variable(np.zeros(3, np.float32))
        read = v.read()
    write = v.assign_add(1.0)
    with wf.colocate_with(v):
        near = wf.constant(2.0) * 3.0
    with wf.Session(devices=DEVICES) as sess:
        where = place_of(sess, [read, write, near], {})
    assert set(where.values()) == {"cpu:1"}
    report = fresh_graph.placement_report(DEVICES)
    assert "device(cpu:1)" in report and "together with" in report and "load of cpu:1" in report


def test_missing_kernels_hard_and_soft_constraints():
    q = wf.FIFOQueue(2, wf.float32, ())
    with wf.device("ref:0"):
        hard = q.dequeue()
    with wf.device("ref:0", soft=True):
        soft = q.dequeue()
    with wf.device("cpu"):
        anywhere = wf.constant(1.0) + 1.0
    with wf.Session(devices=DEVICES) as sess:
        with pytest.raises(
            ValueError, match=r"no device can satisfy device\('ref:0'\).*fifo_queue/dequeue.*test_placement.py"
        ):
            sess.run(hard, timeout=WAIT)
        q.put(3.0, timeout=WAIT)
        assert sess.run(soft, timeout=WAIT).item() == 3.0
        assert place_of(sess, anywhere, {})["add"].startswith("cpu")
    with wf.device("cpu:7"):
        nowhere = wf.constant(1.0) * 2.0
    with wf.Session() as sess, pytest.raises(ValueError, match="no device can satisfy"):
        sess.run(nowhere)
    with pytest.raises(ValueError, match="cannot read 'gpu:0'"), wf.device("gpu:0"):
        pass


def test_the_cost_model_spreads_heavy_work_and_keeps_light_work_together():
    x = wf.placeholder(wf.float32, (2000, 2000))
    heavy = [wf.tanh(x * float(i)) for i in range(4)]
    with wf.Session(devices=DEVICES[:2]) as sess:
        a = np.zeros((2000, 2000), np.float32)
        assert set(place_of(sess, heavy, {x: a}).values()) == {"cpu:0", "cpu:1"}
        small = wf.placeholder(wf.float32, (2,))
        y = wf.tanh(small * 2.0) + 1.0
        assert set(place_of(sess, y, {small: [1.0, 2.0]}).values()) == {"cpu:0"}


def test_measured_costs_replace_estimates_and_the_report_says_so(fresh_graph):
    costs.forget()
    x = wf.placeholder(wf.float32, (100, 100))
    slow = wf.sort(x, axis=1)
    y = wf.sum(slow) + 1.0
    v = wf.Variable(np.float32(0.0))
    count = v.assign_add(1.0)
    a = np.zeros((100, 100), np.float32)
    try:
        assert "0 of 4 nodes measured" in fresh_graph.placement_report(DEVICES)
        with wf.Session(devices=DEVICES) as sess:
            table = sess.measure([y, count], {x: a})
            assert "sort" in table and "ref" in table
            assert v.numpy() == 1.0  # a real step, once
            node = slow._data.node
            seconds, measured = costs.node_seconds(node, "cpu")
            assert measured and 0 < seconds < 1
            report = fresh_graph.placement_report(DEVICES)
            assert "cheapest (measured)" in report and "4 of 4 nodes measured" in report
            # another node with the same op on about as many elements is known too, one of another size is not
            assert costs.node_seconds(wf.sort(x + 1.0, axis=0)._data.node, "cpu") == (seconds, True)
            small = wf.placeholder(wf.float32, (3,))
            assert not costs.node_seconds(wf.sort(small)._data.node, "cpu")[1]
            np.testing.assert_allclose(sess.run(y, {x: a}, timeout=WAIT), 1.0)
        # what was measured as slow goes where the load is low: told that sorting takes a second, the placer spreads it
        for kind in ("cpu", "ref"):
            costs.record(node, [a], [a], kind, 1.0)
        second = wf.sort(x * 2.0, axis=1)
        with wf.Session(devices=DEVICES[:2]) as sess:
            where = place_of(sess, [slow, second], {x: a})
            assert where["sort"] != where[second._data.node.name]
    finally:
        costs.forget()


def test_configured_devices():
    try:
        assert [str(d) for d in wf.configure_devices(cpu=2, ref=1)] == DEVICES
        with wf.device("cpu:1"):
            y = wf.constant(1.0) + 1.0
        with wf.Session() as sess:
            assert sess.run(y, timeout=WAIT).item() == 2.0
    finally:
        wf.configure_devices()
    with pytest.raises(ValueError, match="at least one cpu"):
        wf.configure_devices(cpu=0)


def test_transport_contract():
    transport = LocalTransport()
    cpu0, cpu1 = as_devices(["cpu:0", "cpu:1"])
    got = []
    key = Key(cpu0, cpu1, "x", 1, (("loop", 2),))
    transport.receive(key, lambda error, arrays: got.append(arrays))
    transport.send(key, 5)
    transport.send(key, 6)
    with pytest.raises(RuntimeError, match="sent twice"):
        transport.send(key, 7)
    transport.receive(key, lambda error, arrays: got.append(arrays))
    assert got == [[5], [6]]
    transport.send(key, 8)
    transport.forget(1)
    assert not transport._values
