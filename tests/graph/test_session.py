"""Declared graphs and the sessions that run them; every test runs on both executors."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import weft as wf

pytestmark = pytest.mark.usefixtures("fresh_graph")


def arrays(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def test_the_first_program(session):
    a, b, d = arrays((3, 4), (3, 4), (3, 4))
    x, y, z = wf.placeholder(wf.float32), wf.placeholder(wf.float32), wf.placeholder(wf.float32)
    c = wf.sum(x * y + z)
    gx, gy, gz = wf.gradients(c, [x, y, z])
    with session() as sess:
        c_val, gx_val, gy_val, gz_val = sess.run([c, gx, gy, gz], {x: a, y: b, z: d})
    np.testing.assert_allclose(c_val, (a * b + d).sum(), rtol=1e-5)
    np.testing.assert_allclose(gx_val, b)
    np.testing.assert_allclose(gy_val, a)
    np.testing.assert_allclose(gz_val, np.ones_like(d))


def test_gradients_of_unknown_shapes_undo_broadcasting(session):
    x, y = wf.placeholder(wf.float32), wf.placeholder(wf.float32, (None, None))
    gx, gy = wf.gradients(wf.tanh(x * y), [x, y])
    a, b = arrays((4, 1), (4, 3))
    ea, eb = wf.tensor(a, requires_grad=True), wf.tensor(b, requires_grad=True)
    wf.tanh(ea * eb).sum().backward()
    with session() as sess:
        got_x, got_y = sess.run([gx, gy], {x: a, y: b})
        assert got_x.shape == (4, 1)
        np.testing.assert_allclose(got_x, ea.grad, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(got_y, eb.grad, rtol=1e-4, atol=1e-6)
        assert sess.run(gx, {x: a[:2, :1], y: b[:2]}).shape == (2, 1)  # other sizes, the same graph


def test_second_derivatives_and_partial_sums(session):
    x = wf.placeholder(wf.float32, (3,))
    y = x * x * x + x  # two paths to x
    (first,) = wf.gradients(y, [x])
    second = wf.gradients(first, x)
    with session() as sess:
        one, two = sess.run([first, second], {x: [1.0, 2.0, 3.0]})
    np.testing.assert_allclose(one, [4.0, 13.0, 28.0])
    np.testing.assert_allclose(two, [6.0, 12.0, 18.0])


def test_gradient_with_respect_to_an_inner_tensor_and_an_unrelated_one(session):
    x, other = wf.placeholder(wf.float32, ()), wf.placeholder(wf.float32, ())
    h = x * 3.0
    y = h * h
    gh, none = wf.gradients(y, [h, other])
    assert none is None
    with session() as sess:
        assert sess.run(gh, {x: 2.0}).item() == 12.0


def test_ops_with_several_outputs(session):
    x = wf.placeholder(wf.float32, (2, 6))
    values, places = wf.topk(x, 2)
    (gradient,) = wf.gradients(wf.sum(values), [x])
    (a,) = arrays((2, 6))
    with session() as sess:
        got, where, g = sess.run([values, places, gradient], {x: a})
    np.testing.assert_array_equal(got, -np.sort(-a, axis=1)[:, :2])
    np.testing.assert_array_equal(np.take_along_axis(a, where.numpy(), 1), got)
    assert g.sum().item() == 4.0


def test_fetch_structures_nodes_names_and_feed_inner_tensors(session):
    x = wf.placeholder(wf.float32, (2,), name="x")
    h = x + 1.0
    y = h * 2.0
    done = wf.group(y)
    with session() as sess:
        got = sess.run({"a": y, "b": [h, (x, done)]}, {x: [1.0, 2.0]})
        assert got["b"][1][1] is None
        np.testing.assert_allclose(got["a"], [4.0, 6.0])
        np.testing.assert_allclose(got["b"][0], [2.0, 3.0])
        np.testing.assert_allclose(got["b"][1][0], [1.0, 2.0])
        np.testing.assert_allclose(sess.run(y, {h: [5.0, 5.0]}), [10.0, 10.0])  # x need not be fed
        np.testing.assert_allclose(sess.run("multiply", {"x": [1.0, 2.0]}), [4.0, 6.0])


def test_variables_and_eager_tensors_can_be_fed(session):
    v = wf.Variable(np.float32(3.0))
    t = wf.tensor([1.0, 2.0])
    x = wf.placeholder(wf.float32, (2,))
    y = x * v + t
    with session() as sess:
        assert sess.run(y, {x: [1.0, 1.0]}, timeout=20).tolist() == [4.0, 5.0]
        assert sess.run(y, {x: [1.0, 1.0], v: 10.0, t: [0.0, 0.5]}, timeout=20).tolist() == [10.0, 10.5]
        assert v.numpy() == 3.0
        with pytest.raises(TypeError, match="which the graph does not use"):
            sess.run(y, {wf.ones(3): 1.0})


def test_what_a_step_returns_is_not_the_feed(session):
    x = wf.placeholder(wf.float32, (2, 2))
    a = np.ones((2, 2), np.float32)
    with session() as sess:
        same, flat = sess.run([x, x.reshape(4)], {x: a})
    same.numpy()[...] = 7
    flat.numpy()[...] = 7
    assert a.max() == 1


def test_pruning_counts_executed_nodes(session):
    x = wf.placeholder(wf.float32, (2,))
    cheap = x + 1.0
    costly = cheap
    for _ in range(50):
        costly = wf.tanh(costly)
    with session() as sess:
        sess.run(cheap, {x: [1.0, 2.0]})
        assert sess.last_run.executed == 1
        sess.run(costly, {x: [1.0, 2.0]})
        assert sess.last_run.executed == 51


def test_a_chain_of_many_nodes(session):
    x = wf.placeholder(wf.float32, (4,))
    y = x
    for _ in range(300):
        y = y * 1.01 + 0.01
    expected = np.full(4, 0.5)
    for _ in range(300):
        expected = expected * 1.01 + 0.01
    with session() as sess:
        np.testing.assert_allclose(sess.run(y, {x: np.full(4, 0.5, np.float32)}), expected, rtol=1e-4)


def test_sizes_that_depend_on_data(session):
    x = wf.placeholder(wf.float32, (None,))
    (places,) = wf.nonzero(x > 0)
    total = wf.sum(wf.take(x, places, axis=0)) * 2.0
    with session() as sess:
        assert sess.run(total, {x: [1.0, -2.0, 3.0]}).item() == 8.0
        assert sess.run(total, {x: [1.0, -2.0, -3.0, -1.0]}).item() == 2.0


def test_make_callable_and_as_function(session, fresh_graph):
    x, y = wf.placeholder(wf.float32), wf.placeholder(wf.float32)
    with session() as sess:
        f = sess.make_callable([x + y, x * y], [x, y])
        a, b = f(2.0, 5.0)
        assert (a.item(), b.item()) == (7.0, 10.0)
        with pytest.raises(TypeError, match="expected 2 values"):
            f(1.0)
    g = fresh_graph.as_function([x, y], x - y)
    np.testing.assert_allclose(g(wf.tensor([3.0, 4.0]), 1.0), [2.0, 3.0])


def test_a_captured_function_becomes_part_of_a_graph(session):
    w = wf.tensor([1.0, 2.0])

    @wf.function
    def layer(x):
        return wf.tanh(x * w)

    eager = layer(wf.tensor([0.5, 0.5]))
    x = wf.placeholder(wf.float32, (2,))
    y = layer(x) + 1.0
    with session() as sess:
        np.testing.assert_allclose(sess.run(y, {x: [0.5, 0.5]}), eager.numpy() + 1, rtol=1e-6)


def test_run_async_overlaps_and_takes_feeds_at_once(session):
    x = wf.placeholder(wf.float32, (3,))
    y = x * 2.0
    with session() as sess:
        a = np.ones(3, np.float32)
        futures = [sess.run_async(y, {x: a})]
        a[...] = 5
        futures += [sess.run_async(y, {x: np.full(3, i, np.float32)}) for i in range(10)]
        np.testing.assert_allclose(futures[0].result(timeout=20), [2.0, 2.0, 2.0])
        for i, f in enumerate(futures[1:]):
            np.testing.assert_allclose(f.result(timeout=20), np.full(3, 2.0 * i))


def test_async_steps_of_one_queue_run_in_order_and_overlap_with_python(session):
    v = wf.Variable(np.float32(1.0))
    x = wf.placeholder(wf.float32, ())
    gate = wf.FIFOQueue(1, wf.float32, ())
    double, add = v.assign_fn(lambda old: old * 2.0), v.assign_add(x)
    with session() as sess:
        held = sess.run_async(gate.dequeue(), timeout=20)  # the queue of steps waits here, Python does not
        futures = []
        for i in range(10):
            futures += [sess.run_async(double), sess.run_async(add, {x: float(i)})]
        assert not held.done() and not any(f.done() for f in futures)
        assert sess.run(v, timeout=20).item() == 1.0  # other steps run meanwhile
        other = sess.run_async(v, queue="other")
        assert other.result(timeout=20).item() == 1.0
        gate.put(0.0, timeout=20)
        expected = 1.0
        for i in range(10):
            expected = expected * 2.0 + i
            assert futures[2 * i + 1].result(timeout=20).item() == expected


def test_closing_a_session_ends_what_was_submitted(session):
    gate = wf.FIFOQueue(1, wf.float32, ())
    v = wf.Variable(np.float32(0.0))
    sess = session()
    running = sess.run_async(gate.dequeue())
    waiting = sess.run_async(v.assign_add(1.0))
    while not sess._runs:
        time.sleep(0.001)
    sess.close()
    assert isinstance(running.exception(timeout=20), wf.CancelledError)
    assert "closed" in str(waiting.exception(timeout=20))
    assert v.numpy() == 0.0


def test_an_async_error_names_the_node(session):
    x = wf.placeholder(wf.float32)
    y = x + wf.constant([1.0, 2.0])
    with session() as sess, pytest.raises(ValueError, match=r"node 'add'.*test_session.py"):
        sess.run_async(y, {x: [1.0, 2.0, 3.0]}).result(timeout=20)


def test_many_threads_run_overlapping_subgraphs(session):
    x = wf.placeholder(wf.float32, (8, 8))
    h = wf.tanh(x @ x)
    outs = [wf.sum(h * float(i)) for i in range(4)]
    (a,) = arrays((8, 8))
    base = np.tanh(a @ a).sum()
    errors = []
    with session() as sess:

        def work(i):
            try:
                for _ in range(5):
                    np.testing.assert_allclose(sess.run(outs[i], {x: a}), base * i, rtol=1e-3, atol=1e-4)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(i % 4,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(30)
            assert not t.is_alive()
    assert not errors


# Names, scopes, printing ------------------------------------------------------------------------------------------------


def test_names_and_scopes(fresh_graph, tmp_path):
    with wf.name_scope("layer"):
        x = wf.placeholder(wf.float32, (2,), name="x")
        y = x + 1.0
        with wf.name_scope("inner"):
            z = y * y
    assert x._data.name == "layer/x"
    assert z._data.node.name == "layer/inner/multiply"
    assert fresh_graph.tensor("layer/x")._data is x._data
    assert "layer/inner/multiply" in str(fresh_graph)
    assert fresh_graph.draw(tmp_path / "g.svg").stat().st_size > 500
    with pytest.raises(KeyError, match="Did you mean 'layer/x'"):
        fresh_graph.node("layer/xx")


# Bad input --------------------------------------------------------------------------------------------------------------


def test_unfed_placeholder(session):
    x = wf.placeholder(wf.float32, name="images")
    y = x + 1.0
    with session() as sess, pytest.raises(ValueError, match=r"'images' must be fed.*test_session.py"):
        sess.run(y)


def test_wrong_shape_and_dtype(session):
    x = wf.placeholder(wf.float32, (None, 3), name="x")
    with session() as sess:
        with pytest.raises(ValueError, match=r"wrong shape fed to 'x'.*\(2, 4\).*\(\?, 3\).*test_session.py"):
            sess.run(x + 1.0, {x: np.zeros((2, 4), np.float32)})
        with pytest.raises(TypeError, match=r"wrong dtype fed to 'x'.*int64.*float32"):
            sess.run(x + 1.0, {x: np.zeros((2, 3), np.int64)})
        with pytest.raises(ValueError, match=r"timeout must be a number"):
            sess.run(x + 1.0, {x: np.zeros((2, 3), np.float32)}, timeout="soon")
        with pytest.raises(TypeError, match="only symbolic tensors can be fed"):
            sess.run(x + 1.0, {"nothing".__len__: 1})


@pytest.mark.parametrize("given", [1.5, [1.0, 2.0], (1, [2.5])], ids=str)
def test_fractions_are_not_fed_to_integers(given):
    n = wf.placeholder(wf.int32, name="n")
    with (
        wf.Session() as sess,
        pytest.raises(TypeError, match=r"wrong dtype fed to 'n'.*expected int32.*test_session.py"),
    ):
        sess.run(n, {n: given})


def test_shapes_that_do_not_fit_name_the_node_and_line(session):
    x, y = wf.placeholder(wf.float32), wf.placeholder(wf.float32)
    z = x + y
    with session() as sess, pytest.raises(ValueError, match=r"add.*node 'add'.*test_session.py"):
        sess.run(z, {x: np.zeros(3, np.float32), y: np.zeros(4, np.float32)})


def test_tensor_of_another_graph(session):
    other = wf.Graph("other")
    with other.as_default():
        x = wf.placeholder(wf.float32, (1,))
        y = x + 1.0
    mine = wf.placeholder(wf.float32, (1,))
    with session() as sess:
        with pytest.raises(ValueError, match="belongs to graph 'other'.*test_session.py"):
            sess.run(y, {mine: [1.0]})
        with pytest.raises(ValueError, match="belongs to graph 'other'"):
            sess.run(mine + 1.0, {x: [1.0]})
    with pytest.raises(RuntimeError, match="another graph"):
        mine + x


def test_use_after_close(session):
    x = wf.constant([1.0])
    sess = session()
    f = sess.make_callable(x + 1.0)
    sess.run(x + 1.0)
    sess.close()
    for use in (lambda: sess.run(x), f, lambda: sess.run_async(x), sess.__enter__):
        with pytest.raises(RuntimeError, match="closed"):
            use()


def test_values_are_refused_while_declaring():
    x = wf.placeholder(wf.float32, (1,), name="x")
    for use in (x.numpy, x.item, lambda: bool(x > 0), lambda: float(x)):
        with pytest.raises(RuntimeError, match=r"no value yet|requires gradients"):
            use()
    with pytest.raises(TypeError, match="cannot fetch"), wf.Session() as sess:
        sess.run(3.5)
    with pytest.raises(ValueError, match="executor"):
        wf.Session(executor="fast")


def test_a_deadline_names_what_the_step_was_waiting_for(session):
    q = wf.FIFOQueue(1, wf.float32, (), name="examples")
    x = q.dequeue() + 1.0
    with session() as sess, pytest.raises(TimeoutError, match=r"waiting for node 'examples/dequeue'.*test_session.py"):
        sess.run(x, timeout=0.1)


def test_devices_are_checked_when_the_session_opens():
    with pytest.raises(ValueError, match="cannot read 'gpu:0'"):
        wf.Session(devices=["gpu:0"])
    for bad in ([], "cpu:0"):
        with pytest.raises(ValueError, match="expected a list such as"):
            wf.Session(devices=bad)


def test_control_edges_into_a_loop_are_refused_when_declared():
    x = wf.placeholder(wf.float32, (), name="x")
    inside = wf.enter(x, "loop")
    outside = x * 2.0
    with pytest.raises(ValueError, match=r"different frames.*test_session.py"), wf.control_dependencies([outside]):
        inside + 1.0


def test_a_deadline_in_the_past(session):
    x = wf.constant([1.0])
    with session() as sess:
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            sess.run(x + 1.0, timeout=0)
        assert time.monotonic() - start < 5


def test_loops_go_on_after_a_step_that_ran_out_of_time(session):
    x = wf.placeholder(wf.float32, ())
    endless = wf.while_loop(lambda i, y: i >= 0, lambda i, y: (i + 1, y * 0.5), (wf.constant(0), x))[1]
    loop = wf.function(lambda n: wf.while_loop(lambda i: i < n, lambda i: i + 1, wf.tensor(0)))
    with session() as sess:
        with pytest.raises(TimeoutError):
            sess.run(endless, {x: 1.0}, timeout=0.2)
        assert loop(wf.tensor(1000)).item() == 1000


def test_a_drawing_shows_the_names_of_the_user_and_arrowheads(fresh_graph, tmp_path):
    x = wf.placeholder(wf.float32, (2,), name="pixels")
    w = wf.Variable([1.0, 2.0], name="weight")
    with wf.name_scope("head"):
        y = wf.exp(x * w)
    assert y.shape == (2,)
    text = fresh_graph.draw(tmp_path / "g.svg").read_text()
    for name in ("pixels", "weight", "head/exp"):
        assert f">{name}</text>" in text
    assert text.count('marker-end="url(#arrow)"') == 3 and '<marker id="arrow"' in text
