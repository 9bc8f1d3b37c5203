"""Sessions on the tasks of a cluster: state on tasks, steps over several of them, errors, deaths, checkpoints, clients."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from tests.each import each
from weft import nn, optim
from weft.distributed import Cluster, TaskLostError

from .graph_programs import programs

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="pidfd and eventfd are Linux's"),
    pytest.mark.xdist_group("distributed"),
    pytest.mark.timeout(240, method="signal"),
]
WAIT = 60
PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(ps=1, worker=1, cpu=2) as made:
        yield made


@contextlib.contextmanager
def in_graph(name: str = "test") -> Iterator[wf.Graph]:
    graph = wf.Graph(name)
    with graph.as_default():
        yield graph


def until(condition: Any, what: str) -> None:
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, f"{what} does not happen"
        time.sleep(0.01)


# The programs of tests/graph ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"executor": "naive"}, {"lower": True}], ids=["dataflow", "naive", "routing ops"]
)
@pytest.mark.parametrize(
    "modules",
    [
        ("test_session", "test_state", "test_queues"),
        ("test_executor", "test_lowering", "test_leases", "test_placement"),
        (
            "test_declaring",
            "test_gradients",
            "test_inlining",
            "test_late",
            "test_loading",
            "test_serialize",
            "test_files_of_0_1",
        ),
    ],
    ids=["steps", "control flow", "declaring and files"],
)
def test_the_programs_of_declared_graphs_run_on_a_cluster(
    cluster: Cluster, tmp_path: Path, modules: tuple[str, ...], options: dict[str, Any]
) -> None:
    cases: dict[str, Any] = {}
    for module in modules:
        folder = tmp_path / module
        folder.mkdir()
        cases.update({f"{module}.{k}": v for k, v in programs(module, cluster, folder, **options).items()})
    assert len(cases) > 20
    each(lambda program: program(), cases)


# State on tasks -----------------------------------------------------------------------------------------------------


def test_the_first_program(cluster: Cluster) -> None:
    with in_graph() as graph:
        x = wf.placeholder(wf.float32, (None, 50))
        with wf.device(PS):
            w = wf.Variable.remote((50, 20), init=nn.init.normal(0.02, seed=1), name="first")
        with wf.device(WORKER):
            y = wf.relu(x @ w)
        halve = w.assign_fn(lambda old: old / 2)
    batch = np.random.default_rng(0).standard_normal((4, 50)).astype(np.float32)
    with pytest.raises(RuntimeError, match="no value yet.*cluster=cluster"):
        w.numpy()
    with wf.Session(graph, cluster=cluster) as sess:
        sess.run([y, halve], {x: batch}, timeout=WAIT)
        whole = nn.init.normal(0.02, seed=1).values((50, 20), np.dtype("f4")) / 2
        np.testing.assert_array_equal(w.numpy(), whole)
        np.testing.assert_allclose(
            sess.run(y, {x: batch}, timeout=WAIT), np.maximum(batch @ whole, 0), rtol=1e-4, atol=1e-6
        )
        text = sess.explain([y])
    for part in (
        f"{PS}: 1 nodes",
        f"{WORKER}: 2 nodes (answers)",
        f"read: {PS} → {WORKER}, 4.0 KB",
        "feed placeholder",
        "per step",
    ):
        assert part in text
    assert cluster.variables()["first"] == PS
    cluster.drop("first")
    assert "first" not in cluster.variables()


def test_a_variable_on_a_task_reads_and_assigns_there_and_shares_no_memory(cluster: Cluster) -> None:
    mine = wf.tensor([1.0, 2.0, 3.0])
    with in_graph() as graph, wf.device(PS):
        v = wf.Variable(mine, name="moved")
        add = v.assign_add(1.0)
    with wf.Session(graph, cluster=cluster) as sess:
        assert sess.run(add, timeout=WAIT).tolist() == [2.0, 3.0, 4.0]
        assert v.numpy().tolist() == mine.tolist() == [2.0, 3.0, 4.0]  # copies, from the task
        assert (mine * 2).tolist() == [4.0, 6.0, 8.0] and PS in repr(mine)
        mine += 1.0
        assert sess.run(v, timeout=WAIT).tolist() == [3.0, 4.0, 5.0]
        assert sess.run(v, {v: [0.0, 0.0, 0.0]}, timeout=WAIT).tolist() == [0.0] * 3  # a variable can be fed there, too
        for share in (mine.numpy, mine.__dlpack__, lambda: mine.strides):
            with pytest.raises(RuntimeError, match=rf"'moved' is on {PS}.*v.numpy\(\)"):
                share()
        for alias in (mine[0], mine.reshape(3, 1), mine[1:]):
            with pytest.raises(ValueError, match="read-only"):
                alias += 1.0
        with (
            wf.Session(graph) as other,
            pytest.raises(ValueError, match="lives on a task of a cluster.*cluster=cluster"),
        ):
            other.run(add)
        values = sess.run({"sum": wf.sum(v)}, timeout=WAIT)  # what is declared later uses it there as well
        assert values["sum"].item() == 12.0
    with pytest.raises(ValueError, match="shape must be known"), wf.device(PS):
        wf.Variable.remote((None, 3))
    with pytest.raises(TypeError, match=r"`nn.init.normal\(0.02\)`"), wf.device(PS):
        wf.Variable.remote((3,), init=np.zeros(3))
    with pytest.raises(ValueError, match="no task was named"):
        wf.Variable.remote((3,))


def test_named_variables_are_shared_by_graphs_and_others_are_not(cluster: Cluster) -> None:
    results = []
    for _ in range(2):
        with in_graph() as graph, wf.device(PS):
            shared, own = wf.Variable.remote((2,), init=1.0, name="shared"), wf.Variable.remote((2,), init=1.0)
            add = wf.group(shared.assign_add(1.0), own.assign_add(1.0))
        with wf.Session(graph, cluster=cluster) as sess:
            sess.run(add, timeout=WAIT)
            results.append((shared.numpy()[0], own.numpy()[0]))
    assert results == [(2.0, 2.0), (3.0, 2.0)]
    with in_graph() as graph, wf.device(PS):
        other = wf.Variable.remote((3,), name="shared")
        read = other.read()
    with (
        wf.Session(graph, cluster=cluster) as sess,
        pytest.raises(ValueError, match=r"'shared' of float32 \(2,\).*cluster.drop"),
    ):
        sess.run(read, timeout=WAIT)
    cluster.drop("shared")


def test_where_nodes_go_and_what_cannot_go_there(cluster: Cluster) -> None:
    def places(graph: Any, fetch: Any, feeds: Any = None) -> dict[str, str]:
        with wf.Session(graph, cluster=cluster) as sess:
            step, _ = sess._step(fetch, feeds or {})
            return {n.name: str(d) for n, d in step.placement.of.items()}

    with in_graph() as graph:
        x = wf.placeholder(wf.float32, (3,), name="x")
        here = wf.Variable(np.zeros(3, np.float32), name="here")
        with wf.device("/job:worker"):
            y = wf.tanh(x) + here
        with wf.device("/job:worker/task:0/cpu:1"):
            z = wf.exp(y)
        done = wf.group(here.assign_add(z))
        found = places(graph, [z, done], {x: [0.0, 0.0, 0.0]})
        assert found["tanh"].startswith(WORKER) and found["exp"] == f"{WORKER}/cpu:1"
        assert found["read"] == found["here/assign_add"] == found["group"] == "cpu:0"  # the client's own process
        with wf.device("/job:gpu"):
            nowhere = x * 2.0
        with wf.device(PS):
            remote = wf.Variable.remote((3,))
        with wf.device(WORKER):
            with wf.colocate_with(here):
                near = wf.tanh(x)
        with wf.Session(graph, cluster=cluster) as sess:
            with pytest.raises(ValueError, match=r"no device can satisfy device\('/job:gpu'\).*test_sessions.py"):
                sess.run(nowhere, {x: [1.0, 2.0, 3.0]})
            with pytest.raises(
                ValueError, match=r"'here' is in this process, because it was not declared.*test_sessions.py"
            ):
                sess.run(near, {x: [1.0, 2.0, 3.0]})
        assert places(graph, remote.assign_add(x), {x: [1.0, 2.0, 3.0]})["variable/assign_add"].startswith(PS)
    with (
        pytest.raises(ValueError, match="is no device of the cluster"),
        wf.Session(graph, devices=["cpu:0"], cluster=cluster) as sess,
    ):
        sess.run(x, {x: [1.0, 2.0, 3.0]})
    with pytest.raises(TypeError, match=r"expected a wf.distributed.Cluster"):
        wf.Session(graph, cluster="ps")  # type: ignore[arg-type]
    for bad in (
        {},
        {"ps": 0},
        {"ps": 1, "engine": "k8s"},
        {"ps": 1, "transport": "udp"},
        {"local": 1},
        {"ps": 1, "address": "h:1", "engine": "local"},
    ):
        with pytest.raises(ValueError, match="Cluster: "):
            Cluster(**bad)  # type: ignore[arg-type]


def test_a_model_with_its_parameters_on_a_server_trains_as_in_one_process(cluster: Cluster) -> None:
    rng = np.random.default_rng(0)
    data = rng.standard_normal((32, 6)).astype(np.float32)
    truth = (data.sum(1) > 0).astype(np.int64)

    def losses(on_tasks: bool) -> list[float]:
        wf.manual_seed(3)
        with in_graph() as graph:
            images, labels = wf.placeholder(wf.float32, (None, 6)), wf.placeholder(wf.int64, (None,))
            model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
            if on_tasks:
                with wf.device(PS):
                    for p in model.parameters():
                        wf.Variable(p)
            with wf.device(WORKER) if on_tasks else contextlib.nullcontext():
                loss = nn.functional.cross_entropy(model(images), labels)
            train = wf.minimize(optim.Adam(model.parameters(), lr=0.05), loss)
        with wf.Session(graph, cluster=cluster if on_tasks else None) as sess:
            if on_tasks:  # the optimiser's state is with the parameters; the client keeps the learning rate and such
                where = sess._make([train], None, [images._data, labels._data]).placement.of
                assert all(str(d).startswith(PS) for n, d in where.items() if n.op.name in ("assign", "running_mean"))
                assert sum(str(d) == "cpu:0" for d in where.values()) < 8
            return [sess.run([loss, train], {images: data, labels: truth}, timeout=WAIT)[0].item() for _ in range(8)]

    alone, spread = losses(False), losses(True)
    assert spread[-1] < 0.9 * spread[0]
    np.testing.assert_allclose(spread, alone, rtol=1e-4)


def test_large_values_go_through_shared_memory_which_is_used_again(cluster: Cluster) -> None:
    with in_graph() as graph:
        x = wf.placeholder(wf.float32, (None, 1024))
        with wf.device(PS):
            w = wf.Variable.remote((1024, 1024), init=nn.init.uniform(-1, 1, seed=2))
        with wf.device(WORKER):
            y = wf.sum(w.value(), axis=0) + wf.sum(x, axis=0)
        grow = w.assign_fn(lambda old: old + 1.0)
    batch = np.ones((600, 1024), np.float32)
    with wf.Session(graph, cluster=cluster) as sess:

        def shared() -> int:
            pid = cluster.tasks["ps-0"]["pid"]
            return sum(
                int(line.split()[1])
                for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                if "RssShmem" in line
            )

        for i in range(6):
            got = sess.run(y, {x: batch}, timeout=WAIT).numpy()
            np.testing.assert_allclose(got, w.numpy().sum(0) + 600, rtol=1e-4)
            sess.run(wf.group(grow), timeout=WAIT)
            if i == 2:
                before = shared()
        assert shared() <= before + 4096  # KB: one more segment at most


# Steps --------------------------------------------------------------------------------------------------------------


def test_a_queue_on_one_task_is_fed_and_drained_by_others(cluster: Cluster) -> None:
    with in_graph() as graph:
        with wf.device(PS):
            q = wf.FIFOQueue(4, wf.int64, ())
            total = wf.Variable(np.int64(0))
        x = wf.placeholder(wf.int64, ())
        with wf.device(WORKER):
            put = q.enqueue(x * x)
        take = total.assign_add(q.dequeue() + 0)
    with wf.Session(graph, cluster=cluster) as sess:

        def feed(start: int) -> None:
            for n in range(start, start + 20):
                sess.run(put, {x: n}, timeout=WAIT)

        threads = [threading.Thread(target=feed, args=(s,)) for s in (0, 20)]
        for t in threads:
            t.start()
        for _ in range(40):
            sess.run(take, timeout=WAIT)
        for t in threads:
            t.join(WAIT)
            assert not t.is_alive()
        assert total.numpy() == sum(n * n for n in range(40)) and q.size() == 0
        q.put(5)
        assert q.get(timeout=WAIT).item() == 5
        with pytest.raises(TimeoutError, match="within 0.05"):
            q.get(timeout=0.05)
        q.put(6, timeout=WAIT)  # no abandoned call takes it
        assert len(q) == 1 and not q.closed
        q.close()
        assert q.closed and q.get(timeout=WAIT).item() == 6
        with pytest.raises(wf.QueueClosedError, match=rf"enqueue after.*fifo_queue/enqueue.*test_sessions.py.*{PS}"):
            sess.run(put, {x: 1}, timeout=WAIT)


def test_concurrent_steps_lose_no_update_and_one_can_be_cancelled(cluster: Cluster) -> None:
    with in_graph() as graph:
        with wf.device(PS):
            v, gate = wf.Variable(np.zeros(100, np.float32)), wf.FIFOQueue(1, wf.float32, ())
        with wf.device(WORKER):
            amount = wf.tanh(wf.placeholder(wf.float32, (), name="x")) * 0.0 + 1.0
        add, blocked = v.assign_add(amount), v.assign_add(gate.dequeue())
    with wf.Session(graph, cluster=cluster) as sess:
        futures = [sess.run_async(wf.group(add), {"x": 1.0}, queue=f"q{i % 5}", timeout=WAIT) for i in range(100)]
        for f in futures:
            f.result(timeout=WAIT)
        assert v.numpy().tolist() == [100.0] * 100
        waiting = sess.run_async(blocked)
        until(lambda: sess._runs, "the step")
        time.sleep(0.05)
        sess.cancel()
        assert isinstance(waiting.exception(timeout=WAIT), wf.CancelledError)
        with pytest.raises(
            TimeoutError, match=r"waiting for node 'fifo_queue/dequeue'.*test_sessions.py.*/job:ps/task:0"
        ):
            sess.run(blocked, timeout=0.1)
        gate.put(7.0, timeout=WAIT)
        assert gate.size() == 1  # neither of the two takes it
        assert sess.run(blocked, timeout=WAIT).numpy()[0] == 107.0


def test_errors_name_node_task_and_line_and_leave_nothing_behind(cluster: Cluster) -> None:
    with in_graph() as graph:
        x = wf.placeholder(wf.float32, name="x")
        with wf.device(PS):
            v = wf.Variable(np.zeros(3, np.float32), name="v")
        with wf.device(WORKER):
            bad = x + wf.constant([1.0, 2.0, 3.0])
            picked = wf.take(wf.constant([1.0, 2.0]), wf.placeholder(wf.int64, (), name="i"), axis=0)
            small = wf.sum(x) < 100
            wf.debug.check(small, "too large")
        update = v.assign_add(bad)
    with wf.Session(graph, cluster=cluster) as sess:
        with pytest.raises(ValueError, match=rf"node 'add', made at .*test_sessions.py.*On {WORKER}"):
            sess.run(update, {x: [1.0, 2.0]}, timeout=WAIT)
        with pytest.raises(IndexError, match=rf"test_sessions.py.*{WORKER}"):
            sess.run(picked, {"i": 5}, timeout=WAIT)
        with pytest.raises(AssertionError, match="too large"):
            sess.run(small, {x: [99.0, 2.0]}, timeout=WAIT)
        assert v.numpy().tolist() == [0.0] * 3
        assert sess.run(update, {x: [1.0, 1.0, 1.0]}, timeout=WAIT).tolist() == [2.0, 3.0, 4.0]


# Checkpoints --------------------------------------------------------------------------------------------------------


def test_every_task_writes_its_shard_and_any_other_split_reads_it(cluster: Cluster, tmp_path: Path) -> None:
    def declare(first: str, second: str) -> Any:
        with in_graph() as graph:
            with wf.device(first):
                a = wf.Variable.remote((4, 3), init=nn.init.normal(1.0, seed=5))
            with wf.device(second):
                b = wf.Variable(np.full(5, 2.0, np.float32), name="b")
            c = wf.Variable(np.zeros(2, np.int64), name="c")  # in the client
            change = wf.group(a.assign_add(1.0), b.assign_add(1.0), c.assign_add(1))
            named = {"a": a, "b": b, "c": c}
            save, restore = (op(named, tmp_path / "state") for op in (wf.save_variables, wf.restore_variables))
        return graph, named, change, save, restore

    graph, saved, change, save, _ = declare(PS, WORKER)
    with wf.Session(graph, cluster=cluster) as sess:
        sess.run(change, timeout=WAIT)
        for _ in range(2):  # the second replaces the first
            sess.run(save, timeout=WAIT)
        values = {k: v.numpy() for k, v in saved.items()}
        shards = sorted(p.name.split(".")[2] for p in tmp_path.glob("state.*.safetensors"))
        assert shards == ["client", "ps-0", "worker-0"]
    for first, second in ((PS, PS), (WORKER, PS)):
        graph, found, change, _, restore = declare(first, second)
        with wf.Session(graph, cluster=cluster) as sess:
            sess.run(change, timeout=WAIT)
            sess.run(restore, timeout=WAIT)
            for k, v in found.items():
                np.testing.assert_array_equal(v.numpy(), values[k])
    with in_graph() as graph:  # a session without a cluster reads it, too
        local = {"a": wf.Variable(np.zeros((4, 3), np.float32)), "b": wf.Variable(np.zeros(5, np.float32))}
        restore = wf.restore_variables(local, tmp_path / "state")
    with wf.Session(graph) as sess:
        sess.run(restore)
    np.testing.assert_array_equal(local["a"].numpy(), values["a"])
    with in_graph() as graph, wf.device(PS):
        wrong = wf.restore_variables({"a": wf.Variable.remote((2,))}, tmp_path / "state")
        missing = wf.restore_variables({"z": wf.Variable.remote((2,))}, tmp_path / "state")
    with wf.Session(graph, cluster=cluster) as sess:
        with pytest.raises(ValueError, match=r"variable 'a' is float32 \(2,\)"):
            sess.run(wrong, timeout=WAIT)
        with pytest.raises(KeyError, match="no variable 'z'"):
            sess.run(missing, timeout=WAIT)


# Deaths and other clients -------------------------------------------------------------------------------------------

CLIENT = """
    import sys
    import weft as wf
    with wf.distributed.Cluster.join(sys.argv[1]) as cluster:
        graph = wf.Graph()
        with graph.as_default():
            with wf.device("/job:ps/task:0"):
                w = wf.Variable.remote((4,), init=50.0, name="w")
                jobs = wf.FIFOQueue(8, wf.float32, (), name="jobs", shared=True)
            add, put = w.assign_add(10.0), jobs.enqueue(wf.constant(3.5))
        with wf.Session(graph, cluster=cluster) as sess:
            print(sess.run(add, timeout=60).tolist()[0], flush=True)
            sess.run(put, timeout=60)
            print("put", flush=True)
            sys.stdin.readline()
            print(sess.run(add, timeout=60).tolist()[0], flush=True)
