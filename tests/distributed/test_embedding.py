"""Tables that are spread over servers: contents, training, duplicates, checkpoints, growth, eviction, staleness, deaths."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from tests.each import each
from weft import nn, optim
from weft.distributed import Cluster, Embedding, TaskLostError
from weft.distributed.embedding_table import PERIOD, TableRows
from weft.distributed.table_server import TableServer, load_optimizer

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="pidfd and eventfd are Linux's"),
    pytest.mark.xdist_group("distributed"),
    pytest.mark.timeout(240, method="signal"),
]
ROWS, DIM = 50, 6
INIT = nn.init.normal(0.5, seed=11)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(one=1, ps=3) as made:
        yield made


def table(cluster: Cluster, job: str = "ps", **options: Any) -> Embedding:
    options = {"optimizer": partial(optim.SGD, lr=0.1), "init": INIT, **options}
    return Embedding(ROWS, DIM, cluster=cluster, job=job, **options)


def contents(table: Embedding) -> np.ndarray:
    table.eval()
    found = table(wf.arange(table.num_embeddings)).numpy()
    table.train()
    return found


def train(model: Any, optimizer: Any, steps: int, seed: int = 0) -> None:
    """Steps with repeated indices, and two look-ups each."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        first, second = wf.tensor(rng.integers(0, ROWS, (4, 3))), wf.tensor(rng.integers(0, 5, 7))
        weights = wf.tensor(rng.standard_normal((4, 3, DIM)).astype(np.float32))
        loss = (model(first) * weights).sum() + (model(second) ** 2).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def test_contents_do_not_depend_on_the_servers_nor_on_the_size(cluster: Cluster) -> None:
    rules = {"normal": INIT, "uniform": nn.init.uniform(-2.0, 1.0, seed=5), "constant": nn.init.constant(3.0)}

    def check(init: Any) -> None:
        with table(cluster, init=init) as three, table(cluster, "one", init=init) as one:
            assert (three.servers, one.servers) == (3, 1)
            found = contents(three)
            assert np.array_equal(found, contents(one))
            assert three.info()["rows"] == 0  # looking at a row does not take memory
            three.materialize()
            assert three.info()["rows"] == ROWS and np.array_equal(contents(three), found)
            one.grow(2 * ROWS)
            larger = contents(one)
            assert larger.shape == (2 * ROWS, DIM) and np.array_equal(larger[:ROWS], found)
        if init.name != "constant":
            assert len(np.unique(larger)) > ROWS * DIM * 1.9

    each(check, {name: (rule,) for name, rule in rules.items()})


def test_training_is_that_of_a_local_table_with_sparse_gradients(cluster: Cluster) -> None:
    cases: dict[str, tuple[Any, bool]] = {
        "SGD": (partial(optim.SGD, lr=0.1), True),
        "SGD with weight decay": (partial(optim.SGD, lr=0.1, weight_decay=0.01), True),
        "Adagrad": (partial(optim.Adagrad, lr=0.1), True),
        "lazy Adam": (partial(optim.Adam, lr=0.05, lazy=True), True),
        "SparseAdam": (partial(optim.SparseAdam, lr=0.05), True),
        "exact Adam": (partial(optim.Adam, lr=0.05), False),
        "SGD with momentum": (partial(optim.SGD, lr=0.05, momentum=0.9), False),
    }

    def check(kind: Any, lazy: bool) -> None:
        with table(cluster, optimizer=kind) as remote, table(cluster, "one", optimizer=kind) as single:
            local = nn.Embedding(ROWS, DIM, sparse=True)
            local.weight.detach().copy_(wf.tensor(contents(remote)))
            for model in (remote, single):
                train(model, model, 12)
            train(local, kind(local.parameters()), 12)
            assert np.array_equal(contents(remote), contents(single))
            if lazy:
                np.testing.assert_array_equal(contents(remote), local.weight.detach().numpy())
            else:
                np.testing.assert_allclose(contents(remote), local.weight.detach().numpy(), rtol=1e-6, atol=1e-7)

    each(check, cases)


