"""One contract for all engines: processes of this machine, and nodes of a Ray cluster."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import weft as wf
from weft.distributed import Cluster
from weft.distributed.engine import EngineError, LocalEngine, Task
from weft.distributed.host import MARK, Ended, HostJoined, HostLost, Listens
from weft.distributed.processes import with_variable

from . import conftest
from .clusters import ray_cluster

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="pidfd is Linux's"),
    pytest.mark.xdist_group("distributed"),
    pytest.mark.timeout(240, method="signal"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]
SECONDS = 60.0
SLEEP = ("-c", "import time; time.sleep(300)")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, str]]:
    """Ray with two raylets on this machine, and the file with its token."""
    pytest.importorskip("ray")
    token = tmp_path_factory.mktemp("ray") / "token"
    token.touch(0o600)
    token.write_text("5" * 64)
    with ray_cluster(str(token)) as made:
        yield made, str(token)


Make = Callable[[], Any]


@pytest.fixture(params=["local", "ray"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes engines of two hosts for one run; a second one takes over from the first."""
    reading, writing = os.pipe()
    engines: list[Any] = []
    cluster = request.getfixturevalue("cluster") if request.param == "ray" else None

    def new() -> Any:
        if cluster is None:
            engines.append(LocalEngine(str(tmp_path), reading, hosts=2))
        else:
            import ray

            from weft.distributed.ray_engine import RayEngine

            ray.shutdown()  # the end of an earlier driver
            engines.append(RayEngine(str(tmp_path), reading, cluster[0].address, cluster[1], hosts=2, workers=1))
        return engines[-1]

    yield new
    engines[-1].close()
    os.close(reading)
    os.close(writing)


def until(engine: Any, kind: type, count: int = 1) -> list[Any]:
    """Wait for events of a kind."""
    found: list[Any] = []
    end = time.monotonic() + SECONDS
    while len(found) < count:
        assert time.monotonic() < end, f"{kind.__name__} does not come"
        found += [event for event in engine.wait(1.0) if isinstance(event, kind)]
    return found


def test_tasks_end_with_a_status_or_a_signal_and_start_again(make: Make) -> None:
    engine = make()
    assert {event.host for event in until(engine, HostJoined, 2)} == {0, 1} == set(engine.places())
    for status in (3, 0):
        assert engine.start(Task("worker-0", ("-c", f"raise SystemExit({status})"))) > 0
        assert until(engine, Ended) == [Ended("worker-0", status)]
    pid = engine.start(Task("worker-1", SLEEP, host=1))
    assert engine.running() == {"worker-1": pid}
    engine.signal("worker-1", signal.SIGTERM)
    assert until(engine, Ended) == [Ended("worker-1", -signal.SIGTERM)]
    engine.signal("worker-1", signal.SIGTERM)  # nothing happens
    assert engine.running() == {}


def test_files_output_environment_and_reset(make: Make, capfd: pytest.CaptureFixture[str]) -> None:
    engine = make()
    until(engine, HostJoined, 2)
    assert engine.read(1, "note") is None
    engine.write(1, "note", b"\0text")
    assert engine.read(1, "note") == b"\0text" and engine.read(0, "note") is None
    program = "import os; print('from a task', os.environ['GIVEN'], flush=True)"
    engine.start(Task("worker-0", ("-c", program), {"GIVEN": "word"}, 1))
    until(engine, Ended)
    assert "from a task word" in capfd.readouterr().out
    engine.write(1, "listening", b"here:5")
    assert until(engine, Listens) == [Listens(1, "here:5")]
    engine.start(Task("worker-0", SLEEP, host=1))
    engine.reset(1)
    assert engine.running() == {} and engine.read(1, "note") is None


def test_a_second_engine_adopts_tasks_and_close_leaves_no_process(make: Make) -> None:
    first = make()
    until(first, HostJoined, 2)
    pids = {f"worker-{host}": first.start(Task(f"worker-{host}", SLEEP, host=host)) for host in (0, 1)}
    directories = {place.directory for place in first.places().values()}
    second = make()
    until(second, HostJoined, 2)
    assert second.running() == pids and {place.directory for place in second.places().values()} == directories
    second.signal("worker-1", signal.SIGKILL)
    assert until(second, Ended) == [Ended("worker-1", -signal.SIGKILL)]
    second.close()
    for directory in directories:
        assert not with_variable(MARK, f"{directory}:")


