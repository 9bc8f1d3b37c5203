"""Whole runs with real processes: the same bits on any number of workers, whatever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from weft.distributed import failpoints
from weft.distributed.launch import Run
from weft.io import latest
from weft.io.checkpoint import list_records

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


def test_a_host_that_computes_other_bits_is_refused_and_the_run_goes_on() -> None:
    expected = result(1, "trainer", "epochs=1")
    status, out, err = Launched(2, "trainer", "other-bits", "epochs=1", hosts=2).wait()
    assert status == 0 and expected in out and "computes other bits than the first host" in err, f"{out}\n{err}"


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


def test_every_worker_finds_the_last_checkpoint_when_fit_returns(tmp_path: Path) -> None:
    result(2, "trainer", "slow-disk", "epochs=1", f"directory={tmp_path / 'checkpoints'}")


def test_a_long_name_for_temporary_files_is_no_obstacle(tmp_path: Path) -> None:
    """Names of sockets are short."""
    place = tmp_path / ("long" * 30)
    place.mkdir()
    status, _, err = Launched(2, "by_hand", "epochs=1", environment={"TMPDIR": str(place)}).wait()
    assert status == 0, err


def test_the_directory_of_a_run_is_private() -> None:
    run = Run(["x.py"], 2)
    try:
        assert run.spec.shards == 8
        assert os.stat(run.directory).st_mode & 0o077 == 0
    finally:
        run.close()


BRANCHING = """
import os, signal, sys
from pathlib import Path
import numpy as np
import weft as wf
from weft import data, nn, optim

directory, resume, deaths = sys.argv[1], sys.argv[2] or None, [int(step) for step in sys.argv[3:]]

class Dies(wf.train.Callback):
    scope = "everywhere"

    def on_step_end(self, trainer, logs):
        sharded = trainer._sharded
        if sharded.is_lead and not sharded.replaying and trainer.step in deaths:
            try:
                os.close(os.open(f"{directory}.died-{trainer.step}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)

wf.manual_seed(1)
model = nn.Linear(3, 2)
trainer = wf.Trainer(
    model, optim.SGD(model.parameters(), lr=0.1), nn.MSELoss(), checkpoint_dir=directory, checkpoint_every=2, keep=9,
    resume=resume, progress=False, callbacks=[Dies()],
)
x = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
trainer.fit(data.DataLoader(data.TensorDataset(x, x[:, :2]), 8), epochs=3)
print("RESULT", float(model.weight.sum()))
"""


@pytest.mark.timeout(TIMEOUT, method="signal")
def test_a_run_that_goes_back_is_one_branch_whatever_dies(tmp_path: Path) -> None:
    script, directory = tmp_path / "script.py", tmp_path / "run"
    script.write_text(BRANCHING)

    def run(*words: Any, **given: Any) -> tuple[str, str]:
        status, out, err = Launched(2, str(directory), *map(str, words), script=str(script), **given).wait()
        assert status == 0, f"{out}\n{err}"
        return next(line for line in out.splitlines() if line.startswith("RESULT")), err

    # Without `resume`: the run is lost in an update and goes on from its own checkpoints instead of refusing them.
    marker = tmp_path / "torn"
    first, said = run("", memory="lean", environment={failpoints.VARIABLE: f"update begun:9:{marker}"})
    assert marker.exists() and "the run starts again from its last checkpoint" in said
    there = list_records(directory)
    assert [r.step for r in there][-1] == 12 and {r.branch for r in there} == {0}
    # The lead dies before the first checkpoint of the branch, and after it.
    older = next(r.path for r in there if r.step == 6)
    second, _ = run(older, 7, 11)
    assert second == first and all(Path(f"{directory}.died-{step}").exists() for step in (7, 11))
    own = [r for r in list_records(directory) if r.branch != 0]
    assert {r.branch for r in own} == {1} and {8, 12} <= {r.step for r in own}  # 10 may die with the lead
    found = latest(directory)
    assert found is not None and found.step == 12 and found.path in {r.path for r in own}
