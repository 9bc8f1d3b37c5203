"""Whatever is killed, stopped, cut off or full: a run ends by itself with the bits of an undisturbed one.

Every sample counts exactly once, which the program of these runs checks.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from weft import cli
from weft.distributed import failpoints
from weft.distributed.host import MARK
from weft.distributed.processes import descendants, start_time, with_variable

from .clusters import ray_cluster
from .launched import SECONDS, TIMEOUT, Launched, check, result, send
from .namespaces import cable

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="memfd and pidfd are Linux's"),
    pytest.mark.xdist_group("distributed"),
    pytest.mark.timeout(TIMEOUT, method="signal"),
]

# Fail points, and how often a process passes one before it is killed there. A worker may die three times before the first step.
WORKERS = {
    "row taken": 1, "initialising": 1, "initialised": 1, "shard claimed": 4, "shard computed": 6, "shard won": 8,
    "partial sum": 5, "shard placed": 7, "slices claimed": 4, "slices written": 6, "log written": 3, "before commit": 5,
    "after commit": 8, "claims released": 1, "decision written": 2, "decision made": 3, "row left": 1,
}  # fmt: skip
IN_SUITE = (
    "row taken",
    "initialised",
    "shard won",
    "partial sum",
    "slices written",
    "before commit",
    "decision written",
)
SERVICES = {
    "segment created": 2, "segment given": 3, "segment recovered": 1, "segment offered": 1, "state written": 3,
    "task started": 2, "result written": 1,
}  # fmt: skip
JOINING = {
    "relay listens": 1, "peer admitted": 1, "block given": 1, "ping sent": 3, "state pinned": 1, "state sent": 1,
    "file sent": 1, "file received": 1, "state received": 1, "step overtaken": 1,
}  # fmt: skip
RELAYING = {"relay sent": 5, "partial sum received": 3, "relay won": 4, "relay placed": 2}
LONG = ("epochs=20", "pause=15")  # milliseconds per shard: a run of some seconds


@pytest.fixture(scope="module")
def expected() -> str:
    """What an undisturbed run of one worker prints; a pause does not change it."""
    found = result(1, "counted", "epochs=20")
    assert found.endswith("miscounted=0")
    return found


def killed_at(points: dict[str, int], directory: Path, workers: int, *words: str, hosts: int = 1) -> str:
    """What a run prints in which a process is killed at each of these points, once."""
    markers = {point: directory / str(i) for i, point in enumerate(points)}
    text = ";".join(f"{point}:{count}:{markers[point]}" for point, count in points.items())
    run = Launched(workers, "counted", *words, hosts=hosts, environment={failpoints.VARIABLE: text})
    found = check(*run.wait())
    assert [point for point, marker in markers.items() if not marker.exists()] == [], "no process came to these points"
    return found


def test_workers_killed_at_their_writes_change_nothing(expected: str, tmp_path: Path) -> None:
    assert killed_at({point: WORKERS[point] for point in IN_SUITE}, tmp_path, 3) == expected


@pytest.mark.slow
@pytest.mark.timeout(600, method="signal")
def test_workers_killed_at_every_write_change_nothing(expected: str, tmp_path: Path) -> None:
    assert killed_at(WORKERS, tmp_path, 3) == expected


def test_a_lead_killed_after_training_is_replaced_for_the_rest_of_the_program(expected: str, tmp_path: Path) -> None:
    assert killed_at({"row left": 1}, tmp_path, 1) == expected


def test_keepers_and_drivers_killed_at_every_write_change_nothing(expected: str, tmp_path: Path) -> None:
    assert killed_at(SERVICES, tmp_path, 2) == expected


@pytest.mark.slow
def test_memory_that_is_lost_with_its_keeper_starts_the_run_again(expected: str, tmp_path: Path) -> None:
    assert killed_at({"segment recorded": 2}, tmp_path, 2) == expected


@pytest.mark.parametrize(
    "points", [pytest.param(JOINING, marks=pytest.mark.slow), RELAYING], ids=["joining", "relaying"]
)
def test_relays_killed_at_every_message_change_nothing(points: dict[str, int], expected: str, tmp_path: Path) -> None:
    assert killed_at(points, tmp_path, 2, *LONG, hosts=2) == expected


def until(condition: Callable[[], object], run: Launched) -> None:
    """Wait for something to happen in a run that goes on."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert run.process.poll() is None, run.process.communicate()
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.02)


def test_a_stopped_worker_is_replaced_and_cannot_come_back(expected: str) -> None:
    run = Launched(2, "counted", *LONG)
    until(lambda: len(run.workers()) == 2, run)
    time.sleep(1.0)
    stopped = run.workers()[0]
    born = start_time(stopped)
    send([stopped], signal.SIGSTOP)
    until(lambda: start_time(stopped) != born and len(run.workers()) == 2, run)
    send([stopped], signal.SIGCONT)  # nothing is left that could write to the memory
    assert check(*run.wait()) == expected


