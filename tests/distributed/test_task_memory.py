"""Variables of tasks in memory that outlives their processes: whole writes or none, and killed servers."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from weft.distributed import Cluster, TaskLostError
from weft.distributed.remote_memory import StateJournal
from weft.distributed.remote_store import TaskStore
from weft.graph.declared.variables import locked

from .test_keeper import Host

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="memfd and pidfd are Linux's"),
    pytest.mark.xdist_group("distributed"),
    pytest.mark.timeout(240, method="signal"),
]
WAIT = 60


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path, "keeper.sock")
    yield made
    made.close()


def entry(key: str, size: int, value: float, private: bool = False) -> dict[str, object]:
    init = wf.nn.init.constant(value).dump()
    facts = {"what": "state", "shape": [size], "dtype": "float32", "init": init, "array": None}
    return {"key": key, "name": key.strip("#"), "private": private, **facts}


def test_a_write_that_was_not_finished_is_undone_in_the_next_life(
    host: Host, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    journals: list[StateJournal] = []

    def store() -> TaskStore:
        journals.append(StateJournal(str(tmp_path), "ps-0"))
        return TaskStore(None, journals[-1])

    first = store()
    made = [
        entry("a", 1000, 1.0),
        entry("b", 3, 2.0),
        entry("rows", 8, 3.0),
        entry("other", 4, 4.0),
        entry("#1", 2, 5.0, True),
    ]
    first.ensure(made, [], 77)
    a, b, rows, other = [first.states[key] for key in ("a", "b", "rows", "other")]
    with locked([], [a, b]):
        for state in (a, b):
            state.store(state.tensor._data * 10)
    with locked([other], [rows], [rows]):
        rows.tensor._data[2] = 7.0
    held = locked([], [a, b])  # the process is killed in the middle of a write
    held.__enter__()
    a.store(a.tensor._data + 1)
    b.tensor._data[:1] = 99.0

    second = store()
    values = {key: state.tensor._data.tolist() for key, state in second.states.items()}
    assert values.pop("a") == [10.0] * 1000 and values.pop("rows")[1:4] == [3.0, 7.0, 3.0]
    assert values == {"b": [20.0] * 3, "other": [4.0] * 4, "#1": [5.0] * 2} and second.owners == {77}

    torn = second.states["rows"]
    locked([], [torn], [torn]).__enter__()  # of a write of rows there is no copy
    second.drop_client(77)
    third = store()
    assert set(third.states) == {"a", "b", "other"} and not third.owners
    assert "variable 'rows' was lost with the process" in capfd.readouterr().err
    third.ensure([entry("rows", 8, 3.0)], [], 78)
    assert third.states["rows"].tensor._data.tolist() == [3.0] * 8
    with pytest.raises(ValueError, match="at least two axes"):
        third.ensure([{**entry("bad", 8, 0.0), "init": wf.nn.init.xavier_normal().dump()}], [], 78)
    assert "bad" not in third.states and "bad" not in journals[-1].records
    third.drop(["a", "b", "other", "rows"])
    names = (tmp_path / "segments").read_text().split()
    assert len(names) == 1, "the memory of what was dropped is not given back"
    with pytest.raises(MemoryError, match="there is no memory for a variable"):
        journals[-1]._reserve("huge", 1 << 45)
    for journal in journals:
        journal.close()


def test_variables_survive_kills_of_their_task_and_of_the_keeper() -> None:
    graph = wf.Graph("counters")
    with graph.as_default():
        with wf.device("/job:ps"):
            count = wf.Variable.remote((50_000,), name="count")
            moved = wf.Variable(np.zeros(3, np.float32))
        add = wf.group(count.assign_add(1.0), moved.assign_add(1.0))  # one program: both or none
    with Cluster(ps=1) as cluster, wf.Session(graph, cluster=cluster) as sess:
        directory = os.path.dirname(cluster.file)
        sess.run(add, timeout=WAIT)

        def keeper() -> int | None:
            for place in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):  # it ended meanwhile
                    text = place.read_bytes()
                    if b"keeper.py" in text and directory.encode() in text:
                        return int(place.parent.name)
            return None

        done, failed = 1, 0
        for which in ("task", "keeper", "task"):
            pid = keeper() if which == "keeper" else cluster.tasks["ps-0"]["pid"]
            assert pid is not None
            threading.Timer(0.05, os.kill, (pid, signal.SIGKILL)).start()
            end = time.monotonic() + 0.5
            while time.monotonic() < end:
                try:
                    sess.run(add, timeout=WAIT)
                    done += 1
                except TaskLostError:
                    failed += 1
            if which == "keeper":  # its successor finds the memory among the open files of the task
                until = time.monotonic() + WAIT
                while not _has_memory(keeper()):
                    assert time.monotonic() < until
                    time.sleep(0.02)
            values = np.unique(count.numpy())
            assert len(values) == 1 and done <= values[0] <= done + failed
            assert moved.numpy().tolist() == [values[0]] * 3
    with pytest.raises(ValueError, match="memory must be 'full' or 'lean'"):
        Cluster(ps=1, memory="all")


def _has_memory(pid: int | None) -> bool:
    """Whether a keeper holds any segment."""
    with contextlib.suppress(OSError):
        return pid is not None and any("memfd:weft" in os.readlink(f) for f in Path(f"/proc/{pid}/fd").iterdir())
    return False
