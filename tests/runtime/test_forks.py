"""A fork at any moment: the child computes, whatever the parent's other threads were in the middle of."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from weft.runtime import forks

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def _run_script(text: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(text)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "work",
    [
        "wf.exp(wf.ones((200, 200))) @ wf.ones((200, 200))",
        "wf.function(lambda x: (x @ x).sum())(wf.ones((64, 64)))",
        "wf.nn.Linear(8, 8)(wf.ones((4, 8)))",
    ],
    ids=["backends", "compiler", "modules"],
)
def test_fork_while_another_thread_imports_for_the_first_time(work):
    """Forks are spread over the whole first use, each in a process that has loaded nothing yet."""
    out = _run_script(
        f"""
        import os, signal, threading, time
        import weft as wf

        def work():
            {work}

        codes = []
        for delay in range(0, 60, 20):
            first = os.fork()
            if first == 0:
                signal.alarm(40)
                thread = threading.Thread(target=work, daemon=True)
                thread.start()
                time.sleep(delay / 100)
                second = os.fork()
                if second == 0:
                    signal.alarm(20)
                    work()
                    os._exit(0)
                code = os.waitstatus_to_exitcode(os.waitpid(second, 0)[1])
                thread.join(20)
                os._exit(code if code >= 0 else 9)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]))
        print(set(codes))
        """
    )
    assert out.strip() == "{0}"


def test_fork_waits_for_a_lock_and_both_processes_find_it_open():
    lock = forks.held_over_fork()
    try:
        holding, release = threading.Event(), threading.Event()

        def hold():
            with lock, forks._table:
                holding.set()
                release.wait(20)

        holder = threading.Thread(target=hold, daemon=True)
        holder.start()
        assert holding.wait(20)
        threading.Timer(0.1, release.set).start()
        pid = os.fork()
        if pid == 0:
            os._exit(0 if lock.acquire(blocking=False) and forks._table.acquire(blocking=False) else 1)
        assert release.is_set()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        holder.join(20)
        assert lock.acquire(blocking=False)
        lock.release()
    finally:
        forks._held.remove(lock)


def test_locks_taken_in_any_order_do_not_deadlock_with_a_fork():
    locks = [forks.held_over_fork() for _ in range(3)]
    try:
        stop = threading.Event()

        def work(order):
            while not stop.is_set():
                with locks[order[0]], locks[order[1]]:
                    pass

        # both orders at once would deadlock without any fork, so each pair of locks has one
        threads = [threading.Thread(target=work, args=(o,), daemon=True) for o in ((0, 1), (2, 1), (0, 2), (2, 1))]
        for t in threads:
            t.start()
        for _ in range(10):
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        stop.set()
        for t in threads:
            t.join(20)
            assert not t.is_alive()
    finally:
        for lock in locks:
            forks._held.remove(lock)


def test_an_objects_lock_is_open_in_the_child():
    class Owner:
        def __init__(self):
            self._lock = threading.Lock()

    owner = Owner()
    forks.renewed_in_child(owner)
    with owner._lock:
        pid = os.fork()
        if pid == 0:
            os._exit(0 if owner._lock.acquire(blocking=False) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