def test_the_number_of_workers_changes_in_mid_epoch(expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = Launched((1, 4), "counted", "epochs=20", "pause=30")
    name = os.path.basename(run.directory)
    for count in (2, 4, 1):
        until(lambda: cli.main(["scale", name, str(count)]) == 0, run)  # noqa: B023
        until(lambda count=count: len(run.workers()) == count, run)  # type: ignore[misc]
        time.sleep(0.5)
    send([run.process.pid], signal.SIGUSR1)
    until(lambda: len(run.workers()) == 2, run)
    assert cli.main(["scale", name, "5"]) == 2 and "started for 1 to 4 workers" in capsys.readouterr().err
    assert check(*run.wait()) == expected
    assert cli.main(["scale", name, "2"]) == 2 and "there is no run" in capsys.readouterr().err


@contextlib.contextmanager
def small_disk(path: Path, kilobytes: int) -> Iterator[Path]:
    """A file system that is soon full."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(path)]
    if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True, capture_output=True)


def test_a_full_disk_does_not_end_the_run(expected: str, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 64) as disk:
        run = Launched(2, "counted", "epochs=20", f"directory={disk}")
        status, out, err = run.wait()
        assert check(status, out, err) == expected
        assert "CheckpointWarning" in err and "Nothing half-written was left behind" in err


def test_hosts_that_cannot_reach_each_other_for_a_while_end_with_the_same_bits(expected: str, tmp_path: Path) -> None:
    with cable(tmp_path) as link:
        run = Launched(2, "counted", "epochs=20", "pause=30", hosts=2, environment=link.environment)
        until(lambda: len(run.workers()) == 2 and run.relays(), run)
        time.sleep(3.0)
        link.cut()
        time.sleep(6.0)  # longer than a host waits before it takes the other for lost
        link.heal()
        status, out, err = run.wait()
        assert check(status, out, err) == expected
        assert "took over the state" in err


@pytest.mark.slow
@pytest.mark.timeout(400, method="signal")
def test_hosts_that_never_reach_each_other_again_end_with_the_same_bits(expected: str, tmp_path: Path) -> None:
    with cable(tmp_path) as link:
        run = Launched(2, "counted", "epochs=20", "pause=30", hosts=2, environment=link.environment)
        until(lambda: len(run.workers()) == 2 and run.relays(), run)
        time.sleep(3.0)
        link.cut()
        assert check(*run.wait(300)) == expected


@pytest.mark.slow
@pytest.mark.timeout(900, method="signal")
@pytest.mark.parametrize("hosts", [1, 2])
def test_thirty_random_kills_change_nothing(hosts: int, expected: str) -> None:
    rng = random.Random(hosts)
    run = Launched(4, "counted", "epochs=20", "pause=400", hosts=hosts)
    done: Counter[str] = Counter()
    kinds = ["worker"] * 4 + ["keeper", "driver", "stop"] + ["relay"] * (hosts > 1)
    until(lambda: len(run.workers()) == 4, run)
    while done.total() < 30 and run.process.poll() is None:
        time.sleep(rng.uniform(0.2, 1.5))
        kind = rng.choice(kinds)
        found = {"keeper": run.keeper, "driver": run.driver, "relay": run.relays}.get(kind, run.workers)()
        if not found or kind == "worker" and len(found) < 2:
            continue
        send([rng.choice(found)], signal.SIGSTOP if kind == "stop" else signal.SIGKILL)
        done[kind] += 1
    status, out, err = run.wait(600)
    assert check(status, out, err) == expected
    assert done.total() == 30, f"the run was over after {done}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Ray with two raylets on this machine."""
    pytest.importorskip("ray")
    token = tmp_path_factory.mktemp("ray") / "token"
    token.touch(0o600)
    token.write_text("7" * 64)
    with ray_cluster(str(token)) as made:
        yield made


def on_ray(cluster: Any, directory: Path, seconds: float) -> Launched:
    """A run on two nodes, some seconds after it began."""
    where = tmp_of(cluster)
    run = Launched(
        2, "counted", "epochs=20", "pause=30", hosts=2, engine="ray", address=cluster.address, cwd=str(directory)
    )
    until(lambda: len(with_variable(MARK, where)) >= 6, run)  # a keeper, a relay and a worker on each
    time.sleep(seconds)
    return run


def tmp_of(cluster: Any) -> str:
    """Where the nodes of a cluster have the directories of runs."""
    return os.path.dirname(os.path.dirname(cluster.head_node.get_session_dir_path()))


def test_the_death_of_a_ray_node_changes_nothing(expected: str, cluster: Any, tmp_path: Path) -> None:
    run = on_ray(cluster, tmp_path, 1.0)
    node = next(node for node in cluster.list_all_nodes() if not node.head)
    node.all_processes["raylet"][0].process.kill()
    status, out, err = run.wait()
    assert check(status, out, err) == expected
    assert "host 1 is lost" in err


@pytest.mark.slow
def test_the_death_of_rays_control_service_changes_nothing(expected: str, cluster: Any, tmp_path: Path) -> None:
    if len(cluster.list_all_nodes()) < 2:
        cluster.add_node(num_cpus=1)
    run = on_ray(cluster, tmp_path, 1.0)
    cluster.head_node.all_processes["gcs_server"][0].process.kill()
    assert check(*run.wait()) == expected


@pytest.mark.slow
@pytest.mark.timeout(400, method="signal")
def test_a_run_begins_again_from_its_checkpoint_on_a_new_ray_cluster(expected: str, tmp_path: Path) -> None:
    """The cluster of this machine ends with its control service; the run starts another."""
    pytest.importorskip("ray")
    run = Launched(2, "counted", "epochs=20", "pause=60", f"directory={tmp_path / 'run'}", engine="ray")
    until(lambda: list((tmp_path / "run").glob("step-*")), run)
    service = [pid for pid in descendants(run.process.pid) if b"gcs_server" in command_of(pid)]
    send(service, signal.SIGKILL)
    status, out, err = run.wait(300)
    assert check(status, out, err) == expected
    assert "starts again from its last checkpoint" in err


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]
    except OSError:
        return b""
