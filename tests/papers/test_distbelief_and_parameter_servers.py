"""DistBelief and parameter servers as programs: state on servers, stateless workers, and every consistency between them.

One cluster of two servers and a worker serves all tests of this file.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from tests.distributed.conftest import guard, module_mark, nothing_is_left  # noqa: F401  (autouse: nothing is left behind)
from weft import nn, optim
from weft.distributed import Bounded, Cluster, Embedding, KVStore
from weft.distributed.server_state import Lease, Leases

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="pidfd and eventfd are Linux's"),
    pytest.mark.xdist_group("distributed"),
    pytest.mark.timeout(240, method="signal"),
]
WAIT = 60.0
PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(ps=2, worker=1) as made:
        yield made


@pytest.fixture
def two(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Makes the stores of two workers: `two("sync")`. Key `w` is 0 at first; SGD subtracts what is pushed."""
    made: list[Any] = []

    def make(consistency: Any) -> list[KVStore]:
        for rank in range(2):
            client = Cluster.join(cluster.file)
            options = {"rank": rank, "num_workers": 2, "consistency": consistency, "timeout": WAIT}
            made.extend([client, KVStore("dist", cluster=client, name=request.node.name, **options)])
        stores = made[1::2]
        for kv in stores:
            kv.init("w", np.zeros(2, np.float32))
        stores[0].set_optimizer(optim.SGD, lr=1.0)
        return stores

    yield make
    for one in reversed(made):
        one.close()


class Sign(optim.Optimizer):
    """An optimiser that no server has heard of."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    def update(self, p: Any, g: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        p -= group["lr"] * wf.sign(g)


def test_the_computation_goes_to_the_state(cluster: Cluster) -> None:
    """Divide every parameter by two, at the server: not a byte of the parameters moves."""
    with wf.Graph().as_default() as graph:
        with wf.device(PS):
            w = wf.Variable.remote((1000, 100), init=nn.init.constant(4.0))
        halve = wf.group(w.assign_fn(lambda old: old / 2))
    with wf.Session(graph, cluster=cluster) as sess:
        report = sess.explain(halve)
        assert "assign_fn: device(/job:ps/task:0)" in report and "edges:\n  none" in report and " 0 bytes" in report
        sess.run(halve, timeout=WAIT)
        assert (w.numpy() == 2).all()


def test_stateless_workers_read_compute_and_send_gradients(cluster: Cluster) -> None:
    with wf.Graph().as_default() as graph:
        x, target = wf.placeholder(wf.float32, (None, 4)), wf.placeholder(wf.float32, (None, 1))
        with wf.device(PS):
            w = wf.Variable.remote((4, 1), init=nn.init.constant(0.0))
        with wf.device(WORKER):
            loss = wf.mean((x @ w - target) ** 2)
            slope = wf.gradients(loss, w)
        train = wf.group(w.assign_sub(0.2 * slope))
    data = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    feeds = {x: data, target: data.sum(1, keepdims=True)}
    with wf.Session(graph, cluster=cluster) as sess:
        report = sess.explain([loss, train], feeds)
        assert "/job:ps/task:0 → /job:worker/task:0" in report, "parameters"
        assert "/job:worker/task:0 → /job:ps/task:0" in report, "gradients"
        losses = [sess.run([loss, train], feeds, timeout=WAIT)[0].item() for _ in range(20)]
    assert losses[-1] < 0.1 * losses[0]
    np.testing.assert_allclose(w.numpy()[:, 0], 1, atol=0.2)


def test_cut_edges_become_messages_between_tasks(cluster: Cluster) -> None:
    with wf.Graph().as_default() as graph:
        x = wf.placeholder(wf.float32, (16,))
        with wf.device(WORKER):
            a = x * 2.0
        with wf.device(PS):
            y = wf.sum(a) + wf.max(a)  # two consumers, one message
    with wf.Session(graph, cluster=cluster) as sess:
        report = sess.explain(y)
        assert report.count("/job:worker/task:0 → /job:ps/task:0, 64 bytes") == 1
        assert sess.run(y, {x: np.ones(16, np.float32)}, timeout=WAIT).item() == 34.0


def test_an_asynchronous_nudge_is_applied_as_it_comes_and_reads_never_wait(two: Any) -> None:
    first, second = two("async")
    for step in (1, 2, 3):  # the other worker has sent nothing
        first.push("w", np.ones(2, np.float32))
        assert first.pull("w").tolist() == [-step, -step]
    assert second.pull("w").tolist() == [-3, -3], "the current value, whoever made it"
    second.push("w", np.ones(2, np.float32))
    second.wait()
    assert second.updates("w") == 4


def test_a_synchronous_update_waits_for_all_workers(two: Any) -> None:
    first, second = two("sync")
    pulled: list[Any] = []

    def work() -> None:
        first.push("w", np.full(2, 2.0, np.float32))
        pulled.append(first.pull("w").tolist())

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.2)  # time enough for a pull that does not wait
    assert second.updates("w") == 0
    second.push("w", np.full(2, 4.0, np.float32))
    thread.join(WAIT)
    assert pulled == [second.pull("w").tolist()], "one update, from both gradients"
    assert pulled[0] == [-6.0, -6.0] and second.updates("w") == 1


def test_bounded_staleness_stops_a_worker_that_is_too_far_ahead(two: Any) -> None:
    first, second = two(Bounded(1))
    for _ in range(3):
        first.push("w", np.ones(2, np.float32))
    first.wait()
    assert first.updates("w") == 3, "updates are not held back"
    pulled: list[float] = []
    thread = threading.Thread(target=lambda: pulled.append(first.pull("w").tolist()[0]))
    thread.start()
    time.sleep(0.2)  # time enough for a pull that does not wait
    for _ in range(2):
        second.push("w", np.ones(2, np.float32))
    thread.join(WAIT)
    assert pulled and pulled[0] <= -4.0, "the read saw what it waited for"


def test_the_first_copy_of_a_piece_counts_with_backup_workers() -> None:
    """Two workers and a spare process: the straggler's piece is computed twice and counted once."""
    leases = Leases(2, True, 1)
    leases.open(0, 1)  # an epoch of one batch
    fast, slow = leases.take(0), leases.take(1)
    assert isinstance(fast, Lease) and isinstance(slow, Lease) and fast.piece != slow.piece
    assert leases.finish(0, fast.piece, [])
    spare = leases.take(2)
    assert isinstance(spare, Lease) and spare.piece == slow.piece
    assert leases.finish(2, spare.piece, []) and leases.over
    assert not leases.finish(1, slow.piece, []), "too late: its copy has been counted"


