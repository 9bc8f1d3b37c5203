"""Parallel loops: every iteration runs once, whatever the number of threads, and threads that are done help the others."""

import numpy as np
import pytest

from weft.backends.llvm import jit
from weft.compiler import loops
from weft.compiler.loops import Buffer, Kernel
from weft.ops import scalar as s
from weft.runtime import threads


@pytest.fixture
def width():
    before = threads.get_num_threads()
    yield threads.set_num_threads
    threads.set_num_threads(before)


def counting(grain, kind):
    """`y[i] += 1` for every i."""
    y = Buffer.of("y", s.FLOAT32, (1 << 40,))
    i = s.index("i")
    body = loops.loop("i", s.param("n"), [loops.store(y[i], y[i] + 1)], kind, parallel=True, grain=grain)
    return jit.compile_kernel(Kernel("counting", (y,), ("n",), (body,)))


@pytest.mark.parametrize("kind", ["serial", "vector"])
@pytest.mark.parametrize("grain", [1, 7, 100])
def test_every_iteration_runs_once_for_any_number_of_threads(width, grain, kind):
    kernel = counting(grain, kind)
    for count in (1, 2, 3, 5):
        width(count)
        for n in (0, 1, 2, 3, 5, 8, 9, 40, 64, 127, 1000, 4096):
            y = np.zeros(n + 3, np.float32)
            kernel.call(y.ctypes.data, n)
            assert (y[:n] == 1).all() and (y[n:] == 0).all(), (count, n)


def test_uneven_iterations_are_shared_out(width):
    width(4)
    y = Buffer.of("y", s.FLOAT32, (1 << 40,))
    i = s.index("i")
    inner = loops.loop("k", 1000 - i, [loops.store(y[i], y[i] + 1)])
    kernel = jit.compile_kernel(Kernel("uneven", (y,), (), (loops.loop("i", 1000, [inner], parallel=True),)))
    found = np.zeros(1000, np.float32)
    kernel.call(found.ctypes.data)
    np.testing.assert_array_equal(found, np.arange(1000, 0, -1))
