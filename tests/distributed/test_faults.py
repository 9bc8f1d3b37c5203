"""Whatever is killed, stopped, cut off or full: a run ends by itself with the bits of an undisturbed one.

Every sample counts exactly once, which the program of these runs checks.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from weft.distributed import failpoints
from weft.distributed.processes import start_time
from weft.distributed.scale import set_wanted

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
    "file sent": 1, "file received": 1, "state received": 1,
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


def test_memory_that_is_lost_with_its_keeper_starts_the_run_again(expected: str, tmp_path: Path) -> None:
    assert killed_at({"segment recorded": 2}, tmp_path, 2) == expected


@pytest.mark.parametrize("points", [JOINING, RELAYING], ids=["joining", "relaying"])
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


def test_the_number_of_workers_changes_in_mid_epoch(expected: str) -> None:
    run = Launched((1, 4), "counted", "epochs=20", "pause=30")
    for count in (2, 4, 1):
        set_wanted(run.directory, count)
        until(lambda count=count: len(run.workers()) == count, run)  # type: ignore[misc]
        time.sleep(0.5)
    send([run.process.pid], signal.SIGUSR1)
    until(lambda: len(run.workers()) == 2, run)
    assert check(*run.wait()) == expected


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
        time.sleep(7.0)  # longer than a host waits before it takes the other for lost
        link.heal()
        status, out, err = run.wait()
        assert check(status, out, err) == expected
        assert "took over the state" in err
