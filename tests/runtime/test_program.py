"""Programs: instances, threads, errors at run time, and object code on disk."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from weft.compiler.program.steps import HostCall
from weft.nn import functional as F

ROOT = Path(__file__).resolve().parents[2]


def program(f):
    return f.traces[0].compiled.program


def in_threads(*work):
    """Run functions at once; the first error is raised here."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(work))

    def run(fn):
        try:
            barrier.wait(30)
            fn()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(w,), daemon=True) for w in work]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not any(t.is_alive() for t in threads)
    if errors:
        raise errors[0]


def test_threads_with_different_signatures():
    w = wf.tensor(np.random.default_rng(0).standard_normal((16, 16)).astype("f"))
    f = wf.function(lambda x: F.softmax(x @ w).sum(axis=0))

    def work(n):
        x = np.random.default_rng(n).standard_normal((n, 16)).astype("f")
        scores = x @ w.numpy()
        weights = np.exp(scores - scores.max(1, keepdims=True))
        expected = (weights / weights.sum(1, keepdims=True)).sum(0)

        def run():
            for _ in range(20):
                np.testing.assert_allclose(f(wf.tensor(x)).numpy(), expected, rtol=1e-4)

        return run

    in_threads(*[work(n) for n in (3, 5, 8, 13)])
    assert len(f.signatures) == 4


@pytest.mark.filterwarnings("ignore:.*is taken when the function is captured")
def test_one_signature_from_many_threads_is_captured_once():
    calls = []

    def fn(x):
        calls.append(1)
        return wf.exp(x) * 2

    f = wf.function(fn)
    in_threads(*[lambda: f(wf.ones(7)) for _ in range(6)])
    assert len(calls) == 1 and len(f.traces) == 1


def test_instances_are_made_for_calls_at_once_and_used_again():
    f = wf.function(lambda x: wf.tanh(x @ x).sum())
    x = wf.ones(64, 64)
    for _ in range(5):
        f(x)
    assert program(f).instances == 1
    in_threads(*[lambda: [f(x) for _ in range(30)] for _ in range(4)])
    assert program(f).instances <= 4


def test_an_instance_survives_an_error():
    f = wf.function(lambda i: wf.take(wf.arange(4.0), i, axis=0) * 2)
    assert f(wf.tensor([1])).tolist() == [2.0]
    for _ in range(3):
        with pytest.raises(IndexError, match="out of range"):
            f(wf.tensor([9]))
        assert f(wf.tensor([3])).tolist() == [6.0]
    assert program(f).instances == 1


def test_error_in_a_host_call_has_its_node_and_line():
    f = wf.function(lambda a: wf.linalg.inv(a) * 2)
    f(wf.eye(2))
    with pytest.raises(ValueError, match="singular") as info:
        f(wf.zeros(2, 2))
    (note,) = info.value.__notes__
    assert "node inv" in note and "test_program.py" in note and "wf.linalg.inv(a)" in note


WAYS = {
    "take": lambda t, i: wf.take(t, i, axis=0),
    "index": lambda t, i: t[i],
    "two indices": lambda t, i: t[i, i - 1],
    "embedding": lambda t, i: F.embedding(i, t),
    "along an axis": lambda t, i: wf.take_along_axis(t, wf.stack([i, i, i], axis=1), axis=0),
    "one hot": lambda t, i: F.one_hot(i, 4),
    "classes": lambda t, i: F.cross_entropy(t.T[:2], i),
    "in a scan": lambda t, i: wf.scan(lambda c, j: (c + wf.take(t, j.reshape(1), axis=0)[0], c), wf.zeros(3), i),
    "in a branch": lambda t, i: wf.cond(i.sum() > 0, lambda: wf.take(t, i, axis=0), lambda: wf.zeros(2, 3)),
    "written": lambda t, i: t.__setitem__(i, 1.0),
}


@pytest.mark.parametrize("way", WAYS)
def test_index_out_of_range_leaves_variables_alone(way):
    table, count = wf.arange(12.0).reshape(4, 3).clone(), wf.zeros(())

    def fn(i):
        count.add_(1.0)
        result = WAYS[way](table, i)
        table.mul_(2.0)
        return result

    f = wf.function(fn)
    f(wf.tensor([0, 3]))
    before = table.tolist()
    with pytest.raises(IndexError) as info:
        f(wf.tensor([0, 4]))
    assert count.item() == 1.0 and table.tolist() == before
    words = " ".join([str(info.value), *getattr(info.value, "__notes__", ())])
    assert "In node " in words and "test_program.py" in words and "WAYS" not in words
    f(wf.tensor([0, 3]))
    assert count.item() == 2.0


def test_failed_host_call_leaves_variables_alone():
    count = wf.zeros(())

    def fn(a):
        count.add_(1.0)
        return wf.linalg.inv(a)

    f = wf.function(fn)
    f(wf.eye(2))
    with pytest.raises(ValueError, match="singular"):
        f(wf.zeros(2, 2))
    assert count.item() == 1.0