def test_wrong_tokens_and_addresses_are_reported_in_plain_words(cluster: tuple[Any, str], tmp_path: Path) -> None:
    from weft.distributed import ray_engine

    made, token = cluster
    wrong = tmp_path / "token"
    wrong.write_text("6" * 64)
    try:
        for address, path, words in (
            (made.address, str(wrong), "asks for a token"),
            (made.address, str(tmp_path / "none"), "cannot be read"),
            ("127.0.0.1:1", token, "No Ray cluster can be reached"),
            ("somewhere", token, "expected HOST:PORT"),
        ):
            with pytest.raises(EngineError, match=words):
                ray_engine.RayEngine(str(tmp_path), 0, address, path)
    finally:
        ray_engine._use_token(token)


def test_sessions_run_on_the_nodes_of_a_ray_cluster_and_leave_it_running(cluster: tuple[Any, str]) -> None:
    import ray

    made, token = cluster
    ray.shutdown()  # the end of an earlier driver
    graph = wf.Graph()
    with graph.as_default():
        x = wf.placeholder(wf.float32, (None, 3))
        with wf.device("/job:ps/task:0"):
            w = wf.Variable.remote((3, 2), init=1.0)
        with wf.device("/job:worker/task:0"):
            y = x @ w
        double = w.assign_fn(lambda old: old * 2)
    with Cluster(ps=1, worker=1, address=made.address, token=token, hosts=2) as tasks:
        pids = {name: task["pid"] for name, task in tasks.tasks.items()}
        with wf.Session(graph, cluster=tasks) as sess:
            assert sess.run([y, double], {x: [[1.0, 2.0, 3.0]]}, timeout=SECONDS)[1].tolist() == [[2.0, 2.0]] * 3
            os.kill(pids["worker-0"], signal.SIGKILL)  # on the other node: its agent reports it
            end = time.monotonic() + SECONDS
            while tasks.tasks.get("worker-0", {}).get("generation") != 2:
                assert time.monotonic() < end
                time.sleep(0.01)
            assert sess.run(y, {x: [[1.0, 2.0, 3.0]]}, timeout=SECONDS).tolist() == [[12.0, 12.0]]
    assert not ray.is_initialized()
    assert sum(node.all_processes["raylet"][0].process.poll() is None for node in made.list_all_nodes()) == 2


def test_the_death_of_a_raylet_is_the_loss_of_its_host(
    cluster: tuple[Any, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from weft.distributed.ray_engine import RayEngine

    made, token = cluster
    engine = RayEngine(str(tmp_path), 0, made.address, token, hosts=2, workers=1)
    try:
        until(engine, HostJoined, 2)
        engine.start(Task("worker-1", SLEEP, host=1))
        directory = engine.places()[1].directory
        node = next(node for node in made.list_all_nodes() if not node.head)
        node.all_processes["raylet"][0].process.kill()
        assert until(engine, HostLost)[0].host == 1
        assert engine.start(Task("worker-1", SLEEP, host=1)) == 0
        assert set(engine.places()) == {0}
        for pid in with_variable(MARK, f"{directory}:"):  # these programs do not watch the lifeline
            os.kill(pid, signal.SIGKILL)
        assert engine.start(Task("worker-2", SLEEP)) > 0
        monkeypatch.setenv(conftest.VARIABLE, conftest.MODULE)  # the node is there for the other tests, too
        made.add_node(num_cpus=1)
        assert until(engine, HostJoined)[0].host >= 2  # an agent may have been tried on the dead node
    finally:
        engine.close()


def test_a_cluster_of_this_machine_starts_and_ends_with_the_engine(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from weft.distributed.ray_engine import RayEngine

    reading, writing = os.pipe()
    before = dict(os.environ)
    handler = signal.getsignal(signal.SIGTERM)
    engine = RayEngine(str(tmp_path), reading)
    try:
        assert signal.getsignal(signal.SIGTERM) is handler, (
            "Ray's handler would end a training run without a checkpoint"
        )
        assert os.stat(tmp_path / "ray-token").st_mode & 0o777 == 0o600
        assert engine.start(Task("worker-0", ("-c", "raise SystemExit(4)"))) > 0
        assert until(engine, Ended) == [Ended("worker-0", 4)]
    finally:
        head, temporary = engine._local["pid"], engine._local["temporary"]
        engine.close()
        os.environ.clear()
        os.environ.update(before)
        os.close(reading)
        os.close(writing)
    assert not os.path.exists(f"/proc/{head}") and not os.path.exists(temporary)