"""


def test_tasks_that_die_fail_their_step_and_come_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Cluster(ps=1, worker=1, transport="tcp", memory="lean") as cluster, in_graph() as graph:
        with wf.device(PS):
            w = wf.Variable.remote((4,), init=1.0, name="w")
            moved = wf.Variable(np.full(3, 5.0, np.float32), name="moved")
            never = wf.FIFOQueue(3, wf.float32, ())
            jobs = wf.FIFOQueue(8, wf.float32, (), name="jobs", shared=True)
        with wf.device(WORKER):
            y = w * 2.0 + never.dequeue()
        add = wf.group(w.assign_add(1.0), moved.assign_add(1.0))
        got = jobs.dequeue()

        def die(sess: wf.Session, task: str, number: signal.Signals) -> BaseException:
            until(lambda: len(cluster.tasks) == 2, "a restart")
            future = sess.run_async(y)
            until(lambda: cluster.hub.steps, "the step")
            time.sleep(0.2)
            os.kill(cluster.tasks[task]["pid"], number)
            found = future.exception(timeout=WAIT)
            assert isinstance(found, TaskLostError)
            return found

        with wf.Session(graph, cluster=cluster) as sess:
            sess.run(add, timeout=WAIT)
            error = die(sess, "ps-0", signal.SIGKILL)
            for part in (
                PS,
                "SIGKILL",
                "It owed 'read' to /job:worker/task:0",
                "test_sessions.py",
                "goes on when the task is back",
            ):
                assert part in str(error)
            sess.run(add, timeout=WAIT)  # waits for the task, whose variables begin again
            assert w.numpy()[0] == 2.0 and moved.numpy()[0] == 6.0
            cluster.save(tmp_path / "saved")
            sess.run(add, timeout=WAIT)
            assert "the value of 'add'" in str(die(sess, "worker-0", signal.SIGKILL))
            sess.run(add, timeout=WAIT)
            assert w.numpy()[0] == 4.0  # the server was not touched
            die(sess, "ps-0", signal.SIGKILL)
            sess.run(add, timeout=WAIT)
            assert w.numpy()[0] == 3.0 and moved.numpy()[0] == 7.0  # the checkpoint, and one addition
            assert "answer" in str(die(sess, "worker-0", signal.SIGSTOP))
            never.put(1.0, timeout=WAIT)
            assert sess.run(y, timeout=WAIT).tolist() == [7.0] * 4

            child = subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(CLIENT), cluster.file], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                text=True,
            )  # fmt: skip
            try:
                assert child.stdin is not None and child.stdout is not None
                assert child.stdout.readline().strip() == "13.0"  # the same variable
                assert child.stdout.readline().strip() == "put"
                assert sess.run(got, timeout=WAIT).item() == 3.5  # and the same queue
                os.kill(cluster.tasks["ps-0"]["pid"], signal.SIGKILL)
                until(lambda: cluster.tasks.get("ps-0", {}).get("generation") == 4, "the restart")
                sess.run(add, timeout=WAIT)  # makes the variable again, from the checkpoint
                child.stdin.write("\n")
                child.stdin.flush()
                assert child.stdout.readline().strip() == "13.0"
                assert child.wait(WAIT) == 0
            finally:
                child.kill()
                child.wait(10)
                for pipe in (child.stdin, child.stdout):
                    pipe.close()  # type: ignore[union-attr]

        port = _port(cluster, "worker-0")
        for nonsense in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(200)):
            with socket.create_connection(("127.0.0.1", port), 5) as stranger:
                stranger.sendall(nonsense)
        with wf.Session(graph, cluster=cluster) as sess:
            sess.run(add, timeout=WAIT)
    text = capfd.readouterr().err
    assert "ps-0 was killed by SIGKILL and is started again" in text and "refused a connection" in text
    with pytest.raises(RuntimeError, match="is closed"):
        w.numpy()


def _port(cluster: Cluster, task: str) -> int:
    (place,) = [p for p in cluster._places if p.name == task]
    assert place.address is not None
    return int(place.address["tcp"][1])