def test_a_new_optimiser_needs_no_change_of_the_servers(cluster: Cluster) -> None:
    with KVStore("dist", cluster=cluster, rank=0, num_workers=1, name="sign", timeout=WAIT) as kv:
        kv.init("w", wf.zeros(2))
        kv.set_optimizer(Sign, lr=0.5)  # travels as a graph
        assert kv.pushpull("w", wf.tensor([3.0, -7.0])).tolist() == [-0.5, 0.5]


def test_push_and_pull_work_across_processes(cluster: Cluster) -> None:
    with KVStore("dist", cluster=cluster, rank=0, num_workers=1, name="push and pull", timeout=WAIT) as kv:
        kv.init(["a", "b"], [wf.ones(3), wf.zeros(2)])  # on two servers
        kv.push("a", wf.ones(3) * 5)
        assert [v.tolist() for v in kv.pull(["a", "b"])] == [[5, 5, 5], [0, 0]]


def test_an_embedding_larger_than_one_host_is_spread_over_servers(cluster: Cluster) -> None:
    """Fifty million rows of 64 floats, 12.8 GB: only rows that were trained take memory."""
    sgd = partial(optim.SGD, lr=0.5)
    with Embedding(50_000_000, 64, optimizer=sgd, cluster=cluster, init=nn.init.normal(0.01, seed=0)) as table:
        rows = wf.tensor([[3, 49_999_999], [3, 16]])
        before = table(rows).detach().numpy()
        (table(rows) ** 2).sum().backward()
        table.step()
        after = table(rows).detach().numpy()
        assert table.info()["rows"] == 3
    np.testing.assert_allclose(after[0, 1], before[0, 1] - 0.5 * 2 * before[0, 1], atol=1e-7)
    np.testing.assert_allclose(after[0, 0], before[0, 0] - 0.5 * 2 * 2 * before[0, 0], atol=1e-7)


def test_every_server_writes_its_part_of_a_checkpoint(cluster: Cluster, tmp_path: Path) -> None:
    with wf.Graph().as_default() as graph:
        variables = []
        for task in range(2):
            with wf.device(f"/job:ps/task:{task}"):
                variables.append(wf.Variable.remote((4,), init=nn.init.constant(task + 1.0), name=f"part{task}"))
        add = wf.group(*[v.assign_add(1.0) for v in variables])
        path = str(tmp_path / "checkpoint")
        save, restore = wf.save_variables(variables, path), wf.restore_variables(variables, path)
    with wf.Session(graph, cluster=cluster) as sess:
        for op in (save, add, add, restore):
            sess.run(op, timeout=WAIT)
    assert [v.numpy().tolist() for v in variables] == [[1.0] * 4, [2.0] * 4]


def test_one_model_runs_in_one_process_and_over_tasks(cluster: Cluster) -> None:
    """The same program from a laptop to a cluster: only the devices differ."""
    data = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
    results = []
    for devices in ((), (PS, WORKER)):
        with wf.Graph().as_default() as graph:
            x = wf.placeholder(wf.float32, (None, 3))
            with wf.device(devices[0] if devices else "cpu"):
                w = wf.Variable(np.ones((3, 1), np.float32))
            with wf.device(devices[1] if devices else "cpu"):
                loss = wf.mean((x @ w) ** 2)
                slope = wf.gradients(loss, w)
            train = wf.group(w.assign_sub(0.1 * slope))
        with wf.Session(graph, **({"cluster": cluster} if devices else {})) as sess:
            results.append([sess.run([loss, train], {x: data}, timeout=WAIT)[0].item() for _ in range(5)])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5)
