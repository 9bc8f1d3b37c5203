"""Parallel loops: every iteration runs once, results do not depend on threads, and idle threads steal work."""

import subprocess
import sys
import threading

import numpy as np
import pytest

from weft.backends.llvm import eager, jit
from weft.compiler.loop_ir import ir as loops
from weft.compiler.loop_ir.ir import Buffer, Kernel
from weft.ops.core import scalar as s
from weft.runtime import threads


@pytest.fixture
def widths():
    before = threads.get_num_threads()
    yield (1, 2, 3, 5)
    threads.set_num_threads(before)


def everything():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 1111)).astype(np.float32)
    g = rng.standard_normal((300, 1111)).astype(np.float32)
    w = rng.standard_normal(1111).astype(np.float32)
    _, mean, rstd = eager.layer_norm(x, w, w, 1, 1e-5)
    return {
        "exp": eager.elementwise("exp", s.exp, [x], x.shape),
        "broadcast": eager.elementwise("add", s.add, [x.T, w[:, None]], (1111, 300)),
        "sum": eager.reduce("sum", x, (0, 1)),
        "sum0": eager.reduce("sum", x, (0,)),
        "sum1": eager.reduce("sum", x, (1,)),
        "mean": eager.reduce("mean", x[:, ::2], (0, 1)),
        "softmax": eager.softmax(x, 1),
        "softmax0": eager.softmax(x, 0),
        "layer_norm": eager.layer_norm_backward(g, x, w, mean, rstd, 1, True),
        "statistics": eager.batch_statistics(x),
        "normal": eager.random_normal((100000,), np.dtype(np.float32), 5, 1),
    }


def test_same_bits_for_any_number_of_threads(widths):
    results = []
    for width in widths:
        threads.set_num_threads(width)
        results.append(everything())
    for other in results[1:]:
        for name, value in results[0].items():
            first, second = (v if isinstance(v, tuple) else (v,) for v in (value, other[name]))
            for a, b in zip(first, second, strict=True):
                np.testing.assert_array_equal(a, b, err_msg=name)


def test_position_does_not_change_a_result():
    """An element in a tail, alone, or in the middle of a vector comes out with the same bits."""
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)

    def f(v):
        return s.tanh(v * 1.7) * s.exp(v) + s.sin(v) / (1 + v * v)

    whole = eager.elementwise("f", f, [x], x.shape)
    for start, stop in ((0, 1), (3, 20), (16, 32), (990, 1000), (1, 999)):
        part = np.ascontiguousarray(x[start:stop])
        np.testing.assert_array_equal(eager.elementwise("f", f, [part], part.shape), whole[start:stop])


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_no_more_threads_than_workers_run_a_loop_and_each_has_its_number(widths, workers):
    n, size = 64, 1000
    seen, out, room = (Buffer.of(name, np.int64, (1 << 20,)) for name in ("seen", "out", "room"))
    i, k, me = s.index("i"), s.index("k"), loops.worker("i")
    total = loops.Accumulator("total", "sum", np.dtype(np.int64))
    body = [
        loops.store(seen[i], me),
        loops.loop("w", size, [loops.store(room[me * size + s.index("w")], i)], "vector"),
        total,
        loops.loop("k", size, [loops.update(total, room[me * size + k])], "vector"),
        loops.store(out[i], total.value),
    ]
    kernel = jit.compile_kernel(
        Kernel("own", (seen, out, room), (), (loops.loop("i", n, body, parallel=True, workers=workers),))
    )
    for width in widths:
        threads.set_num_threads(width)
        for _ in range(20):
            numbers, sums, memory = np.full(n, -1), np.full(n, -1), np.zeros(workers * size, np.int64)
            kernel.call(*[x.ctypes.data for x in (numbers, sums, memory)])
            assert set(numbers) <= set(range(min(workers, width)))
            np.testing.assert_array_equal(sums, size * np.arange(n))  # what one noted down no other has written over


def test_several_python_threads_at_once():
    x = np.random.default_rng(0).standard_normal((200, 3000)).astype(np.float32)
    want = eager.softmax(x, 1)
    failures = []

    def work():
        for _ in range(20):
            if not np.array_equal(eager.softmax(x, 1), want):
                failures.append(1)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join(timeout=60)
        assert not w.is_alive()
    assert not failures


def test_without_openmp_everything_runs_on_one_thread():
    program = (
        "import numpy as np\n"
        "from weft.backends.llvm import eager\n"
        "x = np.ones((1000, 1000), np.float32)\n"
        "assert eager.reduce('sum', x, (0, 1)) == 1e6\n"
        "print(eager.softmax(x, 1)[0, 0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**_environment(), "WEFT_OPENMP": "0"}, capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == b"0.001"


def _environment():
    import os

    return dict(os.environ)


def test_importing_weft_does_not_load_llvm():
    program = "import weft, sys; assert 'llvmlite' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", program], env=_environment(), capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr


def counting(grain, kind):
    """`y[i] += 1` for every i."""
    y = Buffer.of("y", s.FLOAT32, (1 << 40,))
    i = s.index("i")
    body = loops.loop("i", s.param("n"), [loops.store(y[i], y[i] + 1)], kind, parallel=True, grain=grain)
    return jit.compile_kernel(Kernel("counting", (y,), ("n",), (body,)))


@pytest.mark.parametrize("kind", ["serial", "vector"])
@pytest.mark.parametrize("grain", [1, 7, 100])
def test_every_iteration_runs_once_for_any_number_of_threads(widths, grain, kind):
    kernel = counting(grain, kind)
    for count in widths:
        threads.set_num_threads(count)
        for n in (0, 1, 2, 3, 5, 8, 9, 40, 64, 127, 1000, 4096):
            y = np.zeros(n + 3, np.float32)
            kernel.call(y.ctypes.data, n)
            assert (y[:n] == 1).all() and (y[n:] == 0).all(), (count, n)


def test_uneven_iterations_are_shared_out(widths):
    threads.set_num_threads(4)
    y = Buffer.of("y", s.FLOAT32, (1 << 40,))
    i = s.index("i")
    inner = loops.loop("k", 1000 - i, [loops.store(y[i], y[i] + 1)])
    kernel = jit.compile_kernel(Kernel("uneven", (y,), (), (loops.loop("i", 1000, [inner], parallel=True),)))
    found = np.zeros(1000, np.float32)
    kernel.call(found.ctypes.data)
    np.testing.assert_array_equal(found, np.arange(1000, 0, -1))
