"""Whole runs with real processes: the same bits on any number of workers, whatever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.distributed import failpoints
from weft.distributed.launch import Run

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="memfd and pidfd are Linux's"),
    pytest.mark.xdist_group("distributed"),
]

PROGRAMS = str(Path(__file__).with_name("programs.py"))
SECONDS = 240.0
LAUNCH = """
import dataclasses, sys
from weft.distributed.launch import Run
workers, shards, hosts = map(int, sys.argv[1:4])
run = Run(sys.argv[4:], workers, shards, threads=1, hosts=hosts)
run.plan = dataclasses.replace(run.plan, seed=5)
print("PIDFILE", run.directory, flush=True)
sys.exit(run.run())
"""


class Launched:
    """A run in a process of its own, as `weft run` would have it."""

    def __init__(
        self, workers: int, *words: str, shards: int = 4, hosts: int = 1, environment: dict[str, str] | None = None
    ) -> None:
        program = [sys.executable, "-c", LAUNCH, str(workers), str(shards), str(hosts), PROGRAMS, *words]
        env = {**os.environ, **(environment or {})}
        self.process = subprocess.Popen(
            program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True
        )
        assert self.process.stdout is not None
        self.directory = self.process.stdout.readline().split()[1]

    def wait(self) -> tuple[int, str, str]:
        """(status, output, errors); everything the run started is gone."""
        try:
            out, err = self.process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            out, err = self.process.communicate()
            raise AssertionError(f"the run hangs\n{out}\n{err}") from None
        assert not _group(self.process.pid), "processes of the run are left behind"
        assert not os.path.exists(self.directory), "the directory of the run is left behind"
        return self.process.returncode, out, err

    def workers(self) -> list[int]:
        """The process numbers of the workers."""
        return [pid for pid, command in _group(self.process.pid) if "weft.distributed.task" in command]

    def keeper(self) -> list[int]:
        return [pid for pid, command in _group(self.process.pid) if "keeper.py" in command]

    def driver(self) -> list[int]:
        return [pid for pid, command in _group(self.process.pid) if "weft.distributed.driver" in command]

    def relays(self) -> list[int]:
        return [pid for pid, command in _group(self.process.pid) if "weft.distributed.relay" in command]


def _group(leader: int) -> list[tuple[int, str]]:
    """(pid, command) of the processes of a session that run."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                command = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == leader and fields[0] != "Z":
                found.append((int(entry), command))
    return found


def result(workers: int, *words: str, **given: object) -> str:
    """The line that a run prints at its end."""
    status, out, err = Launched(workers, *words, **given).wait()  # type: ignore[arg-type]
    lines = [line for line in out.splitlines() if line.startswith("RESULT")]
    assert status == 0 and len(lines) == 1, f"status {status}\n{out}\n{err}"
    return lines[0]


@pytest.mark.parametrize("options", [(), ("clip", "ema", "accumulate")], ids=["plain", "all-features"])
def test_the_bits_do_not_depend_on_the_number_of_workers(options: tuple[str, ...]) -> None:
    assert result(1, "trainer", *options) == result(3, "trainer", *options)


def test_eager_steps_run_too() -> None:
    assert result(1, "trainer", "eager", "epochs=1") == result(2, "trainer", "eager", "epochs=1")


def test_a_loop_by_hand_with_two_optimisers_gives_the_same_bits() -> None:
    assert result(1, "by_hand") == result(2, "by_hand")


def test_more_workers_than_shards_are_spares() -> None:
    assert result(1, "trainer", "epochs=1", shards=2) == result(3, "trainer", "epochs=1", shards=2)


@pytest.fixture(scope="module")
def undisturbed() -> str:
    return result(1, "trainer", "epochs=4")


