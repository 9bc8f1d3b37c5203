"""When something goes wrong with a worker: a clear error, soon, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import loader_samples as samples
import pytest

from weft.data import DataLoader, TensorDataset, WorkerError
from weft.data.worker import Payload

pytestmark = pytest.mark.timeout(60)
HERE = Path(__file__).parent


def loader(dataset, **options):
    return DataLoader(dataset, **{"batch_size": 2, "seed": 1, "as_numpy": True, "num_workers": 2, **options})


def gone(pid):
    """Whether a process has ended (an unreaped one counts as ended only for who is not its parent)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rsplit(")", 1)[1].split()[0] == "Z"


def wait_until(condition, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


def test_an_error_in_a_worker_names_worker_and_index_and_has_the_traceback():
    made = loader(samples.Fails())
    iterator = iter(made)
    pids = [w.process.pid for w in iterator._pool.workers]
    assert [next(iterator)["square"].tolist() for _ in range(2)] == [[0, 1], [4, 9]]
    with pytest.raises(WorkerError, match=r"in worker [01], loading index 5 failed with ValueError") as caught:
        next(iterator)
    assert "in explode" in str(caught.value)
    assert "cannot read number 5" in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)
    assert all(gone(pid) for pid in pids)
    assert next(iterator, None) is None
    assert made.state_dict()["batches"] == 2


def test_an_error_in_a_stream_names_the_place():
    made = loader(samples.FailingStream())
    iterator = iter(made)
    assert [next(iterator).tolist() for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(WorkerError, match="batch 3 failed with OSError: the stream broke"):
        next(iterator)


def test_a_worker_that_exits_is_named_with_its_exit_code():
    start = time.monotonic()
    expected = r"worker [01] \(process \d+\)(, which was to load batch \d+,)? ended with exit code 7"
    with pytest.raises(RuntimeError, match=expected):
        list(loader(samples.Exits()))
    assert time.monotonic() - start < 20


def test_a_worker_that_is_killed_is_noticed_at_once():
    iterator = iter(loader(samples.Sleeps()))
    assert next(iterator)["square"].tolist() == [0, 1]
    workers = iterator._pool.workers
    pids = [w.process.pid for w in workers]
    os.kill(pids[0], signal.SIGKILL)
    start = time.monotonic()
    expected = r"worker 0 \(process \d+\)(, which was to load batch \d+,)? was killed by signal 9 \(SIGKILL\)"
    with pytest.raises(RuntimeError, match=expected):
        for _ in range(3):
            next(iterator)
    assert time.monotonic() - start < 10  # the other worker is in the middle of a sample that takes for ever
    assert all(gone(pid) for pid in pids)


def test_a_batch_that_does_not_come_times_out():
    made = loader(samples.Sleeps(), num_workers=1, timeout=30)
    iterator = iter(made)
    next(iterator), next(iterator)
    made.timeout = 0.5
    with pytest.raises(RuntimeError, match="batch 2 had not come from worker 0 after 0.5 seconds"):
        next(iterator)


def test_closing_stops_a_worker_in_the_middle_of_a_sample():
    made = loader(samples.Sleeps(), num_workers=1)
    iterator = iter(made)
    next(iterator)
    pid = iterator._pool.workers[0].process.pid
    start = time.monotonic()
    made.close()
    assert gone(pid)
    assert time.monotonic() - start < 10


def test_what_cannot_be_pickled_is_refused_with_a_hint():
    with pytest.raises(TypeError, match="DataLoader: the dataset or collate_fn.*lambdas.*Move the definition"):
        iter(loader(samples.Squares(), collate_fn=lambda batch: batch))
    with pytest.raises(WorkerError, match="what collate_fn returned: it cannot be sent"):
        next(iter(loader(samples.Squares(), num_workers=1, collate_fn=samples.returns_lambda)))


def test_large_arrays_of_a_dataset_are_sent_once_through_shared_memory():
    import numpy as np

    big = TensorDataset(np.arange(100_000.0), np.arange(100_000))
    payload = Payload(big)
    assert payload.segment is not None
    assert len(payload.data) < 10_000
    copy = Payload.load(payload.data, payload.places, payload.segment)
    assert np.shares_memory(copy.arrays[0], np.frombuffer(payload.segment, np.uint8))
    assert (copy.arrays[1] == big.arrays[1]).all()


def run(program, **options):
    """Run a program in a new process; returns it finished."""
    source = textwrap.dedent(program)
    return subprocess.run(
        [sys.executable, "-c", source],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
        env=environment(),
        **options,
    )


def environment():
    import weft

    path = os.pathsep.join([str(HERE), str(Path(weft.__file__).parent.parent)])
    return {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "error"}


def test_a_class_of_an_interactive_session_gets_the_hint():
    result = run("""
        from weft.data import DataLoader, Dataset
        class Mine(Dataset):
            def __len__(self): return 4
            def __getitem__(self, i): return i
        try:
            list(DataLoader(Mine(), num_workers=1, as_numpy=True))
        except RuntimeError as error:
            print(error)
    """)
    assert "worker 0 could not start" in result.stdout
    assert "Put them in a .py file and import it, or use num_workers=0" in result.stdout, result.stderr


def test_a_program_without_a_main_guard_gets_an_error_not_a_hang(tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import loader_samples\nfrom weft.data import DataLoader\n"
        "print(list(DataLoader(loader_samples.Squares(4), num_workers=1, as_numpy=True)))\n"
    )
    result = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=30, env=environment(), check=False
    )
    assert result.returncode == 1
    assert 'guard the main part of your program with `if __name__ == "__main__":`' in result.stderr


def test_a_program_may_end_with_its_workers_running():
    result = run("""
        import loader_samples, time
        from weft.data import DataLoader
        keep = iter(DataLoader(loader_samples.Sleeps(), batch_size=2, num_workers=2, as_numpy=True))
        next(keep)
        print(*[w.process.pid for w in keep._pool.workers])
    """)
    assert (result.returncode, result.stderr) == (0, "")
    assert all(gone(int(pid)) for pid in result.stdout.split())


WAITING = """
    import loader_samples
    from weft.data import DataLoader
    loader = DataLoader(loader_samples.Sleeps(), batch_size=2, num_workers=2, as_numpy=True)
    iterator = iter(loader)
    next(iterator)
    print(*[w.process.pid for w in iterator._pool.workers], flush=True)
    for batch in iterator: pass
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_an_interrupted_or_killed_program(how):
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WAITING)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    ) as program:
        pids = [int(pid) for pid in program.stdout.readline().split()]
        assert len(pids) == 2
        time.sleep(0.1)
        if how == signal.SIGINT:
            os.killpg(program.pid, how)  # a terminal's Ctrl-C goes to the whole group
        else:
            program.kill()
        _, errors = program.communicate(timeout=10)
        wait_until(lambda: all(gone(pid) for pid in pids))
    if how == signal.SIGINT:
        assert errors.count("Traceback") == 1  # the program's own, none from the workers
        assert errors.rstrip().endswith("KeyboardInterrupt")


def test_too_little_shared_memory_is_a_clear_error():
    result = run("""
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, 1 << 18))
        import loader_samples
        from weft.data import DataLoader
        try:
            next(iter(DataLoader(loader_samples.Images(side=256), batch_size=8, num_workers=1, as_numpy=True)))
        except RuntimeError as error:
            print(error)
    """)
    assert "shared memory: cannot reserve" in result.stdout, result.stderr
    assert "a smaller batch_size" in result.stdout
