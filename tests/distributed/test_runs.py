"""Whole runs with real processes: the same bits on any number of workers, whatever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from weft.distributed.launch import Run

from .launched import PROGRAMS, SECONDS, TIMEOUT, Launched, disturb, in_session, result, send

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="memfd and pidfd are Linux's"),
    pytest.mark.xdist_group("distributed"),
    pytest.mark.timeout(TIMEOUT, method="signal"),
]


@pytest.mark.parametrize("options", [(), ("clip", "ema", "accumulate")], ids=["plain", "all-features"])
def test_the_bits_do_not_depend_on_the_number_of_workers(options: tuple[str, ...]) -> None:
    assert result(1, "trainer", *options) == result(3, "trainer", *options)


def test_eager_steps_run_too() -> None:
    assert result(1, "trainer", "eager", "epochs=1") == result(2, "trainer", "eager", "epochs=1")


def test_a_loop_by_hand_with_two_optimisers_gives_the_same_bits() -> None:
    assert result(1, "by_hand") == result(2, "by_hand")


def test_more_workers_than_shards_are_spares() -> None:
    assert result(1, "trainer", "epochs=1", shards=2) == result(3, "trainer", "epochs=1", shards=2)


@pytest.mark.slow
def test_killed_and_frozen_workers_and_keepers_change_nothing() -> None:
    expected = result(1, "trainer", "epochs=30")
    run = Launched(2, "trainer", "epochs=30")

    def act(run: Launched, number: int) -> None:
        if number % 3 == 0:
            send(run.keeper(), signal.SIGKILL)
        elif number == 2:
            send(run.workers()[:1], signal.SIGSTOP)
        else:
            send(run.workers()[-1:], signal.SIGKILL)

    thread = disturb(run, act)
    status, out, err = run.wait()
    thread.join()
    assert status == 0 and expected in out, f"{out}\n{err}"


def test_a_killed_driver_is_replaced_and_nothing_changes() -> None:
    expected = result(1, "trainer", "epochs=30")
    run = Launched(2, "trainer", "epochs=30")
    thread = disturb(run, lambda run, number: send(run.driver() if number % 2 else run.workers()[:1], signal.SIGKILL))
    status, out, err = run.wait()
    thread.join()
    assert status == 0 and expected in out and "the driver was killed" in err, f"{out}\n{err}"


def test_several_hosts_give_the_same_bits_whatever_is_killed() -> None:
    expected = result(1, "trainer", "clip", "epochs=150")
    run = Launched(2, "trainer", "clip", "epochs=150", hosts=2)

    def act(run: Launched, number: int) -> None:
        send((run.relays if number % 2 else run.workers)()[-1:], signal.SIGKILL)

    thread = disturb(run, act)
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
    while in_session(run.process.pid):
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