@pytest.mark.parametrize(
    "point", ["shard won:3", "slices written:4", "after commit:5", "decision written:1", "initialised:1"]
)
def test_a_worker_killed_at_a_fail_point_changes_nothing(point: str, undisturbed: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        marker = os.path.join(directory, "killed")
        environment = {failpoints.VARIABLE: f"{point}:{marker}"}
        assert result(2, "trainer", "epochs=4", environment=environment) == undisturbed
        assert os.path.exists(marker), "no worker came to this point"


def _disturb(run: Launched, act: Callable[[Launched, int], None]) -> threading.Thread:
    """Do something to a run every now and then while it lasts."""

    def work() -> None:
        number = 0
        while run.process.poll() is None and number < 6:
            time.sleep(0.5)
            if len(run.workers()) >= 2:
                act(run, number)
                number += 1

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def test_killed_and_frozen_workers_and_keepers_change_nothing() -> None:
    expected = result(1, "trainer", "epochs=30")
    run = Launched(2, "trainer", "epochs=30")

    def act(run: Launched, number: int) -> None:
        if number % 3 == 0:
            _signal(run.keeper(), signal.SIGKILL)
        elif number == 2:
            _signal(run.workers()[:1], signal.SIGSTOP)
        else:
            _signal(run.workers()[-1:], signal.SIGKILL)

    thread = _disturb(run, act)
    status, out, err = run.wait()
    thread.join()
    assert status == 0 and expected in out, f"{out}\n{err}"


def test_a_killed_driver_is_replaced_and_nothing_changes() -> None:
    expected = result(1, "trainer", "epochs=30")
    run = Launched(2, "trainer", "epochs=30")
    thread = _disturb(
        run, lambda run, number: _signal(run.driver() if number % 2 else run.workers()[:1], signal.SIGKILL)
    )
    status, out, err = run.wait()
    thread.join()
    assert status == 0 and expected in out and "the driver was killed" in err, f"{out}\n{err}"


def test_several_hosts_give_the_same_bits_whatever_is_killed() -> None:
    expected = result(1, "trainer", "clip", "epochs=150")
    run = Launched(2, "trainer", "clip", "epochs=150", hosts=2)

    def act(run: Launched, number: int) -> None:
        _signal((run.relays if number % 2 else run.workers)()[-1:], signal.SIGKILL)

    thread = _disturb(run, act)
    status, out, err = run.wait()
    thread.join()
    assert status == 0 and expected in out and "took over the state" in err, f"{out}\n{err}"


def test_a_run_ended_by_sigterm_goes_on_with_another_number_of_workers(tmp_path: Path) -> None:
    expected = result(1, "trainer", "epochs=6", f"directory={tmp_path / 'whole'}")
    run = Launched(2, "trainer", "epochs=6", f"directory={tmp_path / 'parts'}")
    deadline = time.monotonic() + SECONDS
    while not list((tmp_path / "parts").glob("step-*")):
        assert run.process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    run.process.send_signal(signal.SIGTERM)
    status, out, err = run.wait()
    assert status == 128 + signal.SIGTERM or "RESULT" in out, f"{out}\n{err}"
    assert result(3, "trainer", "epochs=6", f"directory={tmp_path / 'parts'}") == expected


def test_an_error_in_the_script_ends_the_run_and_is_shown() -> None:
    for where, message in (("before", "this script has a mistake"), ("inside", "is broken")):
        status, _, err = Launched(2, "fails", where).wait()
        assert status == 1 and message in err and "ended with status 1" in err


def test_the_death_of_the_command_ends_its_workers() -> None:
    run = Launched(2, "trainer", "epochs=1000")
    deadline = time.monotonic() + SECONDS
    while len(run.workers()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait()
    while _group(run.process.pid):
        assert time.monotonic() < deadline, "workers outlive the command"
        time.sleep(0.05)
    run.process.communicate(timeout=10)


def test_a_trainer_with_workers_runs_its_script_again() -> None:
    program = [sys.executable, PROGRAMS, "trainer", "epochs=1", "workers=2"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("RESULT") == 1


def test_the_plan_of_a_run_is_private() -> None:
    run = Run(["x.py"], 2)
    try:
        assert run.plan.shards == 8
        assert os.stat(run.directory).st_mode & 0o077 == 0
    finally:
        run.close()
