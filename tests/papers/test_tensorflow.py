"""TensorFlow's ideas as programs: dataflow with state, steps, placement, control flow, queues, checkpoints.

The tests are named after what the papers say. docs/papers.md lists them.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import nn, optim

WAIT = 30  # seconds for a step that should take milliseconds
TWO_DEVICES = ["cpu:0", "cpu:1"]


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph("paper").as_default() as made:
        yield made


def placed(sess: wf.Session, fetches: Any, feeds: Any = None) -> dict[str, str]:
    """The device of every node of a step."""
    step, _ = sess._step(fetches, feeds or {})
    return {node.name: str(device) for node, device in step.placement.of.items()}


# Operations, edges and state ----------------------------------------------------------------------------------------


def test_a_dense_tensor_is_the_one_value_on_every_edge() -> None:
    x = wf.placeholder(wf.float32, (2, 3))
    state = wf.Variable(np.zeros((2, 3), np.float32))
    queue = wf.FIFOQueue(1, wf.float32, (2, 3))
    with wf.Session() as sess:
        sess.run(queue.enqueue(x + 1.0), {x: np.ones((2, 3), np.float32)}, timeout=WAIT)
        values = [sess.run(edge, timeout=WAIT) for edge in (queue.dequeue(), state.assign_add(2.0), state.read())]
    assert {(type(v), v.shape, v.dtype, v.is_contiguous()) for v in values} == {(wf.Tensor, (2, 3), wf.float32, True)}
    assert [v.numpy().tobytes() for v in values] == [np.full((2, 3), 2, np.float32).tobytes()] * 3


def test_an_operation_takes_m_tensors_and_gives_n() -> None:
    x = wf.placeholder(wf.float32, (4,))
    none = wf.constant([1.0, 2.0])  # 0 to 1
    many = wf.concat([x, none, x])  # variadic: 3 to 1
    values, indices = wf.topk(x, 2)  # 1 to 2
    nothing = wf.group(wf.Variable(np.zeros(4, np.float32)).assign(x))  # to none, run for its effect
    with wf.Session() as sess:
        got = sess.run([many, values, indices, nothing], {x: [3.0, 1.0, 4.0, 2.0]})
    assert got[0].tolist() == [3, 1, 4, 2, 1, 2, 3, 1, 4, 2]
    assert (got[1].tolist(), got[2].tolist(), got[3]) == ([4, 3], [2, 0], None)


def test_the_interface_is_not_only_for_learning() -> None:
    """Jacobi's method for a linear system: no layer, no loss, no gradient."""
    a, b = wf.placeholder(wf.float64, (3, 3)), wf.placeholder(wf.float64, (3,))
    diagonal = wf.diagonal(a)

    def improve(x: wf.Tensor, steps: wf.Tensor) -> tuple[wf.Tensor, wf.Tensor]:
        return (b - a @ x + diagonal * x) / diagonal, steps + 1

    x, _ = wf.while_loop(lambda x, _: wf.max(wf.abs(a @ x - b)) > 1e-10, improve, (wf.zeros_like(b), wf.constant(0)))
    matrix, right = np.array([[10.0, 1, 2], [1, 12, 3], [0, 2, 9]]), np.array([1.0, 2, 3])
    with wf.Session() as sess:
        np.testing.assert_allclose(sess.run(x, {a: matrix, b: right}), np.linalg.solve(matrix, right), atol=1e-9)


def test_one_graph_holds_computation_and_mutable_state(graph: wf.Graph) -> None:
    x = wf.placeholder(wf.float32, (), name="x")
    total = wf.Variable(np.float32(0), name="total")
    mean = total.assign_add(x) / 2.0
    assert list(graph.variables()) == ["total"]
    with wf.Session() as sess:
        assert [sess.run(mean, {x: v}).item() for v in (2.0, 4.0)] == [1.0, 3.0]


