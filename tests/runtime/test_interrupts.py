"""Ctrl-C and deadlines end native loops, which run without Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import weft as wf

PROGRAM = """
import os, signal, sys, threading, time
import weft as wf
from weft.runtime import interrupts

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process may have inherited SIG_IGN
kind = sys.argv[1]
zero = wf.asarray(0.0)

def forever(x):
    return wf.while_loop(lambda i: i >= 0, lambda i: i + 1, x)

if kind == "while_loop":
    run = lambda: wf.function(forever)(zero)
elif kind == "scan":
    steps, state = wf.zeros(1 << 26, dtype=wf.uint8), wf.ones(1024)
    run = lambda: wf.function(lambda x: wf.scan(lambda c, e: (wf.sin(c) + e, c[0]), state, x)[0])(steps)
else:
    graph = wf.Graph()
    with graph.as_default():
        x = wf.placeholder(wf.float32, ())
        one, other = forever(x), forever(x * 2)
        never = wf.FIFOQueue(1, [wf.float32]).dequeue()
    devices = ["cpu:0", "cpu:1"] if kind == "devices" else None
    if devices:
        wf.configure_devices(2)
        with graph.as_default(), wf.device("cpu:1"):
            other = forever(x * 3)
    session = wf.Session(graph, devices=devices)
    fetches = {"session": one, "threads": [one, other, never], "queue": never, "devices": [one, other]}[kind]
    run = lambda: session.run(fetches, {x: 0.0})

def interrupt():
    for _ in range(600):  # until the main thread is in the loop, if it has one
        if interrupts._ticker._ticks:
            break
        time.sleep(0.05 if kind not in ("queue", "threads", "devices") else 0.005)
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    run()
except KeyboardInterrupt:
    print("interrupted")
print(float(wf.function(lambda x: wf.while_loop(lambda i: i < 10, lambda i: i + 1, x))(zero)))  # loops run as before
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["while_loop", "scan", "session", "threads", "queue", "devices"])
def test_ctrl_c_ends_a_native_loop(kind):
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "WEFT_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM, kind], env=env, capture_output=True, timeout=90, text=True)
    assert done.stdout.split() == ["interrupted", "10.0"], done.stderr[-2000:]


def test_a_deadline_ends_a_scan():
    graph = wf.Graph()
    with graph.as_default():
        x = wf.placeholder(wf.uint8, (1 << 26,))
        last = wf.scan(lambda c, e: (wf.sin(c) + e, c[0]), wf.ones(1024), x)[0]
    with wf.Session(graph) as session:
        feeds = {x: wf.zeros(1 << 26, dtype=wf.uint8)}
        with pytest.raises(TimeoutError, match="deadline"):
            session.run(last, feeds, timeout=0.5)


def test_a_loop_on_another_thread_runs_beside_one_that_is_looked_after():
    import threading

    def count(n):
        return wf.while_loop(lambda i: i < n, lambda i: i + 1, wf.asarray(0))

    captured, results = wf.function(count), []
    threads = [threading.Thread(target=lambda n=n: results.append(int(captured(wf.asarray(n))))) for n in (5, 7)]
    for thread in threads:
        thread.start()
    assert int(captured(wf.asarray(3_000_000))) == 3_000_000
    for thread in threads:
        thread.join(30)
    assert sorted(results) == [5, 7]
