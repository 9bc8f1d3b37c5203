"""Graphs and variables on disk."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest

import weft as wf

WAIT = 20


pytestmark = pytest.mark.usefixtures("fresh_graph")


def test_a_graph_with_state_comes_back_and_can_be_differentiated(executor, fresh_graph, tmp_path):
    x = wf.placeholder(wf.float32, (None, 3), name="x")
    w = wf.Variable(np.arange(6, dtype=np.float32).reshape(3, 2) / 10, name="w")
    with wf.name_scope("model"):
        y = wf.tanh(x @ w)[:, 1:]
    loss = wf.sum(y * wf.constant(2.0))
    bump = w.assign_fn(lambda old: old * 2.0 + loss)
    names = y._data.name, loss._data.name, bump._data.name
    a = np.ones((2, 3), np.float32)
    fresh_graph.save(tmp_path / "g")
    loaded = wf.Graph.load(tmp_path / "g.json")
    gw = wf.gradients(loss, w)
    again = wf.gradients(loaded.tensor(names[1]), loaded.variables()["w"])
    with wf.Session(fresh_graph, executor) as one, wf.Session(loaded, executor) as two:
        for name in names[:2]:
            np.testing.assert_array_equal(one.run(name, {"x": a}), two.run(name, {"x": a}))
        np.testing.assert_array_equal(one.run(gw, {"x": a}), two.run(again, {"x": a}))
        one.run(names[2], {"x": a})
        assert not np.array_equal(one.run(names[1], {"x": a}), two.run(names[1], {"x": a}))  # separate state
        two.run(names[2], {"x": a})
        np.testing.assert_array_equal(w.numpy(), loaded.variables()["w"].numpy())
    assert "test_serialize.py" in str(loaded.node(names[1]).where)
    loaded.save(tmp_path / "again")  # a graph that was loaded keeps the source lines of the one that was saved
    assert wf.Graph.load(tmp_path / "again").node(names[1]).where.place == fresh_graph.node(names[1]).where.place
    np.testing.assert_array_equal(json.loads((tmp_path / "g.json").read_text())["version"], 1)


def test_control_flow_queues_and_devices_come_back(executor, fresh_graph, tmp_path):
    x, n = wf.placeholder(wf.float32, (2,), name="x"), wf.placeholder(wf.int64, (), name="n")
    _, s = wf.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s * 2.0 + x), (wf.constant(0), x))
    y = wf.cond(wf.sum(s) > 10, lambda: s, lambda: -s)
    no, yes = wf.switch(x, n > 1)
    m, _ = wf.merge(no + 1.0, yes * 3.0)
    q = wf.FIFOQueue(3, wf.float32, (2,), name="q")
    with wf.device("cpu"):
        put = q.enqueue(y)
    got = q.dequeue()
    names = y._data.name, m._data.name, put.name, got._data.name
    fresh_graph.save(tmp_path / "g")
    loaded = wf.Graph.load(tmp_path / "g")
    results = []
    for graph in (fresh_graph, loaded):
        with wf.Session(graph, executor) as sess:
            feeds = {"x": [1.0, 2.0], "n": 2}
            values = [sess.run(name, feeds, timeout=WAIT) for name in names[:2]]
            sess.run(names[2], feeds, timeout=WAIT)
            results.append([*values, sess.run(names[3], timeout=WAIT)])
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)
    assert str(loaded) == str(loaded)
    assert loaded.node(names[2]).device[0].kind == "cpu"


def test_a_loop_of_routing_ops_comes_back(executor, fresh_graph, tmp_path):
    i, _ = wf.merge(wf.enter(wf.placeholder(wf.int64, (), name="start"), "loop"))
    out, body = wf.switch(i, i < 5)
    wf.next_iteration(body + 1, i)
    name = wf.exit(out)._data.name
    fresh_graph.save(tmp_path / "g")
    with wf.Session(wf.Graph.load(tmp_path / "g"), executor) as sess:
        assert sess.run(name, {"start": 2}, timeout=WAIT).item() == 5


def test_bad_files(fresh_graph, tmp_path):
    wf.constant(1.0) + 1.0
    fresh_graph.save(tmp_path / "g")
    data = json.loads((tmp_path / "g.json").read_text())
    for change, message in (({"version": 99}, "version 99"), ({"format": "other"}, "not a saved graph")):
        (tmp_path / "bad.json").write_text(json.dumps({**data, **change}))
        (tmp_path / "bad.safetensors").write_bytes((tmp_path / "g.safetensors").read_bytes())
        with pytest.raises(ValueError, match=message):
            wf.Graph.load(tmp_path / "bad")
    data["graph"]["nodes"][-1]["op"]["version"] = 50
    (tmp_path / "bad.json").write_text(json.dumps(data))
    with pytest.raises(ValueError, match="bad.json, checksum: is damaged: its checksum"):
        wf.Graph.load(tmp_path / "bad")
    del data["checksum"]  # as one does who edits by hand
    (tmp_path / "bad.json").write_text(json.dumps(data))
    with pytest.raises(ValueError, match="saved in version 50"):
        wf.Graph.load(tmp_path / "bad")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(ValueError, match="not JSON"):
        wf.Graph.load(tmp_path / "bad")


def test_checkpoints_beside_training(session, tmp_path):
    """Two variables are always written together: every checkpoint has them equal."""
    a, b = wf.Variable(np.zeros(500, np.float32), name="a"), wf.Variable(np.zeros(500, np.float32), name="b")
    train = a.assign_add(1.0)
    with wf.control_dependencies([train]):
        step = b.assign_add(1.0)
    path = tmp_path / "state.safetensors"
    save, restore = wf.save_variables([a, b], path), wf.restore_variables([a, b], path)
    with session() as sess:
        sess.run(step)
        stop = threading.Event()
        errors = []

        def training():
            try:
                while not stop.is_set():
                    sess.run(step, timeout=WAIT)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=training)
        thread.start()
        for _ in range(5):
            sess.run(save, timeout=WAIT)
        stop.set()
        thread.join(WAIT)
        assert not thread.is_alive() and not errors
        after = a.numpy()[0]
        sess.run(restore, timeout=WAIT)
        assert 1 <= a.numpy()[0] <= after
        assert a.numpy().min() == a.numpy().max()
        if session.kind == "dataflow":  # both assigns are one program, under both locks
            np.testing.assert_array_equal(a.numpy(), b.numpy())
    other = wf.Variable(np.zeros(3, np.float32), name="a")
    with wf.Session() as sess, pytest.raises(ValueError, match=r"variable 'a' is float32 \(3,\)"):
        sess.run(wf.restore_variables({"a": other}, path))


def test_a_model_with_its_optimiser_loops_and_effects_comes_back(session, tmp_path):
    from weft import nn, optim

    graph = wf.Graph("model")
    with graph.as_default():
        x, y = wf.placeholder(wf.float32, (None, 4), name="x"), wf.placeholder(wf.float32, (None, 2), name="y")
        n = wf.placeholder(wf.int64, (), name="n")
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 2))
        loss = wf.mean((model(x) - y) ** 2)
        train = wf.minimize(optim.Adam(model.parameters(), lr=0.01), loss)
        w = wf.Variable(np.float32(0.9), name="w")
        _, s = wf.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s * w), (wf.constant(0), wf.sum(x)))
        gradient = wf.gradients(s, w)

        def body(i):
            w.assign_add(0.5)
            return i + 1

        counted = wf.while_loop(lambda i: i < n, body, wf.constant(0))
    graph.save(tmp_path / "model")
    loaded = wf.Graph.load(tmp_path / "model")
    rng = np.random.default_rng(0)
    feeds = {"x": rng.random((6, 4), np.float32), "y": rng.random((6, 2), np.float32)}
    results = []
    for g in (graph, loaded):
        wf.manual_seed(0)  # both draw from the generator of the process
        with session(g) as sess:
            got = [sess.run([loss._data.name, train.name], feeds, timeout=WAIT)[0].item() for _ in range(3)]
            got.append(sess.run(gradient._data.name, {"x": feeds["x"], "n": 3}, timeout=WAIT).item())
            got.append(sess.run(counted._data.name, {"n": 3}, timeout=WAIT).item())
        results.append([*got, g.variables()["w"].item()])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5)
    assert len(loaded.variables()) == len(graph.variables())