def test_the_two_consumers_of_a_value_fire_in_any_order() -> None:
    """1 + 2 fires when both inputs are there; then `* 4` and `- 7`, whichever is ready first."""
    a, b = wf.placeholder(wf.float32, ()), wf.placeholder(wf.float32, ())
    left, right = wf.FIFOQueue(1, wf.float32, ()), wf.FIFOQueue(1, wf.float32, ())
    c = a + b
    order = wf.FIFOQueue(2, wf.int64, ())

    def consumer(gate: wf.FIFOQueue, number: int, value: wf.Tensor) -> wf.Tensor:
        with wf.control_dependencies([order.enqueue(wf.constant(number) + wf.astype(0 * gate.dequeue(), wf.int64))]):
            return value + 0.0

    times, minus = consumer(left, 4, c * 4.0), consumer(right, 7, c - 7.0)
    seen = []
    with wf.Session() as sess:
        for gates in ((left, right), (right, left)):
            step = sess.run_async([times, minus], {a: 1.0, b: 2.0})
            fired = []
            for gate in gates:  # one input is missing until now, so its consumer waits, and the other one does not
                gate.put(0.0, timeout=WAIT)
                fired.append(order.get(timeout=WAIT).item())
            seen.append(tuple(fired))
            assert [v.item() for v in step.result(timeout=WAIT)] == [12.0, -4.0]
    assert seen == [(4, 7), (7, 4)]


def test_stateless_op_variable_read_and_assign_are_four_kinds_of_nodes(graph: wf.Graph) -> None:
    x = wf.Variable(np.float32(3), name="x")  # Var: a reference
    value = x.read()  # Read: reference → value
    product = value * 2.0  # a stateless op
    square = x.assign_fn(lambda old: old * old)  # Assign-F
    with wf.Session() as sess:
        assert (sess.run(product).item(), sess.run(square).item(), sess.run(value).item()) == (6.0, 9.0, 9.0)
    names = str(graph)
    assert "x/read" in names and "multiply" in names and "x/assign_fn" in names


def test_a_control_edge_makes_a_read_see_a_write() -> None:
    x = wf.Variable(np.float32(1.0))
    b = wf.placeholder(wf.float32, ())
    write = x.assign(b)
    with wf.control_dependencies([write]):  # carries no value, only "go"
        after = x.read()
    with wf.Session() as sess:
        assert [sess.run(after, {b: float(v)}, timeout=WAIT).item() for v in range(50)] == list(range(50))


def test_separate_read_add_write_has_three_outcomes_and_assign_add_one() -> None:
    x, a, b = 1.0, 10.0, 100.0
    new = wf.placeholder(wf.float32, ())
    plain, atomic = wf.Variable(np.float32(x)), wf.Variable(np.float32(x))
    read, write = plain.read(), plain.assign(new)
    outcomes = set()
    with wf.Session() as sess:
        for order in set(itertools.permutations(["a", "a", "b", "b"])):  # two steps, each a read and then a write
            sess.run(write, {new: x})
            held: dict[str, float] = {}
            for step in order:
                if step in held:
                    sess.run(write, {new: held[step] + {"a": a, "b": b}[step]})
                else:
                    held[step] = sess.run(read).item()
            outcomes.add(sess.run(read).item())
        for _ in range(20):
            sess.run(atomic.assign(wf.constant(x)))
            both = [sess.run_async(add) for add in (atomic.assign_add(a), atomic.assign_add(b))]
            for step in both:
                step.result(timeout=WAIT)
            assert sess.run(atomic).item() == x + a + b
    assert outcomes == {x + a, x + b, x + a + b}


