"""Queues as graph ops and eagerly: order, capacity, close, cancel, time-outs, runners, and what is built from them."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import weft as wf

WAIT = 20


pytestmark = pytest.mark.usefixtures("fresh_graph")


class Background:
    """A call in a thread, with its result or error."""

    def __init__(self, fn):
        self.result = self.error = None

        def run():
            try:
                self.result = fn()
            except BaseException as error:
                self.error = error

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def finish(self):
        self.thread.join(WAIT)
        assert not self.thread.is_alive(), "the call hangs"
        return self

    def waits(self):
        self.thread.join(0.1)
        return self.thread.is_alive()


def test_fifo_order_and_many(session):
    q = wf.FIFOQueue(10, [wf.float32, wf.int64], shapes=[(2,), ()])
    x, n = wf.placeholder(wf.float32, (2,)), wf.placeholder(wf.int64, ())
    put = q.enqueue(x, n)
    xs, ns = wf.placeholder(wf.float32, (None, 2)), wf.placeholder(wf.int64, (None,))
    put_many = q.enqueue_many(xs, ns)
    one, many, size = q.dequeue(), q.dequeue_many(3), q.size_op()
    with session() as sess:
        sess.run(put, {x: [1.0, 2.0], n: 7}, timeout=WAIT)
        sess.run(put_many, {xs: np.arange(6, dtype=np.float32).reshape(3, 2), ns: [1, 2, 3]}, timeout=WAIT)
        assert sess.run(size).item() == 4
        a, b = sess.run(one, timeout=WAIT)
        assert a.tolist() == [1.0, 2.0] and b.item() == 7
        a, b = sess.run(many, timeout=WAIT)
        assert a.shape == (3, 2) and b.tolist() == [1, 2, 3]


def test_computation_after_a_dequeue_of_unknown_shape(session):
    q = wf.FIFOQueue(4, wf.float32)
    y = wf.sum(wf.tanh(q.dequeue()) * 2.0)
    with session() as sess:
        for shape in ((3,), (2, 2), (100, 90)):
            a = np.ones(shape, np.float32)
            q.put(a, timeout=WAIT)
            np.testing.assert_allclose(sess.run(y, timeout=WAIT), np.tanh(a).sum() * 2, rtol=1e-4)


def test_a_full_queue_holds_the_step_back(session):
    q = wf.FIFOQueue(1, wf.float32, ())
    put = q.enqueue(wf.constant(1.0))
    with session() as sess:
        sess.run(put, timeout=WAIT)
        second = Background(lambda: sess.run(put, timeout=WAIT))
        assert second.waits()
        q.get(timeout=WAIT)
        assert second.finish().error is None
        assert len(q) == 1


def test_queue_close_unblocks_dequeue(session):
    q = wf.FIFOQueue(4, wf.float32, ())
    taken = q.dequeue()
    with session() as sess:
        waiting = Background(lambda: sess.run(taken, timeout=WAIT))
        assert waiting.waits()
        q.close()
        error = waiting.finish().error
        assert isinstance(error, wf.QueueClosedError) and "test_queues.py" in str(error)
        with pytest.raises(wf.QueueClosedError, match="after the queue was closed.*fifo_queue/enqueue"):
            sess.run(q.enqueue(wf.constant(1.0)), timeout=WAIT)


def test_after_close_the_rest_can_be_taken(session):
    q = wf.FIFOQueue(8, wf.float32, ())
    q.put_many(np.arange(5, dtype=np.float32), timeout=WAIT)
    q.close()
    with session() as sess:
        assert sess.run(q.dequeue_many(2), timeout=WAIT).tolist() == [0, 1]
        with pytest.raises(wf.QueueClosedError, match="3 elements left, but 4"):
            sess.run(q.dequeue_many(4), timeout=WAIT)
        assert sess.run(q.dequeue_up_to(4), timeout=WAIT).tolist() == [2, 3, 4]
        with pytest.raises(wf.QueueClosedError):
            sess.run(q.dequeue_up_to(4), timeout=WAIT)


def test_pending_enqueues_survive_close_unless_cancelled():
    for cancel in (False, True):
        q = wf.FIFOQueue(1, wf.float32, ())
        q.put(1.0, timeout=WAIT)
        pending = Background(lambda q=q: q.put(2.0, timeout=WAIT))
        assert pending.waits()
        q.close(cancel_pending=cancel)
        if not cancel:
            assert pending.waits()
        assert q.get(timeout=WAIT).item() == 1.0
        error = pending.finish().error
        assert isinstance(error, wf.QueueClosedError) if cancel else error is None
        if not cancel:
            assert q.get(timeout=WAIT).item() == 2.0


def test_deadline_and_cancel_withdraw_waiting_calls(session):
    q = wf.FIFOQueue(2, wf.float32, ())
    v = wf.Variable(np.float32(0.0))
    taken = q.dequeue()
    add = v.assign_add(taken)
    with session() as sess:
        with pytest.raises(TimeoutError):
            sess.run(add, timeout=0.1)
        waiting = Background(lambda: sess.run(add, timeout=WAIT))
        assert waiting.waits()
        sess.cancel()
        assert isinstance(waiting.finish().error, wf.CancelledError)
        q.put(5.0, timeout=WAIT)  # no cancelled reader takes it
        assert len(q) == 1 and v.numpy() == 0
        assert sess.run(add, timeout=WAIT).item() == 5.0
    with pytest.raises(TimeoutError):
        q.get(timeout=0.05)


def test_closing_the_session_cancels_its_steps(session):
    q = wf.FIFOQueue(2, wf.float32, ())
    sess = session()
    taken = q.dequeue()
    waiting = Background(lambda: sess.run(taken, timeout=WAIT))
    assert waiting.waits()
    sess.close()
    assert isinstance(waiting.finish().error, wf.CancelledError)


def test_one_step_may_feed_itself_through_a_queue(session):
    """The dequeue is declared first and waits for the enqueue of the same step: no thread is held by it."""
    q = wf.FIFOQueue(1, wf.float32, ())
    got = [q.dequeue() * 2.0 for _ in range(20)]
    x = wf.placeholder(wf.float32, ())
    puts = [q.enqueue(x + float(i)) for i in range(20)]
    with session() as sess:
        values = sess.run([got, puts], {x: 1.0}, timeout=WAIT)[0]
    assert sorted(v.item() for v in values) == [2.0 * (1 + i) for i in range(20)]


def test_random_shuffle_keeps_a_reserve_and_mixes():
    q = wf.RandomShuffleQueue(100, 10, wf.int64, (), seed=1)
    q.put_many(np.arange(60), timeout=WAIT)
    first = q.get_many(50, timeout=WAIT).tolist()
    with pytest.raises(TimeoutError):
        q.get(timeout=0.05)
    q.close()
    rest = q.get_many(50, timeout=WAIT, up_to=True).tolist()
    assert sorted(first + rest) == list(range(60)) and first != sorted(first)


def test_priority_queue(session):
    q = wf.PriorityQueue(10, wf.float32, ())
    for p, x in ((5, 50.0), (1, 10.0), (3, 30.0), (1, 11.0)):
        q.put(p, x, timeout=WAIT)
    with session() as sess:
        got = [tuple(t.item() for t in sess.run(q.dequeue(), timeout=WAIT)) for _ in range(4)]
    assert got == [(1, 10.0), (1, 11.0), (3, 30.0), (5, 50.0)]


def test_staging_area(session):
    area = wf.StagingArea(2, wf.float32, (2,))
    x = wf.placeholder(wf.float32, (2,))
    stage, y = area.stage(x), area.unstage() + 1.0
    with session() as sess:
        sess.run(stage, {x: [1.0, 2.0]}, timeout=WAIT)
        for i in range(3):  # the next element is staged while the last one is used
            _, got = sess.run([stage, y], {x: [float(i), 0.0]}, timeout=WAIT)
        assert got.tolist() == [2.0, 1.0]


def test_input_pipeline_with_runners(session):
    """Numbers → squares by two runners → batches; the end of the input ends everything."""
    source = wf.FIFOQueue(100, wf.float32, ())
    squares = wf.FIFOQueue(8, wf.float32, ())
    work = [squares.enqueue(source.dequeue() ** 2.0) for _ in range(2)]
    batch = squares.dequeue_up_to(4)
    total = wf.Variable(np.float32(0.0))
    add = total.assign_add(wf.sum(batch))
    with session() as sess:
        coordinator = wf.Coordinator()
        wf.QueueRunner(squares, work).start(sess, coordinator)
        source.put_many(np.arange(30, dtype=np.float32), timeout=WAIT)
        source.close()
        with pytest.raises(wf.QueueClosedError):
            while True:
                sess.run(add, timeout=WAIT)
        coordinator.request_stop()
        coordinator.join(WAIT)
    assert total.numpy() == sum(i * i for i in range(30))


def test_runner_errors_reach_join(session):
    q = wf.FIFOQueue(2, wf.float32, (2,))
    x = wf.Variable(np.zeros(3, np.float32))
    bad = q.enqueue(x.value() + 1.0)
    with session() as sess:
        coordinator = wf.Coordinator()
        wf.QueueRunner(q, [bad]).start(sess, coordinator)
        assert coordinator.wait(WAIT)
        with pytest.raises(ValueError, match=r"component 0 must have shape \(2,\).*fifo_queue/enqueue"):
            coordinator.join(WAIT)
        with pytest.raises(wf.QueueClosedError):
            q.get(timeout=WAIT)


def test_synchronous_replicas(session):
    """Workers send gradients and wait for a token; the chief applies the sum of each round, once.

    Every worker has a separate token queue: from a common one a fast worker could take the token of a slow one.
    """
    workers, rounds = 3, 4
    grads = wf.FIFOQueue(workers, wf.float32, ())
    tokens = [wf.FIFOQueue(1, wf.int64, ()) for _ in range(workers)]
    w = wf.Variable(np.float32(0.0))
    step = wf.Variable(np.int64(0))
    amount = wf.placeholder(wf.float32, ())
    send = grads.enqueue(amount + 0.0 * w.value())
    with wf.control_dependencies([send]):
        received = [q.dequeue() for q in tokens]
    apply = w.assign_add(wf.sum(grads.dequeue_many(workers)))
    with wf.control_dependencies([apply]):
        number = step.assign_add(1)
        release = wf.group(*[q.enqueue(number) for q in tokens])
    with session() as sess:

        def worker(i):
            return [sess.run(received[i], {amount: float(i + 1)}, timeout=WAIT).item() for _ in range(rounds)]

        running = [Background(lambda i=i: worker(i)) for i in range(workers)]
        for _ in range(rounds):
            sess.run(release, timeout=WAIT)
        for b in running:
            assert b.finish().error is None
            assert b.result == [1, 2, 3, 4]
    assert w.numpy() == rounds * 6.0


def test_barrier(session):
    barrier = wf.Barrier(2)
    wait = barrier.wait()
    with session() as sess:
        first = Background(lambda: sess.run(wait, timeout=WAIT))
        assert first.waits()
        sess.run(wait, timeout=WAIT)
        assert first.finish().error is None
        with pytest.raises(TimeoutError):
            sess.run(wait, timeout=0.1)
        late = Background(lambda: sess.run(wait, timeout=WAIT))
        assert late.waits()  # the one that gave up does not count
        barrier.close()
        assert isinstance(late.finish().error, wf.QueueClosedError)


def test_lost_update_inside_one_step_shape(session):
    """read → wait → assign in two steps: both read before either writes."""
    barrier = wf.Barrier(2)
    v = wf.Variable(np.float32(1.0))
    amount = wf.placeholder(wf.float32, ())
    seen = v.read()
    with wf.control_dependencies([seen]):
        met = barrier.wait()
    with wf.control_dependencies([met]):
        write = v.assign(seen + amount)
    with session() as sess:
        steps = [Background(lambda a=a: sess.run(write, {amount: a}, timeout=WAIT)) for a in (10.0, 100.0)]
        for s in steps:
            assert s.finish().error is None
        assert v.numpy() in (11.0, 101.0)


def test_bad_queues():
    with pytest.raises(ValueError, match="capacity"):
        wf.FIFOQueue(0, wf.float32)
    q = wf.FIFOQueue(2, [wf.float32, wf.int64], shapes=[(2,), ()])
    with pytest.raises(ValueError, match="2 components. Got 1"):
        q.enqueue(wf.constant([1.0, 2.0]))
    with pytest.raises(TypeError, match="component 1 must be int64"):
        q.enqueue(wf.constant([1.0, 2.0]), wf.constant(1.0))
    with pytest.raises(ValueError, match=r"component 0 must have shape \(2,\)"):
        q.put([1.0], 1)
    with pytest.raises(ValueError, match="can never be there"):
        q.get_many(3, timeout=WAIT)
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        q.get(timeout=0.05)
    assert time.monotonic() - start < 5