def test_rows_that_are_long_unused_follow_a_dense_optimiser(cluster: Cluster) -> None:
    kind = partial(optim.Adam, lr=0.01)
    rows = TableRows(
        1, 0, 8, 4, np.dtype("f4"), INIT, load_optimizer("weft.optim:Adam", {"lr": 0.01}, 4, np.dtype("f4")), None
    )
    weight = nn.Parameter(wf.tensor(rows.pull(np.arange(8), False)))
    dense = kind([weight])
    rng = np.random.default_rng(3)
    for step in range(2 * PERIOD):
        used = np.array([step % 2, 3]) if step else np.arange(8)
        gradient = rng.standard_normal((len(used), 4)).astype(np.float32)
        whole = np.zeros((8, 4), np.float32)
        whole[used] = gradient
        weight.grad = wf.tensor(whole)
        dense.step()
        rows.push(used, gradient)
    np.testing.assert_allclose(rows.pull(np.arange(8), False), weight.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_settings_can_change_and_wrong_ones_are_named(cluster: Cluster) -> None:
    with table(cluster, init=nn.init.zeros()) as made:
        made.push([7, 7, 8], np.ones((3, DIM), np.float32))
        assert contents(made)[[7, 8, 9], 0].tolist() == pytest.approx([-0.2, -0.1, 0.0])
        made.configure(lr=1.0)
        made.push([9], np.ones((1, DIM), np.float32))
        assert contents(made)[9, 0] == -1.0
        x = wf.tensor([1, 2])
        for error, text, call in (
            (ValueError, "SGD has no settings \\['speed'\\]", lambda: made.configure(speed=1)),
            (IndexError, f"indices hold {ROWS}; expected 0 to {ROWS - 1}", lambda: made(wf.tensor([ROWS]))),
            (IndexError, "indices hold -1", lambda: made(wf.tensor([-1]))),
            (TypeError, "indices must be integers", lambda: made(wf.tensor([1.0]))),
            (ValueError, "expected a gradient of 6 numbers", lambda: made.push(x, np.ones((2, 2)))),
            (RuntimeError, "there are no gradients", made.step),
            (ValueError, "num_embeddings must be at least", lambda: made.grow(3)),
            (ValueError, "weight decay", lambda: table(cluster, optimizer=partial(optim.Adam, weight_decay=0.1))),
            (TypeError, "optimizer must be a class", lambda: table(cluster, optimizer="sgd")),
            (TypeError, "Adafactor", lambda: table(cluster, optimizer=optim.Adafactor)),
            (ValueError, "init must be", lambda: table(cluster, init=nn.init.xavier_normal())),
            (ValueError, "no job 'worker'", lambda: table(cluster, "worker")),
            (wf.graph.capture.tracing.CaptureError, "table.pull", lambda: wf.function(made, fullgraph=True)(x)),
        ):
            with pytest.raises(error, match=text):
                call()


def test_pull_and_push_serve_captured_functions(cluster: Cluster) -> None:
    @wf.function
    def gradient(rows: wf.Tensor) -> wf.Tensor:
        return wf.func.grad(lambda r: (r**2).sum())(rows)

    x = np.array([3, 4, 3])
    with table(cluster) as by_hand, table(cluster) as by_tape:
        for _ in range(3):
            by_hand.push(x, gradient(by_hand.pull(x)))
            (by_tape(wf.tensor(x)) ** 2).sum().backward()
            by_tape.step()
        np.testing.assert_allclose(contents(by_hand), contents(by_tape), rtol=1e-6)


def test_look_ups_and_updates_are_nodes_of_declared_graphs(cluster: Cluster) -> None:
    x = np.array([[3, 4], [3, 9]])
    with table(cluster) as declared, table(cluster) as eager:
        graph = wf.Graph()
        with graph.as_default():
            ids = wf.placeholder(wf.int64, (None, 2))
            rows = declared.pull(ids)
            with wf.device("/job:one/task:0", soft=True):
                loss = (rows**2).sum()
            (gradient,) = wf.gradients(loss, [rows])
            update = declared.push(ids, gradient)
        for where in ({}, {"cluster": cluster}):
            with wf.Session(graph, **where) as session:
                for _ in range(2):
                    found, _ = session.run([loss, update], {ids: x}, timeout=60)
                    expected = (eager(wf.tensor(x)) ** 2).sum()
                    assert found.item() == pytest.approx(expected.item(), rel=1e-6)
                    expected.backward()
                    eager.step()
        np.testing.assert_allclose(contents(declared), contents(eager), rtol=1e-6)
        assert declared.info()["step"] == 4


def test_checkpoints_load_on_another_number_of_servers_and_training_goes_on(cluster: Cluster, tmp_path: Path) -> None:
    kind = partial(optim.Adam, lr=0.05, lazy=True)
    with table(cluster, optimizer=kind) as three, table(cluster, "one", optimizer=kind) as one:
        train(three, three, 5)
        three.grow(ROWS + 10)
        three.push([ROWS + 4], np.ones((1, DIM), np.float32))
        three.save(tmp_path / "table")
        saved = contents(three)
        with pytest.raises(FileNotFoundError):
            three.save(tmp_path / "missing" / "table")
        train(three, three, 5, seed=1)
        one.push([1], np.ones((1, DIM), np.float32))
        one.load(tmp_path / "table")
        assert one.num_embeddings == ROWS + 10 and np.array_equal(contents(one), saved)
        train(one, one, 5, seed=1)
        assert np.array_equal(contents(one), contents(three))
        one.save(tmp_path / "table")  # replaces the files of the first
        three.load(tmp_path / "table")
        assert np.array_equal(contents(one), contents(three)) and three.info()["rows"] == one.info()["rows"]
        files = sorted(p.name for p in tmp_path.iterdir())
        assert len(files) == 2, files
        with (
            table(cluster) as other,
            pytest.raises(ValueError, match="is of a table with optimizer 'weft.optim.adam:Adam'"),
        ):
            other.load(tmp_path / "table")


def test_evicted_rows_begin_again_and_their_memory_is_used_again(cluster: Cluster) -> None:
    one = np.ones((10, DIM), np.float32)
    with table(cluster) as made:
        begun = contents(made)
        made.push(np.arange(10), one)
        for _ in range(5):
            made.push(np.arange(10, 20), one)
        assert made.evict(unused_for=5) == 10
        assert made.info()["rows"] == 10 and made.info()["evicted"] == 10
        found = contents(made)
        assert np.array_equal(found[:10], begun[:10]) and (found[10:20] < begun[10:20]).all()
        size = [s["bytes"] for s in made.info()["servers"]]
        made.push(np.arange(20, 30), one)
        assert [s["bytes"] for s in made.info()["servers"]] == size
    with table(cluster, max_rows=12) as small:
        for first in range(0, 40, 10):
            small.push(np.arange(first, first + 10), one)
        assert small.info()["rows"] <= 12 and (contents(small)[36:40] < begun[36:40]).all()


def test_cached_rows_are_at_most_as_stale_as_allowed(cluster: Cluster) -> None:
    one = np.ones((1, DIM), np.float32)
    for staleness in (0, 2):
        with table(cluster, init=nn.init.zeros(), cache_rows=4, staleness=staleness) as made:
            made.configure(lr=1.0)
            seen = []
            for _ in range(8):
                seen.append(-float(made.pull([5])[0, 0].item()))
                assert made.pull([5])[0, 0].item() == -seen[-1]  # unchanged between updates, and a hit
                made.push([5], one)
            assert seen == [step - step % (staleness + 1) for step in range(8)]
            assert made.cache is not None and made.cache.hits >= 8
            made.pull(np.arange(20))  # more than there is room for
            assert made.pull([19])[0, 0].item() == 0.0


def test_an_update_that_is_sent_twice_is_applied_once() -> None:
    server = TableServer()
    facts = {
        "servers": 1, "server": 0, "num": 9, "dim": 2, "dtype": "float32", "init": nn.init.zeros().dump(),
        "optimizer": "weft.optim:SGD", "settings": {"lr": 1.0}, "max_rows": None,
    }  # fmt: skip
    assert server.answer({"how": "pull", "key": "t", "use": True}, [np.arange(2)]) == ({"missing": True}, [])
    server.answer({"how": "make", "key": "t", **facts}, [])
    push = {"how": "push", "key": "t", "writer": "w", "number": 1}
    for _ in range(3):
        answer, _ = server.answer(push, [np.array([4]), np.ones((1, 2), np.float32)])
        assert answer == {"step": 1, "live": 1}
    server.answer({**push, "writer": "v"}, [np.array([4]), np.ones((1, 2), np.float32)])
    _, (found,) = server.answer({"how": "pull", "key": "t", "use": True}, [np.array([3, 4])])
    assert found.tolist() == [[0.0, 0.0], [-2.0, -2.0]]
    with pytest.raises(ValueError, match="there is a table 't' with another dim: 2 instead of 3"):
        server.answer({"how": "make", "key": "t", **facts, "dim": 3}, [])


def test_threads_may_update_and_look_up_at_once(cluster: Cluster) -> None:
    with table(cluster, init=nn.init.zeros(), cache_rows=2) as made, ThreadPoolExecutor(4) as pool:

        def work(_: int) -> None:
            made.push([7, 8], np.ones((2, DIM), np.float32))
            made.pull([7, 9])

        list(pool.map(work, range(60)))
        assert made.clock == 60 and made.info()["step"] == 60
        np.testing.assert_allclose(contents(made)[6:10, 0], [0.0, -6.0, -6.0, 0.0], rtol=1e-5)


def test_two_clients_share_a_named_table(cluster: Cluster) -> None:
    with table(cluster, name="shared", init=nn.init.zeros()) as first, Cluster.join(cluster.file) as joined:
        first.push([1], np.ones((1, DIM), np.float32))
        with table(joined, name="shared", init=nn.init.zeros()) as second:
            second.push([1], np.ones((1, DIM), np.float32))
            second.grow(60)
        assert first.pull([1])[0, 0].item() == pytest.approx(-0.2)


def test_a_killed_server_is_an_error_that_says_what_was_lost(tmp_path: Path) -> None:
    six, gradient = np.arange(6), np.ones((6, DIM), np.float32)
    with Cluster(ps=2) as own, table(own) as made, table(own) as unsaved:
        begun = contents(made)
        train(made, made, 3)
        saved = contents(made)
        made.save(tmp_path / "table")
        train(made, made, 2)
        unsaved.push(six, gradient)
        kept = contents(unsaved)
        os.kill(own.tasks["ps-1"]["pid"], signal.SIGKILL)
        with pytest.raises(
            TaskLostError, match=r"/job:ps/task:1 .*lost its rows.*r % 2 == 1.*update 3 of 5: `table.load"
        ):
            for _ in range(100):
                made.pull(six)
        made.load(tmp_path / "table")
        assert np.array_equal(contents(made), saved)
        train(made, made, 2)
        with pytest.raises(TaskLostError, match="3 that had been updated.*There is no checkpoint: `table.renew"):
            unsaved.push(six, gradient)
        unsaved.renew()
        found = contents(unsaved)
        assert np.array_equal(found[1::2], begun[1::2])
        cut_short = [
            kept[0::2],
            kept[0::2] - np.where(np.arange(ROWS // 2) < 3, np.float32(0.1), np.float32(0))[:, None],
        ]
        assert any(np.allclose(found[0::2], expected) for expected in cut_short)  # applied by the other server, or not
        unsaved.push(six, gradient)
        assert np.allclose(contents(unsaved)[1:6:2], begun[1:6:2] - 0.1)