def test_failed_assertion_has_its_message_and_line_and_leaves_variables_alone():
    count = wf.zeros(())

    def fn(a):
        count.add_(1.0)
        assert (a > 0).all(), "only positive numbers"
        return a * 2

    f = wf.function(fn)
    f(wf.ones(2))
    with pytest.raises(AssertionError, match="only positive numbers.*assert .a > 0..all"):
        f(wf.zeros(2))
    assert count.item() == 1.0


def test_the_check_that_failed_in_a_loop_is_the_one_that_is_named():
    small, large = wf.arange(3.0), wf.arange(5.0)

    def fn(i, j):
        def body(c, x):
            a, b = x
            first = wf.take(small, a.reshape(1), axis=0)
            second = wf.take(large, b.reshape(1), axis=0)
            return c + first[0] + second[0], c

        return wf.scan(body, wf.zeros(()), (i, j))[0]

    f = wf.function(fn)
    good = wf.tensor([0, 1, 2])
    assert f(good, good).item() == 6.0
    with pytest.raises(IndexError, match=r"axis of size 5.*take\(large"):
        f(good, wf.tensor([0, 1, 5]))
    with pytest.raises(IndexError, match=r"axis of size 3.*take\(small"):
        f(wf.tensor([0, 3, 1]), good)
    assert f(good, good).item() == 6.0


def test_the_gil_is_released_while_a_program_runs():
    """Another thread makes progress during one long call."""
    x = wf.tensor(np.full((700, 700), 1e-3, "f"))

    def fn(x):
        y = x
        for _ in range(12):
            y = wf.tanh(y @ x)
        return y

    f = wf.function(fn)
    f(x)
    blind = []
    for _ in range(8):
        times, stop = [], threading.Event()

        def count(times=times, stop=stop):
            while not stop.is_set():
                times.append(time.perf_counter())

        counter = threading.Thread(target=count, daemon=True)
        counter.start()
        while not times:
            time.sleep(0.001)
        start = time.perf_counter()
        program(f)([x._data], [])
        end = time.perf_counter()
        stop.set()
        counter.join(10)
        inside = [start, *[t for t in times if start <= t <= end], end]
        blind.append(max(np.diff(inside)) / (end - start))  # the longest time without a tick
    assert min(blind) < 0.5


COUNT = """
import time
import numpy as np
import weft as wf
from weft.backends.llvm import cache, jit, native
from weft.nn import functional as F

made = []
original = jit.compile_ir
jit.compile_ir = lambda *a, **k: (made.append(1), original(*a, **k))[1]
w = wf.tensor(np.ones((8, 8), "f"), requires_grad=True)

@wf.function
def f(x):
    loss = F.softmax(wf.tanh(x @ w)).std()
    loss.backward()
    with wf.no_grad():
        w.sub_(w.grad * 0.1)
    return loss

value = [f(wf.tensor(np.arange(32, dtype="f").reshape(4, 8))).item() for _ in range(3)]
print(len(made), value)
"""


def compiled_in(folder):
    """(objects compiled, results) of a fresh process with this cache."""
    env = os.environ | {"WEFT_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT), "WEFT_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", COUNT], env=env, capture_output=True, text=True, timeout=100, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    count, value = done.stdout.strip().split(" ", 1)
    return int(count), value


@pytest.mark.timeout(300)
def test_second_process_compiles_nothing_and_broken_entries_are_rebuilt(tmp_path):
    first, value = compiled_in(tmp_path)
    entries = [p for p in (tmp_path / "kernels").iterdir() if not p.name.startswith(".")]
    assert first > 0 and len(entries) == first
    assert all(p.stat().st_mode & 0o077 == 0 for p in entries)
    assert compiled_in(tmp_path) == (0, value)
    sizes = {p: p.read_bytes() for p in entries}
    cut, flipped = entries[0], entries[-1]
    cut.write_bytes(sizes[cut][:-20])
    broken = bytearray(sizes[flipped])
    broken[-8] ^= 0xFF
    flipped.write_bytes(bytes(broken))
    again, same = compiled_in(tmp_path)
    assert again == len({cut, flipped}) and same == value
    assert cut.read_bytes() == sizes[cut] and flipped.read_bytes() == sizes[flipped]


def test_an_interrupt_during_native_code_is_raised_by_the_host_call_that_follows():
    """The first Python that runs after the interrupt is the host call; it must not be lost or become another error."""
    import _thread
    import threading
    import time

    @wf.function
    def f(x, n):
        def body(i, y):
            return i + 1, y * 0.5 + 1.0

        _, y = wf.while_loop(lambda i, y: i < n, body, (wf.tensor(0), x.sum()))
        return wf.linalg.inv(x + y * 0.0)

    x = wf.eye(3)
    f(x, wf.tensor(1000))
    assert any(isinstance(step, HostCall) for step in f.traces[0].compiled.program.steps)
    start = time.perf_counter()
    f(x, wf.tensor(500_000))
    long = wf.tensor(int(500_000 * 1.5 / (time.perf_counter() - start)))
    timer = threading.Timer(0.2, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        f(x, long)
    timer.join(10)
    np.testing.assert_array_equal(f(x, wf.tensor(5)).numpy(), np.eye(3))
