"""KVStore: one contract for the local one and for servers on a cluster; deaths of servers; priorities; compression."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft as wf
from tests.each import each
from weft import optim
from weft.distributed import Bounded, Cluster, KVStore
from weft.distributed.kvstore_client import Sender
from weft.distributed.kvstore_compression import Compressor, expand

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="pidfd and eventfd are Linux's"),
    pytest.mark.xdist_group("distributed"),
    pytest.mark.timeout(240, method="signal"),
]
SECONDS = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(ps=2, modules=["tests.distributed.test_parameter_server"]) as made:
        yield made


def stores(cluster: Cluster, name: str) -> list[KVStore]:
    """One store of each kind, for one worker."""
    return [
        KVStore("local", timeout=SECONDS),
        KVStore("dist", cluster=cluster, rank=0, num_workers=1, name=name, timeout=SECONDS),
    ]


def test_local_and_distributed_stores_keep_one_contract(cluster: Cluster) -> None:
    def check(kv: KVStore) -> None:
        assert (kv.rank, kv.num_workers) == (0, 1)
        assert kv.is_capable("row_sparse") and not kv.is_capable("teleportation")
        kv.init(["a", "b"], [np.ones(3, np.float32), wf.zeros((2, 2))])
        kv.init("a", np.full(3, 7, np.float32))  # the first value counts
        assert kv.pull("a").tolist() == [1, 1, 1]
        kv.push("a", [wf.ones(3), wf.ones(3)])  # without an optimiser the sum is the value
        assert kv.pull("a").tolist() == [2, 2, 2]
        kv.set_optimizer(optim.SGD, lr=0.5)
        out = wf.zeros(3)
        assert kv.pushpull("a", wf.ones(3), out=out) is out and out.tolist() == [1.5, 1.5, 1.5]
        kv.set_settings(lr=1.0)
        pushed = kv.pushpull(["a", "b"], [wf.ones(3), wf.ones((2, 2))])
        assert [t.tolist() for t in pushed] == [[0.5] * 3, [[-1, -1], [-1, -1]]]
        kv.init("table", np.zeros((5, 2), np.float32), rows=True)  # after set_optimizer
        kv.push_rows("table", [4, 1, 4], np.ones((3, 2), np.float32))
        table = kv.pull_rows("table", [4, 0, 1, 4])
        assert table.tolist() == [[-2, -2], [0, 0], [-1, -1], [-2, -2]]
        assert kv.pull("table").tolist() == [[0, 0], [-1, -1], [0, 0], [0, 0], [-2, -2]]
        assert table.shape == (4, 2) and kv.updates("table") == 1
        kv.barrier()
        with pytest.raises(KeyError, match=r"no key 'c'.*init"):
            kv.pull("c")
        with pytest.raises(ValueError, match="is a table of rows"):
            kv.push("table", wf.ones((5, 2)))
        with pytest.raises(IndexError, match="rows are 0 to 4"):
            kv.pull_rows("table", [5])
        with pytest.raises(ValueError, match=r"is no table.*rows=True"):
            kv.push_rows("a", [0], wf.ones((1, 1)))
        kv.push("a", wf.ones(4))
        with pytest.raises(ValueError, match=r"key 'a' is float32 \(3,\). Got float32 \(4,\)"):
            kv.wait()
        with pytest.raises(TypeError, match="expected an optimiser"):
            kv.set_optimizer(3)
        with pytest.raises(ValueError, match="cannot be imported"):
            kv.set_optimizer("no_such_module:Optimizer")
        kv.close()

    each(check, {kv.kind: (kv,) for kv in stores(cluster, "contract")})


def test_a_users_optimiser_is_named_by_its_path_or_travels_as_a_graph(cluster: Cluster) -> None:
    from .test_parameter_server import Halving

    def check(kv: KVStore, given: Any) -> None:
        kv.init("w", wf.zeros(2))
        kv.set_optimizer(given, lr=1.0)
        values = [kv.pushpull("w", wf.ones(2)).tolist() for _ in range(2)]
        assert values == [[-1, -1], [-2.5, -2.5]]
        kv.close()

    path = "tests.distributed.test_parameter_server:Halving"
    cases = {f"{kv.kind} graph": (kv, Halving) for kv in stores(cluster, "graph")}
    each(check, cases | {f"{kv.kind} path": (kv, path) for kv in stores(cluster, "path")})


def together(cluster: Cluster, name: str, workers: int, work: Callable[[KVStore], Any], **options: Any) -> list[Any]:
    """`work` on every worker, each a thread with a client of its own."""
    results: list[Any] = [None] * workers

    def run(rank: int) -> None:
        client = Cluster.join(cluster.file)
        try:
            with KVStore(
                "dist", cluster=client, rank=rank, num_workers=workers, name=name, timeout=SECONDS, **options
            ) as kv:
                results[rank] = work(kv)
        except BaseException as error:
            results[rank] = error
        finally:
            client.close()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS * 2)
    for found in results:
        if isinstance(found, BaseException):
            raise found
    return results


def test_no_update_is_lost_or_doubled_when_servers_are_killed() -> None:
    with Cluster(ps=2) as cluster:  # whose tasks that are started again belong to this test
        check_deaths(cluster)


def check_deaths(cluster: Cluster) -> None:
    steps = 24

    def check(consistency: Any, kills: bool) -> list[Any]:
        def work(kv: KVStore) -> Any:
            kv.init("w", np.zeros(64, np.float32))
            kv.init("t", np.zeros((7, 3), np.float32), rows=True)
            if kv.rank == 0:
                kv.set_optimizer(optim.Adam, lr=0.01, lazy=True)
            kv.barrier()
            rng = np.random.default_rng(kv.rank)
            for step in range(steps):
                if kills and kv.rank == 0 and step in (6, 15):
                    os.kill(cluster.tasks[f"ps-{step % 2}"]["pid"], signal.SIGKILL)
                kv.push("w", rng.normal(size=64).astype(np.float32), priority=1)
                kv.push_rows("t", rng.integers(0, 7, 4), rng.normal(size=(4, 3)).astype(np.float32))
                kv.pull(["w", "t"])
            kv.barrier()
            return kv.pull("w").numpy(), kv.pull("t").numpy(), kv.updates("w"), kv.updates("t")

        return together(cluster, f"deaths-{consistency}-{kills}", 2, work, consistency=consistency)

    undisturbed, disturbed = check("sync", False), check("sync", True)
    for found in (*undisturbed, *disturbed):
        np.testing.assert_array_equal(found[0], undisturbed[0][0])
        np.testing.assert_array_equal(found[1], undisturbed[0][1])
        assert found[2:] == (steps, steps)
    for found in check("async", True):
        assert found[2:] == (2 * steps, 2 * steps)
    assert all(found[2:] == (2 * steps, 2 * steps) for found in check(Bounded(2), False))


def test_operations_with_a_higher_priority_go_first(cluster: Cluster) -> None:
    kv = KVStore("dist", cluster=cluster, rank=0, num_workers=1, name="priority", timeout=SECONDS)
    keys = [f"k{i}" for i in range(6)]
    kv.init(keys, [np.zeros(1, np.float32)] * 6)
    sender = kv._servers
    assert isinstance(sender, Sender)
    begun: list[str] = []
    start, gate = sender._start, threading.Event()

    def started(operation: Any) -> None:
        gate.wait(SECONDS)
        begun.append(operation.sequence)
        start(operation)

    sender._start = started  # type: ignore[method-assign]
    kv.push("k5", np.ones(1, np.float32))  # the thread stops at this one, or the next
    for number, key in enumerate(keys[:5]):
        kv.push(key, np.ones(1, np.float32), priority=number)
    gate.set()
    kv.wait()
    assert [k for k in begun if k not in ("k5", "k0")] == ["k4", "k3", "k2", "k1"]
    assert [v.item() for v in kv.pull(keys)] == [1] * 6
    kv.close()


def test_compressed_gradients_lose_nothing_in_the_long_run(cluster: Cluster) -> None:
    rng = np.random.default_rng(0)

    def check(kind: str, ratio: int) -> None:
        compressor = Compressor(kind)
        total, sent = np.zeros((37, 5)), np.zeros((37, 5))
        for _ in range(60):
            gradient = rng.normal(size=(37, 5)).astype(np.float32)
            facts, codes = compressor.compress("w", gradient)
            assert codes.nbytes == -(-gradient.nbytes // ratio)
            total += gradient
            sent += expand(facts, codes)
        np.testing.assert_allclose(sent, total, atol=8.0 if kind == "2bit" else 0.05)
        with pytest.raises(ValueError, match="bytes for a compressed gradient"):
            expand(facts, codes[1:])

    each(check, {"2bit": ("2bit", 16), "8bit": ("8bit", 4)})
    with pytest.raises(ValueError, match="must be '2bit' or '8bit'"):
        KVStore("local", compression="3bit")
    kv = KVStore("local", compression="8bit")
    kv.init("w", wf.zeros(3))
    kv.set_optimizer(optim.SGD, lr=1.0)
    np.testing.assert_allclose(kv.pushpull("w", wf.tensor([1.0, -0.5, 0.0])).numpy(), [-1, 0.5, 0], atol=0.01)
