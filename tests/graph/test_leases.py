"""An element that a step has dequeued is used or still in its queue, whenever the step is given up."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

import weft as wf
from weft.graph.execute.run import Run

pytestmark = pytest.mark.usefixtures("fresh_graph")
WAIT = 20
STEPS = 3000


def rest(queue):
    """What is left in a queue, in order."""
    return [queue.get(timeout=WAIT).item() for _ in range(queue.size())]


def run_with_deadlines(sess, step, steps, longest):
    """How many of `steps` runs with random deadlines ended well."""
    rng = np.random.default_rng(3)
    done = 0
    for timeout in rng.uniform(0, longest, steps):
        try:
            sess.run(step, timeout=float(timeout))
            done += 1
        except TimeoutError:
            continue
    return done


def typical_seconds(sess, step, times=20):
    started = time.perf_counter()
    for _ in range(times):
        sess.run(step, timeout=WAIT)
    return (time.perf_counter() - started) / times


def test_three_thousand_steps_with_random_deadlines_lose_no_element(session):
    q = wf.FIFOQueue(STEPS + 100, wf.int64, ())
    total, count = wf.Variable(np.int64(0), name="total"), wf.Variable(np.int64(0), name="count")
    x = q.dequeue()
    # Two assigns are atomic on one device; see Note [Leases].
    step = [total.assign_add(x)] if "two" in session.kind else [total.assign_add(x), count.assign_add(x * 0 + 1)]
    q.put_many(np.arange(1, STEPS + 101))
    with session() as sess:
        longest = 2 * typical_seconds(sess, step)
        steps = STEPS if "two" not in session.kind and "naive" not in session.kind else STEPS // 4
        done = 20 + run_with_deadlines(sess, step, steps, longest)
    left = rest(q)
    taken = STEPS + 100 - len(left)
    assert 20 < done < 20 + steps, "some deadlines must pass and some must not"
    assert left == list(range(taken + 1, STEPS + 101)), "in order, none lost, none twice"
    assert total.numpy() == taken * (taken + 1) // 2 and taken >= done
    assert count.numpy() == (0 if "two" in session.kind else taken)


def test_a_chain_of_queues_neither_loses_nor_doubles_elements(session):
    first, second = wf.FIFOQueue(600, wf.int64, ()), wf.FIFOQueue(600, wf.int64, ())
    move = second.enqueue(first.dequeue() * 10)
    first.put_many(np.arange(500))
    with session() as sess:
        longest = 2 * typical_seconds(sess, move)
        run_with_deadlines(sess, move, 400, longest)
    moved, left = rest(second), rest(first)
    assert moved == [10 * n for n in range(len(moved))] and left == list(range(len(moved), 500))


class Strike:
    """Ends a step right after its first dequeue, in the way that is asked for."""

    def __init__(self, monkeypatch, how, sess):
        real = Run.check
        state = {"struck": False}

        def check(run, waiting=()):
            if run.leases and not state["struck"]:
                state["struck"] = True
                if how == "deadline":
                    run.deadline = time.monotonic() - 1
                elif how == "cancel":
                    sess.cancel()
                else:
                    raise KeyboardInterrupt
            real(run, waiting)

        monkeypatch.setattr(Run, "check", check)


ERRORS = {"deadline": TimeoutError, "cancel": wf.CancelledError, "interrupt": KeyboardInterrupt}


@pytest.mark.parametrize("how", list(ERRORS))
@pytest.mark.parametrize("kind", ["fifo", "priority", "random", "many", "staging"])
def test_every_kind_of_queue_gets_its_elements_back(executor, monkeypatch, kind, how):
    several = 1
    if kind == "priority":
        q = wf.PriorityQueue(10, wf.int64, ())
        for n in (5, 3, 3, 9):
            q.put(n, 10 * n)
        q.put(3, 31)
        _, x = q.dequeue()
    else:
        q = wf.RandomShuffleQueue(10, 0, wf.int64, (), seed=1) if kind == "random" else wf.FIFOQueue(10, wf.int64, ())
        q = wf.StagingArea(10, wf.int64, ()) if kind == "staging" else q
        q.put_many(np.arange(5))
        several = 3 if kind == "many" else 1
        x = q.dequeue_many(3) if kind == "many" else q.dequeue()
    total = wf.Variable(np.int64(0))
    step = total.assign_add(wf.sum(x))
    with wf.Session(executor=executor) as sess:
        Strike(monkeypatch, how, sess)
        with pytest.raises(ERRORS[how]):
            sess.run(step, timeout=WAIT)
        assert total.numpy() == 0 and q.size() == 5
        sess.run(step, timeout=WAIT)
        assert q.size() == 5 - several
        if kind == "priority":
            assert total.numpy() == 30
            assert [q.get()[1].item() for _ in range(4)] == [30, 31, 50, 90], "equal ones in order of arrival"
        elif kind != "random":
            assert total.numpy() == sum(range(several)) and rest(q) == list(range(several, 5))


def test_what_was_assigned_stays_taken_when_the_step_fails_later(executor):
    q, never = wf.FIFOQueue(5, wf.int64, ()), wf.FIFOQueue(5, wf.int64, ())
    total = wf.Variable(np.int64(0))
    added = total.assign_add(q.dequeue())
    with wf.control_dependencies([added]):
        waits = never.dequeue()
    q.put_many(np.arange(1, 4))
    with wf.Session(executor=executor) as sess, pytest.raises(TimeoutError):
        sess.run(waits, timeout=0.3)
    assert total.numpy() == 1 and rest(q) == [2, 3]


def test_a_deadline_still_ends_a_loop_after_the_first_effect(executor):
    q = wf.FIFOQueue(5, wf.int64, ())
    total = wf.Variable(np.int64(0))
    added = total.assign_add(q.dequeue())
    with wf.control_dependencies([q.enqueue(added * 100)]):
        start = total.read()
    endless = wf.while_loop(lambda i: i >= 0, lambda i: (i + 1) % 1000, start)
    q.put_many(np.arange(1, 4))
    with wf.Session(executor=executor) as sess, pytest.raises(TimeoutError):
        sess.run(endless, timeout=0.3)
    assert total.numpy() == 1 and rest(q) == [2, 3, 100]


def test_an_element_that_had_no_effect_goes_back_though_another_had(executor):
    a, b, never = (wf.FIFOQueue(5, wf.int64, ()) for _ in range(3))
    total = wf.Variable(np.int64(0))
    added = total.assign_add(a.dequeue())
    with wf.control_dependencies([added]):
        pair = b.dequeue() + never.dequeue()
    a.put(7)
    b.put_many(np.arange(3))
    with wf.Session(executor=executor) as sess, pytest.raises(TimeoutError):
        sess.run(pair, timeout=0.3)
    assert total.numpy() == 7 and rest(a) == [] and rest(b) == [0, 1, 2]


def test_two_queues_of_which_one_ends_lose_nothing(executor):
    a, b = wf.FIFOQueue(5, wf.int64, ()), wf.FIFOQueue(5, wf.int64, ())
    total = wf.Variable(np.int64(0))
    step = total.assign_add(a.dequeue() * b.dequeue())
    a.put_many(np.arange(3))
    b.put(5)
    b.close()
    with wf.Session(executor=executor) as sess:
        sess.run(step, timeout=WAIT)
        with pytest.raises(wf.QueueClosedError):
            sess.run(step, timeout=WAIT)
    assert rest(a) == [1, 2]


def test_an_element_whose_own_computation_fails_is_not_offered_again(executor):
    q = wf.FIFOQueue(5, wf.int64, ())
    picked = wf.constant(np.arange(3.0, dtype=np.float32))[q.dequeue()]
    q.put_many(np.array([7, 1]))
    with wf.Session(executor=executor) as sess:
        with pytest.raises(IndexError):
            sess.run(picked, timeout=WAIT)
        assert sess.run(picked, timeout=WAIT).item() == 1.0


def test_elements_come_back_to_a_full_and_to_a_closed_queue(executor, monkeypatch):
    q = wf.FIFOQueue(2, wf.int64, ())
    x = q.dequeue()
    q.put_many(np.arange(2))
    with wf.Session(executor=executor) as sess:
        real, state = Run.check, {"left": 1}

        def check(run, waiting=()):
            if run.leases and state["left"]:
                state["left"] = 0
                q.put(2, timeout=WAIT)  # another one has taken the room meanwhile
                q.close()
                run.deadline = time.monotonic() - 1
            real(run, waiting)

        monkeypatch.setattr(Run, "check", check)
        with pytest.raises(TimeoutError):
            sess.run(x + 1, timeout=WAIT)
    assert rest(q) == [0, 1, 2]


def test_get_with_random_timeouts_beside_a_producer_loses_nothing():
    q = wf.FIFOQueue(4, wf.int64, ())
    total, got = 400, []

    def produce():
        for n in range(total):
            q.put(n, timeout=WAIT)

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    rng = np.random.default_rng(0)
    ends = time.monotonic() + WAIT
    while len(got) < total and time.monotonic() < ends:
        try:
            got.append(q.get(timeout=float(rng.uniform(0, 5e-5))).item())
        except TimeoutError:
            continue
    thread.join(WAIT)
    assert got == list(range(total))


def test_put_with_random_timeouts_beside_a_consumer_doubles_nothing():
    q = wf.FIFOQueue(1, wf.int64, ())
    got = []

    def consume():
        try:
            while True:
                got.append(q.get(timeout=WAIT).item())
        except wf.QueueClosedError:
            return

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    rng = np.random.default_rng(0)
    for n in range(400):
        for _ in range(100_000):
            try:
                q.put(n, timeout=float(rng.uniform(0, 5e-5)))
                break
            except TimeoutError:
                continue
    q.close()
    thread.join(WAIT)
    assert got == list(range(400))


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="interrupts the main thread")
def test_an_interrupted_get_leaves_no_call_that_would_take_an_element():
    q = wf.FIFOQueue(4, wf.int64, ())
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        q.get(timeout=WAIT)
    timer.join(WAIT)
    q.put(5)
    assert q.size() == 1 and q.get(timeout=WAIT).item() == 5
