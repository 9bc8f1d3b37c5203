"""Training in two threads, forked and spawned children, and memory that stays flat without the garbage collector."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import weft as wf

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 60.0


def _train(seed: int, steps: int = 40) -> list[float]:
    """A small regression with in-place updates; the losses."""
    rng = np.random.default_rng(seed)
    x = wf.asarray(rng.standard_normal((32, 8)).astype(np.float32))
    y = wf.asarray(rng.standard_normal((32, 1)).astype(np.float32))
    w1 = wf.asarray((rng.standard_normal((8, 16)) * 0.3).astype(np.float32)).requires_grad_()
    w2 = wf.asarray((rng.standard_normal((16, 1)) * 0.3).astype(np.float32)).requires_grad_()
    losses = []
    for _ in range(steps):
        loss = ((wf.tanh(x @ w1) @ w2 - y) ** 2).mean()
        loss.backward()
        with wf.no_grad():
            for p in (w1, w2):
                p -= 0.05 * p.grad
                p.grad = None
        losses.append(loss.item())
    return losses


def _in_threads(*functions):
    results: dict[int, object] = {}

    def run(i, fn):
        try:
            results[i] = fn()
        except BaseException as error:  # told to the test, in its own thread
            results[i] = error

    threads = [threading.Thread(target=run, args=(i, fn), daemon=True) for i, fn in enumerate(functions)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(PATIENCE)
        assert not t.is_alive(), "a thread hangs"
    return [results[i] for i in range(len(functions))]


def test_two_threads_train_two_models():
    alone = [_train(0), _train(1)]
    assert alone[0][-1] < alone[0][0]
    together = _in_threads(lambda: _train(0), lambda: _train(1))
    assert together == alone


def test_grad_mode_is_per_thread():
    ready, done = threading.Event(), threading.Event()
    seen = []

    def other():
        ready.wait(PATIENCE)
        seen.append(wf.is_grad_enabled())
        seen.append((wf.ones(1, requires_grad=True) * 2).requires_grad)
        done.set()

    t = threading.Thread(target=other, daemon=True)
    t.start()
    with wf.no_grad():
        ready.set()
        assert done.wait(PATIENCE)
    t.join(PATIENCE)
    assert seen == [True, True] and wf.is_grad_enabled()


def test_one_graph_may_be_run_by_another_thread():
    x = wf.ones(3, requires_grad=True)
    y = (x * x).sum()
    _in_threads(y.backward)
    assert x.grad.tolist() == [2, 2, 2]


def test_many_threads_backward_through_shared_parameters():
    w = wf.ones(4, requires_grad=True)

    def work():
        for _ in range(25):
            assert wf.grad((w * w).sum(), w)[0].tolist() == [2, 2, 2, 2]
        return True

    assert _in_threads(*[work] * 4) == [True] * 4


def test_modes_of_threads_do_not_mix():
    def low():
        with wf.autocast(wf.bfloat16):
            return {(wf.ones(4, 4) @ wf.ones(4, 4)).dtype.name for _ in range(50)}

    def plain():
        return {(wf.ones(4, 4) @ wf.ones(4, 4)).dtype.name for _ in range(50)}

    assert _in_threads(low, plain, low, plain) == [{"bfloat16"}, {"float32"}] * 2


# Processes -------------------------------------------------------------------------------------------------------------


def _run_script(text: str, timeout: float = PATIENCE) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork_after_first_use_computes_in_the_child():
    """The parent has used threads and native kernels; the child must compute the same, and not hang."""
    out = _run_script(
        """
        import os, signal, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        import weft as wf

        def work():
            a = wf.ones(512, 512, requires_grad=True)
            out = (wf.exp(a * 0.001) @ a).sum()
            out.backward()
            return round(float(a.grad[0, 0]), 1)

        expected = work()
        pid = os.fork()
        if pid == 0:
            signal.alarm(30)
            os._exit(0 if work() == expected and work() == expected else 3)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), work() == expected)
        """
    )
    assert out.split() == ["0", "True"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork_while_another_thread_computes():
    out = _run_script(
        """
        import os, signal, threading, time, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        import weft as wf

        def work():
            x = wf.ones(300, 300, requires_grad=True)
            (wf.exp(x * 0) * (x @ x)).sum().backward()
            return x.grad[0, 0].item()

        expected = work()
        stop = threading.Event()
        def busy():
            a = wf.ones(300, 300)
            while not stop.is_set():
                a @ a; wf.exp(a)
        t = threading.Thread(target=busy, daemon=True); t.start()
        time.sleep(0.2)
        codes = []
        for _ in range(5):
            pid = os.fork()
            if pid == 0:
                signal.alarm(20)
                os._exit(0 if work() == expected else 4)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        stop.set(); t.join(10)
        print(codes)
        """
    )
    assert out.strip() == "[0, 0, 0, 0, 0]"


def _child(connection):
    x = connection.recv()
    y = pickle.loads(connection.recv_bytes())
    with wf.no_grad():
        connection.send((x * 2, y.requires_grad, x.dtype.name))
    connection.close()


def test_tensors_travel_to_spawned_processes():
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_child, args=(there,), daemon=True)
    process.start()
    try:
        here.send(wf.tensor([1.5, 2.5], dtype=wf.bfloat16))
        here.send_bytes(pickle.dumps(wf.ones(2, requires_grad=True)))
        assert here.poll(PATIENCE), "the child does not answer"
        doubled, required, name = here.recv()
        assert doubled.tolist() == [3, 5] and required and name == "bfloat16"
        process.join(PATIENCE)
        assert process.exitcode == 0
    finally:
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)


def test_exit_with_a_live_graph_is_clean():
    out = _run_script(
        """
        import weft as wf
        x = wf.ones(3, requires_grad=True)
        keep = [(x * i).exp() for i in range(100)]
        y = wf.ones(300, 300) @ wf.ones(300, 300)
        print("end")
        """
    )
    assert out.strip() == "end"


# Memory -----------------------------------------------------------------------------------------------------------------


def _step(x, y, params):
    hidden = wf.tanh(x @ params[0] + params[1]) * 1
    hidden[:, 0] *= 0.5
    view = hidden.reshape(-1)
    view[:4] = 0.0
    loss = ((hidden @ params[2] - y) ** 2).mean() + (params[0] ** 2).sum() * 1e-4
    loss.backward()
    with wf.no_grad():
        for p in params:
            p -= 0.01 * p.grad
            p.grad = None
    return loss.item()


def test_memory_stays_flat_without_the_collector():
    """Nothing in a training step may be part of a reference cycle: with the collector off, memory must not grow."""
    rng = np.random.default_rng(0)
    x = wf.asarray(rng.standard_normal((64, 32)).astype(np.float32))
    y = wf.asarray(rng.standard_normal((64, 1)).astype(np.float32))
    params = [
        wf.asarray((rng.standard_normal(s) * 0.2).astype(np.float32)).requires_grad_()
        for s in ((32, 64), (64,), (64, 1))
    ]
    for _ in range(20):
        _step(x, y, params)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(300):
            _step(x, y, params)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        gc.enable()
    assert grown < 100_000, f"300 steps left {grown} bytes behind"


@pytest.mark.parametrize(
    "program",
    ["checkpoint", "higher order", "function", "vmap", "hooks", "autocast", "graph dropped", "error", "indexing"],
)
def test_features_leave_nothing_behind(program):
    class Double(wf.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    w = wf.ones(64, 64, requires_grad=True)

    def run():
        if program == "checkpoint":
            wf.checkpoint(lambda v: (v @ w).sin().exp(), w * 1).sum().backward()
        elif program == "higher order":
            g = wf.grad((w.sin() ** 2).sum(), w, create_graph=True)[0]
            (g * g).sum().backward()
        elif program == "function":
            Double.apply(Double.apply(w)).sum().backward()
        elif program == "vmap":
            wf.vmap(wf.grad_fn(lambda v: (v * v).sum()))(w.detach())
        elif program == "hooks":
            y = w * 2
            y.register_hook(lambda g: g * 2)
            y.retain_grad()
            (y * y).sum().backward()
        elif program == "autocast":
            with wf.autocast():
                out = (w @ w).sum()
            out.backward()
        elif program == "graph dropped":
            (w @ w).sin().sum()
        elif program == "error":
            for bad in (
                lambda: w.sin() @ wf.ones(3, 3),
                lambda: (w * 2).sum(7),
                lambda: wf.concat([w * 2, wf.ones(3)]),
                lambda: (w * 2)[100],
            ):
                try:
                    bad()
                except (ValueError, IndexError):
                    continue
                raise AssertionError("expected an error")
        else:
            y = w * 1
            y[wf.tensor([0, 1])] = y[2:4] * 2
            y[y.detach() > 5] = 0.0
            y[3] += 1
            y.sum().backward()
        w.grad = None

    for _ in range(3):
        run()
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            run()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        gc.enable()
    assert grown < 64 * 64 * 4 * 3, f"20 rounds left {grown} bytes behind"  # a cycle would leave at least 20 arrays


def test_freed_graph_lets_go_of_saved_arrays_at_once():
    import weakref

    gc.disable()
    try:
        x = wf.ones(1000, requires_grad=True)
        y = x.exp()
        watch = weakref.ref(y._data)
        z = y.sin().sum()
        del y
        assert watch() is not None
        z.backward()
        assert watch() is None
    finally:
        gc.enable()
