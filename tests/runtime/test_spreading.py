"""Workers keep off their caller's processor, and nothing else about anybody's processors changes."""

import ctypes
import os
import subprocess
import sys
import threading

import pytest

from weft.runtime import spreading, threads

pytestmark = pytest.mark.skipif(
    spreading.switched_off() or not threads.openmp_usable() or len(os.sched_getaffinity(0)) < 2,
    reason="needs OpenMP and two processors",
)


def allowed_by_thread(width: int) -> dict[int, set[int]]:
    """Native thread id -> processors it may use, for every thread of this thread's team."""
    found: dict[int, set[int]] = {}

    def look(_):
        found[threading.get_native_id()] = os.sched_getaffinity(0)

    threads.openmp().GOMP_parallel(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(look), None, width, 0)
    return found


@pytest.fixture
def two_threads():
    before = threads.get_num_threads()
    threads.set_num_threads(2)
    yield
    threads.set_num_threads(before)


@pytest.fixture(autouse=True)
def room(monkeypatch):
    """A machine that is not crowded, whatever else runs on it."""
    monkeypatch.setattr(spreading, "crowded", lambda: False)


def workers(width: int = 2) -> list[set[int]]:
    return [mask for tid, mask in allowed_by_thread(width).items() if tid != threading.get_native_id()]


def test_workers_avoid_the_processor_of_the_caller(two_threads, monkeypatch):
    everywhere = os.sched_getaffinity(0)
    cpu = min(everywhere)
    monkeypatch.setattr(spreading, "_processor", lambda: cpu)
    spreading.forget()
    threads.spread_out()
    assert workers() == [everywhere - {cpu}]
    assert os.sched_getaffinity(0) == everywhere  # the caller may still go anywhere


def test_workers_follow_when_the_caller_moves_but_not_at_once(two_threads, monkeypatch):
    everywhere = os.sched_getaffinity(0)
    first, second = sorted(everywhere)[:2]
    place = [first]
    monkeypatch.setattr(spreading, "_processor", lambda: place[0])
    monkeypatch.setattr(spreading, "MIN_MOVE_SECONDS", 1e9)
    spreading.forget()
    threads.spread_out()
    place[0] = second
    threads.spread_out()
    assert workers() == [everywhere - {first}]  # too soon
    spreading._team.since = 0.0
    threads.spread_out()
    assert workers() == [everywhere - {second}]


def test_on_a_crowded_machine_workers_run_anywhere(two_threads, monkeypatch):
    everywhere = os.sched_getaffinity(0)
    spreading.forget()
    threads.spread_out()
    assert [len(mask) for mask in workers()] == [len(everywhere) - 1]
    monkeypatch.setattr(spreading, "crowded", lambda: True)
    for expected in (len(everywhere) - 1, len(everywhere)):  # a thread that ran for a moment; a thread that stays
        spreading._team.since = spreading._team.looked = 0.0
        threads.spread_out()
        assert [len(mask) for mask in workers()] == [expected]
    monkeypatch.setattr(spreading, "crowded", lambda: False)
    threads.spread_out()
    assert workers() == [everywhere]  # for a while
    spreading._team.since = spreading._team.looked = 0.0
    threads.spread_out()
    assert [len(mask) for mask in workers()] == [len(everywhere) - 1]


def test_staying_costs_no_parallel_region(two_threads, monkeypatch):
    cpu = min(os.sched_getaffinity(0))
    monkeypatch.setattr(spreading, "_processor", lambda: cpu)
    spreading.forget()
    threads.spread_out()
    monkeypatch.setattr(spreading, "_set_affinity", lambda *_: pytest.fail("set again"))
    threads.spread_out()
    with threads.compute_token:
        assert threads.compute_token.held()


def test_more_threads_than_processors_go_anywhere(monkeypatch):
    before = threads.get_num_threads()
    everywhere = os.sched_getaffinity(0)
    width = len(everywhere) + 1
    try:
        threads.set_num_threads(width)
        spreading.forget()
        threads.spread_out()
        assert all(mask == everywhere for mask in allowed_by_thread(width).values())
    finally:
        threads.set_num_threads(before)


@pytest.mark.parametrize("variable", [{"OMP_PROC_BIND": "false"}, {"OMP_PLACES": "threads"}])
def test_threads_bound_by_the_user_are_left_alone(variable):
    code = "from weft.runtime import spreading, threads; threads.set_num_threads(2); print(threads._spreads)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variable},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.strip() == "False"


def test_wide_eager_work_spreads_its_workers(two_threads):
    import weft as wf

    x = wf.ones((512, 512))
    spreading.forget()
    wf.exp(x)
    assert spreading._team.cpu >= 0
    assert all(len(mask) == len(os.sched_getaffinity(0)) - 1 for mask in workers())