def test_assign_add_by_threads_loses_nothing_without_control_edges() -> None:
    total = wf.Variable(np.zeros(200_000, np.float32))  # long enough for two additions to meet
    adds = [total.assign_add(1.0), total.assign_add(10.0)]
    with wf.Session() as sess:
        threads = [threading.Thread(target=lambda op=op: [sess.run(op) for _ in range(50)]) for op in adds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
        assert (sess.run(total).numpy() == 550).all()


def test_variables_and_queues_keep_state_between_executions() -> None:
    count = wf.Variable(np.int64(0))
    queue = wf.FIFOQueue(8, wf.int64, ())
    put = queue.enqueue(count.assign_add(1))
    with wf.Session() as first:
        for _ in range(3):
            first.run(put, timeout=WAIT)
    with wf.Session() as second:  # another execution, another session, the same state
        second.run(put, timeout=WAIT)
        assert [second.run(queue.dequeue(), timeout=WAIT).item() for _ in range(4)] == [1, 2, 3, 4]
        assert second.run(count).item() == 4


# Steps --------------------------------------------------------------------------------------------------------------


def test_the_program_of_the_paper_feeds_and_fetches_gradients() -> None:
    a, b, d = (np.random.rand(3, 4).astype(np.float32) for _ in range(3))
    x, y, z = wf.placeholder(wf.float32), wf.placeholder(wf.float32), wf.placeholder(wf.float32)
    c = wf.sum(x * y + z)
    gx, gy, gz = wf.gradients(c, [x, y, z])
    with wf.Session() as sess:
        c_val, gx_val, gy_val, gz_val = sess.run([c, gx, gy, gz], feed_dict={x: a, y: b, z: d})
    np.testing.assert_allclose(c_val, (a * b + d).sum(), rtol=1e-5)
    np.testing.assert_array_equal(gx_val, b)
    np.testing.assert_array_equal(gy_val, a)
    np.testing.assert_array_equal(gz_val, np.ones((3, 4)))


def test_nothing_runs_before_a_step_asks_for_it() -> None:
    x = wf.placeholder(wf.float32, ())
    counter = wf.Variable(np.int64(0))
    bump = counter.assign_add(1)
    y = x * 2.0
    assert counter.numpy() == 0, "declaring is not running"
    with wf.Session() as sess:
        assert sess.run(y, {x: 3.0}).item() == 6.0
        assert counter.numpy() == 0, "what a fetch does not need is pruned"
        sess.run(bump)
    assert counter.numpy() == 1


def test_any_subgraph_can_be_run_and_feeding_an_edge_prunes_what_made_it() -> None:
    x = wf.placeholder(wf.float32, ())
    h = wf.exp(x)
    y = h + 1.0
    with wf.Session() as sess:
        assert sess.run(h, {x: 0.0}).item() == 1.0
        assert sess.run(y, {h: 5.0}).item() == 6.0, "x is not fed: the step does not need it"
        with pytest.raises(ValueError, match="placeholder"):
            sess.run(y)


def test_concurrent_steps_run_on_overlapping_subgraphs() -> None:
    """An input pipeline, training and evaluation of one model at the same time; the first two share a queue."""
    queue = wf.FIFOQueue(4, wf.float32, (2,))
    raw = wf.placeholder(wf.float32, (2,))
    fill = queue.enqueue(raw * 2.0)
    w = wf.Variable(np.zeros(2, np.float32))
    train = w.assign_add(queue.dequeue())
    norm = wf.sum(w.read())
    with wf.Session() as sess:
        steps = [sess.run_async(train) for _ in range(6)]  # they wait: nothing has been read yet
        seen = [sess.run(norm, timeout=WAIT).item()]
        for _ in range(6):
            sess.run(fill, {raw: np.ones(2, np.float32)}, timeout=WAIT)
        for step in steps:
            step.result(timeout=WAIT)
        seen.append(sess.run(norm, timeout=WAIT).item())
    assert seen == [0.0, 24.0]


def test_a_session_keeps_the_subgraph_of_each_step_definition() -> None:
    x = wf.placeholder(wf.float32, (None,))
    y, z = wf.sum(x), wf.mean(x)
    with wf.Session() as sess:
        first = sess._step(y, {x: np.ones(3, np.float32)})[0]
        assert sess._step(y, {x: np.zeros(3, np.float32)})[0] is first
        assert sess._step(z, {x: np.ones(3, np.float32)})[0] is not first


def test_independent_ops_run_in_parallel_without_being_asked() -> None:
    """Each branch waits for the other one, so a step that ran them one after the other would never end."""
    here, there = wf.FIFOQueue(1, wf.float32, ()), wf.FIFOQueue(1, wf.float32, ())
    x = wf.placeholder(wf.float32, ())
    with wf.control_dependencies([here.enqueue(x)]):
        a = there.dequeue()
    with wf.control_dependencies([there.enqueue(x)]):
        b = here.dequeue()
    with wf.Session() as sess:
        assert sess.run(a + b, {x: 2.0}, timeout=WAIT).item() == 4.0


def test_a_checkpoint_subgraph_runs_beside_training(tmp_path: Path) -> None:
    w = wf.Variable(np.zeros(5000, np.float32), name="w")
    train = w.assign_add(1.0)
    path = str(tmp_path / "state.safetensors")
    save, restore = wf.save_variables([w], path), wf.restore_variables([w], path)
    with wf.Session() as sess:
        steps = [sess.run_async(train) for _ in range(20)]
        sess.run(save, timeout=WAIT)
        for step in steps:
            step.result(timeout=WAIT)
        sess.run(train, timeout=WAIT)
        assert w.numpy().min() == 21
        sess.run(restore, timeout=WAIT)
        assert w.numpy().min() == w.numpy().max() <= 20, "one moment, not a mixture of two"


def test_long_runs_continue_from_their_checkpoint(tmp_path: Path) -> None:
    def run(epochs: int, folder: str, seed: int = 3) -> np.ndarray:
        wf.manual_seed(seed)
        model = nn.Linear(2, 1)
        trainer = wf.Trainer(
            model, optim.Adam(model.parameters(), lr=0.1), nn.MSELoss(), checkpoint_dir=tmp_path / folder,
            progress=False, capture=False, resume="auto",
        )  # fmt: skip
        x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(8, 2)
        trainer.fit(x, x.sum(1, keepdims=True), epochs=epochs, batch_size=4)
        return model.weight.detach().numpy().copy()

    whole = run(4, "whole")
    run(2, "parts")
    continued = run(4, "parts", seed=99)  # other weights at first, which the checkpoint replaces
    np.testing.assert_array_equal(continued, whole)
    assert (run(4, "anew", seed=99) != whole).any()


# Placement ----------------------------------------------------------------------------------------------------------


def test_every_op_resides_on_a_device_and_each_device_has_its_subgraph(graph: wf.Graph) -> None:
    x = wf.placeholder(wf.float32, (3,))
    with wf.device("cpu:0"):
        a = x + 1.0
    with wf.device("cpu:1"):
        b = a * 2.0
    with wf.Session(devices=TWO_DEVICES) as sess:
        assert sess.run(b, {x: [1.0, 2.0, 3.0]}, timeout=WAIT).tolist() == [4, 6, 8]
        assert placed(sess, b, {x: np.ones(3, np.float32)}) == {"add": "cpu:0", "multiply": "cpu:1"}
    assert "load of cpu:1" in graph.placement_report(TWO_DEVICES)


def test_placement_goes_from_feasible_devices_over_colocation_to_constraints() -> None:
    queue = wf.FIFOQueue(2, wf.float32, ())
    with wf.device("ref:0"):
        infeasible = queue.dequeue()  # `ref` has no kernel for queues
    with wf.device("cpu:1"):
        v = wf.Variable(np.zeros(3, np.float32))
        read = v.read()
    write = v.assign_add(1.0)  # goes with the other uses of its variable
    with wf.colocate_with(v):
        near = wf.constant(2.0) * 3.0
    with wf.device("cpu"):
        partial = wf.constant(1.0) + 1.0  # any device of that kind
    with wf.Session(devices=["cpu:0", "cpu:1", "ref:0"]) as sess:
        assert set(placed(sess, [read, write, near]).values()) == {"cpu:1"}
        assert set(placed(sess, partial).values()) <= {"cpu:0", "cpu:1"}
        with pytest.raises(ValueError, match=r"no device can satisfy device\('ref:0'\)"):
            sess.run(infeasible, timeout=WAIT)


def test_a_value_is_sent_once_over_each_cut() -> None:
    x = wf.placeholder(wf.float32, (3,))
    with wf.device("cpu:0"):
        a = x + 1.0
    with wf.device("cpu:1"):
        y = a * 2.0 + wf.tanh(a)  # two consumers, one cut
    with wf.Session(devices=TWO_DEVICES) as sess:
        for steps in (1, 2, 3):
            sess.run(y, {x: np.zeros(3, np.float32)}, timeout=WAIT)
            assert sess.transport.sent == steps


def test_measured_costs_replace_estimates_in_automatic_placement(graph: wf.Graph) -> None:
    x = wf.placeholder(wf.float32, (64, 64))
    y = wf.sum(wf.tanh(x @ x) @ x)
    with wf.Session(devices=TWO_DEVICES) as sess:
        assert set(placed(sess, y, {x: np.ones((64, 64), np.float32)}).values()) <= set(TWO_DEVICES)
        before = graph.placement_report(TWO_DEVICES)
        sess.measure(y, {x: np.ones((64, 64), np.float32)})
    assert "estimate" in before and graph.placement_report(TWO_DEVICES) != before


# Control flow -------------------------------------------------------------------------------------------------------


def test_switch_and_merge_execute_one_of_two_branches() -> None:
    ran = wf.Variable(np.zeros(2, np.float32))
    x, positive = wf.placeholder(wf.float32, (2,)), wf.placeholder(wf.bool, ())
    no, yes = wf.switch(x, positive)
    with wf.control_dependencies([no]):
        count_no = ran.assign_add(wf.constant([1.0, 0.0]) + 0 * no)
    with wf.control_dependencies([yes]):
        count_yes = ran.assign_add(wf.constant([0.0, 1.0]) + 0 * yes)
    y, _ = wf.merge(-no + 0 * count_no, yes * 10.0 + 0 * count_yes)
    with wf.Session() as sess:
        assert sess.run(y, {x: [1.0, 2.0], positive: True}, timeout=WAIT).tolist() == [10, 20]
        assert sess.run(y, {x: [1.0, 2.0], positive: False}, timeout=WAIT).tolist() == [-1, -2]
        assert sess.run(y, {x: [1.0, 2.0], positive: True}, timeout=WAIT).tolist() == [10, 20]
    assert ran.numpy().tolist() == [1, 2], "the other branch did not run"


@pytest.mark.parametrize("lower", [False, True], ids=["native", "switch and merge"])
def test_gradients_flow_through_conditionals_and_loops(lower: bool) -> None:
    x, n = wf.placeholder(wf.float32, ()), wf.placeholder(wf.int64, ())
    y = wf.cond(x > 0, lambda: x * x, lambda: -3.0 * x)
    _, power = wf.while_loop(lambda i, p: i < n, lambda i, p: (i + 1, p * x), (wf.constant(0), wf.ones_like(x)))
    slopes = [wf.gradients(y, x), wf.gradients(power, x)]
    with wf.Session(lower=lower) as sess:
        at = [[v.item() for v in sess.run(slopes, {x: a, n: k}, timeout=WAIT)] for a, k in ((2.0, 3), (-1.0, 4))]
    assert at == [[4.0, 12.0], [-3.0, -4.0]]


def test_a_recurrent_network_has_as_many_steps_as_its_input() -> None:
    steps, sequence = wf.placeholder(wf.int64, ()), wf.placeholder(wf.float32, (None, 3))
    w = wf.Variable(np.eye(3, dtype=np.float32) * 0.5)

    def cell(t: wf.Tensor, h: wf.Tensor) -> tuple[wf.Tensor, wf.Tensor]:
        return t + 1, wf.tanh(wf.take(sequence, wf.reshape(t, (1,)), axis=0)[0] + h @ w)

    _, h = wf.while_loop(lambda t, h: t < steps, cell, (wf.constant(0), wf.zeros(3)))
    slope = wf.gradients(wf.sum(h), w)
    data = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    with wf.Session() as sess:
        for length in (2, 5):
            expected = np.zeros(3, np.float32)
            for row in data[:length]:
                expected = np.tanh(row + expected @ (np.eye(3) * 0.5))
            got, g = sess.run([h, slope], {steps: length, sequence: data}, timeout=WAIT)
            np.testing.assert_allclose(got, expected, rtol=1e-5)
            assert np.abs(g.numpy()).sum() > 0


# Gradients, optimisers, large models --------------------------------------------------------------------------------


def test_gradients_are_sums_over_all_backward_paths() -> None:
    x = wf.placeholder(wf.float32, ())
    a = wf.exp(x)
    y = a * x + wf.sin(a) + x
    slope = wf.gradients(y, x)
    with wf.Session() as sess:
        at = sess.run(slope, {x: 0.5}).item()
    e = np.exp(0.5)
    assert at == pytest.approx(e * 0.5 + e + np.cos(e) * e + 1, rel=1e-5)


def test_momentum_is_user_code_over_variables_and_gradients() -> None:
    w, velocity = wf.Variable(np.float32(1.0)), wf.Variable(np.float32(0.0))
    slope = wf.gradients(w.read() ** 2, w)
    faster = velocity.assign_fn(lambda v: 0.9 * v + slope)
    train = w.assign_sub(0.1 * faster)
    by_hand, v = 1.0, 0.0
    with wf.Session() as sess:
        for _ in range(5):
            sess.run(train, timeout=WAIT)
            v = 0.9 * v + 2 * by_hand
            by_hand -= 0.1 * v
            assert w.numpy() == pytest.approx(by_hand, rel=1e-5)


def test_sparse_embedding_is_part_gather_and_stitch_with_gradients() -> None:
    table = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
    shards = []
    for s, device in enumerate(TWO_DEVICES):  # rows 0, 2, 4 … and 1, 3, 5 …, each on its own device
        with wf.device(device):
            shards.append(wf.Variable(table[s::2]))
    ids = wf.placeholder(wf.int64, (5,))
    parts = wf.dynamic_partition(ids, ids % 2, 2)
    places = wf.dynamic_partition(wf.arange(5), ids % 2, 2)
    rows = wf.dynamic_stitch(places, [wf.take(t, p // 2, axis=0) for t, p in zip(shards, parts, strict=True)])
    slopes = wf.gradients(wf.sum(rows), shards)
    looked_up = np.array([3, 8, 3, 4, 0])
    with wf.Session(devices=TWO_DEVICES) as sess:
        found, even, odd = sess.run([rows, *slopes], {ids: looked_up}, timeout=WAIT)
    np.testing.assert_array_equal(found, table[looked_up])
    assert even.numpy()[:, 0].tolist() == [1, 0, 1, 0, 1] and odd.numpy()[:, 0].tolist() == [0, 2, 0, 0, 0]


def test_a_queue_collects_the_gradients_of_workers_that_update_together() -> None:
    workers, w = 3, wf.Variable(np.float32(10.0))
    queue = wf.FIFOQueue(workers, wf.float32, ())
    x = wf.placeholder(wf.float32, ())
    push = queue.enqueue(wf.gradients((w.read() - x) ** 2 / 2, w))
    apply = w.assign_sub(0.5 * wf.mean(queue.dequeue_many(workers)))
    with wf.Session() as sess:
        update = sess.run_async(apply)
        for value in (1.0, 2.0, 3.0):
            assert w.numpy() == 10.0, "no update before the last gradient is there"
            sess.run(push, {x: value}, timeout=WAIT)
        update.result(timeout=WAIT)
    assert w.numpy() == pytest.approx(10.0 - 0.5 * 8.0)


def test_a_graph_of_layers_trains_and_serves_with_the_same_weights(tmp_path: Path, graph: wf.Graph) -> None:
    x, label = wf.placeholder(wf.float32, (None, 4), name="x"), wf.placeholder(wf.int64, (None,))
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    scores = model(x)
    served = wf.softmax(scores, axis=1)
    loss = nn.functional.cross_entropy(scores, label)
    train = wf.minimize(optim.Adam(model.parameters(), lr=0.05), loss)
    data = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    labels = (data.sum(1) > 0).astype(np.int64)
    with wf.Session() as sess:
        losses = [sess.run([loss, train], {x: data, label: labels})[0].item() for _ in range(60)]
        trained = sess.run(served, {x: data})
    assert losses[-1] < 0.4 * losses[0]
    graph.save(tmp_path / "served")  # another program needs neither the classes nor this code
    loaded = wf.Graph.load(tmp_path / "served")
    with wf.Session(loaded) as sess:
        np.testing.assert_allclose(sess.run("softmax", {"x": data}), trained, rtol=1e-5, atol=1e-6)


def test_a_graph_file_is_data_for_any_language(tmp_path: Path, graph: wf.Graph) -> None:
    x = wf.placeholder(wf.float32, (None,), name="x")
    wf.tanh(x * 2.0)
    graph.save(tmp_path / "graph")
    (file,) = tmp_path.glob("graph*.json") if not (tmp_path / "graph").is_dir() else (tmp_path / "graph").glob("*.json")
    facts = json.loads(file.read_text())
    assert "version" in facts and all(op in json.dumps(facts) for op in ('"tanh"', '"multiply"', '"placeholder"'))


def test_an_error_in_a_graph_is_reported_where_the_node_was_made() -> None:
    x = wf.placeholder(wf.float32, (None,))
    with pytest.raises(ValueError, match="matmul"):
        wf.placeholder(wf.float32, (2, 3)) @ wf.placeholder(wf.float32, (2, 3))  # before any step runs
    bad = x + wf.constant([1.0, 2.0, 3.0])
    with wf.Session() as sess, pytest.raises(ValueError, match=r"node 'add'(.|\n)*test_tensorflow\.py"):
        sess.run(bad, {x: np.ones(2, np.float32)})
