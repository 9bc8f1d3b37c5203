"""Variables: atomic reads and writes, control edges, state shared by steps, sessions and eager code."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import weft as wf
from weft.graph.declared.variables import SharedLock

pytestmark = pytest.mark.usefixtures("fresh_graph")


def in_threads(*functions, seconds=30):
    errors = []

    def guarded(fn):
        try:
            fn()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(f,)) for f in functions]
    for t in threads:
        t.start()
    for t in threads:
        t.join(seconds)
        assert not t.is_alive()
    assert not errors, errors


@pytest.mark.parametrize("size", [3, 5000])
def test_each_way_to_write(session, size):
    v = wf.Variable(np.zeros((size, 2), np.float32), name="v")
    x = wf.placeholder(wf.float32)
    scale = wf.placeholder(wf.float32, ())
    add, sub, put = v.assign_add(x), v.assign_sub(x), v.assign(wf.zeros_like(v.value()) + x)
    rows = v.scatter_add(wf.constant([1, 1, 2]), wf.constant(np.ones((3, 2), np.float32)))
    scaled = v.assign_fn(lambda old: old * scale + 1.0)
    expected = np.zeros((size, 2), np.float32)
    with session() as sess:
        np.testing.assert_allclose(sess.run(add, {x: 2.0}), expected + 2)
        np.testing.assert_allclose(sess.run(sub, {x: 0.5}), expected + 1.5)
        sess.run(put, {x: 3.0})
        sess.run(rows)
        expected += 3
        expected[1] += 2
        expected[2] += 1
        np.testing.assert_allclose(v.numpy(), expected)
        np.testing.assert_allclose(sess.run(scaled, {scale: 2.0}), expected * 2 + 1)
    with session() as later:  # state is not the session's
        np.testing.assert_allclose(later.run(v), expected * 2 + 1)


def test_concurrent_assign_add_loses_nothing(session):
    v = wf.Variable(np.zeros(1000, np.float32))
    one, ten = v.assign_add(1.0), v.assign_add(10.0)
    with session() as sess:
        in_threads(*[lambda op=op: [sess.run(op) for _ in range(50)] for op in (one, ten, one, ten)])
        np.testing.assert_array_equal(sess.run(v), np.full(1000, 50 * 22.0))


def test_separate_read_and_write_may_lose_an_update(session):
    """Read, wait for the other step, write: both saw the same value, so one addition is lost."""
    v = wf.Variable(np.float32(1.0))
    new = wf.placeholder(wf.float32, ())
    read, write = v.read(), v.assign(new)
    barrier = threading.Barrier(2)
    with session() as sess:

        def step(amount):
            seen = sess.run(read).item()
            barrier.wait(20)
            sess.run(write, {new: seen + amount})

        in_threads(lambda: step(10.0), lambda: step(100.0))
        assert sess.run(v).item() in (11.0, 101.0)


def test_readers_see_whole_values(session):
    v = wf.Variable(np.zeros(20000, np.float32))
    bump = v.assign_add(1.0)
    torn = []
    with session() as sess:
        sess.run([bump, v])

        def read():
            for _ in range(30):
                a = sess.run(v).numpy()
                torn.append(a.min() != a.max())

        in_threads(lambda: [sess.run(bump) for _ in range(30)], read)
    assert not any(torn)


def test_control_edges_order_reads_and_writes(session):
    v = wf.Variable(np.float32(1.0))
    before = v.read()
    with wf.control_dependencies([before]):
        bump = v.assign_add(10.0)
    with wf.control_dependencies([bump]):
        after = v.read()
    with session() as sess:
        a, b = sess.run([before, after])
        assert (a.item(), b.item()) == (1.0, 11.0)
        a, b = sess.run([before, after])
        assert (a.item(), b.item()) == (11.0, 21.0)
        assert sess.run(before).item() == 21.0  # pruned: nothing was added


def test_eager_tensor_and_variable_are_the_same_object(session):
    t = wf.tensor([1.0, 2.0])
    v = wf.Variable(t)
    x = wf.placeholder(wf.float32, (2,))
    direct, through = x * t, x * v
    with session() as sess:
        sess.run(v.assign_add(1.0))
        np.testing.assert_allclose(t.numpy(), [2.0, 3.0])
        t += 1.0
        a, b = sess.run([direct, through], {x: [1.0, 1.0]})
    np.testing.assert_allclose(a, [3.0, 4.0])
    np.testing.assert_allclose(b, [3.0, 4.0])
    assert v.tensor is t


def test_training_by_gradients_and_assigns(session):
    rng = np.random.default_rng(0)
    truth = np.array([[2.0], [-3.0]], np.float32)
    w, b = wf.Variable(np.zeros((2, 1), np.float32)), wf.Variable(np.zeros(1, np.float32))
    x, y = wf.placeholder(wf.float32, (None, 2)), wf.placeholder(wf.float32, (None, 1))
    loss = wf.mean((x @ w + b - y) ** 2)
    gw, gb = wf.gradients(loss, [w, b])
    train = wf.group(w.assign_sub(0.1 * gw), b.assign_sub(0.1 * gb))
    with session() as sess:
        for i in range(60):
            a = rng.standard_normal((8 if i % 2 else 16, 2)).astype(np.float32)
            _, last = sess.run([train, loss], {x: a, y: a @ truth + 1})
    assert last.item() < 0.05
    np.testing.assert_allclose(w.numpy(), truth, atol=0.3)


def test_a_failing_step_changes_nothing(session):
    v = wf.Variable(np.zeros(3, np.float32))
    x = wf.placeholder(wf.float32)
    add = v.assign_add(x)  # does not fit the feed below
    with wf.control_dependencies([add]):
        second = v.assign_add(1.0)
    with session() as sess:
        with pytest.raises(ValueError, match=r"variable 'variable'.*test_state.py|do not broadcast.*test_state.py"):
            sess.run([add, second], {x: np.ones(4, np.float32)})
    np.testing.assert_array_equal(v.numpy(), 0)


def test_bad_variables():
    v = wf.Variable(np.zeros(3, np.float32), name="weights")
    with pytest.raises(ValueError, match=r"assign: .*'weights'.*\(4,\)"):
        v.assign(wf.constant(np.zeros(4, np.float32)))
    with pytest.raises(ValueError, match="keep the variable's shape"):
        v.assign_fn(lambda old: wf.concat([old, old]))
    with pytest.raises(TypeError, match="symbolic"):
        wf.Variable(wf.placeholder(wf.float32, (1,)))
    with pytest.raises(RuntimeError, match="Make it a variable"):
        t = wf.tensor([1.0])
        t += wf.placeholder(wf.float32, (1,))
    with pytest.raises(TypeError, match="expected a list"), wf.control_dependencies(v.value()):
        pass


def test_a_reader_is_served_beside_a_writer_that_never_rests():
    lock, stop, order = SharedLock(), threading.Event(), []

    def writer():
        while not stop.is_set():
            lock.acquire()
            lock.release()

    def reader():
        try:
            for _ in range(200):
                lock.acquire_shared()
                lock.release_shared()
        finally:
            stop.set()

    in_threads(writer, reader)

    # In the order of arrival: a writer that waits for a reader is not overtaken by later readers.
    lock.acquire_shared()
    waiting = []
    for name, take, give in (
        ("writer", lock.acquire, lock.release),
        ("reader", lock.acquire_shared, lock.release_shared),
    ):

        def run(name=name, take=take, give=give):
            take()
            order.append(name)
            give()

        waiting.append(threading.Thread(target=run, daemon=True))
        waiting[-1].start()
        until = time.monotonic() + 20
        while len(lock._queue) < len(waiting) and time.monotonic() < until:
            time.sleep(0.001)
    lock.release_shared()
    for thread in waiting:
        thread.join(20)
    assert order == ["writer", "reader"]
